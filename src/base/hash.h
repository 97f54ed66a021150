/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* FNV-1a, 128 bits (Fowler, Noll, Vo; draft-eastlake-fnv): names of cache files.
 * Not for use against an adversary. */
#ifndef USM_BASE_HASH_H
#define USM_BASE_HASH_H

#include "base/inline/bytes.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct usm__hash {
    uint64_t hi, lo;
} usm__hash;

#define USM__HASH_INIT                                                                             \
    {                                                                                              \
        0x6c62272e07bb0142ull, 0x62b821756295c58dull                                               \
    }

static inline void usm__hash_add(usm__hash *h, const void *data, size_t size)
{
    __extension__ typedef unsigned __int128 u128;
    const u128                              prime = ((u128)1 << 88) | 0x13b;
    u128                                    x     = ((u128)h->hi << 64) | h->lo;
    const unsigned char                    *p     = data;

    for (size_t i = 0; i < size; i++)
        x = (x ^ p[i]) * prime;
    h->hi = (uint64_t)(x >> 64);
    h->lo = (uint64_t)x;
}

/* The lowest byte first, so that machines agree. */
static inline void usm__hash_number(usm__hash *h, uint64_t n)
{
    unsigned char bytes[8];

    usm_put_le(bytes, n, sizeof bytes);
    usm__hash_add(h, bytes, sizeof bytes);
}

/* With the final 0, so that two texts are not one. */
static inline void usm__hash_text(usm__hash *h, const char *text)
{
    usm__hash_add(h, text, strlen(text) + 1);
}

#endif
