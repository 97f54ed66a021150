/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the layer cl_count has seen on its way to the driver: its symbol `cl_counts`. */
#ifndef CL_COUNT_H
#define CL_COUNT_H

#include <stdatomic.h>

typedef struct cl_count {
    _Atomic(long) usm_allocs, usm_frees, svm_allocs, svm_frees;
    _Atomic(long) told; /* pointers of the last clSetKernelExecInfo()  */
} cl_count;

#endif
