/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events as the core has them: the deferral queue's, with a slot of the driver's in it.
 *
 * Level Zero's events carry no failure: a command has ended, or its device is lost, and any driver
 * call shows that.  User events never become native, and no driver sees one unless the program
 * requests its handle.  The handle of an event that is still pending is a shadow event.  For a user
 * event, the host signals the shadow when the event settles; for a deferred command, it becomes the
 * command's own event.
 *
 * Not here: why an event is pending (common/defer.c), slots (pool.c), notifications (watch.c).
 * Called by the deferral queue, and by the core through the table. */
#include "queue.h"

static lz_event *as_event(void *ev)
{
    return ev;
}

/* --- the deferral queue's ops --------------------------------------------------------------- */

static usm_status ended(ze_result_t code, const char *what)
{
    if (code == ZE_RESULT_ERROR_DEVICE_LOST)
        return lz_report(USM_E_DEVICE_LOST,
                         "the device was lost before the command ended (%s: %s); destroy what uses "
                         "it and make it again",
                         what, lz_error_name(code));
    return code ? lz_fail(code, what) : USM_OK;
}

usm_status lz_event_query(defer_event *ev)
{
    ze_result_t code = lz_slot_query(as_event(ev)->slot);

    return code == ZE_RESULT_NOT_READY ? USM_E_NOT_READY : ended(code, "zeEventQueryStatus");
}

usm_status lz_event_wait(defer_event *ev)
{
    return ended(lz_slot_wait(as_event(ev)->slot), "zeEventHostSynchronize");
}

usm_status lz_event_notify(defer_event *ev, usm_backend_notify_fn fn, void *arg)
{
    lz_slot    *slot = as_event(ev)->slot;
    ze_result_t code = lz_slot_query(slot);

    if (code != ZE_RESULT_SUCCESS && code != ZE_RESULT_ERROR_DEVICE_LOST)
        return lz_watch_add(slot->watch, ev->ctx, slot, fn, arg);
    fn(arg, code ? USM_E_DEVICE_LOST : USM_OK);
    return USM_OK;
}

void lz_event_fini(defer_event *ev)
{
    lz_slot_unref(as_event(ev)->slot);
    lz_slot_unref(as_event(ev)->shadow);
}

void lz_event_settled(defer_event *ev)
{
    if (as_event(ev)->shadow)
        lz_slot_signal(as_event(ev)->shadow);
}

/* --- handles --------------------------------------------------------------------------- */

/* Lock held, not native.  The slot has times, which cost nothing here, because it is not known
 * which command will use it. */
static usm_status need_shadow(lz_event *ev)
{
    usm_status status;

    if (ev->shadow)
        return USM_OK;
    status = lz_slot_take(((lz_context *)ev->deferral.ctx)->events, true, &ev->shadow);
    if (!status && defer_event_state(&ev->deferral) == DEFER_SETTLED)
        lz_slot_signal(ev->shadow);
    return status;
}

usm_status lz_event_native(void *event, void **native)
{
    lz_event  *ev     = event;
    usm_status status = USM_OK;

    if (defer_event_state(&ev->deferral) != DEFER_NATIVE) {
        pthread_mutex_lock(&ev->deferral.ctx->lock);
        if (defer_event_state(&ev->deferral) != DEFER_NATIVE)
            status = need_shadow(ev);
        if (!status && ev->shadow)
            *native = ev->shadow->native;
        pthread_mutex_unlock(&ev->deferral.ctx->lock);
        if (status || ev->shadow)
            return status;
    }
    *native = ev->slot->native;
    return USM_OK;
}

usm_status lz_event_from_native(void *ctx, void *native, usm_ownership ownership, void **out)
{
    ze_result_t code = lz.zeEventQueryStatus(native);
    lz_event   *ev;
    usm_list    nobody;
    usm_status  status;

    if (code && code != ZE_RESULT_NOT_READY) {
        status = native_to_status(code);
        if (status == USM_E_NO_MEMORY || status == USM_E_DEVICE_LOST)
            return lz_fail(code, "zeEventQueryStatus");
        return lz_report(USM_E_INVALID,
                         "the handle is not a ze_event_handle_t of a host-visible pool "
                         "(%s, 0x%x)",
                         lz_error_name(code), (unsigned)code);
    }
    ev = (lz_event *)defer_event_new(ctx);
    if (!ev)
        return lz_no_memory();
    status = lz_slot_wrap(native, ownership == USM_TRANSFER, &ev->slot);
    if (status) {
        defer_event_unref(&ev->deferral);
        return status;
    }
    usm_list_init(&nobody);
    defer_event_become_native(&ev->deferral, &nobody);
    *out = ev;
    return USM_OK;
}

/* --- times -------------------------------------------------------------------------------- */

usm_status lz_event_profiling(void *event, usm_profiling *times)
{
    const lz_event              *ev     = event;
    ze_kernel_timestamp_result_t t      = {{0, 0}, {0, 0}};
    usm_status                   status = defer_event_query(event);
    ze_result_t                  code;

    if (status == USM_E_NOT_READY)
        return status;
    if (defer_event_state(&ev->deferral) != DEFER_NATIVE)
        return lz_report(USM_E_NOT_SUPPORTED, "the event has no times: it is a user event, or its "
                                              "command never ran");
    if (status)
        return status;
    if (!ev->slot->has_times)
        return lz_report(USM_E_NOT_SUPPORTED, "the event has no times: its queue needs "
                                              "USM_QUEUE_PROFILING, or the driver did not report "
                                              "the device's clock (zeDeviceGetGlobalTimestamps)");
    code = lz.zeEventQueryKernelTimestamp(ev->slot->native, &t);
    if (code)
        return lz_fail(code, "zeEventQueryKernelTimestamp");
    lz_times_of(ev->slot, &t, times);
    return USM_OK;
}
