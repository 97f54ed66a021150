/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Hexadecimal digits, and keys written in them.  Called by all that read USM_SPILL_KEY or
 * USM_JOB_KEY, from the environment or from a file, and by usm-run. */
#ifndef USM_BASE_INLINE_HEX_H
#define USM_BASE_INLINE_HEX_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the longest key; the other length is half of it. */
#define USM__KEY_MAX ((size_t)32)

/* The digit's value, in either case; -1: it is no hexadecimal digit. */
static inline int usm__hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* 32 or 64 hexadecimal digits and nothing else. */
static inline bool usm__hex_is_key(const char *text, size_t n)
{
    bool is_key = n == USM__KEY_MAX || n == 2 * USM__KEY_MAX;

    for (size_t i = 0; is_key && i < n; i++)
        is_key = usm__hex_digit(text[i]) >= 0;
    return is_key;
}

/* Reads a key of at most USM__KEY_MAX bytes, behind which spaces and line ends may follow, as in a
 * file.  Returns its size; 0: the text is no key, and `key` is untouched. */
static inline size_t usm__hex_key(const char *text, size_t n, unsigned char *key)
{
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' '))
        n--;
    if (!usm__hex_is_key(text, n))
        return 0;
    for (size_t i = 0; i < n; i += 2)
        key[i / 2] = (unsigned char)((unsigned)usm__hex_digit(text[i]) << 4 |
                                     (unsigned)usm__hex_digit(text[i + 1]));
    return n / 2;
}

#endif
