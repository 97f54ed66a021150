/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The computation: the kernel as a C loop for devices that run C (the host), as OpenCL C and SPIR-V
 * made of logistic.cl for the others, and what it should give. */
#include "pipeline.h"

#include "logistic_kernels.h" /* made of logistic.cl by usm_add_kernels() */

#define STRIP 64 /* floats that are worked on side by side */

static void strip(const float *in, float *out, size_t count, int steps)
{
    float x[STRIP];

    for (size_t i = 0; i < count; i++)
        x[i] = in[i];
    for (int k = 0; k < steps; k++)
        for (size_t i = 0; i < count; i++)
            x[i] = 3.75f * x[i] * (1.0f - x[i]);
    for (size_t i = 0; i < count; i++)
        out[i] = x[i];
}

void kernel_in_plain_c(const float *in, float *out, size_t count, int steps)
{
    for (size_t i = 0; i < count; i += STRIP)
        strip(in + i, out + i, count - i < STRIP ? count - i : STRIP, steps);
}

static void logistic_part(const usm_range *part, void *const *args)
{
    const float *in  = *(const float *const *)args[0];
    float       *out = *(float *const *)args[1];
    size_t       n   = part->end[0] - part->begin[0];

    kernel_in_plain_c(in + part->begin[0], out + part->begin[0], n, *(const int *)args[2]);
}

static const usm_arg_kind kinds[] = {USM_ARG_POINTER, USM_ARG_POINTER, USM_ARG_VALUE};

static const usm_native_kernel natives[] = {{"logistic", logistic_part, 3, kinds}};

usm_status kernel_create(usm_kernel **kernel)
{
    const usm_image  images[] = {{USM_IMAGE_BUNDLE, logistic_kernels, logistic_kernels_size},
                                 {USM_IMAGE_NATIVE, natives, sizeof natives}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;
    usm_program     *program  = NULL;
    usm_status       status;

    desc.nimages = sizeof images / sizeof *images;
    desc.images  = images;
    status       = usm_program_create(usm_default_context(), &desc, &program);
    if (status == USM_OK)
        status = usm_kernel_create(program, "logistic", kernel);
    usm_program_destroy(program);
    return status;
}

usm_status kernel_launch(usm_kernel *kernel, usm_queue *q, const float *in, float *out,
                         const options *o)
{
    usm_launch l      = USM_LAUNCH_INIT;
    usm_arg    args[] = {USM_ARG_PTR(in), USM_ARG_PTR(out), USM_ARG_VAL(o->steps)};

    l.kernel    = kernel;
    l.global[0] = o->count;
    l.args      = args;
    l.nargs     = 3;
    return usm_queue_submit(q, &l, 0, NULL, NULL);
}
