/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands over buffers: launches with accessors, fills, copies.
 *
 * When it is submitted, a command enters the orders of its buffers (enter.c).  If everything it
 * needs is available at once (its blocks are in memory, no open access of the host conflicts, every
 * command before it is launched, device memory is free), it goes directly into the user's queue
 * (command.c).  Else it is deferred (defer.c): it gets its place in the user's queue, in which
 * later commands wait, and a thread of the executor does the slow part and launches the command on
 * a queue of the core's own.  Submitting never waits.
 *
 * grant.c decides when a command gets its memory, and explains why commands never wait for each
 * other for good. */
#ifndef USM_BUFFER_COMMAND_H
#define USM_BUFFER_COMMAND_H

#include "base/assert.h"
#include "buffer/track.h"
#include "command/command.h"

/* The operations of a kind of command. */
typedef struct usm__work_ops {
    /* Queues the work; ptrs[i] is the address of accessor i.  As usm_memcpy(). */
    usm_status (*submit)(const void *work, void *const *ptrs, usm_queue *q, size_t ndeps,
                         usm_event *const *deps, usm_event **ev);
    /* Makes a copy that outlives the caller's memory; NULL with an error message. */
    void *(*keep)(const void *work);
    void (*drop)(void *kept);
    /* Does the work on the calling thread, in host memory; NULL: only `submit` can.  Called for a
     * few KiB that nothing has to be waited for. */
    void (*at_once)(const void *work, void *const *ptrs);
} usm__work_ops;

/* One accessor of a command. */
typedef struct usm__use {
    usm__track_order_entry entry; /* range in the space, mode; link: in the order */
    usm_buffer            *root;  /* counted                                      */
    struct usm__command   *command;
    bool                   is_empty; /* it has no bytes, and is in no order                      */
    /* held while the command may run */
    bool         is_pinned;
    usm__pin     pin;
    usm__extent *extent; /* NULL: none, or the one of an earlier use                          */
    bool         is_placed;
} usm__use;

/* command_state.c draws the transitions. */
typedef enum usm__command_state {
    USM__COMMAND_NEW = 0,   /* in no order */
    USM__COMMAND_TAKING,    /* in its orders; takes its memory and place in the queue at once, or is
                            done at once */
    USM__COMMAND_DEFERRING, /* in its orders; gets its place in the queue without memory      */
    /* deferred, in the line for memory (grant.c) */
    USM__COMMAND_BLOCKED, /* accesses before it have neither ended nor been launched       */
    USM__COMMAND_READY,   /* none are before it                                            */
    USM__COMMAND_ARMED,   /* the same, and its completion `came` is armed                  */
    USM__COMMAND_REACHED, /* the same, and all before its place in the queue is complete   */
    USM__COMMAND_GRANTED, /* out of the line: gets its memory                              */
    /* a task that its queue alone orders (task.c) */
    USM__COMMAND_POSTING,  /* in its orders; has no place in the queue yet                  */
    USM__COMMAND_EXPECTED, /* the same, and a thread sleeps until it has                    */
    USM__COMMAND_POSTED,
    /* it has the driver's event */
    USM__COMMAND_LAUNCHED, /* those who wait for its end find it out themselves            */
    USM__COMMAND_WATCHED,  /* its completion reports its end                               */
    USM__COMMAND_DONE,
    USM__COMMAND_WITHDRAWN /* not submitted: freed when nothing refers to it any more      */
} usm__command_state;

#define USM__COMMAND_USES                                                                          \
    4 /* uses of most commands; commands of this size are kept for reuse                           \
       */
#define USM__COMMAND_DEPS 8

typedef struct usm__command {
    /* fixed once it has entered the orders */
    const usm__work_ops *ops;
    const void          *work;  /* the caller's; `kept` if deferred */
    usm_context         *ctx;   /* the queue's, counted by users    */
    size_t               index; /* of the device                                                 */
    uint64_t             queue; /* serial number of the queue                                    */
    bool                 is_in_place;
    bool                 wants_event;
    usm_buffer_task_fn   task; /* a host task: it reports its end itself; NULL: another command  */
    void                *user;
    bool                 is_native; /* a task that the backend runs as a command of the queue   */
    uint64_t             lane;
    _Atomic(uint32_t)    refs;
    _Atomic(bool)        is_finishing; /* claimed by the thread that ends it: any of up to three */
    /* of a task: how many of two threads, the submitter and the one that runs the task, are done
     * with it; the second one finishes it with the outcome */
    _Atomic(uint32_t) met;
    usm_status        outcome;
    usm__completion   c, came; /* its own; if deferred: of all before its place */
    /* A usm__command_state, changed under the lock of track.c by usm__command_become().  One change
     * is made without it: the submitter of a task that becomes POSTED. */
    _Atomic(uint32_t) state;
    /* Not a state, because another thread may change that first: its launcher must call
     * usm__command_watch(), without a lock. */
    bool wants_watch;
    /* guarded by the lock of track.c */
    usm__waiter waiter;  /* the accesses that must end or be launched before it may take memory */
    usm_list    in_line; /* grant.c                                                             */
    usm__edge  *on_launch, *on_done;
    usm_event  *event;    /* of the launched work; NULL before; counted                          */
    usm_list    to_watch; /* in the list of commands whose completion must be armed           */
    /* In any state before DONE: a thread sleeps until its end. */
    bool is_awaited;
    /* Of a native task, which may run before its submitter knows that it is launched: it ran and
     * failed, or was dropped; a task before it in its queue failed (read by its thread, too). */
    bool       has_failed, is_dropped;
    usm_status preceded; /* the status of a command before it that failed before its launch      */
    size_t     ndeps, nexpected, cap; /* events of the commands before it: had, to come, capacity */
    usm_event **deps;
    /* if deferred; else NULL */
    void      *kept;     /* a copy of the caller's work                                         */
    usm_event *end;      /* the user's event; NULL: not wanted                        */
    usm_event *deferral; /* keeps back later commands of the queue until it completes */
    usm_event *start;
    usm_queue *own; /* borrowed queue of the context                                          */
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
    usm_buffer_task_fn   task; /* instead of `work`: a host task, called with `user`             */
    void                *user;
} usm__command_desc;

extern const usm__work_ops usm__command_task_ops; /* of a task: task.c                       */
/* The short way of a native task whose event nobody wants; q's lock `entering` is held.  On failure
 * it frees c, except with USM_E_AGAIN: then c is in no order, and takes the usual way. */
usm_status usm__command_post(usm__command *c, usm_queue *q);
/* Under the lock: whether c, of the same in-order queue, runs after `before` in any case, and is
 * dropped if that fails: then it needs no edge. */
bool usm__buffer_task_orders(const usm__command *before, const usm__command *c);

/* As usm_queue_submit().  Accessors are checked here. */
usm_status usm__command_submit(usm_queue *q, const usm__command_desc *d, size_t ndeps,
                               usm_event *const *deps, usm_event **ev);

/* ---- between command.c, enter.c, task.c, defer.c and host.c ------------------------- */

void usm__command_unref(usm__command *c);
/* Of a task: its submitter, or the thread that has run it, is done with it.  Consumes a
 * reference. */
void usm__command_meet(usm__command *c);
/* Enters the orders: it is TAKING if it may take memory at once, else DEFERRING.  On failure it is
 * WITHDRAWN. */
usm_status usm__command_enter(usm__command *c);
/* Under the lock, which is released meanwhile: sleeps if any command that e, in no order yet, would
 * wait for has no place in its queue yet.  true: it slept, and the caller must check everything
 * again. */
bool usm__enter_later(usm__track_order *o, const usm__track_order_entry *e);
/* A command has its place in its queue: under the lock; of a task that its queue alone orders:
 * without it. */
void usm__command_arrived(void);
void usm__command_posted(usm__command *c);
/* Such a task ended; under the lock. */
void usm__posted_left(void);
/* Under the lock: enters the orders; leaves them as if it had never been in them. */
void usm__command_join_orders(usm__command *c);
void usm__command_leave_orders(usm__command *c);
/* Only commands that it waits for still refer to it; under the lock. */
void usm__command_give_up(usm__command *c);
void usm__entering_in_child(void);
/* Under the lock: counts a command that will report its end, or discounts one that was
 * withdrawn. */
void usm__command_set_under_way(bool is_under_way);
/* Under the lock: a command that c waited for was launched, or ended without a launch. */
void usm__command_preceded(usm__command *c, usm_event *dep, usm_status status);
/* USM_E_BUDGET: memory can never hold all that it uses. */
usm_status usm__command_check_fits(const usm__command *c, const usm_queue *q);
/* Takes pins and extents for all uses on q, or none.  may_wait false: USM_E_AGAIN instead of
 * waiting. */
usm_status usm__command_place(usm__command *c, usm_queue *q, bool may_wait,
                              usm__locations_events *after);
/* The same, repeated whenever other commands have released memory. */
usm_status usm__command_place_waiting(usm__command *c, usm_queue *q, usm__locations_events *after);
void       usm__command_unplace(usm__command *c);
/* Queues the work on q, after its dependencies, `after` and `deps`.  When it is launched the caller
 * must call usm__command_watch(), without a lock. */
usm_status usm__command_launch(usm__command *c, usm_queue *q, const usm__locations_events *after,
                               size_t ndeps, usm_event *const *deps);
void       usm__command_watch(usm__command *c);
/* The command ended with that status: releases what it holds and notifies those who wait.  Only the
 * first call has an effect. */
void usm__command_finish(usm__command *c, usm_status status);
/* Waits until it has ended; the caller holds a reference. */
void usm__command_await(usm__command *c);
/* Whether it has ended: its event may be complete before anybody was notified.  The caller holds a
 * reference. */
bool usm__command_has_ended(usm__command *c);
/* Requests a notification of its end.  The first under the lock; the second afterwards, without
 * it. */
void usm__command_want_watch(usm__command *c);
void usm__commands_watch_wanted(void);
/* How many launched commands have ended, and whether any is under way.  A thread that finds memory
 * held by others reads the number first, and sleeps until another command has ended.  false:
 * nothing is under way. */
uint64_t usm__commands_ended(void);
bool     usm__commands_await_end(uint64_t ended);
/* Returns the memory that is kept of ended commands to the heap. */
void usm__commands_forget(void);
void usm__commands_fork(usm_fork_phase phase);

/* Gives the command its place in the user's queue.  Outputs the user's event.  On failure nothing
 * was done. */
usm_status usm__command_defer(usm__command *c, usm_queue *q, size_t ndeps, usm_event *const *deps,
                              usm_event **ev);
/* Starts the slow way of a deferred command.  Consumes a reference. */
void usm__command_go(usm__command *c);
/* The command was granted its memory: gets its bytes, which may take long, and is launched. */
usm_status usm__command_launch_deferred(usm__command *c);

/* command_state.c: under the lock; whether the change is allowed and c may be in that state. */
bool usm__command_is_valid(const usm__command *c, usm__command_state from, usm__command_state to);

/* With or without the lock: another thread may change it meanwhile, unless the state is one that
 * only the caller ends. */
static inline usm__command_state usm__command_state_of(const usm__command *c)
{
    return (usm__command_state)usm_load_acquire(&c->state);
}

/* Under the lock.  Release: what an entering thread does after it saw that the command has its
 * place in its queue comes after it there. */
static inline void usm__command_become(usm__command *c, usm__command_state to)
{
    usm_assert(usm__command_is_valid(c, usm__command_state_of(c), to));
    usm_store_release(&c->state, (uint32_t)to);
}

/* It ended, or was never submitted. */
static inline bool usm__command_is_over(const usm__command *c)
{
    return usm__command_state_of(c) >= USM__COMMAND_DONE;
}

/* A task without an event, which its queue alone orders, in no end state. */
static inline bool usm__command_is_posted(const usm__command *c)
{
    usm__command_state s = usm__command_state_of(c);

    return s >= USM__COMMAND_POSTING && s <= USM__COMMAND_POSTED;
}

static inline usm__use *usm__use_of(usm__track_order_entry *e)
{
    return usm_container_of(e, usm__use, entry);
}

#endif
