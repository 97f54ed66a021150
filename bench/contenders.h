/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Who takes part in `usm-bench pool`, `spill` and `async`: libusm in several settings, and its
 * peers; each is a worker process (worker.h, spill_worker.h, async.h) with its own environment.
 * Called by pool.c, spill.c, async.c. */
#ifndef USM_BENCH_CONTENDERS_H
#define USM_BENCH_CONTENDERS_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

typedef enum contender_id {
    OURS_NULL,    /* the null backend, which can reserve and map */
    OURS_AREAS,   /* the null backend, whole areas only          */
    OURS_GUARD,   /* the host backend, PROT_NONE device memory   */
    OURS_HOST,    /* host memory, touched                        */
    OURS_TRACE,   /* as OURS_NULL, with USM_TRACE                */
    OURS_IDLE,    /* its caches: when their threads sleep        */
    OURS_TRIMMED, /* after a trim of the pool                  */
    OURS_NEEDED,  /* when all of the memory is requested       */
    GLIBC,
    JEMALLOC,
    MIMALLOC,
    TCMALLOC,
    TBB,
    GLIBC_TOUCH,
    JEMALLOC_TOUCH,
    MIMALLOC_TOUCH,
    TCMALLOC_TOUCH,
    TBB_TOUCH,
    UMF_DISJOINT,
    UMF_SCALABLE,
    OURS_CL_DEVICE,
    OURS_CL_SHARED,
    OURS_CL_HOST,
    SYCL_CL_DEVICE,
    SYCL_CL_SHARED,
    SYCL_CL_HOST,
    OURS_ZE_DEVICE,
    OURS_ZE_SHARED,
    OURS_ZE_HOST,
    SYCL_ZE_DEVICE,
    SYCL_ZE_SHARED,
    SYCL_ZE_HOST,
    SPILL_HOST, /* buffers on the host backend            */
    SPILL_POCL, /* on the system's OpenCL CPU device      */
    SPILL_CL,   /* on Intel's                             */
    SPILL_SYCL, /* SYCL's buffers there                   */
    ASYNC_NULL, /* commands and their memory: nothing runs */
    ASYNC_HOST,
    ASYNC_POCL,
    ASYNC_CL, /* Intel's OpenCL CPU runtime */
    ASYNC_ZE,
    ASYNC_SYCL_CL,
    ASYNC_SYCL_ZE,
    CONTENDERS
} contender_id;

/* Finds what there is: libraries to preload, plugins, drivers.  `sycl`: the folder of Intel's SYCL
 * and OpenCL runtimes, or NULL.  `verbose`: what workers write to stderr is shown. */
void contenders_find(const char *sycl, bool verbose);
/* Removes what it made in the temporary folder. */
void        contenders_forget(void);
const char *contender_name(contender_id id);
/* NULL: it can take part as far as is known; else what to install. */
const char *contender_missing(contender_id id);
/* What is loaded, say "libjemalloc.so.2"; "" for what has no library of its own. */
const char *contender_library(contender_id id);

/* Starts its worker; false: contender_error() says why. */
bool contender_start(contender_id id);
/* Sends a line; true and the answer after "ok ", or false. */
bool        contender_ask(contender_id id, const char *command, char *answer, size_t cap);
const char *contender_error(contender_id id);
void        contender_stop(contender_id id);

#endif
