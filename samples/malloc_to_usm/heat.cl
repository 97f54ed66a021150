/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The body of the loops of before.c, as a kernel: one work-item is one cell.  The board's numbers
 * are those of board.h.  Without contraction it gives the bits that C gives. */
#pragma OPENCL FP_CONTRACT OFF
#define PITCH 514
#define SHARE 0.2f

__kernel void heat(__global const float *now, __global float *next, __global const float *input)
{
    size_t i = get_global_id(1) * PITCH + get_global_id(0);

    next[i] = now[i] + input[i] +
              SHARE * (now[i - 1] + now[i + 1] + now[i - PITCH] + now[i + PITCH] - 4.0f * now[i]);
}
