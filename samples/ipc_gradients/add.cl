/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel of kernel.c in OpenCL C. */
__kernel void add(__global float *out, __global const float *a, __global const float *b,
                  __global const float *c, __global const float *d, int n)
{
    size_t i = get_global_id(0);
    float  x = a[i];

    if (n > 1)
        x += b[i];
    if (n > 2)
        x += c[i];
    if (n > 3)
        x += d[i];
    out[i] = x;
}
