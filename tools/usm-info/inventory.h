/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The inventory: backends, devices and their parts, collected once before anything is printed.
 *
 * Devices are listed as the selector selects and orders them, then those that it excludes.  If the
 * library refuses to list any, `error` has the reason, and the rest is filled in as far as
 * possible.  Listing loads drivers, which may kill the process: a child does it first, and this
 * process does not do what kills the child. */
#ifndef USM_INFO_INVENTORY_H
#define USM_INFO_INVENTORY_H

#include "device/registry.h"
#include "probe.h"

#include <usm/usm.h>

#define MAX_BACKENDS 16

typedef struct inventory_device {
    usm_device     *dev;
    usm_device_info info;
    bool            has_memory;
    usm_memory_info memory;
    probe_answer    probe; /* filled by inventory_probe() */
    size_t          nparts;
    usm_device    **parts;
} inventory_device;

typedef enum inventory_scope {
    INVENTORY_SELECTED, /* what the selector selects; loads only what it names */
    INVENTORY_ALL
} inventory_scope;

typedef struct inventory {
    usm_status         status; /* of listing the selected devices */
    char              *error;  /* its error message; NULL: none */
    char              *fatal;  /* how a driver killed the child; NULL: none did */
    usm__backend_slot *backends[MAX_BACKENDS];
    size_t             nbackends;
    inventory_device  *devices;
    size_t             ndevices; /* the first nselected are the selector's */
    size_t             nselected;
} inventory;

void inventory_collect(inventory *inv, inventory_scope scope);
/* Checks whether each selected device moves data; takes a moment for each. */
void inventory_probe(inventory *inv);
void inventory_free(inventory *inv);

/* "loaded"; "refused", with a reason; "missing": there is no file; "not needed". */
const char *backend_state(const usm__backend_slot *slot);
const char *device_type_name(usm_device_type type);

#endif
