/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The native module of test_module.c, which reads this file's shared object. */
#include "soft_kernel.h"

extern int                                 calls;
__attribute__((visibility("default"))) int calls; /* of add, for zeModuleGetGlobalPointer */

static void add(const ze_soft_range *r, void *const *args)
{
    int *a = *(int **)args[0], n = *(int *)args[1];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        a[i] += n;
    calls++;
}

/* Sums a work-group through its local memory. */
static void sum(const ze_soft_range *r, void *const *args)
{
    const int *in  = *(const int **)args[0];
    int       *out = *(int **)args[1], *scratch = args[2];

    scratch[0] = 0;
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        scratch[0] += in[i];
    out[r->begin[0] / r->local[0]] = scratch[0];
}

/* The range as it was given. */
static void ranges(const ze_soft_range *r, void *const *args)
{
    size_t *out = *(size_t **)args[0];

    for (int d = 0; d < 3; d++) {
        out[d]      = r->offset[d];
        out[3 + d]  = r->global[d];
        out[6 + d]  = r->local[d];
        out[9 + d]  = r->begin[d];
        out[12 + d] = r->end[d];
    }
}

static void eights(const ze_soft_range *r, void *const *args)
{
    (void)r;
    (void)args;
}

static const uint32_t add_sizes[] = {ZE_SOFT_ARG_POINTER, sizeof(int)};
static const uint32_t sum_sizes[] = {ZE_SOFT_ARG_POINTER, ZE_SOFT_ARG_POINTER, ZE_SOFT_ARG_LOCAL};
static const uint32_t ranges_sizes[] = {ZE_SOFT_ARG_POINTER};

static const ze_soft_kernel kernels[] = {
    {"add", 2, add_sizes, add, {0, 0, 0}},
    {"sum", 3, sum_sizes, sum, {0, 0, 0}},
    {"ranges", 1, ranges_sizes, ranges, {0, 0, 0}},
    {"eights", 0, NULL, eights, {8, 1, 1}},
};
ZE_SOFT_KERNELS(kernels)
