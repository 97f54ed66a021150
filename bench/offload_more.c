/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The sections of `usm-bench offload` that have no peer written by hand:
 *
 *   tasks    an empty host task, and one over two parts of buffers
 *   uneven   two unequal devices: when they end, and how long it takes against what both could do
 *   traffic  what the master says about a chunk of a job of 64 MiB
 *   idle     the processor time of a process that has a team and no work
 *   start    programs that the second process builds
 *
 * Policies are measured where time is simulated: tests/offload/policy_sim.c.  Called by offload.c.
 */
#include "offload.h"

#include <usm/usm.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- tasks ---------------------------------------------------------------------------------- */

#define TASKS 20000

static void add_tasks(const char *name, bool is_in_order, unsigned naccessors, double goal)
{
    spill_row        *cpu_row  = spill_add("tasks", "us", "%s, CPU time", name);
    spill_row        *wall_row = spill_add("tasks", "us", "%s, wall", name);
    offload_samples   cpu = {{0}, 0}, wall = {{0}, 0};
    offload_task_cost cost;

    cpu_row->goal = wall_row->goal = goal;
    for (unsigned round = 1; round <= offload_run.rounds; round++) {
        offload_show(name, round);
        if (!offload_time_tasks(is_in_order, naccessors, TASKS, &cost)) {
            snprintf(cpu_row->why, sizeof cpu_row->why, "%.199s", usm_last_error());
            return;
        }
        offload_sample(&cpu, cost.cpu_us);
        offload_sample(&wall, cost.wall_us);
    }
    cpu_row->value  = offload_median(&cpu);
    wall_row->value = offload_median(&wall);
}

void offload_section_tasks(void)
{
    add_tasks("task, in order", true, 0, 0.2);
    add_tasks("task, out of order", false, 0, 0.3);
    add_tasks("task of 2 accessors, in order", true, 2, 0.8);
    add_tasks("task of 2 accessors, out of order", false, 2, 0.8);
}

/* ---- two unequal devices -------------------------------------------------------------------- */

enum { HOST, SLOW, BOTH, TEAMS };

/* Each with half of the processors, alone and together; libusm's own policy. */
static bool start_teams(offload_peer team[TEAMS], char *why, size_t size)
{
    static const char *const selector[] = {"host:*", "opencl:*", "host:*+opencl:*"};
    static char              threads[48];
    const char              *points = offload_run.options->quick ? "2000" : "8000";

    snprintf(threads, sizeof threads, "USM_HOST_THREADS%s", strchr(offload_run.half, '='));
    for (unsigned i = 0; i < TEAMS; i++) {
        team[i] = (offload_peer){.env = {threads, offload_run.half, "USM_POLICY=adaptive"}};
        offload_words(&team[i], offload_worker_path(), "idw-uneven", "--device", selector[i],
                      "--points", points, (char *)NULL);
        if (!offload_start(&team[i], offload_run.options->verbose)) {
            snprintf(why, size, "%s", team[i].why);
            return false;
        }
    }
    return true;
}

void offload_section_uneven(void)
{
    offload_peer    team[TEAMS] = {{.why = ""}};
    offload_samples alone[2] = {{{0}, 0}}, spread = {{0}, 0}, over = {{0}, 0}, chunks = {{0}, 0};
    spill_row      *row                  = spill_add("uneven", "", "makespan, of the ideal");
    char            why[sizeof row->why] = "";
    bool            is_good              = start_teams(team, why, sizeof why);

    for (unsigned round = 0; is_good && round <= offload_run.rounds; round++) {
        offload_show("uneven", round);
        for (unsigned i = 0; is_good && i < TEAMS; i++)
            is_good = offload_go(&team[i], 1);
        if (!is_good || round == 0)
            continue;
        offload_sample(&alone[HOST], team[HOST].wall_ms);
        offload_sample(&alone[SLOW], team[SLOW].wall_ms);
        offload_sample(&spread, 100 * team[BOTH].spread);
        offload_sample(&over,
                       team[BOTH].wall_ms * (1 / team[HOST].wall_ms + 1 / team[SLOW].wall_ms));
        offload_sample(&chunks, (double)team[BOTH].chunks);
    }
    row->value = offload_median(&over);
    row->goal  = 1.05;
    snprintf(row->why, sizeof row->why, "%s", why[0] ? why : team[BOTH].why);
    row        = spill_add("uneven", "%", "last end less first end, of it");
    row->value = offload_median(&spread);
    row->goal  = 5;
    row        = spill_add("uneven", "ms", "the host alone");
    row->value = offload_median(&alone[HOST]);
    row        = spill_add("uneven", "ms", "the device of OpenCL alone");
    row->value = offload_median(&alone[SLOW]);
    row        = spill_add("uneven", "", "chunks");
    row->value = offload_median(&chunks);
    for (unsigned i = 0; i < TEAMS; i++)
        offload_stop(&team[i]);
}

/* ---- traffic -------------------------------------------------------------------------------- */

#define TRAFFIC_ROUNDS 3

void offload_section_traffic(void)
{
    for (unsigned mpi = 0; mpi < OFFLOAD_MPIS; mpi++) {
        offload_peer    job;
        offload_samples bytes = {{0}, 0};
        spill_row      *row =
            spill_add("traffic", "B", "%s, the master's messages, a chunk", offload_mpi_name(mpi));
        bool is_good = true;

        if (offload_rank_worker(mpi, &job)) /* an image of 64 MiB */
            offload_words(&job, "idw", "--side", "4096", "--points", "4", (char *)NULL);
        is_good = offload_start(&job, offload_run.options->verbose);
        for (unsigned round = 1; is_good && round <= TRAFFIC_ROUNDS; round++) {
            offload_show("traffic", round);
            is_good = offload_go(&job, 64);
            if (is_good && job.chunks > 0)
                offload_sample(&bytes, (double)job.sent / (double)job.chunks);
        }
        row->value = offload_median(&bytes);
        row->goal  = 1023;
        snprintf(row->why, sizeof row->why, "%s", job.why);
        offload_stop(&job);
    }
}

/* ---- idle ----------------------------------------------------------------------------------- */

#define IDLE_S 2

static double ms_of(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void add_idle(const char *name, const char *selector)
{
    const struct timespec nap = {IDLE_S, 0};
    offload_peer          p   = {.why = ""};
    spill_row            *row = spill_add("idle", "%", "%s, of a processor", name);
    clockid_t             clock;

    offload_words(&p, offload_worker_path(), "idw", "--device", selector, (char *)NULL);
    row->goal = 0.1;
    if (offload_start(&p, offload_run.options->verbose) && offload_go(&p, 64) &&
        clock_getcpuclockid(p.pid, &clock) == 0) {
        const double before = ms_of(clock), began = ms_of(CLOCK_MONOTONIC);

        nanosleep(&nap, NULL);
        row->value = 100 * (ms_of(clock) - before) / (ms_of(CLOCK_MONOTONIC) - began);
        if (row->value < 0.001) /* 0 would be: not measured */
            row->value = 0.001;
    }
    snprintf(row->why, sizeof row->why, "%s", p.why);
    offload_stop(&p);
}

void offload_section_idle(void)
{
    add_idle("a team of OpenCL that has ended a launch", "opencl:*");
    add_idle("a team of the host that has ended a launch", "host:*");
}

/* ---- start ---------------------------------------------------------------------------------- */

/* Lines of the trace that say: a program was built of text, and its binary taken to be kept. */
static double builds_in(const char *log)
{
    char   line[600];
    double n    = 0;
    FILE  *file = fopen(log, "re");

    while (file && fgets(line, sizeof line, file))
        n += strstr(line, ".program_binary") != NULL;
    if (file)
        (void)fclose(file);
    return n;
}

static double start_one(const char *cache, const char *log, char why[200])
{
    offload_peer p = {.env = {cache, "USM_HOOKS=trace", "USM_LOG=info"}, .log = log};

    offload_words(&p, offload_worker_path(), "idw", (char *)NULL);
    if (!offload_start(&p, false) || !offload_go(&p, 16))
        snprintf(why, 200, "%s", p.why);
    offload_stop(&p);
    return builds_in(log);
}

void offload_section_start(void)
{
    char       folder[] = "/tmp/usm-bench-XXXXXX", cache[64], log[64], command[64];
    spill_row *first    = spill_add("start", "", "programs that the first process builds");
    spill_row *second   = spill_add("start", "", "the second");

    if (!mkdtemp(folder)) {
        snprintf(first->why, sizeof first->why, "no folder can be made in /tmp");
        return;
    }
    snprintf(cache, sizeof cache, "USM_CACHE_DIR=%s/cache", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    first->value  = start_one(cache, log, first->why);
    second->value = start_one(cache, log, second->why);
    second->goal  = 0.5;      /* none at all */
    if (system(command) != 0) /* NOLINT: a folder of ours */
        fprintf(stderr, "%s stays\n", folder);
}
