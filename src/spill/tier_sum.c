/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The checksum of a sector.  It is computed for every sector that is written or read: 20 GB/s and
 * core from a cache, 6 GB/s from memory; twice that with AVX2, which is compiled in a file of its
 * own. */
#include "spill/tier_sum.h"

#include "base/inline/tsan.h"
#include "spill/tier.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t usm__xxh3(const void *data, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, size, seed);
}

/* Both variants compute the same sum: a checkpointed program may continue on another processor. */
static uint64_t hash(const void *data, size_t size, uint64_t seed)
{
#if defined(__x86_64__) && defined(USM_XXH_AVX2)
    if (__builtin_cpu_supports("avx2"))
        return usm__xxh3_avx2(data, size, seed);
#endif
    return usm__xxh3(data, size, seed);
}

uint64_t usm__sector_hash(const void *data, size_t size, uint64_t key, uint32_t sector)
{
    /* An odd factor: different keys and sectors give different seeds. */
    uint64_t seed = (key << 8 | sector) * UINT64_C(0x9e3779b97f4a7c15), sum;

    USM_TSAN_IGNORE_READS_BEGIN();
    sum = hash(data, size, seed);
    USM_TSAN_IGNORE_READS_END();
    return sum;
}

uint32_t usm__sector_sum(const void *data, size_t size, uint64_t key, uint32_t sector)
{
    return usm__sum_of_hash(usm__sector_hash(data, size, key, sector));
}
