/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Launches over the ranks of a job of which one ends or stands still, several launches at a time,
 * and what is told of members: ranks_cases.h. */
#include "ranks_here.h"

#include <signal.h>
#include <time.h>

/* ---- what goes wrong by itself ---------------------------------------------------------- */

static void lose_one_at(uint32_t rank, uint32_t count, unsigned percent)
{
    usm_team_kernel   *k     = begin("fill");
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;

    here.ns     = 5000;
    here.die_at = rank == count - 1 ? (size_t)TOTAL * percent / 100 : 0;
    must(fill_once(k, 0, rank, TOTAL, &stats), USM_OK);
    CHECK(stats.rescheduled + stats.duplicated >= 1); /* MPI notices late: it was done twice then */
    must(fill_once(k, 0, rank, TOTAL, &stats), USM_OK); /* those that are left */
    CHECK_INT(stats.rescheduled, 0);
    end(k);
}

void last_rank_dies_early(uint32_t rank, uint32_t count)
{
    lose_one_at(rank, count, 10);
}

void last_rank_dies_halfway(uint32_t rank, uint32_t count)
{
    lose_one_at(rank, count, 50);
}

void last_rank_dies_late(uint32_t rank, uint32_t count)
{
    lose_one_at(rank, count, 90);
}

void last_rank_dies_summing(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("sum");
    double           before, after;

    sum_once(k, rank, 0, &before);
    here.ns     = 5000;
    here.die_at = rank == count - 1 ? TOTAL / 2 : 0;
    sum_once(k, rank, 0, &after);
    CHECK(rank != 0 || before == after);
    end(k);
}

void last_rank_dies_updating(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("update");

    here.ns     = 5000;
    here.die_at = rank == count - 1 ? TOTAL / 2 : 0;
    must(update_once(k, rank, 0, USM_PARALLEL_SNAPSHOT), USM_OK);
    end(k);
}

/* Whether the process is stopped: the letter behind its name in /proc. */
static bool is_stopped(pid_t pid)
{
    char        path[32], text[512];
    const char *name_end;
    size_t      n = 0;
    FILE       *f;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    if (f) {
        n = fread(text, 1, sizeof text - 1, f);
        (void)fclose(f);
    }
    text[n]  = '\0';
    name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'T';
}

/* Continues the caller three seconds after it has stopped, or ends with it. */
static void continue_later(void)
{
    const struct timespec moment = {0, 20000000}, t = {3, 0};
    pid_t                 me = getpid();

    if (fork() != 0)
        return;
    while (!is_stopped(me) && getppid() == me)
        (void)nanosleep(&moment, NULL);
    (void)nanosleep(&t, NULL);
    (void)kill(me, SIGCONT);
    _exit(0);
}

void last_rank_is_stopped(uint32_t rank, uint32_t count)
{
    usm_team_kernel   *k     = begin("fill");
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    bool               is_me = rank == count - 1;

    here.ns      = is_me ? 2500 : 10000; /* it gets a good share */
    here.stop_at = is_me ? TOTAL / 4 : 0;
    if (is_me)
        continue_later();
    must(fill_once(k, 0, rank, TOTAL, &stats), USM_OK);
    CHECK(stats.rescheduled + stats.duplicated >= 1);
    CHECK(!is_me || atomic_load(&here.has_stopped));
    end(k);
}

void last_rank_dies_and_may_not_be_replaced(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("update");

    here.ns     = 5000;
    here.die_at = rank == count - 1 ? TOTAL / 2 : 0;
    must(update_once(k, rank, 0, USM_PARALLEL_NO_RETRY), USM_E_PEER);
    end(k);
}

void home_dies(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("fill");

    here.ns     = 5000;
    here.die_at = rank == count - 1 ? TOTAL / 2 : 0;
    must(fill_once(k, count - 1, rank, TOTAL, NULL), USM_E_PEER);
    CHECK_IN("rank", usm_last_error());
    end(k);
}

void master_dies(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("fill");

    here.ns     = 5000;
    here.die_at = rank == 0 ? TOTAL / 2 : 0;
    must(fill_once(k, count - 1, rank, TOTAL, NULL), USM_E_PEER);
    end(k);
}

void last_rank_dies_finding(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("find");

    here.ns     = 5000;
    here.die_at = rank == count - 1 ? TOTAL / 3 : 0;
    find_once(k, rank, 0, TOTAL / 2);
    find_once(k, rank, 1, TOTAL / 4); /* by those that are left, if it was not asked before */
    if (rank == count - 1)
        (void)raise(SIGKILL);
    end(k);
}

void last_rank_dies_finding_nothing(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k = begin("find");

    here.ns     = 5000;
    here.die_at = rank == count - 1 ? TOTAL / 2 : 0;
    find_once(k, rank, 0, TOTAL + 1);
    end(k);
}

static void *die_soon(void *arg)
{
    const struct timespec *t = arg;

    (void)nanosleep(t, NULL);
    (void)raise(SIGKILL);
    return NULL;
}

/* The others have found something above, and left what is above that in the middle: that is no
 * failure of theirs, and they do what it had. */
void last_rank_dies_below_what_is_found(uint32_t rank, uint32_t count)
{
    usm_team_kernel *k     = begin("seek");
    struct timespec  t     = {0, 500000000};
    bool             is_me = rank == count - 1;
    pthread_t        thread;

    here.ns = is_me ? 1000000 : 200;
    if (is_me)
        CHECK(pthread_create(&thread, NULL, die_soon, &t) == 0);
    seek_once(k, rank, 0, TOTAL / 10);
    if (is_me)
        CHECK(pthread_join(thread, NULL) == 0);
    end(k);
}

/* The death comes before, with and after the cancelling. */
static void cancel_and_lose(uint32_t rank, uint32_t count, long ms)
{
    usm_team_kernel    *k      = begin("fill");
    uint32_t           *table  = make_table();
    uint64_t           *out    = calloc(TOTAL, sizeof *out);
    const usm_split_arg args[] = {USM_SPLIT_WHOLE(table, TABLE * sizeof *table),
                                  USM_SPLIT_OUT(out, sizeof *out)};
    usm_parallel_desc   d      = launch_of(k, TOTAL, args, 2);
    struct timespec     t      = {0, ms * 1000000};
    usm_parallel_run   *run;
    pthread_t           thread;

    here.ns = 200000;
    must(usm_parallel_start(here.team, &d, &run), USM_OK);
    if (rank == count - 1)
        CHECK(pthread_create(&thread, NULL, die_soon, &t) == 0);
    else if (rank == 1)
        CHECK(pthread_create(&thread, NULL, cancel_soon, run) == 0);
    must(usm_parallel_wait(run, NULL), USM_E_CANCELLED);
    if (rank == 1 || rank == count - 1)
        CHECK(pthread_join(thread, NULL) == 0);
    usm_parallel_release(run);
    here.ns = 0;
    must(fill_once(k, 0, rank, TOTAL, NULL), USM_OK); /* by those that are left */
    free(out);
    free(table);
    end(k);
}

void last_rank_dies_before_a_cancel(uint32_t rank, uint32_t count)
{
    cancel_and_lose(rank, count, 40);
}

void last_rank_dies_at_a_cancel(uint32_t rank, uint32_t count)
{
    cancel_and_lose(rank, count, 100);
}

void last_rank_dies_after_a_cancel(uint32_t rank, uint32_t count)
{
    cancel_and_lose(rank, count, 130);
}

/* ---- several launches ------------------------------------------------------------------- */

/* One fills on rank 0, one sums on the last but one, at the same time over one team. */
static void launch_both(uint32_t rank, uint32_t count, usm_team_kernel *fills,
                        usm_team_kernel *sums, double wanted)
{
    uint32_t           *table = make_table(), home = count > 2 ? count - 2 : 0;
    uint64_t           *out  = calloc(TOTAL, sizeof *out);
    size_t              leaf = 100;
    double              own  = 1;
    const usm_split_arg f[]  = {USM_SPLIT_WHOLE(table, TABLE * sizeof *table),
                                USM_SPLIT_OUT(out, sizeof *out)};
    const usm_split_arg s[]  = {USM_SPLIT_SUM(&own, sizeof own, USM_ELEMENT_F64, leaf),
                                USM_SPLIT_VALUE(leaf)};
    usm_parallel_desc   df = launch_of(fills, TOTAL, f, 2), ds = launch_of(sums, TOTAL, s, 2);
    usm_parallel_run   *runs[2];

    ds.home     = home;
    ds.local[0] = leaf;
    must(usm_parallel_start(here.team, &df, &runs[0]), USM_OK);
    must(usm_parallel_start(here.team, &ds, &runs[1]), USM_OK);
    for (uint32_t i = 0; i < 2; i++)
        must(usm_parallel_wait(runs[(rank + i) % 2], NULL), USM_OK);
    for (size_t i = 0; rank == 0 && i < TOTAL; i++)
        CHECK(out[i] == value_at(i, table));
    CHECK(rank != home || own == wanted);
    usm_parallel_release(runs[0]);
    usm_parallel_release(runs[1]);
    free(out);
    free(table);
}

static void launch_two_at_a_time(uint32_t rank, uint32_t count, size_t die_at)
{
    usm_team_kernel *sums = begin("sum"), *fills = kernel_of_team("fill");
    double           wanted;

    sum_once(sums, rank, count > 2 ? count - 2 : 0, &wanted);
    for (uint32_t i = 0; i < 3; i++) {
        here.ns     = 500 + 700 * (i + rank) % 3;
        here.die_at = i == 2 ? die_at : 0;
        launch_both(rank, count, fills, sums, wanted);
    }
    usm_team_kernel_destroy(fills);
    end(sums);
}

void rank_launches_two_at_a_time(uint32_t rank, uint32_t count)
{
    launch_two_at_a_time(rank, count, 0);
}

void last_rank_dies_in_two_launches(uint32_t rank, uint32_t count)
{
    launch_two_at_a_time(rank, count, rank == count - 1 ? TOTAL / 3 : 0);
}

/* ---- what is told of members ------------------------------------------------------------ */

/* Late results do not count, but where they were made. */
void rank_tells_its_figures(uint32_t rank, uint32_t count)
{
    usm_team_kernel   *k     = begin("fill");
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    usm_team_member    m     = {.struct_size = sizeof m};
    uint64_t           items = 0;

    here.ns = 500;
    for (uint32_t home = 0; home < 2; home++) {
        must(fill_once(k, home % count, rank, TOTAL, &stats), USM_OK);
        CHECK(stats.spread > 0 && stats.spread <= 1);
    }
    for (uint32_t i = 0; i < usm_team_size(here.team); i++) {
        must(usm_team_get_member(here.team, i, &m), USM_OK);
        CHECK_INT(m.state, USM_MEMBER_WELL);
        CHECK(m.chunks > 0 && m.busy_ns > 0 && m.speed > 0);
        items += m.items;
    }
    CHECK(items >= 2 * (uint64_t)TOTAL);
    CHECK(items <= 4 * (uint64_t)TOTAL);
    must(fill_once(k, 0, rank, TOTAL, NULL), USM_OK); /* nobody leaves before all have looked */
    end(k);
}

void last_rank_leaves(uint32_t rank, uint32_t count)
{
    const struct timespec t = {0, 10000000};
    usm_team_kernel      *k = begin("fill");
    usm_team_member       m = {.struct_size = sizeof m};

    must(fill_once(k, 0, rank, TOTAL, NULL), USM_OK);
    if (rank < count - 1) {
        for (uint32_t i = 0; i < 1000 && m.state != USM_MEMBER_LOST; i++) {
            (void)nanosleep(&t, NULL);
            must(usm_team_get_member(here.team, usm_team_size(here.team) - 1, &m), USM_OK);
        }
        CHECK_INT(m.rank, count - 1);
        CHECK_INT(m.state, USM_MEMBER_LOST);
        CHECK(m.items > 0); /* what it did is not forgotten */
        must(fill_once(k, 0, rank, TOTAL, NULL), USM_OK);
    }
    end(k);
}

/* It does no more of the launch and is told so; the others do it without. */
void last_rank_leaves_at_work(uint32_t rank, uint32_t count)
{
    usm_team_kernel      *k      = begin("fill");
    uint32_t             *table  = make_table();
    uint64_t             *out    = calloc(TOTAL, sizeof *out);
    const usm_split_arg   args[] = {USM_SPLIT_WHOLE(table, TABLE * sizeof *table),
                                    USM_SPLIT_OUT(out, sizeof *out)};
    usm_parallel_desc     d      = launch_of(k, TOTAL, args, 2);
    const struct timespec t      = {0, 50000000};
    const bool            leaves = rank == count - 1;
    usm_parallel_run     *run;

    here.ns = 5000;
    must(usm_parallel_start(here.team, &d, &run), USM_OK);
    if (leaves) {
        (void)nanosleep(&t, NULL);
        usm_job_leave();
    }
    must(usm_parallel_wait(run, NULL), leaves ? USM_E_MPI : USM_OK);
    usm_parallel_release(run);
    for (size_t i = 0; rank == 0 && i < TOTAL; i++)
        if (out[i] != value_at(i, table))
            plain_fail(__FILE__, __LINE__, "an index has another value");
    free(out);
    free(table);
    end(k);
}
