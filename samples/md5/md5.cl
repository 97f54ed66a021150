/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which text has this MD5 digest?  The kernel for devices that run OpenCL C or SPIR-V; native.c is
 * the same in C, text.h tells how texts are numbered.
 *
 * Work-item i tries strip from / 26 + i: the 26 texts that begin alike and end in a, b, ... z.  Their
 * messages differ in one byte, so what is common is made once, and the letters are the lanes of
 * vectors.  `found` is the lowest i that has a hit, whichever work-item is the first to see one; the
 * host looks up which of the 26 it is.  Before, md5_search's is UINT_MAX, and md5_first's an int64 of
 * -1, for USM_MERGE_FIRST: two words, because not every device has atomics of 64 bits. */
#include "md5_steps.h"

#define LETTERS 26
#define LANES   8

struct request {
    uchar digest[16];
    long  from, to;
};

/* The first 16 bytes of the message: the letters, the last one an `a`, and the bit behind them.
 * Times a letter's number, `unit` is what is added to make the last one that. */
struct strip {
    uint4 words, unit;
    uint  bits;
};

static inline struct strip strip_of(ulong number)
{
    ulong        low = 0x8000u | 'a', high = 0, one;
    uint         length = 1;
    struct strip strip;

    for (ulong left = number, rest; left > 0; left = rest) {
        rest = (left - 1) / LETTERS;
        high = high << 8 | low >> 56;
        low  = low << 8 | ('a' + (left - 1 - rest * LETTERS));
        length++;
    }
    one         = 1ul << 8 * ((length - 1) % 8);
    strip.words = (uint4)((uint)low, (uint)(low >> 32), (uint)high, (uint)(high >> 32));
    strip.unit  = length <= 8 ? (uint4)((uint)one, (uint)(one >> 32), 0, 0)
                              : (uint4)(0, 0, (uint)one, (uint)(one >> 32));
    strip.bits  = 8 * length;
    return strip;
}

/* -1 in the lanes whose letter gives the digest. */
static inline int8 matches(const struct strip *strip, uint8 letter, uint4 digest)
{
    uint8 a = MD5_A, b = MD5_B, c = MD5_C, d = MD5_D;
    uint8 words[16] = {strip->words.x + strip->unit.x * letter,
                       strip->words.y + strip->unit.y * letter,
                       strip->words.z + strip->unit.z * letter,
                       strip->words.w + strip->unit.w * letter};

    words[14] = strip->bits;
#define STEP(f, a, b, c, d, word, shift, constant)                                                 \
    a = b + rotate(a + f(b, c, d) + words[word] + constant, (uint8)(shift));
    MD5_STEPS(STEP)
    return (a + MD5_A == digest.x) & (b + MD5_B == digest.y) & (c + MD5_C == digest.z) &
           (d + MD5_D == digest.w);
}

static inline bool has_hit(__global const struct request *request, uint item)
{
    const ulong        number = (ulong)request->from / LETTERS + item, first = number * LETTERS;
    const uint4        digest = vload4(0, (__global const uint *)request->digest);
    const struct strip strip = strip_of(number);

    for (uint begin = 0; begin < LETTERS; begin += LANES) {
        const uint8 letter = begin + (uint8)(0, 1, 2, 3, 4, 5, 6, 7);
        int8        hit    = matches(&strip, letter, digest);

        if (any(hit)) {
            const long8 text = convert_long8(letter) + (long)first;

            hit &= convert_int8((text >= request->from) & (text < request->to));
            if (any(hit & convert_int8(letter < LETTERS)))
                return true;
        }
    }
    return false;
}

__kernel void md5_search(__global const struct request *request, __global volatile uint *found)
{
    const uint item = (uint)get_global_id(0);

    if (*found >= item && has_hit(request, item))
        atomic_min(found, item);
}

__kernel void md5_first(__global const struct request *request, __global volatile uint *found)
{
    const uint item = (uint)get_global_id(0);

    if (found[0] >= item && has_hit(request, item)) {
        atomic_min(&found[0], item);
        found[1] = 0;
    }
}
