/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* As clang compiles an atomic operation of OpenCL C 2.0: on a pointer cast to generic. */
#define GENERIC __attribute__((opencl_generic))
int __attribute__((overloadable)) __spirv_AtomicIAdd(GENERIC int *p, int scope, int order, int n);
int __attribute__((overloadable)) __spirv_AtomicLoad(GENERIC int *p, int scope, int order);
void __attribute__((overloadable)) __spirv_AtomicStore(GENERIC int *p, int scope, int order, int n);

kernel void atomics(global int *a, global int *n)
{
    size_t i = get_global_id(0);

    __spirv_AtomicStore((GENERIC int *)(a + i), 1, 0, __spirv_AtomicLoad((GENERIC int *)n, 1, 0));
    __spirv_AtomicIAdd((GENERIC int *)(n + 1), 1, 0, 1);
}
