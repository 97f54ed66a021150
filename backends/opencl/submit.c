/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How commands reach the driver, and why some are held back first.
 *
 * The problem.  A command may wait for a user event, and a user event may fail;
 * what waits for it must then fail with USM_E_DEPENDENCY and must not run.  With
 * OpenCL's own user events that goes wrong everywhere it was tried: PoCL 3.1 never
 * calls the callbacks of the failed commands, and no later command of the queue
 * ever runs; Intel's CPU runtime says CL_COMPLETE of commands it did not do,
 * and crashes when a failed event stands in a wait list.
 *
 * The way out.  No driver sees a user event, except complete ones.  A command with a pending event
 * in its wait list is kept here, complete with its arguments, and issued by whoever signals that
 * event; if the event failed, it is settled instead and the driver never hears of it.  Commands
 * whose wait list is free of pending events and whose queue holds nothing, that is nearly all, go
 * straight through: the cost for them is one load for the queue and one for each event.
 *
 * Order.  In an in-order queue everything behind a held command is held too. In
 * an out-of-order queue a held barrier holds what follows; a marker or barrier
 * without a wait list stands for all before it, so it is issued only as the
 * first of what is held.  Once issued, the driver keeps the order.
 *
 * Invariants, under the context's lock:
 *   q is in ctx->holding  <=>  q->held is not empty  <=>  q->nheld > 0
 *   a held command has a reference to its queue, to each event it waits for,
 *   and to its own event; a pending event that is no user event belongs to
 *   exactly one held command.
 *
 * The price: held commands of a borrowed native queue are issued after what the
 * program itself enqueued there in the meantime.
 *
 * Called by queue.c, kernel.c and event.c. */
#include "opencl.h"

#include <string.h>

typedef struct held_command {
    usm_list    link;
    ocl_command command;
    ocl_event  *out; /* or NULL */
    size_t      ndeps;
    ocl_event  *deps[];
} held_command;

/* --- wait lists ----------------------------------------------------------------- */

#define FEW_EVENTS 16

typedef struct wait_list {
    cl_event  few[FEW_EVENTS];
    cl_event *events;
    cl_uint   n;
    bool      has_failed; /* an event that has ended badly: never shown to a driver */
} wait_list;

static bool native_failed(cl_event native)
{
    cl_int code = CL_QUEUED;
    cl_int err =
        cl.clGetEventInfo(native, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(code), &code, NULL);

    return !err && code < 0;
}

static usm_status wait_list_init(wait_list *w, size_t ndeps, ocl_event *const *deps)
{
    w->events     = w->few;
    w->n          = 0;
    w->has_failed = false;
    if (ndeps > FEW_EVENTS)
        w->events = ocl_host->heap_alloc(ndeps * sizeof(cl_event));
    if (!w->events)
        return ocl_no_memory();
    for (size_t i = 0; i < ndeps; i++) {
        if (usm_load_acquire(&deps[i]->state) == OCL_EVENT_SETTLED)
            w->has_failed |= deps[i]->status < 0;
        else if (native_failed(deps[i]->native))
            w->has_failed = true;
        else
            w->events[w->n++] = deps[i]->native;
    }
    return USM_OK;
}

static void wait_list_fini(wait_list *w)
{
    if (w->events != w->few)
        ocl_host->heap_free(w->events);
}

/* --- issuing ------------------------------------------------------------------------ */

static bool is_ordered(const ocl_queue *q)
{
    return !(q->flags & USM_QUEUE_OUT_OF_ORDER);
}

/* Of a command without an event: kept for queue_wait. */
static void note_failure(ocl_queue *q, usm_status status)
{
    int none = USM_OK;

    (void)usm_cas_acq_rel(&q->failure, &none, status);
}

/* A barrier orders what follows also when something it waits for failed. */
static bool is_run_anyway(const ocl_command *cmd)
{
    return cmd->type == OCL_BARRIER;
}

/* An event that is complete, or NULL when it cannot be made. */
static cl_event done_event(ocl_context *ctx)
{
    cl_event none = NULL, done = usm_load_acquire(&ctx->done);
    cl_int   err;

    if (done)
        return done;
    done = cl.clCreateUserEvent(ctx->native, &err);
    if (err)
        return NULL;
    (void)cl.clSetUserEventStatus(done, CL_COMPLETE);
    if (usm_cas_acq_rel(&ctx->done, &none, done))
        return done;
    cl.clReleaseEvent(done); /* another thread was first */
    return none;
}

/* What is left of a wait list may be nothing; but to a marker or barrier of an
 * out-of-order queue an empty list means all commands before it. */
static void keep_from_meaning_all(const ocl_queue *q, const ocl_command *cmd, wait_list *w)
{
    if (w->n || is_ordered(q) || (cmd->type != OCL_MARKER && cmd->type != OCL_BARRIER))
        return;
    w->events[0] = done_event(q->ctx);
    w->n         = w->events[0] ? 1 : 0;
}

static usm_status run(ocl_queue *q, const ocl_command *cmd, const wait_list *w, ocl_event *out,
                      usm_list *notices)
{
    cl_event native = NULL;
    bool     wants  = out && !w->has_failed;
    cl_int   err = ocl_command_run(q, cmd, w->n, w->n ? w->events : NULL, wants ? &native : NULL);

    if (err)
        return ocl_fail(err, ocl_command_name(cmd));
    if (wants)
        ocl_event_become_native(out, native, notices);
    return USM_OK;
}

/* No dep is pending. `out` is native or settled afterwards, unless this fails. */
static usm_status issue(ocl_queue *q, const ocl_command *cmd, size_t ndeps, ocl_event *const *deps,
                        ocl_event *out, usm_list *notices)
{
    wait_list  w;
    usm_status status = wait_list_init(&w, ndeps, deps);

    if (!status && ndeps)
        keep_from_meaning_all(q, cmd, &w);
    if (!status && (!w.has_failed || is_run_anyway(cmd)))
        status = run(q, cmd, &w, out, notices);
    if (!status && w.has_failed) {
        if (out)
            ocl_event_settle(out, USM_E_DEPENDENCY, notices);
        else
            note_failure(q, USM_E_DEPENDENCY);
    }
    wait_list_fini(&w);
    ocl_command_drop(cmd);
    return status;
}

/* --- holding back --------------------------------------------------------------------- */

static bool is_pending(size_t ndeps, ocl_event *const *deps)
{
    for (size_t i = 0; i < ndeps; i++)
        if (usm_load_acquire(&deps[i]->state) == OCL_EVENT_PENDING)
            return true;
    return false;
}

static bool stands_for_all(const held_command *h)
{
    return h->ndeps == 0 && (h->command.type == OCL_MARKER || h->command.type == OCL_BARRIER);
}

static held_command *held_new(const ocl_command *cmd, size_t ndeps, ocl_event *const *deps,
                              ocl_event *out)
{
    held_command *h = ocl_host->heap_alloc(sizeof(*h) + ndeps * sizeof(h->deps[0]));

    if (!h)
        return NULL;
    h->command = *cmd;
    h->out     = out;
    h->ndeps   = ndeps;
    if (out)
        usm_ref_take(&out->refs);
    for (size_t i = 0; i < ndeps; i++) {
        h->deps[i] = deps[i];
        usm_ref_take(&deps[i]->refs);
    }
    return h;
}

/* Lock held. */
static void held_append(ocl_queue *q, held_command *h)
{
    usm_ref_take(&q->refs);
    usm_list_append(&q->held, &h->link);
    if (usm_add_relaxed(&q->nheld, 1) == 0)
        usm_list_append(&q->ctx->holding, &q->link);
}

/* Lock held. The command leaves for the driver, or for good; h is gone. */
static void held_issue(ocl_queue *q, held_command *h, usm_list *notices)
{
    usm_status status = issue(q, &h->command, h->ndeps, h->deps, h->out, notices);

    if (status && h->out)
        ocl_event_settle(h->out, status, notices);
    else if (status)
        note_failure(q, status);
    for (size_t i = 0; i < h->ndeps; i++)
        ocl_event_unref(h->deps[i]);
    ocl_event_unref(h->out);
    usm_list_remove(&h->link);
    /* Pairs with the load in ocl_submit(): who sees 0 enqueues behind us. */
    if (usm_ref_drop(&q->nheld))
        usm_list_remove(&q->link);
    ocl_host->heap_free(h);
    ocl_queue_unref(q); /* ours; the pump has its own */
}

/* Lock held. Whether anything was issued. */
static bool pump_queue(ocl_queue *q, usm_list *notices)
{
    bool is_first = true, has_issued = false;

    USM_LIST_FOREACH_SAFE (it, next, &q->held) {
        held_command *h        = usm_container_of(it, held_command, link);
        bool          is_ready = !is_pending(h->ndeps, h->deps);

        if (is_ready && (is_first || !stands_for_all(h))) {
            held_issue(q, h, notices);
            has_issued = true;
            continue;
        }
        if (is_ordered(q) || h->command.type == OCL_BARRIER)
            break;
        is_first = false;
    }
    return has_issued;
}

void ocl_held_pump(ocl_context *ctx, usm_list *notices)
{
    bool has_issued;

    do {
        has_issued = false;
        USM_LIST_FOREACH_SAFE (it, next, &ctx->holding) {
            ocl_queue *q = usm_container_of(it, ocl_queue, link);

            usm_ref_take(&q->refs);
            has_issued |= pump_queue(q, notices);
            ocl_queue_unref(q);
        }
    } while (has_issued && !usm_list_is_empty(&ctx->holding));
}

static usm_status hold(ocl_queue *q, const ocl_command *cmd, size_t ndeps, ocl_event *const *deps,
                       ocl_event *out)
{
    ocl_context  *ctx = q->ctx;
    held_command *h   = held_new(cmd, ndeps, deps, out);
    usm_list      notices;

    if (!h) {
        ocl_command_drop(cmd);
        return ocl_no_memory();
    }
    usm_list_init(&notices);
    pthread_mutex_lock(&ctx->lock);
    held_append(q, h);
    ocl_held_pump(ctx, &notices); /* the event may have been signalled just now */
    pthread_cond_broadcast(&ctx->changed);
    pthread_mutex_unlock(&ctx->lock);
    ocl_notices_deliver(&notices);
    return USM_OK;
}

/* ------------------------------------------------------------------------------------------ */

usm_status ocl_submit(ocl_queue *q, const ocl_command *cmd, size_t ndeps, void *const *deps,
                      void **ev)
{
    ocl_event *const *events = (ocl_event *const *)deps;
    ocl_event        *out    = NULL;
    usm_list          nobody;
    usm_status        status;

    if (ev && !(out = ocl_event_new(q->ctx))) {
        ocl_command_drop(cmd);
        return ocl_no_memory();
    }
    usm_list_init(&nobody); /* knows of an event that is not out yet */
    if (usm_load_acquire(&q->nheld) == 0 && !is_pending(ndeps, events))
        status = issue(q, cmd, ndeps, events, out, &nobody);
    else
        status = hold(q, cmd, ndeps, events, out);
    if (status)
        ocl_event_unref(out);
    else if (ev)
        *ev = out;
    return status;
}
