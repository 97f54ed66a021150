/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel of buffer_model.c; mix.h has the same for the host and for the model. */
__kernel void mix_bytes(__global uchar *dst, __global const uchar *src, uint value)
{
    size_t i = get_global_id(0);

    dst[i] = (uchar)(dst[i] * 3u + src[i] + value);
}
