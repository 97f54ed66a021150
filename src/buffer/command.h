/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands over buffers: launches with accessors, fills, copies.
 *
 * Submitted, a command enters the orders of its buffers (enter.c).  If all it needs is there at
 * once (its blocks in memory, no open access of the host in its way, every command before it
 * launched, device memory free), it goes straight into the user's queue (command.c).  Else it is
 * deferred (defer.c): the queue gets a place that is held, and a thread of the executor does what
 * takes time, and launches the command on a queue of the core's own.  Submitting never waits.
 *
 * Which of them gets memory when, and why they do not wait for each other for good: grant.c. */
#ifndef USM_BUFFER_COMMAND_H
#define USM_BUFFER_COMMAND_H

#include "buffer/track.h"
#include "core/command.h"

/* What a command does. */
typedef struct usm__work_ops {
    /* Queues it; ptrs[i] is the address of accessor i.  As usm_memcpy(). */
    usm_status (*submit)(const void *work, void *const *ptrs, usm_queue *q, size_t ndeps,
                         usm_event *const *deps, usm_event **ev);
    /* A copy that outlives the caller's memory; NULL and a story. */
    void *(*keep)(const void *work);
    void (*drop)(void *kept);
} usm__work_ops;

/* One accessor of a command. */
typedef struct usm__use {
    usm__order_entry     entry; /* the range in the space, the mode; link: in the order           */
    usm_buffer          *root;  /* counted                                                       */
    struct usm__command *command;
    bool                 is_empty; /* of no bytes: is in no order                              */
    /* What it holds while the command may run. */
    bool         is_pinned;
    usm__pin     pin;
    usm__extent *extent; /* NULL: none, or that of a use before it                            */
    bool         is_placed;
} usm__use;

typedef enum usm__arrival {
    USM__COMING  = 0,
    USM__AWAITED = 1, /* and somebody sleeps until it is there                                   */
    USM__THERE   = 2
} usm__arrival;

#define USM__COMMAND_USES                                                                          \
    4 /* of most commands: those are kept when they end, for the next ones                         \
       */
#define USM__COMMAND_DEPS 8

typedef struct usm__command {
    /* fixed after it entered */
    const usm__work_ops *ops;
    const void          *work; /* the caller's; deferred: kept                                   */
    usm_context         *ctx;  /* the queue's, counted by users                                   */
    size_t               index; /* of the device                                                 */
    uint64_t             queue; /* its serial                                                    */
    bool                 is_in_place;
    bool                 wants_event;
    usm_buffer_task_fn   task; /* a host task: tells of its end itself; NULL: another command    */
    void                *user;
    bool                 is_native; /* a task that the backend runs as a command of the queue   */
    uint64_t             lane;
    _Atomic(uint32_t)    refs;
    _Atomic(bool)        is_finishing;
    /* of a task: how many of its submitter, who is through with it, and its thread, which has run
     * it, are there; the second one finishes it with the outcome */
    _Atomic(uint32_t) met;
    usm_status        outcome;
    usm__completion   c, came;   /* its end; deferred: of what is before its place                */
    bool              is_taking; /* of its submitter: grant.h                                    */
    _Atomic(uint32_t) arrival;   /* usm__arrival: whether it has its place in its queue           */
    bool
        wants_watch; /* of who launched it: its completion is to be watched, when no lock is held */
    /* guarded by the lock of track.c */
    usm__waiter waiter;  /* what it waits for before it may take memory                        */
    usm_list    in_line; /* grant.c                                                           */
    usm__edge  *on_launch, *on_done;
    usm_event  *event; /* of what was launched; NULL before; counted                          */
    bool        is_done;
    bool        is_deferred;
    bool        is_rider;    /* a task without an event: its queue alone orders it (task.c)    */
    bool        is_awaited;  /* by a thread that sleeps                                        */
    bool        has_failed;  /* of a native task: it ran, or was dropped                       */
    bool        is_dropped;  /* one before it in its queue failed; read by who runs it as well */
    bool        is_watched;  /* its completion tells of its end; else who waits for it finds out */
    usm_list    to_watch;    /* in the list of those that must be from now on                   */
    bool        is_given_up; /* and freed once nobody tells it anything any more                 */
    usm_status  preceded; /* what a command before it failed with before it was launched          */
    size_t ndeps, nexpected, cap; /* events of the commands before it: had, to come, room     */
    usm_event **deps;
    /* deferred; the first three guarded by the lock of track.c */
    bool       is_ready; /* nothing is before it in its orders                                  */
    bool       is_asked; /* whether its place has come                                          */
    bool       has_come; /* it has: all is complete that stands before it                       */
    bool       is_kept;
    usm_event *end;  /* the user's event; NULL                                                    */
    usm_event *gate; /* lets what comes later in the queue go on                                 */
    usm_event *start;
    usm_queue *own; /* borrowed                                                               */
    size_t     nuses;
    void     **ptrs;
    void      *first_ptrs[USM__COMMAND_USES];
    usm_event *first_deps[USM__COMMAND_DEPS];
    usm__use   uses[];
} usm__command;

typedef struct usm__command_desc {
    const usm__work_ops *ops;
    const void          *work;
    size_t               n;
    const usm_accessor  *accessors;
    usm_buffer_task_fn   task; /* instead of `work`: a host task with `user`                     */
    void                *user;
} usm__command_desc;

extern const usm__work_ops usm__command_task_ops; /* of a task: task.c                       */
/* The short way of a native task that nobody wants an event of; q's lock `entering` is held.  On
 * failure takes c over, but with USM_E_AGAIN: not now; then it is in no order. */
usm_status usm__command_ride(usm__command *c, usm_queue *q);
/* Under the lock: c, of the same in-order queue, runs behind `before` in any case, and is dropped
 * if that fails: it needs no edge. */
bool usm__task_queue_orders(const usm__command *before, const usm__command *c);

/* As usm_queue_submit().  Accessors are checked here. */
usm_status usm__command_submit(usm_queue *q, const usm__command_desc *d, size_t ndeps,
                               usm_event *const *deps, usm_event **ev);

/* ---- between command.c, enter.c, task.c, defer.c and host.c ------------------------- */

void usm__command_unref(usm__command *c);
/* Of a task: its submitter, or the thread that has run it, is through with it. Takes a reference.
 */
void usm__command_meet(usm__command *c);
/* Enters its orders; c->is_taking: it may be placed at once.  On failure it is given up. */
usm_status usm__command_enter(usm__command *c);
/* Under the lock, which is given back meanwhile: sleeps if anything is coming that e, in no order
 * yet, would wait for.  true: it slept, and all is to be looked at once more. */
bool usm__enter_later(usm__order *o, const usm__order_entry *e);
/* It has its place in its queue: under the lock, or of a rider without. */
void usm__command_arrived(usm__command *c);
void usm__rider_arrived(usm__command *c);
/* A rider ended; under the lock. */
void usm__rider_left(void);
/* Under the lock: into the orders; out, as if it had never been in them. */
void usm__command_join_orders(usm__command *c);
void usm__command_leave_orders(usm__command *c);
/* Nobody but those it waits for knows it any more; under the lock. */
void usm__command_give_up(usm__command *c);
void usm__entering_in_child(void);
/* Under the lock: one more that will tell of its end; or it was withdrawn. */
void usm__command_set_under_way(bool is_under_way);
/* A command that c waited for was launched, or ended without: under the lock. */
void usm__command_preceded(usm__command *c, usm_event *dep, usm_status status);
/* USM_E_BUDGET: memory would never hold all that it uses. */
usm_status usm__command_check_fits(const usm__command *c, const usm_queue *q);
/* Pins and extents for all uses on q, or none.  may_wait false: USM_E_AGAIN instead of waiting. */
usm_status usm__command_place(usm__command *c, usm_queue *q, bool may_wait, usm__event_list *after);
/* The same, once more whenever other commands have given memory back. */
usm_status usm__command_place_waiting(usm__command *c, usm_queue *q, usm__event_list *after);
void       usm__command_unplace(usm__command *c);
/* Queues the work on q, behind its dependencies, `after` and `deps`.  usm__command_watch() is to
 * follow when it is launched, without a lock. */
usm_status usm__command_launch(usm__command *c, usm_queue *q, const usm__event_list *after,
                               size_t ndeps, usm_event *const *deps);
void       usm__command_watch(usm__command *c);
/* It ended so: gives back what it holds, tells who waits.  Once, whoever comes first. */
void usm__command_finish(usm__command *c, usm_status status);
/* Waits until it has ended; the caller holds a reference. */
void usm__command_await(usm__command *c);
/* Whether it has ended: its event may know before anybody was told.  The caller holds a reference.
 */
bool usm__command_has_ended(usm__command *c);
/* Somebody is to be told of its end: under the lock; and what follows, after it. */
void usm__command_want_watch(usm__command *c);
void usm__commands_watch_wanted(void);
/* How many launched commands have ended, and whether any is under way: who found memory held by
 * others asks before, and sleeps until another one has ended.  false: nothing is under way. */
uint64_t usm__commands_ended(void);
bool     usm__commands_await_end(uint64_t ended);
/* What is kept of ended commands goes back to the heap. */
void usm__commands_forget(void);
void usm__commands_fork(usm_fork_phase phase);

/* The user's queue gets its held place.  Outputs the user's event.  On failure nothing was done. */
usm_status usm__command_defer(usm__command *c, usm_queue *q, size_t ndeps, usm_event *const *deps,
                              usm_event **ev);
/* A deferred command goes its slow way.  Takes a reference over. */
void usm__command_go(usm__command *c);
/* It is granted: gets its bytes, which may take long, and is launched. */
usm_status usm__command_launch_deferred(usm__command *c);

static inline usm__use *usm__use_of(usm__order_entry *e)
{
    return usm_container_of(e, usm__use, entry);
}

#endif
