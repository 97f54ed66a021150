/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events.
 *
 * An event is pending, then native (a cl_event knows its end) or settled (its
 * status is in the record).  User events never become native: a user event that
 * fails is what drivers get wrong most (submit.c tells what was seen), so no
 * driver sees one, unless a program asks for its native handle, which gets a
 * shadow.  Commands are pending while submit.c holds them back.
 *
 * Not here: who waits for what (submit.c).  Called by the core through the table
 * and by submit.c. */
#include "opencl.h"

/* Somebody to tell; from event_notify until it was told. */
typedef struct notice {
    usm_list              link; /* in ev->notices, then in a list to deliver       */
    ocl_event            *ev;   /* a reference, while in a list                    */
    usm_backend_notify_fn fn;
    void                 *arg;
} notice;

ocl_event *ocl_event_new(ocl_context *ctx)
{
    ocl_event *ev = ocl_host->heap_alloc(sizeof(*ev));

    if (!ev)
        return NULL;
    ev->ctx = ctx;
    usm_store_relaxed(&ev->refs, 1);
    usm_store_relaxed(&ev->state, OCL_EVENT_PENDING);
    usm_list_init(&ev->notices);
    return ev;
}

void ocl_event_unref(ocl_event *ev)
{
    if (!ev || !usm_ref_drop(&ev->refs))
        return;
    if (ev->native)
        cl.clReleaseEvent(ev->native);
    if (ev->shadow)
        cl.clReleaseEvent(ev->shadow);
    ocl_host->heap_free(ev);
}

/* --- from pending to its end ------------------------------------------------- */

static void move_notices(ocl_event *ev, usm_list *to)
{
    usm_list *it;

    while ((it = usm_list_pop(&ev->notices)))
        usm_list_append(to, it);
}

void ocl_event_become_native(ocl_event *ev, cl_event native, usm_list *notices)
{
    ev->native = native;
    usm_store_release(&ev->state, OCL_EVENT_NATIVE); /* pairs with the loads of state */
    move_notices(ev, notices);
}

void ocl_event_settle(ocl_event *ev, usm_status status, usm_list *notices)
{
    ev->status = status;
    usm_store_release(&ev->state, OCL_EVENT_SETTLED);
    if (ev->shadow && ev->is_user)
        cl.clSetUserEventStatus(ev->shadow, status ? CL_INVALID_OPERATION : CL_COMPLETE);
    move_notices(ev, notices);
}

/* --- telling ------------------------------------------------------------------ */

static void tell(notice *n, usm_status status)
{
    n->fn(n->arg, status);
    ocl_host->heap_free(n);
}

static void CL_CALLBACK on_complete(cl_event native, cl_int code, void *user)
{
    (void)native;
    tell(user, code < 0 ? ocl_execution_status(code) : USM_OK);
}

/* Lock not held: drivers call back from inside when the command is done. */
void ocl_notices_deliver(usm_list *notices)
{
    usm_list *it;

    while ((it = usm_list_pop(notices))) {
        notice    *n  = usm_container_of(it, notice, link);
        ocl_event *ev = n->ev;

        n->ev = NULL;
        if (usm_load_acquire(&ev->state) == OCL_EVENT_SETTLED)
            tell(n, ev->status);
        else if (cl.clSetEventCallback(ev->native, CL_COMPLETE, on_complete, n))
            tell(n, ocl_event_wait(ev)); /* out of memory: late is better than never */
        ocl_event_unref(ev);
    }
}

usm_status ocl_event_notify(void *event, usm_backend_notify_fn fn, void *arg)
{
    ocl_event *ev = event;
    notice    *n  = ocl_host->heap_alloc(sizeof(*n));
    usm_list   now;
    cl_int     err;

    if (!n)
        return ocl_no_memory();
    n->fn  = fn;
    n->arg = arg;
    if (usm_load_acquire(&ev->state) == OCL_EVENT_NATIVE) {
        err = cl.clSetEventCallback(ev->native, CL_COMPLETE, on_complete, n);
        if (err)
            ocl_host->heap_free(n);
        return err ? ocl_fail(err, "clSetEventCallback") : USM_OK;
    }
    usm_list_init(&now);
    n->ev = ev;
    usm_ref_take(&ev->refs);
    pthread_mutex_lock(&ev->ctx->lock);
    if (usm_load_acquire(&ev->state) == OCL_EVENT_PENDING)
        usm_list_append(&ev->notices, &n->link);
    else
        usm_list_append(&now, &n->link);
    pthread_mutex_unlock(&ev->ctx->lock);
    ocl_notices_deliver(&now);
    return USM_OK;
}

/* --- user events ---------------------------------------------------------------- */

usm_status ocl_event_create_user(void *ctx, void **out)
{
    ocl_event *ev = ocl_event_new(ctx);

    if (!ev)
        return ocl_no_memory();
    ev->is_user = true;
    *out        = ev;
    return USM_OK;
}

/* Settles a pending event from outside a lock, and issues what waited for it. */
bool ocl_event_complete(ocl_event *ev, usm_status status)
{
    ocl_context *ctx = ev->ctx;
    usm_list     notices;
    bool         was_pending;

    usm_list_init(&notices);
    usm_ref_take(&ctx->refs); /* the last queue may go with its last command */
    pthread_mutex_lock(&ctx->lock);
    was_pending = usm_load_acquire(&ev->state) == OCL_EVENT_PENDING;
    if (was_pending) {
        ocl_event_settle(ev, status, &notices);
        ocl_held_pump(ctx, &notices);
        pthread_cond_broadcast(&ctx->changed);
    }
    pthread_mutex_unlock(&ctx->lock);
    ocl_notices_deliver(&notices);
    ocl_context_unref(ctx);
    return was_pending;
}

usm_status ocl_event_signal(void *event, usm_status status)
{
    ocl_event *ev = event;

    if (!ev->is_user || !ocl_event_complete(ev, status))
        return ocl_report(USM_E_INVALID, "the event is no user event, or was signalled");
    return USM_OK;
}

/* A user event nobody can signal any more fails: else what waits would for ever. */
void ocl_event_release(void *event)
{
    ocl_event *ev = event;

    if (ev->is_user && usm_load_acquire(&ev->state) == OCL_EVENT_PENDING)
        (void)ocl_event_signal(ev, USM_E_DEPENDENCY);
    ocl_event_unref(ev);
}

/* --- asking ------------------------------------------------------------------------ */

static usm_status tell_status(usm_status status)
{
    if (!status)
        return USM_OK;
    if (status == USM_E_DEPENDENCY)
        return ocl_report(status, "a command or event that this one waits for failed");
    return ocl_report(status, "the event was completed with the failure %d", (int)status);
}

static usm_status query_native(const ocl_event *ev)
{
    cl_int code = CL_QUEUED;
    cl_int err =
        cl.clGetEventInfo(ev->native, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(code), &code, NULL);

    if (err)
        return ocl_fail(err, "clGetEventInfo");
    if (code < 0)
        return ocl_report(ocl_execution_status(code),
                          "the command failed in the driver: %s "
                          "(%d)",
                          ocl_error_name(code), (int)code);
    return code == CL_COMPLETE ? USM_OK : USM_E_NOT_READY;
}

usm_status ocl_event_query(void *event)
{
    const ocl_event *ev     = event;
    int              state  = usm_load_acquire(&ev->state);
    usm_status       status = USM_E_NOT_READY;

    if (state == OCL_EVENT_SETTLED)
        return tell_status(ev->status);
    if (state == OCL_EVENT_NATIVE)
        status = query_native(ev);
    if (status == USM_E_NOT_READY)
        return ocl_report(status, "the event is not complete yet");
    return status;
}

static void wait_while_pending(ocl_event *ev)
{
    ocl_context *ctx = ev->ctx;

    if (usm_load_acquire(&ev->state) != OCL_EVENT_PENDING)
        return;
    pthread_mutex_lock(&ctx->lock);
    while (usm_load_acquire(&ev->state) == OCL_EVENT_PENDING)
        pthread_cond_wait(&ctx->changed, &ctx->lock);
    pthread_mutex_unlock(&ctx->lock);
}

usm_status ocl_event_wait(void *event)
{
    ocl_event *ev = event;
    cl_int     err;
    usm_status status;

    wait_while_pending(ev);
    if (usm_load_acquire(&ev->state) == OCL_EVENT_SETTLED)
        return tell_status(ev->status);
    err    = cl.clWaitForEvents(1, &ev->native);
    status = query_native(ev);
    if (status == USM_E_NOT_READY || (!status && err)) /* the wait itself went wrong */
        return ocl_fail(err ? err : CL_INVALID_EVENT, "clWaitForEvents");
    return status;
}

usm_status ocl_event_profiling(void *event, usm_profiling *times)
{
    static const cl_profiling_info what[3] = {CL_PROFILING_COMMAND_SUBMIT,
                                              CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_END};
    const ocl_event               *ev      = event;
    cl_ulong                       t[3]    = {0, 0, 0};
    usm_status                     status  = ocl_event_query(event);
    cl_int                         err     = CL_SUCCESS;

    if (status == USM_E_NOT_READY)
        return status;
    if (usm_load_acquire(&ev->state) != OCL_EVENT_NATIVE)
        return ocl_report(USM_E_NOT_SUPPORTED, "the event has no times: it is a user event, "
                                               "or its command never ran");
    for (int i = 0; i < 3 && !err; i++)
        err = cl.clGetEventProfilingInfo(ev->native, what[i], sizeof(t[i]), &t[i], NULL);
    if (err)
        return ocl_report(USM_E_NOT_SUPPORTED,
                          "the event has no times (%s, %d): its queue needs "
                          "USM_QUEUE_PROFILING",
                          ocl_error_name(err), (int)err);
    times->submit_ns = t[0];
    times->start_ns  = t[1];
    times->end_ns    = t[2];
    return USM_OK;
}
