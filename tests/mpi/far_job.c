/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranks of a job of far_cases.c: starting, obeying rank 0, ending with a verdict; buffers whose
 * every word is known. */
#include "far_cases.h"

#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ORDER_TAG 4711
#define WORDS     (FAR_CHUNK / sizeof(uint64_t))

enum { ORDER_CUT = 1, ORDER_FINALIZE = 2, ORDER_EXIT = 3, ORDER_HOLD = 4, ORDER_OWN = 5 };

far_job job = {.strike_at = SIZE_MAX};

void sleep_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

    while (nanosleep(&t, &t) != 0)
        ;
}

/* ---- verdicts ------------------------------------------------------------------------ */

/* One write: lines of several ranks do not mix. */
static void notify(const char *verdict, const char *what)
{
    char text[1400];
    int  n = snprintf(text, sizeof text, "%s %s: %s\n", verdict, job.name, what);

    if (n > 0 && write(STDOUT_FILENO, text, (size_t)n) < n)
        _exit(3);
}

static void kill_others(void)
{
    for (int i = 0; i < job.size; i++)
        if (job.pid[i] > 0 && job.pid[i] != getpid())
            (void)kill(job.pid[i], SIGKILL);
}

void job_fail(const char *format, ...)
{
    char    what[1200];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    notify("not ok", what);
    sleep_ms(200); /* the launcher is to have read it */
    kill_others();
    _exit(1);
}

void job_skip(const char *why)
{
    if (job.rank == 0)
        notify("skip", why);
    sleep_ms(200);
    _exit(0);
}

void job_needs_status(const char *call, usm_status got, usm_status wanted)
{
    const char *message = usm_last_error();

    NEED(got == wanted, "rank %d: %s is %s, not %s (%s)", job.rank, call, usm_status_name(got),
         usm_status_name(wanted), got == USM_OK ? "" : message);
    NEED(got == USM_OK || strlen(message) > 20, "rank %d: %s fails without a message", job.rank,
         call);
    if (got != USM_OK && job.rank == 0)
        printf("# %s: %s\n", usm_status_name(got), message);
    (void)fflush(stdout);
}

/* ---- beginning ----------------------------------------------------------------------- */

void job_set(const char *name, const char *value)
{
    setenv(name, value, 1); /* NOLINT(concurrency-mt-unsafe): before any thread */
}

static void set_times(void)
{
    char text[32];

    snprintf(text, sizeof text, "%d", LEASE_MS);
    job_set("USM_JOB_LEASE", text);
    snprintf(text, sizeof text, "%d", job.orphan_ms ? job.orphan_ms : ORPHAN_MS);
    job_set("USM_JOB_ORPHAN", text);
    snprintf(text, sizeof text, "domain-%d", job.rank);
    job_set("USM_SPILL_DOMAIN", text);
    if (!getenv("USM_MPI_NEAR")) /* as between nodes */
        job_set("USM_MPI_NEAR", "0");
}

void job_borrows(const char *replicas)
{
    char text[32];

    snprintf(text, sizeof text, "host:%zu", FAR_LIMIT);
    job_set("USM_MEMORY_LIMIT", text);
    snprintf(text, sizeof text, "%zu", FAR_CHUNK);
    job_set("USM_SPILL_BLOCK", text);
    job_set("USM_SPILL", "mpi");
    job_set("USM_SPILL_REPLICAS", replicas);
    set_times();
}

void job_lends(void)
{
    char text[32];

    snprintf(text, sizeof text, "%zu", 4 * FAR_SIZE);
    job_set("USM_SPILL_LEND", text);
    set_times();
}

void job_begin(int level)
{
    int pid = (int)getpid(), all[FAR_RANKS] = {0}, given = 0;

    NEED(MPI_Init_thread(NULL, NULL, level, &given) == MPI_SUCCESS, "MPI_Init_thread()");
    job.comm = MPI_COMM_WORLD;
    MPI_Comm_rank(job.comm, &job.rank);
    MPI_Comm_size(job.comm, &job.size);
    MPI_Comm_set_errhandler(job.comm, MPI_ERRORS_RETURN);
    NEED(job.size <= FAR_RANKS, "more than %d ranks", FAR_RANKS);
    MPI_Allgather(&pid, 1, MPI_INT, all, 1, MPI_INT, job.comm);
    for (int i = 0; i < job.size; i++)
        job.pid[i] = (pid_t)all[i];
}

void job_attach(const char *replicas)
{
    job_begin(MPI_THREAD_MULTIPLE);
    if (job.rank == 0)
        job_borrows(replicas);
    else
        job_lends();
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_OK);
}

/* ---- orders -------------------------------------------------------------------------- */

static void order(int rank, int what, unsigned argument)
{
    int words[2] = {what, (int)argument};

    MPI_Send(words, 2, MPI_INT, rank, ORDER_TAG, job.comm);
}

void job_set_link(bool is_up)
{
    struct ifreq request = {.ifr_name = "eth0"};
    int          fd      = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool         ok      = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &request) == 0;
    unsigned     flags   = (unsigned short)request.ifr_flags;

    flags             = is_up ? flags | IFF_UP : flags & ~(unsigned)IFF_UP;
    request.ifr_flags = (short)flags;
    ok                = ok && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    if (fd >= 0)
        close(fd);
    NEED(ok, "rank %d cannot switch its network %s", job.rank, is_up ? "on" : "off");
}

static void wait_finalised(void)
{
    MPI_Finalize();
    exit(0); /* NOLINT(concurrency-mt-unsafe): what runs at exit is part of the test */
}

/* The rank that gave the order stands still. */
static void hold_rank_0(unsigned ms)
{
    job_signal(0, SIGSTOP);
    sleep_ms(ms);
    job_signal(0, SIGCONT);
}

void job_serve(void)
{
    int words[2] = {0, 0}, has = 0;

    while (job.rank != 0) {
        MPI_Iprobe(0, ORDER_TAG, job.comm, &has, MPI_STATUS_IGNORE);
        if (!has) {
            sleep_ms(5);
            continue;
        }
        MPI_Recv(words, 2, MPI_INT, 0, ORDER_TAG, job.comm, MPI_STATUS_IGNORE);
        if (words[0] == ORDER_FINALIZE)
            wait_finalised();
        if (words[0] == ORDER_EXIT)
            _exit(0);
        if (words[0] == ORDER_OWN) {
            job.obey(words[1]);
            continue;
        }
        if (words[0] == ORDER_HOLD) {
            hold_rank_0((unsigned)words[1]);
            continue;
        }
        job_set_link(false);
        sleep_ms((unsigned)words[1]);
        job_set_link(true);
    }
}

void job_cut_link(int rank, unsigned ms)
{
    order(rank, ORDER_CUT, ms);
}

void job_order(int rank, int what)
{
    order(rank, ORDER_OWN, (unsigned)what);
}

void job_be_stopped(unsigned ms)
{
    order(1, ORDER_HOLD, ms);
    sleep_ms(100);
}

void job_signal(int rank, int signal)
{
    NEED(kill(job.pid[rank], signal) == 0, "rank %d cannot be sent a signal", rank);
}

void job_strike(size_t at, int rank, int signal)
{
    job.strike_at     = at;
    job.strike_rank   = rank;
    job.strike_signal = signal;
}

static void strike(size_t chunk)
{
    if (chunk != job.strike_at)
        return;
    job.strike_at = SIZE_MAX;
    job_signal(job.strike_rank, job.strike_signal);
}

static void *signal_later(void *us)
{
    struct timespec t = {0, (long)(uintptr_t)us * 1000};

    while (nanosleep(&t, &t) != 0)
        ;
    job_signal(job.strike_rank, job.strike_signal);
    return NULL;
}

void job_signal_later(int rank, int signal, unsigned us)
{
    pthread_t thread;

    job.strike_rank   = rank;
    job.strike_signal = signal;
    NEED(pthread_create(&thread, NULL, signal_later, (void *)(uintptr_t)us) == 0, "no thread");
    (void)pthread_detach(thread);
}

void job_end(const char *what)
{
    for (int i = 1; i < job.size && job.rank == 0; i++)
        order(i, ORDER_FINALIZE, 0);
    if (job.rank != 0)
        wait_finalised();
    MPI_Finalize();
    notify("ok", what);
    exit(0); /* NOLINT(concurrency-mt-unsafe) */
}

void job_end_hard(const char *what)
{
    notify("ok", what);
    sleep_ms(200);
    kill_others(); /* not by MPI: an order to one that is stopped might wait */
    _exit(0);
}

/* ---- buffers ------------------------------------------------------------------------- */

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static uint64_t word_of(size_t chunk, size_t i, uint64_t turn)
{
    return (chunk * WORDS + i) * UINT64_C(0x9E3779B97F4A7C15) ^ turn << 56;
}

usm_buffer *buffer_new(size_t size)
{
    usm_buffer *b = usm_buffer_new(NULL, size);

    NEED(b != NULL, "no buffer: %s", usm_last_error());
    return b;
}

void buffer_write(usm_buffer *b, uint64_t turn)
{
    for (size_t c = 0; c < usm_buffer_size(b) / FAR_CHUNK; c++) {
        usm_access a;
        usm_status st;

        strike(c);
        st = usm_access_begin(b, c * FAR_CHUNK, FAR_CHUNK, USM_WRITE_NO_INIT, &a);
        NEED(st == USM_OK, "turn %d: write of chunk %zu: %s", (int)turn, c, usm_last_error());
        for (size_t i = 0; i < WORDS; i++)
            ((uint64_t *)a.ptr)[i] = word_of(c, i, turn);
        usm_access_end(&a);
    }
}

bool buffer_try(usm_buffer *b, size_t c, uint64_t turn)
{
    usm_access a;
    usm_status st = usm_access_begin(b, c * FAR_CHUNK, FAR_CHUNK, USM_READ, &a);

    if (st == USM_E_IO)
        return false;
    NEED(st == USM_OK, "turn %d: read of chunk %zu: %s", (int)turn, c, usm_last_error());
    for (size_t i = 0; i < WORDS; i++)
        NEED(((const uint64_t *)a.ptr)[i] == word_of(c, i, turn),
             "turn %d: word %zu of chunk %zu is %llx, not %llx", (int)turn, i, c,
             (unsigned long long)((const uint64_t *)a.ptr)[i],
             (unsigned long long)word_of(c, i, turn));
    usm_access_end(&a);
    return true;
}

/* In steps of a prime, so that it is neither the order of the writes nor one that is guessed. */
double buffer_check(usm_buffer *b, uint64_t turn)
{
    const size_t n       = usm_buffer_size(b) / FAR_CHUNK;
    double       longest = 0;

    for (size_t k = 0; k < n; k++) {
        size_t c     = k * 37 % n;
        double began = now_ms();

        strike(c);
        NEED(buffer_try(b, c, turn), "turn %d: read of chunk %zu: %s", (int)turn, c,
             usm_last_error());
        longest = now_ms() - began > longest ? now_ms() - began : longest;
    }
    return longest;
}

/* ---- figures ------------------------------------------------------------------------- */

uint64_t tier_written(const char *tier)
{
    usm_spill_stats stats = {.struct_size = sizeof stats};

    NEED_STATUS(usm_spill_get_stats(NULL, &stats), USM_OK);
    for (size_t i = 0; i < stats.ntiers; i++)
        if (strncmp(stats.tiers[i].name, tier, strlen(tier)) == 0)
            return stats.tiers[i].written;
    return 0;
}

static char *describe(void)
{
    static char text[65536];
    size_t      size = 0;

    NEED_STATUS(usm_job_describe(USM_JSON, text, sizeof text, &size), USM_OK);
    return text;
}

int job_mapped(void)
{
    int n = 0;

    for (const char *at = describe(); (at = strstr(at, "\"mapped\":true")) != NULL; at++)
        n++;
    return n;
}

double job_near_bytes(void)
{
    unsigned long long fetched = 0, stored = 0;
    const char        *at = strstr(describe(), "through shared memory:");

    NEED(at &&
             sscanf(at, "through shared memory: fetched %llu, stored %llu", &fetched, &stored) == 2,
         "nothing is said of shared memory");
    return (double)fetched + (double)stored;
}

double job_held(void)
{
    const char *text = describe(), *self, *held;

    self = strstr(text, "\"self\":true");
    self = self ? self : strstr(text, "\"self\": true");
    held = self ? strstr(self, "\"held\":") : NULL;
    NEED(held != NULL, "no member is this process: %.300s", text);
    return strtod(held + strlen("\"held\":"), NULL);
}
