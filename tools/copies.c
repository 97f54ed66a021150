/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Measures copies between host memory and a device: copies.h. */
#include "copies.h"

#include "base/inline/clock.h"

#include <usm/command.h>
#include <usm/memory.h>

#include <stdlib.h>

enum { SMALL = 64, LARGE = 32 << 20, ROUNDS = 15 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of copies there and back, in seconds for one way; negative: a copy has failed. */
static double measure(usm_queue *q, void *host, void *device, size_t size)
{
    double seconds[ROUNDS];

    for (int i = -1; i < ROUNDS; i++) { /* the first touches memory */
        uint64_t begin = usm_clock_ns(CLOCK_MONOTONIC);

        if (usm_memcpy(q, device, host, size, 0, NULL, NULL) != USM_OK ||
            usm_queue_wait(q) != USM_OK ||
            usm_memcpy(q, host, device, size, 0, NULL, NULL) != USM_OK ||
            usm_queue_wait(q) != USM_OK)
            return -1;
        if (i >= 0)
            seconds[i] = (double)(usm_clock_ns(CLOCK_MONOTONIC) - begin) / 2e9;
    }
    qsort(seconds, ROUNDS, sizeof *seconds, by_size);
    return seconds[ROUNDS / 2];
}

bool tool_measure_copies(const usm__member *m, tool_copies *found)
{
    usm_queue *q     = NULL;
    void      *host  = calloc(1, LARGE), *device;
    double     small = -1, large = -1;

    if (host && usm_queue_create(m->context, m->device, NULL, &q) == USM_OK) {
        device = usm_aligned_alloc_device(64, LARGE, q);
        if (device) {
            small = measure(q, host, device, SMALL);
            large = measure(q, host, device, LARGE);
        }
        usm_free(device);
        usm_queue_destroy(q);
    }
    free(host);
    if (small < 0 || large < 0)
        return false;
    *found = (tool_copies){small * 1e6, (LARGE >> 20) / (large > small ? large - small : large)};
    return true;
}
