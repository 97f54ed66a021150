/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A worker: this program again, in a process of its own, with one allocator.
 *
 * `usm-bench --worker ALLOCATOR` reads commands from its standard input, a line each, and answers
 * each with a line: "ok ..." or "error TEXT".
 *   open WORKLOAD THREADS SEED TARGET_NS PIN   prepares and calibrates      ok
 *   run                 one repetition                    ok CPU_NS WALL_NS, of a pair
 *   scale               one with a single thread (of producer -> consumer: a pair), one with all
 *                                                         ok RATIO CPU_NS, of the second
 *   latency             single calls                      ok P50 P99
 *   once                the trace once, in a new pool
 *                       ok ASKED_PEAK LIVE_PEAK RESERVED_PEAK DRIVER_ALLOCS ALLOCS REUSE
 *   idle                what caches hold while all threads sleep after their work; ok MIB
 *   idle trim           the same after a trim of the pool                          ok MIB
 *   idle need           the same where a request of all the memory fails; 0: it is served
 * ALLOCATOR is one of
 *   malloc, malloc-touch          the process's malloc, which LD_PRELOAD chooses
 *   pool:KIND, pool-touch:KIND    usm_pool_malloc of the default pool; device, host, ...
 *   queue:KIND                    usm_malloc_device(n, q), ... and usm_free
 *   plugin:FILE:WHAT              a plugin's (umf.c, sycl.cpp)
 * Run by main.c, spoken to by contenders.c. */
#ifndef USM_BENCH_WORKER_H
#define USM_BENCH_WORKER_H

#include "workload.h"

/* What a worker allocates with. */
typedef struct bench_source {
    const bench_loops *loops;
    void              *pool;  /* for the loops                      */
    bench_allocator    table; /* the same, for queries and latency  */
    /* The numbers of `once`; NULL: has none. */
    bool (*counts)(uint64_t *live_peak, uint64_t *reserved_peak, uint64_t *driver_allocs,
                   uint64_t *allocs);
    /* Of `idle`: free bytes in caches, UINT64_MAX: unknown; a trim; one block as large as the
     * memory, freed again, false: it failed.  All NULL: has no caches that it speaks of. */
    uint64_t (*cached)(void);
    void (*trim)(void);
    bool (*need_all)(void);
} bench_source;

/* false and a text when it cannot (allocators.c). */
bool bench_source_open(const char *allocator, bench_source *source, char *why, size_t cap);

int bench_worker(const char *allocator);

#endif
