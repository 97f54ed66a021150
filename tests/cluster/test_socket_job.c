/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Jobs over transports/socket: messages, agreeing, and ends of every kind.  How ranks come
 * together: test_socket_meet.c. */
#include "cluster/socket_ranks.h"

static void messages_of_all_sizes_come_in_order(void)
{
    begin();
    run(3, talk);
    run(1, talk); /* the folder is used again */
}

static void ranks_agree(void)
{
    begin();
    run(2, agree_often);
    begin();
    run(12, agree_often);
}

static void look_around(uint32_t rank, uint32_t count)
{
    usm_job_info info = USM_JOB_INFO_INIT;
    char         text[4096], expected[64];

    CHECK_INT(usm_job_get_info(&info), USM_OK);
    CHECK_INT(info.rank, rank);
    CHECK_INT(info.size, count);
    CHECK_INT(info.local_rank, rank);
    CHECK_INT(info.local_size, count);
    CHECK(info.is_job && info.is_attached);
    CHECK_STR(info.source, "socket");
    CHECK_IN("libusm's sockets, version 1", info.mpi);
    CHECK_INT(usm_job_describe(USM_TEXT, text, sizeof text, NULL), USM_OK);
    (void)snprintf(expected, sizeof expected, "rank %u of %u, as usm_job_join() says\n", rank,
                   count);
    CHECK_IN(expected, text);
    (void)snprintf(expected, sizeof expected, "  rank %u *     up       rack%u", rank, rank);
    CHECK_IN(expected, text);
    CHECK_IN("  rank 0", text);
    CHECK_IN("rack0", text); /* the others' domains as well */
    CHECK_IN("this launch survives the death of any process\n", text);
    CHECK_INT(join(rank, count, ""), USM_E_BUSY);
    CHECK_IN("is called once", usm_last_error());
    barrier();
}

static void join_with_domain(uint32_t rank, uint32_t count, rank_fn *fn)
{
    char domain[16];

    (void)snprintf(domain, sizeof domain, "rack%u", rank);
    CHECK_INT(usm_config_set("spill_domain", domain), USM_OK);
    be_rank(rank, count, fn);
}

static void the_job_describes_itself(void)
{
    pid_t pids[2];

    begin();
    for (uint32_t r = 0; r < 2; r++)
        pids[r] = start(join_with_domain, r, 2, look_around);
    for (uint32_t r = 0; r < 2; r++)
        CHECK_INT(end_of(pids[r]), 0);
}

/* ---- ends ---------------------------------------------------------------------------------- */

static _Atomic uint32_t heard_before_end;

static void see_end(void *arg, uint32_t rank, usm_place_state state)
{
    (void)arg;
    if (state == USM_PLACE_LOST)
        atomic_store(&heard_before_end, 1 + atomic_load(&came[rank]));
}

/* No time goes by: the end of its socket tells of it. */
static void die_after_words(uint32_t rank, uint32_t count)
{
    usm__job_listen(USM__JOB_TEAMS, take, NULL);
    usm__job_watch(see_end, NULL);
    barrier();
    if (rank == 1) {
        for (uint32_t i = 0; i < 6; i++)
            for (uint32_t to = 0; to < count; to += 2)
                CHECK_INT(notify(rank, to, i), USM_OK);
        (void)raise(SIGKILL);
    }
    while (atomic_load(&heard_before_end) == 0)
        (void)usleep(1000);
    CHECK_INT(atomic_load(&heard_before_end), 1 + 6);
    CHECK(!atomic_load(&is_wrong));
    CHECK(usm__job_rank_is_lost(1));
    CHECK_INT(notify(rank, 1, 0), USM_E_PEER);
    barrier();
    usm__job_unwatch(see_end, NULL);
    usm__job_listen(USM__JOB_TEAMS, NULL, NULL);
}

static void a_killed_rank_is_noticed_at_once_and_its_last_words_are_heard(void)
{
    pid_t pids[3];

    begin();
    start_all(3, die_after_words, pids);
    for (uint32_t r = 0; r < 3; r++)
        CHECK_INT(end_of(pids[r]), r == 1 ? SIGKILL : 0);
}

/* Not before rank 0 has met: its thread stays in this call, and the rest waits in the socket. */
static void take_in_time(void *arg, uint32_t from, const void *data, size_t size)
{
    if (from == 1)
        wait_for(&board->step, 2);
    take(arg, from, data, size);
}

/* Its socket ends with an error as well, because it has left something unread. */
static void die_without_reading(uint32_t rank, uint32_t count)
{
    (void)count;
    usm__job_listen(USM__JOB_TEAMS, rank == 0 ? take_in_time : take, NULL);
    usm__job_watch(see_end, NULL);
    barrier();
    atomic_fetch_add(&board->met, 1);
    wait_for(&board->met, 2);
    if (rank == 1) {
        for (uint32_t i = 0; i < 6; i++)
            CHECK_INT(notify(rank, 0, i), USM_OK);
        atomic_store(&board->met, 3);
        (void)raise(SIGSTOP);
    }
    wait_for(&board->met, 4); /* it stands still */
    for (uint32_t i = 0; i < 6; i++)
        CHECK_INT(notify(rank, 1, i), USM_OK);
    atomic_store(&board->step, 1);
    while (atomic_load(&heard_before_end) == 0)
        (void)usleep(1000);
    CHECK_INT(atomic_load(&heard_before_end), 1 + 6);
    CHECK(!atomic_load(&is_wrong));
    usm__job_unwatch(see_end, NULL);
    usm__job_listen(USM__JOB_TEAMS, NULL, NULL);
}

static void the_last_words_of_a_rank_that_has_not_read_all_are_heard(void)
{
    pid_t pids[2];

    begin();
    start_all(2, die_without_reading, pids);
    wait_for(&board->met, 3);
    wait_until_stopped(pids[1]);
    atomic_store(&board->met, 4);
    wait_for(&board->step, 1);
    CHECK_INT(kill(pids[1], SIGKILL), 0);
    CHECK_INT(end_of(pids[1]), SIGKILL);
    atomic_store(&board->step, 2);
    CHECK_INT(end_of(pids[0]), 0);
}

/* A child of rank 0 has its sockets, but for the module, which closes them there. */
static void die_with_a_child(uint32_t rank, uint32_t count)
{
    (void)count;
    barrier();
    if (rank == 0) {
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0) {
            uint32_t self, n;

            CHECK_INT(usm__job_ranks(&self, &n), USM_E_MPI);
            atomic_store(&board->step, 1);
            wait_for(&board->step, 2);
            atomic_store(&board->met, 1);
            _exit(0);
        }
        wait_for(&board->step, 1);
        (void)raise(SIGKILL);
    }
    wait_until_lost(0); /* though no time goes by */
    atomic_store(&board->step, 2);
}

static void a_rank_that_has_forked_is_noticed_as_well(void)
{
    pid_t pids[2];

    begin();
    start_all(2, die_with_a_child, pids);
    CHECK_INT(end_of(pids[0]), SIGKILL);
    CHECK_INT(end_of(pids[1]), 0);
    wait_for(&board->met, 1); /* the child has seen step 2, which the next case sets back */
}

static _Atomic uint64_t slow_at, lost_at;

static void see_silence(void *arg, uint32_t rank, usm_place_state state)
{
    (void)arg;
    (void)rank;
    if (state == USM_PLACE_SLOW)
        atomic_store(&slow_at, vclock_now_ms());
    if (state == USM_PLACE_LOST)
        atomic_store(&lost_at, vclock_now_ms());
}

static void stand_still(uint32_t rank, uint32_t count)
{
    uint64_t begun;

    (void)count;
    usm__job_watch(see_silence, NULL);
    barrier();
    begun = vclock_now_ms();
    if (rank == 1)
        (void)raise(SIGSTOP);
    else
        wait_for(&board->step, 1); /* it stands still */
    /* Its last sign of life is at most a quarter older.  Who watches may be told late, and then
     * only of the last state. */
    while (rank == 0 && vclock_now_ms() - begun < LEASE_MS * 5 / 8)
        vclock_pass(STEP_MS, STEP_MS);
    while (rank == 0 && atomic_load(&slow_at) == 0)
        (void)usleep(1000);
    while (rank == 0 && atomic_load(&lost_at) == 0) {
        CHECK(vclock_now_ms() - begun < 3 * LEASE_MS);
        vclock_pass(STEP_MS, STEP_MS);
        (void)usleep(1000);
    }
    wait_until_lost(1 - rank); /* who stood still learns that the others have gone on without */
    if (rank == 0) {
        CHECK(atomic_load(&slow_at) <= atomic_load(&lost_at));
        CHECK(atomic_load(&lost_at) - begun >= LEASE_MS * 3 / 4); /* from its last sign of life */
    }
    usm__job_unwatch(see_silence, NULL);
}

static void a_rank_that_stands_still_is_slow_and_then_lost(void)
{
    pid_t pids[2];

    begin();
    start_all(2, stand_still, pids);
    wait_until_stopped(pids[1]);
    atomic_store(&board->step, 1);
    CHECK_INT(end_of(pids[0]), 0);
    CHECK_INT(kill(pids[1], SIGCONT), 0);
    CHECK_INT(end_of(pids[1]), 0);
}

/* Signs of life keep those apart that have nothing to say. */
static void say_nothing(uint32_t rank, uint32_t count)
{
    (void)count;
    barrier();
    if (rank == 0) {
        vclock_pass(3 * LEASE_MS, STEP_MS);
        atomic_store(&board->step, 1);
    }
    wait_for(&board->step, 1);
    CHECK(!usm__job_rank_is_lost(1 - rank));
    barrier();
}

static void who_says_nothing_is_not_lost(void)
{
    begin();
    run(2, say_nothing);
}

/* 19 MiB are more than sockets and bound hold; who is left takes a while to read them. */
static void leave_after_words(uint32_t rank, uint32_t count)
{
    (void)count;
    if (rank == 1) {
        for (uint32_t i = 0; i < 1200; i++)
            CHECK_INT(notify(rank, 0, i), USM_OK);
        usm_job_leave();
        CHECK_INT(notify(rank, 0, 0), USM_E_MPI);
        CHECK_IN("has left its job", usm_last_error());
        CHECK_INT(join(rank, 2, ""), USM_E_MPI);
        return;
    }
    usm__job_listen(USM__JOB_TEAMS, take, NULL);
    wait_until_lost(1);
    wait_for_messages(1, 1200);
    usm__job_listen(USM__JOB_TEAMS, NULL, NULL);
}

static void what_was_sent_before_leaving_arrives(void)
{
    begin();
    run(2, leave_after_words);
}

/* ---- too much to say ------------------------------------------------------------------------- */

static void flood(uint32_t rank, uint32_t count)
{
    uint32_t   i  = 0;
    usm_status st = USM_OK;

    (void)count;
    barrier();
    if (rank == 1) {
        (void)raise(SIGSTOP);
        wait_until_lost(0);
        return;
    }
    wait_for(&board->step, 1); /* it stands still */
    for (; st == USM_OK && i < 100000; i++)
        st = notify(rank, 1, i);
    CHECK_INT(st, USM_E_PEER);
    CHECK(i > 16 << 4); /* of 64 KiB and less: the bound was filled */
    CHECK(i < 10000);   /* and is one */
}

static void who_takes_nothing_makes_senders_wait_and_fail(void)
{
    pid_t pids[2];

    int status;

    begin();
    start_all(2, flood, pids);
    wait_until_stopped(pids[1]);
    atomic_store(&board->step, 1);
    status = vclock_wait_pid(pids[0], STEP_MS); /* which waits for room */
    CHECK_INT(end_in(status), 0);
    CHECK_INT(kill(pids[1], SIGCONT), 0);
    CHECK_INT(end_of(pids[1]), 0);
}

static void send_through_a_pause(uint32_t rank, uint32_t count)
{
    (void)count;
    usm__job_listen(USM__JOB_TEAMS, take, NULL);
    barrier();
    if (rank == 1) {
        atomic_store(&board->step, 1);
        (void)raise(SIGSTOP);
        wait_for_messages(0, 3000);
    } else {
        wait_for(&board->step, 2);          /* it stands still */
        for (uint32_t i = 0; i < 3000; i++) /* 48 MiB */
            CHECK_INT(notify(rank, 1, i), USM_OK);
    }
    barrier();
    usm__job_listen(USM__JOB_TEAMS, NULL, NULL);
}

static void who_takes_it_later_gets_it_all(void)
{
    pid_t pids[2];

    begin();
    start_all(2, send_through_a_pause, pids);
    wait_for(&board->step, 1);
    wait_until_stopped(pids[1]);
    atomic_store(&board->step, 2);
    CHECK(vclock_wait_until_waiting(pids[0])); /* for room */
    CHECK_INT(kill(pids[1], SIGCONT), 0);
    CHECK_INT(end_of(pids[0]), 0);
    CHECK_INT(end_of(pids[1]), 0);
}

static const plain_case cases[] = {
    CASE(messages_of_all_sizes_come_in_order),
    CASE(ranks_agree),
    CASE(the_job_describes_itself),
    CASE(a_killed_rank_is_noticed_at_once_and_its_last_words_are_heard),
    CASE(the_last_words_of_a_rank_that_has_not_read_all_are_heard),
    CASE(a_rank_that_has_forked_is_noticed_as_well),
    CASE(a_rank_that_stands_still_is_slow_and_then_lost),
    CASE(who_says_nothing_is_not_lost),
    CASE(what_was_sent_before_leaving_arrives),
    CASE(who_takes_nothing_makes_senders_wait_and_fail),
    CASE(who_takes_it_later_gets_it_all),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
