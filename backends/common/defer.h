/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Defers commands until the user events before them are signalled: shared by the backends over a
 * driver, and compiled into each of them.  defer.c explains why drivers never see a user event.
 *
 * A backend embeds defer_context, defer_queue, defer_event and defer_command as the FIRST member of
 * its own objects, and fills in a defer_ops.  Objects have reference counts; releasing the last
 * reference frees them through the ops.
 *
 * An event is pending (a user event, or a command that the driver has not received yet), then
 * native (the backend's part of the event knows its end) or settled (`status` is the result).
 *
 * Locks: a context's `lock` is the only one here.  Some ops are called with it held, as stated, so
 * they may call the driver, but neither the core nor a function here that takes the lock. */
#ifndef USM_BACKENDS_COMMON_DEFER_H
#define USM_BACKENDS_COMMON_DEFER_H

#include "base/inline/atomic.h"
#include "base/inline/list.h"
#include "base/inline/recycle.h"

#include <pthread.h>
#include <usm/backend.h>

typedef struct defer_ops     defer_ops;
typedef struct defer_context defer_context;
typedef struct defer_queue   defer_queue;
typedef struct defer_event   defer_event;
typedef struct defer_command defer_command;

struct defer_context {
    /* fixed after create */
    const defer_ops    *ops;
    const usm_host_api *host;
    /* atomic */
    _Atomic size_t refs; /* the core's, and one for each queue */
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t  changed; /* signalled when an event is settled */
    usm_list        holding; /* queues with deferred commands      */
    /* Freed objects, kept for reuse: a command like an earlier one allocates nothing from the
     * heap. */
    usm_recycler events;
    usm_recycler notes; /* of DEFER_NOTE_SIZE: callbacks for events */
};

#define DEFER_NOTE_SIZE ((size_t)64)

struct defer_queue {
    /* fixed after create */
    defer_context *ctx;
    bool           is_ordered; /* in-order: every command behind a deferred one is deferred too */
    /* atomic */
    _Atomic size_t refs;      /* the core's, and one for each deferred command            */
    _Atomic size_t ndeferred; /* number of commands in `deferred`; written with the lock held */
    _Atomic int    failure;   /* first failure of a command without an event              */
    /* guarded by the context's lock */
    pthread_cond_t drained; /* broadcast when `deferred` becomes empty; separate from the context's
                               `changed`, which is broadcast at each event that ends */
    usm_list       deferred;
    size_t         nbarriers; /* barriers among them                        */
    usm_list       link;      /* in ctx->holding, while `deferred` is not empty */
};

typedef enum defer_state { DEFER_PENDING, DEFER_NATIVE, DEFER_SETTLED } defer_state;

struct defer_event {
    defer_context *ctx;
    bool           is_user;
    _Atomic size_t refs;
    _Atomic int    state;   /* defer_state; stored last, with release        */
    usm_status     status;  /* valid once settled                           */
    usm_list       notices; /* while pending; guarded by the context's lock */
};

/* Backends embed it in their own command; the whole is copied by size when it is deferred. */
struct defer_command {
    size_t size;       /* of the backend's whole command                                 */
    bool   is_mark;    /* a marker or barrier: without dependencies it stands for all commands
                          before it */
    bool   is_barrier; /* later commands wait for it; also runs if a dependency failed */
};

struct defer_ops {
    size_t event_size; /* of the backend's event, defer_event first                       */

    /* Passes `cmd` to the driver.  No dependency is pending; settled ones succeeded, unless
     * has_failed: then cmd is a barrier and `out` is NULL.  A mark whose dependencies are all
     * complete stands for nothing, not for all before it.  On success `out` (may be NULL) was made
     * native with defer_event_become_native().  USM_E_DEPENDENCY, without an error message: a
     * native dependency turned out to have failed; a barrier was given to the driver all the same,
     * other commands were not; the deferral queue then settles `out`.  Does not drop cmd.  The lock
     * may be held. */
    usm_status (*issue)(defer_queue *q, const defer_command *cmd, size_t ndeps,
                        defer_event *const *deps, defer_event *out, bool has_failed,
                        usm_list *notices);
    /* The same for a command without dependencies and event (driver_submit()). */
    usm_status (*issue_plain)(defer_queue *q, const defer_command *cmd);
    /* Frees what cmd owns; called after issue(), or instead of it. */
    void (*command_drop)(const defer_command *cmd);
    /* For a native event; they report their failures.  query: USM_E_NOT_READY without an error
     * message. */
    usm_status (*event_query)(defer_event *ev);
    usm_status (*event_wait)(defer_event *ev);
    /* Calls fn(arg, status) once when the native event ends, from any thread or at once. */
    usm_status (*event_notify)(defer_event *ev, usm_backend_notify_fn fn, void *arg);
    /* Frees the backend's part of the event. */
    void (*event_fini)(defer_event *ev);
    /* A pending event was settled (lock held); NULL if the backend need not know. */
    void (*event_settled)(defer_event *ev);
    /* The last reference was released: frees the native parts and the object itself; the deferral
     * queue's part has been cleaned up.  No lock held. */
    void (*queue_free)(defer_queue *q);
    void (*context_free)(defer_context *ctx);
};

void defer_context_init(defer_context *ctx, const defer_ops *ops, const usm_host_api *host);
/* A zeroed note of at most DEFER_NOTE_SIZE; NULL: no memory.  The caller keeps the context alive. */
void *defer_note_new(defer_context *ctx);
void  defer_note_free(defer_context *ctx, void *note);
void  defer_context_ref(defer_context *ctx);
void  defer_context_unref(defer_context *ctx);

/* The last step of making a queue.  Takes a reference to ctx, which the last defer_queue_unref()
 * releases. */
void defer_queue_init(defer_queue *q, defer_context *ctx, bool is_ordered);
void defer_queue_ref(defer_queue *q);
void defer_queue_unref(defer_queue *q);
/* Waits until no command is deferred; the backend then waits for the commands that the driver
 * has. */
void       defer_queue_wait_deferred(defer_queue *q);
void       defer_queue_note_failure(defer_queue *q, usm_status status);
usm_status defer_queue_take_failure(defer_queue *q); /* and reports it */

/* True if a command without dependencies may go to the driver now. */
static inline bool defer_queue_is_open(defer_queue *deferral)
{
    return usm_load_acquire(&deferral->ndeferred) == 0;
}

/* Issues the command, or defers it until the user events before it are signalled.  Owns the
 * resources of `cmd` from the call on, whatever the result.  deps and *ev are gate_events. */
usm_status defer_submit(defer_queue *q, const defer_command *cmd, size_t ndeps, void *const *deps,
                        void **ev);

/* Events have no reference to their context: a holder of an event must keep the context alive. */
defer_event *defer_event_new(defer_context *ctx); /* pending, one reference; NULL: no memory */
void         defer_event_ref(defer_event *ev);
void         defer_event_unref(defer_event *ev); /* NULL is fine */
/* From pending to native or settled.  The callbacks move to `notices`, for defer_notices_deliver(),
 * which needs the lock not to be held.  Lock held if other threads know ev. */
void defer_event_become_native(defer_event *ev, usm_list *notices);
void defer_event_settle(defer_event *ev, usm_status status, usm_list *notices);
void defer_notices_deliver(defer_context *ctx, usm_list *notices);
/* Settles an event if it is pending; false if it was not.  No lock held. */
bool              defer_event_complete(defer_event *ev, usm_status status);
static inline int defer_event_state(const defer_event *ev)
{
    return usm_load_acquire(&ev->state);
}

/* The functions of the backend's table. */
usm_status defer_event_create_user(void *ctx, void **ev);
usm_status defer_event_signal(void *ev, usm_status status);
usm_status defer_event_query(void *ev);
usm_status defer_event_wait(void *ev);
void       defer_event_release(void *ev);
usm_status defer_event_notify(void *ev, usm_backend_notify_fn fn, void *arg);

#endif
