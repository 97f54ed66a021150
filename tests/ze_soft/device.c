/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Devices: which there are, and what they say of themselves.
 *
 * Two root devices, the first in two parts.  How the parts are shown is ZE_FLAT_DEVICE_HIERARCHY's
 * affair (COMPOSITE unless it says FLAT or COMBINED), which devices are shown ZE_AFFINITY_MASK's:
 * indices of devices, or root.part.
 *
 * What is told is what the driver does: what it cannot (images) is 0.  Limits of kernels are those
 * of module.h.  Exports the tables Device and DeviceExp. */
#include "device.h"

#include "memory.h"
#include "module.h"
#include "tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VENDOR 0x8086u
#define DEVICE_ID                                                                                  \
    0x50f7u /* none of Intel's, so that nobody takes it for a product and its quirks */
#define EUS    8u
#define SLICES 1u /* of a part */

/* The timer counts nanoseconds. They never fill 63 bits, and 64 would make the usual mask, (1 <<
 * bits)
 * - 1, undefined in the programs that use it. */
#define TIMER_BITS 63u
#define TIMER_HZ   1000000000u

enum { COMPOSITE, FLAT, COMBINED };

static soft_device parts[SOFT_PARTS];

soft_device soft_devices[SOFT_ROOTS] = {
    {.index = 0, .parts = {&parts[0], &parts[1]}, .nparts = SOFT_PARTS},
    {.index = 1},
};

static struct {
    pthread_once_t once;
    int            hierarchy;
    soft_device   *shown[SOFT_ROOTS * SOFT_PARTS];
    uint32_t       nshown;
} devices = {.once = PTHREAD_ONCE_INIT};

/* --- which there are --------------------------------------------------------------- */

static void device_init(soft_device *dev, soft_device *root, uint32_t part, uint64_t memory)
{
    dev->root        = root;
    dev->index       = root->index;
    dev->part        = part;
    dev->memory_size = memory;
    dev->max_alloc   = memory / 4 * 3 / SOFT_DEVICE_PAGE * SOFT_DEVICE_PAGE;
    atomic_store(&dev->handle.type, SOFT_DEVICE);
}

static int hierarchy_asked(void)
{
    const char *text = getenv("ZE_FLAT_DEVICE_HIERARCHY");

    if (text != NULL && strcmp(text, "FLAT") == 0)
        return FLAT;
    return text != NULL && strcmp(text, "COMBINED") == 0 ? COMBINED : COMPOSITE;
}

static uint32_t list_all(soft_device **list)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < SOFT_ROOTS; i++) {
        soft_device *root = &soft_devices[i];

        if (devices.hierarchy == COMPOSITE || root->nparts == 0)
            list[n++] = root;
        else
            for (uint32_t k = 0; k < root->nparts; k++)
                list[n++] = root->parts[k];
    }
    return n;
}

/* One term of the mask; NULL: it names nothing. */
static soft_device *term(const char **text, soft_device **all, uint32_t n)
{
    char         *end;
    unsigned long index = strtoul(*text, &end, 10), part;
    soft_device  *dev   = end != *text && index < n ? all[index] : NULL;

    if (*end == '.') {
        part = strtoul(end + 1, &end, 10);
        dev  = dev != NULL && part < dev->nparts ? dev->parts[part] : NULL;
    }
    *text = end + strcspn(end, ",");
    *text += **text == ',';
    return dev;
}

static void show(soft_device *dev)
{
    for (uint32_t i = 0; i < devices.nshown; i++)
        if (devices.shown[i] == dev)
            return;
    devices.shown[devices.nshown++] = dev;
}

static void choose(void)
{
    soft_device *all[SOFT_ROOTS * SOFT_PARTS];
    const char  *mask = getenv("ZE_AFFINITY_MASK");
    uint32_t     n    = list_all(all);

    if (mask == NULL || *mask == '\0') {
        for (uint32_t i = 0; i < n; i++)
            show(all[i]);
        return;
    }
    while (*mask != '\0') {
        soft_device *dev = term(&mask, all, n);

        if (dev != NULL && devices.nshown < SOFT_ROOTS * SOFT_PARTS)
            show(dev);
    }
}

static void init(void)
{
    uint64_t memory = soft_knob("MEMORY", (uint64_t)1 << 30) / SOFT_PAGE * SOFT_PAGE;

    for (uint32_t i = 0; i < SOFT_ROOTS; i++) {
        soft_device *root = &soft_devices[i];

        device_init(root, root, 0, memory);
        for (uint32_t k = 0; k < root->nparts; k++)
            device_init(root->parts[k], root, k, memory / root->nparts);
    }
    devices.hierarchy = hierarchy_asked();
    choose();
}

void soft_devices_init(void)
{
    pthread_once(&devices.once, init);
}

soft_device *soft_device_of(ze_device_handle_t h)
{
    for (uint32_t i = 0; i < SOFT_ROOTS; i++) {
        soft_device *root = &soft_devices[i];

        if (h == (ze_device_handle_t)root)
            return root;
        for (uint32_t k = 0; k < root->nparts; k++)
            if (h == (ze_device_handle_t)root->parts[k])
                return root->parts[k];
    }
    return NULL;
}

bool soft_is_lost(const soft_device *dev)
{
    return atomic_load(&dev->root->lost);
}

void soft_lose(soft_device *dev)
{
    soft_device *root = dev->root != NULL ? dev->root : dev; /* before zeInit there is none */

    atomic_store(&root->lost, true);
    soft_exec_wake();
}

static bool is_shown(const soft_device *dev)
{
    for (uint32_t i = 0; i < devices.nshown; i++)
        if (devices.shown[i] == dev)
            return true;
    return false;
}

/* Whether the program sees it as a part of something. */
static bool is_part(const soft_device *dev)
{
    if (dev->root == dev || devices.hierarchy == FLAT)
        return false;
    return devices.hierarchy == COMBINED || !is_shown(dev);
}

static ze_result_t ZE_APICALL soft_zeDeviceGet(ze_driver_handle_t driver, uint32_t *count,
                                               ze_device_handle_t *out)
{
    SOFT_CALL();
    if (driver != (ze_driver_handle_t)&soft_driver)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (count == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    soft_devices_init();
    if (soft_count(count, devices.nshown) && out != NULL)
        for (uint32_t i = 0; i < *count; i++)
            out[i] = (ze_device_handle_t)devices.shown[i];
    return ZE_RESULT_SUCCESS;
}

#define DEVICE_OR_RETURN(dev, h, pointer)                                                          \
    soft_device *dev = soft_device_of(h);                                                          \
    SOFT_CALL();                                                                                   \
    if (dev == NULL)                                                                               \
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;                                                \
    if ((pointer) == NULL)                                                                         \
    return ZE_RESULT_ERROR_INVALID_NULL_POINTER

static ze_result_t ZE_APICALL soft_zeDeviceGetSubDevices(ze_device_handle_t h, uint32_t *count,
                                                         ze_device_handle_t *out)
{
    DEVICE_OR_RETURN(dev, h, count);
    if (soft_count(count, devices.hierarchy == FLAT ? 0 : dev->nparts) && out != NULL)
        for (uint32_t i = 0; i < *count; i++)
            out[i] = (ze_device_handle_t)dev->parts[i];
    return ZE_RESULT_SUCCESS;
}

/* --- what they say ------------------------------------------------------------------- */

void soft_device_uuid(const soft_device *dev, uint8_t *uuid, size_t size)
{
    const uint8_t id[16] = {VENDOR & 0xff,
                            VENDOR >> 8,
                            DEVICE_ID & 0xff,
                            DEVICE_ID >> 8,
                            's',
                            'o',
                            'f',
                            't',
                            (uint8_t)dev->index,
                            [15] = dev->root == dev ? 0 : (uint8_t)(dev->part + 1)};

    memcpy(uuid, id, size < sizeof(id) ? size : sizeof(id));
}

/* Known and without effect: a kernel's work-groups run as the OpenCL runtime likes. */
#define SCHEDULING_HINTS                                                                           \
    ((uint32_t)ZE_SCHEDULING_HINT_EXP_FLAG_OLDEST_FIRST |                                          \
     (uint32_t)ZE_SCHEDULING_HINT_EXP_FLAG_ROUND_ROBIN |                                           \
     (uint32_t)ZE_SCHEDULING_HINT_EXP_FLAG_STALL_BASED_ROUND_ROBIN)

/* Structures that programs chain to what they ask. */
static void describe_chained(const soft_device *dev, void *next)
{
    for (soft_chained *s = next; s != NULL; s = (void *)(uintptr_t)s->pNext) {
        if (s->stype == ZE_STRUCTURE_TYPE_EU_COUNT_EXT)
            ((ze_eu_count_ext_t *)(void *)s)->numTotalEUs =
                EUS * SLICES * (dev->nparts != 0 ? dev->nparts : 1);
        if (s->stype == ZE_STRUCTURE_TYPE_SCHEDULING_HINT_EXP_PROPERTIES)
            ((ze_scheduling_hint_exp_properties_t *)(void *)s)->schedulingHintFlags =
                SCHEDULING_HINTS;
#if SOFT_HAS_API_1_12
        if (s->stype == ZE_STRUCTURE_TYPE_DEVICE_IP_VERSION_EXT)
            ((ze_device_ip_version_ext_t *)(void *)s)->ipVersion = 1;
#endif
    }
}

void soft_device_describe(const soft_device *dev, ze_device_properties_t *out)
{
    bool cycles = out->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;

    out->type                     = ZE_DEVICE_TYPE_GPU;
    out->vendorId                 = VENDOR;
    out->deviceId                 = DEVICE_ID;
    out->flags                    = is_part(dev) ? ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE : 0;
    out->subdeviceId              = dev->part;
    out->coreClockRate            = 1000;
    out->maxMemAllocSize          = dev->root->max_alloc;
    out->maxHardwareContexts      = 65536;
    out->maxCommandQueuePriority  = 0;
    out->numThreadsPerEU          = 8;
    out->physicalEUSimdWidth      = 8;
    out->numEUsPerSubslice        = EUS;
    out->numSubslicesPerSlice     = 1;
    out->numSlices                = SLICES * (dev->nparts != 0 ? dev->nparts : 1);
    out->timerResolution          = cycles ? TIMER_HZ : 1;
    out->timestampValidBits       = TIMER_BITS;
    out->kernelTimestampValidBits = TIMER_BITS;
    memset(&out->uuid, 0, sizeof(out->uuid));
    soft_device_uuid(dev, out->uuid.id, sizeof(out->uuid.id));
    snprintf(out->name, sizeof(out->name), "ze_soft %u", dev->index);
}

static ze_result_t ZE_APICALL soft_zeDeviceGetProperties(ze_device_handle_t      h,
                                                         ze_device_properties_t *out)
{
    DEVICE_OR_RETURN(dev, h, out);
    soft_device_describe(dev, out);
    describe_chained(dev, out->pNext);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeDeviceGetComputeProperties(ze_device_handle_t              h,
                                                                ze_device_compute_properties_t *out)
{
    static const uint32_t subgroups[] = {8, 16, 32};

    DEVICE_OR_RETURN(dev, h, out);
    out->maxTotalGroupSize    = SOFT_MAX_GROUP;
    out->maxGroupSizeX        = SOFT_MAX_GROUP;
    out->maxGroupSizeY        = SOFT_MAX_GROUP;
    out->maxGroupSizeZ        = SOFT_MAX_GROUP;
    out->maxGroupCountX       = UINT32_MAX;
    out->maxGroupCountY       = UINT32_MAX;
    out->maxGroupCountZ       = UINT32_MAX;
    out->maxSharedLocalMemory = SOFT_MAX_LOCAL;
    out->numSubGroupSizes     = 3;
    memset(out->subGroupSizes, 0, sizeof(out->subGroupSizes));
    memcpy(out->subGroupSizes, subgroups, sizeof(subgroups));
    return ZE_RESULT_SUCCESS;
}

/* Floating point is the processor's. */
#define FP_FLAGS                                                                                   \
    ((uint32_t)ZE_DEVICE_FP_FLAG_DENORM | (uint32_t)ZE_DEVICE_FP_FLAG_INF_NAN |                    \
     (uint32_t)ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST | (uint32_t)ZE_DEVICE_FP_FLAG_ROUND_TO_ZERO |    \
     (uint32_t)ZE_DEVICE_FP_FLAG_ROUND_TO_INF | (uint32_t)ZE_DEVICE_FP_FLAG_FMA)

static ze_result_t ZE_APICALL soft_zeDeviceGetModuleProperties(ze_device_handle_t             h,
                                                               ze_device_module_properties_t *out)
{
    static const char native[ZE_MAX_NATIVE_KERNEL_UUID_SIZE] = "ze_soft-elf-1";

    DEVICE_OR_RETURN(dev, h, out);
    out->spirvVersionSupported = ZE_MAKE_VERSION(1, 4);
    out->flags =
        (uint32_t)ZE_DEVICE_MODULE_FLAG_FP64 | (uint32_t)ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS;
    out->fp16flags        = 0;
    out->fp32flags        = FP_FLAGS;
    out->fp64flags        = FP_FLAGS;
    out->maxArgumentsSize = 2048;
    out->printfBufferSize = 4u << 20;
    memcpy(out->nativeKernelSupported.id, native, sizeof(native));
    return ZE_RESULT_SUCCESS;
}

const ze_command_queue_group_properties_t *soft_queue_groups(const soft_device *dev, uint32_t *n)
{
    static const ze_command_queue_group_properties_t groups[] = {
        {.flags = (uint32_t)ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE |
                  (uint32_t)ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY,
         .maxMemoryFillPatternSize = 128,
         .numQueues                = 1},
        {.flags                    = (uint32_t)ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY,
         .maxMemoryFillPatternSize = 128,
         .numQueues                = 2},
    };

    (void)dev; /* all are alike */
    *n = sizeof(groups) / sizeof(groups[0]);
    return groups;
}

static ze_result_t ZE_APICALL soft_zeDeviceGetCommandQueueGroupProperties(
    ze_device_handle_t h, uint32_t *count, ze_command_queue_group_properties_t *out)
{
    const ze_command_queue_group_properties_t *groups;
    uint32_t                                   n;

    DEVICE_OR_RETURN(dev, h, count);
    groups = soft_queue_groups(dev, &n);
    if (soft_count(count, n) && out != NULL)
        for (uint32_t i = 0; i < *count; i++) {
            out[i].flags                    = groups[i].flags;
            out[i].maxMemoryFillPatternSize = groups[i].maxMemoryFillPatternSize;
            out[i].numQueues                = groups[i].numQueues;
        }
    return ZE_RESULT_SUCCESS;
}

static void describe_memory(const soft_device *dev, ze_device_memory_properties_t *out)
{
    out->flags        = 0;
    out->maxClockRate = 0;
    out->maxBusWidth  = 64;
    out->totalSize    = dev->memory_size;
    snprintf(out->name, sizeof(out->name), "ze_soft");
    for (soft_chained *s = out->pNext; s != NULL; s = (void *)(uintptr_t)s->pNext) {
        ze_device_memory_ext_properties_t *ext = (void *)s;

        if (s->stype != ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES)
            continue;
        ext->type           = ZE_DEVICE_MEMORY_EXT_TYPE_DDR4;
        ext->physicalSize   = dev->memory_size;
        ext->readBandwidth  = 0;
        ext->writeBandwidth = 0;
        ext->bandwidthUnit  = ZE_BANDWIDTH_UNIT_UNKNOWN;
    }
}

static ze_result_t ZE_APICALL soft_zeDeviceGetMemoryProperties(ze_device_handle_t             h,
                                                               uint32_t                      *count,
                                                               ze_device_memory_properties_t *out)
{
    DEVICE_OR_RETURN(dev, h, count);
    if (soft_count(count, 1) && out != NULL)
        describe_memory(dev, out);
    return ZE_RESULT_SUCCESS;
}

bool soft_takes_system_memory(void)
{
    return soft_knob("SYSTEM", 0) != 0;
}

static ze_result_t ZE_APICALL soft_zeDeviceGetMemoryAccessProperties(
    ze_device_handle_t h, ze_device_memory_access_properties_t *out)
{
    const uint32_t some =
        (uint32_t)ZE_MEMORY_ACCESS_CAP_FLAG_RW | (uint32_t)ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC;
    const uint32_t all = some | (uint32_t)ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT |
                         (uint32_t)ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT_ATOMIC;
    const uint32_t shared = soft_migrates() ? some : all;

    DEVICE_OR_RETURN(dev, h, out);
    out->hostAllocCapabilities               = all;
    out->deviceAllocCapabilities             = all;
    out->sharedSingleDeviceAllocCapabilities = shared;
    out->sharedCrossDeviceAllocCapabilities  = shared;
    out->sharedSystemAllocCapabilities       = soft_takes_system_memory() ? all : 0;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeDeviceGetCacheProperties(ze_device_handle_t h, uint32_t *count,
                                                              ze_device_cache_properties_t *out)
{
    DEVICE_OR_RETURN(dev, h, count);
    if (soft_count(count, 1) && out != NULL) {
        out->flags     = 0;
        out->cacheSize = 4u << 20;
    }
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeDeviceGetImageProperties(ze_device_handle_t            h,
                                                              ze_device_image_properties_t *out)
{
    DEVICE_OR_RETURN(dev, h, out);
    out->maxImageDims1D      = 0;
    out->maxImageDims2D      = 0;
    out->maxImageDims3D      = 0;
    out->maxImageBufferSize  = 0;
    out->maxImageArraySlices = 0;
    out->maxSamplers         = 0;
    out->maxReadImageArgs    = 0;
    out->maxWriteImageArgs   = 0;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeDeviceGetExternalMemoryProperties(
    ze_device_handle_t h, ze_device_external_memory_properties_t *out)
{
    DEVICE_OR_RETURN(dev, h, out);
    out->memoryAllocationImportTypes = SOFT_EXTERNAL_TYPES;
    out->memoryAllocationExportTypes = SOFT_EXTERNAL_TYPES;
    out->imageImportTypes            = 0;
    out->imageExportTypes            = 0;
    return ZE_RESULT_SUCCESS;
}

/* --- of two of them -------------------------------------------------------------------- */

static ze_result_t ZE_APICALL soft_zeDeviceGetP2PProperties(ze_device_handle_t          h,
                                                            ze_device_handle_t          peer,
                                                            ze_device_p2p_properties_t *out)
{
    DEVICE_OR_RETURN(dev, h, out);
    if (soft_device_of(peer) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    out->flags = (uint32_t)ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS |
                 (uint32_t)ZE_DEVICE_P2P_PROPERTY_FLAG_ATOMICS;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeDeviceCanAccessPeer(ze_device_handle_t h,
                                                         ze_device_handle_t peer, ze_bool_t *can)
{
    DEVICE_OR_RETURN(dev, h, can);
    if (soft_device_of(peer) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    *can = 1;
    return ZE_RESULT_SUCCESS;
}

/* --- state -------------------------------------------------------------------------------- */

static ze_result_t ZE_APICALL soft_zeDeviceGetStatus(ze_device_handle_t h)
{
    DEVICE_OR_RETURN(dev, h, h);
    return soft_is_lost(dev) ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeDeviceGetGlobalTimestamps(ze_device_handle_t h, uint64_t *host,
                                                               uint64_t *device)
{
    DEVICE_OR_RETURN(dev, h, host);
    if (device == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (soft_is_lost(dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    *host   = soft_now_ns();
    *device = *host;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeDevicePciGetPropertiesExt(ze_device_handle_t       h,
                                                               ze_pci_ext_properties_t *out)
{
    DEVICE_OR_RETURN(dev, h, out);
    out->address  = (ze_pci_address_ext_t){.bus = 0xf0u + dev->index};
    out->maxSpeed = (ze_pci_speed_ext_t){.genVersion = -1, .width = -1, .maxBandwidth = -1};
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL no_reserve_cache(ze_device_handle_t h, size_t level, size_t size)
{
    (void)h;
    (void)level;
    (void)size;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static ze_result_t ZE_APICALL no_cache_advice(ze_device_handle_t h, void *p, size_t size,
                                              ze_cache_ext_region_t region)
{
    (void)h;
    (void)p;
    (void)size;
    (void)region;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

#if SOFT_HAS_API_1_12

static ze_result_t ZE_APICALL soft_zeDeviceGetRootDevice(ze_device_handle_t  h,
                                                         ze_device_handle_t *root)
{
    DEVICE_OR_RETURN(dev, h, root);
    *root = is_part(dev) ? (ze_device_handle_t)dev->root : NULL;
    return ZE_RESULT_SUCCESS;
}

#endif

SOFT_TABLE(zeGetDeviceProcAddrTable, ze_device_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnGet, soft_zeDeviceGet);
    SOFT_FIELD(1, 0, pfnGetSubDevices, soft_zeDeviceGetSubDevices);
    SOFT_FIELD(1, 0, pfnGetProperties, soft_zeDeviceGetProperties);
    SOFT_FIELD(1, 0, pfnGetComputeProperties, soft_zeDeviceGetComputeProperties);
    SOFT_FIELD(1, 0, pfnGetModuleProperties, soft_zeDeviceGetModuleProperties);
    SOFT_FIELD(1, 0, pfnGetCommandQueueGroupProperties,
               soft_zeDeviceGetCommandQueueGroupProperties);
    SOFT_FIELD(1, 0, pfnGetMemoryProperties, soft_zeDeviceGetMemoryProperties);
    SOFT_FIELD(1, 0, pfnGetMemoryAccessProperties, soft_zeDeviceGetMemoryAccessProperties);
    SOFT_FIELD(1, 0, pfnGetCacheProperties, soft_zeDeviceGetCacheProperties);
    SOFT_FIELD(1, 0, pfnGetImageProperties, soft_zeDeviceGetImageProperties);
    SOFT_FIELD(1, 0, pfnGetExternalMemoryProperties, soft_zeDeviceGetExternalMemoryProperties);
    SOFT_FIELD(1, 0, pfnGetP2PProperties, soft_zeDeviceGetP2PProperties);
    SOFT_FIELD(1, 0, pfnCanAccessPeer, soft_zeDeviceCanAccessPeer);
    SOFT_FIELD(1, 0, pfnGetStatus, soft_zeDeviceGetStatus);
    SOFT_FIELD(1, 1, pfnGetGlobalTimestamps, soft_zeDeviceGetGlobalTimestamps);
    SOFT_FIELD(1, 2, pfnReserveCacheExt, no_reserve_cache);
    SOFT_FIELD(1, 2, pfnSetCacheAdviceExt, no_cache_advice);
    SOFT_FIELD(1, 3, pfnPciGetPropertiesExt, soft_zeDevicePciGetPropertiesExt);
#if SOFT_HAS_API_1_12
    SOFT_FIELD(1, 7, pfnGetRootDevice, soft_zeDeviceGetRootDevice);
#endif
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE_EMPTY(zeGetDeviceExpProcAddrTable, ze_device_exp_dditable_t)
