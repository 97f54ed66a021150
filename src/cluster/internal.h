/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of src/cluster share: the one job of the process.
 *
 *     attach.c    comes and goes: which module, its table, the members
 *     messages.c  from the module's thread to listeners and watchers
 *     agree.c     a listener of its own, over messages
 *
 * One lock guards all; nothing of the module, of listeners or watchers is called with it held. */
#ifndef USM_CLUSTER_INTERNAL_H
#define USM_CLUSTER_INTERNAL_H

#include "cluster/cluster.h"

#include "base/mutex.h"
#include "base/status.h"
#include "core/handle.h"

#define USM__JOB_NO_RANK UINT32_MAX /* a server                                              */

typedef enum usm__job_phase {
    USM__JOB_ALONE,     /* never attached                                                    */
    USM__JOB_ATTACHING, /* the module is being asked: messages may come before its answer      */
    USM__JOB_ATTACHED,
    USM__JOB_LEAVING,
    USM__JOB_LEFT,  /* by usm_job_leave(): once a process                                     */
    USM__JOB_ENDED, /* by MPI_Finalize(): only the module's memory is still there            */
    USM__JOB_FORKED /* a child of one that attached                                          */
} usm__job_phase;

/* The ranks' side of the members that were there when the process attached. */
typedef struct usm__job_table {
    uint32_t  self, nranks;
    uint32_t  nmembers;
    uint32_t *rank_of;   /* by member; USM__JOB_NO_RANK                                       */
    uint32_t *member_of; /* by rank                                                          */
    uint8_t  *state;     /* by rank: usm_place_state; once lost always lost                     */
    bool     *is_new;    /* by rank: watchers have not been told                               */
} usm__job_table;

typedef struct usm__job_state {
    usm__mutex     lock;
    pthread_cond_t changed; /* of CLOCK_MONOTONIC                                             */
    /* guarded by lock */
    usm__job_phase           phase;
    const usm_transport_ops *ops;
    void                    *job;
    usm__job_table           table; /* not freed before the process has left                    */
    uint32_t                 self_member;
    unsigned                 inside; /* calls of the module under way                           */
    char                     module[32];
} usm__job_state;

extern usm__job_state usm__job;

/* USM_E_MPI with what to do about it.  Lock held. */
usm_status usm__job_check(void);
/* The module's functions may be called until _leave(); lock not held.  USM_E_MPI */
usm_status usm__job_enter(const usm_transport_ops **ops, void **job);
void       usm__job_leave(void);
/* `ms` from now on the clock of usm__job.changed. */
struct timespec usm__job_deadline(uint64_t ms);

/* ---- job.c ------------------------------------------------------------------------------- */

/* The job's word replaces the launcher's; source: static, as in usm_job_info.  Collective. */
void usm__job_learn(const char *source, uint32_t timeout_ms);

/* ---- messages.c ------------------------------------------------------------------------ */

/* The thread that delivers what could not be delivered at once.  USM_E_SYSTEM;  USM_E_NO_MEMORY */
usm_status usm__messages_start(void);
/* Ends it, and forgets what nobody has taken; the module calls nobody any more. */
void usm__messages_stop(void);
/* The table is there, or something else has changed: look again.  Lock held. */
void usm__messages_wake(void);
void usm__messages_fork_child(void);
/* For usm_job_params. */
void usm__messages_came(void *user, uint32_t from, uint32_t tag, const void *data, size_t size);
void usm__messages_member(void *user, const usm_job_member *member);

/* ---- agree.c ----------------------------------------------------------------------------- */

/* Before messages are delivered; the table is there.  USM_E_NO_MEMORY */
usm_status usm__agree_start(void);
void       usm__agree_stop(void);
/* A rank is lost; lock held; what is to be sent goes out with usm__agree_flush(). */
void usm__agree_lost(uint32_t rank);
void usm__agree_flush(void); /* lock not held                                                  */
void usm__agree_fork_child(void);

/* ---- key.c --------------------------------------------------------------------------------- */

/* USM_JOB_KEY or USM_JOB_KEY_FILE: bytes in memory for keys, which are kept; NULL and 0: none.
 *   USM_E_KEY  the file cannot be read, or holds none;  USM_E_SYSTEM */
usm_status usm__job_key(const void **key, size_t *size);

/* ---- choose.c ------------------------------------------------------------------------------ */

/* The module for the MPI of this process, "mpi_openmpi".  comm_size: of an MPI_Comm as the program
 * was compiled; 0: not known.  USM_E_MPI */
usm_status usm__job_choose(size_t comm_size, char *name, size_t size);

#endif
