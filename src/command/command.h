/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files that implement commands: pointer resolution, host tasks. */
#ifndef USM_COMMAND_COMMAND_H
#define USM_COMMAND_COMMAND_H

#include "command/queue.h"
#include "heap/area.h"

/* What a pointer of a command refers to. */
typedef struct usm__pointer {
    usm_pool *pool;    /* the pool of its block; NULL: host memory that is not libusm's    */
    bool      is_ours; /* of the queue's context, or host memory: the driver can access it */
    bool      is_far;  /* of another context and not host memory, or managed memory that the
                          driver cannot reach: must be staged */
} usm__pointer;

/* Resolves and checks [p, p + n) for a command `what` on q.
 *   USM_E_INVALID_POINTER  NULL, or freed
 *   USM_E_SIZE             runs over the end of its block */
usm_status usm__pointer_of(usm_queue *q, const char *what, const void *p, size_t n,
                           usm__pointer *pointer);

/* usm__queue_probe_device() of q's device.  Every command calls it. */
static inline usm_status usm__queue_probe(usm_queue *q)
{
    if (__builtin_expect(
            usm_load_acquire(&q->ctx->devices[q->index].moves_data) == USM__PROBE_MOVES, 1))
        return USM_OK;
    return usm__queue_probe_device(q->ctx, q->index);
}

/* The body of a task.  Exactly one of fn and drop is called, and owns `user`. */
typedef struct usm__task_body {
    usm_task_fn fn;
    void (*drop)(void *user); /* called if a dependency failed, instead of fn; may be NULL */
    void *user;
} usm__task_body;

/* Submits a host task whose event is `ev`; on failure the caller keeps `user`. */
usm_status usm__task_submit(usm_queue *q, const usm__task_body *body, size_t ndeps,
                            usm_event *const *deps, usm_event **ev);

/* True if the backend runs q's tasks itself: an in-order queue orders them like other commands. */
bool usm__queue_has_tasks(const usm_queue *q);
/* Submits a task to such a queue, without an event.  Its fn reports failures itself and returns
 * USM_OK. */
usm_status usm__task_post(usm_queue *q, const usm__task_body *body);

/* Reserves a position in the queue for a command that is submitted later.  *start completes when
 * that command may begin.  Later commands of an in-order queue, and usm_queue_wait(), wait until
 * `gate`, a user event of the queue's context, is signalled. */
usm_status usm__queue_hold(usm_queue *q, void *gate, size_t ndeps, usm_event *const *deps,
                           void **start);

/* Checks [p, p + n) of host memory for a command `what`, without a queue.
 *   USM_E_INVALID_POINTER  recently freed; with USM_VALIDATION also any address that is not
 *                          accessible memory */
usm_status usm__pointer_host(const char *what, const void *p, size_t n);

/* Fills host memory with whole patterns. */
void usm__repeat_pattern(void *dst, const void *pattern, size_t pattern_size, size_t size);

/* A marker that waits for its dependencies and for everything that must come before it.  In an
 * out-of-order queue, even without dependencies, it never waits for all earlier commands. */
usm_status usm__marker(usm_queue *q, size_t ndeps, void *const *deps, void **ev);
/* Submits only dependencies: for empty commands. */
usm_status usm__submit_nothing(usm_queue *q, size_t ndeps, usm_event *const *deps, usm_event **ev);

/* Frees `p` (with usm_free, or to the heap if `is_heap`) when `native` has completed.  Takes over
 * the reference of `native`.  If it cannot do so later, it waits and frees at once. */
void usm__free_after(usm_context *ctx, void *native, void *p, bool is_heap);
/* As usm__submit_end(); frees `p` in the same way when the commands have completed. */
usm_status usm__submit_end_and_free(usm__submit *s, usm_status st, void *p, bool is_heap);

#endif
