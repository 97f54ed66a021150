/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Collects what inventory.h describes, from the registry and the public calls. */
#include "inventory.h"
#include "child.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>

#define EVERYTHING     "*:*"
#define LIST_TIMEOUT_S 60

const char *backend_state(const usm__backend_slot *slot)
{
    if (!slot->tried)
        return "not needed";
    return slot->ok ? "loaded" : slot->path[0] ? "refused" : "missing";
}

const char *device_type_name(usm_device_type type)
{
    switch (type) {
    case USM_DEVICE_TYPE_CPU:
        return "cpu";
    case USM_DEVICE_TYPE_GPU:
        return "gpu";
    case USM_DEVICE_TYPE_ACCELERATOR:
        return "accelerator";
    }
    return "unknown";
}

/* The devices of a selector, NULL meaning the setting; the caller frees *list. */
static usm_status list_devices(const char *selector, usm_device ***list, size_t *count)
{
    usm_device **found = NULL;
    usm_status   status;

    *count = 0;
    status =
        selector ? usm_select_devices(selector, NULL, 0, count) : usm_get_devices(NULL, 0, count);
    if (status || *count == 0)
        goto done;
    found  = tool_alloc(*count * sizeof(usm_device *));
    status = selector ? usm_select_devices(selector, found, *count, count)
                      : usm_get_devices(found, *count, count);
done:
    *list = found;
    if (status)
        *count = 0;
    return status;
}

static void describe(inventory_device *d, usm_device *dev)
{
    const usm_device_info info   = USM_DEVICE_INFO_INIT;
    const usm_memory_info memory = USM_MEMORY_INFO_INIT;
    char                  parts[128];

    d->dev    = dev;
    d->info   = info;
    d->memory = memory;
    if (usm_device_get_info(dev, &d->info))
        return;
    d->has_memory = usm_device_memory(dev, &d->memory) == USM_OK;
    if (d->info.sub_devices) {
        snprintf(parts, sizeof parts, "%s.*", d->info.selector);
        if (list_devices(parts, &d->parts, &d->nparts))
            d->nparts = 0;
    }
}

static bool is_known(const inventory *inv, const usm_device *dev)
{
    for (size_t i = 0; i < inv->ndevices; i++) {
        if (inv->devices[i].dev == dev)
            return true;
    }
    return false;
}

static void append_devices(inventory *inv, usm_device **list, size_t count)
{
    inv->devices = tool_realloc(inv->devices, (inv->ndevices + count + 1) * sizeof *inv->devices);
    for (size_t i = 0; i < count; i++) {
        if (is_known(inv, list[i]))
            continue;
        memset(&inv->devices[inv->ndevices], 0, sizeof *inv->devices);
        describe(&inv->devices[inv->ndevices++], list[i]);
    }
}

/* Lists the devices in a child first.  NULL if the child survives, else what happened to it. */
static char *rehearse(const char *selector)
{
    const char *const args[] = {"list-devices", selector, NULL};
    char             *fate   = NULL, why[256];
    child_result      result;

    child_run(args, LIST_TIMEOUT_S, &result);
    if (result.end != CHILD_EXITED || result.code != 0)
        fate =
            tool_printf("while devices were listed, %s", child_end_text(&result, why, sizeof why));
    free(result.answer);
    return fate;
}

static void collect_selected(inventory *inv)
{
    usm_device **list = NULL;
    size_t       count;

    inv->status = list_devices(NULL, &list, &count);
    if (inv->status)
        inv->error = tool_printf("%s", usm_last_error());
    append_devices(inv, list, count);
    inv->nselected = inv->ndevices;
    free(list);
}

static void collect_others(inventory *inv)
{
    usm_device **list = NULL;
    size_t       count;

    if (list_devices(EVERYTHING, &list, &count) == USM_OK)
        append_devices(inv, list, count);
    free(list);
}

/* Khronos's loader splits OCL_ICD_FILENAMES in the environment itself, so that behind its start
 * there is one name left.  Children, and the doctor, need all of them. */
static char *keep_filenames(void)
{
    const char *value = getenv("OCL_ICD_FILENAMES");

    return value ? tool_printf("%s", value) : NULL;
}

static void restore_filenames(char *kept)
{
    if (kept)
        (void)setenv("OCL_ICD_FILENAMES", kept, 1);
    free(kept);
}

void inventory_collect(inventory *inv, inventory_scope scope)
{
    char *filenames = keep_filenames();
    char *fate;

    memset(inv, 0, sizeof *inv);
    if (scope == INVENTORY_ALL)
        inv->fatal = rehearse(EVERYTHING);
    fate = scope == INVENTORY_SELECTED || inv->fatal ? rehearse(NULL) : NULL;
    if (fate) {
        inv->status = USM_E_DEVICE;
        inv->error  = tool_printf("%s", fate);
        free(inv->fatal);
        inv->fatal = fate;
    } else {
        collect_selected(inv);
        if (scope == INVENTORY_ALL && !inv->fatal)
            collect_others(inv);
    }
    inv->nbackends = usm__registry_backends(inv->backends, MAX_BACKENDS);
    if (inv->nbackends > MAX_BACKENDS)
        inv->nbackends = MAX_BACKENDS;
    restore_filenames(filenames);
}

void inventory_probe(inventory *inv)
{
    for (size_t i = 0; i < inv->nselected; i++)
        probe_device(inv->devices[i].info.selector, &inv->devices[i].probe);
}

void inventory_free(inventory *inv)
{
    for (size_t i = 0; i < inv->ndevices; i++)
        free(inv->devices[i].parts);
    free(inv->devices);
    free(inv->error);
    free(inv->fatal);
}

/* [SELECTOR], default: the setting.  Surviving is the answer. */
int child_list_devices(int argc, char **argv)
{
    usm_device **list = NULL;
    size_t       count;

    (void)list_devices(argc > 0 ? argv[0] : NULL, &list, &count);
    free(list);
    return 0;
}
