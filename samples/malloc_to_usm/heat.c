/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The step of before.c as a kernel (heat.h): OpenCL C and SPIR-V from heat.cl, and the C loops as
 * they were for devices that run C, such as the host.  Each device takes what it can run. */
#include "heat.h"

#include "board.h"
#include "heat_kernels.h" /* made of heat.cl by usm_add_kernels() */

static void heat_part(const usm_range *part, void *const *args)
{
    const float *now = *(float *const *)args[0], *input = *(float *const *)args[2];
    float       *next = *(float *const *)args[1];

    for (size_t y = part->begin[1]; y < part->end[1]; y++) {
        for (size_t x = part->begin[0]; x < part->end[0]; x++) {
            size_t i = y * PITCH + x;

            next[i] =
                now[i] + input[i] +
                SHARE * (now[i - 1] + now[i + 1] + now[i - PITCH] + now[i + PITCH] - 4.0f * now[i]);
        }
    }
}

static const usm_arg_kind kinds[] = {USM_ARG_POINTER, USM_ARG_POINTER, USM_ARG_POINTER};

static const usm_native_kernel native = {"heat", heat_part, 3, kinds};

usm_kernel *heat_kernel_create(void)
{
    const usm_image  images[] = {{USM_IMAGE_BUNDLE, heat_kernels, heat_kernels_size},
                                 {USM_IMAGE_NATIVE, &native, sizeof native}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;
    usm_program     *program  = NULL;
    usm_kernel      *kernel   = NULL;

    desc.nimages = sizeof images / sizeof images[0];
    desc.images  = images;
    if (usm_program_create(usm_default_context(), &desc, &program) != USM_OK)
        return NULL;
    if (usm_kernel_create(program, "heat", &kernel) != USM_OK)
        kernel = NULL;
    usm_program_destroy(program);
    return kernel;
}
