/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Drivers and devices the process has met: each has one record that lives as long as the process,
 * so that a native device always has the same handle.  Compiled into each backend over a driver.
 * Not here: what a driver is asked.
 *
 * A backend embeds registry_driver and registry_device as the FIRST member of its own records,
 * which are on the host heap, and fills a registry_ops.  Roots are those that devices() gives, in
 * that order; records that come later (parts, what native handles bring) are known, too. */
#ifndef USM_BACKENDS_COMMON_REGISTRY_H
#define USM_BACKENDS_COMMON_REGISTRY_H

#include <pthread.h>
#include <usm/backend.h>

typedef struct registry        registry;
typedef struct registry_driver registry_driver;
typedef struct registry_device registry_device;

struct registry_driver {
    registry_driver *next; /* guarded by the registry's lock                             */
};

struct registry_device {
    const usm_backend_device *info; /* fixed; lies in the same record                    */
    /* guarded by the registry's lock */
    registry_device  *next;  /* of all devices known; what came last stands first        */
    registry_device **parts; /* NULL until asked for                                     */
};

/* Records that were made and are not known yet: published as a whole or given back as a whole. */
typedef struct registry_found {
    const usm_host_api *host;
    registry_driver    *drivers, **last_driver;
    registry_device   **devices;
    size_t              ndevices;
} registry_found;

typedef struct registry_ops {
    const char *name;    /* "OpenCL", for stories                                        */
    const char *package; /* what brings the loader, in Debian                            */
    /* All with the lock held.  load: once; false with the reason.  list: drivers and root
     * devices; list_parts: all parts of dev (info->sub_devices, > 0).  When they fail the registry
     * gives back the records that they added. */
    bool (*load)(char *why, size_t why_size);
    usm_status (*list)(registry_found *found);
    usm_status (*list_parts)(registry_device *dev, registry_found *found);
} registry_ops;

struct registry {
    const registry_ops        *ops;
    const usm_host_api *const *host; /* set before the first call                        */
    pthread_mutex_t            lock;
    /* guarded by lock */
    bool              is_listed;
    registry_driver  *drivers;
    registry_device  *devices;
    registry_device **roots;
    size_t            nroots;
};

#define REGISTRY_INIT(table, api)                                                                  \
    {                                                                                              \
        .ops = (table), .host = (api), .lock = PTHREAD_MUTEX_INITIALIZER                           \
    }

void registry_lock(registry *r);
void registry_unlock(registry *r);

/* For list and list_parts.  add_device owns the record whatever the outcome. */
void       registry_add_driver(registry_found *found, registry_driver *driver);
usm_status registry_add_device(registry_found *found, registry_device *dev);
/* A record becomes known; lock held. */
void registry_publish(registry *r, registry_device *dev);
/* Lists the parts if that was not done; lock held. */
usm_status registry_need_parts(registry *r, registry_device *dev);

/* Loads and lists if that was not done; USM_E_NO_BACKEND without a loader. */
usm_status registry_need(registry *r);
/* What the backend's table wants; no lock held.  Without a loader there are no devices. */
usm_status registry_devices(registry *r, usm_backend_device *list, size_t cap, size_t *count);
usm_status registry_sub_devices(registry *r, registry_device *dev, usm_backend_device *list,
                                size_t cap, size_t *count);

#endif
