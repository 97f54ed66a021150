/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues inside, and the frame in which every command is submitted. */
#ifndef USM_CORE_QUEUE_H
#define USM_CORE_QUEUE_H

#include "core/event.h"

struct usm_queue {
    usm__magic_word     magic;
    const usm__backend *be;
    void               *native;
    usm_context        *ctx;   /* counted by users                                       */
    size_t              index; /* of the device in the context                         */
    usm_device         *dev;
    uint32_t            flags;
    bool                is_internal; /* the library's own: not the caller's to destroy  */
    usm_list            link;        /* in ctx->queues                                 */
    usm__mutex          lock;        /* in-order queues: commands of several parts stay together */
    _Atomic(uint64_t)   submitted;   /* commands                                          */
    _Atomic(uint64_t)   ended;       /* as many of them are known to have ended           */
    _Atomic(bool)       is_shared;   /* over a native queue, whose owner queues as well   */
    void               *probe; /* a marker behind probe_at commands, or NULL; guarded by lock */
    uint64_t            probe_at;
    usm__completion     last; /* for queues destroyed with work in flight               */
};

usm_status         usm__queue_check(usm_queue *q);
static inline bool usm__queue_in_order(const usm_queue *q)
{
    return (q->flags & USM_QUEUE_OUT_OF_ORDER) == 0;
}
/* Creation with flags; internal queues are the core's. */
usm_status usm__queue_make(usm_context *ctx, size_t index, uint32_t flags, usm_queue **q);
void       usm__queue_retire(usm_queue *q);

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
    usm_event  *event;  /* made for *out before anything is queued                     */
    void       *native; /* the event of the last command                               */
    void       *linked; /* what a chained command depends on                           */
    bool        want;   /* whether the next command's event is wanted                   */
} usm__submit;

#define USM__SUBMIT_ARGS(s) (s)->deps.n, (s)->deps.native, ((s)->want ? &(s)->native : NULL)

usm_status usm__submit_begin(usm__submit *s, usm_queue *q, size_t ndeps, usm_event *const *deps,
                             usm_event **ev);
/* Returns `status` when it is a failure. */
usm_status usm__submit_end(usm__submit *s, usm_status status);

/* Several commands in one submission: before each, _want says whether it is the
 * last (in an out-of-order queue the others need events too); between two, _chain
 * makes the next depend on the one before. */
void usm__submit_want(usm__submit *s, bool is_last);
void usm__submit_chain(usm__submit *s);

#endif
