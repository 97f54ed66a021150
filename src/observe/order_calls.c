/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the checker of stream order sees of a backend: each call below, with its result
 * (order_check.h). */
#include "observe/decorate.h"
#include "observe/order_check.h"

#define CALL(cap, group, fn, size, params, args)
#define VOID(cap, group, fn)
#define WAIT(cap, group, fn)
#define COMMAND(cap, group, fn, size, params, args, ...)                                           \
    static usm_status order_##fn(const usm__backend *be, USM__BARE params)                         \
    {                                                                                              \
        usm_status st = be->ops.fn args;                                                           \
                                                                                                   \
        if (st == USM_OK)                                                                          \
            usm__order_submitted(&(usm__order_command){                                            \
                .q = q, .what = #fn, .ndeps = ndeps, .deps = deps, .ev = ev, __VA_ARGS__});        \
        return st;                                                                                 \
    }
#include "device/backend_ops.inc"

static usm_status queue_create(const usm__backend *be, void *ctx, void *dev, uint32_t flags,
                               void **q)
{
    usm_status st = be->ops.queue_create(ctx, dev, flags, q);

    if (st == USM_OK)
        usm__order_queue_made(*q, flags);
    return st;
}

static usm_status queue_from_native(const usm__backend *be, void *ctx, void *native,
                                    usm_ownership own, void **q, void **dev, uint32_t *flags)
{
    usm_status st = be->ops.queue_from_native(ctx, native, own, q, dev, flags);

    if (st == USM_OK)
        usm__order_queue_made(*q, *flags);
    return st;
}

static void queue_destroy(const usm__backend *be, void *q)
{
    usm__order_queue_gone(q);
    be->ops.queue_destroy(q);
}

static usm_status queue_wait(const usm__backend *be, void *q)
{
    void      *seen = usm__order_queue_snapshot(q);
    usm_status st   = be->ops.queue_wait(q);

    usm__order_queue_waited(seen, st);
    return st;
}

static usm_status event_create_user(const usm__backend *be, void *ctx, void **ev)
{
    usm_status st = be->ops.event_create_user(ctx, ev);

    if (st == USM_OK)
        usm__order_event_made(*ev);
    return st;
}

static usm_status event_signal(const usm__backend *be, void *ev, usm_status status)
{
    usm__order_event_signalled(ev);
    return be->ops.event_signal(ev, status);
}

static usm_status event_query(const usm__backend *be, void *ev)
{
    usm_status st = be->ops.event_query(ev);

    usm__order_event_seen(ev, st);
    return st;
}

static usm_status event_wait(const usm__backend *be, void *ev)
{
    usm_status st = be->ops.event_wait(ev);

    usm__order_event_seen(ev, st);
    return st;
}

static void event_release(const usm__backend *be, void *ev)
{
    usm__order_event_gone(ev);
    be->ops.event_release(ev);
}

void usm__order_decorate(usm__backend_calls *calls)
{
#define CALL(cap, group, fn, size, params, args)
#define VOID(cap, group, fn)
#define WAIT(cap, group, fn)
#define COMMAND(cap, group, fn, size, params, args, ...) calls->fn = order_##fn;
#include "device/backend_ops.inc"
    calls->queue_create      = queue_create;
    calls->queue_from_native = queue_from_native;
    calls->queue_destroy     = queue_destroy;
    calls->queue_wait        = queue_wait;
    calls->event_create_user = event_create_user;
    calls->event_signal      = event_signal;
    calls->event_query       = event_query;
    calls->event_wait        = event_wait;
    calls->event_release     = event_release;
}
