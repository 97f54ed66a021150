/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The job this process is one of: which rank it is, of how many, on which node.  Learnt from MPI
 * once usm_mpi_attach() was called, from usm_job_join(), else from what the launcher left in the
 * environment (Open MPI, PMI, PALS, Slurm, Flux).  Without a job a process is rank 0 of 1.
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
    bool     is_attached;            /**< usm_mpi_attach() or usm_job_join() was called          */
    char     source[32]; /**< "mpi", "socket", "openmpi", "pmi", "pals", "slurm", "flux", "none" */
    char     host[64];
    char     mpi[128]; /**< once attached: name and version of the library, or what else it is   */
} usm_job_info;
#define USM_JOB_INFO_INIT                                                                          \
    {                                                                                              \
        sizeof(usm_job_info), 0, 0, 0, 0, false, false, "", "", ""                                 \
    }

USM_API USM_NODISCARD usm_status usm_job_get_info(usm_job_info *info);
/** The table of `usm-info --job`: members, domains, what they lend and hold, what this launch
 * survives; as usm_pool_describe(). */
USM_API usm_status usm_job_describe(usm_text_format format, char *text, size_t cap, size_t *size);

/** Joins a job without MPI: processes of one machine and one user, in whatever way they were
 * started.  `where` is "socket:FOLDER,rank=R,size=N": all N come with the same folder, which is
 * made if it is missing, and each with a rank of its own.  Returns when all are there, and waits 10
 * s for them, or what ",wait=MS" says.  Once a process, in place of usm_mpi_attach(); the ranks can
 * do what those of MPI can, but lend no memory (USM_SPILL=mpi).
 *
 * Who ends is known to the others at once, who stands still after USM_JOB_LEASE.  Nobody but
 * processes of the same user is let in; USM_JOB_KEY is not asked for.
 *   USM_E_PEER        a rank did not come: the story names it
 *   USM_E_INVALID     `where` does not parse, a path too long, rank >= size, another rank's size
 *   USM_E_BUSY        another process is this rank, the job there is complete, or this process is
 * in a job already USM_E_ABI         another release of libusm;  USM_E_PERMISSION  another user's
 * folder USM_E_IO, USM_E_SYSTEM  the system refused the folder, a socket USM_E_NO_BACKEND  there is
 * no such transport here */
USM_API USM_NODISCARD usm_status usm_job_join(const char *where);
/** As usm_mpi_detach(), of whichever job the process is in.  What it has sent arrives, if the
 * others take it within a second.  A process that exits without is noticed as well. */
USM_API void usm_job_leave(void);

USM_END_DECLS
#endif
