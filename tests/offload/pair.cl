/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of test_ranks_pair.c, which has the same for the host. */

__kernel void ones(__global uint *copies)
{
    copies[get_global_id(0) - get_global_offset(0)] += (uint)get_global_id(0) | 1u;
}

__kernel void fours(__global uint *out)
{
    out[get_global_id(0) - get_global_offset(0)] = 4u;
}
