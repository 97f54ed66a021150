/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel of mix.cl as a native function, and the program that holds both. */
#ifndef SPILL_MIX_H
#define SPILL_MIX_H

#include "mix_kernels.h" /* made by usm_add_kernels() */

#include <usm/usm.h>

static inline void mix_bytes(const usm_range *range, void *const *args)
{
    unsigned char       *dst   = *(unsigned char *const *)args[0];
    const unsigned char *src   = *(const unsigned char *const *)args[1];
    uint32_t             value = *(const uint32_t *)args[2];

    for (size_t i = range->begin[0]; i < range->end[0]; i++)
        dst[i] = (unsigned char)(dst[i] * 3u + src[i] + value);
}

static inline usm_status mix_create(usm_context *ctx, usm_program **program, usm_kernel **kernel)
{
    static const usm_native_kernel natives[] = {{"mix_bytes", mix_bytes, 3, NULL}};
    usm_image                      images[]  = {{USM_IMAGE_BUNDLE, mix_kernels, mix_kernels_size},
                                                {USM_IMAGE_NATIVE, natives, sizeof natives}};
    usm_program_desc               desc      = USM_PROGRAM_DESC_INIT;
    usm_status                     st;

    desc.images  = images;
    desc.nimages = 2;
    st           = usm_program_create(ctx, &desc, program);
    return st == USM_OK ? usm_kernel_create(*program, "mix_bytes", kernel) : st;
}

#endif
