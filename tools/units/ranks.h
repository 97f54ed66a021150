/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A unit of several processes, the ranks of a job: rank 0 speaks with the other usm-run, and gives
 * launches to the other ranks, each of which is a unit of rank 0.
 *
 *     usm-run --on 'mpirun -n 3 usm-run --unit' <--pipe--> rank 0 <--messages of the job--> rank 1
 *                                                                 <-----------------------> rank 2
 *
 * Here are the streams between rank 0 and the others: sockets of this process, whose bytes a thread
 * carries as messages of the job (cluster/cluster.h). */
#ifndef USM_TOOLS_UNITS_RANKS_H
#define USM_TOOLS_UNITS_RANKS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct unit_ranks unit_ranks;

/* Joins the job that this process was started in, if there is one, or the one that `where` names as
 * in usm_job_join(), or "none"; NULL: it does not say.  *out NULL: it is the only process.  false: it was reported why it
 * cannot. */
bool unit_ranks_open(const char *where, unit_ranks **out);
/* This one, and how many there are. */
uint32_t unit_ranks_self(const unit_ranks *r);
uint32_t unit_ranks_count(const unit_ranks *r);
/* The stream to another rank of which one is rank 0: the caller's, to close. */
int unit_ranks_take(unit_ranks *r, uint32_t rank);
/* Once all streams that were taken are closed: waits for what is on its way, and leaves the job. */
void unit_ranks_close(unit_ranks *r);

#endif
