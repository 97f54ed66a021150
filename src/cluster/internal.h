/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of src/cluster: the one job of the process.
 *
 *     attach.c    attaching and leaving: which module, its table, the members
 *     messages.c  delivers messages from the module's thread to listeners and watchers
 *     agree.c     group/agree.h, a listener of its own on top of messages
 *
 * One lock guards everything.  It is not held during calls of the module, of listeners or of
 * watchers. */
#ifndef USM_CLUSTER_INTERNAL_H
#define USM_CLUSTER_INTERNAL_H

#include "cluster/cluster.h"

#include "base/mutex.h"
#include "base/status.h"
#include "device/handle.h"

#define USM__JOB_NO_RANK  UINT32_MAX /* a server */
#define USM__JOB_WATCHERS 4

typedef enum usm__job_phase {
    USM__JOB_ALONE,     /* never attached */
    USM__JOB_ATTACHING, /* attach() of the module was called: messages may come before it returns */
    USM__JOB_ATTACHED,
    USM__JOB_LEAVING,
    USM__JOB_LEFT,  /* by usm_job_leave() and its like, which happens once per process */
    USM__JOB_ENDED, /* by MPI_Finalize() alone: only the module's memory still exists */
    USM__JOB_FORKED /* a child of a process that attached */
} usm__job_phase;

/* The ranks among the members that existed when the process attached. */
typedef struct usm__job_table {
    uint32_t  self, nranks;
    uint32_t  nmembers;
    uint32_t *rank_of;   /* by member; or USM__JOB_NO_RANK */
    uint32_t *member_of; /* by rank */
    uint8_t  *state;     /* by rank: usm_place_state; LOST is final */
    bool     *is_new;    /* by rank: watchers have not been called yet */
} usm__job_table;

/* What is received on one tag: who is called, and the messages that nobody has taken. */
typedef struct usm__job_inbox {
    usm__job_listener *fn;
    void              *arg;
    usm_list           queue;
} usm__job_inbox;

typedef struct usm__job_watching {
    usm__job_watcher *fn;
    void             *arg;
} usm__job_watching;

typedef struct usm__job_state {
    usm__mutex     lock;
    pthread_cond_t changed; /* uses CLOCK_MONOTONIC */
    /* guarded by lock */
    usm__job_phase           phase;
    const usm_transport_ops *ops;
    void                    *job;
    usm__job_table           table; /* not freed before the process has left */
    uint32_t                 self_member;
    unsigned                 inside; /* calls of the module in progress */
    char                     module[32];
    /* "mpi": the module's table, except its name and open(); fixed after the first attempt */
    usm_transport_ops mpi_tier;
    struct usm_key   *key; /* key.c: created at the first attempt, by one thread */
    struct {
        struct usm__group_agree *machine; /* NULL: the process is in no job */
        bool                     is_busy; /* a thread is in a call          */
        bool                     is_sending;
    } agree; /* agree.c */
    struct {
        bool              is_ready; /* the queues are initialized */
        usm__job_inbox    tags[USM__JOB_TAGS];
        usm__job_watching watchers[USM__JOB_WATCHERS];
        bool              calling; /* `caller` is calling a listener or the watchers */
        pthread_t         caller;
        uint32_t          calling_tag; /* 0: watchers */
        unsigned          waiting;     /* threads that wait for the end of that call */
        bool              runs, stop;  /* of the thread */
    } box;                             /* messages.c */
} usm__job_state;

extern usm__job_state usm__job __attribute__((visibility("hidden")));

/* USM_E_MPI with an error message that names the remedy.  The lock is held. */
usm_status usm__job_check(void);
/* The module's functions may be called until _leave().  The lock is not held.  USM_E_MPI */
usm_status usm__job_enter(const usm_transport_ops **ops, void **job);
void       usm__job_leave(void);
/* `ms` from now, on the clock of usm__job.changed. */
struct timespec usm__job_deadline(uint64_t ms);

/* ---- job.c ------------------------------------------------------------------------------- */

/* Replaces what the launcher says about ranks by what the job says; source: static, as in
 * usm_job_info.  Collective. */
void usm__job_learn(const char *source, uint32_t timeout_ms);

/* ---- messages.c ------------------------------------------------------------------------ */

/* Starts the thread that delivers what could not be delivered at once.  USM_E_SYSTEM;
 * USM_E_NO_MEMORY */
usm_status usm__messages_start(void);
/* Ends the thread, and drops messages that no listener has taken.  The module makes no calls any
 * more. */
void usm__messages_stop(void);
/* Wakes the thread: the table exists now, or something else has changed.  The lock is held. */
void usm__messages_wake(void);
void usm__messages_fork_child(void);
/* Callbacks for usm_job_params. */
void usm__messages_came(void *user, uint32_t from, uint32_t tag, const void *data, size_t size);
void usm__messages_member(void *user, const usm_job_member *member);

/* ---- agree.c ----------------------------------------------------------------------------- */

/* Called before messages are delivered, when the table exists.  USM_E_NO_MEMORY */
usm_status usm__agree_start(void);
void       usm__agree_stop(void);
/* A rank is lost.  The lock is held; messages that this causes are sent by usm__agree_flush(). */
void usm__agree_lost(uint32_t rank);
void usm__agree_flush(void); /* the lock is not held */
void usm__agree_fork_child(void);

/* ---- key.c --------------------------------------------------------------------------------- */

/* USM_JOB_KEY or USM_JOB_KEY_FILE: bytes in memory for keys, which stay valid; NULL and 0: none.
 *   USM_E_KEY  the file cannot be read, or holds no key;  USM_E_SYSTEM */
usm_status usm__job_key(const void **key, size_t *size);

/* ---- choose.c ------------------------------------------------------------------------------ */

/* The module for the MPI of this process, "mpi_openmpi".  comm_size: of an MPI_Comm as the program
 * was compiled; 0: unknown.  USM_E_MPI */
usm_status usm__job_choose(size_t comm_size, char *name, size_t size);

#endif
