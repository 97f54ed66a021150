/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The workloads' loops over the process's malloc, which LD_PRELOAD chooses; once without touching
 * the memory and once with.  Run by engine.c. */
#include "touch.h"
#include "workload.h"

#include <stdlib.h>

#define LOOPS_NAME               bench_loops_malloc
#define LOOPS_MALLOC(pool, size) malloc(size)
#define LOOPS_FREE(pool, p)      free(p)
#define LOOPS_QUERY(pool, p)     0
#define LOOPS_TOUCH(p, size)     (void)(size)
#include "loops.inc"

#define LOOPS_NAME               bench_loops_malloc_touched
#define LOOPS_MALLOC(pool, size) malloc(size)
#define LOOPS_FREE(pool, p)      free(p)
#define LOOPS_QUERY(pool, p)     0
#define LOOPS_TOUCH(p, size)     bench_touch(p, size)
#include "loops.inc"
