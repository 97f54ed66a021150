/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Devices as users see them: listing by selector, aspects, information.  device/selector.c parses
 * selectors, device/registry.c loads backends. */
#include "base/os.h"
#include "base/settings.h"
#include "device/context.h"
#include "device/init.h"
#include "device/selector.h"

#include <stdio.h>
#include <string.h>

#define LIST_MAX 256

/* The devices found so far, and the parts of the message if there are none. */
typedef struct found {
    const usm__selector *sel;
    bool                 unique;    /* list each physical device once                  */
    bool                 no_memory; /* a device is missing, because memory was lacking */
    size_t               n;
    usm_device          *list[LIST_MAX];
    char                 excluded[160], note[320];
} found;

static bool index_matches(const usm__selector_device *want, const usm_device *dev)
{
    for (size_t i = 0; i < want->levels; i++)
        if (want->index[i] != USM__SELECTOR_STAR && want->index[i] != dev->index[i])
            return false;
    return true;
}

/* A discarded device takes its sub-devices with it. */
static bool is_discarded(const usm__selector *sel, const usm_device *dev)
{
    for (size_t t = 0; t < sel->ndiscards; t++) {
        const usm__selector_term *term = &sel->discards[t];

        if (strcmp(term->backend, "*") != 0 && strcmp(term->backend, dev->be->name) != 0)
            continue;
        for (size_t d = 0; d < term->ndevices; d++) {
            const usm__selector_device *want = &term->devices[d];

            if (want->type ? want->type == (int)dev->desc.type
                           : want->levels <= dev->depth + 1 && index_matches(want, dev))
                return true;
        }
    }
    return false;
}

static bool is_same_physical(const usm_backend_device *a, const usm_backend_device *b)
{
    if (a->has_pci && b->has_pci)
        return memcmp(a->pci, b->pci, sizeof a->pci) == 0;
    return a->has_uuid && b->has_uuid && memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0;
}

static void append_text(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);

    if (used + strlen(more) + 3 < size)
        snprintf(text + used, size - used, "%s%s", used ? ", " : "", more);
}

static void add(found *f, usm_device *dev)
{
    if (is_discarded(f->sel, dev)) {
        append_text(f->excluded, sizeof f->excluded, dev->term);
        return;
    }
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i] == dev || (f->unique && is_same_physical(&f->list[i]->desc, &dev->desc)))
            return;
    if (f->n < LIST_MAX)
        f->list[f->n++] = dev;
}

/* Adds the devices among `devs` that an index term selects at `level`. */
static void add_by_index(found *f, const usm__selector_device *want, usm_device *const *devs,
                         size_t n, size_t level)
{
    for (size_t i = 0; i < n; i++) {
        usm_device *const *parts  = NULL;
        size_t             nparts = 0;

        if (want->index[level] != USM__SELECTOR_STAR && want->index[level] != i)
            continue;
        if (level + 1 == want->levels || level + 1 == USM__SELECTOR_LEVELS) {
            add(f, devs[i]);
            continue;
        }
        if (usm__registry_parts(devs[i], &parts, &nparts) != USM_OK)
            f->no_memory = true;
        if (nparts == 0)
            snprintf(f->note, sizeof f->note, "; %s has no sub-devices%s", devs[i]->term,
                     strcmp(devs[i]->be->name, "level_zero") == 0
                         ? " (in Level Zero's FLAT hierarchy tiles are devices: "
                           "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE)"
                         : "");
        add_by_index(f, want, parts, nparts, level + 1);
    }
    if (want->index[level] != USM__SELECTOR_STAR && want->index[level] >= n && n > 0)
        snprintf(f->note, sizeof f->note, "; indices go from 0 to %zu there", n - 1);
}

static void add_of_backend(found *f, const usm__selector_device *want,
                           const usm__backend_slot *slot)
{
    if (!want->type) {
        add_by_index(f, want, slot->devices, slot->ndevices, 0);
        return;
    }
    for (size_t i = 0; i < slot->ndevices; i++)
        if ((int)slot->devices[i]->desc.type == want->type)
            add(f, slot->devices[i]);
}

/* Adds devices of every backend; `*` lists GPUs before accelerators before CPUs. */
static void add_of_all(found *f, const usm__selector_device *want)
{
    static const int   order[] = {USM_DEVICE_TYPE_GPU, USM_DEVICE_TYPE_ACCELERATOR,
                                  USM_DEVICE_TYPE_CPU};
    usm__backend_slot *slots[16];
    size_t             n = usm__registry_backends(slots, 16);
    bool star            = !want->type && want->levels == 1 && want->index[0] == USM__SELECTOR_STAR;
    usm__selector_device typed = *want;

    for (size_t t = 0; t < (star ? 3 : 1); t++) {
        if (star)
            typed = (usm__selector_device){order[t], 0, {0, 0, 0}};
        for (size_t i = 0; i < n && i < 16; i++)
            if (slots[i]->by_name)
                continue; /* otherwise `*` would find more devices after a term had named this
                             backend */
            else if (usm__registry_backend(slots[i]->name))
                add_of_backend(f, &typed, slots[i]);
            else if (usm_last_status() == USM_E_NO_MEMORY)
                f->no_memory = true;
    }
}

static usm_status collect(found *f)
{
    for (size_t t = 0; t < f->sel->naccepts; t++) {
        const usm__selector_term *term = &f->sel->accepts[t];
        bool                      any  = strcmp(term->backend, "*") == 0;
        const usm__backend_slot  *slot = any ? NULL : usm__registry_backend(term->backend);

        if (!any && !slot)
            return usm_last_status();
        for (size_t d = 0; d < term->ndevices; d++) {
            if (any)
                add_of_all(f, &term->devices[d]);
            else
                add_of_backend(f, &term->devices[d], slot);
        }
    }
    return USM_OK;
}

static usm_status nothing_left(const found *f, const char *origin, const char *text)
{
    char               there[256] = "";
    usm__backend_slot *slots[16];
    size_t             n = usm__registry_backends(slots, 16);

    for (size_t i = 0; i < n && i < 16; i++)
        for (size_t d = 0; slots[i]->ok && d < slots[i]->ndevices; d++)
            append_text(there, sizeof there, slots[i]->devices[d]->term);
    return usm__fail(
        USM_E_NO_DEVICE, "%s=\"%s\" leaves no device%s%s%s; there %s%s (see usm-info%s)", origin,
        text, f->excluded[0] ? ", it excluded " : "", f->excluded, f->note,
        there[0] ? "are: " : "is none in its backends", there, there[0] ? "" : " --doctor");
}

static usm_status select_devices(const char *origin, const char *text, bool unique,
                                 usm_device **list, size_t cap, size_t *count)
{
    usm__selector *sel = usm__heap_alloc(sizeof *sel);
    found         *f   = usm__heap_alloc(sizeof *f);
    usm_status     st;

    if (!sel || !f) {
        st = usm__fail(USM_E_NO_MEMORY, "no host memory to select devices");
        goto out;
    }
    st = usm__settings_refusal();
    if (st != USM_OK)
        goto out;
    st = usm__selector_parse(text, sel);
    if (st != USM_OK) {
        usm__message message;

        usm__message_save(&message);
        (void)usm__fail(st, "%s=\"%.200s\": %s", origin, text, message.text);
        goto out;
    }
    f->sel    = sel;
    f->unique = unique;
    st        = collect(f);
    if (st == USM_OK && f->no_memory)
        st = usm__fail(USM_E_NO_MEMORY, "no memory to list the devices of %s=\"%s\"", origin, text);
    if (st == USM_OK && f->n == 0)
        st = nothing_left(f, origin, text);
    if (st != USM_OK)
        goto out;
    for (size_t i = 0; i < f->n && i < cap; i++)
        list[i] = f->list[i];
    *count = f->n;
out:
    usm__heap_free(f);
    usm__heap_free(sel);
    return st;
}

usm_status usm_get_devices(usm_device **list, size_t cap, size_t *count)
{
    const char *origin, *text;

    if (!count || (!list && cap))
        return usm__fail(USM_E_INVALID, "usm_get_devices: %s is NULL", count ? "list" : "count");
    (void)usm__start();
    origin = usm__setting_origin("device_selector");
    text   = usm__setting_text("device_selector");
    if (!*text)
        origin = "USM_DEVICE_SELECTOR";
    else if (strcmp(origin, "usm_config_set") == 0)
        origin = "device_selector";
    return select_devices(origin, text, *text == 0, list, cap, count);
}

usm_status usm_select_devices(const char *selector, usm_device **list, size_t cap, size_t *count)
{
    if (!selector || !count || (!list && cap))
        return usm__fail(USM_E_INVALID, "usm_select_devices: %s is NULL",
                         !selector ? "selector"
                         : count   ? "list"
                                   : "count");
    (void)usm__start();
    return select_devices("selector", selector, false, list, cap, count);
}

const char *usm_aspect_name(usm_aspect aspect)
{
    static const char *const names[] = {
#define NAME(name, text) text,
        USM_ASPECT_LIST(NAME)
#undef NAME
    };

    return (unsigned)aspect < USM_ASPECT_COUNT ? names[aspect] : NULL;
}

bool usm_device_has(const usm_device *dev, usm_aspect aspect)
{
    if (usm__handle_check(dev, USM__MAGIC_DEVICE) != USM_OK)
        return false;
    if ((unsigned)aspect >= USM_ASPECT_COUNT) {
        (void)usm__fail(USM_E_INVALID, "there is no aspect %d", (int)aspect);
        return false;
    }
    return (dev->desc.aspects >> (unsigned)aspect & 1) != 0;
}

usm_status usm_device_get_info(const usm_device *dev, usm_device_info *info)
{
    const usm_backend_device *d;
    usm_status                st = usm__handle_check(dev, USM__MAGIC_DEVICE);

    if (st == USM_OK)
        st = usm__struct_check("usm_device_get_info", "info", info, sizeof *info,
                               "USM_DEVICE_INFO_INIT");
    if (st != USM_OK)
        return st;
    d     = &dev->desc;
    *info = (usm_device_info){
        .struct_size         = info->struct_size,
        .type                = d->type,
        .backend             = dev->be->name,
        .name                = d->name,
        .platform            = d->platform_name,
        .vendor              = d->vendor,
        .driver_version      = d->driver_version,
        .selector            = dev->term,
        .compute_units       = d->compute_units,
        .sub_devices         = d->sub_devices,
        .memory_size         = d->memory_size,
        .max_alloc_size      = d->max_alloc_size,
        .max_work_group_size = d->max_work_group_size,
        .local_memory_size   = d->local_memory_size,
        .compute_threads     = d->compute_threads,
    };
    return USM_OK;
}

usm_device *usm_device_parent(const usm_device *dev)
{
    return usm__handle_check(dev, USM__MAGIC_DEVICE) == USM_OK ? dev->parent : NULL;
}

usm_status usm_device_can_access_peer(const usm_device *dev, const usm_device *peer, bool *can)
{
    usm_status st = usm__handle_check(dev, USM__MAGIC_DEVICE);

    if (st == USM_OK)
        st = usm__handle_check(peer, USM__MAGIC_DEVICE);
    if (st != USM_OK)
        return st;
    if (!can)
        return usm__fail(USM_E_INVALID, "usm_device_can_access_peer: can is NULL");
    if (dev == peer || dev->be != peer->be || !usm__backend_can(dev->be, USM_CAP_PEER)) {
        *can = dev == peer;
        return USM_OK;
    }
    return usm__be_can_access_peer(dev->be, dev->desc.handle, peer->desc.handle, can);
}
