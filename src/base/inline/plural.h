/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The form of a word after a number in a message: "1 block", "2 blocks". */
#ifndef USM_BASE_INLINE_PLURAL_H
#define USM_BASE_INLINE_PLURAL_H

#include <stdint.h>

static inline const char *usm__plural(uint64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

#endif
