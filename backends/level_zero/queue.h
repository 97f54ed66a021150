/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues, native streams, commands and events of the Level Zero backend.
 *
 * A queue has one stream (in order) or several (out of order).  A stream is a native in-order
 * stream: an immediate command list, or a command queue with a regular list for each command
 * (USM_LEVEL_ZERO_LISTS=regular, and borrowed command queues).  Each stream has a watch: a thread
 * that sleeps in the driver, from the first event_notify on.
 *
 * An event of the driver is a slot here, with a reference count, and is reused.  The event of the
 * core is a defer_event with a slot in it.
 *
 * Locks, in order: a context's (defer.h), a stream's (several of one queue by their index), a
 * watch's, the pools'.
 *
 * Included by queue.c, submit.c, stream.c, command.c, event.c, pool.c, times.c, watch.c, exit.c,
 * queue_native.c, kernel.c and context.c. */
#ifndef USM_BACKENDS_LEVEL_ZERO_QUEUE_H
#define USM_BACKENDS_LEVEL_ZERO_QUEUE_H

#include "../common/commands.h"
#include "level_zero.h"

typedef struct lz_slot   lz_slot;
typedef struct lz_watch  lz_watch;
typedef struct lz_stream lz_stream;

/* --- commands (command.c) ------------------------------------------------------ */

/* Where a command is appended, with its wait list and its signal event. */
typedef struct lz_target {
    ze_command_list_handle_t list;
    const lz_device         *dev;
    ze_event_handle_t        signal; /* or NULL                                          */
    uint32_t                 nwaits;
    ze_event_handle_t       *waits;
    bool                     has_appended; /* output: something was appended, also on failure */
} lz_target;

ze_result_t lz_command_append(lz_target *t, const driver_command *cmd);
/* Appends a barrier for all earlier commands of the stream, which then signals `signal`. */
ze_result_t lz_barrier_append(lz_target *t);

/* --- the driver's events (pool.c) ------------------------------------------------ */

typedef enum lz_end { LZ_RUNNING, LZ_DONE, LZ_LOST } lz_end;

/* One event of the driver.  References are held by the defer_event, by the stream, by the command
 * that signals it and by each command that waits for it, until these have ended.  When the last one
 * is released nothing uses it any more, and it is reset and reused. */
struct lz_slot {
    /* fixed after create */
    ze_event_handle_t native;
    lz_event_pools   *pools; /* NULL: the program's own event */
    bool              is_timed;
    bool              is_owned; /* the program's own event: destroyed with this slot */
    /* fixed from the submission of the command that signals it */
    lz_watch        *watch;  /* holds a reference; NULL: no command signals it (a shadow) */
    const void      *stream; /* only compared, never dereferenced                         */
    uint64_t         number; /* of the command in its stream, ascending                     */
    bool             is_used;
    bool             has_times;
    const lz_device *dev;
    uint64_t         submit_ticks; /* of the device's timer                 */
    uint64_t         submit_total; /* the same, continued over wrap-arounds */
    /* atomic */
    _Atomic size_t refs;
    _Atomic int    end; /* lz_end, as far as known */
    /* guarded by the pools' lock */
    lz_slot *next_idle;
};

/* Returns a slot with one reference, not signalled. */
usm_status lz_slot_take(lz_event_pools *pools, bool is_timed, lz_slot **slot);
/* Makes a slot over a handle of the program, with a watch; it is never reset. */
usm_status lz_slot_wrap(ze_event_handle_t native, bool is_owned, lz_slot **slot);
lz_slot   *lz_slot_ref(lz_slot *slot);
void       lz_slot_unref(lz_slot *slot); /* NULL is fine */
/* SUCCESS, NOT_READY, DEVICE_LOST, or the failure of the query. */
ze_result_t lz_slot_query(lz_slot *slot);
ze_result_t lz_slot_wait(lz_slot *slot);
/* On a thread of libusm: false if the process ends before the slot; the thread must then return at
 * once, whatever it holds. */
bool lz_slot_sleep(lz_slot *slot, usm_status *status);
/* Marks the slot's device as lost, whatever the driver returns from now on. */
void lz_slot_lose(lz_slot *slot);
/* Signals it by the host: it is not a command's event (a shadow). */
void lz_slot_signal(lz_slot *slot);

/* The event pools of a context. */
usm_status lz_event_pools_create(lz_context *ctx, lz_event_pools **pools);
void       lz_event_pools_destroy(lz_event_pools *pools); /* NULL is fine */

/* --- times (times.c) ----------------------------------------------------------------- */

/* A device's timer, continued over wrap-arounds. */
typedef struct lz_timeline {
    bool     has_begun;
    uint64_t ticks, total, host_ns;
} lz_timeline;

/* Updates the timeline: the timer reads `ticks`, the host's clock now_ns. */
void lz_timeline_go_on(lz_timeline *t, const lz_device *dev, uint64_t ticks, uint64_t now_ns);
void lz_times_of(const lz_slot *slot, const ze_kernel_timestamp_result_t *t, usm_profiling *times);

/* --- the end of the process (exit.c) ------------------------------------------------------- */

/* Called before the first such thread, with the driver in use. */
void lz_exit_prepare(void);
/* Enclose driver calls on a thread that may be libusm's.  False: the process is ending, and the
 * driver must not be called. */
bool lz_enter(void);
void lz_leave(void);

/* --- notification (watch.c) -------------------------------------------------------- */

usm_status lz_watch_create(lz_watch **w);
void       lz_watch_ref(lz_watch *w);
void       lz_watch_unref(lz_watch *w);
/* Calls fn(arg, status) from a thread when `slot` ends, in the order of the slots' numbers.  Keeps
 * the slot and the context until then. */
usm_status lz_watch_add(lz_watch *w, defer_context *ctx, lz_slot *slot, usm_backend_notify_fn fn,
                        void *arg);
/* No more will be added: its threads need not stay idle. */
void lz_watch_close(lz_watch *w);

/* --- streams (stream.c) ------------------------------------------------------------------ */

#define LZ_FEW_WAITS 16
#define LZ_OWN_WAITS 2 /* that a stream may add to a wait list: its last command, a barrier */

/* A wait list.  The caller owns the slots. */
typedef struct lz_waits {
    size_t             n;
    lz_slot          **slots; /* with room for LZ_OWN_WAITS more */
    ze_event_handle_t *natives;
    lz_slot           *few_slots[LZ_FEW_WAITS + LZ_OWN_WAITS];
    ze_event_handle_t  few_natives[LZ_FEW_WAITS + LZ_OWN_WAITS];
} lz_waits;

static inline void lz_waits_few(lz_waits *w)
{
    w->n       = 0;
    w->slots   = w->few_slots;
    w->natives = w->few_natives;
}

static inline void lz_waits_add(lz_waits *w, lz_slot *slot)
{
    w->slots[w->n]     = slot;
    w->natives[w->n++] = slot->native;
}

/* The native objects of a stream: one of the first two. */
typedef struct lz_native_stream {
    ze_command_list_handle_t  list;  /* immediate                                        */
    ze_command_queue_handle_t queue; /* takes regular lists                              */
    uint32_t                  ordinal;
    bool                      is_in_order; /* the list keeps the order itself */
    bool                      is_owned;    /* destroyed with the stream         */
} lz_native_stream;

/* Makes a stream of the kind that USM_LEVEL_ZERO_LISTS selects. */
usm_status lz_native_stream_create(const lz_context *ctx, lz_device *dev,
                                   lz_native_stream *native_stream);
void       lz_native_stream_destroy(const lz_native_stream *native_stream);
/* Makes a stream over the native one, which the caller keeps on failure. */
usm_status lz_stream_create(lz_context *ctx, lz_device *dev, bool is_timed,
                            const lz_native_stream *native_stream, lz_stream **stream);
/* Does not wait: the stream is freed after its commands in flight have ended. */
void lz_stream_retire(lz_stream *stream);
/* For a stream that was never used; the caller gets the native one back. */
void lz_stream_discard(lz_stream *stream);
void lz_stream_lock(lz_stream *stream);
void lz_stream_unlock(lz_stream *stream);
/* Submits the command to the driver.  *slot: NULL, or the slot to signal (a reference of the
 * caller's).  If `wants`, it is a reference to the command's slot afterwards.  Adds to the wait
 * list.  Lane locked. */
usm_status lz_stream_submit(lz_stream *stream, const driver_command *cmd, lz_waits *waits,
                            bool wants, lz_slot **slot);
/* Returns a reference to a slot that ends after all commands of the stream; NULL: all have ended.
 * Locked. */
usm_status lz_stream_tail(lz_stream *stream, lz_slot **slot);
/* Makes later commands wait for `slot` as well.  Locked. */
void lz_stream_block(lz_stream *stream, lz_slot *slot);
/* True if the command of `slot` is the last one so far; a hint.  Not locked. */
bool lz_stream_ends_with(const lz_stream *stream, const lz_slot *slot);
/* Waits for all commands submitted so far.  Not locked. */
usm_status lz_stream_wait(lz_stream *stream);

/* --- queues (queue.c, submit.c, queue_native.c) ------------------------------------------ */

#define LZ_MAX_LANES 4

typedef struct lz_queue {
    defer_queue deferral; /* first member */
    /* fixed after create */
    lz_device           *dev;
    uint32_t             flags; /* usm_queue_flags                                        */
    uint32_t             nstreams;
    lz_stream           *streams[LZ_MAX_LANES];
    usm_level_zero_queue native; /* for queue_native: that of the first stream */
    /* atomic */
    _Atomic uint32_t next_stream;
} lz_queue;

/* Makes a queue over streams, which the caller keeps on failure. */
usm_status lz_queue_wrap(lz_context *ctx, lz_device *dev, uint32_t flags, uint32_t n,
                         const lz_native_stream *native_streams, lz_queue **q);

/* The deferral queue's issue and issue_plain: builds the wait list of a command, and chooses its
 * stream. */
usm_status lz_issue(defer_queue *q, const defer_command *cmd, size_t ndeps,
                    defer_event *const *deps, defer_event *out, bool has_failed, usm_list *notices);
usm_status lz_issue_plain(defer_queue *q, const defer_command *cmd);

/* The deferral queue's ops, for lz_context_wrap(). */
extern const defer_ops lz_defer_ops;

/* --- events (event.c) --------------------------------------------------------------------- */

typedef struct lz_event {
    defer_event deferral; /* first member      */
    lz_slot    *slot;     /* valid once native */
    /* Returned by event_native while the event was pending, and signalled when it ends.  The
     * command of a deferred event uses it as its own slot.  Guarded by the context's lock until
     * native. */
    lz_slot *shadow;
} lz_event;

/* Ops of the deferral queue. */
usm_status lz_event_query(defer_event *ev);
usm_status lz_event_wait(defer_event *ev);
usm_status lz_event_notify(defer_event *ev, usm_backend_notify_fn fn, void *arg);
void       lz_event_fini(defer_event *ev);
void       lz_event_settled(defer_event *ev);

#endif
