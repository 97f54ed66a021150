/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The records of drivers and devices: listed at the first query, all or none, and never freed.
 * Called by the device.c and part.c of each backend. */
#include "registry.h"

#include <string.h>

void registry_lock(registry *r)
{
    pthread_mutex_lock(&r->lock);
}

void registry_unlock(registry *r)
{
    pthread_mutex_unlock(&r->lock);
}

/* --- records that were found -------------------------------------------------------------- */

void registry_add_driver(registry_found *found, registry_driver *driver)
{
    *found->last_driver = driver;
    found->last_driver  = &driver->next;
}

usm_status registry_add_device(registry_found *found, registry_device *dev)
{
    const usm_host_api *host  = found->host;
    registry_device   **grown = host->heap_alloc((found->ndevices + 1) * sizeof(*grown));

    if (!grown) {
        host->heap_free(dev);
        return host->report(USM_E_NO_MEMORY, "the host heap is exhausted");
    }
    if (found->ndevices)
        memcpy(grown, found->devices, found->ndevices * sizeof(*grown));
    grown[found->ndevices++] = dev;
    host->heap_free(found->devices);
    found->devices = grown;
    return USM_OK;
}

static void give_back(registry_found *found)
{
    while (found->drivers) {
        registry_driver *next = found->drivers->next;

        found->host->heap_free(found->drivers);
        found->drivers = next;
    }
    for (size_t i = 0; i < found->ndevices; i++)
        found->host->heap_free(found->devices[i]);
    found->host->heap_free(found->devices);
}

void registry_publish(registry *r, registry_device *dev)
{
    dev->next  = r->devices;
    r->devices = dev;
}

static void publish_all(registry *r, registry_found *found)
{
    *found->last_driver = r->drivers; /* those made for native handles, if any */
    r->drivers          = found->drivers;
    for (size_t i = 0; i < found->ndevices; i++)
        registry_publish(r, found->devices[i]);
}

/* --- listing --------------------------------------------------------------------------- */

static usm_status list_roots(registry *r)
{
    registry_found found  = {.host = *r->host, .last_driver = &found.drivers};
    usm_status     status = r->ops->list(&found);

    if (status) {
        give_back(&found);
        return status;
    }
    publish_all(r, &found);
    r->roots     = found.devices;
    r->nroots    = found.ndevices;
    r->is_listed = true;
    return USM_OK;
}

/* Lock held.  Without a loader the list is empty, and the search is not repeated. */
static usm_status need_roots(registry *r)
{
    char why[256] = "";

    if (r->is_listed)
        return USM_OK;
    if (r->ops->load(why, sizeof(why)))
        return list_roots(r);
    (*r->host)->log(USM_LOG_INFO, "%s: no loader: %s; install one (Debian: %s) and a driver",
                    r->ops->name, why, r->ops->package);
    r->is_listed = true;
    return USM_OK;
}

usm_status registry_need_parts(registry *r, registry_device *dev)
{
    registry_found found = {.host = *r->host, .last_driver = &found.drivers};
    usm_status     status;

    if (dev->parts || !dev->info->sub_devices)
        return USM_OK;
    status = r->ops->list_parts(dev, &found);
    if (status) {
        give_back(&found);
        return status;
    }
    publish_all(r, &found);
    dev->parts = found.devices;
    return USM_OK;
}

/* --- for the table --------------------------------------------------------------------- */

static void show(registry_device *const *from, size_t n, usm_backend_device *list, size_t cap)
{
    for (size_t i = 0; i < n && i < cap; i++)
        list[i] = *from[i]->info;
}

usm_status registry_devices(registry *r, usm_backend_device *list, size_t cap, size_t *count)
{
    usm_status status;

    registry_lock(r);
    status = need_roots(r);
    if (!status) {
        show(r->roots, r->nroots, list, cap);
        *count = r->nroots;
    }
    registry_unlock(r);
    return status;
}

usm_status registry_sub_devices(registry *r, registry_device *dev, usm_backend_device *list,
                                size_t cap, size_t *count)
{
    usm_status status;

    registry_lock(r);
    status = registry_need_parts(r, dev);
    if (!status) {
        show(dev->parts, dev->info->sub_devices, list, cap);
        *count = dev->info->sub_devices;
    }
    registry_unlock(r);
    return status;
}

usm_status registry_need(registry *r)
{
    char       why[256] = "";
    usm_status status;

    registry_lock(r);
    status = need_roots(r);
    if (!status && !r->ops->load(why, sizeof(why)))
        status = (*r->host)->report(USM_E_NO_BACKEND, "there is no %s loader to work with: %s",
                                    r->ops->name, why);
    registry_unlock(r);
    return status;
}
