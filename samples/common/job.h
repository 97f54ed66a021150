/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Joining a job of several processes, of MPI where the program is built with it. */
#ifndef SAMPLES_JOB_H
#define SAMPLES_JOB_H

#include <stdbool.h>

/* `where`: "" is MPI's job, else what usm_job_join() takes; NULL: none, which is rank 0 of 1.
 * Failures are said on stderr. */
bool job_join(const char *program, const char *where);
/* Are arguments and results those of this process? */
bool job_is_home(void);
/* Before what needs no others.  `is_whole`: nobody was lost. */
void job_leave(bool is_whole);
/* Ends the process, after job_leave(). */
int job_exit(int status);

#endif
