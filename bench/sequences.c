/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The list of workloads, and what they draw beforehand: sizes and slots.  Called by engine.c,
 * synthetic.c and the loops. */
#include "workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const bench_workload workloads[] = {
    {"hot-64", "hot pair 64 B", BENCH_PAIRS, BENCH_FIXED, 64, 64, 1, 0, NULL},
    {"hot-1k", "hot pair 1 KiB", BENCH_PAIRS, BENCH_FIXED, 1024, 1024, 1, 0, NULL},
    {"hot-64k", "hot pair 64 KiB", BENCH_PAIRS, BENCH_FIXED, 65536, 65536, 1, 0, NULL},
    {"hot-1m", "hot pair 1 MiB", BENCH_PAIRS, BENCH_FIXED, 1048576, 1048576, 1, 0, NULL},
    {"batch", "batch of 400 x 64 B", BENCH_BATCHES, BENCH_FIXED, 64, 64, 400, 0, NULL},
    {"glibc-simple", "glibc-simple", BENCH_BATCH_MIX, BENCH_FIXED, 16, 64, 1600, 0, NULL},
    {"glibc-thread", "glibc-thread mix", BENCH_REPLACE, BENCH_INVERSE_SQUARE, 4, 32768, 1024, 0,
     NULL},
    {"larson", "larson, hand-over", BENCH_LARSON, BENCH_UNIFORM, 8, 1000, 5000, 0, NULL},
    {"xmalloc-1024", "producer -> consumer, 1024", BENCH_XMALLOC, BENCH_FIXED, 64, 64, 1024, 0,
     NULL},
    {"xmalloc-4096", "producer -> consumer, 4096", BENCH_XMALLOC, BENCH_FIXED, 64, 64, 4096, 0,
     NULL},
    {"mstress", "mstress", BENCH_MSTRESS, BENCH_FIXED, 8, 128, 5000, 0, NULL},
    {"rptest", "rptest", BENCH_HAND_ON, BENCH_LINEAR_FALLOFF, 8, 16000, 1000, 0, NULL},
    {"log-uniform", "log-uniform 256 B..16 MiB", BENCH_REPLACE, BENCH_LOG_UNIFORM, 256, 16777216,
     256, 0, NULL},
    {"glibc-thread-x64", "glibc-thread mix x64", BENCH_REPLACE, BENCH_INVERSE_SQUARE, 4, 32768,
     1024, 64, NULL},
    {"larson-x64", "larson x64", BENCH_LARSON, BENCH_UNIFORM, 8, 1000, 5000, 64, NULL},
    {"mstress-x64", "mstress x64", BENCH_MSTRESS, BENCH_FIXED, 8, 128, 5000, 64, NULL},
    {"rptest-x64", "rptest x64", BENCH_HAND_ON, BENCH_LINEAR_FALLOFF, 8, 16000, 1000, 64, NULL},
    {"rmm-1m", "RMM random, 10 000 to 1 MiB", BENCH_TRACE, BENCH_FIXED, 0, 0, 0, 0,
     bench_make_rmm_1m},
    {"rmm-64m", "RMM random, 1000 to 64 MiB", BENCH_TRACE, BENCH_FIXED, 0, 0, 0, 0,
     bench_make_rmm_64m},
    {"dl-fixed", "DL step, fixed", BENCH_TRACE, BENCH_FIXED, 0, 0, 0, 0, bench_make_dl_fixed},
    {"dl-variable", "DL step, variable", BENCH_TRACE, BENCH_FIXED, 0, 0, 0, 0,
     bench_make_dl_variable},
    {"dl-flash", "DL step, flash variable", BENCH_TRACE, BENCH_FIXED, 0, 0, 0, 0,
     bench_make_dl_flash},
    {"amr", "AMR step", BENCH_TRACE, BENCH_FIXED, 0, 0, 0, 0, bench_make_amr},
    {"umf-4k", "UMF ubench, 4 KiB", BENCH_TOGGLE, BENCH_FIXED, 4096, 4096, 10000, 0, NULL},
    {"umf-mixed", "UMF ubench, 8..4096 B", BENCH_TOGGLE, BENCH_BY_8, 8, 4096, 10000, 0, NULL},
    {"umf-peak", "UMF ubench, peak", BENCH_TRACE, BENCH_FIXED, 0, 0, 0, 0, bench_make_umf_peak},
    {"query", "pointer type, 2000 live", BENCH_QUERY, BENCH_FIXED, 256, 256, 2000, 0, NULL},
    {"stats", "usm_pool_get_stats", BENCH_STATS, BENCH_FIXED, 64, 64, 64, 0, NULL},
};

const bench_workload *bench_workload_find(const char *name)
{
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++)
        if (strcmp(workloads[i].name, name) == 0)
            return &workloads[i];
    return NULL;
}

/* splitmix64 */
uint64_t bench_random(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double bench_random_unit(uint64_t *seed)
{
    return (double)(bench_random(seed) >> 11) * 0x1p-53;
}

static double unscaled_size(const bench_workload *w, double unit)
{
    double least = (double)w->least, most = (double)w->most;

    switch (w->sizes) {
    case BENCH_UNIFORM:
        return least + unit * (most - least + 1);
    case BENCH_BY_8:
        return 8 * floor((least + unit * (most - least + 8)) / 8);
    case BENCH_INVERSE_SQUARE:
        return 1 / (unit * (1 / most - 1 / least) + 1 / least);
    case BENCH_LINEAR_FALLOFF:
        return least + (most - least) * (1 - sqrt(1 - unit));
    case BENCH_LOG_UNIFORM:
        return least * exp2(unit * log2(most / least));
    case BENCH_FIXED:
        break;
    }
    return least;
}

size_t bench_random_size(const bench_workload *w, uint64_t *seed)
{
    return (size_t)unscaled_size(w, bench_random_unit(seed)) * (w->scale ? w->scale : 1);
}

bench_op *bench_sequence(const bench_workload *w, uint64_t seed)
{
    bench_op *ops = malloc(BENCH_SEQUENCE * sizeof *ops);

    for (size_t i = 0; ops && i < BENCH_SEQUENCE; i++) {
        ops[i].slot = (uint32_t)((bench_random(&seed) >> 16) % w->slots);
        ops[i].size = (uint32_t)bench_random_size(w, &seed);
    }
    return ops;
}
