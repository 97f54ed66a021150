/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of kernels.cl as native functions over ranges, and images of each type.
 *
 * Called by program.c and the tests that launch something. */
#include "common.h"

#include "conformance_kernels.h"

static void ids_range(const usm_range *r, void *const *args)
{
    int *out = *(int **)args[0];
    int  add = *(const int *)args[1];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        out[i] = (int)i + add;
}

static void ids3_range(const usm_range *r, void *const *args)
{
    int   *out = *(int **)args[0];
    size_t nx = (size_t) * (const int *)args[1], ny = (size_t) * (const int *)args[2];

    for (size_t z = r->begin[2]; z < r->end[2]; z++)
        for (size_t y = r->begin[1]; y < r->end[1]; y++)
            for (size_t x = r->begin[0]; x < r->end[0]; x++)
                out[(z * ny + y) * nx + x] = (int)(x + 100 * y + 10000 * z);
}

static void axpy_range(const usm_range *r, void *const *args)
{
    float       *y = *(float **)args[0];
    const float *x = *(float **)args[1];
    float        a = *(const float *)args[2];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        y[i] += a * x[i];
}

static void sum_groups_range(const usm_range *r, void *const *args)
{
    int       *out     = *(int **)args[0];
    const int *in      = *(int **)args[1];
    int       *scratch = args[2]; /* local memory: the block itself */
    size_t     n       = r->local[0];

    for (size_t g = r->begin[0]; g < r->end[0]; g += n) {
        int sum = 0;
        for (size_t l = 0; l < n; l++)
            scratch[n - 1 - l] = in[g + l];
        for (size_t l = 0; l < n; l++)
            sum += scratch[l];
        out[(g - r->offset[0]) / n] = sum;
    }
}

static void values_range(const usm_range *r, void *const *args)
{
    int *out = *(int **)args[0];

    if (r->begin[0] != 0)
        return;
    out[0] = *(const signed char *)args[1];
    out[1] = *(const short *)args[2];
    out[2] = *(const int *)args[3];
    out[3] = (int)(*(const int64_t *)args[4] >> 32);
    out[4] = (int)*(const float *)args[5];
}

static void is_null_range(const usm_range *r, void *const *args)
{
    if (r->begin[0] == 0)
        (*(int **)args[0])[0] = *(int **)args[1] ? 0 : 1;
}

static void follow_range(const usm_range *r, void *const *args)
{
    int            *out   = *(int **)args[0];
    const uint64_t *table = *(uint64_t **)args[1];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        out[i] = *(const int *)(uintptr_t)table[i];
}

static void count_range(const usm_range *r, void *const *args)
{
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        __atomic_fetch_add(*(int **)args[0], 1, __ATOMIC_RELAXED);
}

#define P USM_ARG_POINTER
#define V USM_ARG_VALUE
static const usm_arg_kind ids_kinds[] = {P, V}, ids3_kinds[] = {P, V, V}, axpy_kinds[] = {P, P, V},
                          sum_kinds[] = {P, P, USM_ARG_LOCAL}, values_kinds[] = {P, V, V, V, V, V},
                          two_kinds[] = {P, P}, count_kinds[] = {P};
static const usm_native_kernel natives[] = {
    {"ids", ids_range, 2, ids_kinds},          {"ids3", ids3_range, 3, ids3_kinds},
    {"axpy", axpy_range, 3, axpy_kinds},       {"sum_groups", sum_groups_range, 3, sum_kinds},
    {"values", values_range, 6, values_kinds}, {"is_null", is_null_range, 2, two_kinds},
    {"follow", follow_range, 2, two_kinds},    {"count", count_range, 1, count_kinds},
};

/* The payload of `type` in the bundle that usm_add_kernels() made: a line "USMK1 <entries>", a line
 * "<type> <bytes>" for each, an empty line, the payloads. */
static usm_image bundled(usm_image_type type, const char *type_name)
{
    const char *at = (const char *)conformance_kernels;
    int         n = 0, used = 0, entries = 0;
    size_t      skip_bytes = 0, size = 0;
    usm_image   image = {type, NULL, 0};

    CHECK(sscanf(at, "USMK1 %d%n", &entries, &used) == 1, "the embedded bundle has no header");
    at += used + 1;
    for (; n < entries; n++) {
        char   name[16];
        size_t bytes;
        CHECK(sscanf(at, "%15s %zu%n", name, &bytes, &used) == 2, "entry %d of the bundle", n);
        at += used + 1;
        if (!strcmp(name, type_name))
            size = bytes;
        else if (!size)
            skip_bytes += bytes;
    }
    if (size) {
        image.data = at + 1 + skip_bytes;
        image.size = size;
    }
    return image;
}

usm_image image_of(usm_image_type type)
{
    usm_image none = {type, NULL, 0};

    switch (type) {
    case USM_IMAGE_OPENCL_C:
        return bundled(type, "opencl_c");
    case USM_IMAGE_SPIRV:
        return bundled(type, "spirv");
    case USM_IMAGE_NATIVE:
        return (usm_image){type, natives, sizeof natives};
    case USM_IMAGE_BUNDLE:
        return (usm_image){type, conformance_kernels, conformance_kernels_size};
    case USM_IMAGE_BINARY:
        break;
    }
    return none;
}

usm_program *program_new(const rig *r)
{
    usm_image        images[] = {image_of(USM_IMAGE_NATIVE), image_of(USM_IMAGE_BUNDLE)};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;
    usm_program     *program  = NULL;

    desc.nimages = 2;
    desc.images  = images;
    CHECK_OK(usm_program_create(r->ctx, &desc, &program));
    return program;
}

usm_kernel *kernel_new(usm_program *program, const char *name)
{
    usm_kernel *kernel = NULL;

    CHECK_OK(usm_kernel_create(program, name, &kernel));
    return kernel;
}
