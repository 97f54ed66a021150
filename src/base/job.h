/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which process of a job this is, as the launcher's variables say, until src/cluster knows better
 * from MPI.  Thread-safe; no locks. */
#ifndef USM_BASE_JOB_H
#define USM_BASE_JOB_H

#include <stdbool.h>
#include <stdint.h>

typedef struct usm__job_place {
    uint32_t rank, size;             /* 0 of 1 when there is no job                        */
    uint32_t local_rank, local_size; /* among the ranks of this node; 0 of 1 when not known */
    bool     is_job;
    bool     is_local_known;

    /* "mpi", "socket", "openmpi", "pmi", "pals", "slurm", "flux" or "none"; static. */
    const char *source;
} usm__job_place;

usm__job_place usm__job_place_get(void);
/* What MPI says. */
void usm__job_place_set(const usm__job_place *place);
/* What the environment says now: what _get() keeps. */
usm__job_place usm__job_place_read(void);
/* The name of this node, "/" replaced; static. */
const char *usm__job_host(void);

/* Whether this process warns about what concerns the whole job, or its node: else all would say the
 * same (usm__warn_job() of base/log.h, USM_LOG_NODE). */
bool usm__job_speaks(void);
bool usm__job_speaks_for_node(void);

#endif
