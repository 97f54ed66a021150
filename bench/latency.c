/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How long single calls take: an allocator that times another by the time stamp counter and counts
 * each call in a histogram of 16 steps a doubling.  Not for averages: the histogram itself
 * disturbs. Called by worker.c. */
#include "bench.h"
#include "workload.h"

#define STEPS   16u
#define BUCKETS (64u * STEPS)

#if defined            __x86_64__
static inline uint64_t ticks(void)
{
    unsigned aux;

    return __builtin_ia32_rdtscp(&aux);
}
#else
static inline uint64_t ticks(void)
{
    return bench_now_ns();
}
#endif

static struct {
    const bench_allocator *inner;
    _Atomic uint64_t       calls[BUCKETS];
    double                 ns_per_tick;
    uint64_t               empty; /* ticks of a timed call that does nothing */
} latency;

static unsigned bucket_of(uint64_t t)
{
    unsigned doubling = t < STEPS ? 0 : 63u - (unsigned)__builtin_clzll(t) - 3u;

    return t < STEPS ? (unsigned)t : doubling * STEPS + (unsigned)(t >> (doubling - 1)) - STEPS;
}

/* The least number of ticks that bucket_of() puts there. */
static double ticks_of(unsigned bucket)
{
    unsigned doubling = bucket / STEPS;

    return doubling == 0 ? bucket
                         : (double)(bucket % STEPS + STEPS) * (double)(1ull << (doubling - 1));
}

static void count(uint64_t began)
{
    uint64_t took = ticks() - began;

    took = took > latency.empty ? took - latency.empty : 0;
    atomic_fetch_add_explicit(&latency.calls[bucket_of(took)], 1, memory_order_relaxed);
}

static void *timed_malloc(void *self, size_t size)
{
    const bench_allocator *inner = self;
    uint64_t               began = ticks();
    void                  *p     = inner->malloc(inner->self, size);

    count(began);
    return p;
}

static void timed_free(void *self, void *p)
{
    const bench_allocator *inner = self;
    uint64_t               began = ticks();

    inner->free(inner->self, p);
    count(began);
}

static void *no_malloc(void *self, size_t size)
{
    (void)size;
    return self;
}

/* Ticks against the clock over 10 ms, and the least time of an empty call. */
static void calibrate(void)
{
    const bench_allocator empty = {.self = &latency, .malloc = no_malloc};
    uint64_t              ns = bench_now_ns(), began = ticks(), least = UINT64_MAX;

    while (bench_now_ns() - ns < 10000000)
        ;
    latency.ns_per_tick = (double)(bench_now_ns() - ns) / (double)(ticks() - began);
    for (int i = 0; i < 10000; i++) {
        uint64_t t = ticks();

        __asm__ volatile("" ::"r"(empty.malloc(empty.self, 1)) : "memory");
        t     = ticks() - t;
        least = t < least ? t : least;
    }
    latency.empty = least;
}

const bench_allocator *bench_latency_over(const bench_allocator *inner)
{
    static bench_allocator timed;

    if (latency.ns_per_tick == 0)
        calibrate();
    timed        = *inner;
    timed.self   = (void *)(uintptr_t)inner;
    timed.malloc = timed_malloc;
    timed.free   = timed_free;
    return &timed;
}

void bench_latency_reset(void)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        atomic_store_explicit(&latency.calls[i], 0, memory_order_relaxed);
}

static double percentile(uint64_t total, double share)
{
    uint64_t seen = 0;

    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += latency.calls[i];
        if ((double)seen >= share * (double)total)
            return ticks_of(i) * latency.ns_per_tick;
    }
    return 0;
}

bool bench_latency_percentiles(double *p50, double *p99)
{
    uint64_t total = 0;

    for (unsigned i = 0; i < BUCKETS; i++)
        total += latency.calls[i];
    if (total == 0)
        return false;
    *p50 = percentile(total, 0.5);
    *p99 = percentile(total, 0.99);
    return true;
}
