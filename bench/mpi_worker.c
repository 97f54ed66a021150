/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A rank of `usm-bench mpi`: see mpi_worker.h.  Rank 0 goes through a section, the others do what
 * it asks for and else lend memory, which needs nothing of theirs but libusm's thread. */
#include "mpi_worker.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <usm/mpi.h>

#define TAG_ORDER  21
#define TAG_ANSWER 22
#define TAG_TAKEN  23

#define SMALL_BLOCK ((size_t)64 << 10)
#define IDLE_MS     10000

mpi_run      run = {.sock = -1};
static FILE *results;
static bool  is_warming; /* figures do not count                                           */

/* As in report.c, which is not linked here. */
uint64_t bench_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void mpi_figure(const char *key, double value)
{
    if (value > 0 && !is_warming)
        fprintf(results, "figure %s %.6f\n", key, value);
    (void)fflush(results);
}

void mpi_why(const char *key, const char *format, ...)
{
    va_list arguments;

    if (run.rank != 0)
        return;
    fprintf(results, "why %s ", key);
    va_start(arguments, format);
    vfprintf(results, format, arguments);
    va_end(arguments);
    fprintf(results, "\n");
    (void)fflush(results);
}

/* ---- orders -------------------------------------------------------------------------- */

static void sleep_ms(int64_t ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    while (nanosleep(&t, &t) != 0)
        ;
}

/* The other one is out of its sleep when this returns: time begins now. */
void mpi_ask(int rank, mpi_what what, int64_t n, int64_t size)
{
    mpi_order o = {what, n, size};
    char      byte;

    MPI_Send(&o, (int)sizeof o, MPI_BYTE, rank, TAG_ORDER, run.comm);
    MPI_Recv(&byte, 1, MPI_BYTE, rank, TAG_TAKEN, run.comm, MPI_STATUS_IGNORE);
}

/* Asleep between looks: MPI's own waiting would take a processor from what is measured. */
int64_t mpi_answer(int rank)
{
    int64_t answer = 0;
    int     has    = 0;

    for (;;) {
        MPI_Iprobe(rank, TAG_ANSWER, run.comm, &has, MPI_STATUS_IGNORE);
        if (has)
            break;
        sleep_ms(1);
    }
    MPI_Recv(&answer, 1, MPI_INT64_T, rank, TAG_ANSWER, run.comm, MPI_STATUS_IGNORE);
    return answer;
}

static void answer(int64_t number)
{
    MPI_Send(&number, 1, MPI_INT64_T, 0, TAG_ANSWER, run.comm);
}

static int64_t processor_ns(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return ((int64_t)u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000 +
           ((int64_t)u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

static void obey(const mpi_order *o)
{
    int64_t before = processor_ns();

    if (o->what == ASK_LOAD) {
        answer(load_run(o->n));
        return;
    }
    if (o->what == ASK_SHARED) {
        answer(shared_obey(o->n, o->size));
        return;
    }
    if (o->what != ASK_IDLE) {
        peer_obey(o);
        return;
    }
    sleep_ms(o->n);
    answer(processor_ns() - before);
}

/* Looks for orders seldom: while libusm is measured nothing else shall happen here. */
static void obey_all(void)
{
    mpi_order o    = {0, 0, 0};
    char      byte = 0;

    while (o.what != ASK_END) {
        int has = 0;

        MPI_Iprobe(0, TAG_ORDER, run.comm, &has, MPI_STATUS_IGNORE);
        if (!has) {
            sleep_ms(2);
            continue;
        }
        MPI_Recv(&o, (int)sizeof o, MPI_BYTE, 0, TAG_ORDER, run.comm, MPI_STATUS_IGNORE);
        MPI_Send(&byte, 1, MPI_BYTE, 0, TAG_TAKEN, run.comm);
        if (o.what != ASK_END)
            obey(&o);
    }
}

/* ---- sections ------------------------------------------------------------------------ */

/* Both directions of one peer or one way of ours: KEY.fetch, KEY.store. */
static void peers_of_round(void)
{
    for (int fetch = 0; fetch < 2; fetch++) {
        const char *way = fetch ? "fetch" : "store";
        char        key[64];

        snprintf(key, sizeof key, "stream.%s", way);
        mpi_figure(key, peer_stream(MIB_BYTES, fetch));
        snprintf(key, sizeof key, "stream64.%s", way);
        mpi_figure(key, peer_stream(SMALL_BLOCK, fetch));
        snprintf(key, sizeof key, "socket.%s", way);
        mpi_figure(key, peer_socket(MIB_BYTES, fetch));
    }
    mpi_figure("memcpy", peer_memcpy(MIB_BYTES));
}

/* One right after the other, for what else the machine does changes. */
static void latencies_of_round(far_blocks *page)
{
    for (int turn = 0; turn < 2; turn++) {
        mpi_figure("ping", peer_ping());
        if (page)
            mpi_figure("latency", far_latency(page));
    }
}

/* One block size; false when something failed, which is told once. */
static bool ours_of_round(far_blocks *f, const char *name, bool is_checked)
{
    for (int fetch = 0; fetch < 2; fetch++) {
        char   key[64];
        double value = far_pass(f, fetch, is_checked);

        snprintf(key, sizeof key, "%s.%s", name, fetch ? "fetch" : "store");
        if (value == 0) {
            mpi_why("ours", "%s: %.400s", key, usm_last_error());
            return false;
        }
        mpi_figure(key, value);
    }
    return true;
}

static void bandwidth_section(bool is_attached)
{
    far_blocks *large = is_attached ? far_open(MIB_BYTES, "ours") : NULL;
    far_blocks *small = large ? far_open(SMALL_BLOCK, "ours") : NULL;
    far_blocks *page  = small ? far_open(PAGE, "ours") : NULL;
    bool        ok    = page != NULL;

    /* A round before, that does not count: pages are touched, connections made. */
    for (unsigned round = 0; round <= run.rounds; round++) {
        is_warming = round == 0;
        peers_of_round();
        ok = ok && ours_of_round(large, "plain", false) && ours_of_round(large, "checked", true) &&
             ours_of_round(small, "small", true);
        latencies_of_round(ok ? page : NULL);
    }
    if (ok) {
        mpi_ask(1, ASK_IDLE, IDLE_MS, 0);
        mpi_figure("idle", (double)mpi_answer(1) / (IDLE_MS * 1e4) + 1e-6);
    }
    far_close(page);
    far_close(small);
    far_close(large);
}

static void shared_section(void)
{
    bool ok = true;

    for (unsigned round = 0; ok && round <= run.rounds; round++) {
        is_warming = round == 0;
        mpi_figure("stream.fetch", peer_stream(MIB_BYTES, true));
        mpi_figure("stream64.fetch", peer_stream(SMALL_BLOCK, true));
        mpi_figure("ping", peer_ping());
        ok = shared_round("64", SMALL_BLOCK, round) && shared_round("", MIB_BYTES, round);
    }
}

static bool begin(char **arguments)
{
    const bool is_load  = strncmp(arguments[1], "load", 4) == 0;
    const bool is_death = strcmp(arguments[1], "death") == 0;
    int        level = 0, pid = (int)getpid();

    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return false;
    MPI_Comm_dup(MPI_COMM_WORLD, &run.comm);
    MPI_Comm_set_errhandler(run.comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(run.comm, &run.rank);
    MPI_Comm_size(run.comm, &run.ranks);
    if (run.ranks > (int)(sizeof run.pid / sizeof *run.pid))
        return false;
    MPI_Allgather(&pid, 1, MPI_INT, run.pid, 1, MPI_INT, run.comm);
    run.rounds = (unsigned)strtoul(arguments[3], NULL, 10);
    run.bytes  = strtoul(arguments[4], NULL, 10) * MIB_BYTES;
    if (run.rank == 0)
        results = fopen(arguments[2], "we");
    run.arena = aligned_alloc(PAGE, run.bytes);
    if (!run.arena || (run.rank == 0 && !results))
        return false;
    memset(run.arena, run.rank + 1, run.bytes);
    if (is_load && run.rank < 2)
        load_prepare(run.rank == 0 ? "mpi" : "disk");
    if (!is_load && !is_death && !peer_connect())
        mpi_why("socket", "no connection");
    return true;
}

/* The end of everybody, without MPI's: with one that is dead or stands still it hangs, and Debian's
 * MPICH now and then between network namespaces. */
static void end_hard(void)
{
    for (int i = 1; i < run.ranks; i++)
        (void)kill((pid_t)run.pid[i], SIGKILL);
    _exit(0);
}

int main(int argc, char **argv)
{
    const char *section = argc == 5 ? argv[1] : "";
    bool        ok;

    if (argc != 5 || !begin(argv)) {
        fprintf(stderr, "usage: mpirun %s host|network|shared|load|death FILE ROUNDS MIB\n",
                argv[0]);
        return 2;
    }
    /* On lenders: room for all that rank 0 stores, several times. */
    ok = far_attach("ours", run.rank == 0 ? 0 : 6 * (uint64_t)run.bytes);
    if (run.rank != 0) {
        obey_all();
    } else {
        if (strncmp(section, "load", 4) == 0 && ok)
            load_section();
        else if (strcmp(section, "death") == 0 && ok)
            death_section();
        else if (strncmp(section, "shared", 6) == 0 && ok)
            shared_section();
        else if (strncmp(section, "host", 4) == 0 || strcmp(section, "network") == 0)
            bandwidth_section(ok);
        fprintf(results, "end\n");
        (void)fclose(results);
        if (strcmp(section, "death") == 0 || strcmp(section, "network") == 0)
            end_hard();
        for (int i = 1; i < run.ranks; i++)
            mpi_ask(i, ASK_END, 0, 0);
    }
    MPI_Finalize();
    return 0;
}
