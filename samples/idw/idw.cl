/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Inverse-distance interpolation: the kernel for devices that run OpenCL C or SPIR-V.
 *
 * A work-item computes 8 neighbouring pixels of a row (IDW_LANES in idw.h), so that each point it
 * loads is used eight times, and so that CPUs whose compilers do not join work-items into vectors
 * have vectors all the same.  native.c is the same arithmetic in C; idw.h tells why they agree.
 * `heights` are those of the launch, which begins at the row get_global_offset(1). */
#pragma OPENCL FP_CONTRACT OFF

/* d2^half_power, where half_power is a constant once this is inlined. */
static inline float8 power_of(float8 d2, uint half_power)
{
    float8 product = d2;

    for (uint k = 1; k < half_power; k++)
        product *= d2;
    return product;
}

static inline float8 interpolate(__global const float *east, __global const float *north,
                   __global const float *height, uint count, float8 column_east, float row_north,
                   float row_scale, float nearest2, uint half_power)
{
    float8 weighted = 0.0f, weights = 0.0f;

    for (uint i = 0; i < count; i++) {
        float8 dx     = (column_east - east[i]) * row_scale;
        float  dy     = row_north - north[i];
        float8 d2     = max(dx * dx + dy * dy, nearest2);
        float8 weight = 1.0f / power_of(d2, half_power);
        weighted += weight * height[i];
        weights += weight;
    }
    return weighted / weights;
}

__kernel void idw(__global const float *east, __global const float *north,
                  __global const float *height, uint count, __global const float *row_north,
                  __global const float *row_scale, float first_east, float step_east,
                  float nearest2, uint half_power, uint pitch, __global float *heights)
{
    const uint   column = (uint)get_global_id(0) * 8, row = (uint)get_global_id(1);
    const float8 lane        = (float8)(0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f);
    const float8 column_east = first_east + step_east * ((float)column + lane);
    const float  y = row_north[row], scale = row_scale[row];
    float8       result;

    switch (half_power) {
    case 1:
        result = interpolate(east, north, height, count, column_east, y, scale, nearest2, 1);
        break;
    case 2:
        result = interpolate(east, north, height, count, column_east, y, scale, nearest2, 2);
        break;
    case 3:
        result = interpolate(east, north, height, count, column_east, y, scale, nearest2, 3);
        break;
    default:
        result = interpolate(east, north, height, count, column_east, y, scale, nearest2, 4);
    }
    vstore8(result, 0, heights + (get_global_id(1) - get_global_offset(1)) * pitch + column);
}
