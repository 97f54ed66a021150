/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels of test_graph.c and graph_model.c for devices; graph_kernels.c has the same in C.
 * Every byte of an output depends on a byte of the input, on where it is, and on sizes. */
__kernel void processData(__global const uchar *in, uint in_size, __global uchar *out, uint out_size)
{
    for (uint i = (uint)get_global_id(0); i < out_size; i += (uint)get_global_size(0))
        out[i] = (uchar)(in[(i * 7 + 3) % in_size] * 31 + in_size + i);
}

__kernel void partitionData(__global const uchar *in, uint in_size, uint parts, __global uchar *out,
                            uint part_size)
{
    for (uint i = (uint)get_global_id(0); i < parts * part_size; i += (uint)get_global_size(0)) {
        uint part = i / part_size, at = i - part * part_size; /* by %: clang 14 makes it `freeze`,
                                                                 which llvm-spirv does not know */

        out[i] = (uchar)(in[(part * 13 + at) % in_size] + part);
    }
}

__kernel void mergeData(__global const uchar *in, uint in_size, uint parts, __global uchar *out,
                        uint out_size)
{
    for (uint i = (uint)get_global_id(0); i < out_size; i += (uint)get_global_size(0)) {
        uint sum = parts;

        for (uint j = 0; j < parts; j++)
            sum += in[j * (in_size / parts) + i % (in_size / parts)] * (j + 1);
        out[i] = (uchar)sum;
    }
}
