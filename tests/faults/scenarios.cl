/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of the fault sweep, whose host forms stand in scenarios.c and scenarios_offload.c. */
kernel void twice(global int *out, int add)
{
    size_t i = get_global_id(0);

    out[i] = 2 * (int)i + add;
}

kernel void spread(global const int *whole, global int *out, global int *sum)
{
    size_t g = get_global_id(0), i = g - get_global_offset(0);

    out[i] = whole[g % 16] + (int)g;
    sum[i] += (int)g;
}

kernel void cut(global const uchar *in, uint in_size, uint parts, global uchar *out, uint part_size)
{
    for (uint i = 0; i < in_size; i++)
        out[i] = in[i];
}

kernel void lift(global const uchar *in, uint in_size, global uchar *out, uint out_size)
{
    for (uint i = 0; i < in_size; i++)
        out[i] = (uchar)(in[i] + 1);
}
