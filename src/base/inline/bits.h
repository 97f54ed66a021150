/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Arithmetic on sizes and powers of two.  Modules may include this header. */
#ifndef USM_BASE_BITS_H
#define USM_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool usm_is_pow2(size_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

/* align is a power of two; false if the result does not fit. */
static inline bool usm_align_up(size_t n, size_t align, size_t *out)
{
    return !__builtin_add_overflow(n, align - 1, out) && ((*out &= ~(align - 1)), true);
}

static inline uintptr_t usm_align_up_ptr(uintptr_t p, size_t align)
{
    return (p + align - 1) & ~(uintptr_t)(align - 1);
}

static inline bool usm_is_aligned(const void *p, size_t align)
{
    return ((uintptr_t)p & (align - 1)) == 0;
}

static inline size_t usm_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t usm_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif
