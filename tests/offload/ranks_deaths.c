/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Launches over the ranks of a real MPI job that last some seconds, each of which loses a rank at a
 * random time: ranks_deaths die|stop SEED LAUNCHES.  The results are those of one process to the
 * bit, and in most launches chunks were given again, not only done twice at the end.
 *
 *     die   the last rank that is left kills itself; ranks 0 and 1 stay.  Needs a launcher that
 *           lets the others go on
 *     stop  any rank but 0 stands still for longer than a silent rank is waited for, and comes
 *           back; for MPICH, whose jobs end with the first rank that dies
 *
 * Rank 0 writes "ok ..." for tests/mpi/launch.sh --verdict.  The environment has
 * USM_HOST_THREADS=1, so that a launch takes the time that it is meant to take. */
#include "ranks_here.h"

#include <mpi.h>
#include <signal.h>
#include <time.h>

enum { CHUNK = TOTAL / 240, LAUNCH_MS = 2000, STOP_MS = 1700 };

static struct timespec time_of(unsigned ms)
{
    return (struct timespec){ms / 1000, (long)(ms % 1000) * 1000000};
}

/* The same on all ranks: splitmix64. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* ---- the loss -------------------------------------------------------------------------------- */

typedef struct loss {
    uint32_t rank;
    unsigned ms; /* after the launch began */
    bool     stops;
} loss;

static loss choose(uint64_t *random, bool stops, uint32_t alive)
{
    loss l = {alive - 1, 0, stops};

    if (stops)
        l.rank = 1 + (uint32_t)(next_random(random) % (alive - 1));
    l.ms = LAUNCH_MS / 10 + (unsigned)(next_random(random) % (LAUNCH_MS * 6 / 10));
    return l;
}

/* A process that stopped continues no sooner than another one says so. */
static void continue_in(pid_t pid, unsigned ms)
{
    struct timespec t = time_of(ms);

    if (fork() != 0)
        return;
    (void)nanosleep(&t, NULL);
    (void)kill(pid, SIGCONT);
    _exit(0);
}

static void *get_lost(void *arg)
{
    const loss     *l = arg;
    struct timespec t = time_of(l->ms);

    (void)nanosleep(&t, NULL);
    if (l->stops)
        continue_in(getpid(), STOP_MS);
    (void)raise(l->stops ? SIGSTOP : SIGKILL);
    return NULL;
}

/* ---- launches -------------------------------------------------------------------------------- */

static void launch(usm_team_kernel *k, uint32_t rank, usm_parallel_stats *stats)
{
    uint32_t           *table  = make_table();
    uint64_t           *out    = rank == 0 ? calloc(TOTAL, sizeof *out) : NULL;
    const usm_split_arg args[] = {USM_SPLIT_WHOLE(rank == 0 ? table : NULL, TABLE * sizeof *table),
                                  USM_SPLIT_OUT(out, sizeof *out)};
    usm_parallel_desc   d      = launch_of(k, TOTAL, args, 2);

    d.max_chunk = CHUNK;
    must(usm_parallel(here.team, &d, stats), USM_OK);
    for (size_t i = 0; out && i < TOTAL; i++)
        if (out[i] != value_at(i, table))
            plain_fail(__FILE__, __LINE__, "an index has another value");
    free(out);
    free(table);
}

/* Whether chunks were given again. */
static bool launch_and_lose(usm_team_kernel *k, uint32_t rank, uint32_t alive, loss *l)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    bool               is_me = rank == l->rank;
    pthread_t          thread;

    here.ns = (unsigned)((uint64_t)LAUNCH_MS * 1000000 * alive / TOTAL);
    if (is_me)
        CHECK(pthread_create(&thread, NULL, get_lost, l) == 0);
    launch(k, rank, &stats);
    if (is_me)
        CHECK(pthread_join(thread, NULL) == 0);
    if (rank == 0) {
        printf("# rank %u after %u ms: %llu of %llu chunks given again, %llu done twice, %.1f s\n",
               l->rank, l->ms, (unsigned long long)stats.rescheduled,
               (unsigned long long)stats.chunks, (unsigned long long)stats.duplicated,
               (double)stats.wall_ns / 1e9);
        (void)fflush(stdout);
    }
    return stats.rescheduled > 0;
}

static void report(unsigned given_again, unsigned launches, uint64_t seed)
{
    bool is_most = 2 * given_again > launches;

    printf("%s %u of %u launches gave chunks again, seed %llu\n", is_most ? "ok" : "not ok",
           given_again, launches, (unsigned long long)seed);
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    int              rank, count, level = 0;
    bool             stops = argc > 1 && strcmp(argv[1], "stop") == 0;
    uint64_t         seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, random = seed;
    unsigned         launches    = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 5;
    unsigned         given_again = 0;
    usm_team_kernel *k;

    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &count);
    must(USM_MPI_ATTACH(MPI_COMM_WORLD), USM_OK);
    k = begin("fill");
    for (unsigned i = 0; i < launches; i++) {
        uint32_t alive = (uint32_t)count - (stops ? 0 : i);
        loss     l     = choose(&random, stops, alive);

        given_again += launch_and_lose(k, (uint32_t)rank, alive, &l);
    }
    end(k);
    if (rank == 0)
        report(given_again, launches, seed);
    if (!stops)
        (void)sleep(1); /* what rank 0 has said last may still be on its way */
    if (!stops)
        _exit(0); /* MPI_Finalize() would wait for the dead */
    (void)MPI_Finalize();
    return 0;
}
