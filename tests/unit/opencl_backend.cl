/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Becomes the SPIR-V module of test_opencl_backend.c. */
kernel void add(global int *a, int n)
{
    a[get_global_id(0)] += n;
}

/* Sums a work-group through local memory. */
kernel void sum(global const int *in, global int *out, local int *scratch)
{
    size_t i = get_local_id(0);

    scratch[i] = in[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t n = get_local_size(0) / 2; n > 0; n /= 2) {
        if (i < n)
            scratch[i] += scratch[i + n];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (i == 0)
        out[get_group_id(0)] = scratch[0];
}
