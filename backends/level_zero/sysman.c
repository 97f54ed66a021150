/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Free memory, which only sysman reports.  Called by the core through the table.
 *
 * There are two ways to reach it.  zesInit (API 1.5) has handles of its own, which are matched with
 * ours by UUID or PCI address.  Before that, the handles of the core API were sysman's as well if
 * ZES_ENABLE_SYSMAN=1 was in the environment at zeInit.  That is used if the user set it, and never
 * set here, because a library must not change the environment of the process.  Otherwise free
 * memory is unknown. */
#include "level_zero.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SYSMAN  16
#define MAX_DEVICES 64
#define MAX_MODULES 64

/* --- finding the handle ------------------------------------------------------------- */

/* Sysman has whole cards: a sub-device uses its root's handle, and its own number. */
static const lz_device *root_of(const lz_device *dev)
{
    while (dev->parent)
        dev = dev->parent;
    return dev;
}

static void found_at(lz_device *dev, zes_device_handle_t native)
{
    dev->sysman.native     = native;
    dev->sysman.is_on_part = dev->parent != NULL;
    dev->sysman.part       = dev->properties.subdeviceId;
}

static bool is_same(const lz_device *root, zes_device_handle_t native)
{
    zes_device_properties_t p    = {.stype = ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    zes_pci_properties_t    pci  = {.stype = ZES_STRUCTURE_TYPE_PCI_PROPERTIES};
    const uint32_t         *ours = root->info.pci;

    if (lz.zesDeviceGetProperties && !lz.zesDeviceGetProperties(native, &p) &&
        memcmp(p.core.uuid.id, root->properties.uuid.id, sizeof(p.core.uuid.id)) == 0)
        return true;
    return root->info.has_pci && lz.zesDevicePciGetProperties &&
           !lz.zesDevicePciGetProperties(native, &pci) && pci.address.domain == ours[0] &&
           pci.address.bus == ours[1] && pci.address.device == ours[2] &&
           pci.address.function == ours[3];
}

static bool find_by_uuid(lz_device *dev, zes_driver_handle_t driver)
{
    lz_zes_uuid uuid;
    ze_bool_t   is_on_part = 0;
    lz_sysman   found      = {.is_asked = true};

    if (!lz.zesDriverGetDeviceByUuidExp)
        return false;
    memcpy(uuid.id, dev->properties.uuid.id, sizeof(uuid.id));
    if (lz.zesDriverGetDeviceByUuidExp(driver, uuid, &found.native, &is_on_part, &found.part))
        return false;
    found.is_on_part = is_on_part != 0;
    dev->sysman      = found;
    return found.native != NULL;
}

static bool find_by_looking(lz_device *dev, zes_driver_handle_t driver)
{
    const lz_device    *root = root_of(dev);
    zes_device_handle_t list[MAX_DEVICES];
    uint32_t            n = MAX_DEVICES;

    if (lz.zesDeviceGet(driver, &n, list))
        return false;
    for (uint32_t i = 0; i < n && i < MAX_DEVICES; i++) {
        if (!is_same(root, list[i]))
            continue;
        found_at(dev, list[i]);
        return true;
    }
    return false;
}

static bool find_in_sysman(lz_device *dev)
{
    zes_driver_handle_t drivers[MAX_SYSMAN];
    uint32_t            n = MAX_SYSMAN;

    if (!lz.zesInit || !lz.zesDriverGet || !lz.zesDeviceGet || lz.zesInit(0) ||
        lz.zesDriverGet(&n, drivers))
        return false;
    for (uint32_t i = 0; i < n && i < MAX_SYSMAN; i++)
        if (find_by_uuid(dev, drivers[i]) || find_by_looking(dev, drivers[i]))
            return true;
    return false;
}

static bool is_in_core(void)
{
    const char *value = getenv("ZES_ENABLE_SYSMAN"); /* NOLINT(concurrency-mt-unsafe): read only */

    return value && strcmp(value, "1") == 0;
}

static lz_sysman need_sysman(lz_device *dev)
{
    lz_sysman found;

    registry_lock(&lz_registry);
    if (!dev->sysman.is_asked) {
        if (is_in_core())
            found_at(dev, (zes_device_handle_t)root_of(dev)->native);
        else if (!find_in_sysman(dev))
            dev->sysman.native = NULL;
        dev->sysman.is_asked = true;
    }
    found = dev->sysman;
    registry_unlock(&lz_registry);
    return found;
}

/* --- amounts ----------------------------------------------------------------------- */

static bool is_module_of(const lz_sysman *sysman, zes_mem_handle_t module)
{
    zes_mem_properties_t p = {.stype = ZES_STRUCTURE_TYPE_MEM_PROPERTIES};

    if (!sysman->is_on_part)
        return true;
    return lz.zesMemoryGetProperties && !lz.zesMemoryGetProperties(module, &p) && p.onSubdevice &&
           p.subdeviceId == sysman->part;
}

static bool sum_free(const lz_sysman *sysman, uint64_t *sum)
{
    zes_mem_handle_t modules[MAX_MODULES];
    uint32_t         n     = MAX_MODULES;
    bool             found = false;

    if (!sysman->native || !lz.zesDeviceEnumMemoryModules || !lz.zesMemoryGetState ||
        lz.zesDeviceEnumMemoryModules(sysman->native, &n, modules))
        return false;
    *sum = 0;
    for (uint32_t i = 0; i < n && i < MAX_MODULES; i++) {
        zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};

        if (!is_module_of(sysman, modules[i]) || lz.zesMemoryGetState(modules[i], &state))
            continue;
        *sum += state.free;
        found = true;
    }
    return found;
}

usm_status lz_device_memory(void *dev, uint64_t *total, uint64_t *free)
{
    lz_device *d      = dev;
    lz_sysman  sysman = need_sysman(d);
    uint64_t   sum    = 0;

    *total = d->info.memory_size;
    *free  = sum_free(&sysman, &sum) ? sum : USM_MEMORY_UNKNOWN;
    return USM_OK;
}
