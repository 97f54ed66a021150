/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel of test_resume.c, which has the same for the host.  One round an index: what it did
 * goes to a place of its own, with the number of the process in the two lowest bits; state = {again,
 * rounds so far}. */
__kernel void walk(__global uint *out, __global uint *acc, __global uint *sum, __global int *state,
                   __global const uint *process, uint rounds, uint leaf)
{
    size_t g = get_global_id(0), i = g - get_global_offset(0);
    uint   r;

    if (state[2 * i] != 1)
        return;
    r                   = (uint)state[2 * i + 1]++;
    out[i * rounds + r] = ((uint)g * 31u + r) * 4u + process[0];
    acc[i]              = acc[i] * 3u + r;
    atomic_add(&sum[i / leaf], (uint)g + r);
    if (r + 1 + g % 3 >= rounds)
        state[2 * i] = 0;
}
