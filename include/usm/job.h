/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The parallel job that this process belongs to: its rank, the number of ranks,
 * the node.  libusm takes them from MPI after usm_mpi_attach(), from
 * usm_job_join(), or from the environment variables of the launcher (Open MPI,
 * PMI, PALS, Slurm, Flux).  Without a job a process is rank 0 of 1.
 *
 * The job determines the default one of several devices (local rank modulo
 * number of devices, unless a selector or an affinity mask decides), the share
 * of the node's memory that limits of `auto` mean, the %r of file names, and
 * the process that logs warnings (rank 0; for warnings about a node, its first
 * local rank). */
#ifndef USM_JOB_H
#define USM_JOB_H

#include <usm/pool.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef struct usm_job_info {
    size_t   struct_size;
    uint32_t rank, size;             /**< in the job                                    */
    uint32_t local_rank, local_size; /**< among the processes on this node              */
    bool     is_job;                 /**< a job was found                               */
    bool     is_attached;            /**< usm_mpi_attach() or usm_job_join() was called */
    char     source[32]; /**< "mpi", "socket", "openmpi", "pmi", "pals", "slurm", "flux", "none" */
    char     host[64];
    char     mpi[128]; /**< once attached: name and version of the MPI library, or of the other
                            transport */
} usm_job_info;
#define USM_JOB_INFO_INIT                                                                          \
    {                                                                                              \
        sizeof(usm_job_info), 0, 0, 0, 0, false, false, "", "", ""                                 \
    }

/** Returns the job.  The caller sets info->struct_size. */
USM_API USM_NODISCARD usm_status usm_job_get_info(usm_job_info *info);
/** Writes the table of `usm-info --job`: members, fault domains, the memory that
 * they lend and hold, and which failures this launch survives; format, cap and
 * size are as in usm_pool_describe(). */
USM_API usm_status usm_job_describe(usm_text_format format, char *text, size_t cap, size_t *size);

/** Joins a job without MPI, of processes of one machine and one user, however
 * they were started.  `where` is "socket:FOLDER,rank=R,size=N": all N processes
 * give the same folder, which is created if it is missing, and each its own
 * rank.  The function returns when all have joined; it waits 10 s for them, or
 * as long as ",wait=MS" says.  Once per process, instead of usm_mpi_attach().
 * The ranks can do what MPI's ranks can, except lend memory (USM_SPILL=mpi).
 *
 * The other processes learn of the end of a process at once, and consider a
 * process lost that is silent for USM_JOB_LEASE.  Only processes of the same
 * user are admitted; USM_JOB_KEY is not used.
 *   USM_E_PEER              a rank did not come; the error message names it
 *   USM_E_INVALID           `where` does not parse, the path is too long,
 *                           rank >= size, or another rank gave another size
 *   USM_E_BUSY              another process has this rank, the job there is
 *                           complete, or this process is in a job already
 *   USM_E_ABI               another process uses another release of libusm
 *   USM_E_PERMISSION        another user's process came first
 *   USM_E_IO, USM_E_SYSTEM  the system refused the folder or a socket
 *   USM_E_NO_BACKEND        that transport is not installed here */
USM_API USM_NODISCARD usm_status usm_job_join(const char *where);
/** Leaves the job, as usm_mpi_detach(), whichever kind of job it is.  Messages
 * that were sent still arrive if the receivers take them within a second.  The
 * others also notice a process that exits without this call. */
USM_API void usm_job_leave(void);

USM_END_DECLS
#endif
