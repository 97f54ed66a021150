/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel of test_second_launch.c, for devices that take no native functions. */
kernel void add(global int *p, int value)
{
    p[get_global_id(0)] += value;
}
