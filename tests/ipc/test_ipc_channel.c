/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Channels (usm/ipc.h): meeting, barriers, gathers; members that are late, end, or stop. */
#include "group.h"

#include <usm/usm.h>

#define OK(call) CHECK_INT((call), USM_OK)

static usm_ipc_channel *open_as(const group *g, uint32_t rank, uint32_t size)
{
    usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;
    usm_ipc_channel     *ch   = NULL;

    desc.name       = g->name;
    desc.rank       = rank;
    desc.size       = size;
    desc.timeout_ms = 20000;
    OK(usm_ipc_channel_open(&desc, &ch));
    return ch;
}

static usm_status try_open(const char *name, uint32_t rank, uint32_t size, uint32_t timeout_ms)
{
    usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;
    usm_ipc_channel     *ch   = NULL;
    usm_status           st;

    desc.name       = name;
    desc.rank       = rank;
    desc.size       = size;
    desc.timeout_ms = timeout_ms;
    st              = usm_ipc_channel_open(&desc, &ch);
    CHECK((st == USM_OK) == (ch != NULL));
    usm_ipc_channel_close(ch);
    return st;
}

/* ---- barriers and gathers ---------------------------------------------------------------- */

#define ROUNDS 1000

static void rounds(group *g, int rank)
{
    usm_ipc_channel *ch = open_as(g, (uint32_t)rank, (uint32_t)g->page->value[0][0]);

    for (int i = 1; i <= ROUNDS; i++) {
        atomic_store(&g->page->step[rank], i);
        OK(usm_ipc_channel_barrier(ch));
        for (int r = 0; r < (int)g->page->value[0][0]; r++)
            CHECK(atomic_load(&g->page->step[r]) >= i);
    }
    usm_ipc_channel_close(ch);
}

static void nobody_leaves_a_barrier_before_all_are_there(void)
{
    group g;

    group_begin(&g);
    g.page->value[0][0] = 8;
    while (g.n < 8)
        (void)group_add(&g, rounds);
    group_end(&g);
}

static void gather_rounds(group *g, int rank)
{
    usm_ipc_channel *ch = open_as(g, (uint32_t)rank, 4);
    static uint32_t  mine[1024], all[4][1024];

    for (uint32_t i = 0; i < 300; i++) {
        const size_t words = 1 + i * 7 % 1024;

        for (uint32_t k = 0; k < words; k++)
            mine[k] = i * 1000000 + (uint32_t)rank * 10000 + k;
        OK(usm_ipc_channel_gather(ch, mine, words * 4, all));
        for (uint32_t r = 0; r < 4; r++)
            for (uint32_t k = 0; k < words; k++)
                CHECK(((uint32_t *)all)[r * words + k] == i * 1000000 + r * 10000 + k);
    }
    usm_ipc_channel_close(ch);
}

static void a_gather_gives_what_all_members_gave_in_this_call(void)
{
    group g;

    group_start(&g, 4, gather_rounds);
    group_end(&g);
}

static void different_calls(group *g, int rank)
{
    usm_ipc_channel *ch      = open_as(g, (uint32_t)rank, 3);
    char             mine[8] = "", all[24];

    CHECK_INT(rank == 1 ? usm_ipc_channel_barrier(ch) : usm_ipc_channel_gather(ch, mine, 8, all),
              USM_E_INVALID);
    CHECK_INT(usm_ipc_channel_gather(ch, mine, rank == 2 ? 4 : 8, all), USM_E_INVALID);
    CHECK_IN("bytes", usm_last_error());
    OK(usm_ipc_channel_barrier(ch));
    CHECK_INT(usm_ipc_channel_gather(ch, mine, 4097, all), USM_E_INVALID);
    CHECK_INT(usm_ipc_channel_gather(ch, mine, 0, all), USM_E_INVALID);
    OK(usm_ipc_channel_barrier(ch));
    usm_ipc_channel_close(ch);
}

static void members_that_make_different_calls_are_told_and_go_on(void)
{
    group g;

    group_start(&g, 3, different_calls);
    group_end(&g);
}

/* Until somebody hosts a meeting of the group. */
static void wait_for_a_host(const group *g)
{
    static char text[1 << 18];
    bool        is_there = false;

    for (int ms = 0; !is_there && ms < GROUP_WAIT_MS; ms += 2) {
        group_sleep_ms(2);
        is_there = strstr(plain_read("/proc/net/unix", text, sizeof text), g->name) != NULL;
    }
    CHECK(is_there);
}

/* ---- meeting ------------------------------------------------------------------------------- */

static void meet_again(group *g, int rank)
{
    int before;

    usm_ipc_channel_close(open_as(g, (uint32_t)rank, 3));
    before = group_descriptors();
    for (int i = 0; i < 30; i++) {
        usm_ipc_channel *ch = open_as(g, (uint32_t)rank, 3);

        OK(usm_ipc_channel_barrier(ch));
        usm_ipc_channel_close(ch);
    }
    CHECK_INT(group_descriptors(), before);
    CHECK_INT(group_mappings(), 0);
}

static void nothing_is_left_when_channels_are_closed(void)
{
    group g;

    group_start(&g, 3, meet_again);
    group_end(&g);
}

static void a_group_of_one(group *g, int rank)
{
    usm_ipc_channel *ch = open_as(g, (uint32_t)rank, 1);
    int              in = 5, out = 0;

    OK(usm_ipc_channel_barrier(ch));
    OK(usm_ipc_channel_gather(ch, &in, sizeof in, &out));
    CHECK_INT(out, 5);
    CHECK(usm_ipc_channel_is_alive(ch, 0));
    CHECK(!usm_ipc_channel_is_alive(ch, 1));
    usm_ipc_channel_close(ch);
    usm_ipc_channel_close(NULL);
    CHECK_INT(usm_ipc_channel_barrier(ch), USM_E_INVALID_HANDLE);
}

static void one_member_is_a_group(void)
{
    group g;

    group_start(&g, 1, a_group_of_one);
    group_end(&g);
}

static void wait_alone(group *g, int rank)
{
    CHECK_INT(try_open(g->name, rank == 0 ? 0 : 3, 5, 300), USM_E_PEER);
    CHECK_IN("rank", usm_last_error());
    CHECK_IN("1, 2", usm_last_error());
}

static void who_does_not_come_is_named(void)
{
    group g;

    group_start(&g, 2, wait_alone);
    group_end(&g);
}

/* Rank 0 of 2 waits for long; others with the same name come meanwhile. */
static void wait_for_the_second(group *g, int rank)
{
    usm_ipc_channel *ch;

    (void)rank;
    ch = open_as(g, 0, 2);
    OK(usm_ipc_channel_barrier(ch));
    usm_ipc_channel_close(ch);
}

static void come_wrongly_then_rightly(group *g, int rank)
{
    usm_ipc_channel *ch;

    (void)rank;
    wait_for_a_host(g);
    CHECK_INT(try_open(g->name, 0, 2, 5000), USM_E_BUSY);
    CHECK_IN("rank 0", usm_last_error());
    CHECK_INT(try_open(g->name, 1, 3, 5000), USM_E_BUSY);
    CHECK_IN("rank 1 came with size 3, not 2", usm_last_error());
    ch = open_as(g, 1, 2);
    OK(usm_ipc_channel_barrier(ch));
    usm_ipc_channel_close(ch);
}

static void a_taken_rank_and_another_size_are_refused(void)
{
    group g;

    group_start(&g, 1, wait_for_the_second);
    (void)group_add(&g, come_wrongly_then_rightly);
    group_end(&g);
}

static void wait_until_killed(group *g, int rank)
{
    (void)rank;
    (void)open_as(g, 0, 3);
}

static void come_late(group *g, int rank)
{
    usm_ipc_channel *ch = open_as(g, (uint32_t)rank % 3, 3);

    OK(usm_ipc_channel_barrier(ch));
    usm_ipc_channel_close(ch);
}

static void when_the_host_of_a_meeting_ends_the_others_start_over(void)
{
    group g;

    group_start(&g, 1, wait_until_killed);
    wait_for_a_host(&g);
    (void)group_add(&g, come_late); /* rank 1 */
    group_sleep_ms(60);
    group_kill(&g, 0);
    (void)group_add(&g, come_late); /* rank 2 */
    (void)group_add(&g, come_late); /* number 3: rank 0 again */
    group_end(&g);
}

static void leave_early(group *g, int rank)
{
    (void)rank;
    CHECK_INT(try_open(g->name, 0, 3, 200), USM_E_PEER);
}

static void when_somebody_gives_up_the_others_go_on_meeting(void)
{
    group g;

    group_start(&g, 1, leave_early);
    (void)group_add(&g, come_late);
    group_sleep_ms(20);
    (void)group_end_of(&g, 0);
    (void)group_add(&g, come_late);
    (void)group_add(&g, come_late); /* number 3: rank 0 */
    group_end(&g);
}

static void wrong_arguments(group *g, int rank)
{
    char                 name[80];
    usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;
    usm_ipc_channel     *ch   = NULL;

    (void)rank;
    CHECK_INT(try_open(NULL, 0, 1, 10), USM_E_INVALID);
    CHECK_INT(try_open("", 0, 1, 10), USM_E_INVALID);
    CHECK_INT(try_open(g->name, 2, 2, 10), USM_E_INVALID);
    CHECK_INT(try_open(g->name, 0, 0, 10), USM_E_INVALID);
    CHECK_INT(try_open(g->name, 0, 257, 10), USM_E_INVALID);
    CHECK_INT(usm_ipc_channel_open(NULL, &ch), USM_E_INVALID);
    CHECK_INT(usm_ipc_channel_open(&desc, NULL), USM_E_INVALID);
    desc.struct_size = 8;
    CHECK_INT(usm_ipc_channel_open(&desc, &ch), USM_E_ABI);
    memset(name, 'x', sizeof name);
    name[64] = '\0';
    CHECK_INT(try_open(name, 0, 1, 10), USM_E_INVALID);
    name[63] = '\0';
    OK(try_open(name, 0, 1, 1000));
}

static void wrong_descriptors_are_named(void)
{
    group g;

    group_start(&g, 1, wrong_arguments);
    group_end(&g);
}

/* ---- members that end ------------------------------------------------------------------------ */

static _Atomic(int) losses;

static void count_loss(int pid, usm_ipc_role role, void *user)
{
    (void)pid;
    (void)user;
    if (role == USM_IPC_MEMBER)
        (void)atomic_fetch_add(&losses, 1);
}

#define MEMBERS 4
#define CALLS   8

/* Each notes what each call answered; number `victim` ends at some call, as `how` says. */
enum { BEFORE = 0, AFTER = 1, CLOSES = 2, AT_A_MOMENT = 3 };

static void one_ends(group *g, int rank)
{
    usm_ipc_channel *ch     = open_as(g, (uint32_t)rank, MEMBERS);
    const int        victim = (int)g->page->value[0][0], how = (int)g->page->value[0][1];
    int              bad = 0;

    usm_ipc_on_loss(count_loss, NULL);
    for (int i = 0; i < CALLS; i++) {
        usm_status st;

        if (rank == victim && i == 3 && how == BEFORE)
            (void)raise(SIGKILL);
        if (rank == victim && i == 3 && how == CLOSES) {
            usm_ipc_channel_close(ch);
            return;
        }
        if (rank == victim && i == 2)
            atomic_store(&g->page->go, 1); /* it may be killed from now on */
        st = usm_ipc_channel_barrier(ch);
        if (rank == victim && i == 3 && how == AFTER)
            (void)raise(SIGKILL);
        CHECK(st == USM_OK || st == USM_E_PEER);
        atomic_store(&g->page->value[rank + 1][i], (int64_t)st);
        if (st == USM_E_PEER) {
            char text[16];

            bad++;
            (void)snprintf(text, sizeof text, "rank %d", victim);
            CHECK_IN(text, usm_last_error());
            CHECK(!usm_ipc_channel_is_alive(ch, (uint32_t)victim));
        }
    }
    /* Where it ended too late for a call, there is one more to tell. */
    if (bad == 0 && rank != victim) {
        for (int ms = 0; usm_ipc_channel_is_alive(ch, (uint32_t)victim) && ms < 5000; ms++)
            group_sleep_ms(1);
        CHECK(!usm_ipc_channel_is_alive(ch, (uint32_t)victim));
    }
    CHECK(bad <= 1);
    for (int ms = 0; how != CLOSES && atomic_load(&losses) == 0 && ms < 5000; ms++)
        group_sleep_ms(1);
    if (how != CLOSES || rank == victim)
        CHECK_INT(atomic_load(&losses), 1);
    (void)atomic_fetch_add(&g->page->ready, 1);
    while (how != AT_A_MOMENT && atomic_load(&g->page->ready) < MEMBERS - 1)
        group_sleep_ms(1);
    usm_ipc_on_loss(NULL, NULL);
    usm_ipc_channel_close(ch);
}

/* All that live were told at the same call; it. */
static int told_at(const group *g, int victim)
{
    int first = victim == 0 ? 1 : 0, at = -1;

    for (int i = 0; i < CALLS; i++)
        for (int r = 0; r < MEMBERS; r++) {
            if (r == victim)
                continue;
            CHECK_INT(g->page->value[r + 1][i], g->page->value[first + 1][i]);
            if (g->page->value[r + 1][i] == USM_E_PEER)
                at = i;
        }
    return at;
}

static int end_one(int victim, int how)
{
    group g;
    int   at;

    group_begin(&g);
    g.page->value[0][0] = victim;
    g.page->value[0][1] = how;
    while (g.n < MEMBERS)
        (void)group_add(&g, one_ends);
    if (how == AT_A_MOMENT) {
        CHECK(group_wait_for(&g.page->go, 1));
        group_kill(&g, victim);
    }
    for (int r = 0; r < MEMBERS; r++)
        (void)group_end_of(&g, r);
    at = told_at(&g, victim);
    group_end(&g);
    return at;
}

static void one_that_is_killed_before_a_barrier_is_told_at_it(void)
{
    for (int victim = 0; victim < MEMBERS; victim++)
        CHECK_INT(end_one(victim, BEFORE), 3);
}

static void one_that_is_killed_after_a_barrier_is_told_at_the_next(void)
{
    for (int victim = 0; victim < MEMBERS; victim++) {
        const int at = end_one(victim, AFTER);

        CHECK(at == 4);
    }
}

static void one_that_is_killed_at_any_moment_is_told_to_all_at_the_same_call(void)
{
    for (int i = 0; i < 12; i++)
        (void)end_one(i % MEMBERS, AT_A_MOMENT);
}

static void one_that_closes_is_told_like_one_that_ended_but_is_no_loss(void)
{
    CHECK_INT(end_one(0, CLOSES), 3);
    CHECK_INT(end_one(2, CLOSES), 3);
}

static void gather_without_one(group *g, int rank)
{
    usm_ipc_channel *ch   = open_as(g, (uint32_t)rank, 3);
    uint32_t         mine = 100 + (uint32_t)rank, all[3];

    OK(usm_ipc_channel_barrier(ch));
    if (rank == 1)
        (void)raise(SIGKILL);
    CHECK_INT(usm_ipc_channel_gather(ch, &mine, sizeof mine, all), USM_E_PEER);
    CHECK(all[0] == 100 && all[1] == 0 && all[2] == 102);
    OK(usm_ipc_channel_gather(ch, &mine, sizeof mine, all));
    CHECK(all[0] == 100 && all[1] == 0 && all[2] == 102);
    usm_ipc_channel_close(ch);
}

static void a_gather_has_zeros_for_one_that_ended(void)
{
    group g;

    group_start(&g, 3, gather_without_one);
    group_end(&g);
}

static void be_stopped(group *g, int rank)
{
    usm_ipc_channel *ch = open_as(g, (uint32_t)rank, 3);

    OK(usm_ipc_channel_barrier(ch));
    (void)atomic_fetch_add(&g->page->ready, 1);
    if (rank == 2)
        (void)raise(SIGSTOP);
    OK(usm_ipc_channel_barrier(ch));
    atomic_store(&g->page->go, 1);
    OK(usm_ipc_channel_barrier(ch));
    usm_ipc_channel_close(ch);
}

static void one_that_is_stopped_only_delays(void)
{
    group g;

    group_start(&g, 3, be_stopped);
    CHECK(group_wait_for(&g.page->ready, 3));
    group_sleep_ms(150);
    CHECK_INT(atomic_load(&g.page->go), 0);
    CHECK(kill(g.pid[2], SIGCONT) == 0);
    group_end(&g);
}

/* ---- two levels
 * --------------------------------------------------------------------------------------- */

static group *across_group;
static int    across_rank;

static usm_status across(void *user)
{
    const int n = 1 + atomic_fetch_add(&across_group->page->step[15], 1);

    CHECK(user == &across_rank);
    /* Everybody is there, and nobody has been released. */
    for (int r = 0; r < 3; r++)
        CHECK(atomic_load(&across_group->page->step[r]) >= (int)across_group->page->value[0][0]);
    atomic_store(&across_group->page->value[1][n % 16], across_rank);
    if (n == 3)
        return USM_E_SYSTEM;
    if (n == 4)
        (void)raise(SIGKILL);
    return USM_OK;
}

static void two_levels(group *g, int rank)
{
    const usm_status     want[6] = {USM_OK, USM_OK, USM_E_SYSTEM, USM_E_PEER, USM_OK, USM_OK};
    usm_ipc_channel_desc desc    = USM_IPC_CHANNEL_DESC_INIT;
    usm_ipc_channel     *ch      = NULL;

    across_group = g;
    across_rank  = rank;
    desc.name    = g->name;
    desc.rank    = (uint32_t)rank;
    desc.size    = 3;
    desc.across  = across;
    desc.user    = &across_rank;
    OK(usm_ipc_channel_open(&desc, &ch));
    for (int i = 0; i < 6; i++) {
        if (rank == 0 && i == 3)
            atomic_store(&g->page->go, 1);
        (void)atomic_fetch_add(&g->page->step[rank], 1);
        CHECK_INT(usm_ipc_channel_barrier(ch), want[i]);
        CHECK(atomic_load(&g->page->step[15]) >= i + 1);
        if (i == 3)
            CHECK_IN("rank 0", usm_last_error());
    }
    usm_ipc_channel_close(ch);
}

static void the_lowest_living_rank_waits_for_other_machines(void)
{
    group g;

    group_start(&g, 3, two_levels);
    for (int r = 0; r < 3; r++)
        (void)group_end_of(&g, r);
    CHECK_INT(g.page->step[15], 6);
    for (int n = 1; n <= 6; n++)
        CHECK_INT(g.page->value[1][n], n <= 4 ? 0 : 1);
    CHECK(WIFSIGNALED(g.status[0]));
    group_end(&g);
}

static void fork_inside(group *g, int rank)
{
    usm_ipc_channel *ch = open_as(g, (uint32_t)rank, 2);
    pid_t            pid;
    int              status = -1;

    OK(usm_ipc_channel_barrier(ch));
    pid = fork();
    if (pid == 0) {
        (void)alarm(20);
        if (usm_ipc_channel_barrier(ch) != USM_E_FORKED)
            _exit(1);
        usm_ipc_channel_close(ch);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    OK(usm_ipc_channel_barrier(ch));
    usm_ipc_channel_close(ch);
}

static void a_forked_child_is_no_member(void)
{
    group g;

    group_start(&g, 2, fork_inside);
    group_end(&g);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(nobody_leaves_a_barrier_before_all_are_there),
        CASE(a_gather_gives_what_all_members_gave_in_this_call),
        CASE(members_that_make_different_calls_are_told_and_go_on),
        CASE(nothing_is_left_when_channels_are_closed),
        CASE(one_member_is_a_group),
        CASE(who_does_not_come_is_named),
        CASE(a_taken_rank_and_another_size_are_refused),
        CASE(when_the_host_of_a_meeting_ends_the_others_start_over),
        CASE(when_somebody_gives_up_the_others_go_on_meeting),
        CASE(wrong_descriptors_are_named),
        CASE(one_that_is_killed_before_a_barrier_is_told_at_it),
        CASE(one_that_is_killed_after_a_barrier_is_told_at_the_next),
        CASE(one_that_is_killed_at_any_moment_is_told_to_all_at_the_same_call),
        CASE(one_that_closes_is_told_like_one_that_ended_but_is_no_loss),
        CASE(a_gather_has_zeros_for_one_that_ended),
        CASE(one_that_is_stopped_only_delays),
        CASE(the_lowest_living_rank_waits_for_other_machines),
        CASE(a_forked_child_is_no_member),
        {NULL, NULL},
    };

    return plain_main(argc, argv, cases);
}
