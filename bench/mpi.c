/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench mpi: blocks in the memory of other ranks, by each MPI that it was built for.
 *
 *   network  two ranks in two network namespaces joined by a cable (needs root): blocks stored and
 *            fetched against MPI's own stream and a socket, checksums, small blocks, latency
 *   host     the same on one host, through shared memory, against memcpy; what a lender does while
 *            nobody asks; host-by-mpi: with that shortcut off
 *   shared   a buffer that ranks share: blocks that change hands, against MPI's own stream
 *   load     buffers of 8 times their limit over three lenders of one host, against the disk;
 *            load-by-mpi: without its shortcut, as over a network
 *   death    a lender dies: how soon it is noticed, and what reads see of it
 *
 * A section is an MPI job of two to five ranks (mpi_worker.h), which tests/mpi/launch.sh starts and
 * ends; its peers run in the same ranks, by turns with libusm.  This program links no MPI.  Called
 * by main.c. */
#include "bench.h"
#include "spill.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEASE_MS 500
#define KEYS     40
#define SHARED   0.6 /* of MPI's stream: the goal of blocks of shared buffers */

/* Of CMakeLists.txt: the ranks' program and its launcher, for each MPI that is there. */
static const struct {
    const char *name, *title, *program, *launcher;
} mpis[] = {
#ifdef USM_BENCH_MPI_OPENMPI
    {"openmpi", "Open MPI", USM_BENCH_MPI_OPENMPI, USM_BENCH_LAUNCHER_OPENMPI},
#else
    {"openmpi", "Open MPI", NULL, NULL},
#endif
#ifdef USM_BENCH_MPI_MPICH
    {"mpich", "MPICH", USM_BENCH_MPI_MPICH, USM_BENCH_LAUNCHER_MPICH},
#else
    {"mpich", "MPICH", NULL, NULL},
#endif
};

#ifndef USM_BENCH_LAUNCH
#define USM_BENCH_LAUNCH ""
#endif

typedef struct figure {
    char          key[32];
    spill_samples samples;
} figure;

static struct {
    const bench_options *options;
    unsigned             rounds;
    unsigned             mib; /* of each measurement                                         */
    char                 file[64], log[64];
    figure               figures[KEYS];
    size_t               nfigures;
    char                 why[200];     /* libusm was not measured; ""                            */
    char                 why_not[200]; /* nothing was                                        */
    char                 sections[16][40];
    size_t               nsections;
    const char          *section; /* the last of them: rows keep its name                        */
} run;

/* ---- a job --------------------------------------------------------------------------- */

static spill_samples *samples_of(const char *key)
{
    for (size_t i = 0; i < run.nfigures; i++)
        if (strcmp(run.figures[i].key, key) == 0)
            return &run.figures[i].samples;
    if (run.nfigures == KEYS)
        return NULL;
    snprintf(run.figures[run.nfigures].key, sizeof run.figures[0].key, "%s", key);
    run.figures[run.nfigures].samples.n = 0;
    return &run.figures[run.nfigures++].samples;
}

static double value_of(const char *key)
{
    for (size_t i = 0; i < run.nfigures; i++)
        if (strcmp(run.figures[i].key, key) == 0)
            return spill_median(&run.figures[i].samples);
    return 0;
}

static void read_line(char *line)
{
    char   key[32];
    double value;
    int    n = 0;

    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "figure %31s %lf", key, &value) == 2) {
        spill_samples *s = samples_of(key);

        if (s)
            spill_sample(s, value);
    } else if (sscanf(line, "why %31s %n", key, &n) == 1 && n > 0 && !run.why[0]) {
        snprintf(run.why, sizeof run.why, "%.199s", line + n);
    }
}

static bool read_results(void)
{
    char  line[600];
    FILE *file  = fopen(run.file, "re");
    bool  ended = false;

    while (file && fgets(line, sizeof line, file)) {
        ended = ended || strncmp(line, "end", 3) == 0;
        read_line(line);
    }
    if (file)
        (void)fclose(file);
    return ended;
}

static void show_log(void)
{
    char  line[600];
    FILE *file = run.options->verbose ? fopen(run.log, "re") : NULL;

    while (file && fgets(line, sizeof line, file))
        fputs(line, stderr);
    if (file)
        (void)fclose(file);
}

/* `extra`: options of launch.sh, divided by spaces. */
static int launch(size_t mpi, const char *section, const char *ranks, const char *extra)
{
    char        options[64], mib[32], rounds[32];
    const char *words[24] = {
        USM_BENCH_LAUNCH, "--mpi", mpis[mpi].name, "--launcher", mpis[mpi].launcher,
        "--time",         "600",   "--output",     run.log};
    size_t n      = 9;
    int    status = -1;
    pid_t  pid;

    snprintf(options, sizeof options, "%s", extra);
    for (char *rest = options, *word; (word = strtok_r(rest, " ", &rest)) != NULL;)
        words[n++] = word;
    snprintf(mib, sizeof mib, "%u", run.mib);
    snprintf(rounds, sizeof rounds, "%u", run.rounds);
    words[n++] = ranks;
    words[n++] = mpis[mpi].program;
    words[n++] = section;
    words[n++] = run.file;
    words[n++] = rounds;
    words[n++] = mib;
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* it ends the job then */
        execv(USM_BENCH_LAUNCH, (char **)(uintptr_t)words);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                           : -1;
}

static void note_first_line(int status)
{
    char  line[160] = "";
    FILE *file      = fopen(run.log, "re");

    if (!file || !fgets(line, sizeof line, file))
        line[0] = '\0';
    if (file)
        (void)fclose(file);
    line[strcspn(line, "\n")] = '\0';
    snprintf(run.why_not, sizeof run.why_not, "the job ended with status %d: %s", status, line);
}

static void run_job(size_t mpi, const char *section, const char *ranks, const char *extra)
{
    int status;

    run.nfigures   = 0;
    run.why[0]     = '\0';
    run.why_not[0] = '\0';
    run.section    = run.sections[run.nsections % 16];
    snprintf(run.sections[run.nsections++ % 16], sizeof run.sections[0], "%s %s", mpis[mpi].name,
             section);
    if (!mpis[mpi].program) {
        snprintf(run.why_not, sizeof run.why_not, "usm-bench was built without %s",
                 mpis[mpi].title);
        return;
    }
    if (strstr(extra, "--slots") && geteuid() != 0) {
        snprintf(run.why_not, sizeof run.why_not, "network namespaces need root");
        return;
    }
    if (!run.options->json)
        fprintf(stderr, "\r%-40s", run.section);
    status = launch(mpi, section, ranks, extra);
    show_log();
    if (!read_results())
        note_first_line(status);
    unlink(run.file);
    unlink(run.log);
}

/* ---- rows ---------------------------------------------------------------------------- */

static void explain(spill_row *row)
{
    if (run.why_not[0])
        snprintf(row->why, sizeof row->why, "%s", run.why_not);
    else if (row->value == 0)
        snprintf(row->why, sizeof row->why, "%s", run.why[0] ? run.why : "it was not measured");
}

typedef struct against {
    const char *name, *unit, *key, *peer, *peer_key; /* keys: a "." stands for the direction's    */
    double      goal;
} against;

static double directed(const char *key, const char *direction)
{
    char text[64];

    snprintf(text, sizeof text, "%s%s", key, key[strlen(key) - 1] == '.' ? direction : "");
    return value_of(text);
}

/* The goals of bandwidth are the least, those of times the most. */
static spill_row *add(const against *a, const char *direction)
{
    const bool is_json = run.options->json; /* which has no sections */
    spill_row *row =
        spill_add(run.section, a->unit, "%s%s%s%s%s", is_json ? run.section : "",
                  is_json ? ": " : "", a->name, a->name[0] && direction[0] ? ", " : "", direction);

    row->value    = directed(a->key, direction);
    row->goal     = a->goal;
    row->is_least = strcmp(a->unit, "MiB/s") == 0;
    row->peer     = a->peer;
    if (a->peer)
        row->peer_value = directed(a->peer_key, direction);
    explain(row);
    return row;
}

static void add_both(const against *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        (void)add(&list[i], "fetch");
        (void)add(&list[i], "store");
    }
}

/* What MPI and the system do without libusm. */
static void add_peers(void)
{
    static const against peers[] = {
        {"MPI's stream, 1 MiB", "MiB/s", "stream.", "a socket", "socket.", 0},
        {"MPI's stream, 64 KiB", "MiB/s", "stream64.", "a socket, 1 MiB", "socket.", 0}};

    add_both(peers, 2);
}

/* A goal of so many round trips and a copy. */
static void add_latency(void)
{
    static const against latency = {"4 KiB, less a copy",        "us",   "latency",
                                    "8 B there and back by MPI", "ping", 3};
    spill_row           *row     = add(&latency, "fetch");
    const double         memcpy  = value_of("memcpy"); /* MiB/s */

    if (row->value > 0 && memcpy > 0) {
        row->value -= 4096 / MIB / memcpy * 1e6;
        row->value = row->value > 0.01 ? row->value : 0.01; /* that copy had no cache */
    }
}

static void section_network(size_t mpi)
{
    static const against rows[] = {
        {"1 MiB blocks", "MiB/s", "plain.", "MPI's stream", "stream.", 0.95},
        {"the same, beside a socket", "MiB/s", "plain.", "a socket", "socket.", 0.8},
        {"checked", "MiB/s", "checked.", "MPI's stream", "stream.", 0.9},
        {"64 KiB blocks, checked", "MiB/s", "small.", "MPI's stream of them", "stream64.", 0.7}};

    run_job(mpi, "network", "2", "--slots 1,1");
    add_both(rows, sizeof rows / sizeof *rows);
    add_latency();
    add_peers();
}

static void section_host(size_t mpi)
{
    static const against rows[] = {
        {"unchecked", "MiB/s", "plain.", "memcpy", "memcpy", 0.9},
        {"checked", "MiB/s", "checked.", "memcpy", "memcpy", 0.7},
        {"unchecked, beside MPI", "MiB/s", "plain.", "MPI's stream", "stream.", 0},
        {"64 KiB blocks, checked", "MiB/s", "small.", "1 MiB blocks", "checked.", 0.5}};
    static const against idle = {"an idle lender, of a processor", "%", "idle", NULL, NULL, 1};

    run_job(mpi, "host", "2", "");
    add_both(rows, sizeof rows / sizeof *rows);
    add_latency();
    (void)add(&idle, "");
    add_peers();
}

/* As between nodes. */
static void run_job_by_mpi(size_t mpi, const char *section, const char *ranks, const char *extra)
{
    setenv("USM_MPI_NEAR", "0", 1); /* NOLINT(concurrency-mt-unsafe): one thread */
    run_job(mpi, section, ranks, extra);
    unsetenv("USM_MPI_NEAR"); /* NOLINT(concurrency-mt-unsafe): one thread */
}

static void section_host_by_mpi(size_t mpi)
{
    static const against rows[] = {
        {"unchecked", "MiB/s", "plain.", "MPI's stream", "stream.", 0},
        {"checked", "MiB/s", "checked.", "MPI's stream", "stream.", 0},
        {"unchecked, beside a copy", "MiB/s", "plain.", "memcpy", "memcpy", 0}};

    run_job_by_mpi(mpi, "host-by-mpi", "2", "");
    add_both(rows, sizeof rows / sizeof *rows);
    add_latency();
}

static void section_shared(size_t mpi)
{
    static const against rows[] = {{"shared buffer, 64 KiB blocks, read", "MiB/s", "shared64.read",
                                    "MPI's stream of them", "stream64.fetch", SHARED},
                                   {"shared buffer, 64 KiB blocks, written", "MiB/s",
                                    "shared64.write", "MPI's stream of them", "stream64.fetch",
                                    SHARED},
                                   {"shared buffer, 1 MiB blocks, read", "MiB/s", "shared.read",
                                    "MPI's stream", "stream.fetch", SHARED},
                                   {"shared buffer, 1 MiB blocks, written", "MiB/s", "shared.write",
                                    "MPI's stream", "stream.fetch", SHARED}};
    static const against one    = {"one block of 64 KiB",       "us",   "shared64.latency",
                                   "8 B there and back by MPI", "ping", 0};

    /* A rank that a busy machine leaves out for the default lease would be lost for good. */
    setenv("USM_JOB_LEASE", "20000", 1); /* NOLINT(concurrency-mt-unsafe): one thread */
    run_job(mpi, "shared", "2", "");
    unsetenv("USM_JOB_LEASE"); /* NOLINT(concurrency-mt-unsafe): one thread */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        (void)add(&rows[i], "");
    (void)add(&one, "");
}

static void add_load(void)
{
    static const against     row         = {"", "MiB/s", "load.", "the disk", "disk.", 1.0};
    static const char *const workloads[] = {"W1", "R", "X"};

    for (size_t i = 0; i < 3; i++)
        (void)add(&row, workloads[i]);
}

static void section_load(size_t mpi)
{
    run_job(mpi, "load", "5", "--yield");
    add_load();
}

static void section_load_by_mpi(size_t mpi)
{
    run_job_by_mpi(mpi, "load-by-mpi", "5", "--yield");
    add_load();
}

static void section_death(size_t mpi)
{
    const against noticed = {"", "ms", "noticed", NULL, NULL, LEASE_MS + 100},
                  longest = {"", "ms", "longest", NULL, NULL, LEASE_MS + 100},
                  failed  = {"", "", "failed", NULL, NULL, 0.5};
    char text[16];

    snprintf(text, sizeof text, "%d", LEASE_MS);
    /* NOLINTBEGIN(concurrency-mt-unsafe): one thread */
    setenv("USM_JOB_LEASE", text, 1);
    setenv("USM_SPILL_REPLICAS", "2", 1);
    snprintf(text, sizeof text, "host:%uM", run.mib / 8);
    setenv("USM_MEMORY_LIMIT", text, 1);
    run_job_by_mpi(mpi, "death", "4", strcmp(mpis[mpi].name, "openmpi") == 0 ? "--recovery" : "");
    unsetenv("USM_JOB_LEASE");
    unsetenv("USM_SPILL_REPLICAS");
    unsetenv("USM_MEMORY_LIMIT");
    /* NOLINTEND(concurrency-mt-unsafe) */
    (void)add(&noticed, "a lender's death is noticed (lease 500 ms)");
    (void)add(&longest, "the longest access meanwhile");
    (void)add(&failed, "accesses that failed, or read wrong bytes");
}

static void measure(size_t mpi)
{
    static const struct {
        const char *name;
        void (*measure)(size_t mpi);
    } sections[] = {
        {"network", section_network}, {"host", section_host}, {"host-by-mpi", section_host_by_mpi},
        {"shared", section_shared},   {"load", section_load}, {"load-by-mpi", section_load_by_mpi},
        {"death", section_death}};
    const char *only = run.options->only;

    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        char name[40];

        snprintf(name, sizeof name, "%s %s", mpis[mpi].name, sections[i].name);
        if (!only || strncmp(name, only, strlen(only)) == 0 ||
            strncmp(sections[i].name, only, strlen(only)) == 0)
            sections[i].measure(mpi);
    }
}

int bench_mpi(bench_report *report, const bench_options *options)
{
    run.options = options;
    run.rounds  = options->rounds ? (unsigned)options->rounds : options->quick ? 3 : 7;
    run.rounds  = run.rounds > SPILL_ROUNDS_MAX ? SPILL_ROUNDS_MAX : run.rounds;
    run.mib     = options->quick ? 64 : 256;
    snprintf(run.file, sizeof run.file, "/tmp/usm-bench-mpi-%d", (int)getpid());
    snprintf(run.log, sizeof run.log, "/tmp/usm-bench-mpi-%d.log", (int)getpid());
    if (options->dir)
        setenv("BENCH_DIR", options->dir, 1); /* NOLINT(concurrency-mt-unsafe): one thread */
    if (access(USM_BENCH_LAUNCH, X_OK) != 0) {
        fprintf(stderr, "usm-bench mpi: it needs libusm's sources: %s is not there\n",
                USM_BENCH_LAUNCH);
        return 1;
    }
    for (size_t mpi = 0; mpi < sizeof mpis / sizeof *mpis; mpi++)
        measure(mpi);
    spill_report(report);
    if (report->nrows == 0) {
        fprintf(stderr, "usm-bench: no section of mpi begins like \"%s\"\n", options->only);
        return 2;
    }
    if (!options->json) {
        fprintf(stderr, "\r%-40s\r", "");
        printf("medians of %u rounds of %u MiB\n", run.rounds, run.mib);
        spill_print(options->markdown);
        report->nrows = 0;
    }
    return 0;
}
