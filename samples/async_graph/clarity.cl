/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of kernels.c in OpenCL C; what each does is told there.  One work-item a pixel of the
 * result.  Without contraction the results are those of C. */
#pragma OPENCL FP_CONTRACT OFF
#define TAPS 9

float weight(int k)
{
    int far = k < TAPS / 2 ? TAPS / 2 - k : k - TAPS / 2;

    return 0.04f * (float)(TAPS / 2 + 1 - far);
}

__kernel void rows(__global const float *in, __global float *out, int pitch, int first)
{
    int                   x = get_global_id(0), y = get_global_id(1), w = get_global_size(0);
    __global const float *from = in + first + y * pitch + x;
    float                 sum  = 0.0f;

    for (int k = 0; k < TAPS; k++)
        sum += weight(k) * from[k];
    out[y * w + x] = sum;
}

__kernel void columns(__global const float *in, __global float *out)
{
    int                   x = get_global_id(0), y = get_global_id(1), w = get_global_size(0);
    __global const float *from = in + y * w + x;
    float                 sum  = 0.0f;

    for (int k = 0; k < TAPS; k++)
        sum += weight(k) * from[k * w];
    out[y * w + x] = sum;
}

__kernel void shrink(__global const float *in, __global float *out, int pitch)
{
    int                   x = get_global_id(0), y = get_global_id(1), w = get_global_size(0);
    __global const float *from = in + 2 * y * pitch + 2 * x;

    out[y * w + x] = 0.25f * ((from[0] + from[1]) + (from[pitch] + from[pitch + 1]));
}

__kernel void combine(__global const float *in, __global const float *near,
                      __global const float *wide, __global float *out, int pitch, int first)
{
    int   x = get_global_id(0), y = get_global_id(1), w = get_global_size(0);
    float v = in[first + y * pitch + x], n = near[y * w + x], f = wide[y / 2 * (w / 2) + x / 2];

    v += 0.8f * (v - n) + 0.4f * (n - f);
    out[y * w + x] = v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v;
}
