/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The allocation workloads of `usm-bench pool`: one engine, any allocator.
 *
 * The same loops (loops.inc) are compiled once for each way to allocate: malloc, a pool of libusm,
 * and a table of functions for all others (UMF, SYCL, libusm by queue, a timing layer), so that
 * what is compared pays no call of ours on one side only.
 *
 * A workload here is a shape, what varies in it, and what a "pair" is; engine.c runs one in a
 * number of threads and measures thread-CPU time; sequences.c and synthetic.c prepare what it does
 * beforehand, so that no random number is drawn while the clock runs (except in mstress, whose
 * course depends on them).  Sizes are bytes.  Called by worker.c. */
#ifndef USM_BENCH_WORKLOAD_H
#define USM_BENCH_WORKLOAD_H

#include "plugin.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------ what workloads do */

/* One operation of a prepared sequence. */
typedef struct bench_op {
    uint32_t slot, size;
} bench_op;

/* One event of a trace: size 0 frees.  Identities are small and used again. */
typedef struct bench_event {
    uint64_t id, size;
} bench_event;

typedef struct bench_trace {
    bench_event *events;
    size_t       nevents, capacity;
    size_t       nids;      /* identities are 0 .. nids - 1                        */
    size_t       allocs;    /* events that allocate                                */
    uint64_t     live_peak; /* of the sizes asked for                              */
} bench_trace;

#define BENCH_SEQUENCE  32768u /* operations of a prepared sequence; a power of two */
#define BENCH_TRANSFERS 1000u  /* slots through which threads of mstress hand blocks on */

/* What a loop works on; each thread has its own, `shared` is all threads'. */
typedef struct bench_lane {
    void              *pool; /* bench_allocator.self, or usm_pool *                   */
    const bench_op    *ops;
    void             **slots;
    _Atomic(void *)   *shared;
    uint64_t           seed;
    size_t             size, batch, scale;
    const bench_trace *trace;
    bool               failed; /* out of memory: the loop ended early                  */
} bench_lane;

/* The loops, compiled for one way to allocate.  Each does its work n times. */
typedef struct bench_loops {
    void (*pairs)(bench_lane *lane, size_t n);   /* malloc, free                          */
    void (*batches)(bench_lane *lane, size_t n); /* n blocks: half freed FIFO, half LIFO  */
    void (*fill)(bench_lane *lane, size_t n);    /* slots 0 .. n - 1 from the sequence    */
    void (*drain)(bench_lane *lane, size_t n);   /* frees slots 0 .. n - 1                */
    void (*replace)(bench_lane *lane, size_t n); /* a random slot: free, malloc           */
    void (*toggle)(bench_lane *lane, size_t n);  /* a random slot: free if full else malloc */
    void (*hand_on)(bench_lane *lane, size_t n); /* replace; 1 in 50 by another thread    */
    void (*replay)(bench_lane *lane, size_t n);  /* the trace, n times                    */
    void (*mstress)(bench_lane *lane, size_t n); /* n allocations of mstress              */
    void (*queries)(bench_lane *lane, size_t n); /* the kind of n of the slots' pointers  */
} bench_loops;

extern const bench_loops bench_loops_malloc, bench_loops_malloc_touched;
extern const bench_loops bench_loops_pool, bench_loops_pool_touched;
extern const bench_loops bench_loops_table;

/* ------------------------------------------------------------------ workloads */

typedef enum bench_shape {
    BENCH_PAIRS,
    BENCH_BATCHES,
    BENCH_BATCH_MIX, /* glibc-simple: every size with every batch */
    BENCH_REPLACE,
    BENCH_TOGGLE,
    BENCH_LARSON,
    BENCH_HAND_ON,
    BENCH_XMALLOC,
    BENCH_MSTRESS,
    BENCH_TRACE,
    BENCH_QUERY,
    BENCH_STATS
} bench_shape;

/* How sizes are drawn: between least and most. */
typedef enum bench_sizes {
    BENCH_FIXED,
    BENCH_UNIFORM,
    BENCH_BY_8,           /* uniform, multiples of 8   */
    BENCH_INVERSE_SQUARE, /* density 1 / size^2        */
    BENCH_LINEAR_FALLOFF, /* density most - size       */
    BENCH_LOG_UNIFORM
} bench_sizes;

typedef struct bench_workload {
    const char *name, *title;
    bench_shape shape;
    bench_sizes sizes;
    size_t      least, most;
    size_t      slots; /* per thread; of a batch in the batch shapes */
    size_t      scale; /* every size times so much; 0 = 1            */
    bool (*make)(bench_trace *trace, uint64_t seed);
} bench_workload;

const bench_workload *bench_workload_find(const char *name);

/* Sequences and sizes (sequences.c). */
uint64_t bench_random(uint64_t *seed);
double   bench_random_unit(uint64_t *seed); /* [0, 1) */
size_t   bench_random_size(const bench_workload *w, uint64_t *seed);
/* BENCH_SEQUENCE operations; caller frees.  NULL when memory is out. */
bench_op *bench_sequence(const bench_workload *w, uint64_t seed);

/* Traces (trace.c, synthetic.c).  bench_trace_add() gives the new block's identity. */
uint64_t bench_trace_add(bench_trace *t, uint64_t size);
void     bench_trace_drop(bench_trace *t, uint64_t id);
/* Settles ids and totals; false when memory ran out while it was written. */
bool bench_trace_finish(bench_trace *t);
void bench_trace_clear(bench_trace *t);
bool bench_make_dl_fixed(bench_trace *t, uint64_t seed);
bool bench_make_dl_variable(bench_trace *t, uint64_t seed);
bool bench_make_dl_flash(bench_trace *t, uint64_t seed);
bool bench_make_amr(bench_trace *t, uint64_t seed);
bool bench_make_rmm_1m(bench_trace *t, uint64_t seed);
bool bench_make_rmm_64m(bench_trace *t, uint64_t seed);
bool bench_make_umf_peak(bench_trace *t, uint64_t seed);

/* ------------------------------------------------------------------ the engine */

typedef struct bench_engine bench_engine;

typedef struct bench_result {
    double cpu_ns, wall_ns; /* of all threads together; from the first start to the last end */
    double pairs;
} bench_result;

/* Prepares w; NULL and a text on failure.  `pin`: thread i runs on processor i. */
bench_engine *bench_engine_open(const bench_workload *w, unsigned threads, uint64_t seed, bool pin);
void          bench_engine_close(bench_engine *e);
/* What the engine allocates with, from now on. */
void bench_engine_use(bench_engine *e, const bench_loops *loops, void *pool,
                      const bench_allocator *a);
/* One repetition of `n` units (see bench_engine_unit) a thread.  false and a text on failure. */
bool bench_engine_run(bench_engine *e, size_t n, bench_result *result);
/* Every thread does n units, gives everything back and sleeps; meanwhile the caller's looks. */
bool bench_engine_idle(bench_engine *e, size_t n, void (*look)(void *), void *arg);
/* From now on threads of mstress do equal work, that of the first: one can be compared with many. */
void bench_engine_even(bench_engine *e);
/* The n with which a repetition takes about `target_ns` of a thread's CPU time. */
size_t             bench_engine_calibrate(bench_engine *e, double target_ns);
const bench_trace *bench_engine_trace(const bench_engine *e); /* NULL: the workload has none */

/* Latency of single calls: an allocator that times another (latency.c).  Percentiles in ns, the
 * time of an empty call subtracted. */
const bench_allocator *bench_latency_over(const bench_allocator *inner);
void                   bench_latency_reset(void);
bool                   bench_latency_percentiles(double *p50, double *p99);

#endif
