/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events, user events, completions, and dependencies across contexts.
 *
 * A usm_event holds one reference of the backend's event.  If the backend can notify, its callback
 * only posts a job; otherwise an executor thread sleeps in event_wait.  A dependency on an event of
 * another context becomes a bridge: a user event of this context that is signalled when the other
 * event completes. */
#include "command/event.h"

#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "command/outside.h"
#include "device/init.h"
#include "device/observer.h"

#define LOOK_NS UINT64_C(1000000)

static usm__meta_type event_type =
    USM__META_TYPE(struct usm_event, sizeof(usm__magic_word), "events");

usm_status usm__event_check(usm_event *ev)
{
    usm_status st = usm__handle_check(ev, USM__MAGIC_EVENT);

    if (st == USM_OK && usm__context_is_inert(ev->ctx))
        st = usm__fail(USM_E_FORKED, "the event was made before fork()");
    return st;
}

usm_event *usm__event_new(usm_context *ctx)
{
    usm_event *ev = usm__meta_alloc(&event_type);

    if (!ev) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for an event");
        return NULL;
    }
    usm__context_ref(ctx);
    ev->ctx = ctx;
    return ev;
}

void usm__event_discard(usm_event *ev)
{
    usm_context *ctx = ev->ctx;

    usm__meta_free(&event_type, ev);
    usm__context_unref(ctx);
}

void usm__event_publish(usm_event *ev, void *native, bool has_times)
{
    ev->native    = native;
    ev->has_times = has_times;
    usm_store_relaxed(&ev->refs, 1u);
    usm_store_release(&ev->magic, (uint32_t)USM__MAGIC_EVENT);
}

usm_status usm_event_retain(usm_event *ev)
{
    usm_status st = usm__event_check(ev);

    if (st == USM_OK)
        usm_ref_take(&ev->refs);
    return st;
}

void usm_event_release(usm_event *ev)
{
    usm_context *ctx;

    if (!ev || usm__event_check(ev) != USM_OK || !usm_ref_drop(&ev->refs))
        return;
    if (!usm__handle_kill(ev, USM__MAGIC_EVENT))
        return;
    ctx = ev->ctx;
    if (ev->is_user)
        usm__outside_ended(usm_load_acquire(&ev->signalled));
    usm__be_event_release(ctx->be, ev->native);
    usm__meta_free(&event_type, ev);
    usm__context_unref(ctx);
}

/* ---- completions ---------------------------------------------------------------- */

static void completion_run(usm__executor_job *job)
{
    usm__completion *c = usm_container_of(job, usm__completion, job);

    if (usm__observer_order_on())
        usm__observer_get()->event_seen(c->native, c->status);
    c->fn(c);
}

static void completion_notify(void *arg, usm_status status)
{
    usm__completion *c = arg;

    c->status = status;
    usm__executor_post_expected(&c->job);
}

/* What it waits for may come after a job that needs a thread, as the end of a host task does.  So one
 * thread more is kept than such jobs have; where the system gives none, this one looks at the event
 * between other jobs. */
static void completion_wait(usm__executor_job *job)
{
    usm__completion *c = usm_container_of(job, usm__completion, job);

    if (usm__executor_hold() == USM_OK) {
        c->status = usm__be_event_wait(c->be, c->native);
        usm__executor_unhold();
    } else {
        c->status = usm__be_event_query(c->be, c->native);
        if (c->status == USM_E_NOT_READY) {
            usm__os_sleep_ns(LOOK_NS);
            usm__executor_post(job);
            return;
        }
    }
    c->fn(c);
}

usm_status usm__completion_arm(usm__completion *c, const usm__backend *be, void *native,
                               void (*fn)(usm__completion *c))
{
    usm_status st = usm__executor_reserve();

    if (st != USM_OK)
        return st;
    c->be     = be;
    c->native = native;
    c->fn     = fn;
    usm_list_init(&c->job.link);
    c->job.run = completion_run;
    if (usm__backend_can(be, USM_CAP_NOTIFY)) {
        usm__executor_expect();
        if (usm__be_event_notify(be, native, completion_notify, c) == USM_OK)
            return USM_OK;
        usm__executor_unexpect();
    }
    /* This also covers a backend that can notify but refused to: the commands queued behind the
     * event must continue, and the caller must not wait for it. */
    c->job.run = completion_wait;
    usm__executor_post(&c->job);
    return USM_OK;
}

/* ---- user events ------------------------------------------------------------------ */

usm_status usm_event_create(usm_context *ctx, usm_event **ev)
{
    void      *native = NULL;
    usm_event *made;
    usm_status st;

    st = usm__context_resolve(&ctx);
    if (st != USM_OK)
        return st;
    if (usm__context_is_inert(ctx))
        return usm__fail(USM_E_FORKED, "the context was made before fork(); make one in the child");
    if (!ev)
        return usm__fail(USM_E_INVALID, "usm_event_create: ev is NULL");
    made = usm__event_new(ctx);
    if (!made)
        return USM_E_NO_MEMORY;
    st = usm__be_event_create_user(ctx->be, ctx->native, &native);
    if (st != USM_OK) {
        usm__event_discard(made);
        return st;
    }
    made->is_user = made->is_outside = true;
    usm__event_publish(made, native, false);
    *ev = made;
    return USM_OK;
}

usm_status usm__event_end(usm_event *ev, usm_status status)
{
    int        was = usm_load_acquire(&ev->signalled);
    usm_status st;

    do {
        if (was == USM__EVENT_SIGNALLED)
            return usm__fail(USM_E_INVALID, "the event %p was signalled before", (void *)ev);
    } while (!usm_cas_acq_rel(&ev->signalled, &was, USM__EVENT_SIGNALLED));
    usm_store_release(&ev->status, (int)status);
    st = usm__be_event_signal(ev->ctx->be, ev->native, status);
    usm__outside_ended(was);
    return st;
}

usm_status usm_event_signal(usm_event *ev, usm_status status)
{
    usm_status st = usm__event_check(ev);

    if (st != USM_OK)
        return st;
    if (!ev->is_user || ev->is_task)
        return usm__fail(USM_E_INVALID, "only events of usm_event_create() are signalled by hand");
    if (status > 0 || status == USM_E_NOT_READY)
        return usm__fail(
            USM_E_INVALID,
            "usm_event_signal: %d is not a result; pass USM_OK or a failure (USM_E_*, but "
            "not USM_E_NOT_READY)",
            (int)status);
    return usm__event_end(ev, status);
}

/* ---- query and wait ---------------------------------------------------------------------- */

/* The exact status that a user event was signalled with is only known here. */
static usm_status own_status(const usm_event *ev, usm_status st)
{
    int own;

    if (!ev->is_user || st == USM_E_NOT_READY)
        return st;
    own = usm_load_acquire(&((usm_event *)(uintptr_t)ev)->status);
    if (own < 0)
        return usm__fail((usm_status)own,
                         "the event was signalled, or its host task ended, with %s",
                         usm_status_name((usm_status)own));
    return st;
}

usm_status usm_event_query(usm_event *ev)
{
    usm_status st = usm__event_check(ev);

    if (st != USM_OK)
        return st;
    return own_status(ev, usm__be_event_query(ev->ctx->be, ev->native));
}

/* Takes a reference for the time of a wait, unless the last one is being released.  Slots are
 * type-stable, so this function may read an event that is being destroyed. */
static usm_status hold(usm_event *ev)
{
    usm_status st = usm__event_check(ev);
    uint32_t   n  = st == USM_OK ? usm_load_relaxed(&ev->refs) : 0;

    while (n != 0)
        if (usm_cas_acq_rel(&ev->refs, &n, n + 1))
            return USM_OK;
    return st != USM_OK ? st : usm__handle_refuse(NULL, USM__MAGIC_EVENT);
}

usm_status usm_event_wait(usm_event *ev)
{
    usm_status st = hold(ev);

    if (st != USM_OK)
        return st;
    st = own_status(ev, usm__be_event_wait(ev->ctx->be, ev->native));
    usm_event_release(ev);
    return st;
}

usm_status usm_event_wait_all(size_t n, usm_event *const *evs)
{
    usm_status first = USM_OK;

    if (n && !evs)
        return usm__fail(USM_E_INVALID, "usm_event_wait_all: evs is NULL");
    for (size_t i = 0; i < n; i++) {
        usm_status st = usm__event_check(evs[i]);

        if (st != USM_OK)
            return st;
    }
    for (size_t i = 0; i < n; i++) {
        usm_status st = usm_event_wait(evs[i]);

        if (first == USM_OK)
            first = st;
    }
    return first;
}

usm_status usm__event_await(usm_status st, usm_event *ev)
{
    if (st == USM_OK)
        st = usm_event_wait(ev);
    usm_event_release(ev);
    return st;
}

usm_status usm_event_profiling(usm_event *ev, usm_profiling *times)
{
    usm_status st = usm__event_check(ev);

    if (st == USM_OK)
        st = usm__struct_check("usm_event_profiling", "times", times, sizeof *times,
                               "USM_PROFILING_INIT");
    if (st != USM_OK)
        return st;
    if (!ev->has_times)
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "the event has no times: those of commands on queues with "
                         "USM_QUEUE_PROFILING have; user events and host tasks have none");
    st = usm__be_event_query(ev->ctx->be, ev->native);
    if (st == USM_E_NOT_READY)
        return usm__fail(USM_E_NOT_READY, "the command is not complete yet; wait for its event");
    if (st != USM_OK)
        return st;
    return usm__be_event_profiling(ev->ctx->be, ev->native, times);
}

/* ---- callbacks -------------------------------------------------------------------------- */

typedef struct callback {
    usm__completion c;
    usm_event      *ev; /* holds a reference */
    usm_event_fn    fn;
    void           *user;
} callback;

static void callback_run(usm__completion *c)
{
    callback *cb = usm_container_of(c, callback, c);

    cb->fn(cb->ev, own_status(cb->ev, c->status), cb->user);
    usm_event_release(cb->ev);
    usm__heap_free(cb);
}

usm_status usm_event_on_complete(usm_event *ev, usm_event_fn fn, void *user)
{
    callback  *cb;
    usm_status st = usm__event_check(ev);

    if (st != USM_OK)
        return st;
    if (!fn)
        return usm__fail(USM_E_INVALID, "usm_event_on_complete: fn is NULL");
    cb = usm__heap_alloc(sizeof *cb);
    if (!cb)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a callback");
    cb->ev   = ev;
    cb->fn   = fn;
    cb->user = user;
    usm_ref_take(&ev->refs);
    st = usm__completion_arm(&cb->c, ev->ctx->be, ev->native, callback_run);
    if (st == USM_OK)
        return USM_OK;
    usm_event_release(ev);
    usm__heap_free(cb);
    return st;
}

/* ---- dependencies -------------------------------------------------------------------------- */

/* Forwards the completion of an event to another context. */
typedef struct bridge {
    usm__completion c;
    usm_event      *from; /* holds a reference: keeps c.native                    */
    usm_event      *to;   /* holds a reference: a user event of the other context */
} bridge;

static void bridge_run(usm__completion *c)
{
    bridge *b = usm_container_of(c, bridge, c);

    (void)usm__event_end(b->to, own_status(b->from, c->status));
    usm_event_release(b->to);
    usm_event_release(b->from);
    usm__heap_free(b);
}

/* *to is a user event of ctx that completes with `from`; the caller gets a reference. */
static usm_status make_bridge(usm_context *ctx, usm_event *from, usm_event **to)
{
    bridge    *b  = usm__heap_alloc(sizeof *b);
    usm_status st = USM_OK;

    if (!b)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to bridge an event");
    st = usm_event_create(ctx, &b->to);
    if (st != USM_OK)
        goto err_free;
    b->to->is_outside = false; /* it depends on the outside exactly if `from` does, which is
                                  counted */
    b->from           = from;
    usm_ref_take(&from->refs);
    usm_ref_take(&b->to->refs);
    *to = b->to; /* once armed, the bridge may run and free itself at any moment */
    st  = usm__completion_arm(&b->c, from->ctx->be, from->native, bridge_run);
    if (st == USM_OK)
        return USM_OK;
    usm_event_release(b->to);
    usm_event_release(b->to);
    usm_event_release(from);
err_free:
    usm__heap_free(b);
    return st;
}

static usm_status make_room(usm__deps *d, size_t n)
{
    if (n <= USM__DEPS_INLINE)
        return USM_OK;
    d->native = usm__heap_alloc(n * sizeof *d->native);
    d->bridge = usm__heap_alloc(n * sizeof(usm_event *));
    if (d->native && d->bridge)
        return USM_OK;
    return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu dependencies", n);
}

static usm_status add_dep(usm__deps *d, usm_event *ev)
{
    usm_event *bridged = NULL;
    usm_status st      = usm__event_check(ev);

    if (st != USM_OK)
        return st;
    usm__outside_await(ev);
    if (ev->ctx != d->ctx) {
        st = make_bridge(d->ctx, ev, &bridged);
        if (st != USM_OK)
            return st;
        d->bridge[d->nbridges++] = bridged;
        ev                       = bridged;
    }
    d->native[d->n++] = ev->native;
    return USM_OK;
}

usm_status usm__deps_init(usm__deps *d, usm_context *ctx, size_t ndeps, usm_event *const *deps)
{
    usm_status st;

    usm__deps_none(d, ctx);
    if (ndeps == 0)
        return USM_OK;
    if (!deps)
        return usm__fail(USM_E_INVALID, "%zu dependencies, but the array is NULL", ndeps);
    st = make_room(d, ndeps);
    for (size_t i = 0; st == USM_OK && i < ndeps; i++)
        st = add_dep(d, deps[i]);
    if (st != USM_OK)
        usm__deps_fini(d);
    return st;
}

void usm__deps_fini(usm__deps *d)
{
    for (size_t i = 0; i < d->nbridges; i++)
        usm_event_release(d->bridge[i]);
    if (d->native != d->inline_native)
        usm__heap_free(d->native);
    if (d->bridge != d->inline_bridge)
        usm__heap_free(d->bridge);
    d->native   = d->inline_native;
    d->bridge   = d->inline_bridge;
    d->nbridges = d->n = 0;
}
