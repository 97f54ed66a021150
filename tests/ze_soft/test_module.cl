/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Becomes the SPIR-V module of test_module.c, never built as text. */
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

typedef struct triple {
    char  c;
    short s;
    float f;
} triple;

typedef struct box {
    global float *p;
} box;

/* Values of several sizes, a null pointer, what lies behind a pointer in memory. */
kernel void values(global float *out, char c, long l, float4 v, float3 w, triple t,
                   global const int *none, global const box *indirect)
{
    out[0] = c;
    out[1] = l;
    out[2] = v.w;
    out[3] = w.z;
    out[4] = t.c + t.s + t.f;
    out[5] = none ? 0 : 1;
    out[6] = indirect->p[0];
}

kernel __attribute__((reqd_work_group_size(8, 1, 1))) void eights(global int *a)
{
    a[get_global_id(0)] = get_local_size(0);
}

kernel __attribute__((work_group_size_hint(4, 2, 1))) void hinted(global int *a)
{
    a[get_global_id(0)] = 1;
}

/* The LLVM translator makes specialization constants 7 and 8 of them. */
int __attribute__((overloadable)) __spirv_SpecConstant(int id, int fallback);
long __attribute__((overloadable)) __spirv_SpecConstant(int id, long fallback);

kernel void specialized(global long *a)
{
    a[0] = __spirv_SpecConstant(7, 70);
    a[1] = __spirv_SpecConstant(8, 80L);
}
