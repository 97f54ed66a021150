/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel that kernels.cpp takes as SPIR-V. */
__kernel void add(__global int *a, __global const int *b)
{
    a[get_global_id(0)] += b[get_global_id(0)];
}
