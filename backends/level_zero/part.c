/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Parts of devices (tiles), what selector terms `N.*` list.  Made once, at the first question, and
 * kept for ever.
 *
 * Only the COMPOSITE hierarchy has them: in FLAT, Level Zero's default since 2024, the tiles are
 * root devices, and zeDeviceGetSubDevices lists none.  Called by the core through the table, and by
 * device.c. */
#include "level_zero.h"

/* Lock held.  All records or none. */
static usm_status describe_parts(lz_device *dev, const ze_device_handle_t *list, lz_device **parts)
{
    size_t     n = dev->info.sub_devices;
    usm_status status;

    for (size_t i = 0; i < n; i++) {
        status = lz_device_new(dev->driver, list[i], dev, &parts[i]);
        if (!status)
            continue;
        while (i)
            lz_host->heap_free(parts[--i]);
        return status;
    }
    for (size_t i = 0; i < n; i++)
        lz_device_publish(parts[i]);
    return USM_OK;
}

static usm_status list_parts(lz_device *dev, ze_device_handle_t *list, lz_device **parts)
{
    uint32_t    n   = dev->info.sub_devices;
    ze_result_t err = lz.zeDeviceGetSubDevices(dev->native, &n, list);

    if (err)
        return lz_fail(err, "zeDeviceGetSubDevices");
    if (n != dev->info.sub_devices)
        return lz_report(USM_E_DEVICE, "'%s' had %u sub-devices and now lists %u", dev->info.name,
                         (unsigned)dev->info.sub_devices, (unsigned)n);
    return describe_parts(dev, list, parts);
}

usm_status lz_device_need_parts(lz_device *dev)
{
    size_t              n = dev->info.sub_devices;
    ze_device_handle_t *list;
    lz_device         **parts;
    usm_status          status;

    if (dev->parts || !n)
        return USM_OK;
    list   = lz_host->heap_alloc(n * sizeof(ze_device_handle_t));
    parts  = lz_host->heap_alloc(n * sizeof(lz_device *));
    status = list && parts ? list_parts(dev, list, parts) : lz_no_memory();
    lz_host->heap_free(list);
    if (status)
        lz_host->heap_free(parts);
    else
        dev->parts = parts;
    return status;
}

usm_status lz_sub_devices(void *dev, usm_backend_device *list, size_t cap, size_t *count)
{
    lz_device *d = dev;
    usm_status status;

    lz_registry_lock();
    status = lz_device_need_parts(d);
    if (!status) {
        for (size_t i = 0; i < d->info.sub_devices && i < cap; i++)
            list[i] = d->parts[i]->info;
        *count = d->info.sub_devices;
    }
    lz_registry_unlock();
    return status;
}
