/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of test_parallel.c; split.h has the same for the host. */

/* Bytes of the chunk's own index: by get_global_id() - get_global_offset(), in pitches. */
__kernel void blend(__global const uint *whole, __global const uint *in, __global uint *out, uint px,
                    uint py, uint pz)
{
    size_t x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    size_t at = (x - get_global_offset(0)) * px + (y - get_global_offset(1)) * py +
                (z - get_global_offset(2)) * pz;

    out[at] = in[at] * 3u + whole[(x * 7 + y * 13 + z * 29) % 64];
}

/* With one index before and one after, where there are. */
__kernel void smooth(__global const uint *in, __global uint *out, ulong n)
{
    size_t g = get_global_id(0), i = g - get_global_offset(0);
    uint   before = g > 0 ? in[(long)i - 1] : 0u, after = g + 1 < n ? in[i + 1] : 0u;

    out[i] = before + 2u * in[i] + 5u * after;
}

/* Private copies: of `leaf` indices each, and of one. */
__kernel void fold(__global const int *in, __global uint *sum, __global int *least,
                   __global int *most, __global float *mean, uint leaf)
{
    size_t i = get_global_id(0) - get_global_offset(0);

    atomic_add(&sum[i / leaf], (uint)in[i]);
    atomic_min(&least[i / leaf], in[i]);
    atomic_max(&most[i / leaf], in[i]);
    mean[i] += (float)in[i] * 0.37f;
}

__kernel void find(__global const uint *in, __global long *found, uint key)
{
    size_t g = get_global_id(0), i = g - get_global_offset(0);

    if (in[i] == key) {
        found[2 * i]     = (long)g;
        found[2 * i + 1] = (long)in[i] * 2;
    }
}

/* As many rounds as the index says: state = {again, rounds so far}. */
__kernel void steps(__global uint *out, __global int *state)
{
    size_t g = get_global_id(0), i = g - get_global_offset(0);

    if (state[2 * i] != 1)
        return;
    state[2 * i + 1]++;
    if (state[2 * i + 1] > (int)(g % 5)) {
        state[2 * i] = 0;
        out[i]       = (uint)state[2 * i + 1];
    }
}

__kernel void twice(__global uint *data)
{
    size_t i = get_global_id(0) - get_global_offset(0);

    data[i] = data[i] * 2u + 1u;
}
