/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* tier_sum.c's hash, compiled for AVX2; called only where the processor has it. */
#include "spill/tier_sum.h"

#include <immintrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t usm__xxh3_avx2(const void *data, size_t size, uint64_t seed)
{
    uint64_t hash = XXH3_64bits_withSeed(data, size, seed);

    /* xxhash.h changes the optimisation level by a pragma, and gcc 12 then leaves this out: every
     * SSE instruction of the thread, the program's too, was up to 15 times slower afterwards. */
    _mm256_zeroupper();
    return hash;
}
