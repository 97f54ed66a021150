/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The raw driver as a peer: OpenCL calls on the native context and queue that
 * libusm itself uses, so that both sides talk to one driver. */
#ifndef USM_BENCH_RAW_OPENCL_H
#define USM_BENCH_RAW_OPENCL_H

#include <usm/usm.h>

typedef struct raw_opencl raw_opencl;

/* NULL when the queue is not OpenCL's or the headers were missing at build time. */
raw_opencl *raw_open(usm_queue *q);
void        raw_close(raw_opencl *raw);
/* "clDeviceMemAllocINTEL" or "clSVMAlloc": what raw_alloc calls. */
const char *raw_alloc_name(const raw_opencl *raw);
void       *raw_alloc(raw_opencl *raw, size_t size);
void        raw_free(raw_opencl *raw, void *p);
/* NULL pointer query when the driver has none (SVM). */
bool raw_has_query(const raw_opencl *raw);
int  raw_query(raw_opencl *raw, const void *p);
bool raw_copy(raw_opencl *raw, void *dst, const void *src, size_t n, bool wait);
bool raw_finish(raw_opencl *raw);

#endif
