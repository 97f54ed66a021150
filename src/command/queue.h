/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Internals of queues, and the steps by which every command is submitted. */
#ifndef USM_COMMAND_QUEUE_H
#define USM_COMMAND_QUEUE_H

#include "command/event.h"

struct usm__async_queue;

/* The serial number of the queue whose host task the thread runs; 0: it runs none. */
extern USM__THREAD_LOCAL uint64_t usm__task_queue;

/* Commands of other in-order queues that later commands of an in-order queue are known to
 * follow. */
#define USM__QUEUE_SEEN 8
typedef struct usm__queue_seen {
    uint64_t serial, position;
} usm__queue_seen;

struct usm_queue {
    usm__magic_word magic;
    /* As usm_pool.alloc_slot, for the default pools of its device by usm_kind; stale handles keep
     * them, as 0. */
    _Atomic(uint8_t)    alloc_slots[4];
    const usm__backend *be;
    void               *native;
    usm_context        *ctx;   /* held as a user               */
    size_t              index; /* of the device in the context */
    usm_device         *dev;
    uint32_t            flags;
    bool                is_internal; /* owned by the library: the caller may not destroy it   */
    bool                is_own;      /* owned by the context: ends with it, and is in no list */
    _Atomic(uint32_t)   refs;        /* the owner, threads that wait for it, its last command */
    usm_list            link;        /* in ctx->queues, until the last reference is released  */
    uint64_t            serial;      /* unique in the process, never reused                   */
    usm__mutex          lock;        /* in-order queues: keeps the commands of one submission
                                        together */
    usm__mutex          entering;  /* for src/buffer: its commands enter an in-order queue one at a
                                      time */
    _Atomic(uint64_t)   submitted; /* number of commands                                          */
    _Atomic(uint64_t)   ended;     /* how many of them are known to have ended                    */
    _Atomic(bool)       is_shared; /* over a native queue, whose owner may queue commands as well;
                                      set with the lock held                                      */
    void               *probe;     /* a marker behind probe_at commands, or NULL; guarded by lock */
    uint64_t            probe_at;
    usm__queue_seen     seen[USM__QUEUE_SEEN]; /* guarded by lock               */
    unsigned            seen_hand;             /* the entry to be replaced next */
    /* blocks that the queue freed, for src/async; NULL until first needed; freed with the queue */
    _Atomic(struct usm__async_queue *) async;
    usm__completion last; /* for a queue that is destroyed with commands in flight */
};

/* Of the process; atomic, each member. */
typedef struct usm__queues_state {
    _Atomic(usm_queue *) by_default; /* written with the lock held under which the default context
                                        ends */
    _Atomic(uint64_t)    serials;    /* the last one given                                      */
    _Atomic(size_t)      awaited;    /* events from outside: outside.c                          */
    _Atomic(unsigned)    validation; /* the value of the setting: pointer.c                     */
} usm__queues_state;
extern usm__queues_state usm__queues __attribute__((visibility("hidden")));

usm_status         usm__queue_check(usm_queue *q);
static inline bool usm__queue_in_order(const usm_queue *q)
{
    return (q->flags & USM_QUEUE_OUT_OF_ORDER) == 0;
}
usm_status usm__queue_make(usm_context *ctx, size_t index, uint32_t flags, usm_queue **q);
/* A queue of the context's own, in order.  It is not a user of the context.  The context ends it
 * when the last user has gone, because commands in flight may need it until then. */
usm_status usm__queue_make_own(usm_context *ctx, size_t index, usm_queue **q);
void       usm__queue_end_own(usm_queue *q);
void       usm__queue_retire(usm_queue *q);
/* Iterates over the queues of a context, including those that are ending.  Returns the one after
 * `q` (NULL: the first) with a reference, and releases that of q. */
usm_queue *usm__queue_next(usm_context *ctx, usm_queue *q);
/* For callers that found q in a list which the hook queue_retired empties.  False: q is ending. */
bool usm__queue_ref(usm_queue *q);
void usm__queue_unref(usm_queue *q);

/* Makes an event behind all commands submitted to an in-order queue; *position is their number. */
usm_status usm__queue_mark(usm_queue *q, void **native, uint64_t *position);
/* Orders later commands of an in-order queue after `native`, which is behind `position` commands of
 * the in-order queue `serial`. */
usm_status usm__queue_come_after(usm_queue *q, void *native, uint64_t serial, uint64_t position);
/* How many commands of the queue `serial` are known to precede later commands of q. */
uint64_t usm__queue_follows(usm_queue *q, uint64_t serial);
/* The number of commands that precede a free which is queued now. */
static inline uint64_t usm__queue_position(usm_queue *q)
{
    /* The owner of a shared native queue may have queued commands of its own, which an earlier
     * marker does not cover. */
    if (__builtin_expect(usm_load_relaxed(&q->is_shared), 0))
        return usm_add_release(&q->submitted, (uint64_t)1) + 1;
    return usm_load_acquire(&q->submitted);
}

/* ---- a context's own queues: context_queues.c ---- */
/* The queue is created at its first use; NULL with an error message. */
usm_queue *usm__queue_own(usm_context *ctx, size_t index, usm__context_own_queue which);
/* Lends one of the core's own queues to a single user, which holds the context until it returns the
 * queue, with all its commands ended.  NULL with an error message. */
usm_queue *usm__queue_borrow(usm_context *ctx, size_t index);
void       usm__queue_return(usm_queue *q);
/* Once for each device: copies 64 bytes there and back.  USM_E_NO_DATA_MOVED. */
usm_status usm__queue_probe_device(usm_context *ctx, size_t index);
/* The default context ends, and with it the default queue. */
void usm__queue_forget_default(void);
/* The owner of a context no longer owns its queues; its last user has gone. */
void usm__queues_retire(usm_context *ctx);
void usm__queues_end(usm_context *ctx);

/* Without waiting, asks the driver which commands have ended, and writes it in q->ended.  A marker is
 * kept behind the commands in flight, one at a time: repeat it.  The caller keeps q alive. */
void usm__queue_poll_ended(usm_queue *q);

/* Whether all commands submitted so far are known to have ended; what they did is then visible. */
bool usm__queue_is_idle(usm_queue *q);

/* Waits for all submitted commands; the caller keeps q alive. */
usm_status usm__queue_finish(usm_queue *q);

/* One submission.  _begin checks the queue and the dependencies, and locks an in-order queue.  Any
 * number of backend commands follow.  _end unlocks, releases the dependencies, and wraps the event
 * of the last command, or registers a report of its failure.
 *
 *     usm__submit s;
 *     usm_status  st = usm__submit_begin(&s, q, ndeps, deps, ev);
 *
 *     if (st == USM_OK)
 *         st = usm__submit_end(&s, usm__be_copy(q->be, q->native, ..., USM__SUBMIT_ARGS(&s))); */
typedef struct usm__submit {
    usm_queue  *q;
    usm__deps   deps;
    usm_event **out;
    usm_event  *event;        /* made for *out before anything is queued */
    void       *native;       /* event of the last command               */
    void       *linked;       /* event that a chained command depends on */
    bool        want;         /* whether the next command needs an event */
    bool        has_no_times; /* the command is a host task              */
} usm__submit;

#define USM__SUBMIT_ARGS(s) (s)->deps.n, (s)->deps.native, ((s)->want ? &(s)->native : NULL)

usm_status usm__submit_begin(usm__submit *s, usm_queue *q, size_t ndeps, usm_event *const *deps,
                             usm_event **ev);
/* The same for a queue that was just checked. */
usm_status usm__submit_open(usm__submit *s, usm_queue *q, size_t ndeps, usm_event *const *deps,
                            usm_event **ev);
/* Returns `status` if it is a failure. */
usm_status usm__submit_end(usm__submit *s, usm_status status);

/* Several commands in one submission: before each, _want states whether it is the last; between
 * two, _chain makes the next depend on the previous one.  An in-order queue needs this as well,
 * because a failure there stops only dependent commands. */
void usm__submit_want(usm__submit *s, bool is_last);
void usm__submit_chain(usm__submit *s);
/* Returns a native event for the end of the last command, which is queued.  It is a separate event,
 * because the caller may release the command's event at any time.  NULL: it cannot be made. */
void *usm__submit_last(usm__submit *s);

#endif
