/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events: their native cl_event, and shadows for those that have none.
 *
 * A user event never becomes native (../common/defer.c has the reason): no driver sees one, unless
 * a program requests its native handle, for which a shadow event is made.
 *
 * Not here: wait lists (../common/defer.c); native handles (native.c).  Called by the deferral
 * queue through its ops, by submit.c and native.c. */
#include "opencl.h"

void ocl_event_become_native(ocl_event *ev, cl_event native, usm_list *notices)
{
    ev->native = native;
    defer_event_become_native(&ev->deferral, notices);
}

void ocl_event_settled(defer_event *event)
{
    const ocl_event *ev = (const ocl_event *)event;

    if (ev->shadow && event->is_user)
        cl.clSetUserEventStatus(ev->shadow, event->status ? CL_INVALID_OPERATION : CL_COMPLETE);
}

void ocl_event_fini(defer_event *event)
{
    const ocl_event *ev = (const ocl_event *)event;

    if (ev->native)
        cl.clReleaseEvent(ev->native);
    if (ev->shadow)
        cl.clReleaseEvent(ev->shadow);
}

/* --- notification ------------------------------------------------------------- */

/* The target of a driver's callback. */
typedef struct listener {
    defer_context        *ctx; /* the requester keeps it alive until the call */
    usm_backend_notify_fn fn;
    void                 *arg;
} listener;

static void CL_CALLBACK on_complete(cl_event native, cl_int code, void *user)
{
    const listener l = *(listener *)user;

    (void)native;
    defer_note_free(l.ctx, user); /* before the call, because the callee may end the context */
    l.fn(l.arg, code < 0 ? ocl_execution_status(code) : USM_OK);
}

usm_status ocl_event_notify_native(defer_event *event, usm_backend_notify_fn fn, void *arg)
{
    listener *l = defer_note_new(event->ctx);
    cl_int    err;

    if (!l)
        return ocl_no_memory();
    l->ctx = event->ctx;
    l->fn  = fn;
    l->arg = arg;
    err    = cl.clSetEventCallback(((ocl_event *)event)->native, CL_COMPLETE, on_complete, l);
    if (!err)
        return USM_OK;
    defer_note_free(event->ctx, l);
    return ocl_fail(err, "clSetEventCallback");
}

/* --- query and wait ----------------------------------------------------------------- */

usm_status ocl_event_query_native(defer_event *event)
{
    const ocl_event *ev   = (const ocl_event *)event;
    cl_int           code = CL_QUEUED;
    cl_int           err =
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

usm_status ocl_event_wait_native(defer_event *event)
{
    const ocl_event *ev     = (const ocl_event *)event;
    cl_int           err    = cl.clWaitForEvents(1, &ev->native);
    usm_status       status = ocl_event_query_native(event);

    if (status == USM_E_NOT_READY || (!status && err)) /* the wait itself failed */
        return ocl_fail(err ? err : CL_INVALID_EVENT, "clWaitForEvents");
    return status;
}

usm_status ocl_event_profiling(void *event, usm_profiling *times)
{
    static const cl_profiling_info what[3] = {CL_PROFILING_COMMAND_SUBMIT,
                                              CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_END};
    const ocl_event               *ev      = event;
    cl_ulong                       t[3]    = {0, 0, 0};
    usm_status                     status  = defer_event_query(event);
    cl_int                         err     = CL_SUCCESS;

    if (status == USM_E_NOT_READY)
        return status;
    if (defer_event_state(event) != DEFER_NATIVE)
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
