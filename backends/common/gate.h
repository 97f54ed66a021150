/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Defers commands until the user events before them are signalled: shared by the backends over a
 * driver, and compiled into each of them.  gate.c explains why drivers never see a user event.
 *
 * A backend embeds gate_context, gate_queue, gate_event and gate_command as the FIRST member of its
 * own objects, and fills in a gate_ops.  Objects have reference counts; releasing the last
 * reference frees them through the ops.
 *
 * An event is pending (a user event, or a command that the driver has not received yet), then
 * native (the backend's part of the event knows its end) or settled (`status` is the result).
 *
 * Locks: a context's `lock` is the only one here.  Some ops are called with it held, as stated, so
 * they may call the driver, but neither the core nor a function here that takes the lock. */
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
    _Atomic size_t refs; /* the core's, and one for each queue */
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t  changed; /* signalled when an event is settled */
    usm_list        holding; /* queues with deferred commands      */
    /* Freed objects, kept for reuse: a command like an earlier one allocates nothing from the
     * heap. */
    usm_recycler events;
    usm_recycler notes; /* of GATE_NOTE_SIZE: callbacks for events */
};

#define GATE_NOTE_SIZE ((size_t)64)

struct gate_queue {
    /* fixed after create */
    gate_context *ctx;
    bool          is_ordered; /* in-order: every command behind a deferred one is deferred too */
    /* atomic */
    _Atomic size_t refs;    /* the core's, and one for each deferred command            */
    _Atomic size_t nheld;   /* number of commands in `held`; written with the lock held */
    _Atomic int    failure; /* first failure of a command without an event              */
    /* guarded by the context's lock */
    pthread_cond_t drained; /* broadcast when `held` becomes empty; separate from the context's
                               `changed`, which is broadcast at each event that ends */
    usm_list       held;
    size_t         nbarriers; /* barriers among them                        */
    usm_list       link;      /* in ctx->holding, while `held` is not empty */
};

typedef enum gate_state { GATE_PENDING, GATE_NATIVE, GATE_SETTLED } gate_state;

struct gate_event {
    gate_context  *ctx;
    bool           is_user;
    _Atomic size_t refs;
    _Atomic int    state;   /* gate_state; stored last, with release        */
    usm_status     status;  /* valid once settled                           */
    usm_list       notices; /* while pending; guarded by the context's lock */
};

/* Backends embed it in their own command; the whole is copied by size when it is deferred. */
struct gate_command {
    size_t size;       /* of the backend's whole command                                 */
    bool   is_mark;    /* a marker or barrier: without dependencies it stands for all commands
                          before it */
    bool   is_barrier; /* later commands wait for it; also runs if a dependency failed */
};

struct gate_ops {
    size_t event_size; /* of the backend's event, gate_event first                       */

    /* Passes `cmd` to the driver.  No dependency is pending; settled ones succeeded, unless
     * has_failed: then cmd is a barrier and `out` is NULL.  A mark whose dependencies are all
     * complete stands for nothing, not for all before it.  On success `out` (may be NULL) was made
     * native with gate_event_become_native().  USM_E_DEPENDENCY, without an error message: a native
     * dependency turned out to have failed; a barrier was given to the driver all the same, other
     * commands were not; the gate then settles `out`.  Does not drop cmd.  The lock may be held. */
    usm_status (*issue)(gate_queue *q, const gate_command *cmd, size_t ndeps,
                        gate_event *const *deps, gate_event *out, bool has_failed,
                        usm_list *notices);
    /* The same for a command without dependencies and event (driver_submit()). */
    usm_status (*issue_plain)(gate_queue *q, const gate_command *cmd);
    /* Frees what cmd owns; called after issue(), or instead of it. */
    void (*command_drop)(const gate_command *cmd);
    /* For a native event; they report their failures.  query: USM_E_NOT_READY without an error
     * message. */
    usm_status (*event_query)(gate_event *ev);
    usm_status (*event_wait)(gate_event *ev);
    /* Calls fn(arg, status) once when the native event ends, from any thread or at once. */
    usm_status (*event_notify)(gate_event *ev, usm_backend_notify_fn fn, void *arg);
    /* Frees the backend's part of the event. */
    void (*event_fini)(gate_event *ev);
    /* A pending event was settled (lock held); NULL if the backend need not know. */
    void (*event_settled)(gate_event *ev);
    /* The last reference was released: frees the native parts and the object itself; the gate's
     * part has been cleaned up.  No lock held. */
    void (*queue_free)(gate_queue *q);
    void (*context_free)(gate_context *ctx);
};

void gate_context_init(gate_context *ctx, const gate_ops *ops, const usm_host_api *host);
/* A zeroed note of at most GATE_NOTE_SIZE; NULL: no memory.  The caller keeps the context alive. */
void *gate_note_new(gate_context *ctx);
void  gate_note_free(gate_context *ctx, void *note);
void  gate_context_ref(gate_context *ctx);
void  gate_context_unref(gate_context *ctx);

/* The last step of making a queue.  Takes a reference to ctx, which the last gate_queue_unref()
 * releases. */
void gate_queue_init(gate_queue *q, gate_context *ctx, bool is_ordered);
void gate_queue_ref(gate_queue *q);
void gate_queue_unref(gate_queue *q);
/* Waits until no command is deferred; the backend then waits for the commands that the driver
 * has. */
void       gate_queue_wait_held(gate_queue *q);
void       gate_queue_note_failure(gate_queue *q, usm_status status);
usm_status gate_queue_take_failure(gate_queue *q); /* and reports it */

/* True if a command without dependencies may go to the driver now. */
static inline bool gate_queue_is_open(gate_queue *gate)
{
    return usm_load_acquire(&gate->nheld) == 0;
}

/* Issues the command, or defers it until the user events before it are signalled.  Owns the
 * resources of `cmd` from the call on, whatever the result.  deps and *ev are gate_events. */
usm_status gate_submit(gate_queue *q, const gate_command *cmd, size_t ndeps, void *const *deps,
                       void **ev);

/* Events have no reference to their context: a holder of an event must keep the context alive. */
gate_event *gate_event_new(gate_context *ctx); /* pending, one reference; NULL: no memory */
void        gate_event_ref(gate_event *ev);
void        gate_event_unref(gate_event *ev); /* NULL is fine */
/* From pending to native or settled.  The callbacks move to `notices`, for gate_notices_deliver(),
 * which needs the lock not to be held.  Lock held if other threads know ev. */
void gate_event_become_native(gate_event *ev, usm_list *notices);
void gate_event_settle(gate_event *ev, usm_status status, usm_list *notices);
void gate_notices_deliver(gate_context *ctx, usm_list *notices);
/* Settles an event if it is pending; false if it was not.  No lock held. */
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
