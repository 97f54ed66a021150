/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel of leaks.c, for devices that take no native functions. */
kernel void set(global int *p)
{
    p[get_global_id(0)] = 7;
}
