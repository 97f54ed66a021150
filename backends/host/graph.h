/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files behind the graph of commands share: queue.c (commands, order, queues), team.c (the
 * workers), task.c (functions of the program).  Nobody else includes this. */
#ifndef USM_BACKENDS_HOST_GRAPH_H
#define USM_BACKENDS_HOST_GRAPH_H

#include "internal.h"

#include <base/inline/recycle.h>

struct usm__host_queue {
    /* fixed after create */
    bool in_order, has_times;

    /* guarded by the graph's lock */
    usm_list           unfinished; /* by number, ascending */
    usm__host_command *gate;
    usm__host_command *train; /* the gate, if it takes more tasks (task.c); else NULL */
    uint64_t           last_number;
    usm_status         failure; /* the first of a command without event */
    size_t             waiters;
    uint64_t           awaited;  /* the lowest number that one of them waits for       */
    pthread_cond_t     progress; /* signalled for waiters when that one has completed  */

    atomic_size_t refs;
};

typedef struct usm__host_graph {
    pthread_mutex_t lock;
    usm_list        ready;
    /* the team */
    pthread_cond_t work;  /* signalled when jobs are ready and when workers shall end      */
    size_t         users; /* contexts and queues                                           */
    unsigned       workers, idle; /* idle: of the workers, those that sleep                  */
    bool           is_spinning;   /* one more is awake, looks at nready and needs no call        */
    bool           in_child;      /* of a fork; fixed then                                       */
    /* functions of the program (task.c) */
    size_t         tasks; /* commands of them that are not over                             */
    pthread_cond_t calm;  /* for the handler of exit(): there are none                        */
    /* against tasks that block */
    unsigned       in_tasks; /* workers that run functions of the program                     */
    uint64_t       taken;    /* parts so far                                                */
    bool           has_standby, is_standby_awake;
    pthread_cond_t standby;

    _Atomic(bool) is_ready;  /* `ready` is not empty: a hint for who spins                  */
    _Atomic(bool) has_users; /* users > 0; else nothing is kept                             */
} usm__host_graph;

extern usm__host_graph usm__host_the_graph;

/* --- the lock is held ------------------------------------------------------------------------ */

/* queue.c: puts c, whose edges are made, behind its dependencies and its queue's gate. */
void usm__host_enter_graph(usm__host_command *c, size_t ndeps, void *const *deps, bool has_event);
/* queue.c: takes the next part of the first command that is ready and runs it, without the lock. */
void usm__host_work_once(void);
/* team.c: the caller leaves whatever is ready to others. */
void usm__host_call_for_help(void);
/* team.c: there is a worker, or one is started; 0 or an errno value. */
int usm__host_have_worker(void);
/* team.c: the story for that value. */
usm_status usm__host_no_worker(int error);

#endif
