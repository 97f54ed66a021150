/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random traces of other projects' benchmarks: RMM's random_allocations and UMF's peak_alloc.
 * Called by engine.c through the list of workloads. */
#include "workload.h"

#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)

/* The live blocks, in no order. */
typedef struct holding {
    uint64_t *id, *size;
    size_t    n;
    uint64_t  bytes;
} holding;

static bool hold(holding *h, size_t most)
{
    h->n = h->bytes = 0;
    h->id           = malloc(2 * most * sizeof *h->id);
    h->size         = h->id ? h->id + most : NULL;
    return h->id != NULL;
}

static void take(holding *h, bench_trace *t, uint64_t size)
{
    h->id[h->n]     = bench_trace_add(t, size);
    h->size[h->n++] = size;
    h->bytes += size;
}

static void drop_any(holding *h, bench_trace *t, uint64_t *seed)
{
    size_t i = (bench_random(seed) >> 16) % h->n;

    bench_trace_drop(t, h->id[i]);
    h->bytes -= h->size[i];
    h->n--;
    h->id[i]   = h->id[h->n];
    h->size[i] = h->size[h->n];
}

/* Allocates with probability 0.73 while `allocs` are left and usage allows, else frees any, until
 * nothing is left. */
static bool rmm(bench_trace *t, uint64_t seed, size_t allocs, uint64_t most)
{
    const uint64_t usage = 16000 * MIB;
    holding        h;

    if (!hold(&h, allocs))
        return false;
    while (allocs > 0 || h.n > 0) {
        uint64_t size    = 1 + (bench_random(&seed) >> 16) % most;
        bool     allowed = allocs > 0 && h.bytes + size <= usage;

        if (allowed && (h.n == 0 || bench_random_unit(&seed) < 0.73)) {
            take(&h, t, size);
            allocs--;
        } else {
            drop_any(&h, t, &seed);
        }
    }
    free(h.id);
    return bench_trace_finish(t);
}

bool bench_make_rmm_1m(bench_trace *t, uint64_t seed)
{
    return rmm(t, seed, 10000, MIB);
}

bool bench_make_rmm_64m(bench_trace *t, uint64_t seed)
{
    return rmm(t, seed, 1000, 64 * MIB);
}

/* The target of live blocks goes up to 10 000 and down again, in 100 000 operations; each goes
 * towards the target or, one in four, the other way. */
bool bench_make_umf_peak(bench_trace *t, uint64_t seed)
{
    const size_t operations = 100000, most = 10000;
    holding      h;

    if (!hold(&h, operations))
        return false;
    for (size_t i = 0; i < operations; i++) {
        size_t half   = operations / 2;
        size_t target = most * (i < half ? i : operations - i) / half;
        bool   up     = (h.n < target) == ((bench_random(&seed) >> 8) % 4 != 0);

        if (up || h.n == 0)
            take(&h, t, 8 * (1 + (bench_random(&seed) >> 8) % 512));
        else
            drop_any(&h, t, &seed);
    }
    free(h.id);
    return bench_trace_finish(t);
}
