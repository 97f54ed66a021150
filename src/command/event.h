/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Internals of events, and the lists of dependencies that commands take. */
#ifndef USM_COMMAND_EVENT_H
#define USM_COMMAND_EVENT_H

#include "command/executor.h"
#include "device/context.h"

struct usm_event {
    usm__magic_word   magic;
    usm_context      *ctx;        /* holds a reference of it (`refs`)                 */
    void             *native;     /* the backend's event, one reference               */
    bool              is_user;    /* completed by usm__event_end()                    */
    bool              is_task;    /* a user event that only a host task completes     */
    bool              is_outside; /* no command is known that completes it: outside.h */
    bool              has_times;
    uint64_t          serial;   /* of the in-order queue of its command; 0: none        */
    uint64_t          position; /* in that queue: the number of commands up to this one */
    _Atomic(uint32_t) refs;
    _Atomic(int)      signalled; /* USM__EVENT_*: whether usm_event_signal was accepted */
    _Atomic(int)      status;    /* user events: the status it was signalled with       */
};

usm_status usm__event_check(usm_event *ev);
/* An event is created before its command is queued, so that nothing can fail afterwards: _new (NULL
 * with an error message), then _publish with the backend's event, whose reference it takes over, or
 * _discard. */
usm_event *usm__event_new(usm_context *ctx);
void       usm__event_publish(usm_event *ev, void *native, bool has_times);
void       usm__event_discard(usm_event *ev);
/* Completes a user event, or that of a host task.  USM_E_INVALID it was completed before */
usm_status usm__event_end(usm_event *ev, usm_status status);
/* Ends a blocking call: waits for its command, unless that was not submitted (st), and releases the
 * command's event. */
usm_status usm__event_await(usm_status st, usm_event *ev);

/* A function to call when a native event completes; embedded in a struct of its user. */
typedef struct usm__completion {
    usm__executor_job job;
    void (*fn)(struct usm__completion *c); /* called on an executor thread */
    const usm__backend *be;
    void               *native;
    usm_status          status;
} usm__completion;

/* Runs fn on the executor when `native` has completed.  The caller keeps `native` alive until then
 * (fn usually releases it).  Cannot fail after a successful usm__executor_reserve(). */
usm_status usm__completion_arm(usm__completion *c, const usm__backend *be, void *native,
                               void (*fn)(usm__completion *c));

/* The native dependencies of a command of ctx.  An event of another context is represented by a
 * bridge: a user event that its completion signals. */
#define USM__DEPS_INLINE 8
typedef struct usm__deps {
    usm_context *ctx;
    size_t       n, nbridges;
    void       **native;
    usm_event  **bridge; /* hold references */
    void        *inline_native[USM__DEPS_INLINE];
    usm_event   *inline_bridge[USM__DEPS_INLINE];
} usm__deps;

usm_status usm__deps_init(usm__deps *d, usm_context *ctx, size_t ndeps, usm_event *const *deps);
void       usm__deps_fini(usm__deps *d);

/* Most commands have no dependencies: _none is _init with 0 of them, and _hold returns whether
 * _fini has anything to release. */
static inline void usm__deps_none(usm__deps *d, usm_context *ctx)
{
    d->n = d->nbridges = 0;
    d->native          = d->inline_native;
    d->bridge          = d->inline_bridge;
    d->ctx             = ctx;
}
static inline bool usm__deps_hold(const usm__deps *d)
{
    return d->nbridges || d->native != d->inline_native || d->bridge != d->inline_bridge;
}

#endif
