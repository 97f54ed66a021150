/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Native handles in both directions: cl_context, cl_command_queue, cl_event.
 *
 * A handle passed in is retained, so that ours never dangles; with USM_TRANSFER the caller's
 * reference becomes ours instead, but only on success. */
#include "opencl.h"

/* --- contexts ------------------------------------------------------------------------ */

static usm_status context_ids(cl_context native, cl_device_id **ids, size_t *n)
{
    size_t size = 0;
    cl_int err  = cl.clGetContextInfo(native, CL_CONTEXT_DEVICES, 0, NULL, &size);

    if (err)
        return ocl_report(USM_E_INVALID, "the handle is not a cl_context (%s, %d)",
                          ocl_error_name(err), (int)err);
    *ids = ocl_host->heap_alloc(size);
    if (!*ids)
        return ocl_no_memory();
    err = cl.clGetContextInfo(native, CL_CONTEXT_DEVICES, size, *ids, NULL);
    if (err) {
        ocl_host->heap_free(*ids);
        return ocl_fail(err, "clGetContextInfo(CL_CONTEXT_DEVICES)");
    }
    *n = size / sizeof(**ids);
    return USM_OK;
}

static bool is_among(cl_device_id id, const cl_device_id *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Finds the records of the requested devices, or of all. */
static usm_status find_devices(const cl_device_id *all, size_t nall, size_t n, void *const *wanted,
                               ocl_device **found)
{
    usm_status status = USM_OK;

    for (size_t i = 0; i < (n ? n : nall) && !status; i++) {
        cl_device_id id = n ? (cl_device_id)wanted[i] : all[i];

        if (!is_among(id, all, nall))
            return ocl_report(USM_E_INVALID, "device %zu of the list is not in the native context",
                              i);
        status = ocl_device_find(id, &found[i]);
    }
    return status;
}

static usm_status adopt_context(cl_context native, size_t n, ocl_device *const *found,
                                usm_ownership ownership, ocl_context **ctx)
{
    usm_status status = ocl_context_wrap(native, n, found, ctx);

    if (!status && ownership == USM_KEEP)
        cl.clRetainContext(native);
    return status;
}

usm_status ocl_context_from_native(void *native, size_t ndevices, void *const *devices,
                                   usm_ownership ownership, void **ctx, usm_backend_device *list,
                                   size_t cap, size_t *count)
{
    cl_device_id *all    = NULL;
    ocl_device  **found  = NULL;
    ocl_context  *made   = NULL;
    size_t        nall   = 0, n;
    usm_status    status = registry_need(&ocl_registry);

    if (!status)
        status = context_ids(native, &all, &nall);
    if (status)
        return status;
    n      = ndevices ? ndevices : nall;
    found  = ocl_host->heap_alloc(n * sizeof(*found));
    status = found ? find_devices(all, nall, ndevices, devices, found) : ocl_no_memory();
    if (!status)
        status = adopt_context(native, n, found, ownership, &made);
    if (!status) {
        *ctx = made;
        for (size_t i = 0; i < n && i < cap; i++)
            list[i] = found[i]->info;
        *count = n;
    }
    ocl_host->heap_free(found);
    ocl_host->heap_free(all);
    return status;
}

usm_status ocl_context_native(void *ctx, void **native)
{
    *native = ((ocl_context *)ctx)->native;
    return USM_OK;
}

usm_status ocl_device_native(void *dev, void **native)
{
    *native = ((ocl_device *)dev)->id;
    return USM_OK;
}

/* --- queues -------------------------------------------------------------------------- */

typedef struct queue_facts {
    cl_context   context;
    cl_device_id device;
    cl_bitfield  properties;
} queue_facts;

static usm_status ask_queue(cl_command_queue native, queue_facts *f)
{
    cl_int err =
        cl.clGetCommandQueueInfo(native, CL_QUEUE_CONTEXT, sizeof(f->context), &f->context, NULL);

    if (!err)
        err =
            cl.clGetCommandQueueInfo(native, CL_QUEUE_DEVICE, sizeof(f->device), &f->device, NULL);
    if (!err)
        err = cl.clGetCommandQueueInfo(native, CL_QUEUE_PROPERTIES, sizeof(f->properties),
                                       &f->properties, NULL);
    if (err)
        return ocl_report(USM_E_INVALID, "the handle is not a cl_command_queue (%s, %d)",
                          ocl_error_name(err), (int)err);
    return USM_OK;
}

static uint32_t to_flags(cl_bitfield properties)
{
    uint32_t flags = USM_QUEUE_IN_ORDER;

    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        flags |= USM_QUEUE_OUT_OF_ORDER;
    if (properties & CL_QUEUE_PROFILING_ENABLE)
        flags |= USM_QUEUE_PROFILING;
    return flags;
}

usm_status ocl_queue_from_native(void *ctx, void *native, usm_ownership ownership, void **q,
                                 void **dev, uint32_t *flags)
{
    const ocl_context *c      = ctx;
    queue_facts        f      = {NULL, NULL, 0};
    ocl_device        *d      = NULL;
    ocl_queue         *made   = NULL;
    usm_status         status = ask_queue(native, &f);

    if (status)
        return status;
    if (f.context != c->native)
        return ocl_report(USM_E_WRONG_CONTEXT, "the cl_command_queue belongs to another "
                                               "cl_context than the libusm context");
    status = ocl_device_find(f.device, &d);
    if (!status)
        status = ocl_queue_wrap(ctx, d, native, to_flags(f.properties), &made);
    if (status)
        return status;
    if (ownership == USM_KEEP)
        cl.clRetainCommandQueue(native);
    /* Ours may then be the last reference: stream.c explains why it must not be released with
     * commands in flight. */
    made->must_finish = ownership == USM_TRANSFER && d->needs_streams &&
                        (f.properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    *q     = made;
    *dev   = d;
    *flags = to_flags(f.properties);
    return USM_OK;
}

usm_status ocl_queue_native(void *q, void **native)
{
    *native = ((ocl_queue *)q)->native;
    return USM_OK;
}

/* --- events -------------------------------------------------------------------------- */

/* A waiter of ours would wait forever for commands that were enqueued but not flushed. */
static void flush_queue_of(cl_event native)
{
    cl_command_queue queue = NULL;

    if (!cl.clGetEventInfo(native, CL_EVENT_COMMAND_QUEUE, sizeof(queue), &queue, NULL) && queue)
        (void)cl.clFlush(queue);
}

static void CL_CALLBACK on_foreign(cl_event native, cl_int code, void *user)
{
    defer_event   *ev  = user;
    defer_context *ctx = ev->ctx;

    (void)native;
    (void)defer_event_complete(ev, code < 0 ? ocl_execution_status(code) : USM_OK);
    defer_event_unref(ev);
    defer_context_unref(ctx);
}

/* A user event of the program: like ours, it is kept out of the wait lists of drivers
 * (../common/defer.c).  A callback reports its end. */
static usm_status watch(ocl_event *ev, cl_event native)
{
    cl_int err;

    defer_event_ref(&ev->deferral); /* for the callback */
    defer_context_ref(ev->deferral.ctx);
    ev->shadow = native;
    err        = cl.clSetEventCallback(native, CL_COMPLETE, on_foreign, ev);
    if (!err)
        return USM_OK;
    ev->shadow = NULL;
    defer_context_unref(ev->deferral.ctx);
    defer_event_unref(&ev->deferral);
    return ocl_fail(err, "clSetEventCallback");
}

static usm_status adopt_event(ocl_event *ev, cl_event native)
{
    cl_command_type type = 0;
    usm_list        nobody;
    cl_int err = cl.clGetEventInfo(native, CL_EVENT_COMMAND_TYPE, sizeof(type), &type, NULL);

    if (!err && type == CL_COMMAND_USER)
        return watch(ev, native);
    flush_queue_of(native);
    usm_list_init(&nobody);
    ocl_event_become_native(ev, native, &nobody);
    return USM_OK;
}

usm_status ocl_event_from_native(void *ctx, void *native, usm_ownership ownership, void **out)
{
    const ocl_context *c       = ctx;
    cl_context         context = NULL;
    defer_event       *ev;
    usm_status         status;
    cl_int err = cl.clGetEventInfo(native, CL_EVENT_CONTEXT, sizeof(context), &context, NULL);

    if (err)
        return ocl_report(USM_E_INVALID, "the handle is not a cl_event (%s, %d)",
                          ocl_error_name(err), (int)err);
    if (context != c->native)
        return ocl_report(USM_E_WRONG_CONTEXT, "the cl_event belongs to another cl_context "
                                               "than the libusm context");
    ev = defer_event_new(ctx);
    if (!ev)
        return ocl_no_memory();
    cl.clRetainEvent(native); /* first, because the callback may release the last reference */
    status = adopt_event((ocl_event *)ev, native);
    if (status) {
        cl.clReleaseEvent(native);
        defer_event_unref(ev);
        return status;
    }
    if (ownership == USM_TRANSFER)
        cl.clReleaseEvent(native);
    *out = ev;
    return USM_OK;
}

/* Lock held.  Drivers see a user event only if the program requests its handle. */
static usm_status need_shadow(ocl_event *ev)
{
    cl_int err = CL_SUCCESS;
    bool   is_settled;

    if (ev->shadow)
        return USM_OK;
    is_settled = defer_event_state(&ev->deferral) == DEFER_SETTLED;
    ev->shadow = cl.clCreateUserEvent(((ocl_context *)ev->deferral.ctx)->native, &err);
    if (err) {
        ev->shadow = NULL;
        return ocl_fail(err, "clCreateUserEvent");
    }
    if (is_settled)
        cl.clSetUserEventStatus(ev->shadow,
                                ev->deferral.status ? CL_INVALID_OPERATION : CL_COMPLETE);
    return USM_OK;
}

usm_status ocl_event_native(void *event, void **native)
{
    ocl_event *ev = event;
    usm_status status;

    if (defer_event_state(event) == DEFER_NATIVE) {
        *native = ev->native;
        return USM_OK;
    }
    if (!ev->deferral.is_user && !ev->shadow && defer_event_state(event) == DEFER_PENDING)
        return ocl_report(USM_E_NOT_READY, "the command waits for a user event and is not "
                                           "with the driver yet: signal that first");
    pthread_mutex_lock(&ev->deferral.ctx->lock);
    status = need_shadow(ev);
    if (!status)
        *native = ev->shadow;
    pthread_mutex_unlock(&ev->deferral.ctx->lock);
    return status;
}
