/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the layer cl_count has seen on its way to the driver, and what it is to do there: its symbol
 * `cl_counts`. */
#ifndef CL_COUNT_H
#define CL_COUNT_H

#include <stdatomic.h>

typedef enum cl_marker {
    CL_MARKER_PASS,
    CL_MARKER_FAIL, /* then PASS */
    CL_MARKER_HOLD, /* then HELD, until a test says PASS; others pass meanwhile */
    CL_MARKER_HELD
} cl_marker;

typedef struct cl_count {
    _Atomic(long) usm_allocs, usm_frees, svm_allocs, svm_frees;
    _Atomic(long) told;   /* pointers of the last clSetKernelExecInfo()  */
    _Atomic(int)  marker; /* a cl_marker: of the next clEnqueueMarker() */
} cl_count;

#endif
