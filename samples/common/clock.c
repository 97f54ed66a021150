/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The monotonic clock (clock.h). */
#include "clock.h"

#include <time.h>

double clock_now_s(void)
{
    struct timespec t;

    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0)
        return 0.0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
