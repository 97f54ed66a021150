/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands held back until the user events before them are signalled: what backends over a driver
 * share.  Compiled into each of them; gate.c tells why drivers never see a user event.
 *
 * A backend embeds gate_context, gate_queue, gate_event and gate_command as the FIRST member of its
 * own objects, and fills a gate_ops.  Objects are counted; the last reference frees them through
 * the ops.
 *
 * An event is pending (a user event, or a command that the driver has not yet), then native (the
 * backend's part of the event knows its end) or settled (`status` is the answer).
 *
 * Locks: a context's `lock` is the only one here.  ops are called with it held where said, so they
 * may call the driver, but nothing of the core and nothing here that takes it. */
#ifndef USM_BACKENDS_COMMON_GATE_H
#define USM_BACKENDS_COMMON_GATE_H

#include "base/inline/atomic.h"
#include "base/inline/list.h"
#include "base/inline/recycle.h"

#include <pthread.h>
#include <usm/backend.h>

typedef struct gate_ops     gate_ops;
typedef struct gate_context gate_context;
typedef struct gate_queue   gate_queue;
typedef struct gate_event   gate_event;
typedef struct gate_command gate_command;

struct gate_context {
    /* fixed after create */
    const gate_ops     *ops;
    const usm_host_api *host;
    /* atomic */
    _Atomic size_t refs; /* the core's, and one of each queue                            */
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t  changed; /* some event was settled                                   */
    usm_list        holding; /* queues with held commands                                */
    /* What was given back, for the next one: a command like one before takes nothing from the heap
     */
    usm_recycler events;
    usm_recycler notes; /* of GATE_NOTE_SIZE: who is to be told of an event               */
};

#define GATE_NOTE_SIZE ((size_t)64)

struct gate_queue {
    /* fixed after create */
    gate_context *ctx;
    bool          is_ordered; /* in-order: everything behind a held command is held too  */
    /* atomic */
    _Atomic size_t refs;    /* the core's, and one of each held command                  */
    _Atomic size_t nheld;   /* commands in `held`; written with the lock                 */
    _Atomic int    failure; /* first status of a command that had no event               */
    /* guarded by the context's lock */
    pthread_cond_t drained; /* broadcast when `held` becomes empty: not the context's `changed`,
                             * which wakes at each event that ends                               */
    usm_list       held;
    size_t         nbarriers; /* of them                                                       */
    usm_list       link; /* in ctx->holding, when `held` is not empty                          */
};

typedef enum gate_state { GATE_PENDING, GATE_NATIVE, GATE_SETTLED } gate_state;

struct gate_event {
    gate_context  *ctx;
    bool           is_user;
    _Atomic size_t refs;
    _Atomic int    state;   /* gate_state; stored last, with release                     */
    usm_status     status;  /* once settled                                              */
    usm_list       notices; /* while pending; guarded by the context's lock              */
};

/* Backends put theirs around it; copied by size when it is held back. */
struct gate_command {
    size_t size;       /* of the backend's whole command                                 */
    bool   is_mark;    /* a marker or barrier: without dependencies it stands for all before it */
    bool   is_barrier; /* holds up what comes later; runs also when a dependency failed   */
};

struct gate_ops {
    size_t event_size; /* of the backend's event, gate_event first                       */

    /* Hands `cmd` to the driver.  No dep is pending; those that are settled are complete, unless
     * has_failed: then cmd is a barrier and `out` is NULL.  A mark whose deps are all complete
     * stands for nothing, not for all before it.  On success `out` (may be NULL) was made native
     * with gate_event_become_native().  USM_E_DEPENDENCY, without a story: a native dep turned out
     * to have failed; the driver got a barrier all the same, other commands not; `out` is the
     * gate's to settle.  Does not drop cmd.  The lock may be held. */
    usm_status (*issue)(gate_queue *q, const gate_command *cmd, size_t ndeps,
                        gate_event *const *deps, gate_event *out, bool has_failed,
                        usm_list *notices);
    /* Gives back what cmd owns; after issue(), or instead of it. */
    void (*command_drop)(const gate_command *cmd);
    /* Of a native event; they report their failures.  query: USM_E_NOT_READY without a story. */
    usm_status (*event_query)(gate_event *ev);
    usm_status (*event_wait)(gate_event *ev);
    /* Calls fn(arg, status) once when the native event ends, from any thread or at once. */
    usm_status (*event_notify)(gate_event *ev, usm_backend_notify_fn fn, void *arg);
    /* Gives back the backend's part of the event. */
    void (*event_fini)(gate_event *ev);
    /* A pending event was settled (lock held); NULL where nobody else need know. */
    void (*event_settled)(gate_event *ev);
    /* The last reference went: gives back the native parts and the object itself; nothing of the
     * gate's is left in it.  No lock held. */
    void (*queue_free)(gate_queue *q);
    void (*context_free)(gate_context *ctx);
};

void gate_context_init(gate_context *ctx, const gate_ops *ops, const usm_host_api *host);
/* A zeroed note of at most GATE_NOTE_SIZE; NULL: no memory.  The context is still there. */
void *gate_note_new(gate_context *ctx);
void  gate_note_free(gate_context *ctx, void *note);
void  gate_context_ref(gate_context *ctx);
void  gate_context_unref(gate_context *ctx);

/* The last step of making a queue.  Takes a reference to ctx, which the last gate_queue_unref()
 * gives back. */
void gate_queue_init(gate_queue *q, gate_context *ctx, bool is_ordered);
void gate_queue_ref(gate_queue *q);
void gate_queue_unref(gate_queue *q);
/* Until nothing is held; then what the driver has is the backend's to wait for. */
void       gate_queue_wait_held(gate_queue *q);
void       gate_queue_note_failure(gate_queue *q, usm_status status);
usm_status gate_queue_take_failure(gate_queue *q); /* and reports it */

/* Whether what waits for nothing may go to the driver now. */
static inline bool gate_queue_is_open(gate_queue *gate)
{
    return usm_load_acquire(&gate->nheld) == 0;
}

/* Issues the command, or holds it back until the user events before it are signalled.  Owns what
 * `cmd` owns from the call on, whatever the outcome.  deps and *ev are gate_events. */
usm_status gate_submit(gate_queue *q, const gate_command *cmd, size_t ndeps, void *const *deps,
                       void **ev);

/* Events have no reference to their context: whoever keeps one sees to it that the context stays.
 */
gate_event *gate_event_new(gate_context *ctx); /* pending, one reference; NULL: no memory */
void        gate_event_ref(gate_event *ev);
void        gate_event_unref(gate_event *ev); /* NULL is fine */
/* From pending to native or settled. Whoever was to be told moves to `notices`, which
 * gate_notices_deliver() handles without a lock.  Lock held if ev is known to others. */
void gate_event_become_native(gate_event *ev, usm_list *notices);
void gate_event_settle(gate_event *ev, usm_status status, usm_list *notices);
void gate_notices_deliver(gate_context *ctx, usm_list *notices);
/* Settles an event that is pending; false when it was not.  No lock held. */
bool              gate_event_complete(gate_event *ev, usm_status status);
static inline int gate_event_state(const gate_event *ev)
{
    return usm_load_acquire(&ev->state);
}

/* The functions of the backend's table. */
usm_status gate_event_create_user(void *ctx, void **ev);
usm_status gate_event_signal(void *ev, usm_status status);
usm_status gate_event_query(void *ev);
usm_status gate_event_wait(void *ev);
void       gate_event_release(void *ev);
usm_status gate_event_notify(void *ev, usm_backend_notify_fn fn, void *arg);

#endif
