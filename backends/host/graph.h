/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files behind the graph of commands: queue.c (commands, order, queues), team.c (the
 * workers), task.c (functions of the program).  No other file but its test includes it. */
#ifndef USM_BACKENDS_HOST_GRAPH_H
#define USM_BACKENDS_HOST_GRAPH_H

#include "internal.h"

#include <base/inline/recycle.h>

struct usm__host_queue {
    /* fixed after create */
    bool in_order, has_times;

    /* guarded by the graph's lock */
    usm_list           unfinished; /* by number, ascending */
    usm__host_command *predecessor;
    /* A batch of tasks that accepts more (task.c), or NULL; in an in-order queue it is the
     * predecessor. */
    usm__host_command *batch;
    uint64_t           last_number;
    usm_status         failure; /* the first failure of a command without an event */
    size_t             waiters;
    uint64_t           awaited;  /* the lowest number that a waiter waits for             */
    pthread_cond_t     progress; /* signalled for waiters when that command has completed */

    atomic_size_t refs;
};

/* Functions of the program that belong to one command, or to none yet (task.c). */
typedef struct usm__host_chain {
    struct usm__host_fn *first, *last;
    size_t               n;
} usm__host_chain;

typedef struct usm__host_graph {
    pthread_mutex_t lock;
    usm_list        ready;
    /* the team */
    pthread_cond_t work;          /* signalled when jobs are ready, and when workers must end     */
    size_t         users;         /* contexts and queues                                          */
    unsigned       workers, idle; /* idle: workers that sleep                                     */
    bool           is_spinning;   /* one more worker is awake, polls is_ready and needs no signal */
    bool           in_child;      /* the child of a fork; fixed then                              */
    /* functions of the program (task.c) */
    size_t          tasks;        /* unfinished commands that run functions of the program */
    pthread_cond_t  quiescent;    /* signalled for the exit handler when there are none    */
    usm__host_chain unused_tasks; /* elements that are kept for the next ones             */
    /* against tasks that block */
    unsigned       in_tasks; /* workers that run functions of the program */
    uint64_t       taken;    /* number of parts taken so far              */
    bool           has_standby, is_standby_awake;
    pthread_cond_t standby;

    _Atomic(bool) is_ready;  /* `ready` is not empty: a hint for a spinning worker */
    _Atomic(bool) has_users; /* users > 0; otherwise nothing is kept for reuse     */
} usm__host_graph;

extern usm__host_graph usm__host_the_graph;

/* What a worker does without the lock.  It takes the lock once between two steps: to record how the
 * one ended, and to choose the next. */
typedef enum usm__host_step_kind {
    USM__HOST_STEP_NONE = 0,
    USM__HOST_STEP_SPIN,  /* wait a moment for commands                           */
    USM__HOST_STEP_PART,  /* run a part of the command                            */
    USM__HOST_STEP_NOTES, /* call the callbacks of the command, which is complete */
    USM__HOST_STEP_QUEUE  /* free the queue                                       */
} usm__host_step_kind;

typedef struct usm__host_step {
    usm__host_step_kind kind;
    usm__host_command  *command;
    size_t              part;
    usm_status          status; /* of the part */
    usm__host_note     *notes;
    usm__host_queue    *queue;
    /* the part is a task of a loose batch */
    usm_backend_task     task;
    struct usm__host_fn *excess; /* an element that is not kept, to be freed */
} usm__host_step;

/* queue.c: does all but SPIN.  The lock is not held. */
void usm__host_step_do(usm__host_step *s);
/* task.c: runs the task of a step.  The lock is not held. */
usm_status usm__host_batch_run(usm__host_step *s);

/* --- the lock is held ------------------------------------------------------------------------ */

/* queue.c: puts c, whose edges exist, behind its dependencies and its queue's predecessor. */
void usm__host_enter_graph(usm__host_command *c, size_t ndeps, void *const *deps, bool has_event);
/* queue.c: completes a loose batch that is closed and has no task left. */
void usm__host_end_idle(usm__host_command *c);
/* queue.c: c, which waits for nothing, has parts to be handed out again. */
void usm__host_enter_ready(usm__host_command *c);
/* task.c: takes the next task of a loose batch. */
void usm__host_batch_take(usm__host_step *s);
/* queue.c: records that the step is done; another one may follow from it, or NONE. */
void usm__host_step_done(usm__host_step *s);
/* queue.c: chooses the next part of the first command that is ready; pre: there is one. */
void usm__host_step_take_part(usm__host_step *s);
/* team.c: the caller leaves the ready commands to other workers. */
void usm__host_call_for_help(void);
/* team.c: makes sure that there is a worker; returns 0 or an errno value. */
int usm__host_have_worker(void);
/* team.c: the error message for that value. */
usm_status usm__host_no_worker(int error);

#endif
