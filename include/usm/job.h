/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The job this process is one of: which rank it is, of how many, on which node.  Learnt from MPI
 * once usm_mpi_attach() was called, else from what the launcher left in the environment (Open MPI,
 * PMI, PALS, Slurm, Flux).  Without a job a process is rank 0 of 1.
 *
 * It decides which of several devices is the default (local rank modulo devices; a selector or an
 * affinity mask wins), what part of the node's memory `auto` limits mean, the %r of file names, and
 * who warns (rank 0, and for what concerns a node its first local rank). */
#ifndef USM_JOB_H
#define USM_JOB_H

#include <usm/pool.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef struct usm_job_info {
    size_t   struct_size;
    uint32_t rank, size;             /**< in the job                                           */
    uint32_t local_rank, local_size; /**< among those of this node                              */
    bool     is_job;                 /**< anything was found                                    */
    bool     is_attached;            /**< usm_mpi_attach() was called                           */
    char     source[32]; /**< "mpi", "openmpi", "pmi", "pals", "slurm", "flux", "none" */
    char     host[64];
    char     mpi[128]; /**< once attached: name and version of the library                      */
} usm_job_info;
#define USM_JOB_INFO_INIT                                                                          \
    {                                                                                              \
        sizeof(usm_job_info), 0, 0, 0, 0, false, false, "", "", ""                                 \
    }

USM_API USM_NODISCARD usm_status usm_job_get_info(usm_job_info *info);
/** The table of `usm-info --job`: members, domains, what they lend and hold, what this launch
 * survives; as usm_pool_describe(). */
USM_API usm_status usm_job_describe(usm_text_format format, char *text, size_t cap, size_t *size);

USM_END_DECLS
#endif
