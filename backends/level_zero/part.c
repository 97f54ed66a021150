/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sub-devices (tiles), which selector terms `N.*` list.  Made once, at the first query, and never
 * freed.
 *
 * Only the COMPOSITE hierarchy has them: in FLAT, Level Zero's default since 2024, the tiles are
 * root devices, and zeDeviceGetSubDevices lists none.  Called by the core through the table, and by
 * device.c. */
#include "level_zero.h"

static usm_status ask_parts(lz_device *dev, ze_device_handle_t *list)
{
    uint32_t    n   = dev->info.sub_devices;
    ze_result_t err = lz.zeDeviceGetSubDevices(dev->native, &n, list);

    if (err)
        return lz_fail(err, "zeDeviceGetSubDevices");
    if (n != dev->info.sub_devices)
        return lz_report(USM_E_DEVICE, "'%s' had %u sub-devices and now lists %u", dev->info.name,
                         (unsigned)dev->info.sub_devices, (unsigned)n);
    return USM_OK;
}

usm_status lz_list_parts(registry_device *link, registry_found *found)
{
    lz_device          *dev  = (lz_device *)link;
    size_t              n    = dev->info.sub_devices;
    ze_device_handle_t *list = lz_host->heap_alloc(n * sizeof(ze_device_handle_t));
    usm_status          status;

    if (!list)
        return lz_no_memory();
    status = ask_parts(dev, list);
    for (size_t i = 0; !status && i < n; i++) {
        lz_device *part = NULL;

        status = lz_device_new(dev->driver, list[i], dev, &part);
        if (!status)
            status = registry_add_device(found, &part->link);
    }
    lz_host->heap_free(list);
    return status;
}

usm_status lz_sub_devices(void *dev, usm_backend_device *list, size_t cap, size_t *count)
{
    return registry_sub_devices(&lz_registry, dev, list, cap, count);
}
