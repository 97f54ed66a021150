/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of the conformance tests; kernels.c has the same as native functions. */

/* out[i] = i + add, for global ids, which include the launch's offset. */
kernel void ids(global int *out, int add)
{
    out[get_global_id(0)] = (int)get_global_id(0) + add;
}

/* The three ids of every work-item, in a volume of nx * ny * ... */
kernel void ids3(global int *out, int nx, int ny)
{
    size_t x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);

    out[(z * (size_t)ny + y) * (size_t)nx + x] = (int)(x + 100 * y + 10000 * z);
}

kernel void axpy(global float *y, global const float *x, float a)
{
    size_t i = get_global_id(0);

    y[i] += a * x[i];
}

/* out[group] = sum of in over the work-group; all of a group's items meet at the barrier. */
kernel void sum_groups(global int *out, global const int *in, local int *scratch)
{
    size_t l = get_local_id(0), n = get_local_size(0);

    scratch[n - 1 - l] = in[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l == 0) {
        int sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += scratch[i];
        out[get_group_id(0)] = sum;
    }
}

/* Values of several sizes, each written out as an int. */
kernel void values(global int *out, char c, short s, int i, long l, float f)
{
    if (get_global_id(0) == 0) {
        out[0] = c;
        out[1] = s;
        out[2] = i;
        out[3] = (int)(l >> 32);
        out[4] = (int)f;
    }
}

/* out[0] = 1 when p is NULL. */
kernel void is_null(global int *out, global int *p)
{
    if (get_global_id(0) == 0)
        out[0] = p ? 0 : 1;
}

/* out[i] = the int that table[i] points to. */
kernel void follow(global int *out, global const ulong *table)
{
    size_t i = get_global_id(0);

    out[i] = *(global const int *)table[i];
}

/* *counter += 1, by every work-item. */
kernel void count(global int *counter)
{
    atomic_inc(counter);
}
