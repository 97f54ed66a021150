/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of commands share: looking at pointers, host tasks. */
#ifndef USM_CORE_COMMAND_H
#define USM_CORE_COMMAND_H

#include "core/area.h"
#include "core/queue.h"

/* What a pointer of a command is. */
typedef struct usm__place {
    usm_pool *pool;    /* whose block it is; NULL: host memory that is not libusm's        */
    bool      is_ours; /* of the queue's context, or host memory: the driver can do it   */
    bool      is_far;  /* of another context and not the host's: must be staged          */
} usm__place;

/* Checks [p, p + n) for a command `what` on q.
 *   USM_E_INVALID_POINTER  NULL, or freed
 *   USM_E_SIZE             runs over the end of its block */
usm_status usm__place_of(usm_queue *q, const char *what, const void *p, size_t n,
                         usm__place *place);

/* usm__context_probe() of q's device, which each command asks. */
static inline usm_status usm__queue_probe(usm_queue *q)
{
    if (__builtin_expect(usm_load_acquire(&q->ctx->devices[q->index].moves_data) > 0, 1))
        return USM_OK;
    return usm__context_probe(q->ctx, q->index);
}

/* What a task does.  Exactly one of fn and drop is called, and owns `user`. */
typedef struct usm__task_body {
    usm_task_fn fn;
    void (*drop)(void *user); /* a dependency failed: fn is not to run; or NULL              */
    void *user;
} usm__task_body;

/* A host task whose event is `ev`; on failure `user` stays the caller's. */
usm_status usm__task_submit(usm_queue *q, const usm__task_body *body, size_t ndeps,
                            usm_event *const *deps, usm_event **ev);

/* Whether the backend runs q's tasks itself: an in-order queue orders them like other commands. */
bool usm__queue_has_tasks(const usm_queue *q);
/* One for such a queue, without an event, whose fn tells of failures itself and returns USM_OK. */
usm_status usm__task_post(usm_queue *q, const usm__task_body *body);

/* Keeps a place in the queue: *start is complete when what will fill it may begin; what comes later
 * in order, and usm_queue_wait(), wait until `gate`, a user event of the queue's context, is
 * signalled.
 */
usm_status usm__queue_hold(usm_queue *q, void *gate, size_t ndeps, usm_event *const *deps,
                           void **start);

/* Checks [p, p + n) of host memory for a command `what`, without a queue.
 *   USM_E_INVALID_POINTER  freed lately and gone; with USM_VALIDATION any memory that is none */
usm_status usm__place_host(const char *what, const void *p, size_t n);

/* A marker that waits for its dependencies and for what must come before: also in
 * an out-of-order queue without any never for all earlier commands. */
usm_status usm__marker(usm_queue *q, size_t ndeps, void *const *deps, void **ev);
/* Nothing but dependencies: for empty commands. */
usm_status usm__submit_nothing(usm_queue *q, size_t ndeps, usm_event *const *deps, usm_event **ev);

/* Frees `p` (with usm_free, or the heap when `is_heap`) once `native` is complete;
 * takes the reference of `native` over, and frees after waiting when it cannot. */
void usm__free_after(usm_context *ctx, void *native, void *p, bool is_heap);

#endif
