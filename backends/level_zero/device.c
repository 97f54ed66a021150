/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The registry: drivers and devices the process has met, each with one record that lives as long as
 * the process, so that a native device always has the same handle.  Not here: what a device can
 * (describe.c), its parts (part.c).
 *
 * Roots are numbered driver by driver in the loader's order, in the order of each driver; records
 * that come later (parts, the card behind tiles in the COMBINED hierarchy) are known to the
 * registry but not numbered. */
#include "level_zero.h"

#include <stdio.h>
#include <string.h>

#define MAX_DRIVERS 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static bool        is_listed;
static lz_driver  *drivers;
static lz_device  *devices; /* every record                    */
static lz_device **roots;   /* those devices() gives, in order */
static size_t      nroots;

void lz_registry_lock(void)
{
    pthread_mutex_lock(&lock);
}

void lz_registry_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

usm_status lz_device_new(lz_driver *driver, ze_device_handle_t native, lz_device *parent,
                         lz_device **out)
{
    lz_device *dev = lz_host->heap_alloc(sizeof(*dev));
    usm_status status;

    if (!dev)
        return lz_no_memory();
    dev->native = native;
    dev->driver = driver;
    dev->parent = parent;
    status      = lz_device_describe(dev);
    if (status) {
        lz_host->heap_free(dev);
        return status;
    }
    *out = dev;
    return USM_OK;
}

void lz_device_publish(lz_device *dev)
{
    dev->next = devices;
    devices   = dev;
}

/* --- listing --------------------------------------------------------------- */

/* What one listing found; published as a whole or given back as a whole. */
typedef struct listing {
    lz_driver  *drivers, **last_driver;
    lz_device **roots;
    size_t      nroots;
} listing;

static void listing_undo(listing *l)
{
    while (l->drivers) {
        lz_driver *next = l->drivers->next;

        lz_host->heap_free(l->drivers);
        l->drivers = next;
    }
    for (size_t i = 0; i < l->nroots; i++)
        lz_host->heap_free(l->roots[i]);
    lz_host->heap_free(l->roots);
}

static bool shares_pci(const lz_device *a, const lz_device *b)
{
    return a != b && a->driver == b->driver && a->info.has_pci && b->info.has_pci &&
           memcmp(a->info.pci, b->info.pci, sizeof(a->info.pci)) == 0;
}

/* In the FLAT hierarchy the tiles of a card are devices, all at the card's PCI address: they are
 * told apart by their UUIDs instead, or the core would take them for one device listed twice. */
static void tell_tiles_apart(listing *l)
{
    for (size_t i = 0; i < l->nroots; i++)
        for (size_t j = 0; j < l->nroots; j++)
            if (shares_pci(l->roots[i], l->roots[j]))
                l->roots[i]->is_tile = true;
    for (size_t i = 0; i < l->nroots; i++)
        if (l->roots[i]->is_tile)
            l->roots[i]->info.has_pci = false;
}

static void listing_publish(listing *l)
{
    tell_tiles_apart(l);
    drivers = l->drivers;
    roots   = l->roots;
    nroots  = l->nroots;
    for (size_t i = 0; i < nroots; i++)
        lz_device_publish(roots[i]);
    is_listed = true;
}

static usm_status append_roots(listing *l, lz_driver *driver, const ze_device_handle_t *list,
                               size_t n)
{
    lz_device **grown = lz_host->heap_alloc((l->nroots + n) * sizeof(lz_device *));

    if (!grown)
        return lz_no_memory();
    if (l->nroots)
        memcpy(grown, l->roots, l->nroots * sizeof(lz_device *));
    lz_host->heap_free(l->roots);
    l->roots = grown;
    for (size_t i = 0; i < n; i++) {
        lz_device *dev    = NULL;
        usm_status status = lz_device_new(driver, list[i], NULL, &dev);

        if (status == USM_E_NO_MEMORY)
            return status;
        if (!status)
            l->roots[l->nroots++] = dev;
        else
            lz_host->log(USM_LOG_INFO,
                         "Level Zero: device %zu of driver %s is left out: it is neither GPU nor "
                         "CPU, or does not describe itself (status %d)",
                         i, driver->text, (int)status);
    }
    return USM_OK;
}

static usm_status list_devices(listing *l, lz_driver *driver)
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
    if (!err)
        status = append_roots(l, driver, list, n);
    else if (native_to_status(err) == USM_E_NO_MEMORY)
        status = lz_fail(err, "zeDeviceGet");
    lz_host->heap_free(list);
    return status;
}

/* A driver that fails here is left out, with a line: the others still work. */
static usm_status list_driver(listing *l, ze_driver_handle_t native)
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
    *l->last_driver = driver;
    l->last_driver  = &driver->next;
    return list_devices(l, driver);
}

static usm_status list_all(void)
{
    ze_driver_handle_t list[MAX_DRIVERS];
    uint32_t           n    = 0;
    const char        *call = "";
    ze_result_t        err  = lz_init_drivers(list, MAX_DRIVERS, &n, &call);
    listing            l    = {.last_driver = &l.drivers};

    if (err && native_to_status(err) == USM_E_NO_MEMORY)
        return lz_fail(err, call);
    if (err || !n)
        lz_host->log(
            USM_LOG_INFO,
            "Level Zero: the loader finds no driver that works (%s: %s, 0x%x); install one "
            "(Debian: intel-opencl-icd or libze-intel-gpu1), correct ZE_ENABLE_ALT_DRIVERS, "
            "or let this user open /dev/dri/renderD*",
            call, err ? lz_error_name(err) : "none listed", (unsigned)err);
    for (uint32_t i = 0; !err && i < n; i++) {
        usm_status status = list_driver(&l, list[i]);

        if (status) {
            listing_undo(&l);
            return status;
        }
    }
    listing_publish(&l);
    return USM_OK;
}

/* Lock held.  Without a loader the list is empty, and is not looked for again. */
static usm_status need_list(void)
{
    char why[256] = "";

    if (is_listed)
        return USM_OK;
    if (lz_load(why, sizeof(why)))
        return list_all();
    lz_host->log(USM_LOG_INFO,
                 "Level Zero: no loader: %s; install one (Debian: libze1) and a driver", why);
    is_listed = true;
    return USM_OK;
}

usm_status lz_devices(usm_backend_device *list, size_t cap, size_t *count)
{
    usm_status status;

    lz_registry_lock();
    status = need_list();
    if (!status) {
        for (size_t i = 0; i < nroots && i < cap; i++)
            list[i] = roots[i]->info;
        *count = nroots;
    }
    lz_registry_unlock();
    return status;
}

usm_status lz_devices_need(void)
{
    char       why[256] = "";
    usm_status status;

    lz_registry_lock();
    status = need_list();
    if (!status && !lz_load(why, sizeof(why)))
        status = lz_report(USM_E_NO_BACKEND, "there is no Level Zero loader to work with: %s", why);
    else if (!status && !drivers)
        status = lz_report(USM_E_NO_BACKEND, "there is no Level Zero driver to work with; "
                                             "USM_LOG=info says what was tried");
    lz_registry_unlock();
    return status;
}

usm_status lz_only_driver_devices(size_t *count, lz_device *const **list)
{
    usm_status status   = USM_OK;
    size_t     of_first = 0;

    lz_registry_lock();
    while (of_first < nroots && roots[of_first]->driver == roots[0]->driver)
        of_first++;
    if (!nroots || of_first < nroots) {
        status = lz_report(USM_E_INVALID,
                           "Level Zero does not tell the devices of a context, and %s: name them",
                           nroots ? "there are several drivers" : "no driver has a device");
    } else {
        *count = nroots;
        *list  = roots;
    }
    lz_registry_unlock();
    return status;
}

/* --- finding ---------------------------------------------------------------- */

static lz_device *known(ze_device_handle_t native)
{
    for (lz_device *dev = devices; dev; dev = dev->next)
        if (dev->native == native)
            return dev;
    return NULL;
}

/* Parts, their parts, and so on: what comes new stands before what was there. */
static usm_status list_all_parts(void)
{
    const lz_device *first = NULL;

    while (first != devices) {
        const lz_device *done = first;

        first = devices;
        for (lz_device *dev = devices; dev != done; dev = dev->next) {
            usm_status status = lz_device_need_parts(dev);

            if (status)
                return status;
        }
    }
    return USM_OK;
}

/* In the COMBINED hierarchy the card of a tile is asked for apart, and listed nowhere. */
static usm_status adopt_card(ze_device_handle_t native, lz_device **out)
{
    for (lz_device *dev = devices; dev && lz.zeDeviceGetRootDevice; dev = dev->next) {
        ze_device_handle_t card = NULL;
        usm_status         status;

        if (lz.zeDeviceGetRootDevice(dev->native, &card) || card != native)
            continue;
        status = lz_device_new(dev->driver, native, NULL, out);
        if (!status)
            lz_device_publish(*out);
        return status;
    }
    return USM_OK;
}

usm_status lz_device_find(ze_device_handle_t native, lz_device **out)
{
    lz_device *dev;
    usm_status status = USM_OK;

    lz_registry_lock();
    dev = known(native);
    if (!dev)
        status = list_all_parts();
    if (!dev && !status)
        dev = known(native);
    if (!dev && !status)
        status = adopt_card(native, &dev);
    if (!dev && !status)
        status = lz_report(USM_E_INVALID, "the handle is no ze_device_handle_t of this process's "
                                          "Level Zero drivers");
    lz_registry_unlock();
    if (!status)
        *out = dev;
    return status;
}
