/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The five kernels of a multigrid cycle, and how one is launched over a grid. */
#ifndef POOL_REUSE_KERNELS_H
#define POOL_REUSE_KERNELS_H

#include <usm/usm.h>

#include <stdbool.h>

typedef enum kernel_name { START, SMOOTH, RESIDUAL, COARSEN, CORRECT, KERNELS } kernel_name;

typedef struct kernels {
    usm_kernel *of[KERNELS];
} kernels;

/* For the default device.  false on failure: usm_last_error() tells why. */
bool kernels_create(kernels *k);
void kernels_destroy(kernels *k);

/* Launches a kernel over the points and the rim of a grid of n x n on the default queue. */
usm_status launch(const kernels *k, kernel_name name, int n, const usm_arg *args, size_t nargs);

#endif
