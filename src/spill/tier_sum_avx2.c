/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The hash of tier_sum.c, compiled for AVX2; called only if the processor supports it. */
#include "spill/tier_sum.h"

#include <immintrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t usm__xxh3_avx2(const void *data, size_t size, uint64_t seed)
{
    uint64_t hash = XXH3_64bits_withSeed(data, size, seed);

    /* xxhash.h changes the optimisation level by a pragma, and gcc 12 then omits this instruction:
     * after that every SSE instruction of the thread, the program's too, was up to 15 times
     * slower. */
    _mm256_zeroupper();
    return hash;
}
