/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench offload: launches split over devices and ranks, against the same written by hand.
 *
 *   device   idw and md5 on one device of OpenCL, against OpenCL by hand
 *   ranks    the same on two ranks of each MPI, against MPI and OpenCL by hand
 *   chunks   what a chunk adds: from the same computation in 1 and in 1024 chunks
 *   starpu   idw in 256 chunks on processors, against StarPU
 *   tasks, uneven, traffic, idle, start: offload_more.c
 *
 * Both sides are processes that compute when they are told to (offload_worker.c, baselines/), by
 * turns; who comes first changes each round.  A figure is the median of the rounds' ratios, not the
 * ratio of two medians: what else the machine does at a time hits both.  Called by main.c. */
#include "offload.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef USM_BENCH_OFFLOAD_WORKER
#define USM_BENCH_OFFLOAD_WORKER NULL
#endif
#ifndef USM_BENCH_BASELINE_IDW_OPENCL
#define USM_BENCH_BASELINE_IDW_OPENCL NULL
#define USM_BENCH_BASELINE_MD5_OPENCL NULL
#endif
#ifndef USM_BENCH_BASELINE_IDW_STARPU
#define USM_BENCH_BASELINE_IDW_STARPU NULL
#endif

/* Of CMakeLists.txt: programs for each MPI that is there. */
static const struct {
    const char *name, *launcher, *worker, *idw, *md5;
} mpis[OFFLOAD_MPIS] = {
#ifdef USM_BENCH_OFFLOAD_OPENMPI
    {"openmpi", USM_BENCH_LAUNCHER_OPENMPI, USM_BENCH_OFFLOAD_OPENMPI, USM_BENCH_IDW_OPENMPI,
     USM_BENCH_MD5_OPENMPI},
#else
    {"openmpi", NULL, NULL, NULL, NULL},
#endif
#ifdef USM_BENCH_OFFLOAD_MPICH
    {"mpich", USM_BENCH_LAUNCHER_MPICH, USM_BENCH_OFFLOAD_MPICH, USM_BENCH_IDW_MPICH,
     USM_BENCH_MD5_MPICH},
#else
    {"mpich", NULL, NULL, NULL, NULL},
#endif
};

offload_choices offload_run;

/* ---- programs ------------------------------------------------------------------------ */

const char *offload_worker_path(void)
{
    return USM_BENCH_OFFLOAD_WORKER;
}

const char *offload_mpi_name(unsigned mpi)
{
    return mpis[mpi].name;
}

void offload_words(offload_peer *p, const char *first, ...)
{
    size_t  n = 0;
    va_list words;

    while (p->words[n])
        n++;
    va_start(words, first);
    for (const char *word = first; word && n + 1 < sizeof p->words / sizeof *p->words;
         word             = va_arg(words, const char *))
        p->words[n++] = word;
    va_end(words);
}

/* Two ranks on this machine, each with its share of the processors. */
static bool two_ranks(unsigned mpi, const char *program, offload_peer *p)
{
    *p = (offload_peer){.env = {offload_run.half, "OMPI_ALLOW_RUN_AS_ROOT=1",
                                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "USM_JOB_LEASE=20000"}};
    if (!program || !mpis[mpi].launcher) /* the path stays NULL: it was not built */
        return false;
    offload_words(p, mpis[mpi].launcher, (char *)NULL);
    if (strcmp(mpis[mpi].name, "openmpi") == 0)
        offload_words(p, "--oversubscribe", "--bind-to", "none", (char *)NULL);
    offload_words(p, "-n", "2", program, (char *)NULL);
    return true;
}

bool offload_rank_worker(unsigned mpi, offload_peer *p)
{
    return two_ranks(mpi, mpis[mpi].worker, p);
}

void offload_show(const char *what, unsigned round)
{
    if (!offload_run.options->json)
        fprintf(stderr, "\r%-30s round %3u of %3u", what, round, offload_run.rounds);
}

/* ---- pairs ------------------------------------------------------------------------------- */

typedef struct pair {
    offload_peer    ours, theirs;
    offload_samples cpu[3], wall[3]; /* ours, theirs, ms; our share of theirs - 1, %          */
    char            why[200];
} pair;

static bool start_both(pair *w)
{
    const bool is_verbose = offload_run.options->verbose;

    if (!offload_start(&w->ours, is_verbose))
        snprintf(w->why, sizeof w->why, "libusm's worker: %.160s", w->ours.why);
    else if (!offload_start(&w->theirs, is_verbose))
        snprintf(w->why, sizeof w->why, "the program by hand: %.160s", w->theirs.why);
    return !w->why[0];
}

static void keep(offload_samples s[3], double ours, double theirs)
{
    offload_sample(&s[0], ours);
    offload_sample(&s[1], theirs);
    offload_sample(&s[2], 100 * (ours / theirs - 1));
}

static bool go_both(pair *w, unsigned round, unsigned chunks)
{
    offload_peer *first = round % 2 ? &w->ours : &w->theirs;
    offload_peer *other = round % 2 ? &w->theirs : &w->ours;

    if (!offload_go(first, chunks) || !offload_go(other, chunks))
        snprintf(w->why, sizeof w->why, "%.90s%.90s", w->ours.why, w->theirs.why);
    else if (w->ours.answer != w->theirs.answer)
        snprintf(w->why, sizeof w->why, "the answers differ");
    return !w->why[0];
}

/* The first round warms both up: a driver compiles a launch anew that begins at 0. */
static void measure_pair(const char *what, pair *w, unsigned chunks)
{
    if (start_both(w))
        for (unsigned round = 0; round <= offload_run.rounds; round++) {
            offload_show(what, round);
            if (!go_both(w, round, chunks))
                break;
            if (round == 0)
                continue;
            keep(w->cpu, w->ours.cpu_ms, w->theirs.cpu_ms);
            keep(w->wall, w->ours.wall_ms, w->theirs.wall_ms);
        }
    offload_stop(&w->ours);
    offload_stop(&w->theirs);
}

static void add_times(const char *section, const char *what, const pair *w,
                      const offload_samples s[3], const char *clock, const char *peer)
{
    spill_row *row = spill_add(section, "ms", "%s, %s", what, clock);

    row->value      = offload_median(&s[0]);
    row->peer       = peer;
    row->peer_value = offload_median(&s[1]);
    snprintf(row->why, sizeof row->why, "%s", w->why);
}

/* What libusm takes more than the peer: the median, and how far up it may lie. */
static void add_overhead(const char *section, const char *what, const pair *w,
                         const offload_samples s[3], const char *clock)
{
    spill_row *middle = spill_add(section, "%", "%s, %s: more than by hand", what, clock);
    spill_row *upper  = spill_add(section, "%", "%s, %s: 95 %% interval's end", what, clock);
    double     low, high;

    offload_interval(&s[2], &low, &high);
    middle->value = offload_median(&s[2]);
    middle->goal  = 1;
    upper->value  = high;
    upper->goal   = 2;
    if (w->why[0])
        snprintf(middle->why, sizeof middle->why, "%s", w->why);
    else
        snprintf(middle->why, sizeof middle->why, "median of %u ratios, interval %+.2f to %+.2f %%",
                 s[2].n, low, high);
    snprintf(upper->why, sizeof upper->why, "%s", w->why);
}

static void add_pair(const char *section, const char *what, const pair *w)
{
    add_times(section, what, w, w->cpu, "CPU time", "by hand");
    add_overhead(section, what, w, w->cpu, "CPU time");
    add_times(section, what, w, w->wall, "wall", "by hand");
    add_overhead(section, what, w, w->wall, "wall");
}

/* ---- idw, md5 ----------------------------------------------------------------------------- */

/* Chunks of 2 ms and more, on the processors that this was written on. */
static void add_sizes(pair *w, bool is_idw)
{
    static const char *const idw[] = {"--points", "2000"}, *const quick_idw[] = {"--points", "500"};
    static const char *const md5[] = {"--candidates", "16777216"}, *const quick_md5[] = {
                                                                       "--candidates", "4194304"};
    const char *const *size =
        offload_run.options->quick ? (is_idw ? quick_idw : quick_md5) : (is_idw ? idw : md5);

    offload_words(&w->ours, size[0], size[1], (char *)NULL);
    offload_words(&w->theirs, size[0], size[1], (char *)NULL);
}

static unsigned chunks_of_run(void)
{
    return offload_run.options->quick ? 16 : 64;
}

static void section_device(void)
{
    for (unsigned is_md5 = 0; is_md5 < 2; is_md5++) {
        static const char *const names[] = {"idw", "md5"};
        pair                     w       = {.why = ""};

        offload_words(&w.ours, offload_worker_path(), names[is_md5], (char *)NULL);
        offload_words(&w.theirs,
                      is_md5 ? USM_BENCH_BASELINE_MD5_OPENCL : USM_BENCH_BASELINE_IDW_OPENCL,
                      (char *)NULL);
        add_sizes(&w, !is_md5);
        measure_pair(names[is_md5], &w, chunks_of_run());
        add_pair("device", names[is_md5], &w);
    }
}

static void compare_ranks(unsigned mpi, bool is_idw)
{
    pair       *w       = calloc(1, sizeof *w);
    const char *program = is_idw ? mpis[mpi].idw : mpis[mpi].md5;
    char        what[32];

    if (!w)
        return;
    snprintf(what, sizeof what, "%s, %s", mpis[mpi].name, is_idw ? "idw" : "md5");
    if (two_ranks(mpi, mpis[mpi].worker, &w->ours) && two_ranks(mpi, program, &w->theirs)) {
        offload_words(&w->ours, is_idw ? "idw" : "md5", (char *)NULL);
        add_sizes(w, is_idw);
    }
    measure_pair(what, w, chunks_of_run());
    add_pair("ranks", what, w);
    free(w);
}

static void section_ranks(void)
{
    for (unsigned mpi = 0; mpi < OFFLOAD_MPIS; mpi++) {
        compare_ranks(mpi, true);
        compare_ranks(mpi, false);
    }
}

static void section_starpu(void)
{
    pair       w = {.theirs = {.env = {"STARPU_SILENT=1"}}};
    spill_row *row;

    offload_words(&w.ours, offload_worker_path(), "idw", "--device", "host:*", (char *)NULL);
    offload_words(&w.theirs, USM_BENCH_BASELINE_IDW_STARPU, (char *)NULL);
    measure_pair("starpu", &w, 256);
    add_times("starpu", "idw, 256 chunks", &w, w.cpu, "CPU time", "StarPU");
    add_times("starpu", "idw, 256 chunks", &w, w.wall, "wall", "StarPU");
    row        = spill_add("starpu", "", "CPU time, of StarPU's");
    row->value = w.cpu[2].n ? 1 + offload_median(&w.cpu[2]) / 100 : 0;
    row->goal  = 0.7;
    snprintf(row->why, sizeof row->why, "%s", w.why);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

#define MANY 1024

/* us that a chunk costs: from the process's times for one and for many. */
static bool slope(offload_peer *p, double *cpu_us, double *wall_us)
{
    double cpu_ms, wall_ms;

    if (!offload_go(p, 1))
        return false;
    cpu_ms  = p->cpu_ms;
    wall_ms = p->wall_ms;
    if (!offload_go(p, MANY))
        return false;
    *cpu_us  = 1e3 * (p->cpu_ms - cpu_ms) / (MANY - 1);
    *wall_us = 1e3 * (p->wall_ms - wall_ms) / (MANY - 1);
    return true;
}

static void add_slope(const char *name, const offload_samples *s, double goal, const char *why)
{
    spill_row *row = spill_add("chunks", "us", "%s", name);

    row->value = offload_median(s);
    row->goal  = goal;
    snprintf(row->why, sizeof row->why, "%s", why);
}

enum { CL_OURS, CL_HAND, NATIVE, SIDES };

static void section_chunks(void)
{
    offload_peer    side[SIDES] = {{.why = ""}};
    offload_samples cpu[SIDES] = {{{0}, 0}}, wall[SIDES] = {{{0}, 0}}, more[2] = {{{0}, 0}};
    bool            is_good = true;

    offload_words(&side[CL_OURS], offload_worker_path(), "idw", (char *)NULL);
    offload_words(&side[CL_HAND], USM_BENCH_BASELINE_IDW_OPENCL, (char *)NULL);
    offload_words(&side[NATIVE], offload_worker_path(), "idw", "--device", "host:*", (char *)NULL);
    for (unsigned i = 0; i < SIDES; i++)
        is_good &= offload_start(&side[i], offload_run.options->verbose);
    for (unsigned round = 0; is_good && round <= offload_run.rounds; round++) {
        double c[SIDES] = {0}, t[SIDES] = {0};

        offload_show("chunks", round);
        for (unsigned i = 0; i < SIDES; i++)
            is_good &= slope(&side[i], &c[i], &t[i]);
        for (unsigned i = 0; is_good && round > 0 && i < SIDES; i++) {
            offload_sample(&cpu[i], c[i]);
            offload_sample(&wall[i], t[i]);
        }
        if (is_good && round > 0) {
            offload_sample(&more[0], c[CL_OURS] - c[CL_HAND]);
            offload_sample(&more[1], t[CL_OURS] - t[CL_HAND]);
        }
    }
    add_slope("OpenCL, added to by hand, CPU time", &more[0], 3, side[CL_OURS].why);
    add_slope("OpenCL, added to by hand, wall", &more[1], 3, side[CL_HAND].why);
    add_slope("OpenCL, libusm, CPU time", &cpu[CL_OURS], 0, side[CL_OURS].why);
    add_slope("OpenCL, by hand, CPU time", &cpu[CL_HAND], 0, side[CL_HAND].why);
    add_slope("native, libusm, CPU time", &cpu[NATIVE], 5, side[NATIVE].why);
    add_slope("native, libusm, wall", &wall[NATIVE], 5, side[NATIVE].why);
    for (unsigned i = 0; i < SIDES; i++)
        offload_stop(&side[i]);
}

/* ---- all ------------------------------------------------------------------------------------- */

bool offload_is_wanted(const char *section)
{
    const char *only = offload_run.options->only;

    return !only || strncmp(section, only, strlen(only)) == 0;
}

static void choose(const bench_options *options)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);

    offload_run.options = options;
    offload_run.rounds  = options->rounds ? (unsigned)options->rounds : options->quick ? 21 : 41;
    if (offload_run.rounds > OFFLOAD_ROUNDS_MAX)
        offload_run.rounds = OFFLOAD_ROUNDS_MAX;
    snprintf(offload_run.half, sizeof offload_run.half, "POCL_MAX_PTHREAD_COUNT=%ld",
             cores > 1 ? cores / 2 : 1);
}

int bench_offload(bench_report *report, const bench_options *options)
{
    static const struct {
        const char *name;
        void (*measure)(void);
    } sections[] = {{"device", section_device},           {"ranks", section_ranks},
                    {"chunks", section_chunks},           {"tasks", offload_section_tasks},
                    {"starpu", section_starpu},           {"uneven", offload_section_uneven},
                    {"traffic", offload_section_traffic}, {"idle", offload_section_idle},
                    {"start", offload_section_start}};

    choose(options);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (offload_is_wanted(sections[i].name))
            sections[i].measure();
    spill_report(report);
    if (report->nrows == 0) {
        fprintf(stderr, "usm-bench: no section of offload begins like \"%s\"\n", options->only);
        return 2;
    }
    if (!options->json) {
        fprintf(stderr, "\r%-60s\r", "");
        printf("medians of %u rounds\n", offload_run.rounds);
        spill_print(options->markdown);
        report->nrows = 0;
    }
    return 0;
}
