/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Becomes the SPIR-V module of the tests of kernels over OpenCL and Level Zero; the same in C is
 * level_zero_kernels.c. */
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

/* Where an item stands in all three dimensions, and whether it was given a pointer. */
kernel void ids(global int *a, global const int *c)
{
    size_t x = get_global_id(0) - get_global_offset(0);
    size_t y = get_global_id(1) - get_global_offset(1);
    size_t z = get_global_id(2) - get_global_offset(2);

    a[(z * get_global_size(1) + y) * get_global_size(0) + x] =
        (int)(get_global_id(0) * 10000 + get_global_id(1) * 100 + get_global_id(2)) +
        (c ? c[0] : 0);
}

typedef struct {
    global int *p;
    int         n;
} box;

kernel void unbox(global const box *b)
{
    b->p[get_global_id(0)] = b->n;
}

typedef struct {
    uchar v[3];
} three;
typedef struct {
    uchar v[7];
} seven;

/* Values of sizes that are no power of two, and of one and two bytes. */
kernel void odd(global uchar *a, three t, char c, seven s, short h)
{
    for (int i = 0; i < 3; i++)
        a[i] = t.v[i];
    a[3] = (uchar)c;
    for (int i = 0; i < 7; i++)
        a[4 + i] = s.v[i];
    a[11] = (uchar)h;
    a[12] = (uchar)(h >> 8);
}

__attribute__((reqd_work_group_size(8, 1, 1))) kernel void eights(global int *a)
{
    a[get_global_id(0)] = (int)get_global_id(0);
}

/* Takes a while. */
kernel void spin(global int *a, int n)
{
    uint x = 1;

    for (int i = 0; i < n; i++)
        x = x * 1664525u + 1013904223u;
    a[get_global_id(0)] = (int)(x | 1);
}
