/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The backends and devices of the process, and the table for modules.  Not here: modules of other
 * kinds (registry_store.c).  There is a slot for each backend, filled when it is first requested.
 * A backend that failed is not tried again, and its slot keeps the reason for usm-info.  Slots and
 * devices are never freed.
 *
 * Drivers are loaded under the registry's lock: two threads that start at once must not load one
 * twice, and nothing else needs the lock meanwhile. */
#include "device/registry.h"

#include "base/fault.h"
#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/inline/list.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/part.h"
#include "base/settings.h"
#include "device/module.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BACKENDS_MAX 16

static struct {
    usm__mutex            lock;
    size_t                nbackends;
    usm__backend_slot     backends[BACKENDS_MAX];
    usm_backend_entry_fn *entries[BACKENDS_MAX]; /* NULL: a module */
} reg = {.lock = USM__MUTEX_INIT(USM__RANK_REGISTRY, "registry")};

static usm__meta_type device_type =
    USM__META_TYPE(struct usm_device, sizeof(usm__magic_word), "devices");

/* ---- the table for modules ------------------------------------------------ */

static usm_status api_report(usm_status status, const char *format, ...) USM_PRINTF(2, 3);
static usm_status api_report(usm_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    usm__note_v(status, format, args);
    va_end(args);
    return status;
}

static bool api_setting_bool(const char *key)
{
    return usm__setting_bool(key);
}

static uint64_t api_setting_size(const char *key)
{
    return usm__setting_size(key);
}

static bool api_fault(const char *name, usm_status *status)
{
    return usm__fault_hit(name, status);
}

const usm_host_api usm__registry_api = {
    .abi          = USM_MODULE_ABI,
    .struct_size  = sizeof(usm_host_api),
    .report       = api_report,
    .log          = usm__log,
    .log_enabled  = usm__log_enabled,
    .setting      = usm__setting_text,
    .setting_bool = api_setting_bool,
    .setting_size = api_setting_size,
    .heap_alloc   = usm__heap_alloc,
    .heap_free    = usm__heap_free,
    .os           = &usm__os_api,
    .fault        = api_fault,
    .take_secret  = usm__setting_take_secret,
};

/* ---- devices --------------------------------------------------------------- */

static void name_device(usm_device *dev)
{
    size_t used =
        (size_t)snprintf(dev->term, sizeof dev->term, "%s:%zu", dev->be->name, dev->index[0]);

    for (size_t i = 1; i <= dev->depth && used < sizeof dev->term; i++)
        used += (size_t)snprintf(dev->term + used, sizeof dev->term - used, ".%zu", dev->index[i]);
}

static usm_device *make_device(usm__backend *be, const usm_backend_device *desc, usm_device *parent,
                               size_t index)
{
    usm_device *dev = usm__meta_alloc(&device_type);

    if (!dev)
        return NULL;
    dev->be     = be;
    dev->desc   = *desc;
    dev->parent = parent;
    if (parent) {
        dev->depth = parent->depth + 1;
        memcpy(dev->index, parent->index, sizeof dev->index);
    }
    dev->index[dev->depth] = index;
    name_device(dev);
    usm_store_release(&dev->magic, (uint32_t)USM__MAGIC_DEVICE);
    return dev;
}

/* A function that lists devices of a backend: called for the count, then for the list. */
typedef usm_status list_fn(usm__backend *be, usm_device *parent, usm_backend_device *list,
                           size_t cap, size_t *count);

static usm_status list_roots(usm__backend *be, usm_device *parent, usm_backend_device *list,
                             size_t cap, size_t *count)
{
    (void)parent;
    return usm__be_devices(be, list, cap, count);
}

static usm_status list_parts(usm__backend *be, usm_device *parent, usm_backend_device *list,
                             size_t cap, size_t *count)
{
    return usm__be_sub_devices(be, parent->desc.handle, list, cap, count);
}

static usm_status make_devices(usm__backend *be, usm_device *parent, list_fn *list,
                               usm_device ***out, size_t *n)
{
    usm_backend_device *descs = NULL;
    usm_device        **devs  = NULL;
    size_t              count = 0, cap;
    usm_status          st    = list(be, parent, NULL, 0, &count);

    if (st != USM_OK || count == 0)
        return st;
    cap   = count;
    descs = usm__heap_alloc(cap * sizeof *descs);
    devs  = usm__heap_alloc(cap * sizeof(usm_device *));
    st    = descs && devs ? list(be, parent, descs, cap, &count)
                          : usm__fail(USM_E_NO_MEMORY, "no host memory to list devices");
    for (size_t i = 0; st == USM_OK && i < cap && i < count; i++) {
        devs[i] = make_device(be, &descs[i], parent, i);
        if (!devs[i])
            st = usm__fail(USM_E_NO_MEMORY, "no host memory to list devices");
    }
    usm__heap_free(descs);
    if (st != USM_OK) {
        for (size_t i = 0; devs && i < cap; i++)
            if (devs[i])
                usm__meta_free(&device_type, devs[i]);
        usm__heap_free(devs);
        return st;
    }
    *out = devs;
    *n   = usm_min_size(cap, count);
    return USM_OK;
}

usm_status usm__registry_parts(usm_device *dev, usm_device *const **parts, size_t *n)
{
    usm_status st = USM_OK;

    if (!usm_load_acquire(&dev->parted)) {
        usm__mutex_lock(&reg.lock);
        if (!usm_load_acquire(&dev->parted) && dev->depth < 2 && dev->desc.sub_devices > 0)
            st = make_devices(dev->be, dev, list_parts, &dev->parts, &dev->nparts);
        if (st != USM_E_NO_MEMORY) /* memory may be available the next time */
            usm_store_release(&dev->parted, true);
        usm__mutex_unlock(&reg.lock);
    }
    if (st == USM_E_NO_MEMORY)
        return st;
    *parts = dev->parts;
    *n     = dev->nparts; /* also empty if the driver failed to list them */
    return USM_OK;
}

static usm_device *find_handle(usm_device *const *devs, size_t n, const void *handle)
{
    for (size_t i = 0; i < n; i++) {
        usm_device *in_parts;

        if (devs[i]->desc.handle == handle)
            return devs[i];
        in_parts = find_handle(devs[i]->parts, devs[i]->nparts, handle);
        if (in_parts)
            return in_parts;
    }
    return NULL;
}

usm_device *usm__registry_device_of(usm__backend *be, const usm_backend_device *desc)
{
    usm__backend_slot *slot = usm_container_of(be, usm__backend_slot, be);
    usm_device        *dev;

    usm__mutex_lock(&reg.lock);
    dev = find_handle(slot->devices, slot->ndevices, desc->handle);
    if (!dev)
        dev = make_device(be, desc, NULL, slot->ndevices); /* a foreign device: it is in no list */
    usm__mutex_unlock(&reg.lock);
    if (!dev)
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a device");
    return dev;
}

/* ---- backends -------------------------------------------------------------- */

void usm__registry_add_backend(const char *name, usm_backend_entry_fn *entry)
{
    usm__backend_slot *slot = &reg.backends[reg.nbackends];

    snprintf(slot->name, sizeof slot->name, "%s", name);
    reg.entries[reg.nbackends++] = entry;
}

static usm_status enter(usm__backend_slot *slot, usm_backend_entry_fn *entry)
{
    const usm_backend_ops *ops;

    if (entry) {
        snprintf(slot->path, sizeof slot->path, "built in");
    } else {
        void      *symbol;
        usm_status st =
            usm__module_load("backend", slot->name, slot->path, sizeof slot->path, &symbol);

        if (st != USM_OK)
            return st;
        memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from data to code */
    }
    ops = entry(&usm__registry_api);
    if (!ops)
        return usm_last_status() < 0 ? usm_last_status() : USM_E_NO_BACKEND;
    return usm__backend_init(&slot->be, ops);
}

static void fill(usm__backend_slot *slot, usm_backend_entry_fn *entry)
{
    usm_status st = enter(slot, entry);

    if (st == USM_OK)
        st = make_devices(&slot->be, NULL, list_roots, &slot->devices, &slot->ndevices);
    slot->ok     = st == USM_OK;
    slot->status = st;
    slot->tried  = st != USM_E_NO_MEMORY; /* memory may be available the next time */
    if (!slot->ok) {
        snprintf(slot->reason, sizeof slot->reason, "%.511s", usm_last_error());
        if (st != USM_E_NO_MEMORY)
            usm__info("backend %s is left out: %s", slot->name, slot->reason);
    } else if (slot->ndevices == 0) {
        snprintf(slot->reason, sizeof slot->reason, "it found no devices");
        usm__info("backend %s has no devices", slot->name);
    }
}

/* Returns the slot of a name.  If a selector names an unknown backend, which may be a module of the
 * user's, a new slot is made.  Under the lock. */
static usm__backend_slot *slot_of(const char *name)
{
    for (size_t i = 0; i < reg.nbackends; i++)
        if (strcmp(reg.backends[i].name, name) == 0)
            return &reg.backends[i];
    if (reg.nbackends == BACKENDS_MAX)
        return NULL;
    usm__registry_add_backend(name, NULL);
    reg.backends[reg.nbackends - 1].by_name = true;
    return &reg.backends[reg.nbackends - 1];
}

usm__backend_slot *usm__registry_backend(const char *name)
{
    usm__backend_slot *slot;
    char               known[256] = "";

    usm__parts_observe();
    usm__mutex_lock(&reg.lock);
    slot = slot_of(name);
    if (slot && !slot->tried)
        fill(slot, reg.entries[slot - reg.backends]);
    for (size_t i = 0, used = 0; i < reg.nbackends && used < sizeof known; i++)
        if (!reg.backends[i].tried || reg.backends[i].ok)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     reg.backends[i].name);
    usm__mutex_unlock(&reg.lock);
    if (slot && slot->ok)
        return slot;
    if (slot && !slot->tried)
        (void)usm__fail(USM_E_NO_MEMORY, "no memory to load backend %s", name);
    else
        (void)usm__fail(slot && slot->status == USM_E_ABI ? USM_E_ABI : USM_E_NO_BACKEND,
                        "backend %s is not available: %s; known by name: %s", name,
                        slot ? slot->reason : "too many backends", known);
    return NULL;
}

size_t usm__registry_backends(usm__backend_slot **list, size_t cap)
{
    size_t n;

    usm__mutex_lock(&reg.lock);
    n = reg.nbackends;
    for (size_t i = 0; i < n && i < cap; i++)
        list[i] = &reg.backends[i];
    usm__mutex_unlock(&reg.lock);
    return n;
}

void usm__registry_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&reg.lock, phase);
    usm__registry_store_fork(phase);
}
