/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The properties of a driver and a device: queries fill in lz_driver, lz_device and its
 * usm_backend_device.  Not here: the list of devices (device.c), free memory (sysman.c). */
#include "queue.h"

#include <stdio.h>
#include <string.h>

#define MAX_GROUPS   16
#define MAX_MEMORIES 16

/* --- drivers ------------------------------------------------------------------ */

static bool has_extension(const ze_driver_extension_properties_t *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(list[i].name, name, sizeof(list[i].name)) == 0)
            return true;
    return false;
}

static usm_status ask_extensions(lz_driver *driver)
{
    ze_driver_extension_properties_t *list;
    uint32_t                          n = 0;
    ze_result_t err = lz.zeDriverGetExtensionProperties(driver->native, &n, NULL);

    if (err || !n) /* an old driver has none */
        return native_to_status(err) == USM_E_NO_MEMORY
                   ? lz_fail(err, "zeDriverGetExtensionProperties")
                   : USM_OK;
    list = lz_host->heap_alloc(n * sizeof(*list));
    if (!list)
        return lz_no_memory();
    if (!lz.zeDriverGetExtensionProperties(driver->native, &n, list)) {
        driver->has_relaxed_limits = has_extension(list, n, ZE_RELAXED_ALLOCATION_LIMITS_EXP_NAME);
        driver->has_global_offset  = has_extension(list, n, ZE_GLOBAL_OFFSET_EXP_NAME);
        driver->has_copy_offload   = has_extension(list, n, LZ_COPY_OFFLOAD_NAME);
        driver->has_pci            = has_extension(list, n, ZE_PCI_PROPERTIES_EXT_NAME);
    }
    lz_host->heap_free(list);
    return USM_OK;
}

static usm_status left_out(ze_result_t err, const char *call)
{
    lz_host->log(USM_LOG_WARN | USM_LOG_NODE,
                 "Level Zero: a driver is left out: %s failed: %s (0x%x)", call, lz_error_name(err),
                 (unsigned)err);
    return lz_fail(err, call);
}

usm_status lz_driver_describe(lz_driver *driver)
{
    ze_driver_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};
    ze_api_version_t       version    = ZE_API_VERSION_1_0;
    ze_result_t            err        = lz.zeDriverGetApiVersion(driver->native, &version);

    if (err)
        return left_out(err, "zeDriverGetApiVersion");
    driver->version = (uint32_t)version;
    if (ZE_MAJOR_VERSION(driver->version) != 1) {
        lz_host->log(USM_LOG_WARN | USM_LOG_NODE,
                     "Level Zero: a driver is left out: it has version %u.%u of the API, and this "
                     "libusm knows 1.x: install a libusm that knows it",
                     (unsigned)ZE_MAJOR_VERSION(driver->version),
                     (unsigned)ZE_MINOR_VERSION(driver->version));
        return lz_report(USM_E_NOT_SUPPORTED, "the driver's API is not 1.x");
    }
    driver->has_in_order = driver->version >= LZ_API(1, 7);
    err                  = lz.zeDriverGetProperties(driver->native, &properties);
    if (err)
        return left_out(err, "zeDriverGetProperties");
    driver->number = properties.driverVersion;
    /* The form in which sysman prints the version of Intel's driver. */
    snprintf(driver->text, sizeof(driver->text), "%u.%u.%u",
             (unsigned)(properties.driverVersion >> 24),
             (unsigned)(properties.driverVersion >> 16 & 0xff),
             (unsigned)(properties.driverVersion & 0xffff));
    return ask_extensions(driver);
}

/* --- memory ----------------------------------------------------------------- */

static uint64_t aspect(usm_aspect a)
{
    return UINT64_C(1) << a;
}

static uint64_t aspect_if(bool has, usm_aspect a)
{
    return has ? aspect(a) : 0;
}

static uint64_t memory_aspects(const ze_device_memory_access_properties_t *p)
{
    const ze_memory_access_cap_flags_t any = ZE_MEMORY_ACCESS_CAP_FLAG_RW;
    /* SYCL's atomic aspects mean concurrent atomics of host and device. */
    const ze_memory_access_cap_flags_t both = ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT_ATOMIC;

    return aspect_if(p->hostAllocCapabilities & any, USM_ASPECT_USM_HOST_ALLOCATIONS) |
           aspect_if(p->hostAllocCapabilities & both, USM_ASPECT_USM_ATOMIC_HOST_ALLOCATIONS) |
           aspect_if(p->deviceAllocCapabilities & any, USM_ASPECT_USM_DEVICE_ALLOCATIONS) |
           aspect_if(p->sharedSingleDeviceAllocCapabilities & any,
                     USM_ASPECT_USM_SHARED_ALLOCATIONS) |
           aspect_if(p->sharedSingleDeviceAllocCapabilities & both,
                     USM_ASPECT_USM_ATOMIC_SHARED_ALLOCATIONS) |
           aspect_if(p->sharedSystemAllocCapabilities & any, USM_ASPECT_USM_SYSTEM_ALLOCATIONS);
}

/* Without concurrent access the driver keeps a shared allocation in one place at a time, in host
 * memory or the device's own, and moves all of it.  An integrated GPU has no memory of its own. */
static bool moves_shared_whole(const lz_device *dev)
{
    return dev->info.type == USM_DEVICE_TYPE_GPU &&
           !(dev->properties.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED) &&
           !(dev->access.sharedSingleDeviceAllocCapabilities &
             ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT);
}

/* A device may have several memories (HBM of each tile). */
static ze_result_t ask_memory(lz_device *dev)
{
    ze_device_memory_properties_t list[MAX_MEMORIES];
    uint32_t                      n = MAX_MEMORIES;
    ze_result_t                   err;

    memset(list, 0, sizeof(list));
    for (size_t i = 0; i < MAX_MEMORIES; i++)
        list[i].stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
    err = lz.zeDeviceGetMemoryProperties(dev->native, &n, list);
    for (uint32_t i = 0; !err && i < n && i < MAX_MEMORIES; i++)
        dev->info.memory_size += list[i].totalSize;
    dev->access.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES;
    return err ? err : lz.zeDeviceGetMemoryAccessProperties(dev->native, &dev->access);
}

/* --- computing --------------------------------------------------------------- */

/* The largest power of two up to `most`, at least one byte. */
static size_t pattern_limit(size_t most)
{
    size_t limit = 1;

    while (limit < DRIVER_MAX_PATTERN && limit * 2 <= most)
        limit *= 2;
    return limit;
}

/* Chooses the first group that computes (by the specification it also copies); otherwise one that
 * copies. */
static ze_result_t choose_group(lz_device *dev, bool *computes)
{
    ze_command_queue_group_properties_t list[MAX_GROUPS];
    uint32_t                            n = MAX_GROUPS, chosen = MAX_GROUPS;
    ze_result_t                         err;

    memset(list, 0, sizeof(list));
    for (size_t i = 0; i < MAX_GROUPS; i++)
        list[i].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
    err = lz.zeDeviceGetCommandQueueGroupProperties(dev->native, &n, list);
    if (err)
        return err;
    *computes = false;
    for (uint32_t i = 0; i < n && i < MAX_GROUPS && !*computes; i++) {
        *computes =
            list[i].numQueues && (list[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE);
        if (*computes || (chosen == MAX_GROUPS && list[i].numQueues &&
                          (list[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY)))
            chosen = i;
    }
    if (chosen == MAX_GROUPS)
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    dev->ordinal               = chosen;
    dev->nqueues               = list[chosen].numQueues;
    dev->info.max_fill_pattern = pattern_limit(list[chosen].maxMemoryFillPatternSize);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ask_computing(lz_device *dev)
{
    ze_device_compute_properties_t compute = {.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES};
    ze_device_module_properties_t  module  = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES};
    bool                           computes = false;
    ze_result_t                    err      = choose_group(dev, &computes);

    if (!err)
        err = lz.zeDeviceGetComputeProperties(dev->native, &compute);
    if (!err)
        err = lz.zeDeviceGetModuleProperties(dev->native, &module);
    if (err)
        return err;
    dev->info.max_work_group_size = compute.maxTotalGroupSize ? compute.maxTotalGroupSize : 1;
    dev->info.local_memory_size   = compute.maxSharedLocalMemory;
    dev->info.aspects |=
        aspect_if(computes, USM_ASPECT_KERNELS) |
        aspect_if(computes && module.spirvVersionSupported, USM_ASPECT_IMAGE_SPIRV) |
        aspect_if(module.flags & ZE_DEVICE_MODULE_FLAG_FP16, USM_ASPECT_FP16) |
        aspect_if(module.flags & ZE_DEVICE_MODULE_FLAG_FP64, USM_ASPECT_FP64) |
        aspect_if(module.flags & ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS, USM_ASPECT_ATOMIC64);
    return ZE_RESULT_SUCCESS;
}

/* --- identity -------------------------------------------------------------------- */

/* The unit is cycles per second with the struct of API 1.2, otherwise nanoseconds. */
static void timer(lz_device *dev)
{
    const ze_device_properties_t *p    = &dev->properties;
    uint32_t                      bits = p->kernelTimestampValidBits;

    dev->tick_ns = (double)p->timerResolution;
    if (p->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 && p->timerResolution)
        dev->tick_ns = 1e9 / (double)p->timerResolution;
    dev->timestamp_mask = bits && bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
}

static void names(lz_device *dev)
{
    const ze_device_properties_t *p    = &dev->properties;
    usm_backend_device           *info = &dev->info;

    snprintf(info->name, sizeof(info->name), "%.*s", (int)sizeof(p->name) - 1, p->name);
    snprintf(info->platform_name, sizeof(info->platform_name), "Level Zero %u.%u",
             (unsigned)ZE_MAJOR_VERSION(dev->driver->version),
             (unsigned)ZE_MINOR_VERSION(dev->driver->version));
    snprintf(info->driver_version, sizeof(info->driver_version), "%s", dev->driver->text);
    if (p->vendorId == LZ_INTEL)
        snprintf(info->vendor, sizeof(info->vendor), "Intel(R) Corporation");
    else
        snprintf(info->vendor, sizeof(info->vendor), "PCI vendor 0x%04x", (unsigned)p->vendorId);
}

/* A sub-device has neither: it is not a physical device of its own. */
static void identity(lz_device *dev)
{
    usm_backend_device     *info = &dev->info;
    ze_pci_ext_properties_t pci  = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
    static const uint8_t    zeroes[sizeof(info->uuid)];

    if (dev->parent)
        return;
    if (dev->driver->has_pci && lz.zeDevicePciGetPropertiesExt &&
        !lz.zeDevicePciGetPropertiesExt(dev->native, &pci)) {
        info->has_pci = true;
        info->pci[0]  = pci.address.domain;
        info->pci[1]  = pci.address.bus;
        info->pci[2]  = pci.address.device;
        info->pci[3]  = pci.address.function;
    }
    memcpy(info->uuid, dev->properties.uuid.id, sizeof(info->uuid));
    info->has_uuid = memcmp(info->uuid, zeroes, sizeof(zeroes)) != 0;
}

static ze_result_t ask_properties(lz_device *dev)
{
    ze_device_properties_t *p     = &dev->properties;
    uint32_t                parts = 0;
    ze_result_t             err;

    p->stype = dev->driver->version >= LZ_API(1, 2) ? ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2
                                                    : ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    err      = lz.zeDeviceGetProperties(dev->native, p);
    if (err)
        return err;
    if (p->type != ZE_DEVICE_TYPE_GPU && p->type != ZE_DEVICE_TYPE_CPU)
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    dev->info.type = p->type == ZE_DEVICE_TYPE_GPU ? USM_DEVICE_TYPE_GPU : USM_DEVICE_TYPE_CPU;
    /* The limit of one allocation without relaxed limits, which memory.c uses if necessary. */
    dev->info.max_alloc_size = p->maxMemAllocSize;
    dev->info.compute_units  = p->numSlices * p->numSubslicesPerSlice * p->numEUsPerSubslice;
    if (!lz.zeDeviceGetSubDevices(dev->native, &parts, NULL))
        dev->info.sub_devices = parts;
    return ZE_RESULT_SUCCESS;
}

usm_status lz_device_describe(lz_device *dev)
{
    usm_backend_device *info = &dev->info;
    ze_result_t         err  = ask_properties(dev);

    if (!err)
        err = ask_memory(dev);
    if (!err)
        err = ask_computing(dev);
    if (err)
        return lz_fail(err, "asking a device what it is");
    info->handle   = dev;
    info->platform = dev->driver;
    /* Intel's driver accepts larger alignments and does not honour them; some of its devices accept
     * none above a page, which costs the core a second try. */
    info->max_align          = (size_t)64 << 10;
    info->shared_moves_whole = moves_shared_whole(dev);
    info->advises_whole      = true; /* Intel's driver only uses the start of the range */
    timer(dev);
    names(dev);
    identity(dev);
    info->aspects |= memory_aspects(&dev->access) |
                     aspect(info->type == USM_DEVICE_TYPE_GPU ? USM_ASPECT_GPU : USM_ASPECT_CPU) |
                     aspect_if(dev->properties.timerResolution, USM_ASPECT_QUEUE_PROFILING) |
                     aspect(USM_ASPECT_OUT_OF_ORDER_QUEUE) | /* built from several in-order
                                                                streams */
                     aspect_if(info->sub_devices, USM_ASPECT_PARTITION);
    return USM_OK;
}

usm_status lz_can_access_peer(void *dev, void *peer, bool *can)
{
    const lz_device *d = dev, *other = peer;
    ze_bool_t        yes = 0;
    ze_result_t      err;

    if (d->driver != other->driver) {
        *can = false;
        return USM_OK;
    }
    err = lz.zeDeviceCanAccessPeer(d->native, other->native, &yes);
    if (err)
        return lz_fail(err, "zeDeviceCanAccessPeer");
    *can = yes != 0;
    return USM_OK;
}
