/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The workloads' loops over a table of functions: UMF, SYCL, libusm by queue, and anything under
 * the timing layer of latency.c.  Run by engine.c. */
#include "workload.h"

#define TABLE(pool)              ((const bench_allocator *)(pool))
#define LOOPS_NAME               bench_loops_table
#define LOOPS_MALLOC(pool, size) TABLE(pool)->malloc(TABLE(pool)->self, size)
#define LOOPS_FREE(pool, p)      TABLE(pool)->free(TABLE(pool)->self, p)
#define LOOPS_QUERY(pool, p)     TABLE(pool)->query(TABLE(pool)->self, p)
#define LOOPS_TOUCH(p, size)     (void)(size)
#include "loops.inc"
