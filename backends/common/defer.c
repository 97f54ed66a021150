/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How commands reach a driver, and why some are deferred first.
 *
 * The problem.  A command may wait for a user event, and a user event may fail; a command that
 * waits for it must then fail with USM_E_DEPENDENCY and must not run.  Drivers do not do this
 * reliably.  OpenCL's own user events fail everywhere they were tried: PoCL 3.1 never calls the
 * callbacks of the failed commands, and no later command of the queue ever runs; Intel's CPU
 * runtime reports CL_COMPLETE for commands that it did not run, and crashes if a failed event is in
 * a wait list.  Level Zero's events cannot fail at all, and a command that waits for one blocks all
 * later commands of the same engine.
 *
 * The mechanism.  Drivers see no user event except completed ones.  A command with a pending event
 * in its wait list is deferred: it is kept here, with its arguments, and issued by the thread that
 * signals the event.  If the event failed, the command is finalized with that failure instead, and
 * the driver never sees it.  A command whose wait list has no pending event and whose queue has no
 * deferred commands, as nearly all, is passed on at once: the cost is one load for the queue and
 * one for each event.
 *
 * Order.  In an in-order queue every command behind a deferred one is deferred too.  In an
 * out-of-order queue a deferred barrier defers the commands after it.  A marker or barrier without
 * a wait list stands for all commands before it, so it is issued only as the first of the deferred
 * ones.  After that the driver keeps the order.
 *
 * Invariants, under the context's lock :
 *   q is in ctx->holding  <=>  q->deferred is not empty  <=>  q->ndeferred > 0
 *   a deferred command has references to its queue, to each event it waits for, and to its own;
 *   a pending event that is no user event belongs to exactly one deferred command.
 *
 * Actions that are not allowed under the lock are postponed until it is released: notifying those
 * that wait for an event (drivers call back at once if it is complete), and freeing a queue whose
 * last command has left (drivers may wait for their own threads then).
 *
 * The cost: deferred commands of a borrowed native queue are issued after commands that the program
 * itself enqueued there in the meantime.
 *
 * Not here: wait lists, native events, commands: those are the backend's (defer_ops).  Called by
 * the backends' queues, launches and handles; the functions of the last part are in their tables.
 * */
#include "defer.h"

#include <stdalign.h>
#include <string.h>

#define no_memory(ctx)           fail(ctx, USM_E_NO_MEMORY, "the host heap is exhausted")
#define fail(ctx, status, ...)   ((void)(ctx)->host->report((status), __VA_ARGS__), (status))
#define round_up(n, granularity) (((n) + (granularity)-1) / (granularity) * (granularity))

#define RECYCLED 1024 /* events, and notes, that a context keeps for reuse */

/* A callback for an event; from event_notify until it is called. */
typedef struct notice {
    usm_list              link; /* in ev->notices, then in a list to deliver       */
    defer_event          *ev;   /* a reference                                     */
    usm_backend_notify_fn fn;
    void                 *arg;
} notice;

/* The backend's command is stored behind the dependencies. */
typedef struct deferred_command {
    usm_list     link;
    defer_event *out; /* or NULL */
    size_t       ndeps;
    defer_event *deps[];
} deferred_command;

/* Actions to be done after the lock is released. */
typedef struct leftovers {
    usm_list notices;
    usm_list queues; /* without references; by `link` */
} leftovers;

/* --- contexts and queues ---------------------------------------------------------------------- */

void defer_context_init(defer_context *ctx, const defer_ops *ops, const usm_host_api *host)
{
    ctx->ops  = ops;
    ctx->host = host;
    usm_store_relaxed(&ctx->refs, 1);
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_cond_init(&ctx->changed, NULL);
    usm_list_init(&ctx->holding);
    ctx->events = (usm_recycler)USM_RECYCLER_INIT(ops->event_size, RECYCLED);
    ctx->notes  = (usm_recycler)USM_RECYCLER_INIT(DEFER_NOTE_SIZE, RECYCLED);
}

void *defer_note_new(defer_context *ctx)
{
    void *note = usm_recycler_take(&ctx->notes, DEFER_NOTE_SIZE);

    return note ? note : ctx->host->heap_alloc(DEFER_NOTE_SIZE);
}

void defer_note_free(defer_context *ctx, void *note)
{
    if (!usm_recycler_give(&ctx->notes, note))
        ctx->host->heap_free(note);
}

void defer_context_ref(defer_context *ctx)
{
    usm_ref_take(&ctx->refs);
}

void defer_context_unref(defer_context *ctx)
{
    if (!usm_ref_drop(&ctx->refs))
        return;
    pthread_cond_destroy(&ctx->changed);
    pthread_mutex_destroy(&ctx->lock);
    usm_recycler_clear(&ctx->events, ctx->host->heap_free);
    usm_recycler_clear(&ctx->notes, ctx->host->heap_free);
    ctx->ops->context_free(ctx);
}

void defer_queue_init(defer_queue *q, defer_context *ctx, bool is_ordered)
{
    q->ctx        = ctx;
    q->is_ordered = is_ordered;
    usm_store_relaxed(&q->refs, 1);
    usm_store_relaxed(&q->ndeferred, 0);
    usm_store_relaxed(&q->failure, USM_OK);
    pthread_cond_init(&q->drained, NULL);
    usm_list_init(&q->deferred);
    usm_list_init(&q->link);
    defer_context_ref(ctx);
}

void defer_queue_ref(defer_queue *q)
{
    usm_ref_take(&q->refs);
}

/* No other reference to the queue exists. */
static void queue_free(defer_queue *q)
{
    defer_context *ctx = q->ctx;

    pthread_cond_destroy(&q->drained);
    ctx->ops->queue_free(q);
    defer_context_unref(ctx);
}

void defer_queue_unref(defer_queue *q)
{
    if (usm_ref_drop(&q->refs))
        queue_free(q);
}

void defer_queue_wait_deferred(defer_queue *q)
{
    defer_context *ctx = q->ctx;

    if (usm_load_acquire(&q->ndeferred) == 0)
        return;
    pthread_mutex_lock(&ctx->lock);
    while (usm_load_acquire(&q->ndeferred) != 0)
        pthread_cond_wait(&q->drained, &ctx->lock);
    pthread_mutex_unlock(&ctx->lock);
}

void defer_queue_note_failure(defer_queue *q, usm_status status)
{
    int none = USM_OK;

    (void)usm_cas_acq_rel(&q->failure, &none, status);
}

usm_status defer_queue_take_failure(defer_queue *q)
{
    usm_status failure = (usm_status)usm_swap_acq_rel(&q->failure, (int)USM_OK);

    if (failure)
        return fail(q->ctx, failure, "a command of the queue that had no event failed");
    return USM_OK;
}

/* --- events: from pending to the end --------------------------------------------------------- */

defer_event *defer_event_new(defer_context *ctx)
{
    defer_event *ev = usm_recycler_take(&ctx->events, ctx->ops->event_size);

    if (!ev)
        ev = ctx->host->heap_alloc(ctx->ops->event_size);
    if (!ev)
        return NULL;
    ev->ctx = ctx;
    usm_store_relaxed(&ev->refs, 1);
    usm_store_relaxed(&ev->state, DEFER_PENDING);
    usm_list_init(&ev->notices);
    return ev;
}

void defer_event_ref(defer_event *ev)
{
    usm_ref_take(&ev->refs);
}

void defer_event_unref(defer_event *ev)
{
    defer_context *ctx;

    if (!ev || !usm_ref_drop(&ev->refs))
        return;
    ctx = ev->ctx;
    ctx->ops->event_fini(ev);
    if (!usm_recycler_give(&ctx->events, ev))
        ctx->host->heap_free(ev);
}

static void move_notices(defer_event *ev, usm_list *to)
{
    usm_list *it;

    while ((it = usm_list_pop(&ev->notices)))
        usm_list_append(to, it);
}

void defer_event_become_native(defer_event *ev, usm_list *notices)
{
    usm_store_release(&ev->state, DEFER_NATIVE); /* pairs with the loads of state */
    move_notices(ev, notices);
}

void defer_event_settle(defer_event *ev, usm_status status, usm_list *notices)
{
    ev->status = status;
    usm_store_release(&ev->state, DEFER_SETTLED);
    if (ev->ctx->ops->event_settled)
        ev->ctx->ops->event_settled(ev);
    move_notices(ev, notices);
}

/* --- notification ---------------------------------------------------------------------------- */

static void deliver(const defer_ops *ops, const notice *n)
{
    if (defer_event_state(n->ev) == DEFER_SETTLED)
        n->fn(n->arg, n->ev->status);
    else if (ops->event_notify(n->ev, n->fn, n->arg))
        n->fn(n->arg, ops->event_wait(n->ev)); /* no memory: a late notification is better than
                                                  none */
}

/* Lock not held: drivers call back from inside if the command is complete. */
void defer_notices_deliver(defer_context *ctx, usm_list *notices)
{
    usm_list *it;

    while ((it = usm_list_pop(notices))) {
        notice *n = usm_container_of(it, notice, link);

        deliver(ctx->ops, n);
        defer_event_unref(n->ev);
        defer_note_free(ctx, n);
    }
}

/* Notifies when the event ends: from the thread that ends it, or now. */
static usm_status notify_later(defer_event *ev, usm_backend_notify_fn fn, void *arg)
{
    defer_context *ctx = ev->ctx;
    notice        *n   = defer_note_new(ctx);
    usm_list       now;

    if (!n)
        return no_memory(ctx);
    n->fn  = fn;
    n->arg = arg;
    n->ev  = ev;
    defer_event_ref(ev);
    usm_list_init(&now);
    defer_context_ref(ctx); /* a callback may release the last reference */
    pthread_mutex_lock(&ctx->lock);
    usm_list_append(defer_event_state(ev) == DEFER_PENDING ? &ev->notices : &now, &n->link);
    pthread_mutex_unlock(&ctx->lock);
    defer_notices_deliver(ctx, &now);
    defer_context_unref(ctx);
    return USM_OK;
}

/* --- postponed actions -------------------------------------------------------- */

static void leftovers_init(leftovers *l)
{
    usm_list_init(&l->notices);
    usm_list_init(&l->queues);
}

/* Lock not held; the caller has a reference to ctx. */
static void leftovers_finish(leftovers *l, defer_context *ctx)
{
    usm_list *it;

    defer_notices_deliver(ctx, &l->notices);
    while ((it = usm_list_pop(&l->queues)))
        queue_free(usm_container_of(it, defer_queue, link));
}

/* --- issuing ---------------------------------------------------------------------------------- */

/* The state of a wait list; each of its events is read once. */
typedef struct outlook {
    bool is_pending;
    bool has_failed;
} outlook;

static outlook look_at(size_t ndeps, defer_event *const *deps)
{
    outlook o = {false, false};

    for (size_t i = 0; i < ndeps; i++) {
        int state = defer_event_state(deps[i]);

        if (state == DEFER_PENDING)
            o.is_pending = true;
        else if (state == DEFER_SETTLED && deps[i]->status < 0)
            o.has_failed = true;
    }
    return o;
}

static void end_badly(defer_queue *q, defer_event *out, usm_status status, usm_list *notices)
{
    if (out)
        defer_event_settle(out, status, notices);
    else
        defer_queue_note_failure(q, status);
}

/* No dependency is pending.  `out` is native or settled afterwards, unless this fails.  A barrier
 * orders later commands even if something it waits for failed. */
static usm_status issue(defer_queue *q, const defer_command *cmd, size_t ndeps,
                        defer_event *const *deps, defer_event *out, bool has_failed,
                        usm_list *notices)
{
    const defer_ops *ops    = q->ctx->ops;
    usm_status       status = USM_OK;

    if (!has_failed || cmd->is_barrier)
        status = ops->issue(q, cmd, ndeps, deps, has_failed ? NULL : out, has_failed, notices);
    ops->command_drop(cmd);
    if (status == USM_E_DEPENDENCY || (!status && has_failed)) {
        end_badly(q, out, USM_E_DEPENDENCY, notices);
        return USM_OK;
    }
    return status;
}

/* --- deferring ---------------------------------------------------------------- */

static size_t command_offset(size_t ndeps)
{
    return round_up(sizeof(deferred_command) + ndeps * sizeof(defer_event *), alignof(max_align_t));
}

static defer_command *command_of(deferred_command *h)
{
    return (defer_command *)(void *)((char *)h + command_offset(h->ndeps));
}

static bool stands_for_all(deferred_command *h)
{
    return h->ndeps == 0 && command_of(h)->is_mark;
}

static deferred_command *deferred_new(const defer_context *ctx, const defer_command *cmd,
                                      size_t ndeps, defer_event *const *deps, defer_event *out)
{
    deferred_command *h = ctx->host->heap_alloc(command_offset(ndeps) + cmd->size);

    if (!h)
        return NULL;
    h->out   = out;
    h->ndeps = ndeps;
    memcpy(command_of(h), cmd, cmd->size);
    if (out)
        defer_event_ref(out);
    for (size_t i = 0; i < ndeps; i++) {
        h->deps[i] = deps[i];
        defer_event_ref(deps[i]);
    }
    return h;
}

/* Lock held. */
static void deferred_append(defer_queue *q, deferred_command *h)
{
    defer_queue_ref(q);
    usm_list_append(&q->deferred, &h->link);
    q->nbarriers += command_of(h)->is_barrier;
    if (usm_add_relaxed(&q->ndeferred, 1) == 0)
        usm_list_append(&q->ctx->holding, &q->link);
}

/* Lock held.  The command goes to the driver, or is finalized; h is freed. */
static void deferred_issue(defer_queue *q, deferred_command *h, bool has_failed, usm_list *notices)
{
    usm_status status = issue(q, command_of(h), h->ndeps, h->deps, h->out, has_failed, notices);

    if (status)
        end_badly(q, h->out, status, notices);
    for (size_t i = 0; i < h->ndeps; i++)
        defer_event_unref(h->deps[i]);
    defer_event_unref(h->out);
    usm_list_remove(&h->link);
    q->nbarriers -= command_of(h)->is_barrier;
    /* Pairs with the load in defer_submit(): a thread that sees 0 enqueues behind us. */
    if (usm_ref_drop(&q->ndeferred)) {
        usm_list_remove(&q->link);
        pthread_cond_broadcast(&q->drained);
    }
    q->ctx->host->heap_free(h);
    (void)usm_ref_drop(&q->refs); /* never the last: the pump, or the submitter, has one */
}

/* Lock held.  Returns whether anything was issued. */
static bool pump_queue(defer_queue *q, usm_list *notices)
{
    bool is_first = true, has_issued = false;

    USM_LIST_FOREACH_SAFE (it, next, &q->deferred) {
        deferred_command *h = usm_container_of(it, deferred_command, link);
        outlook           o = look_at(h->ndeps, h->deps);

        if (!o.is_pending && (is_first || !stands_for_all(h))) {
            deferred_issue(q, h, o.has_failed, notices);
            has_issued = true;
            continue;
        }
        if (q->is_ordered || command_of(h)->is_barrier)
            break;
        is_first = false;
    }
    return has_issued;
}

/* Issues all commands that can be issued now.  Lock held, and a reference to ctx. */
static void pump(defer_context *ctx, leftovers *left)
{
    bool has_issued;

    do {
        has_issued = false;
        USM_LIST_FOREACH_SAFE (it, next, &ctx->holding) {
            defer_queue *q = usm_container_of(it, defer_queue, link);

            defer_queue_ref(q);
            has_issued |= pump_queue(q, &left->notices);
            if (usm_ref_drop(&q->refs)) /* so it has no deferred command and is in no list */
                usm_list_append(&left->queues, &q->link);
        }
    } while (has_issued && !usm_list_is_empty(&ctx->holding));
    pthread_cond_broadcast(&ctx->changed);
}

/* True if the last deferred command need not be deferred: the event may have been signalled just
 * now, and in an out-of-order queue only barriers defer commands without pending events.  Lock
 * held. */
static bool is_next(const defer_queue *q, deferred_command *last, outlook o)
{
    size_t nbarriers = q->nbarriers - command_of(last)->is_barrier;
    bool   is_only   = q->deferred.next == &last->link;

    return !o.is_pending && (is_only || (!q->is_ordered && !nbarriers && !stands_for_all(last)));
}

/* The thread that settles an event issues all that can be issued, so the other deferred commands
 * need no attention here. */
static usm_status hold(defer_queue *q, const defer_command *cmd, size_t ndeps,
                       defer_event *const *deps, defer_event *out)
{
    defer_context    *ctx = q->ctx;
    deferred_command *h   = deferred_new(ctx, cmd, ndeps, deps, out);
    usm_list          nobody; /* stays empty: no listener has `out` */
    outlook           o;

    if (!h) {
        ctx->ops->command_drop(cmd);
        return no_memory(ctx);
    }
    usm_list_init(&nobody);
    pthread_mutex_lock(&ctx->lock);
    deferred_append(q, h);
    o = look_at(ndeps, deps);
    if (is_next(q, h, o)) {
        deferred_issue(q, h, o.has_failed, &nobody);
        pthread_cond_broadcast(&ctx->changed);
    }
    pthread_mutex_unlock(&ctx->lock);
    return USM_OK;
}

usm_status defer_submit(defer_queue *q, const defer_command *cmd, size_t ndeps, void *const *deps,
                        void **ev)
{
    defer_event *const *events = (defer_event *const *)deps;
    defer_context      *ctx    = q->ctx;
    defer_event        *out    = NULL;
    outlook             o      = look_at(ndeps, events);
    usm_list            nobody;
    usm_status          status;

    if (ev && !(out = defer_event_new(ctx))) {
        ctx->ops->command_drop(cmd);
        return no_memory(ctx);
    }
    usm_list_init(&nobody); /* stays empty: `out` is not returned yet */
    if (usm_load_acquire(&q->ndeferred) == 0 && !o.is_pending)
        status = issue(q, cmd, ndeps, events, out, o.has_failed, &nobody);
    else
        status = hold(q, cmd, ndeps, events, out);
    if (status)
        defer_event_unref(out);
    else if (ev)
        *ev = out;
    return status;
}

/* --- user events ------------------------------------------------------------------------------ */

/* Settles a pending event, without the lock held, and issues the commands that waited for it. */
bool defer_event_complete(defer_event *ev, usm_status status)
{
    defer_context *ctx = ev->ctx;
    leftovers      left;
    bool           was_pending;

    leftovers_init(&left);
    defer_context_ref(ctx); /* the last queue may be freed with its last command */
    pthread_mutex_lock(&ctx->lock);
    was_pending = defer_event_state(ev) == DEFER_PENDING;
    if (was_pending) {
        defer_event_settle(ev, status, &left.notices);
        pump(ctx, &left);
    }
    pthread_mutex_unlock(&ctx->lock);
    leftovers_finish(&left, ctx);
    defer_context_unref(ctx);
    return was_pending;
}

usm_status defer_event_create_user(void *context, void **out)
{
    defer_context *ctx = context;
    defer_event   *ev  = defer_event_new(ctx);

    if (!ev)
        return no_memory(ctx);
    ev->is_user = true;
    *out        = ev;
    return USM_OK;
}

usm_status defer_event_signal(void *event, usm_status status)
{
    defer_event *ev = event;

    if (!ev->is_user || !defer_event_complete(ev, status))
        return fail(ev->ctx, USM_E_INVALID, "the event is not a user event, or was signalled");
    return USM_OK;
}

/* A user event that can no longer be signalled fails; otherwise its dependents would wait
 * forever. */
void defer_event_release(void *event)
{
    defer_event *ev = event;

    if (ev->is_user && defer_event_state(ev) == DEFER_PENDING)
        (void)defer_event_signal(ev, USM_E_DEPENDENCY);
    defer_event_unref(ev);
}

/* --- query and wait ----------------------------------------------------------- */

static usm_status notify_status(const defer_event *ev)
{
    usm_status status = ev->status;

    if (!status)
        return USM_OK;
    if (status == USM_E_DEPENDENCY)
        return fail(ev->ctx, status, "a command or event that this one waits for failed");
    return fail(ev->ctx, status, "the event was completed with the failure %d", (int)status);
}

usm_status defer_event_query(void *event)
{
    defer_event *ev     = event;
    int          state  = defer_event_state(ev);
    usm_status   status = USM_E_NOT_READY;

    if (state == DEFER_SETTLED)
        return notify_status(ev);
    if (state == DEFER_NATIVE)
        status = ev->ctx->ops->event_query(ev);
    if (status == USM_E_NOT_READY)
        return fail(ev->ctx, status, "the event is not complete yet");
    return status;
}

static void wait_while_pending(defer_event *ev)
{
    defer_context *ctx = ev->ctx;

    if (defer_event_state(ev) != DEFER_PENDING)
        return;
    pthread_mutex_lock(&ctx->lock);
    while (defer_event_state(ev) == DEFER_PENDING)
        pthread_cond_wait(&ctx->changed, &ctx->lock);
    pthread_mutex_unlock(&ctx->lock);
}

usm_status defer_event_wait(void *event)
{
    defer_event *ev = event;

    wait_while_pending(ev);
    if (defer_event_state(ev) == DEFER_SETTLED)
        return notify_status(ev);
    return ev->ctx->ops->event_wait(ev);
}

usm_status defer_event_notify(void *event, usm_backend_notify_fn fn, void *arg)
{
    defer_event *ev = event;

    if (defer_event_state(ev) == DEFER_NATIVE)
        return ev->ctx->ops->event_notify(ev, fn, arg);
    return notify_later(ev, fn, arg);
}
