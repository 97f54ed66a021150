/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel of the fault sweep (scenarios.c), whose host form stands there. */
kernel void twice(global int *out, int add)
{
    size_t i = get_global_id(0);

    out[i] = 2 * (int)i + add;
}
