/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of commands share: looking at pointers, host tasks. */
#ifndef USM_CORE_COMMAND_H
#define USM_CORE_COMMAND_H

#include "core/area.h"
#include "core/queue.h"

/* What a pointer of a command is. */
typedef struct usm__place {
    usm__area *area;    /* NULL: host memory that is not libusm's                        */
    bool       is_ours; /* of the queue's context, or host memory: the driver can do it   */
    bool       is_far;  /* of another context and not the host's: must be staged          */
} usm__place;

/* Checks [p, p + n) for a command `what` on q.
 *   USM_E_INVALID_POINTER  NULL, or freed
 *   USM_E_SIZE             runs over the end of its block */
usm_status usm__place_of(usm_queue *q, const char *what, const void *p, size_t n,
                         usm__place *place);

/* A host task whose event is `ev`; the fn owns `user` from then on. */
usm_status usm__task_submit(usm_queue *q, usm_task_fn fn, void *user, size_t ndeps,
                            usm_event *const *deps, usm_event **ev);

/* Nothing but dependencies: for empty commands. */
usm_status usm__submit_nothing(usm_queue *q, size_t ndeps, usm_event *const *deps, usm_event **ev);

/* Frees `p` (with usm_free, or the heap when `is_heap`) once `native` is complete;
 * takes the reference of `native` over, and frees after waiting when it cannot. */
void usm__free_after(usm_context *ctx, void *native, void *p, bool is_heap);

#endif
