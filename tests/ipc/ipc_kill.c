/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A process that shares memory, an event or a channel is killed at each of its system calls, the
 * n-th for n = 1, 2, ... until it gets through; the others must come to an end, with statuses that
 * name what happened, and with as many descriptors and mappings as before.
 *
 *     ipc_kill [--times N] [case]...     N: how often each step; default 3
 *
 * Every wrapper of base/os.h and its kind asks for faults by its name; the linker puts this file
 * between (--wrap), which counts and ends the process. */
#include "group.h"

#include <usm/usm.h>

#include "base/fault.h"

#define OK(call) CHECK_INT((call), USM_OK)
#define SOON     20000
#define BLOCK    ((size_t)100000)

enum { EVENT_RECORDS = 2, CALLS = 5 };

/* ---- the steps ----------------------------------------------------------------------------- */

static _Atomic(int) steps_left; /* 0: nobody counts                                        */

bool __real_usm__fault_hit_slow(const char *name, usm_status *status); /* NOLINT: the linker's */
bool __wrap_usm__fault_hit_slow(const char *name, usm_status *status); /* NOLINT */

bool __wrap_usm__fault_hit_slow(const char *name, usm_status *status) /* NOLINT */
{
    (void)status;
    if (strncmp(name, "os.", 3) == 0 && atomic_load(&steps_left) > 0 &&
        atomic_fetch_sub(&steps_left, 1) == 1)
        (void)raise(SIGKILL);
    return false;
}

/* In the group's page: value[15][0] the victim's rank, [1] the step at which it ends. */
static bool is_victim(const group *g, int rank)
{
    return rank == (int)g->page->value[15][0];
}

static void begin(const group *g, int rank)
{
    if (!is_victim(g, rank))
        return;
    atomic_store(&usm__faults.armed, 1);
    atomic_store(&steps_left, (int)g->page->value[15][1]);
}

static void end(void)
{
    atomic_store(&steps_left, 0);
    atomic_store(&usm__faults.armed, 0);
}

/* What a process may have before and after; what others end late is waited for. */
typedef struct holdings {
    int descriptors, mappings;
} holdings;

static holdings hold(void)
{
    return (holdings){group_descriptors(), group_mappings()};
}

static void has_no_more_than(holdings before)
{
    holdings now = hold();

    for (int ms = 0; ms < 5000; ms++) {
        if (now.descriptors <= before.descriptors && now.mappings <= before.mappings)
            return;
        group_sleep_ms(1);
        now = hold();
    }
    CHECK_INT(now.descriptors, before.descriptors);
    CHECK_INT(now.mappings, before.mappings);
}

/* Until the flag, or until the victim has ended; false then. */
static bool wait_flag(const group *g, const _Atomic(int) *flag, int value)
{
    for (int ms = 0; atomic_load(flag) < value; ms++) {
        if (atomic_load(&g->page->go) != 0)
            return atomic_load(flag) >= value;
        CHECK(ms < 2 * GROUP_WAIT_MS);
        group_sleep_ms(1);
    }
    return true;
}

/* The library's own thread and sockets for other processes, which stay: a channel of one starts
 * them.
 */
static void start_service(const group *g, int rank)
{
    usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;
    usm_ipc_channel     *ch   = NULL;
    char                 name[64];

    (void)snprintf(name, sizeof name, "%s-%d-%d", g->name, rank, (int)getpid());
    desc.name = name;
    OK(usm_ipc_channel_open(&desc, &ch));
    usm_ipc_channel_close(ch);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static usm_pool *export_pool(void)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.export_mode = USM_POOL_EXPORT_RW;
    OK(usm_pool_create(usm_default_context(), NULL, USM_HOST, &desc, &pool));
    return pool;
}

static void own_memory(group *g, int rank)
{
    usm_ipc_stats stats = USM_IPC_STATS_INIT;
    holdings      before;

    usm_ipc_handle handle;
    usm_pool      *pool = export_pool();
    char          *p    = usm_pool_malloc(pool, BLOCK);

    /* Once before, so that what is made once and for all is there. */
    CHECK(p != NULL);
    OK(usm_ipc_get(p, NULL, &handle));
    OK(usm_ipc_put(&handle, NULL));
    usm_pool_free(pool, p);
    usm_pool_destroy(pool);
    before = hold();

    begin(g, rank);
    pool = export_pool();
    p    = usm_pool_malloc(pool, BLOCK);
    CHECK(p != NULL);
    memset(p, 'o', BLOCK);
    OK(usm_ipc_get(p, NULL, &handle));
    memcpy(g->page->bytes, handle.bytes, sizeof handle.bytes);
    atomic_store(&g->page->ready, 1);
    if (wait_flag(g, &g->page->step[1], 1))
        CHECK_INT(p[1], 'i');
    OK(usm_ipc_put(&handle, NULL));
    usm_pool_free(pool, p);
    for (int ms = 0; ms < 5000; ms++) { /* put off while it is open */
        OK(usm_ipc_get_stats(&stats));
        if (stats.deferred == 0)
            break;
        group_sleep_ms(1);
    }
    CHECK_INT(stats.deferred, 0);
    CHECK_INT(stats.handles, 0);
    usm_pool_destroy(pool);
    atomic_store(&g->page->step[0], 1);
    (void)wait_flag(g, &g->page->step[1], 2);
    end();
    if (!is_victim(g, rank))
        has_no_more_than(before);
}

static void import_memory(group *g, int rank)
{
    usm_ipc_handle handle;
    void          *p = NULL;
    usm_status     st;
    usm_ipc_info   info = USM_IPC_INFO_INIT;
    holdings       before;

    CHECK(usm_default_queue() != NULL);
    CHECK_INT(usm_ipc_query(&handle, &info), USM_E_INVALID_POINTER);
    if (!wait_flag(g, &g->page->ready, 1))
        return; /* it ended before there was anything */
    memcpy(handle.bytes, g->page->bytes, sizeof handle.bytes);
    start_service(g, rank);
    before = hold();
    begin(g, rank);
    st = usm_ipc_open(&handle, NULL, NULL, &p);
    if (st == USM_OK) {
        CHECK_INT(((char *)p)[0], 'o');
        CHECK_INT(((char *)p)[BLOCK - 1], 'o');
        ((char *)p)[1] = 'i';
        OK(usm_ipc_query(p, &info));
        CHECK_INT(info.owner, g->pid[0]);
        OK(usm_ipc_close(p, NULL));
        usm_ipc_trim();
    } else {
        CHECK(is_victim(g, 0) && st == USM_E_OWNER_GONE);
    }
    atomic_store(&g->page->step[1], 1);
    (void)wait_flag(g, &g->page->step[0], 1);
    end();
    if (st == USM_OK) {
        st = usm_ipc_open(&handle, NULL, NULL, &p);
        CHECK(st == USM_E_STALE || (is_victim(g, 0) && st == USM_E_OWNER_GONE));
    }
    atomic_store(&g->page->step[1], 2);
    if (is_victim(g, 0) && atomic_load(&g->page->go) != 0)
        has_no_more_than(before); /* else the connection stays, as long as the owner does */
}

/* ---- events ---------------------------------------------------------------------------------- */

/* What may come of it when the other one may have ended. */
static bool is_fair(const group *g, usm_status st)
{
    if (st == USM_OK)
        return true;
    CHECK(group_wait_for(&g->page->go, 1)); /* it has */
    return st == USM_E_OWNER_GONE;
}

static void use_event(const group *g, usm_ipc_event *ev)
{
    usm_queue *q   = usm_default_queue();
    usm_event *out = NULL;

    OK(usm_ipc_event_record(ev, q, 0, NULL));
    OK(usm_ipc_event_signal(ev));
    OK(usm_ipc_event_wait(ev, q, &out));
    CHECK(is_fair(g, usm_event_wait(out)));
    usm_event_release(out);
    CHECK(is_fair(g, usm_ipc_event_sync_count(ev, 2 * EVENT_RECORDS, SOON)));
    CHECK(is_fair(g, usm_ipc_event_sync(ev, SOON)));
    (void)usm_queue_wait(q);
}

static holdings warm_events(void)
{
    usm_ipc_event *ev = NULL;

    OK(usm_ipc_event_create(NULL, &ev));
    OK(usm_ipc_event_record(ev, usm_default_queue(), 0, NULL));
    OK(usm_ipc_event_sync(ev, SOON));
    usm_ipc_event_destroy(ev);
    return hold();
}

static void make_event(group *g, int rank)
{
    usm_ipc_event *ev     = NULL;
    const holdings before = warm_events();
    usm_ipc_handle handle;

    begin(g, rank);
    OK(usm_ipc_event_create(NULL, &ev));
    OK(usm_ipc_event_get(ev, &handle));
    memcpy(g->page->bytes, handle.bytes, sizeof handle.bytes);
    atomic_store(&g->page->ready, 1);
    if (wait_flag(g, &g->page->step[1], 1))
        use_event(g, ev);
    atomic_store(&g->page->step[0], 1);
    (void)wait_flag(g, &g->page->step[1], 2);
    usm_ipc_event_destroy(ev);
    end();
    if (!is_victim(g, rank))
        has_no_more_than(
            (holdings){before.descriptors + (atomic_load(&g->page->go) == 0), before.mappings});
}

static void take_event(group *g, int rank)
{
    const holdings before = warm_events();
    usm_ipc_event *ev     = NULL;
    usm_ipc_handle handle;
    usm_status     st;

    if (!wait_flag(g, &g->page->ready, 1))
        return;
    memcpy(handle.bytes, g->page->bytes, sizeof handle.bytes);
    begin(g, rank);
    st = usm_ipc_event_open(&handle, NULL, &ev);
    CHECK(is_fair(g, st));
    atomic_store(&g->page->step[1], 1);
    if (st == USM_OK) {
        use_event(g, ev);
        (void)wait_flag(g, &g->page->step[0], 1);
        usm_ipc_event_destroy(ev);
    }
    atomic_store(&g->page->step[1], 2);
    end();
    if (!is_victim(g, rank) && atomic_load(&g->page->go) != 0)
        has_no_more_than(before);
}

/* ---- channels
 * -------------------------------------------------------------------------------------- */

/* value[rank][i]: what call i answered, + 1000; step[rank] 1: met. */
static void be_member(group *g, int rank, bool is_second)
{
    usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;
    usm_ipc_channel     *ch   = NULL;
    holdings             before;

    start_service(g, rank);
    before    = hold();
    desc.name = g->name;
    desc.rank = (uint32_t)rank;
    desc.size = 3;
    /* In every other round the victim comes first, and is the host of the meeting. */
    if (is_victim(g, rank) != ((int)g->page->value[15][2] % 2 == 0))
        group_sleep_ms(2);
    if (!is_second)
        begin(g, rank);
    OK(usm_ipc_channel_open(&desc, &ch));
    atomic_store(&g->page->step[rank], 1);
    for (int i = 0; i < CALLS; i++) {
        int32_t    mine = rank + 10 * i, all[3];
        usm_status st   = i == 2 ? usm_ipc_channel_gather(ch, &mine, sizeof mine, all)
                                 : usm_ipc_channel_barrier(ch);

        CHECK(st == USM_OK || (st == USM_E_PEER && !is_victim(g, rank)));
        if (i == 2)
            for (int r = 0; r < 3; r++)
                CHECK(all[r] == r + 10 * i || (all[r] == 0 && is_victim(g, r)));
        if (!is_second)
            atomic_store(&g->page->value[rank][i], 1000 + (int64_t)st);
    }
    usm_ipc_channel_close(ch);
    end();
    if (!is_victim(g, rank))
        has_no_more_than(before);
}

static void member(group *g, int rank)
{
    be_member(g, rank, false);
}

/* The victim started anew, for a meeting that it had not come to. */
static void second_member(group *g, int number)
{
    (void)number;
    be_member(g, (int)g->page->value[15][0], true);
}

/* ---- the sweep
 * -------------------------------------------------------------------------------------- */

static int times = 3;

typedef struct scenario {
    int n;
    void (*run[3])(group *g, int rank);
    bool is_channel;
} scenario;

/* The others of a channel meet, with the victim or the next one in its place. */
static void replace(group *g, int victim)
{
    const int other = victim == 0 ? 1 : 0;

    for (int ms = 0; ms < 20 && atomic_load(&g->page->step[other]) == 0; ms++)
        group_sleep_ms(1);
    if (atomic_load(&g->page->step[other]) == 0)
        (void)group_add(g, second_member);
}

static void compare(const group *g, int victim)
{
    const int a = victim == 0 ? 1 : 0, b = victim == 2 ? 1 : 2;
    int       notified = 0;

    for (int i = 0; i < CALLS; i++) {
        CHECK_INT(g->page->value[a][i], g->page->value[b][i]);
        notified += g->page->value[a][i] != 1000;
    }
    CHECK(notified <= 1);
}

/* False: the victim got through. */
static bool kill_at(const scenario *s, int victim, int step, int round)
{
    group g;
    bool  was_killed;

    group_begin(&g);
    g.page->value[15][0] = victim;
    g.page->value[15][1] = step;
    g.page->value[15][2] = round;
    while (g.n < s->n)
        (void)group_add(&g, s->run[g.n]);
    was_killed = group_end_of(&g, victim) != 0;
    if (was_killed)
        atomic_store(&g.page->go, 1);
    if (was_killed && s->is_channel)
        replace(&g, victim);
    for (int r = 0; r < s->n; r++)
        (void)group_end_of(&g, r);
    for (int r = s->n; r < g.n; r++)
        if (!g.has_ended[r] && waitpid(g.pid[r], &g.status[r], WNOHANG) != g.pid[r])
            group_kill(&g, r); /* the meeting was complete without it */
        else
            g.has_ended[r] = true;
    if (s->is_channel)
        compare(&g, victim);
    group_end(&g);
    return was_killed;
}

static void sweep(const scenario *s)
{
    int total = 0;

    for (int victim = 0; victim < s->n; victim++)
        for (int round = 0; round < times; round++) {
            int step = 1;

            while (kill_at(s, victim, step, round))
                CHECK(++step < 1000);
            CHECK(step > 3); /* there are steps */
            total += step - 1;
            if (round == 0)
                printf("# process %d of %d: %d steps\n", victim, s->n, step - 1);
        }
    printf("# %d processes killed\n", total);
}

static void memory_when_owner_or_importer_ends_at_any_step(void)
{
    const scenario s = {2, {own_memory, import_memory, NULL}, false};

    sweep(&s);
}

static void events_when_one_of_two_ends_at_any_step(void)
{
    const scenario s = {2, {make_event, take_event, NULL}, false};

    sweep(&s);
}

static void channels_when_one_of_three_ends_at_any_step(void)
{
    const scenario s = {3, {member, member, member}, true};

    sweep(&s);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(memory_when_owner_or_importer_ends_at_any_step),
        CASE(events_when_one_of_two_ends_at_any_step),
        CASE(channels_when_one_of_three_ends_at_any_step),
        {NULL, NULL},
    };

    if (argc > 2 && strcmp(argv[1], "--times") == 0) {
        times   = (int)strtol(argv[2], NULL, 10);
        argv[2] = argv[0];
        argc -= 2;
        argv += 2;
    }
    return plain_main(argc, argv, cases);
}
