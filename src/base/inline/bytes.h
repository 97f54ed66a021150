/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Numbers in files and messages: lowest byte first (little-endian), on every machine.  Modules may
 * include this header. */
#ifndef USM_BASE_BYTES_H
#define USM_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Writes the lowest `size` bytes of `number`, 8 at most.  With a constant size this is one store.
 * */
static inline void usm_put_le(unsigned char *at, uint64_t number, size_t size)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    number = __builtin_bswap64(number);
#endif
    memcpy(at, &number, size);
}

/* The number in the `size` bytes at `at`, 8 at most. */
static inline uint64_t usm_get_le(const unsigned char *at, size_t size)
{
    uint64_t number = 0;

    memcpy(&number, at, size);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    number = __builtin_bswap64(number);
#endif
    return number;
}

#endif
