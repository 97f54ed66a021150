/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ze_context_handle_t in both directions, ze_device_handle_t out.  Not here: queues and events
 * (queue.h).
 *
 * Native contexts have no reference count: with USM_KEEP the caller keeps the native context alive
 * longer than ours; with USM_TRANSFER it is destroyed with ours, but only if the transfer
 * succeeded. */
#include "level_zero.h"

/* Finds the records of the requested devices, which must all be of one driver. */
static usm_status find_devices(size_t n, void *const *wanted, lz_device **found)
{
    for (size_t i = 0; i < n; i++) {
        usm_status status = lz_device_find((ze_device_handle_t)wanted[i], &found[i]);

        if (status)
            return status;
        if (found[i]->driver != found[0]->driver)
            return lz_report(USM_E_INVALID,
                             "device %zu of the list is of another Level Zero driver "
                             "than device 0",
                             i);
    }
    return USM_OK;
}

/* Some drivers check the handle; others trust it. */
static usm_status check_context(ze_context_handle_t native)
{
    ze_result_t err = lz.zeContextGetStatus(native);

    if (native_to_status(err) == USM_E_INVALID)
        return lz_report(USM_E_INVALID, "the handle is not a ze_context_handle_t (%s, 0x%x)",
                         lz_error_name(err), (unsigned)err);
    if (err && err != ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)
        return lz_fail(err, "zeContextGetStatus");
    return USM_OK;
}

static usm_status choose_devices(size_t ndevices, void *const *devices, size_t *n,
                                 lz_device ***found)
{
    usm_status  status;
    lz_device **list;

    if (!ndevices)
        return lz_only_driver_devices(n, found);
    list = lz_host->heap_alloc(ndevices * sizeof(lz_device *));
    if (!list)
        return lz_no_memory();
    status = find_devices(ndevices, devices, list);
    if (status) {
        lz_host->heap_free(list);
        return status;
    }
    *n     = ndevices;
    *found = list;
    return USM_OK;
}

usm_status lz_context_from_native(void *native, size_t ndevices, void *const *devices,
                                  usm_ownership ownership, void **ctx, usm_backend_device *list,
                                  size_t cap, size_t *count)
{
    lz_device **found  = NULL;
    lz_context *made   = NULL;
    size_t      n      = 0;
    usm_status  status = lz_devices_need();

    if (!status)
        status = choose_devices(ndevices, devices, &n, &found);
    if (!status)
        status = check_context(native);
    if (!status)
        status = lz_context_wrap(native, ownership == USM_TRANSFER, n, found, &made);
    if (!status) {
        *ctx = made;
        for (size_t i = 0; i < n && i < cap; i++)
            list[i] = found[i]->info;
        *count = n;
    }
    lz_host->heap_free(found);
    return status;
}

usm_status lz_context_native(void *ctx, void **native)
{
    *native = ((lz_context *)ctx)->native;
    return USM_OK;
}

usm_status lz_device_native(void *dev, void **native)
{
    *native = ((lz_device *)dev)->native;
    return USM_OK;
}
