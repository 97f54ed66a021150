/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Heat flows through a plate: implicit time steps, each solved by three multigrid cycles whose
 * grids come from a pool and go back to it. */
#ifndef POOL_REUSE_MULTIGRID_H
#define POOL_REUSE_MULTIGRID_H

#include "kernels.h"

#include <stdint.h>

/* Where grids come from, and what that cost so far. */
typedef struct memory {
    usm_pool *pool;
    uint64_t  allocations, ns; /* ns: in usm_pool_malloc() and usm_pool_free() */
} memory;

/* A grid of n x n points with its rim, uninitialized; NULL on failure. */
float *grid_alloc(memory *m, int n);
void   grid_free(memory *m, float *grid); /* no queued work may use it */

uint64_t now_ns(void);
uint64_t cpu_ns(void); /* of all threads of the process */

/* One time step of u, in place. */
usm_status time_step(memory *m, const kernels *k, float *u, int n, float c);

/* u at half the resolution, copied to `out` ((n - 1) / 2 + 2 floats a side): a picture to keep. */
usm_status snapshot(memory *m, const kernels *k, const float *u, int n, float *out);

#endif
