/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Numbers in files and messages: lowest byte first (little-endian), on every machine.  Modules may
 * include this header. */
#ifndef USM_BASE_BYTES_H
#define USM_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Writes the lowest `size` bytes of `number`, at most 8. */
static inline void usm_put_le(unsigned char *at, uint64_t number, size_t size)
{
    for (size_t i = 0; i < size; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

/* Reads the number in the `size` bytes at `at`, at most 8. */
static inline uint64_t usm_get_le(const unsigned char *at, size_t size)
{
    uint64_t number = 0;

    for (size_t i = 0; i < size; i++)
        number |= (uint64_t)at[i] << (8 * i);
    return number;
}

#endif
