/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Size classes of cached blocks: multiples of 64 up to 1 KiB, then eight for each doubling, so that
 * at most an eighth of a block is wasted.  They are computed, not looked up:
 *
 *     x = size - 1,  s = max(6, floor(log2 x) - 3)        class = (x >> s) + 8 (s - 6)
 *
 *     size     1..64  65..128  ..  961..1024 | 1025..1152  ..  1921..2048 | 2049..2304 ..
 *     class        0        1            15  |        16            23    |        24
 *
 * The size of a class is a multiple of every power of two up to its step.  A size that was rounded
 * up to a multiple of an alignment therefore has a class whose size is such a multiple too.
 * Modules may include this header. */
#ifndef USM_BASE_CLASSES_H
#define USM_BASE_CLASSES_H

#include <stddef.h>

/* The number of classes: blocks up to 1 MiB. */
#define USM_BINS 96

/* size 0 wraps around to a class beyond all others. */
static inline unsigned usm_class_of(size_t size)
{
    size_t   x = size - 1;
    unsigned s;

    /* s = 6: the most frequent case, with a third of the instructions */
    if (__builtin_expect(x < 1024, 1))
        return (unsigned)(x >> 6);
    s = 60 - (unsigned)__builtin_clzl(x);
    return (unsigned)(x >> s) + (s - 6) * 8;
}

/* The size of the blocks of class k. */
static inline size_t usm_class_size(unsigned k)
{
    unsigned s = k < 16 ? 6 : k / 8 + 5;

    return (size_t)(k - (s - 6) * 8 + 1) << s;
}

#endif
