/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Using host memory as a program would: a byte of each page and the last.  For loops_*.c. */
#ifndef USM_BENCH_TOUCH_H
#define USM_BENCH_TOUCH_H

#include <stddef.h>

static inline void bench_touch(void *p, size_t size)
{
    volatile char *bytes = p;

    for (size_t i = 0; i < size; i += 4096)
        bytes[i] = 1;
    if (size > 0)
        bytes[size - 1] = 1;
}

#endif
