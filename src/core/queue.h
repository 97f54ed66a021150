/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues inside, and the frame in which every command is submitted. */
#ifndef USM_CORE_QUEUE_H
#define USM_CORE_QUEUE_H

#include "core/event.h"

struct usm__async_queue;

/* What an in-order queue is known to come after: commands of other in-order queues. */
#define USM__QUEUE_SEEN 8
typedef struct usm__queue_seen {
    uint64_t serial, position;
} usm__queue_seen;

struct usm_queue {
    usm__magic_word magic;
    /* As usm_pool.alloc_slot, of the default pools of its device by usm_kind; kept by stale
     * handles, 0 then. */
    _Atomic(uint8_t)    alloc_slots[4];
    const usm__backend *be;
    void               *native;
    usm_context        *ctx;   /* counted by users                                       */
    size_t              index; /* of the device in the context                         */
    usm_device         *dev;
    uint32_t            flags;
    bool                is_internal; /* the library's: not the caller's to destroy     */
    bool                is_own;      /* the context's: it ends with it, in no list      */
    _Atomic(uint32_t)   refs;        /* the owner, who waits for it, its last command   */
    usm_list            link;        /* in ctx->queues, until the last reference        */
    uint64_t            serial;      /* of all queues of the process: never reused        */
    usm__mutex          lock;        /* in-order queues: commands of several parts stay together */
    usm__mutex          entering;  /* src/buffer's: its commands of an in-order queue come singly */
    _Atomic(uint64_t)   submitted; /* commands                                          */
    _Atomic(uint64_t)   ended;     /* as many of them are known to have ended           */
    _Atomic(bool)       is_shared; /* over a native queue, whose owner queues as well   */
    void               *probe;     /* a marker behind probe_at commands, or NULL; guarded by lock */
    uint64_t            probe_at;
    usm__queue_seen     seen[USM__QUEUE_SEEN]; /* guarded by lock                         */
    unsigned            seen_hand;             /* the entry that is forgotten next          */
    /* src/async's: what the queue freed; NULL until first needed, gone with it */
    _Atomic(struct usm__async_queue *) async;
    usm__completion last; /* for queues destroyed with work in flight               */
};

usm_status         usm__queue_check(usm_queue *q);
static inline bool usm__queue_in_order(const usm_queue *q)
{
    return (q->flags & USM_QUEUE_OUT_OF_ORDER) == 0;
}
usm_status usm__queue_make(usm_context *ctx, size_t index, uint32_t flags, usm_queue **q);
/* The context's own, in order.  It does not count as a user of its context, which
 * ends it when the last user has gone: work in flight may need it until then. */
usm_status usm__queue_make_own(usm_context *ctx, size_t index, usm_queue **q);
void       usm__queue_end_own(usm_queue *q);
void       usm__queue_retire(usm_queue *q);
/* Goes over the queues of a context, those that end included: the one behind `q`
 * (NULL: the first) with a reference; q's is given back. */
usm_queue *usm__queue_next(usm_context *ctx, usm_queue *q);
/* For who found q in a list of his own that usm__queue_retired() empties. False: it ends. */
bool usm__queue_ref(usm_queue *q);
void usm__queue_unref(usm_queue *q);

/* An event behind all that was submitted to an in-order queue, and how many commands that is. */
usm_status usm__queue_mark(usm_queue *q, void **native, uint64_t *position);
/* Later commands of an in-order queue come after `native`, which is behind `position` commands of
 * the in-order queue `serial`. */
usm_status usm__queue_come_after(usm_queue *q, void *native, uint64_t serial, uint64_t position);
/* How many commands of the queue `serial` later commands of q are known to come after. */
uint64_t usm__queue_follows(usm_queue *q, uint64_t serial);
/* The number of commands that a free comes after which is queued now. */
static inline uint64_t usm__queue_position(usm_queue *q)
{
    /* Who shares the native queue may have queued work of his own: what is marked before this does
     * not cover it. */
    if (__builtin_expect(usm_load_relaxed(&q->is_shared), 0))
        return usm_add_release(&q->submitted, (uint64_t)1) + 1;
    return usm_load_acquire(&q->submitted);
}

/* Hook point of src/buffer: somebody is about to wait for q; no lock is held. */
extern void (*usm__queue_waiting)(usm_queue *q);
/* Hook points of src/async, filled by src/usm.c; no lock is held. */
/* All of q's first `position` commands have ended; the queue was waited for. */
extern void (*usm__queue_waited)(usm_queue *q, uint64_t position);
/* All of q's commands have ended, and its last user has gone: before the backend's part goes. */
extern void (*usm__queue_retired)(usm_queue *q);

/* Waits for all that was submitted; the caller keeps q alive. */
usm_status usm__queue_finish(usm_queue *q);

/* One submission: begin checks queue and dependencies and locks an in-order
 * queue; any number of backend commands follow; end unlocks, releases the
 * dependencies, and wraps or watches the last command's event.
 *
 *     usm__submit s;
 *     usm_status  st = usm__submit_begin(&s, q, ndeps, deps, ev);
 *
 *     if (st == USM_OK)
 *         st = usm__submit_end(&s, usm__be_copy(q->be, q->native, ..., USM__SUBMIT_ARGS(&s)));
 */
typedef struct usm__submit {
    usm_queue  *q;
    usm__deps   deps;
    usm_event **out;
    usm_event  *event;        /* made for *out before anything is queued                     */
    void       *native;       /* the event of the last command                               */
    void       *linked;       /* what a chained command depends on                           */
    bool        want;         /* whether the next command's event is wanted                   */
    bool        has_no_times; /* it is a host task's                                        */
} usm__submit;

#define USM__SUBMIT_ARGS(s) (s)->deps.n, (s)->deps.native, ((s)->want ? &(s)->native : NULL)

usm_status usm__submit_begin(usm__submit *s, usm_queue *q, size_t ndeps, usm_event *const *deps,
                             usm_event **ev);
/* The same for a queue that was just checked. */
usm_status usm__submit_open(usm__submit *s, usm_queue *q, size_t ndeps, usm_event *const *deps,
                            usm_event **ev);
/* Returns `status` when it is a failure. */
usm_status usm__submit_end(usm__submit *s, usm_status status);

/* Several commands in one submission: before each, _want says whether it is the
 * last; between two, _chain makes the next depend on the one before.  So also in an
 * in-order queue: there a failure stops only what depends on it. */
void usm__submit_want(usm__submit *s, bool is_last);
void usm__submit_chain(usm__submit *s);
/* A native event for the end of the last command, which is queued: of its own, as the
 * caller may release the command's at any time.  NULL when it cannot be made. */
void *usm__submit_last(usm__submit *s);

#endif
