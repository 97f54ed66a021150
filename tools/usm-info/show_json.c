/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The inventory as JSON. */
#include "show.h"
#include "spill.h"

#include <string.h>

void show_json_head(usm__json *j, FILE *out)
{
    *j = (usm__json){.out = {.file = out}, .form = USM__JSON_INDENTED};
    usm__json_object_begin(j, NULL);
    usm__json_number(j, "schema", JSON_SCHEMA);
    usm__json_text(j, "version", USM_VERSION_STRING);
}

static void write_backends(usm__json *j, const inventory *inv)
{
    usm__json_array_begin(j, "backends");
    for (size_t i = 0; i < inv->nbackends; i++) {
        const usm__backend_slot *slot = inv->backends[i];

        usm__json_object_begin(j, NULL);
        usm__json_text(j, "name", slot->name);
        usm__json_text(j, "state", backend_state(slot));
        usm__json_text(j, "path", slot->path[0] ? slot->path : NULL);
        usm__json_text(j, "reason", slot->reason[0] ? slot->reason : NULL);
        usm__json_number(j, "devices", slot->ndevices);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
}

static void write_bytes(usm__json *j, const char *key, uint64_t bytes)
{
    if (bytes == USM_MEMORY_UNKNOWN)
        usm__json_null(j, key);
    else
        usm__json_number(j, key, bytes);
}

static void write_memory(usm__json *j, const inventory_device *d)
{
    usm__json_object_begin(j, "memory");
    write_bytes(j, "total", d->has_memory ? d->memory.total : d->info.memory_size);
    write_bytes(j, "free", d->has_memory ? d->memory.free : USM_MEMORY_UNKNOWN);
    write_bytes(j, "max_allocation", d->info.max_alloc_size);
    usm__json_object_end(j);
}

static void write_aspects(usm__json *j, const usm_device *dev)
{
    usm__json_array_begin(j, "aspects");
    for (int a = 0; a < (int)USM_ASPECT_COUNT; a++) {
        if (usm_device_has(dev, (usm_aspect)a))
            usm__json_text(j, NULL, usm_aspect_name((usm_aspect)a));
    }
    usm__json_array_end(j);
}

static void write_parts(usm__json *j, const inventory_device *d)
{
    usm__json_array_begin(j, "sub_devices");
    for (size_t i = 0; i < d->nparts; i++) {
        usm_device_info info = USM_DEVICE_INFO_INIT;

        if (usm_device_get_info(d->parts[i], &info))
            continue;
        usm__json_object_begin(j, NULL);
        usm__json_text(j, "selector", info.selector);
        usm__json_text(j, "name", info.name);
        usm__json_number(j, "compute_units", info.compute_units);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
}

static void write_identity(usm__json *j, const inventory *inv, size_t i)
{
    const usm_device_info *info = &inv->devices[i].info;

    if (i < inv->nselected)
        usm__json_number(j, "index", i);
    else
        usm__json_null(j, "index");
    usm__json_text(j, "selector", info->selector);
    usm__json_text(j, "type", device_type_name(info->type));
    usm__json_text(j, "name", info->name);
    usm__json_text(j, "backend", info->backend);
    usm__json_text(j, "platform", info->platform);
    usm__json_text(j, "vendor", info->vendor);
    usm__json_text(j, "driver_version", info->driver_version);
}

static void write_probe(usm__json *j, const inventory *inv, size_t i)
{
    const probe_answer *answer = &inv->devices[i].probe;

    if (i >= inv->nselected)
        return; /* only selected devices were asked */
    usm__json_text(j, "moves_data", moves_data_name(answer->moves));
    usm__json_text(j, "moves_data_text", answer->text);
}

static void write_device(usm__json *j, const inventory *inv, size_t i)
{
    const inventory_device *d = &inv->devices[i];

    usm__json_object_begin(j, NULL);
    write_identity(j, inv, i);
    usm__json_number(j, "compute_units", d->info.compute_units);
    usm__json_number(j, "max_work_group_size", d->info.max_work_group_size);
    usm__json_number(j, "local_memory_size", d->info.local_memory_size);
    write_memory(j, d);
    write_aspects(j, d->dev);
    write_parts(j, d);
    write_probe(j, inv, i);
    usm__json_object_end(j);
}

static void write_error(usm__json *j, const inventory *inv)
{
    if (!inv->error) {
        usm__json_null(j, "error");
        return;
    }
    usm__json_object_begin(j, "error");
    usm__json_text(j, "status", usm_status_name(inv->status));
    usm__json_text(j, "story", inv->error);
    usm__json_object_end(j);
}

/* Members "devices" (as the selector orders them) and "not_selected". */
static void write_devices(usm__json *j, const inventory *inv)
{
    usm__json_array_begin(j, "devices");
    for (size_t i = 0; i < inv->nselected; i++)
        write_device(j, inv, i);
    usm__json_array_end(j);
    usm__json_array_begin(j, "not_selected");
    for (size_t i = inv->nselected; i < inv->ndevices; i++)
        write_device(j, inv, i);
    usm__json_array_end(j);
}

void show_json(const inventory *inv)
{
    usm__json j;

    show_json_head(&j, stdout);
    write_error(&j, inv);
    usm__json_text(&j, "fatal", inv->fatal);
    write_backends(&j, inv);
    write_devices(&j, inv);
    show_spill_json(&j);
    show_settings_json(&j);
    usm__json_object_end(&j);
}

void show_list_json(const inventory *inv)
{
    usm__json j;

    show_json_head(&j, stdout);
    write_error(&j, inv);
    usm__json_array_begin(&j, "devices");
    for (size_t i = 0; i < inv->nselected; i++) {
        usm__json_object_begin(&j, NULL);
        write_identity(&j, inv, i);
        usm__json_object_end(&j);
    }
    usm__json_array_end(&j);
    usm__json_object_end(&j);
}
