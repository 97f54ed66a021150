/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The ops for deferral with OpenCL (../common/defer.c: start reading there): commands with wait
 * lists.  Not here: which commands are deferred (the deferral queue); the choice of a native queue
 * (stream.c).  Called by the deferral queue.
 *
 * Handled here: Intel's CPU runtime crashes if a failed event is in a wait list, so failed events
 * are left out. */
#include "opencl.h"

/* --- wait lists ----------------------------------------------------------------- */

#define FEW_EVENTS 16

typedef struct wait_list {
    cl_event  few[FEW_EVENTS];
    cl_event *events;
    cl_uint   n;
    bool      has_failed; /* a failed event was left out */
} wait_list;

static bool native_failed(cl_event native)
{
    cl_int code = CL_QUEUED;
    cl_int err =
        cl.clGetEventInfo(native, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(code), &code, NULL);

    return !err && code < 0;
}

/* A command that is earlier in the same in-order queue needs no entry in the list: the driver keeps
 * the order at no cost, and an entry costs time. */
static bool is_before(const ocl_queue *q, const ocl_event *ev)
{
    return q->deferral.is_ordered && ev->queue == q->serial;
}

static usm_status wait_list_init(wait_list *w, const ocl_queue *q, size_t ndeps,
                                 defer_event *const *deps)
{
    w->events     = w->few;
    w->n          = 0;
    w->has_failed = false;
    if (ndeps > FEW_EVENTS)
        w->events = ocl_host->heap_alloc(ndeps * sizeof(cl_event));
    if (!w->events)
        return ocl_no_memory();
    for (size_t i = 0; i < ndeps; i++) {
        const ocl_event *ev = (const ocl_event *)deps[i];

        if (defer_event_state(deps[i]) == DEFER_SETTLED)
            w->has_failed |= deps[i]->status < 0;
        else if (native_failed(ev->native))
            w->has_failed = true;
        else if (!is_before(q, ev))
            w->events[w->n++] = ev->native;
    }
    return USM_OK;
}

static void wait_list_fini(wait_list *w)
{
    if (w->events != w->few)
        ocl_host->heap_free(w->events);
}

/* --- issuing ------------------------------------------------------------------------ */

/* Returns a completed event, or NULL if it cannot be made. */
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
    cl.clReleaseEvent(done); /* another thread was faster */
    return none;
}

/* The remaining wait list may be empty; but for a marker or barrier of an out-of-order queue an
 * empty list means all commands before it. */
static void keep_from_meaning_all(const ocl_queue *q, const defer_command *cmd, wait_list *w)
{
    if (w->n || q->deferral.is_ordered || !cmd->is_mark)
        return;
    w->events[0] = done_event(ocl_context_of(q));
    w->n         = w->events[0] ? 1 : 0;
}

static usm_status run(ocl_queue *q, const driver_command *cmd, const wait_list *w, ocl_event *out,
                      usm_list *notices)
{
    cl_event native = NULL;
    bool     wants  = out && !w->has_failed;
    cl_int   err = ocl_command_run(q, cmd, w->n, w->n ? w->events : NULL, wants ? &native : NULL);

    if (err)
        return ocl_fail(err, driver_command_name(cmd));
    if (wants) {
        out->queue = q->deferral.is_ordered ? q->serial : 0;
        ocl_event_become_native(out, native, notices);
    }
    return USM_OK;
}

static usm_status issue(defer_queue *queue, const defer_command *command, size_t ndeps,
                        defer_event *const *deps, defer_event *out, bool has_failed,
                        usm_list *notices)
{
    ocl_queue            *q   = (ocl_queue *)queue;
    const driver_command *cmd = (const driver_command *)command;
    wait_list             w;
    usm_status            status = wait_list_init(&w, q, ndeps, deps);

    if (status)
        return status;
    if (ndeps)
        keep_from_meaning_all(q, command, &w);
    if (!w.has_failed || command->is_barrier)
        status = run(q, cmd, &w, (ocl_event *)out, notices);
    if (!status && w.has_failed && !has_failed)
        status = USM_E_DEPENDENCY;
    wait_list_fini(&w);
    return status;
}

static usm_status issue_plain(defer_queue *q, const defer_command *command)
{
    const driver_command *cmd = (const driver_command *)command;
    cl_int                err = ocl_command_run((ocl_queue *)q, cmd, 0, NULL, NULL);

    return err ? ocl_fail(err, driver_command_name(cmd)) : USM_OK;
}

const defer_ops ocl_defer_ops = {
    .event_size    = sizeof(ocl_event),
    .issue         = issue,
    .issue_plain   = issue_plain,
    .command_drop  = ocl_command_drop,
    .event_query   = ocl_event_query_native,
    .event_wait    = ocl_event_wait_native,
    .event_notify  = ocl_event_notify_native,
    .event_fini    = ocl_event_fini,
    .event_settled = ocl_event_settled,
    .queue_free    = ocl_queue_free,
    .context_free  = ocl_context_free,
};
