/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The inventory as text: the default output and --list. */
#include "show.h"
#include "spill.h"
#include "table.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static char *bytes_text(uint64_t bytes)
{
    char buf[32];

    if (bytes == USM_MEMORY_UNKNOWN)
        return tool_printf("unknown");
    return tool_printf("%s", usm__format_bytes(bytes, buf, sizeof buf));
}

static void heading(const char *text)
{
    printf("\n%s\n", text);
}

static void show_backends(const inventory *inv)
{
    table *t = table_new(2, 2);

    heading("Backends");
    for (size_t i = 0; i < inv->nbackends; i++) {
        const usm__backend_slot *slot = inv->backends[i];

        table_cell(t, "%s", slot->name);
        table_cell(t, "%s", backend_state(slot));
        if (slot->path[0]) {
            table_cell(t, "%zu device%s", slot->ndevices, slot->ndevices == 1 ? "" : "s");
            table_cell(t, "%s", slot->path);
        }
        table_row(t);
        if (slot->path[0] && slot->reason[0])
            table_note(t, 6, "%s", slot->reason);
    }
    table_print(t, stdout);
}

/* Whether an earlier device already represents this one's platform. */
static bool is_same_platform(const inventory_device *a, const inventory_device *b)
{
    return strcmp(a->info.backend, b->info.backend) == 0 &&
           strcmp(a->info.platform, b->info.platform) == 0 &&
           strcmp(a->info.driver_version, b->info.driver_version) == 0;
}

static bool is_first_of_platform(const inventory *inv, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (is_same_platform(&inv->devices[i], &inv->devices[at]))
            return false;
    }
    return true;
}

static void show_platforms(const inventory *inv)
{
    table *t = table_new(2, 2);

    heading("Runtimes");
    for (size_t i = 0; i < inv->ndevices; i++) {
        const usm_device_info *info = &inv->devices[i].info;

        if (!is_first_of_platform(inv, i))
            continue;
        table_cell(t, "%s", info->backend);
        table_cell(t, "%s", info->platform);
        table_cell(t, "%s", info->vendor);
        table_cell(t, "driver %s", info->driver_version);
        table_row(t);
    }
    table_print(t, stdout);
}

/* Prints the origin of the selection: "USM_DEVICE_SELECTOR=opencl:*". */
static void selector_heading(const char *what)
{
    const char *value = "", *origin = "default";

    if (usm_config_get("device_selector", &value, &origin) || !*value)
        printf("\n%s\n", what);
    else
        printf("\n%s (%s: %s)\n", what, origin, value);
}

static void device_line(table *t, const inventory_device *d)
{
    table_cell(t, "%s", d->info.selector);
    table_cell(t, "%s", device_type_name(d->info.type));
    table_cell(t, "%s", d->info.name);
    table_cell(t, "%s", d->info.platform);
    table_row(t);
}

static void device_lines(const inventory *inv)
{
    table *t = table_new(2, 2);

    for (size_t i = 0; i < inv->nselected; i++) {
        table_cell(t, "%zu", i);
        device_line(t, &inv->devices[i]);
    }
    table_print(t, stdout);
}

static void excluded_lines(const inventory *inv)
{
    table *t = table_new(2, 2);

    if (inv->ndevices > inv->nselected)
        heading(inv->status ? "Devices there are" : "Not selected");
    for (size_t i = inv->nselected; i < inv->ndevices; i++)
        device_line(t, &inv->devices[i]);
    table_print(t, stdout);
}

static void aspects_row(table *t, const usm_device *dev)
{
    char  *text = tool_alloc(1);
    size_t size = 1;

    for (int a = 0; a < (int)USM_ASPECT_COUNT; a++) {
        const char *name = usm_aspect_name((usm_aspect)a);

        if (!usm_device_has(dev, (usm_aspect)a) || !name)
            continue;
        text = tool_realloc(text, size + strlen(name) + 1);
        size += (size_t)sprintf(text + size - 1, "%s%s", size > 1 ? " " : "", name);
    }
    table_cell(t, "aspects");
    table_cell(t, "%s", size > 1 ? text : "none");
    table_row(t);
    free(text);
}

static void memory_row(table *t, const inventory_device *d)
{
    char *total = bytes_text(d->has_memory ? d->memory.total : d->info.memory_size);
    char *avail = bytes_text(d->has_memory ? d->memory.free : USM_MEMORY_UNKNOWN);
    char *block = bytes_text(d->info.max_alloc_size);

    table_cell(t, "memory");
    table_cell(t, "%s, free: %s, largest allocation: %s", total, avail, block);
    table_row(t);
    free(total);
    free(avail);
    free(block);
}

static void limits_row(table *t, const inventory_device *d)
{
    char *local = bytes_text(d->info.local_memory_size);

    table_cell(t, "limits");
    table_cell(t, "%u compute units, work-groups of %zu, local memory: %s", d->info.compute_units,
               d->info.max_work_group_size, local);
    table_row(t);
    free(local);
}

static void parts_row(table *t, const inventory_device *d)
{
    if (d->info.sub_devices == 0)
        return;
    table_cell(t, "sub-devices");
    if (d->nparts)
        table_cell(t, "%zu: %s.0 .. %s.%zu", d->nparts, d->info.selector, d->info.selector,
                   d->nparts - 1);
    else
        table_cell(t, "%u, which the driver refuses to make", d->info.sub_devices);
    table_row(t);
}

static void moves_data_row(table *t, const probe_answer *answer)
{
    table_cell(t, "moves_data");
    if (answer->moves == MOVES_NO || answer->moves == MOVES_UNKNOWN)
        table_cell(t, "%s: %s", moves_data_name(answer->moves), answer->text);
    else
        table_cell(t, "%s", answer->text);
    table_row(t);
}

static void device_details(const inventory_device *d)
{
    table *t = table_new(4, 2);

    printf("\n  %s  %s\n", d->info.selector, d->info.name);
    memory_row(t, d);
    limits_row(t, d);
    parts_row(t, d);
    aspects_row(t, d->dev);
    moves_data_row(t, &d->probe);
    table_print(t, stdout);
}

static void show_error(const inventory *inv)
{
    table *t = table_new(2, 2);

    if (inv->error)
        table_note(t, 2, "none: %s", inv->error);
    else if (inv->fatal) /* only the others */
        table_note(t, 2, "those not selected cannot be shown: %s", inv->fatal);
    if (inv->fatal)
        table_note(t, 2, "usm-info --doctor finds the driver that does it");
    table_print(t, stdout);
}

void show_text(const inventory *inv)
{
    puts("libusm " USM_VERSION_STRING);
    show_backends(inv);
    show_platforms(inv);
    selector_heading("Devices");
    show_error(inv);
    device_lines(inv);
    for (size_t i = 0; i < inv->nselected; i++)
        device_details(&inv->devices[i]);
    excluded_lines(inv);
    heading("Spilling");
    show_spill();
    heading("Settings");
    show_settings_short();
}

void show_list(const inventory *inv)
{
    device_lines(inv);
}
