/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Seconds since some moment in the past; for everyone here. */
#include "idw.h"

#include <time.h>

double idw_now_s(void)
{
    struct timespec t;

    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0)
        return 0.0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
