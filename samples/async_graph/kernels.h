/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The four kernels of the graph, and how one is queued. */
#ifndef ASYNC_GRAPH_KERNELS_H
#define ASYNC_GRAPH_KERNELS_H

#include <usm/usm.h>

#define TAPS  9           /* of a blur                                        */
#define REACH (TAPS / 2)  /* how far it looks                                 */
#define HALO  (2 * REACH) /* what a tile needs around it: REACH pixels of half the resolution */

typedef enum kernel_name { ROWS, COLUMNS, SHRINK, COMBINE, KERNELS } kernel_name;

typedef struct kernels {
    usm_kernel *of[KERNELS];
} kernels;

/* For the default device.  false on failure: usm_last_error() tells why. */
bool kernels_create(kernels *k);
void kernels_destroy(kernels *k);

/* A kernel over the w x h pixels of its result. */
typedef struct step {
    kernel_name    name;
    int            w, h;
    const usm_arg *args;
    size_t         nargs;
} step;

/* Queues it. */
usm_status launch(const kernels *k, usm_queue *q, step s);

#endif
