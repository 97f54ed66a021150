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
    bench_source          source;
    bench_engine         *engine;
    bench_engine         *one; /* of `scale`: what is compared with                      */
    double                target_ns;
    size_t                n, n_one;  /* units of a repetition; 0: not calibrated           */
    bool                  has_calls; /* to malloc and free, while the clock runs           */
    const bench_workload *workload;
    uint64_t              seed;
    bool                  pin;
} worker;

static void close_engines(worker *w)
{
    bench_engine_close(w->engine);
    bench_engine_close(w->one);
    w->engine = w->one = NULL;
    w->n = w->n_one = 0;
}

static bench_engine *open_engine(worker *w, unsigned threads)
{
    bench_engine *e = bench_engine_open(w->workload, threads, w->seed, w->pin);

    if (e)
        bench_engine_use(e, w->source.loops, w->source.pool, &w->source.table);
    return e;
}

static void command_open(worker *w, const char *line)
{
    const bench_workload *workload;
    char                  name[64];
    unsigned              threads, pin;

    if (sscanf(line, "open %63s %u %" SCNu64 " %lf %u", name, &threads, &w->seed, &w->target_ns,
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
    close_engines(w);
    w->workload  = workload;
    w->pin       = pin != 0;
    w->has_calls = workload->shape != BENCH_QUERY && workload->shape != BENCH_STATS;
    w->engine    = open_engine(w, threads);
    printf(w->engine ? "ok\n" : "error no memory for the workload\n");
}

static bool calibrate(const worker *w, bench_engine *e, size_t *n)
{
    if (*n == 0)
        *n = bench_engine_calibrate(e, w->target_ns);
    return *n != 0;
}

static bool calibrated(worker *w)
{
    return calibrate(w, w->engine, &w->n);
}

static void command_run(worker *w)
{
    bench_result r;

    if (calibrated(w) && bench_engine_run(w->engine, w->n, &r))
        printf("ok %.4f %.4f\n", r.cpu_ns / r.pairs, r.wall_ns / r.pairs);
    else
        printf(OUT_OF_MEMORY);
}

/* Both in one process: a process may be slower than its like from start to end. */
static void command_scale(worker *w)
{
    bench_result one, all;

    if (!w->one) {
        w->one = open_engine(w, w->workload->shape == BENCH_XMALLOC ? 2 : 1);
        if (w->one)
            bench_engine_even(w->one);
        bench_engine_even(w->engine);
    }
    if (w->one && calibrate(w, w->one, &w->n_one) && calibrated(w) &&
        bench_engine_run(w->one, w->n_one, &one) && bench_engine_run(w->engine, w->n, &all))
        printf("ok %.4f %.4f\n", all.cpu_ns / all.pairs / (one.cpu_ns / one.pairs),
               all.cpu_ns / all.pairs);
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

typedef struct idle_look {
    const worker *worker;
    const char   *what; /* "", " trim" or " need" */
    uint64_t      cached;
} idle_look;

static void look_at_caches(void *arg)
{
    idle_look          *look = arg;
    const bench_source *s    = &look->worker->source;
    bool                is_served;

    if (strcmp(look->what, " trim") == 0)
        s->trim();
    is_served    = strcmp(look->what, " need") == 0 && s->need_all();
    look->cached = is_served ? 0 : s->cached();
}

static void command_idle(worker *w, const char *what)
{
    idle_look look = {w, what, UINT64_MAX};

    if (!w->source.cached)
        printf("error only pools of libusm tell what their caches hold\n");
    else if (!calibrated(w) || !bench_engine_idle(w->engine, w->n, look_at_caches, &look) ||
             look.cached == UINT64_MAX)
        printf(OUT_OF_MEMORY);
    else
        printf("ok %.4f\n", (double)look.cached / 1048576);
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
        else if (w.engine && strcmp(line, "scale") == 0)
            command_scale(&w);
        else if (w.engine && strncmp(line, "idle", 4) == 0)
            command_idle(&w, line + 4);
        else if (w.engine && strcmp(line, "latency") == 0)
            command_latency(&w);
        else if (w.engine && strcmp(line, "once") == 0)
            command_once(&w);
        else
            printf("error what is \"%s\"\n", line);
    }
    alarm(5); /* a driver that hangs at its end */
    close_engines(&w);
    if (w.source.table.close)
        w.source.table.close(w.source.table.self);
    return 0;
}
