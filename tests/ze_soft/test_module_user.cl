/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Imports what test_module_other.cl exports. */
int triple_of(int n);

kernel void use(global int *a)
{
    a[get_global_id(0)] = triple_of(a[get_global_id(0)]);
}
