/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Drivers and devices as the registry lists them (../common/registry.c), and finding the record of
 * a native device.  Not here: the properties of a device (describe.c), its sub-devices (part.c).
 *
 * Root devices are numbered driver by driver in the loader's order, and in each driver's own order.
 * The card behind tiles in the COMBINED hierarchy gets a record when a program passes its handle,
 * but no number. */
#include "level_zero.h"

#include <string.h>

#define MAX_DRIVERS 16

usm_status lz_device_new(lz_driver *driver, ze_device_handle_t native, lz_device *parent,
                         lz_device **out)
{
    lz_device *dev = lz_host->heap_alloc(sizeof(*dev));
    usm_status status;

    if (!dev)
        return lz_no_memory();
    dev->link.info = &dev->info;
    dev->native    = native;
    dev->driver    = driver;
    dev->parent    = parent;
    status         = lz_device_describe(dev);
    if (status) {
        lz_host->heap_free(dev);
        return status;
    }
    *out = dev;
    return USM_OK;
}

/* --- listing --------------------------------------------------------------- */

static lz_device *record_of(registry_device *link)
{
    return (lz_device *)link;
}

static bool shares_pci(const lz_device *a, const lz_device *b)
{
    return a != b && a->driver == b->driver && a->info.has_pci && b->info.has_pci &&
           memcmp(a->info.pci, b->info.pci, sizeof(a->info.pci)) == 0;
}

/* In the FLAT hierarchy the tiles of a card are devices, all with the card's PCI address.  They are
 * distinguished by their UUIDs instead; otherwise the core would take them for one device listed
 * twice. */
static void notify_tiles_apart(const registry_found *found)
{
    for (size_t i = 0; i < found->ndevices; i++)
        for (size_t j = 0; j < found->ndevices; j++)
            if (shares_pci(record_of(found->devices[i]), record_of(found->devices[j])))
                record_of(found->devices[i])->is_tile = true;
    for (size_t i = 0; i < found->ndevices; i++)
        if (record_of(found->devices[i])->is_tile)
            record_of(found->devices[i])->info.has_pci = false;
}

static usm_status list_device(registry_found *found, lz_driver *driver, ze_device_handle_t native,
                              size_t number)
{
    lz_device *dev    = NULL;
    usm_status status = lz_device_new(driver, native, NULL, &dev);

    if (!status)
        return registry_add_device(found, &dev->link);
    if (status == USM_E_NO_MEMORY)
        return status;
    lz_host->log(USM_LOG_INFO,
                 "Level Zero: device %zu of driver %s is left out: it is neither GPU nor CPU, or "
                 "does not describe itself (status %d)",
                 number, driver->text, (int)status);
    return USM_OK;
}

static usm_status list_devices(registry_found *found, lz_driver *driver)
{
    uint32_t            n   = 0;
    ze_result_t         err = lz.zeDeviceGet(driver->native, &n, NULL);
    ze_device_handle_t *list;
    usm_status          status = USM_OK;

    if (err || !n) {
        lz_host->log(USM_LOG_INFO, "Level Zero: the driver %s has no device (%s, 0x%x)",
                     driver->text, err ? lz_error_name(err) : "none listed", (unsigned)err);
        return native_to_status(err) == USM_E_NO_MEMORY ? lz_fail(err, "zeDeviceGet") : USM_OK;
    }
    list = lz_host->heap_alloc(n * sizeof(ze_device_handle_t));
    if (!list)
        return lz_no_memory();
    err = lz.zeDeviceGet(driver->native, &n, list);
    for (uint32_t i = 0; !err && !status && i < n; i++)
        status = list_device(found, driver, list[i], i);
    if (native_to_status(err) == USM_E_NO_MEMORY)
        status = lz_fail(err, "zeDeviceGet");
    lz_host->heap_free(list);
    return status;
}

/* A driver that fails here is skipped, and a line is logged: the others still work. */
static usm_status list_driver(registry_found *found, ze_driver_handle_t native)
{
    lz_driver *driver = lz_host->heap_alloc(sizeof(*driver));
    usm_status status;

    if (!driver)
        return lz_no_memory();
    driver->native = native;
    status         = lz_driver_describe(driver);
    if (status) {
        lz_host->heap_free(driver);
        return status == USM_E_NO_MEMORY ? status : USM_OK;
    }
    registry_add_driver(found, &driver->link);
    return list_devices(found, driver);
}

static usm_status list_all(registry_found *found)
{
    ze_driver_handle_t list[MAX_DRIVERS];
    uint32_t           n      = 0;
    const char        *call   = "";
    ze_result_t        err    = lz_init_drivers(list, MAX_DRIVERS, &n, &call);
    usm_status         status = USM_OK;

    if (err && native_to_status(err) == USM_E_NO_MEMORY)
        return lz_fail(err, call);
    if (err || !n)
        lz_host->log(
            USM_LOG_INFO,
            "Level Zero: the loader finds no driver that works (%s: %s, 0x%x); install one "
            "(Debian: intel-opencl-icd or libze-intel-gpu1), correct ZE_ENABLE_ALT_DRIVERS, "
            "or let this user open /dev/dri/renderD*",
            call, err ? lz_error_name(err) : "none listed", (unsigned)err);
    for (uint32_t i = 0; !err && !status && i < n; i++)
        status = list_driver(found, list[i]);
    if (!status)
        notify_tiles_apart(found);
    return status;
}

static const registry_ops ops = {
    .name       = "Level Zero",
    .package    = "libze1",
    .load       = lz_load,
    .list       = list_all,
    .list_parts = lz_list_parts,
};
registry lz_registry = REGISTRY_INIT(&ops, &lz_host);

usm_status lz_devices(usm_backend_device *list, size_t cap, size_t *count)
{
    return registry_devices(&lz_registry, list, cap, count);
}

usm_status lz_devices_need(void)
{
    usm_status status = registry_need(&lz_registry);

    if (status)
        return status;
    registry_lock(&lz_registry);
    if (!lz_registry.drivers)
        status = lz_report(USM_E_NO_BACKEND, "there is no Level Zero driver to work with; "
                                             "USM_LOG=info says what was tried");
    registry_unlock(&lz_registry);
    return status;
}

/* The number of root devices; 0 unless all have the same driver. */
static size_t count_of_only_driver(void)
{
    for (size_t i = 1; i < lz_registry.nroots; i++)
        if (record_of(lz_registry.roots[i])->driver != record_of(lz_registry.roots[0])->driver)
            return 0;
    return lz_registry.nroots;
}

usm_status lz_only_driver_devices(size_t *count, lz_device ***list)
{
    usm_status  status = USM_OK;
    lz_device **copy   = NULL;
    size_t      n;

    registry_lock(&lz_registry);
    n = count_of_only_driver();
    if (n)
        copy = lz_host->heap_alloc(n * sizeof(lz_device *));
    for (size_t i = 0; copy && i < n; i++)
        copy[i] = record_of(lz_registry.roots[i]);
    if (!n)
        status = lz_report(
            USM_E_INVALID, "Level Zero does not list the devices of a context, and %s: name them",
            lz_registry.nroots ? "there are several drivers" : "no driver has a device");
    registry_unlock(&lz_registry);
    if (!status && !copy)
        status = lz_no_memory();
    if (status)
        return status;
    *count = n;
    *list  = copy;
    return USM_OK;
}

/* --- finding ---------------------------------------------------------------- */

static lz_device *known(ze_device_handle_t native)
{
    for (registry_device *it = lz_registry.devices; it; it = it->next)
        if (record_of(it)->native == native)
            return record_of(it);
    return NULL;
}

/* Lists sub-devices, their sub-devices, and so on: new records are put before the existing ones. */
static usm_status list_all_parts(void)
{
    registry_device *first = NULL;

    while (first != lz_registry.devices) {
        const registry_device *done = first;

        first = lz_registry.devices;
        for (registry_device *dev = first; dev != done; dev = dev->next) {
            usm_status status = registry_need_parts(&lz_registry, dev);

            if (status)
                return status;
        }
    }
    return USM_OK;
}

/* In the COMBINED hierarchy the card of a tile needs a query of its own, and is in no list. */
static usm_status adopt_card(ze_device_handle_t native, lz_device **out)
{
    for (registry_device *it = lz_registry.devices; it && lz.zeDeviceGetRootDevice; it = it->next) {
        lz_device         *dev  = record_of(it);
        ze_device_handle_t card = NULL;
        usm_status         status;

        if (lz.zeDeviceGetRootDevice(dev->native, &card) || card != native)
            continue;
        status = lz_device_new(dev->driver, native, NULL, out);
        if (!status)
            registry_publish(&lz_registry, &(*out)->link);
        return status;
    }
    return USM_OK;
}

usm_status lz_device_find(ze_device_handle_t native, lz_device **out)
{
    lz_device *dev;
    usm_status status = USM_OK;

    registry_lock(&lz_registry);
    dev = known(native);
    if (!dev)
        status = list_all_parts();
    if (!dev && !status)
        dev = known(native);
    if (!dev && !status)
        status = adopt_card(native, &dev);
    if (!dev && !status)
        status =
            lz_report(USM_E_INVALID, "the handle is not a ze_device_handle_t of this process's "
                                     "Level Zero drivers");
    registry_unlock(&lz_registry);
    if (!status)
        *out = dev;
    return status;
}
