/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sysman: how much memory is free.
 *
 * Handles are those of the core: a program with the headers of 1.4 casts one to the other.  A root
 * device in parts has one memory module for each.  All else is left to the loader, which answers
 * UNSUPPORTED_FEATURE for an empty field.
 *
 * Exports all tables of sysman. */
#include "device.h"
#include "tables.h"

#include <stdio.h>
#include <string.h>

typedef struct module {
    soft_device *dev; /* a part, or a root without parts */
} module;

static module modules[SOFT_ROOTS][SOFT_PARTS];

static void fill_modules(void)
{
    for (uint32_t i = 0; i < SOFT_ROOTS; i++) {
        soft_device *root = &soft_devices[i];

        modules[i][0].dev = root;
        for (uint32_t k = 0; k < root->nparts; k++)
            modules[i][k].dev = root->parts[k];
    }
}

static module *module_of(zes_mem_handle_t h)
{
    for (uint32_t i = 0; i < SOFT_ROOTS; i++)
        for (uint32_t k = 0; k < SOFT_PARTS; k++)
            if (h == (zes_mem_handle_t)&modules[i][k] && modules[i][k].dev != NULL)
                return &modules[i][k];
    return NULL;
}

static soft_device *device_of(zes_device_handle_t h)
{
    return soft_device_of((ze_device_handle_t)(void *)h);
}

static uint32_t parts_of(const soft_device *root)
{
    return root->nparts != 0 ? root->nparts : 1;
}

/* --- devices ------------------------------------------------------------------------- */

static void text(char *out, const char *value)
{
    snprintf(out, ZES_STRING_PROPERTY_SIZE, "%.*s", ZES_STRING_PROPERTY_SIZE - 1, value);
}

#if SOFT_HAS_API_1_12

static void describe_chained(const soft_device *dev, void *next)
{
    for (zes_base_properties_t *s = next; s != NULL; s = s->pNext) {
        zes_device_ext_properties_t *ext = (void *)s;

        if (s->stype != ZES_STRUCTURE_TYPE_DEVICE_EXT_PROPERTIES)
            continue;
        soft_device_uuid(dev, ext->uuid.id, sizeof(ext->uuid.id));
        ext->type  = ZES_DEVICE_TYPE_GPU;
        ext->flags = 0;
    }
}

#endif

static ze_result_t ZE_APICALL soft_zesDeviceGetProperties(zes_device_handle_t      h,
                                                          zes_device_properties_t *out)
{
    soft_device *dev = device_of(h);

    SOFT_CALL();
    if (dev == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (out == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    out->core.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    soft_device_describe(dev, &out->core);
    out->numSubdevices = dev->nparts;
    text(out->serialNumber, "unknown");
    text(out->boardNumber, "unknown");
    text(out->brandName, "ze_soft");
    text(out->modelName, out->core.name);
    text(out->vendorName, "libusm");
    text(out->driverVersion, "1");
#if SOFT_HAS_API_1_12
    describe_chained(dev, out->pNext);
#endif
    return ZE_RESULT_SUCCESS;
}

/* --- later than 1.4: sysman without a variable of the environment ------------------------ */

#if SOFT_HAS_API_1_12

static ze_result_t ZE_APICALL soft_zesDeviceGet(zes_driver_handle_t driver, uint32_t *count,
                                                zes_device_handle_t *out)
{
    SOFT_CALL();
    if (driver == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (count == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    soft_devices_init();
    if (soft_count(count, SOFT_ROOTS) && out != NULL)
        for (uint32_t i = 0; i < *count; i++)
            out[i] = (zes_device_handle_t)&soft_devices[i];
    return ZE_RESULT_SUCCESS;
}

#endif

/* --- memory --------------------------------------------------------------------------- */

static ze_result_t ZE_APICALL soft_zesDeviceEnumMemoryModules(zes_device_handle_t h,
                                                              uint32_t           *count,
                                                              zes_mem_handle_t   *out)
{
    static pthread_once_t filled = PTHREAD_ONCE_INIT;
    soft_device          *dev    = device_of(h);
    uint32_t              n;

    SOFT_CALL();
    if (dev == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (count == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_once(&filled, fill_modules);
    n = dev->root == dev ? parts_of(dev) : 1;
    if (soft_count(count, n) && out != NULL)
        for (uint32_t i = 0; i < *count; i++)
            out[i] = (zes_mem_handle_t)&modules[dev->index][dev->part + i];
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zesMemoryGetProperties(zes_mem_handle_t      h,
                                                          zes_mem_properties_t *out)
{
    module *m = module_of(h);

    SOFT_CALL();
    if (m == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (out == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    out->type         = ZES_MEM_TYPE_DDR4;
    out->onSubdevice  = m->dev->root != m->dev;
    out->subdeviceId  = m->dev->part;
    out->location     = ZES_MEM_LOC_DEVICE;
    out->physicalSize = m->dev->memory_size;
    out->busWidth     = -1;
    out->numChannels  = -1;
    return ZE_RESULT_SUCCESS;
}

/* What is used is known of the root; its parts share it evenly, the first one takes the rest. */
static ze_result_t ZE_APICALL soft_zesMemoryGetState(zes_mem_handle_t h, zes_mem_state_t *out)
{
    module  *m = module_of(h);
    uint64_t left;

    SOFT_CALL();
    if (m == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (out == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (soft_is_lost(m->dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    left        = m->dev->root->memory_size - atomic_load(&m->dev->root->used);
    out->health = ZES_MEM_HEALTH_OK;
    out->free   = left / parts_of(m->dev->root);
    if (m->dev->part == 0)
        out->free += left % parts_of(m->dev->root);
    out->size = m->dev->memory_size;
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE(zesGetMemoryProcAddrTable, zes_memory_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnGetProperties, soft_zesMemoryGetProperties);
    SOFT_FIELD(1, 0, pfnGetState, soft_zesMemoryGetState);
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE(zesGetDeviceProcAddrTable, zes_device_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnGetProperties, soft_zesDeviceGetProperties);
    SOFT_FIELD(1, 0, pfnEnumMemoryModules, soft_zesDeviceEnumMemoryModules);
#if SOFT_HAS_API_1_12
    SOFT_FIELD(1, 5, pfnGet, soft_zesDeviceGet);
#endif
    return ZE_RESULT_SUCCESS;
}

#if SOFT_HAS_API_1_12

static ze_result_t ZE_APICALL soft_zesInit(zes_init_flags_t flags)
{
    SOFT_CALL();
    if (flags > 0x1u)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    soft_devices_init();
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zesDriverGet(uint32_t *count, zes_driver_handle_t *out)
{
    SOFT_CALL();
    if (count == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (soft_count(count, 1) && out != NULL)
        out[0] = (zes_driver_handle_t)&soft_driver;
    return ZE_RESULT_SUCCESS;
}

static bool has_uuid(const soft_device *dev, const zes_uuid_t *uuid)
{
    uint8_t own[sizeof(uuid->id)] = {0};

    soft_device_uuid(dev, own, sizeof(own));
    return memcmp(own, uuid->id, sizeof(own)) == 0;
}

/* The root device, and which part of it. */
static ze_result_t find_uuid(const zes_uuid_t *uuid, zes_device_handle_t *out, ze_bool_t *is_part,
                             uint32_t *part)
{
    for (uint32_t i = 0; i < SOFT_ROOTS; i++) {
        soft_device *root = &soft_devices[i];
        uint32_t     k    = 0;

        while (k < root->nparts && !has_uuid(root->parts[k], uuid))
            k++;
        if (k == root->nparts && !has_uuid(root, uuid))
            continue;
        *out     = (zes_device_handle_t)root;
        *is_part = k < root->nparts;
        *part    = k < root->nparts ? k : 0;
        return ZE_RESULT_SUCCESS;
    }
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

static ze_result_t ZE_APICALL soft_zesDriverGetDeviceByUuidExp(zes_driver_handle_t  driver,
                                                               zes_uuid_t           uuid,
                                                               zes_device_handle_t *out,
                                                               ze_bool_t *is_part, uint32_t *part)
{
    SOFT_CALL();
    if (driver == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (out == NULL || is_part == NULL || part == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return find_uuid(&uuid, out, is_part, part);
}

SOFT_TABLE(zesGetGlobalProcAddrTable, zes_global_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 5, pfnInit, soft_zesInit);
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE(zesGetDriverExpProcAddrTable, zes_driver_exp_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 9, pfnGetDeviceByUuidExp, soft_zesDriverGetDeviceByUuidExp);
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE(zesGetDriverProcAddrTable, zes_driver_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 5, pfnGet, soft_zesDriverGet);
    return ZE_RESULT_SUCCESS;
}

#else

SOFT_TABLE_EMPTY(zesGetDriverProcAddrTable, zes_driver_dditable_t)

#endif

SOFT_TABLE_EMPTY(zesGetDiagnosticsProcAddrTable, zes_diagnostics_dditable_t)
SOFT_TABLE_EMPTY(zesGetEngineProcAddrTable, zes_engine_dditable_t)
SOFT_TABLE_EMPTY(zesGetFabricPortProcAddrTable, zes_fabric_port_dditable_t)
SOFT_TABLE_EMPTY(zesGetFanProcAddrTable, zes_fan_dditable_t)
SOFT_TABLE_EMPTY(zesGetFirmwareProcAddrTable, zes_firmware_dditable_t)
SOFT_TABLE_EMPTY(zesGetFrequencyProcAddrTable, zes_frequency_dditable_t)
SOFT_TABLE_EMPTY(zesGetLedProcAddrTable, zes_led_dditable_t)
SOFT_TABLE_EMPTY(zesGetPerformanceFactorProcAddrTable, zes_performance_factor_dditable_t)
SOFT_TABLE_EMPTY(zesGetPowerProcAddrTable, zes_power_dditable_t)
SOFT_TABLE_EMPTY(zesGetPsuProcAddrTable, zes_psu_dditable_t)
SOFT_TABLE_EMPTY(zesGetRasProcAddrTable, zes_ras_dditable_t)
SOFT_TABLE_EMPTY(zesGetSchedulerProcAddrTable, zes_scheduler_dditable_t)
SOFT_TABLE_EMPTY(zesGetStandbyProcAddrTable, zes_standby_dditable_t)
SOFT_TABLE_EMPTY(zesGetTemperatureProcAddrTable, zes_temperature_dditable_t)
