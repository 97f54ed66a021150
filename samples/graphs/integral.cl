/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The integral of 4 / (1 + x * x) by the midpoint rule: pi from 0 to 1.
 *
 * A range: a, b (float), steps (uint), 16 bytes.  Each work-item sums every global-size-th step, with
 * what rounding loses kept in a second number. */
struct range {
    float a, b;
    uint  steps, unused;
};

__kernel void partitionData(__global const struct range *in, uint in_size, uint parts,
                            __global struct range *out, uint part_size)
{
    uint  i     = (uint)get_global_id(0);
    float width = (in->b - in->a) / parts;

    for (; i < parts; i += (uint)get_global_size(0)) {
        out[i].a      = in->a + i * width;
        out[i].b      = in->a + (i + 1) * width;
        out[i].steps  = in->steps / parts;
        out[i].unused = 0;
    }
}

__kernel void processData(__global const struct range *in, uint in_size, __global float *out,
                          uint out_size)
{
    uint  item  = (uint)get_global_id(0), items = (uint)get_global_size(0);
    float width = (in->b - in->a) / in->steps, sum = 0, lost = 0;

    for (uint i = item; i < in->steps; i += items) {
        float x = in->a + (i + 0.5f) * width, y = 4 / (1 + x * x) * width - lost, next = sum + y;

        lost = (next - sum) - y;
        sum  = next;
    }
    out[item] = sum;
}

__kernel void mergeData(__global const float *in, uint in_size, uint parts, __global float *out,
                        uint out_size)
{
    float sum = 0;

    for (uint i = 0; i < in_size / sizeof(float); i++)
        sum += in[i];
    *out = sum;
}
