/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Native handles in both directions: devices, contexts, queues and events of the driver below.
 * usm_context_from_native is in device/context.c, usm_queue_from_native in command/queue.c. */
#include "command/queue.h"

#include <string.h>

static usm_status check_backend(const usm__backend *be, const char *backend, void **handle)
{
    if (!backend || !handle)
        return usm__fail(USM_E_INVALID, "get_native: %s is NULL", backend ? "handle" : "backend");
    if (strcmp(backend, be->name) != 0)
        return usm__fail(USM_E_INVALID, "the object is of backend %s, not %s", be->name, backend);
    if (!usm__backend_can(be, USM_CAP_NATIVE))
        return usm__fail(USM_E_NOT_SUPPORTED, "backend %s has no native handles", be->name);
    return USM_OK;
}

usm_status usm_context_get_native(usm_context *ctx, const char *backend, void **handle)
{
    usm_status st = usm__context_resolve(&ctx);

    if (st == USM_OK)
        st = check_backend(ctx->be, backend, handle);
    return st == USM_OK ? usm__be_context_native(ctx->be, ctx->native, handle) : st;
}

usm_status usm_device_get_native(const usm_device *dev, const char *backend, void **handle)
{
    usm_status st = usm__handle_check(dev, USM__MAGIC_DEVICE);

    if (st == USM_OK)
        st = check_backend(dev->be, backend, handle);
    return st == USM_OK ? usm__be_device_native(dev->be, dev->desc.handle, handle) : st;
}

usm_status usm_queue_get_native(usm_queue *q, const char *backend, void **handle)
{
    usm_status st = usm__queue_check(q);

    if (st == USM_OK)
        st = check_backend(q->be, backend, handle);
    if (st != USM_OK)
        return st;
    /* The owner of the handle may queue commands that libusm does not see. */
    usm__mutex_lock(&q->lock);
    usm_store_relaxed(&q->is_shared, true);
    usm__mutex_unlock(&q->lock);
    return usm__be_queue_native(q->be, q->native, handle);
}

usm_status usm_event_get_native(usm_event *ev, const char *backend, void **handle)
{
    usm_status st = usm__event_check(ev);

    if (st == USM_OK)
        st = check_backend(ev->ctx->be, backend, handle);
    return st == USM_OK ? usm__be_event_native(ev->ctx->be, ev->native, handle) : st;
}

usm_status usm_event_from_native(usm_context *ctx, void *handle, usm_ownership ownership,
                                 usm_event **ev)
{
    void      *native = NULL;
    usm_event *made;
    usm_status st = usm__context_resolve(&ctx);

    if (st != USM_OK)
        return st;
    if (!handle || !ev)
        return usm__fail(USM_E_INVALID, "usm_event_from_native: %s is NULL",
                         handle ? "ev" : "handle");
    made = usm__event_new(ctx);
    if (!made)
        return USM_E_NO_MEMORY;
    st = usm__be_event_from_native(ctx->be, ctx->native, handle, ownership, &native);
    if (st != USM_OK) {
        usm__event_discard(made);
        return st;
    }
    made->is_outside = true;
    usm__event_publish(made, native, true);
    *ev = made;
    return USM_OK;
}
