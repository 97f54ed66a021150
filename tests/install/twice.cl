/* The kernel that the consumers embed.  SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
__kernel void twice(__global float *x)
{
    x[get_global_id(0)] *= 2.0f;
}
