/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Events: the completion of a command.
 *
 * Every command gives one when asked (its last argument); it is counted, and
 * the caller releases it.  Events of any context can be waited for by commands
 * of any other.  A user event is completed by the program.  Thread-safe. */
#ifndef USM_EVENT_H
#define USM_EVENT_H

#include <usm/context.h>
#include <usm/types.h>

USM_BEGIN_DECLS

/** Nanoseconds on the device's clock, comparable within one queue.  A command that Level Zero does
 * in several steps (advice, prefetch, rows that lie over 4 GiB apart) starts when it ends. */
typedef struct usm_profiling {
    size_t   struct_size;
    uint64_t submit_ns;
    uint64_t start_ns;
    uint64_t end_ns;
} usm_profiling;
#define USM_PROFILING_INIT                                                                         \
    {                                                                                              \
        sizeof(usm_profiling), 0, 0, 0                                                             \
    }

/** Called once, on a thread of the library, when the event is complete; also
 * when it failed (status < 0).  It may call any function of libusm, and may
 * block: others get a thread of their own. */
typedef void (*usm_event_fn)(usm_event *ev, usm_status status, void *user);

/** A user event, not complete; `ctx` NULL: of the default context.  Caller owns it. */
USM_API USM_NODISCARD usm_status usm_event_create(usm_context *ctx, usm_event **ev);
/** Completes a user event: USM_OK, or a failure (< 0) that its dependents
 * inherit as USM_E_DEPENDENCY.
 *   USM_E_INVALID  not a user event, or completed before */
USM_API usm_status usm_event_signal(usm_event *ev, usm_status status);

/** USM_OK when complete, USM_E_NOT_READY when not, else the command's failure. */
USM_API USM_NODISCARD usm_status usm_event_query(usm_event *ev);
/** Waits.  The status is the command's. */
USM_API usm_status usm_event_wait(usm_event *ev);
/** Waits for all; the first failure in array order is returned. */
USM_API usm_status usm_event_wait_all(size_t n, usm_event *const *evs);

/** Calls `fn` once ev is complete, at once (on another thread) when it is. */
USM_API USM_NODISCARD usm_status usm_event_on_complete(usm_event *ev, usm_event_fn fn, void *user);

/** Times of a complete command of a queue with USM_QUEUE_PROFILING.
 *   USM_E_NOT_READY, or USM_E_NOT_SUPPORTED without profiling and for user events
 *   and host tasks */
USM_API USM_NODISCARD usm_status usm_event_profiling(usm_event *ev, usm_profiling *times);

/** Another reference. */
USM_API usm_status usm_event_retain(usm_event *ev);
/** NULL is fine.  Gives a reference back; the command goes on. */
USM_API void usm_event_release(usm_event *ev);

/** An event over a native one (cl_event, ze_event_handle_t).  It is of a command that was
 * submitted: over Level Zero an event that only the program can signal holds up the commands that
 * wait for it and, in an out-of-order queue too, some of those behind them; use usm_event_create()
 * for that. */
USM_API USM_NODISCARD usm_status usm_event_from_native(usm_context *ctx, void *handle,
                                                       usm_ownership ownership, usm_event **ev);
/** Borrowed: valid as long as ev. */
USM_API USM_NODISCARD usm_status usm_event_get_native(usm_event *ev, const char *backend,
                                                      void **handle);

USM_END_DECLS
#endif
