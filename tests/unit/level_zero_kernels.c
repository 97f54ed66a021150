/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of backend_kernels.cl as a native module of the software driver, for
 * test_level_zero_kernels.c, which reads this file's shared object. */
#include "ze_soft/soft_kernel.h"

static void add(const ze_soft_range *r, void *const *args)
{
    int *a = *(int **)args[0], n = *(int *)args[1];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        a[i] += n;
}

static void sum(const ze_soft_range *r, void *const *args)
{
    const int *in  = *(const int **)args[0];
    int       *out = *(int **)args[1], *scratch = args[2];

    scratch[0] = 0;
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        scratch[0] += in[i];
    out[(r->begin[0] - r->offset[0]) / r->local[0]] = scratch[0];
}

static void ids(const ze_soft_range *r, void *const *args)
{
    int       *a = *(int **)args[0];
    const int *c = *(const int **)args[1];

    for (size_t z = r->begin[2]; z < r->end[2]; z++)
        for (size_t y = r->begin[1]; y < r->end[1]; y++)
            for (size_t x = r->begin[0]; x < r->end[0]; x++)
                a[((z - r->offset[2]) * r->global[1] + y - r->offset[1]) * r->global[0] + x -
                  r->offset[0]] = (int)(x * 10000 + y * 100 + z) + (c ? c[0] : 0);
}

typedef struct box {
    int *p;
    int  n;
} box;

static void unbox(const ze_soft_range *r, void *const *args)
{
    const box *b = *(const box **)args[0];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        b->p[i] = b->n;
}

static void odd(const ze_soft_range *r, void *const *args)
{
    unsigned char       *a = *(unsigned char **)args[0];
    const unsigned char *t = args[1], *c = args[2], *s = args[3], *h = args[4];

    (void)r;
    for (int i = 0; i < 3; i++)
        a[i] = t[i];
    a[3] = c[0];
    for (int i = 0; i < 7; i++)
        a[4 + i] = s[i];
    a[11] = h[0];
    a[12] = h[1];
}

static void eights(const ze_soft_range *r, void *const *args)
{
    int *a = *(int **)args[0];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        a[i] = (int)i;
}

static void spin(const ze_soft_range *r, void *const *args)
{
    int         *a = *(int **)args[0], n = *(int *)args[1];
    unsigned int x = 1;

    for (int i = 0; i < n; i++)
        x = x * 1664525u + 1013904223u;
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        a[i] = (int)(x | 1);
}

static const ze_soft_kernel kernels[] = {
    {"add", 2, (const uint32_t[]){ZE_SOFT_ARG_POINTER, sizeof(int)}, add, {0, 0, 0}},
    {"sum",
     3,
     (const uint32_t[]){ZE_SOFT_ARG_POINTER, ZE_SOFT_ARG_POINTER, ZE_SOFT_ARG_LOCAL},
     sum,
     {0, 0, 0}},
    {"ids", 2, (const uint32_t[]){ZE_SOFT_ARG_POINTER, ZE_SOFT_ARG_POINTER}, ids, {0, 0, 0}},
    {"unbox", 1, (const uint32_t[]){ZE_SOFT_ARG_POINTER}, unbox, {0, 0, 0}},
    {"odd", 5, (const uint32_t[]){ZE_SOFT_ARG_POINTER, 3, 1, 7, 2}, odd, {0, 0, 0}},
    {"eights", 1, (const uint32_t[]){ZE_SOFT_ARG_POINTER}, eights, {8, 1, 1}},
    {"spin", 2, (const uint32_t[]){ZE_SOFT_ARG_POINTER, sizeof(int)}, spin, {0, 0, 0}},
};
ZE_SOFT_KERNELS(kernels)
