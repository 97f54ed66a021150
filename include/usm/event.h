/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Events: the completion of a command.
 *
 * Every command returns one on request, through its last argument.  Events are
 * reference-counted; the caller releases them.  Commands can depend on events
 * of any context.  A user event is completed by the program.  Thread-safe. */
#ifndef USM_EVENT_H
#define USM_EVENT_H

#include <usm/context.h>
#include <usm/types.h>

USM_BEGIN_DECLS

/** Times in nanoseconds of the device's clock, comparable within one queue.  A
 * command that Level Zero executes in several steps (advice, prefetch, rows
 * that are more than 4 GiB apart) reports its end as its start. */
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

/** Called once, on a thread of the library, when the event has completed or
 * failed (status < 0).  The callback may call any function of libusm and may
 * block: other callbacks run on other threads. */
typedef void (*usm_event_fn)(usm_event *ev, usm_status status, void *user);

/** Creates a user event that is not complete.  `ctx` NULL: the default context.
 * The caller owns *ev. */
USM_API USM_NODISCARD usm_status usm_event_create(usm_context *ctx, usm_event **ev);
/** Completes a user event with USM_OK, or with a failure (< 0), which dependent
 * commands report as USM_E_DEPENDENCY.
 *   USM_E_INVALID  not a user event, or it has been completed before */
USM_API usm_status usm_event_signal(usm_event *ev, usm_status status);

/** Returns USM_OK when the event is complete, USM_E_NOT_READY when it is not, or
 * the failure of the command. */
USM_API USM_NODISCARD usm_status usm_event_query(usm_event *ev);
/** Waits for the event.  Returns the status of the command. */
USM_API usm_status usm_event_wait(usm_event *ev);
/** Waits for all events.  Returns the first failure in the order of the array. */
USM_API usm_status usm_event_wait_all(size_t n, usm_event *const *evs);

/** Calls `fn` once ev is complete; if it is complete already, at once, on
 * another thread. */
USM_API USM_NODISCARD usm_status usm_event_on_complete(usm_event *ev, usm_event_fn fn, void *user);

/** Returns the times of a complete command of a queue with USM_QUEUE_PROFILING.
 *   USM_E_NOT_READY      the command is not complete
 *   USM_E_NOT_SUPPORTED  a queue without profiling, a user event, a host task */
USM_API USM_NODISCARD usm_status usm_event_profiling(usm_event *ev, usm_profiling *times);

/** Takes another reference. */
USM_API usm_status usm_event_retain(usm_event *ev);
/** Drops a reference; ev may be NULL.  The command goes on. */
USM_API void usm_event_release(usm_event *ev);

/** Creates an event from a native one (cl_event, ze_event_handle_t) of a command
 * that has been submitted.  Over Level Zero an event that only the program can
 * signal delays the commands that wait for it and, even in an out-of-order
 * queue, some of the commands after them; use usm_event_create() for such an
 * event. */
USM_API USM_NODISCARD usm_status usm_event_from_native(usm_context *ctx, void *handle,
                                                       usm_ownership ownership, usm_event **ev);
/** Returns the native event; it is borrowed and valid as long as ev. */
USM_API USM_NODISCARD usm_status usm_event_get_native(usm_event *ev, const char *backend,
                                                      void **handle);

USM_END_DECLS
#endif
