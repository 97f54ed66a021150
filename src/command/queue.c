/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues, and the steps common to every submission (command/queue.h).
 *
 * The commands of one submission stay together in an in-order queue, because its lock is held
 * around the calls of the backend.  A queue that is destroyed with commands in flight remains a
 * user of its context until its last command has ended, so that memory outlives the commands that
 * use it.  It also stays in the context's list, so that usm_context_wait() waits for it. */
#include "command/queue.h"

#include "base/inline/bits.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "base/part.h"
#include "base/watched.h"
#include "device/init.h"
#include "device/observer.h"

USM__THREAD_LOCAL uint64_t usm__task_queue;

static usm__meta_type queue_type =
    USM__META_TYPE(struct usm_queue, offsetof(struct usm_queue, be), "queues");

usm_status usm__queue_check(usm_queue *q)
{
    usm_status st = usm__handle_check(q, USM__MAGIC_QUEUE);

    if (st == USM_OK && usm__context_is_inert(q->ctx))
        st = usm__fail(USM_E_FORKED, "the queue was made before fork(); make one in the child");
    return st;
}

/* ---- creation --------------------------------------------------------------------- */

usm__queues_state usm__queues; /* atomic, each member */

static usm_queue *new_queue(usm_context *ctx, size_t index, uint32_t flags)
{
    usm_queue *q = usm__meta_alloc(&queue_type);

    if (!q) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a queue");
        return NULL;
    }
    q->be     = ctx->be;
    q->ctx    = ctx;
    q->index  = index;
    q->dev    = ctx->devices[index].dev;
    q->flags  = flags;
    q->serial = usm_add_relaxed(&usm__queues.serials, (uint64_t)1) + 1;
    usm__mutex_init(&q->lock, USM__RANK_QUEUE, "queue");
    usm__mutex_init(&q->entering, USM__RANK_SUBMIT, "entering a queue");
    usm_list_init(&q->link);
    usm_store_relaxed(&q->refs, 1u);
    return q;
}

static void publish(usm_queue *q, usm_queue **out)
{
    if (!q->is_own) {
        usm__context_use(q->ctx);
        usm__mutex_lock(&q->ctx->lock);
        usm_list_append(&q->ctx->queues, &q->link);
        usm__mutex_unlock(&q->ctx->lock);
    }
    usm_store_release(&q->magic, (uint32_t)USM__MAGIC_QUEUE);
    *out = q;
}

static void discard(usm_queue *q)
{
    usm__mutex_fini(&q->entering);
    usm__mutex_fini(&q->lock);
    usm__meta_free(&queue_type, q);
}

static usm_status make(usm_context *ctx, size_t index, uint32_t flags, bool is_own, usm_queue **out)
{
    usm_queue *q;
    usm_status st;

    if (usm__context_is_inert(ctx))
        return usm__fail(USM_E_FORKED, "the context was made before fork(); make one in the child");
    q = new_queue(ctx, index, flags);
    if (!q)
        return USM_E_NO_MEMORY;
    q->is_internal = q->is_own = is_own;
    st = usm__be_queue_create(ctx->be, ctx->native, q->dev->desc.handle, flags, &q->native);
    if (st == USM_OK && usm__observer_order_on())
        usm__observer_get()->queue_named(q->native, q->serial);
    if (st == USM_OK)
        publish(q, out);
    else
        discard(q);
    return st;
}

usm_status usm__queue_make(usm_context *ctx, size_t index, uint32_t flags, usm_queue **out)
{
    return make(ctx, index, flags, false, out);
}

usm_status usm__queue_make_own(usm_context *ctx, size_t index, usm_queue **out)
{
    return make(ctx, index, USM_QUEUE_IN_ORDER, true, out);
}

static usm_status check_flags(const usm_device *dev, uint32_t flags)
{
    if (flags & ~(uint32_t)(USM_QUEUE_OUT_OF_ORDER | USM_QUEUE_PROFILING))
        return usm__fail(USM_E_INVALID, "usm_queue_create: unknown flags 0x%x", flags);
    if ((flags & USM_QUEUE_OUT_OF_ORDER) && !usm_device_has(dev, USM_ASPECT_OUT_OF_ORDER_QUEUE))
        return usm__fail(USM_E_NOT_SUPPORTED, "%s has no out-of-order queues", dev->term);
    if ((flags & USM_QUEUE_PROFILING) && !usm_device_has(dev, USM_ASPECT_QUEUE_PROFILING))
        return usm__fail(USM_E_NOT_SUPPORTED, "%s cannot time its commands", dev->term);
    return USM_OK;
}

usm_status usm_queue_create(usm_context *ctx, usm_device *dev, const usm_queue_desc *desc,
                            usm_queue **q)
{
    const usm_queue_desc defaults = USM_QUEUE_DESC_INIT;
    size_t               index    = 0;
    usm_status           st       = USM_OK;

    st = usm__context_resolve(&ctx);
    if (st == USM_OK)
        st = usm__context_device_index(ctx, dev, &index);
    if (st != USM_OK)
        return st;
    if (!desc)
        desc = &defaults;
    if (!q)
        return usm__fail(USM_E_INVALID, "usm_queue_create: q is NULL");
    st = usm__struct_check("usm_queue_create", "desc", desc, sizeof *desc, "USM_QUEUE_DESC_INIT");
    if (st == USM_OK)
        st = check_flags(ctx->devices[index].dev, desc->flags);
    return st == USM_OK ? usm__queue_make(ctx, index, desc->flags, q) : st;
}

static usm_status index_of_handle(usm_context *ctx, const void *handle, size_t *index)
{
    for (size_t i = 0; i < ctx->ndevices; i++)
        if (ctx->devices[i].dev->desc.handle == handle) {
            *index = i;
            return USM_OK;
        }
    return usm__fail(USM_E_INVALID, "the native queue's device is not in the context");
}

usm_status usm_queue_from_native(usm_context *ctx, void *handle, usm_ownership ownership,
                                 usm_queue **out)
{
    void      *native = NULL, *dev = NULL;
    uint32_t   flags = 0;
    size_t     index = 0;
    usm_queue *q;
    usm_status st = usm__context_resolve(&ctx);

    if (st != USM_OK)
        return st;
    if (!handle || !out)
        return usm__fail(USM_E_INVALID, "usm_queue_from_native: %s is NULL",
                         handle ? "q" : "handle");
    st = usm__be_queue_from_native(ctx->be, ctx->native, handle, ownership, &native, &dev, &flags);
    if (st != USM_OK)
        return st;
    st = index_of_handle(ctx, dev, &index);
    q  = st == USM_OK ? new_queue(ctx, index, flags) : NULL;
    if (!q) {
        usm__be_queue_destroy(ctx->be, native);
        return st != USM_OK ? st : USM_E_NO_MEMORY;
    }
    q->native = native;
    /* The owner of the native queue may have queued commands that libusm does not know. */
    usm_store_relaxed(&q->is_shared, true);
    publish(q, out);
    return USM_OK;
}

/* ---- end ------------------------------------------------------------------------------ */

static void unref(usm_queue *q)
{
    usm_context *ctx    = q->ctx;
    bool         is_own = q->is_own;

    if (!usm_ref_drop(&q->refs))
        return;
    if (usm_load_acquire(&q->async))
        usm__parts_queue_retired(q);
    if (!is_own) {
        usm__mutex_lock(&ctx->lock);
        usm_list_remove(&q->link);
        usm__mutex_unlock(&ctx->lock);
    }
    if (q->probe)
        usm__be_event_release(q->be, q->probe);
    usm__be_queue_destroy(q->be, q->native);
    discard(q);
    if (!is_own)
        usm__context_unuse(ctx);
}

/* False if the last reference is being released. */
static bool ref(usm_queue *q)
{
    uint32_t n = usm_load_relaxed(&q->refs);

    while (n != 0)
        if (usm_cas_acq_rel(&q->refs, &n, n + 1))
            return true;
    return false;
}

bool usm__queue_ref(usm_queue *q)
{
    return ref(q);
}

void usm__queue_unref(usm_queue *q)
{
    unref(q);
}

usm_queue *usm__queue_next(usm_context *ctx, usm_queue *q)
{
    usm_queue *next = NULL;

    usm__mutex_lock(&ctx->lock);
    for (usm_list *it = q ? q->link.next : ctx->queues.next; it != &ctx->queues && !next;
         it           = it->next) {
        next = usm_container_of(it, usm_queue, link);
        if (!ref(next))
            next = NULL;
    }
    usm__mutex_unlock(&ctx->lock);
    if (q)
        unref(q);
    return next;
}

static void last_command_ended(usm__completion *c)
{
    usm_queue *q = usm_container_of(c, usm_queue, last);

    usm__be_event_release(q->be, c->native);
    unref(q);
}

/* Returns an event for the end of all submitted commands; NULL: all have ended. */
static void *last_event(usm_queue *q)
{
    void *ev = NULL;

    /* If all are known to have ended, everything is freed now.  Otherwise another thread would do
     * it a moment later, and could be in the driver while the program exits. */
    if (usm_load_relaxed(&q->submitted) == usm_load_relaxed(&q->ended) &&
        !usm_load_relaxed(&q->is_shared))
        return NULL;
    if (usm__be_marker(q->be, q->native, 0, NULL, &ev) != USM_OK) {
        (void)usm__be_queue_wait(q->be, q->native); /* memory must not be freed before */
        return NULL;
    }
    if (usm__be_event_query(q->be, ev) == USM_E_NOT_READY)
        return ev;
    usm__be_event_release(q->be, ev);
    return NULL;
}

/* False if another thread was faster. */
static bool kill_handle(usm_queue *q)
{
    if (!usm__handle_kill(q, USM__MAGIC_QUEUE))
        return false;
    for (int kind = USM_HOST; kind <= USM_SHARED; kind++)
        usm_store_relaxed(&q->alloc_slots[kind], (uint8_t)0);
    return true;
}

void usm__queue_retire(usm_queue *q)
{
    void *ev;

    if (!kill_handle(q) || usm__context_is_inert(q->ctx))
        return; /* ended before, or inherited from the parent */
    ev = last_event(q);
    if (!ev) {
        unref(q);
    } else if (usm__completion_arm(&q->last, q->be, ev, last_command_ended) != USM_OK) {
        (void)usm__be_event_wait(q->be, ev); /* no thread can be started: wait here */
        usm__be_event_release(q->be, ev);
        unref(q);
    }
}

void usm__queue_end_own(usm_queue *q)
{
    if (kill_handle(q))
        unref(q);
}

void usm_queue_destroy(usm_queue *q)
{
    if (!q || usm__handle_check(q, USM__MAGIC_QUEUE) != USM_OK)
        return;
    if (q->is_internal) {
        usm__warn("usm_queue_destroy: the default queue is the library's");
        return;
    }
    usm__queue_retire(q);
}

/* ---- waiting ---------------------------------------------------------------------------- */

static void note_ended(usm_queue *q, uint64_t n)
{
    /* A marker of an earlier query may be looked at after a later wait. */
    if (!usm_load_relaxed(&q->is_shared) && n > usm_load_relaxed(&q->ended))
        usm_store_release(&q->ended, n);
}

bool usm__queue_is_idle(usm_queue *q)
{
    return usm_load_acquire(&q->submitted) == usm_load_acquire(&q->ended) &&
           !usm_load_relaxed(&q->is_shared);
}

usm_status usm__queue_finish(usm_queue *q)
{
    uint64_t   n = usm_load_acquire(&q->submitted);
    usm_status st;

    if (usm__task_queue == q->serial)
        return usm__fail(USM_E_BUSY,
                         "a task waits for the queue that it runs in, and so for its own end");
    usm__watched_poll();
    usm__parts_queue_waiting(q);
    st = usm__be_queue_wait(q->be, q->native);

    if (st != USM_E_NO_MEMORY) { /* whatever their result, the commands have ended */
        note_ended(q, n);
        usm__parts_queue_waited(q, n);
    }
    return st;
}

usm_status usm_queue_wait(usm_queue *q)
{
    usm_status st = usm__queue_check(q);

    return st == USM_OK ? usm__queue_finish(q) : st;
}

static void drop_probe(usm_queue *q)
{
    if (q->probe)
        usm__be_event_release(q->be, q->probe);
    q->probe = NULL;
}

/* A marker completes a moment after it was queued, even if nothing is before it.  So it is kept,
 * and the next query polls it again.  pre: q->lock is held. */
static usm_status probe(usm_queue *q, uint64_t n)
{
    usm_status st = USM_OK;

    if (usm_load_relaxed(&q->is_shared) || q->probe_at != n)
        drop_probe(q);
    if (!q->probe)
        st = usm__be_marker(q->be, q->native, 0, NULL, &q->probe);
    if (st != USM_OK)
        return st;
    q->probe_at = n;
    if (usm__be_event_query(q->be, q->probe) == USM_E_NOT_READY)
        return USM_E_NOT_READY;
    drop_probe(q);
    note_ended(q, n);
    return USM_OK;
}

usm_status usm_queue_query(usm_queue *q)
{
    uint64_t   n;
    usm_status st = usm__queue_check(q);

    if (st != USM_OK)
        return st;
    n = usm_load_acquire(&q->submitted);
    if (n == usm_load_relaxed(&q->ended) && !usm_load_relaxed(&q->is_shared)) {
        if (usm__observer_order_on())
            usm__observer_get()->queue_ended(q->native);
        return USM_OK;
    }
    usm__mutex_lock(&q->lock);
    st = probe(q, n);
    usm__mutex_unlock(&q->lock);
    if (st == USM_E_NOT_READY)
        return usm__fail(USM_E_NOT_READY, "the queue has unfinished commands");
    return st;
}

void usm__queue_poll_ended(usm_queue *q)
{
    uint64_t n;

    usm__mutex_lock(&q->lock);
    if (q->probe && usm__be_event_query(q->be, q->probe) != USM_E_NOT_READY) {
        note_ended(q, q->probe_at);
        drop_probe(q);
    }
    n = usm_load_acquire(&q->submitted);
    if (!q->probe && n > usm_load_relaxed(&q->ended))
        (void)probe(q, n); /* if it fails, all commands are taken to be in flight */
    usm__mutex_unlock(&q->lock);
}

usm_context *usm_queue_get_context(usm_queue *q)
{
    return usm__queue_check(q) == USM_OK ? q->ctx : NULL;
}

usm_device *usm_queue_get_device(usm_queue *q)
{
    return usm__queue_check(q) == USM_OK ? q->dev : NULL;
}

/* ---- positions of in-order queues ----------------------------------------------------------- */

usm_status usm__queue_mark(usm_queue *q, void **native, uint64_t *position)
{
    uint64_t   n;
    usm_status st;

    usm__mutex_lock(&q->lock);
    n  = usm_load_acquire(&q->submitted);
    st = usm__be_marker(q->be, q->native, 0, NULL, native);
    usm__mutex_unlock(&q->lock);
    if (st == USM_OK)
        *position = n;
    return st;
}

/* The lock is held. */
static void follow(usm_queue *q, uint64_t serial, uint64_t position)
{
    usm__queue_seen *s;

    for (s = q->seen; s < q->seen + USM__QUEUE_SEEN; s++)
        if (s->serial == serial) {
            s->position = s->position > position ? s->position : position;
            return;
        }
    s           = &q->seen[q->seen_hand++ % USM__QUEUE_SEEN];
    s->serial   = serial;
    s->position = position;
}

static void follow_all(usm_queue *q, size_t ndeps, usm_event *const *deps)
{
    for (size_t i = 0; i < ndeps; i++)
        if (deps[i]->serial != 0 && deps[i]->serial != q->serial)
            follow(q, deps[i]->serial, deps[i]->position);
}

usm_status usm__queue_come_after(usm_queue *q, void *native, uint64_t serial, uint64_t position)
{
    usm_status st;

    usm__mutex_lock(&q->lock);
    st = usm__be_barrier(q->be, q->native, 1, &native, NULL);
    if (st == USM_OK)
        follow(q, serial, position);
    usm__mutex_unlock(&q->lock);
    return st;
}

uint64_t usm__queue_follows(usm_queue *q, uint64_t serial)
{
    uint64_t position = 0;

    usm__mutex_lock(&q->lock);
    for (unsigned i = 0; i < USM__QUEUE_SEEN; i++)
        if (q->seen[i].serial == serial)
            position = q->seen[i].position;
    usm__mutex_unlock(&q->lock);
    return position;
}

/* ---- submission ---------------------------------------------------------------------------- */

usm_status usm__submit_begin(usm__submit *s, usm_queue *q, size_t ndeps, usm_event *const *deps,
                             usm_event **ev)
{
    usm_status st = usm__queue_check(q);

    return st == USM_OK ? usm__submit_open(s, q, ndeps, deps, ev) : st;
}

usm_status usm__submit_open(usm__submit *s, usm_queue *q, size_t ndeps, usm_event *const *deps,
                            usm_event **ev)
{
    usm_status st = USM_OK;

    usm__watched_poll();
    if (ndeps == 0)
        usm__deps_none(&s->deps, q->ctx);
    else
        st = usm__deps_init(&s->deps, q->ctx, ndeps, deps);
    if (st != USM_OK)
        return st;
    s->event = ev ? usm__event_new(q->ctx) : NULL;
    if (ev && !s->event) {
        usm__deps_fini(&s->deps);
        return USM_E_NO_MEMORY;
    }
    s->q            = q;
    s->out          = ev;
    s->native       = NULL;
    s->linked       = NULL;
    s->has_no_times = false;
    s->want         = ev != NULL || q->ctx->on_error != NULL;
    if (usm__queue_in_order(q)) {
        usm__mutex_lock(&q->lock);
        follow_all(q, ndeps, deps);
    }
    return USM_OK;
}

/* Reports the failure of a command without an event of the caller's, if the context has an error
 * callback. */
typedef struct watch {
    usm__completion c;
    usm_context    *ctx; /* holds a reference */
} watch;

static void watch_run(usm__completion *c)
{
    watch *w = usm_container_of(c, watch, c);

    if (c->status < 0)
        usm__context_error(w->ctx, c->status,
                           "a command that was submitted without an event failed");
    usm__be_event_release(c->be, c->native);
    usm__context_unref(w->ctx);
    usm__heap_free(w);
}

static void watch_command(usm_context *ctx, void *native)
{
    watch *w = usm__heap_alloc(sizeof *w);

    if (w) {
        w->ctx = ctx;
        usm__context_ref(ctx);
        if (usm__completion_arm(&w->c, ctx->be, native, watch_run) == USM_OK)
            return;
        usm__context_unref(ctx);
        usm__heap_free(w);
    }
    usm__be_event_release(ctx->be, native); /* its failure will not be reported; the command
                                               continues */
}

/* Counts a command after it was queued.  Under the lock of an in-order queue nobody else counts
 * (unless it is shared: usm__queue_position()), and an atomic increment would cost as much as the
 * lock. */
static uint64_t count_command(usm_queue *q)
{
    uint64_t n;

    if (!usm__queue_in_order(q) || usm_load_relaxed(&q->is_shared))
        return usm_add_release(&q->submitted, (uint64_t)1) + 1;
    n = usm_load_relaxed(&q->submitted) + 1;
    usm_store_release(&q->submitted, n);
    return n;
}

usm_status usm__submit_end(usm__submit *s, usm_status status)
{
    usm_queue *q        = s->q;
    uint64_t   position = count_command(q);

    if (usm__queue_in_order(q))
        usm__mutex_unlock(&q->lock);
    if (usm__deps_hold(&s->deps))
        usm__deps_fini(&s->deps);
    if (s->linked)
        usm__be_event_release(q->be, s->linked);
    if (status != USM_OK) {
        if (s->native)
            usm__be_event_release(q->be, s->native);
        if (s->event)
            usm__event_discard(s->event);
        return status;
    }
    if (s->event) {
        s->event->serial   = usm__queue_in_order(q) ? q->serial : 0;
        s->event->position = position;
        usm__event_publish(s->event, s->native,
                           (q->flags & USM_QUEUE_PROFILING) != 0 && !s->has_no_times);
        *s->out = s->event;
    } else if (s->native) {
        watch_command(q->ctx, s->native);
    }
    return USM_OK;
}

void usm__submit_chain(usm__submit *s)
{
    usm__deps_fini(&s->deps);
    if (s->linked)
        usm__be_event_release(s->q->be, s->linked);
    s->linked = s->native;
    s->native = NULL;
    if (s->linked) {
        s->deps.native[0] = s->linked;
        s->deps.n         = 1;
    }
}

void usm__submit_want(usm__submit *s, bool is_last)
{
    s->want = !is_last || s->out != NULL || s->q->ctx->on_error != NULL;
}

void *usm__submit_last(usm__submit *s)
{
    usm_queue *q    = s->q;
    void      *done = NULL;

    (void)usm__be_marker(q->be, q->native, s->native ? 1 : 0, s->native ? &s->native : NULL, &done);
    return done;
}
