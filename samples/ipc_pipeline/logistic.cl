/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel of kernel.c in OpenCL C.  Without contraction the results are those of C. */
#pragma OPENCL FP_CONTRACT OFF

__kernel void logistic(__global const float *in, __global float *out, int steps)
{
    size_t i = get_global_id(0);
    float  x = in[i];

    for (int k = 0; k < steps; k++)
        x = 3.75f * x * (1.0f - x);
    out[i] = x;
}
