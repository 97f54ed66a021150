/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What is told: medians, bandwidth, the ratio to MPI, and which way the size would choose. */
#include "gradients.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t now_ns(void)
{
    struct timespec t;

    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static double median_ns(times *t, way how)
{
    int middle = t->n[how] / 2;

    if (t->n[how] == 0)
        return 0.0;
    qsort(t->ns[how], (size_t)t->n[how], sizeof t->ns[how][0], compare);
    return (double)t->ns[how][middle];
}

void report_head(const options *o, int n)
{
    printf("%d workers, the median of %d rounds%s\n\n", n, o->rounds,
           o->other ? ", by turns with MPI_Allreduce" : "");
    printf("%10s  %-14s %10s %12s", "gradients", "way", "time", "bandwidth");
    printf(o->other ? "  beside MPI\n" : "\n");
}

void report_size(const options *o, size_t size, int n, times *t)
{
    static const char *const names[WAYS] = {"star", "all-to-all", "ring", "MPI_Allreduce"};
    double                   other       = median_ns(t, OTHER);
    bool                     is_large    = size >= 1 << 20;

    for (way how = STAR; how < WAYS; how++) {
        double ns = median_ns(t, how);

        if (t->n[how] == 0)
            continue;
        printf("%6.4g %s  %-14s %7.3f ms %8.0f MiB/s",
               (double)size / (is_large ? 1048576.0 : 1024.0), is_large ? "MiB" : "KiB", names[how],
               ns / 1e6, (double)size / 1048576.0 / ns * 1e9);
        if (o->other && how != OTHER)
            printf("  %9.2f x", other / ns);
        puts(how == sum_choose(size, n) ? "  <- chosen for this size" : "");
    }
}
