/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of kernels.c in OpenCL C; what each does is told there.  A grid of n x n points has a
 * rim of zeros around it: (n + 2) x (n + 2) floats, one work-item each.  Without contraction the
 * results are those of C. */
#pragma OPENCL FP_CONTRACT OFF
#define SHARE 0.8f

#define POINT                                                                                      \
    int p = n + 2, x = get_global_id(0), y = get_global_id(1), i = y * p + x;                      \
    bool rim = x == 0 || y == 0 || x == n + 1 || y == n + 1

float rest(__global const float *u, __global const float *f, int i, int p, float k)
{
    return f[i] - ((1.0f + 4.0f * k) * u[i] - k * (u[i - 1] + u[i + 1] + u[i - p] + u[i + p]));
}

__kernel void start(__global const float *f, __global float *out, int n, float k)
{
    POINT;
    out[i] = rim ? 0.0f : SHARE * f[i] / (1.0f + 4.0f * k);
}

__kernel void smooth(__global const float *u, __global const float *f, __global float *out, int n,
                     float k)
{
    POINT;
    out[i] = rim ? 0.0f : u[i] + SHARE * rest(u, f, i, p, k) / (1.0f + 4.0f * k);
}

__kernel void residual(__global const float *u, __global const float *f, __global float *out, int n,
                       float k)
{
    POINT;
    out[i] = rim ? 0.0f : rest(u, f, i, p, k);
}

__kernel void coarsen(__global const float *fine, __global float *out, int n)
{
    POINT;
    int w = 2 * n + 3, c = 2 * y * w + 2 * x;

    out[i] = rim ? 0.0f
                 : 0.0625f * (4.0f * fine[c] +
                              2.0f * (fine[c - 1] + fine[c + 1] + fine[c - w] + fine[c + w]) +
                              (fine[c - w - 1] + fine[c - w + 1] + fine[c + w - 1] +
                               fine[c + w + 1]));
}

__kernel void correct(__global float *u, __global const float *coarse, int n)
{
    POINT;
    int w = (n - 1) / 2 + 2, c = y / 2 * w + x / 2, dx = x & 1, dy = (y & 1) * w;

    if (!rim)
        u[i] += 0.25f * (coarse[c] + coarse[c + dx] + coarse[c + dy] + coarse[c + dx + dy]);
}
