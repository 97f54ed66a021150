/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which backends, pools, transports and codecs exist, and the devices there are.
 *
 * src/usm.c registers the built-in ones and names the modules; a module is
 * loaded when a selector or a setting first needs it.  Backends and devices
 * live as long as the process. */
#ifndef USM_CORE_REGISTRY_H
#define USM_CORE_REGISTRY_H

#include "core/backend.h"
#include "core/handle.h"

#include <usm/codec.h>
#include <usm/pool_ops.h>
#include <usm/transport.h>

/* Bytes that are taken, and how many may be. */
typedef struct usm__account {
    _Atomic(uint64_t) reserved;
    _Atomic(uint64_t) limit; /* 0: none                                               */
} usm__account;

struct usm_device {
    usm__magic_word    magic;
    usm__backend      *be;
    usm_backend_device desc;
    usm_device        *parent;
    size_t             depth;    /* 0 = root                                          */
    size_t             index[3]; /* as in the selector term                           */
    char               term[64]; /* "opencl:0.1"                                      */
    usm_device       **parts;    /* guarded by the registry's lock until `parted`     */
    size_t             nparts;
    _Atomic(bool)      parted;
    usm__account       account; /* of areas on it, all contexts; USM_MEMORY_LIMIT      */
};

/* A backend as usm-info shows it. */
typedef struct usm__backend_slot {
    char         name[32];
    char         path[512];   /* of the module; "built in"                              */
    char         reason[512]; /* why it was refused or has no devices; ""              */
    bool         tried, ok;
    bool         by_name; /* only a selector that names it finds its devices            */
    usm_status   status;  /* why it is not ok                                            */
    usm__backend be;
    usm_device **devices; /* root devices                                              */
    size_t       ndevices;
} usm__backend_slot;

/* Called by src/usm.c before anything else.  The order of registration is the
 * order of preference among devices of one type. */
void usm__registry_add_backend(const char *name, usm_backend_entry_fn *entry);
void usm__registry_add_pool(const char *name, usm_pool_entry_fn *entry); /* NULL: a module */

/* Loads and enumerates; NULL and a story when the backend cannot be had. Takes
 * the registry's lock. */
usm__backend_slot *usm__registry_backend(const char *name);
/* All registered backends, tried or not. */
size_t usm__registry_backends(usm__backend_slot **list, size_t cap);
/* By name: registered, or a module libusm_pool_<name>.so, which is loaded.  NULL and a story.
 * Takes the registry's lock. */
const usm_pool_ops *usm__registry_pool(const char *name);
/* Whether it is registered or there is such a module. No lock, loads nothing. */
bool usm__registry_has_pool(const char *name);
/* "slab, arena, direct": the registered ones, as far as they fit. */
void usm__registry_pool_names(char *text, size_t size);
/* The same for transports and codecs (registry_store.c): libusm_transport_<name>.so,
 * libusm_codec_<name>.so.  The table is the module's own, checked: a group of functions is there
 * wholly, with its bit in `caps`, or not at all, so callers look at `caps`.  A name that is added
 * again is replaced: before anybody asked for it. */
void usm__registry_add_transport(const char *name, usm_transport_entry_fn *entry);
void usm__registry_add_codec(const char *name, usm_codec_entry_fn *entry);
/* NULL and a story.   USM_E_NO_BACKEND, USM_E_ABI, USM_E_INVALID: the table is no good */
const usm_transport_ops *usm__registry_transport(const char *name);
const usm_codec_ops     *usm__registry_codec(const char *name);
/* As usm-info shows them; how many there are. */
typedef struct usm__registry_store {
    char name[32];
    char path[512]; /* of the module; "built in"; "": not loaded                             */
} usm__registry_store;
size_t usm__registry_transports(usm__registry_store *list, size_t cap);
size_t usm__registry_codecs(usm__registry_store *list, size_t cap);
void   usm__registry_store_fork(usm_fork_phase phase); /* called by usm__registry_fork()     */
/* Enumerates dev's parts: none when it has none.   USM_E_NO_MEMORY */
usm_status usm__registry_parts(usm_device *dev, usm_device *const **parts, size_t *n);
/* The device of `be` with this handle; made from desc when unknown. NULL: no memory. */
usm_device *usm__registry_device_of(usm__backend *be, const usm_backend_device *desc);
void        usm__registry_fork(usm_fork_phase phase);

/* The table given to modules. */
extern const usm_host_api usm__host_api;

#endif
