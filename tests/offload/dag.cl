/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of dag_model.c; dag_compute.c has the same for the host and for the model. */
__kernel void dag_mix(__global uchar *dst, __global const uchar *src, uint value)
{
    size_t i = get_global_id(0);

    dst[i] = (uchar)(dst[i] * 3u + src[i] + value);
}

__kernel void dag_gather(__global uchar *dst, __global const uchar *a, __global const uchar *b,
                         uint n, uint value)
{
    size_t i = get_global_id(0);

    dst[i] = (uchar)(a[i] + b[n - 1 - i] * 5u + value);
}

__kernel void dag_stripe(__global uchar *dst, uint step, uint value)
{
    size_t i = get_global_id(0);

    if (i % step == 0)
        dst[i] = (uchar)(value + i);
}

__kernel void dag_swap(__global uchar *a, __global uchar *b, uint value)
{
    size_t i    = get_global_id(0);
    uchar  held = a[i];

    a[i] = (uchar)(b[i] + value);
    b[i] = held;
}
