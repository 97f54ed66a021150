/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The existing backends, pools, transports and codecs, and the devices.
 *
 * src/usm.c registers the built-in ones and the names of the modules; a module is loaded when a
 * selector or a setting first needs it.  Backends and devices live as long as the process. */
#ifndef USM_DEVICE_REGISTRY_H
#define USM_DEVICE_REGISTRY_H

#include "device/backend.h"
#include "device/handle.h"

#include <usm/codec.h>
#include <usm/pool_ops.h>
#include <usm/transport.h>

/* A quota: the bytes taken, and their limit. */
typedef struct usm__device_quota {
    _Atomic(uint64_t) reserved;
    _Atomic(uint64_t) limit; /* 0: none                                               */
} usm__device_quota;

struct usm_device {
    usm__magic_word    magic;
    usm__backend      *be;
    usm_backend_device desc;
    usm_device        *parent;
    size_t             depth;    /* 0: a root device                                           */
    size_t             index[3]; /* as in the selector term                                    */
    char               term[64]; /* "opencl:0.1"                                               */
    usm_device       **parts;    /* sub-devices; guarded by the registry's lock until `parted` */
    size_t             nparts;
    _Atomic(bool)      parted;
    usm__device_quota  quota; /* of areas on the device, over all contexts; its limit is that of
                                   USM_MEMORY_LIMIT */
};

/* A backend, as usm-info shows it. */
typedef struct usm__backend_slot {
    char         name[32];
    char         path[512];   /* of the module; or "built in"                       */
    char         reason[512]; /* why it was refused or has no devices; otherwise "" */
    bool         tried, ok;
    bool         by_name; /* its devices are found only by selectors that name it */
    usm_status   status;  /* the failure, if it is not ok                         */
    usm__backend be;
    usm_device **devices; /* root devices */
    size_t       ndevices;
} usm__backend_slot;

/* Called by src/usm.c before anything else.  Devices of one type are preferred in the order of
 * registration. */
void usm__registry_add_backend(const char *name, usm_backend_entry_fn *entry);
void usm__registry_add_pool(const char *name, usm_pool_entry_fn *entry); /* NULL: a module */

/* Loads the backend and lists its devices; NULL with an error message if it is not available.
 * Takes the registry's lock. */
usm__backend_slot *usm__registry_backend(const char *name);
/* All registered backends, loaded or not. */
size_t usm__registry_backends(usm__backend_slot **list, size_t cap);
/* Finds a pool by name: a registered one, or a module libusm_pool_<name>.so, which is loaded.  NULL
 * with an error message.  Takes the registry's lock. */
const usm_pool_ops *usm__registry_pool(const char *name);
/* True if the name is registered or there is such a module.  Takes no lock, loads nothing. */
bool usm__registry_has_pool(const char *name);
/* Writes the registered names, such as "slab, arena, direct", as far as they fit. */
void usm__registry_pool_names(char *text, size_t size);
/* The same for transports and codecs (registry_store.c): libusm_transport_<name>.so,
 * libusm_codec_<name>.so.  The returned table is the module's own, and was checked: a group of
 * functions is complete, with its bit in `caps`, or absent, so callers test `caps`.  Adding a name
 * again replaces it, if it was not requested yet. */
void usm__registry_add_transport(const char *name, usm_transport_entry_fn *entry);
/* The library that the module is built with, for the message when there is no such module; static. */
void usm__registry_transport_needs(const char *name, const char *needs);
void usm__registry_add_codec(const char *name, usm_codec_entry_fn *entry);
/* NULL with an error message.  USM_E_NO_BACKEND; USM_E_ABI, USM_E_INVALID: the table is not
 * valid */
const usm_transport_ops *usm__registry_transport(const char *name);
const usm_codec_ops     *usm__registry_codec(const char *name);
/* The list for usm-info; returns the number. */
typedef struct usm__registry_store {
    char name[32];
    char path[512]; /* of the module; or "built in"; "": not loaded */
} usm__registry_store;
size_t usm__registry_transports(usm__registry_store *list, size_t cap);
size_t usm__registry_codecs(usm__registry_store *list, size_t cap);
void   usm__registry_store_fork(usm_fork_phase phase); /* called by usm__registry_fork() */
/* Lists dev's sub-devices: none if it has none.  USM_E_NO_MEMORY */
usm_status usm__registry_parts(usm_device *dev, usm_device *const **parts, size_t *n);
/* Returns the device of `be` with this handle; an unknown one is made from desc.  NULL: no
 * memory. */
usm_device *usm__registry_device_of(usm__backend *be, const usm_backend_device *desc);
void        usm__registry_fork(usm_fork_phase phase);

/* The table of functions that modules receive. */
extern const usm_host_api usm__registry_api;

#endif
