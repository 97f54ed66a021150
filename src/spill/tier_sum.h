/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* XXH3 (Y. Collet) for sectors, compiled once for each instruction set.  tier_sum.c chooses between
 * them. */
#ifndef USM_SPILL_TIER_SUM_H
#define USM_SPILL_TIER_SUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t usm__xxh3(const void *data, size_t size, uint64_t seed);
uint64_t usm__xxh3_avx2(const void *data, size_t size, uint64_t seed); /* x86-64 with AVX2 */

#endif
