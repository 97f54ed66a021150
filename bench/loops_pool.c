/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The workloads' loops over a pool of libusm; once without touching the memory and once with (host
 * memory).  Run by engine.c. */
#include "touch.h"
#include "workload.h"

#include <usm/usm.h>

#define LOOPS_NAME               bench_loops_pool
#define LOOPS_MALLOC(pool, size) usm_pool_malloc(pool, size)
#define LOOPS_FREE(pool, p)      usm_pool_free(pool, p)
#define LOOPS_QUERY(pool, p)     usm_get_pointer_type(p, NULL)
#define LOOPS_TOUCH(p, size)     (void)(size)
#include "loops.inc"

#define LOOPS_NAME               bench_loops_pool_touched
#define LOOPS_MALLOC(pool, size) usm_pool_malloc(pool, size)
#define LOOPS_FREE(pool, p)      usm_pool_free(pool, p)
#define LOOPS_QUERY(pool, p)     usm_get_pointer_type(p, NULL)
#define LOOPS_TOUCH(p, size)     bench_touch(p, size)
#include "loops.inc"
