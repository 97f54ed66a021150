/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench ipc: memory and events between two processes.
 *
 *   open       usm_ipc_open() of memory that is mapped, and of memory that is not, against a
 *              descriptor by SCM_RIGHTS from the same process and mmap()
 *   bandwidth  memcpy() from and to an opened pointer against memcpy() in this process
 *   event      from usm_ipc_event_signal() in one process to the end of the wait in the other
 *
 * Both processes are this program; the owner is forked before libusm is used.  On the host backend
 * unless USM_DEVICE_SELECTOR names another.  Called by main.c. */
#include "ipc.h"

#include "bench.h"
#include "spill.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 300u /* after which both processes end, whatever happened */
#define OPENS   15u  /* of a round: as many as make a median               */
#define PIECE   ((size_t)1 << 20)
#define BURSTS  250u /* of pings, a round                            */
#define BURST   8u

static struct {
    const bench_options *options;
    unsigned             rounds;
    int                  sock;
    ipc_offer            offer;
    ipc_words           *words;
} run;

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median_of(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return values[n / 2];
}

static void say_why(spill_row *row)
{
    snprintf(row->why, sizeof row->why, "%.199s", usm_last_error());
    row->value = 0;
}

/* ---- open -------------------------------------------------------------------------- */

/* All blocks of one area, each handle another; us for one open, and for one close. */
static bool open_blocks(double *open_us, double *close_us)
{
    void    *p[IPC_BLOCKS] = {NULL};
    uint64_t began         = bench_now_ns(), opened, closed;

    for (size_t i = 0; i < IPC_BLOCKS; i++)
        if (usm_ipc_open(&run.offer.block[i], NULL, NULL, &p[i]) != USM_OK)
            return false;
    opened = bench_now_ns();
    for (size_t i = 0; i < IPC_BLOCKS; i++)
        if (usm_ipc_close(p[i], NULL) != USM_OK)
            return false;
    closed    = bench_now_ns();
    *open_us  = (double)(opened - began) / IPC_BLOCKS / 1000;
    *close_us = (double)(closed - opened) / IPC_BLOCKS / 1000;
    return true;
}

static void add_cached(void)
{
    spill_row    *open_row  = spill_add("open", "us", "open, mapped already");
    spill_row    *close_row = spill_add("open", "us", "close, the mapping stays");
    spill_samples opens = {{0}, 0}, closes = {{0}, 0};
    double        o = 0, c = 0;

    open_row->goal = 0.2;
    for (unsigned round = 0; round <= run.rounds; round++)
        for (unsigned i = 0; i < OPENS; i++) {
            if (!open_blocks(&o, &c)) {
                say_why(open_row);
                return;
            }
            if (round > 0 && i == OPENS / 2) {
                spill_sample(&opens, o);
                spill_sample(&closes, c);
            }
        }
    open_row->value  = spill_median(&opens);
    close_row->value = spill_median(&closes);
}

static bool open_anew(double *us)
{
    void    *p = NULL;
    uint64_t began;

    usm_ipc_trim();
    began = bench_now_ns();
    if (usm_ipc_open(&run.offer.medium, NULL, NULL, &p) != USM_OK)
        return false;
    *us = (double)(bench_now_ns() - began) / 1000;
    return usm_ipc_close(p, NULL) == USM_OK;
}

static int get_descriptor(void)
{
    const ipc_request r    = {.what = 'd'};
    char              byte = 0;
    struct iovec      data = {&byte, 1};
    int               fd   = -1;
    union {
        struct cmsghdr head;
        char           space[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr m = {.msg_iov        = &data,
                       .msg_iovlen     = 1,
                       .msg_control    = control.space,
                       .msg_controllen = sizeof control.space};

    if (send(run.sock, &r, sizeof r, MSG_NOSIGNAL) != (ssize_t)sizeof r ||
        recvmsg(run.sock, &m, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&m))
        return -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

static bool map_anew(double *us)
{
    uint64_t began = bench_now_ns();
    int      fd    = get_descriptor();
    void    *p =
        fd < 0 ? MAP_FAILED : mmap(NULL, IPC_MEDIUM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    *us = (double)(bench_now_ns() - began) / 1000;
    if (fd >= 0)
        close(fd);
    return p != MAP_FAILED && munmap(p, IPC_MEDIUM) == 0;
}

static void add_uncached(const char *name, double goal)
{
    spill_row    *row  = spill_add("open", "us", "%s", name);
    spill_samples ours = {{0}, 0}, theirs = {{0}, 0};
    double        mine[OPENS], raw[OPENS];

    row->peer = "SCM_RIGHTS and mmap";
    row->goal = goal;
    for (unsigned round = 0; round <= run.rounds; round++) {
        for (unsigned i = 0; i < OPENS; i++)
            if (!open_anew(&mine[i]) || !map_anew(&raw[i])) {
                say_why(row);
                return;
            }
        if (round > 0) {
            spill_sample(&ours, median_of(mine, OPENS));
            spill_sample(&theirs, median_of(raw, OPENS));
        }
    }
    row->value      = spill_median(&ours);
    row->peer_value = spill_median(&theirs);
}

/* With something else of the owner open, and with nothing: then the owner is met anew each time. */
static void add_both_uncached(void)
{
    void *p = NULL;

    if (usm_ipc_open(&run.offer.block[0], NULL, NULL, &p) == USM_OK) {
        add_uncached("open, not mapped, 1 MiB", 2);
        (void)usm_ipc_close(p, NULL);
    }
    add_uncached("the same, the first of an owner", 0);
}

static void section_open(void)
{
    if (run.offer.no_memory[0]) {
        spill_row *row = spill_add("open", "us", "open");

        snprintf(row->why, sizeof row->why, "%s", run.offer.no_memory);
        return;
    }
    add_cached();
    add_both_uncached();
}

/* ---- bandwidth ------------------------------------------------------------------------ */

static double copy_rate(char *to, const char *from)
{
    uint64_t began = bench_now_ns();

    memcpy(to, from, PIECE);
    __asm__ volatile("" ::"r"(to) : "memory");
    return (double)PIECE / MIB / ((double)(bench_now_ns() - began) / 1e9);
}

/* All of the block, a piece by the one and the same piece by the other: medians of the pieces, so
 * that whoever else runs spoils few of them. */
static void copy_all(char *const pair[2], char *const plain[2], double *ours, double *theirs)
{
    static double mine[IPC_LARGE / PIECE], other[IPC_LARGE / PIECE];

    for (size_t i = 0; i < IPC_LARGE / PIECE; i++) {
        mine[i]  = copy_rate(pair[0] + i * PIECE, pair[1] + i * PIECE);
        other[i] = copy_rate(plain[0] + i * PIECE, plain[1] + i * PIECE);
    }
    *ours   = median_of(mine, IPC_LARGE / PIECE);
    *theirs = median_of(other, IPC_LARGE / PIECE);
}

static void add_bandwidth(const char *name, char *const pair[2], char *const plain[2])
{
    spill_row    *row  = spill_add("bandwidth", "MiB/s", "%s", name);
    spill_samples ours = {{0}, 0}, theirs = {{0}, 0};
    double        mine, other;

    for (unsigned round = 0; round <= run.rounds; round++) {
        copy_all(pair, plain, &mine, &other);
        if (round > 0) {
            spill_sample(&ours, mine);
            spill_sample(&theirs, other);
        }
    }
    row->value      = spill_median(&ours);
    row->peer       = "memcpy in one process";
    row->peer_value = spill_median(&theirs);
    row->goal       = 0.95;
    row->is_least   = true;
}

static void section_bandwidth(void)
{
    void *opened = NULL;
    char *own[3]; /* no piece is touched by both sides */

    if (run.offer.no_memory[0] || !run.offer.has_large)
        return; /* the host does not touch the device's memory */
    if (usm_ipc_open(&run.offer.large, NULL, NULL, &opened) != USM_OK) {
        say_why(spill_add("bandwidth", "MiB/s", "64 MiB"));
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        own[i] = malloc(IPC_LARGE);
        if (own[i])
            memset(own[i], (int)i, IPC_LARGE);
    }
    if (own[0] && own[1] && own[2]) {
        add_bandwidth("64 MiB from an opened pointer", (char *[]){own[0], opened},
                      (char *[]){own[1], own[2]});
        add_bandwidth("64 MiB to an opened pointer", (char *[]){opened, own[0]},
                      (char *[]){own[1], own[2]});
    }
    for (size_t i = 0; i < 3; i++)
        free(own[i]);
    (void)usm_ipc_close(opened, NULL);
}

/* ---- events ------------------------------------------------------------------------------- */

static bool ask(char what, uint64_t n)
{
    const ipc_request r    = {.what = what, .n = n};
    char              byte = 0;

    return send(run.sock, &r, sizeof r, MSG_NOSIGNAL) == (ssize_t)sizeof r &&
           recv(run.sock, &byte, 1, 0) == 1;
}

/* One way of a round trip, there and back: by an event each, or by a word. */
static bool ping_event(usm_ipc_event *const ev[2], uint64_t *count)
{
    return usm_ipc_event_signal(ev[0]) == USM_OK &&
           usm_ipc_event_sync_count(ev[1], ++*count, 10000) == USM_OK;
}

static void ping_word(uint64_t *count)
{
    atomic_store_explicit(&run.words->ping, ++*count, memory_order_release);
    ipc_spin_until(&run.words->pong, *count);
}

/* The median of short bursts: what else the machine does falls into few of them.  ev NULL: words,
 * fewer, because two that spin on one processor take each other's time slices. */
static bool play(usm_ipc_event *const ev[2], double *us)
{
    static double   bursts[BURSTS];
    static uint64_t events, words;
    const size_t    n = ev ? BURSTS : BURSTS / 10;

    if (!ask(ev ? 'e' : 'w', (uint64_t)n * BURST))
        return false;
    for (size_t i = 0; i < n; i++) {
        uint64_t began = bench_now_ns();

        for (unsigned k = 0; k < BURST; k++)
            if (!ev)
                ping_word(&words);
            else if (!ping_event(ev, &events))
                return false;
        bursts[i] = (double)(bench_now_ns() - began) / BURST / 2 / 1000;
    }
    *us = median_of(bursts, n);
    return true;
}

static void section_event(void)
{
    spill_row     *row     = spill_add("event", "us", "signal to the end of the wait");
    spill_row     *least   = spill_add("event", "us", "a word of shared memory, spun on");
    spill_samples  samples = {{0}, 0}, words = {{0}, 0};
    usm_ipc_event *ev[2] = {NULL, NULL};
    double         us    = 0;
    bool           ok;

    row->goal = 3;
    if (run.offer.no_events[0]) {
        snprintf(row->why, sizeof row->why, "%s", run.offer.no_events);
        return;
    }
    ok = usm_ipc_event_open(&run.offer.ping, NULL, &ev[0]) == USM_OK &&
         usm_ipc_event_open(&run.offer.pong, NULL, &ev[1]) == USM_OK && play(ev, &us);
    for (unsigned round = 0; ok && round < run.rounds; round++) {
        ok = play(ev, &us);
        spill_sample(&samples, us);
        ok = ok && play(NULL, &us);
        spill_sample(&words, us);
    }
    row->value   = spill_median(&samples);
    least->value = spill_median(&words);
    if (!ok)
        say_why(row);
    usm_ipc_event_destroy(ev[0]);
    usm_ipc_event_destroy(ev[1]);
}

/* ---- the benchmark --------------------------------------------------------------------------- */

static pid_t start_owner(void)
{
    int   pair[2];
    pid_t pid;

    run.words =
        mmap(NULL, sizeof *run.words, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.words == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        close(pair[0]);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(SECONDS);
        _exit(ipc_own(pair[1], run.words));
    }
    close(pair[1]);
    run.sock = pair[0];
    return pid;
}

static bool hear_offer(void)
{
    if (recv(run.sock, &run.offer, sizeof run.offer, MSG_WAITALL) == (ssize_t)sizeof run.offer)
        return true;
    fprintf(stderr, "usm-bench ipc: the owner of the memory ended\n");
    return false;
}

static void measure(const bench_options *options)
{
    static const struct {
        const char *name;
        void (*measure)(void);
    } sections[] = {
        {"open", section_open}, {"bandwidth", section_bandwidth}, {"event", section_event}};

    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (!options->only || strncmp(options->only, sections[i].name, strlen(options->only)) == 0)
            sections[i].measure();
}

int bench_ipc(bench_report *report, const bench_options *options)
{
    pid_t owner;
    bool  ok;

    run.options = options;
    run.rounds  = options->rounds  ? (unsigned)options->rounds
                  : options->quick ? 5
                                   : SPILL_ROUNDS_MAX;
    run.rounds  = run.rounds > SPILL_ROUNDS_MAX ? SPILL_ROUNDS_MAX : run.rounds;
    setenv("USM_DEVICE_SELECTOR", "host:*", 0); /* NOLINT(concurrency-mt-unsafe): one thread */
    owner = start_owner();
    if (owner < 0) {
        fprintf(stderr, "usm-bench ipc: no second process can be had\n");
        return 1;
    }
    alarm(SECONDS);
    ok = hear_offer();
    if (ok)
        measure(options);
    close(run.sock);
    if (ok)
        usm_shutdown();
    waitpid(owner, NULL, 0);
    spill_report(report);
    if (ok && report->nrows == 0) {
        fprintf(stderr, "usm-bench: no section of ipc begins like \"%s\"\n", options->only);
        return 2;
    }
    if (!options->json) {
        if (ok)
            printf("medians of %u rounds\n", run.rounds);
        spill_print(options->markdown);
        report->nrows = 0;
    }
    return ok ? 0 : 1;
}
