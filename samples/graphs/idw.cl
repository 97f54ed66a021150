/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How warm is it in the mean, over an area with a few weather stations?  Each cell of a grid has the
 * mean of all stations, weighted by 1 / distance^2 (inverse distance weighting).
 *
 * A request, 16 numbers before the stations: width, height of the grid, stations (uint), first row,
 * end row (uint), and 11 unused; then a station each: east, north (0 to 1), degrees (float).  A part
 * is the request with rows of its own.  A result: for each work-item the sum of its cells (float). */
#define HEAD     16
#define STATION  3
#define FIRST    3
#define END      4
#define NEAREST2 1e-9f

__kernel void partitionData(__global const uint *in, uint in_size, uint parts, __global uint *out,
                            uint part_size)
{
    uint rows = in[1], i = (uint)get_global_id(0);

    for (; i < parts; i += (uint)get_global_size(0)) {
        __global uint *part = out + i * (part_size / 4);

        for (uint j = 0; j < in_size / 4; j++)
            part[j] = in[j];
        part[FIRST] = rows / parts * i + min(i, rows % parts);
        part[END]   = part[FIRST] + rows / parts + (i < rows % parts);
    }
}

__kernel void processData(__global const uint *in, uint in_size, __global float *out, uint out_size)
{
    __global const float *stations = (__global const float *)in + HEAD;
    uint  width = in[0], height = in[1], n = in[2], items = (uint)get_global_size(0);
    float sum = 0;

    for (uint y = in[FIRST]; y < in[END]; y++)
        for (uint x = (uint)get_global_id(0); x < width; x += items) {
            float east = (x + 0.5f) / width, north = (y + 0.5f) / height, all = 0, weights = 0;

            for (uint i = 0; i < n; i++) {
                float dx = east - stations[i * STATION], dy = north - stations[i * STATION + 1];
                float weight = 1 / fmax(dx * dx + dy * dy, NEAREST2);

                all += weight * stations[i * STATION + 2];
                weights += weight;
            }
            sum += all / weights;
        }
    out[get_global_id(0)] = sum / width / height;
}

__kernel void mergeData(__global const float *in, uint in_size, uint parts, __global float *out,
                        uint out_size)
{
    float sum = 0;

    for (uint i = 0; i < in_size / sizeof(float); i++)
        sum += in[i];
    *out = sum;
}
