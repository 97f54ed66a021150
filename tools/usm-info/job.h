/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* --job: the MPI job that the tool was started in. */
#ifndef USM_INFO_JOB_H
#define USM_INFO_JOB_H

#include <stdbool.h>

/* Rank 0 prints, the others print nothing.  The exit status is 1 if a launcher has started the
 * tool, but its MPI cannot be joined. */
int job_report(bool as_json);

#endif
