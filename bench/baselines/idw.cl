/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The computation `idw` (idw.h) for devices of OpenCL.  A work-item computes 8 neighbouring pixels, so
 * that CPUs whose compilers do not join work-items into vectors have vectors all the same. */
#pragma OPENCL FP_CONTRACT OFF

struct package {
    int   width, height, npoints;
    float lat0, lon0, dlat, dlon;
};

/* `passes` times the same points. */
static inline float8 pixels(__global const struct package *package, const size_t item,
                            const int passes)
{
    __global const float *points = (__global const float *)(package + 1);
    const int    npoints = package->npoints;
    const uint   pixel   = (uint)item * 8, width = (uint)package->width;
    const uint   row     = pixel / width, column = pixel - row * width;
    const float8 lane    = (float8)(0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f);
    const float  lat     = package->lat0 + (float)row * package->dlat;
    const float8 lon     = package->lon0 + ((float)column + lane) * package->dlon;
    float8       weighted = 0.0f, weights = 0.0f;

    for (int pass = 0; pass < passes; pass++)
        for (int i = 0; i < npoints; i++) {
            const float  dlat   = lat - points[3 * i];
            const float8 dlon   = lon - points[3 * i + 1];
            const float8 weight = 1.0f / max(dlon * dlon + dlat * dlat, 1e-12f);

            weighted += weight * points[3 * i + 2];
            weights += weight;
        }
    return weighted / weights;
}

__kernel void idw(__global const struct package *package, __global float *image)
{
    const size_t item = get_global_id(0);

    vstore8(pixels(package, item, 1), item, image);
}

/* `image` begins with the launch's first pixel. */
__kernel void idw_chunk(__global const struct package *package, __global float *image)
{
    const size_t item = get_global_id(0);

    vstore8(pixels(package, item, 1), item - get_global_offset(0), image);
}

/* A device that is four times slower. */
__kernel void idw_four_times(__global const struct package *package, __global float *image)
{
    const size_t item = get_global_id(0);

    vstore8(pixels(package, item, 4), item - get_global_offset(0), image);
}
