/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Exports what test_module_user.cl imports. */
int triple_of(int n)
{
    return 3 * n;
}

kernel void other(global int *a)
{
    a[0] = triple_of(1);
}
