/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The drivers and devices that the process has encountered: each has one record that lives as long
 * as the process, so that a native device always has the same handle.  Compiled into each backend
 * over a driver.  Not here: the queries of a driver.
 *
 * A backend embeds registry_driver and registry_device as the FIRST member of its own records,
 * which are on the host heap, and fills in a registry_ops.  Roots are those that devices() returns,
 * in that order; later records (sub-devices, devices of native handles) are in the list too. */
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
    const usm_backend_device *info; /* fixed; part of the same record */
    /* guarded by the registry's lock */
    registry_device  *next;  /* list of all known devices, newest first */
    registry_device **parts; /* sub-devices; NULL until requested       */
};

/* Records that were made and are not published yet: all of them are published or all are freed. */
typedef struct registry_found {
    const usm_host_api *host;
    registry_driver    *drivers, **last_driver;
    registry_device   **devices;
    size_t              ndevices;
} registry_found;

typedef struct registry_ops {
    const char *name;    /* "OpenCL", for messages             */
    const char *package; /* the Debian package with the loader */
    /* All are called with the lock held.  load: once; false with the reason.  list: drivers and
     * root devices; list_parts: all sub-devices of dev (info->sub_devices, > 0).  If they fail, the
     * registry frees the records that they added. */
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

/* For list and list_parts.  add_device owns the record whatever the result. */
void       registry_add_driver(registry_found *found, registry_driver *driver);
usm_status registry_add_device(registry_found *found, registry_device *dev);
/* Publishes a record; lock held. */
void registry_publish(registry *r, registry_device *dev);
/* Lists the sub-devices if that was not done; lock held. */
usm_status registry_need_parts(registry *r, registry_device *dev);

/* Loads and lists if that was not done; USM_E_NO_BACKEND without a loader. */
usm_status registry_need(registry *r);
/* The functions for the backend's table; no lock held.  Without a loader there are no devices. */
usm_status registry_devices(registry *r, usm_backend_device *list, size_t cap, size_t *count);
usm_status registry_sub_devices(registry *r, registry_device *dev, usm_backend_device *list,
                                size_t cap, size_t *count);

#endif
