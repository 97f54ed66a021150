/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of test_debug.c: a write and a read wherever the program says, outside of a block too. */
kernel void poke(global uchar *p, long offset, uchar value)
{
    p[offset] = value;
}

kernel void peek(global const uchar *p, long offset, global uchar *result)
{
    *result = p[offset];
}
