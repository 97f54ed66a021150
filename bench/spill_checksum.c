/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How long the checksum of a block takes.  Checksums cannot be switched off, so their share of a
 * transfer is found by timing the hash alone, over memory that no cache holds.  Called by
 * spill_worker.c. */
#include "spill_cost.h"

#ifdef USM_BENCH_XXHASH
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK  ((size_t)1 << 20)
#define BLOCKS 256

static double cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double hash_all(const char *data)
{
    static volatile uint64_t sink;
    double                   start = cpu_ns();

    for (size_t i = 0; i < BLOCKS; i++)
        sink = sink ^ XXH3_64bits_withSeed(data + i * BLOCK, BLOCK, i);
    return (cpu_ns() - start) / BLOCKS;
}

double spill_cost_checksum(void)
{
    char  *data = malloc(BLOCK * BLOCKS);
    double best = 0;

    if (!data)
        return 0;
    memset(data, 1, BLOCK * BLOCKS);
    for (size_t i = 0; i < 5; i++) {
        double ns = hash_all(data);

        best = best == 0 || ns < best ? ns : best;
    }
    free(data);
    return best;
}
#else
double spill_cost_checksum(void)
{
    return 0;
}
#endif
