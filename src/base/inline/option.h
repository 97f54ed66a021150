/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The texts behind "transport:" in USM_SPILL, which modules parse themselves: words, and sizes such
 * as 10G.  The core's own settings are read by base/text.c. */
#ifndef USM_BASE_OPTION_H
#define USM_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline bool usm__option_is(const char *text, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(text, word, n) == 0;
}

/* Reads a size such as 10G; false: not a size. */
static inline bool usm__option_size(const char *text, size_t n, uint64_t *size)
{
    static const char units[] = "KMGT";
    uint64_t          value   = 0;
    size_t            digits  = 0;
    const char       *unit;

    for (; digits < n && text[digits] >= '0' && text[digits] <= '9'; digits++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[digits] - '0'), &value))
            return false;
    if (digits == 0 || n - digits > 1)
        return false;
    if (n > digits) {
        unit = memchr(units, text[digits] & ~0x20, sizeof(units) - 1);
        if (!unit ||
            __builtin_mul_overflow(value, UINT64_C(1) << (10 * (unit - units + 1)), &value))
            return false;
    }
    *size = value;
    return true;
}

#endif
