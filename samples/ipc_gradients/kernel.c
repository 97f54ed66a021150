/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The addition: as a C loop for devices that run C (the host), as OpenCL C and SPIR-V made of
 * add.cl for the others. */
#include "gradients.h"

#include "add_kernels.h" /* made of add.cl by usm_add_kernels() */

#define INPUTS 4    /* of one launch                                               */
#define STRIP  1024 /* floats that stay in the cache; `out` may be one of the inputs */

static void add_strip(float *out, void *const *args, int n, size_t first, size_t count)
{
    float x[STRIP];

    for (size_t i = 0; i < count; i++)
        x[i] = (*(const float *const *)args[1])[first + i];
    for (int k = 1; k < n; k++) {
        const float *in = *(const float *const *)args[1 + k];

        for (size_t i = 0; i < count; i++)
            x[i] += in[first + i];
    }
    for (size_t i = 0; i < count; i++)
        out[first + i] = x[i];
}

static void add_part(const usm_range *part, void *const *args)
{
    float *out = *(float *const *)args[0];

    for (size_t i = part->begin[0]; i < part->end[0]; i += STRIP) {
        size_t left = part->end[0] - i;

        add_strip(out, args, *(const int *)args[5], i, left < STRIP ? left : STRIP);
    }
}

#define P USM_ARG_POINTER
static const usm_arg_kind kinds[] = {P, P, P, P, P, USM_ARG_VALUE};

static const usm_native_kernel natives[] = {{"add", add_part, 6, kinds}};

usm_status kernel_create(usm_context *ctx, usm_kernel **kernel)
{
    const usm_image  images[] = {{USM_IMAGE_BUNDLE, add_kernels, add_kernels_size},
                                 {USM_IMAGE_NATIVE, natives, sizeof natives}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;
    usm_program     *program  = NULL;
    usm_status       status;

    desc.nimages = sizeof images / sizeof *images;
    desc.images  = images;
    status       = usm_program_create(ctx ? ctx : usm_default_context(), &desc, &program);
    if (status == USM_OK)
        status = usm_kernel_create(program, "add", kernel);
    usm_program_destroy(program);
    return status;
}

/* At most INPUTS of them. */
static usm_status launch(const group *g, float *out, const float *const *in, int n, size_t count)
{
    usm_launch   l = USM_LAUNCH_INIT;
    const float *b = n > 1 ? in[1] : in[0], *c = n > 2 ? in[2] : in[0];
    const float *d      = n > 3 ? in[3] : in[0];
    usm_arg      args[] = {USM_ARG_PTR(out), USM_ARG_PTR(in[0]), USM_ARG_PTR(b),
                           USM_ARG_PTR(c),   USM_ARG_PTR(d),     USM_ARG_VAL(n)};

    l.kernel    = g->add;
    l.global[0] = count;
    l.args      = args;
    l.nargs     = 6;
    return usm_queue_submit(g->q, &l, 0, NULL, NULL);
}

usm_status kernel_add(const group *g, float *out, const float *const *in, int n, size_t count)
{
    usm_status status = USM_OK;
    int        done   = n < INPUTS ? n : INPUTS;

    if (count == 0)
        return USM_OK;
    status = launch(g, out, in, done, count);
    while (done < n && status == USM_OK) {
        const float *more[INPUTS] = {out};
        int          k            = 1;

        while (k < INPUTS && done < n)
            more[k++] = in[done++];
        status = launch(g, out, more, k, count);
    }
    return status;
}
