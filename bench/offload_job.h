/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What `usm-bench offload` has libusm do: the computations of baselines/ by usm_parallel(), with
 * their kernels.  For offload_worker.c. */
#ifndef BENCH_OFFLOAD_JOB_H
#define BENCH_OFFLOAD_JOB_H

#include "baselines/baseline.h"

#include <usm/parallel.h>

struct offload_job;

/* `what`: "idw"; "idw-uneven", where devices of OpenCL do everything four times; "md5".  The team:
 * of every rank's first device that the options' selector names, or without a selector of OpenCL;
 * of several selectors joined by "+" the first device of each.  Ends the process when it cannot. */
struct offload_job *offload_job_create(const char *what, const struct baseline *b, bool is_rank);
/* In so many chunks of one size, or as USM_POLICY says where that is set. */
void     offload_job_run(struct offload_job *job, int64_t chunks, usm_parallel_stats *stats);
uint64_t offload_job_answer(const struct offload_job *job, const struct baseline *b);
void     offload_job_destroy(struct offload_job *job);

#endif
