/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The rank of this process in its job: from the launcher's variables, until src/cluster has better
 * values from MPI.  Thread-safe; no locks. */
#ifndef USM_BASE_JOB_H
#define USM_BASE_JOB_H

#include <stdbool.h>
#include <stdint.h>

typedef struct usm__launcher_place {
    uint32_t rank, size;             /* 0 of 1 without a job                            */
    uint32_t local_rank, local_size; /* among the ranks of this node; 0 of 1 if unknown */
    bool     is_job;
    bool     is_local_known;

    /* "mpi", "socket", "openmpi", "pmi", "pals", "slurm", "flux" or "none"; static. */
    const char *source;
} usm__launcher_place;

usm__launcher_place usm__launcher_place_get(void);
/* Replaces the values by those of MPI. */
void usm__launcher_place_set(const usm__launcher_place *place);
/* Reads the environment now; _get() keeps its first result. */
usm__launcher_place usm__launcher_place_read(void);
/* The name of this node, with "/" replaced; static. */
const char *usm__launcher_host(void);

/* True if this process logs warnings that concern the whole job, or its node: otherwise every
 * process would log the same (usm__warn_job() of base/log.h, USM_LOG_NODE). */
bool usm__launcher_speaks(void);
bool usm__launcher_speaks_for_node(void);

#endif
