/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The worker's loop: see worker.h for what it is told and answers. */
#include "worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUT_OF_MEMORY "error the allocator ran out of memory, or did not know a pointer\n"

typedef struct worker {
    bench_source  source;
    bench_engine *engine;
    double        target_ns;
    size_t        n;         /* units of a repetition; 0: not calibrated   */
    bool          has_calls; /* to malloc and free, while the clock runs   */
} worker;

static void command_open(worker *w, const char *line)
{
    const bench_workload *workload;
    char                  name[64];
    unsigned              threads, pin;
    uint64_t              seed;

    if (sscanf(line, "open %63s %u %" SCNu64 " %lf %u", name, &threads, &seed, &w->target_ns,
               &pin) != 5 ||
        !(workload = bench_workload_find(name))) {
        printf("error what is \"%s\"\n", line);
        return;
    }
    if ((workload->shape == BENCH_QUERY && !w->source.table.query) ||
        (workload->shape == BENCH_STATS && !w->source.table.stats)) {
        printf("error it has nothing like that\n");
        return;
    }
    bench_engine_close(w->engine);
    w->n         = 0;
    w->has_calls = workload->shape != BENCH_QUERY && workload->shape != BENCH_STATS;
    w->engine    = bench_engine_open(workload, threads, seed, pin != 0);
    if (!w->engine) {
        printf("error no memory for the workload\n");
        return;
    }
    bench_engine_use(w->engine, w->source.loops, w->source.pool, &w->source.table);
    printf("ok\n");
}

static bool calibrated(worker *w)
{
    if (w->n == 0)
        w->n = bench_engine_calibrate(w->engine, w->target_ns);
    return w->n != 0;
}

static void command_run(worker *w)
{
    bench_result r;

    if (calibrated(w) && bench_engine_run(w->engine, w->n, &r))
        printf("ok %.4f %.4f\n", r.cpu_ns / r.pairs, r.wall_ns / r.pairs);
    else
        printf(OUT_OF_MEMORY);
}

static void command_latency(worker *w)
{
    const bench_allocator *timed = bench_latency_over(&w->source.table);
    bench_result           r;
    double                 p50, p99;
    bool                   ok;

    if (!w->has_calls) {
        printf("error malloc and free are not what it measures\n");
        return;
    }
    if (!calibrated(w)) {
        printf(OUT_OF_MEMORY);
        return;
    }
    bench_engine_use(w->engine, &bench_loops_table, (void *)(uintptr_t)timed, &w->source.table);
    bench_latency_reset();
    ok = bench_engine_run(w->engine, w->n, &r) && bench_latency_percentiles(&p50, &p99);
    bench_engine_use(w->engine, w->source.loops, w->source.pool, &w->source.table);
    if (ok)
        printf("ok %.1f %.1f\n", p50, p99);
    else
        printf(OUT_OF_MEMORY);
}

static void command_once(worker *w)
{
    const bench_trace *trace = bench_engine_trace(w->engine);
    uint64_t           live = 0, reserved = 0, driver = 0, allocs = 0;
    bench_result       r;

    if (!trace || !w->source.counts)
        printf("error only pools of libusm tell what they hold\n");
    else if (!bench_engine_run(w->engine, 1, &r) ||
             !w->source.counts(&live, &reserved, &driver, &allocs))
        printf(OUT_OF_MEMORY);
    else
        printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %zu %.6f\n", trace->live_peak,
               live, reserved, driver, trace->allocs, 1 - (double)driver / (double)trace->allocs);
}

int bench_worker(const char *allocator)
{
    static worker w;
    char          line[256], why[512] = "";

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!bench_source_open(allocator, &w.source, why, sizeof why)) {
        printf("error %s\n", why);
        return 1;
    }
    printf("ok\n");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "open ", 5) == 0)
            command_open(&w, line);
        else if (w.engine && strcmp(line, "run") == 0)
            command_run(&w);
        else if (w.engine && strcmp(line, "latency") == 0)
            command_latency(&w);
        else if (w.engine && strcmp(line, "once") == 0)
            command_once(&w);
        else
            printf("error what is \"%s\"\n", line);
    }
    alarm(5); /* a driver that hangs at its end */
    bench_engine_close(w.engine);
    if (w.source.table.close)
        w.source.table.close(w.source.table.self);
    return 0;
}
