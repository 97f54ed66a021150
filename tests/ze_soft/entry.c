/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The driver itself: initialisation, what it says of itself, and the tables of what it does not
 * have.
 *
 * The loader asks for all tables before the first call, more than once, and calls zeInit more than
 * once; some loaders query devices before the program does.
 *
 * Images and samplers answer UNSUPPORTED_FEATURE; the tables of the tools are empty, for which the
 * loader gives the same answer.  The extension of DDI handles is not claimed: its layout changed
 * between loaders.
 *
 * Exports Global, Driver, Image, Sampler, and all of the tools. */
#include "device.h"
#include "memory.h"
#include "tables.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* Major, minor, build, as Intel's driver packs them; Intel's runtime compares them with the
 * versions of that driver that brought something, and this one does what a new one does. */
#define DRIVER_VERSION (1u << 24 | 12u << 16 | 1u)

/* ZE_EVENT_POOL_COUNTER_BASED_EXP_NAME of API 1.8, which the driver has for older loaders, too. */
#define COPY_OFFLOAD_NAME  "ZEX_intel_experimental_queue_copy_operations_offload_hint"
#define COUNTER_BASED_NAME "ZE_experimental_event_pool_counter_based"

soft_handle soft_driver = {.type = SOFT_DRIVER};

static pthread_once_t started = PTHREAD_ONCE_INIT;

/* Every large allocation holds a descriptor, and the usual limit of 1024 is no limit of memory. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void start(void)
{
    raise_descriptors();
    soft_devices_init();
}

static ze_result_t initialise(void)
{
    uint64_t code = soft_knob("FAIL_INIT", ZE_RESULT_SUCCESS);

    if (code != ZE_RESULT_SUCCESS)
        return (ze_result_t)code;
    pthread_once(&started, start);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeInit(ze_init_flags_t flags)
{
    SOFT_CALL();
    if (flags > 0x3u)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if (flags == 0x2u) /* no GPU wanted */
        return ZE_RESULT_ERROR_UNINITIALIZED;
    return initialise();
}

static bool is_driver(ze_driver_handle_t h)
{
    return h == (ze_driver_handle_t)&soft_driver;
}

static ze_result_t get_drivers(uint32_t *count, ze_driver_handle_t *out)
{
    if (count == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (soft_count(count, 1) && out != NULL)
        out[0] = (ze_driver_handle_t)&soft_driver;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeDriverGet(uint32_t *count, ze_driver_handle_t *out)
{
    SOFT_CALL();
    return get_drivers(count, out);
}

#if SOFT_HAS_API_1_12

static ze_result_t ZE_APICALL soft_zeInitDrivers(uint32_t *count, ze_driver_handle_t *out,
                                                 ze_init_driver_type_desc_t *desc)
{
    ze_result_t err;

    SOFT_CALL();
    if (count == NULL || desc == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->flags == 0)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if ((desc->flags & (uint32_t)ZE_INIT_DRIVER_TYPE_FLAG_GPU) == 0)
        return ZE_RESULT_ERROR_UNINITIALIZED;
    err = initialise();
    return err == ZE_RESULT_SUCCESS ? get_drivers(count, out) : err;
}

#endif

SOFT_TABLE(zeGetGlobalProcAddrTable, ze_global_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnInit, soft_zeInit);
#if SOFT_HAS_API_1_12
    SOFT_FIELD(1, 10, pfnInitDrivers, soft_zeInitDrivers);
#endif
    return ZE_RESULT_SUCCESS;
}

/* --- the driver ------------------------------------------------------------------------ */

#define DRIVER_OR_RETURN(h, pointer)                                                               \
    do {                                                                                           \
        SOFT_CALL();                                                                               \
        if (!is_driver(h))                                                                         \
            return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;                                            \
        if ((pointer) == NULL)                                                                     \
            return ZE_RESULT_ERROR_INVALID_NULL_POINTER;                                           \
    } while (0)

static ze_result_t ZE_APICALL soft_zeDriverGetApiVersion(ze_driver_handle_t h,
                                                         ze_api_version_t  *out)
{
    DRIVER_OR_RETURN(h, out);
#if SOFT_HAS_API_1_12
    *out = (ze_api_version_t)ZE_MAKE_VERSION(1, 12);
#else
    *out = (ze_api_version_t)ZE_MAKE_VERSION(1, 4);
#endif
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeDriverGetProperties(ze_driver_handle_t      h,
                                                         ze_driver_properties_t *out)
{
    static const char                       uuid[ZE_MAX_DRIVER_UUID_SIZE] = "ze_soft driver";
    ze_driver_memory_free_ext_properties_t *policies;

    DRIVER_OR_RETURN(h, out);
    memcpy(out->uuid.id, uuid, sizeof(uuid));
    out->driverVersion = (uint32_t)soft_knob("DRIVER", DRIVER_VERSION);
    policies           = (void *)(uintptr_t)soft_chain_find(
                  out->pNext, ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES);
    if (policies != NULL)
        policies->freePolicies = (uint32_t)ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE |
                                 (uint32_t)ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeDriverGetIpcProperties(ze_driver_handle_t          h,
                                                            ze_driver_ipc_properties_t *out)
{
    DRIVER_OR_RETURN(h, out);
    out->flags = ZE_IPC_PROPERTY_FLAG_MEMORY;
    return ZE_RESULT_SUCCESS;
}

static const ze_driver_extension_properties_t extensions[] = {
    {ZE_RELAXED_ALLOCATION_LIMITS_EXP_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_GLOBAL_OFFSET_EXP_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_MODULE_PROGRAM_EXP_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_LINKAGE_INSPECTION_EXT_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_PCI_PROPERTIES_EXT_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_EU_COUNT_EXT_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_DEVICE_MEMORY_PROPERTIES_EXT_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_MEMORY_FREE_POLICIES_EXT_NAME, ZE_MAKE_VERSION(1, 0)},
    {COUNTER_BASED_NAME, ZE_MAKE_VERSION(1, 0)},
    {COPY_OFFLOAD_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_KERNEL_SCHEDULING_HINTS_EXP_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_EVENT_QUERY_TIMESTAMPS_EXP_NAME, ZE_MAKE_VERSION(1, 0)},
#if SOFT_HAS_API_1_12
    {ZE_KERNEL_MAX_GROUP_SIZE_PROPERTIES_EXT_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_DEVICE_IP_VERSION_EXT_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_COMMAND_LIST_CLONE_EXP_NAME, ZE_MAKE_VERSION(1, 0)},
    {ZE_IMMEDIATE_COMMAND_LIST_APPEND_EXP_NAME, ZE_MAKE_VERSION(1, 0)},
#endif
};

static ze_result_t ZE_APICALL soft_zeDriverGetExtensionProperties(
    ze_driver_handle_t h, uint32_t *count, ze_driver_extension_properties_t *out)
{
    DRIVER_OR_RETURN(h, count);
    if (soft_count(count, sizeof(extensions) / sizeof(extensions[0])) && out != NULL)
        memcpy(out, extensions, *count * sizeof(*out));
    return ZE_RESULT_SUCCESS;
}

/* None beside those of the tables. */
static ze_result_t ZE_APICALL soft_zeDriverGetExtensionFunctionAddress(ze_driver_handle_t h,
                                                                       const char *name, void **out)
{
    DRIVER_OR_RETURN(h, name);
    if (out == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

#if SOFT_HAS_API_1_12

static ze_result_t ZE_APICALL soft_zeDriverGetLastErrorDescription(ze_driver_handle_t h,
                                                                   const char       **out)
{
    DRIVER_OR_RETURN(h, out);
    *out = "";
    return ZE_RESULT_SUCCESS;
}

#endif

SOFT_TABLE(zeGetDriverProcAddrTable, ze_driver_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnGet, soft_zeDriverGet);
    SOFT_FIELD(1, 0, pfnGetApiVersion, soft_zeDriverGetApiVersion);
    SOFT_FIELD(1, 0, pfnGetProperties, soft_zeDriverGetProperties);
    SOFT_FIELD(1, 0, pfnGetIpcProperties, soft_zeDriverGetIpcProperties);
    SOFT_FIELD(1, 0, pfnGetExtensionProperties, soft_zeDriverGetExtensionProperties);
    SOFT_FIELD(1, 1, pfnGetExtensionFunctionAddress, soft_zeDriverGetExtensionFunctionAddress);
#if SOFT_HAS_API_1_12
    SOFT_FIELD(1, 6, pfnGetLastErrorDescription, soft_zeDriverGetLastErrorDescription);
#endif
    return ZE_RESULT_SUCCESS;
}

/* --- images, samplers ------------------------------------------------------------------- */

static ze_result_t ZE_APICALL no_image_properties(ze_device_handle_t     device,
                                                  const ze_image_desc_t *desc,
                                                  ze_image_properties_t *out)
{
    (void)device;
    (void)desc;
    (void)out;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static ze_result_t ZE_APICALL no_image(ze_context_handle_t ctx, ze_device_handle_t device,
                                       const ze_image_desc_t *desc, ze_image_handle_t *out)
{
    (void)ctx;
    (void)device;
    (void)desc;
    (void)out;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static ze_result_t ZE_APICALL no_image_destroy(ze_image_handle_t image)
{
    (void)image;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

SOFT_TABLE(zeGetImageProcAddrTable, ze_image_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnGetProperties, no_image_properties);
    SOFT_FIELD(1, 0, pfnCreate, no_image);
    SOFT_FIELD(1, 0, pfnDestroy, no_image_destroy);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL no_sampler(ze_context_handle_t ctx, ze_device_handle_t device,
                                         const ze_sampler_desc_t *desc, ze_sampler_handle_t *out)
{
    (void)ctx;
    (void)device;
    (void)desc;
    (void)out;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static ze_result_t ZE_APICALL no_sampler_destroy(ze_sampler_handle_t sampler)
{
    (void)sampler;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

SOFT_TABLE(zeGetSamplerProcAddrTable, ze_sampler_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnCreate, no_sampler);
    SOFT_FIELD(1, 0, pfnDestroy, no_sampler_destroy);
    return ZE_RESULT_SUCCESS;
}

/* --- tools -------------------------------------------------------------------------------- */

SOFT_TABLE_EMPTY(zetGetDeviceProcAddrTable, zet_device_dditable_t)
SOFT_TABLE_EMPTY(zetGetContextProcAddrTable, zet_context_dditable_t)
SOFT_TABLE_EMPTY(zetGetCommandListProcAddrTable, zet_command_list_dditable_t)
SOFT_TABLE_EMPTY(zetGetKernelProcAddrTable, zet_kernel_dditable_t)
SOFT_TABLE_EMPTY(zetGetModuleProcAddrTable, zet_module_dditable_t)
SOFT_TABLE_EMPTY(zetGetDebugProcAddrTable, zet_debug_dditable_t)
SOFT_TABLE_EMPTY(zetGetMetricProcAddrTable, zet_metric_dditable_t)
SOFT_TABLE_EMPTY(zetGetMetricGroupProcAddrTable, zet_metric_group_dditable_t)
SOFT_TABLE_EMPTY(zetGetMetricQueryProcAddrTable, zet_metric_query_dditable_t)
SOFT_TABLE_EMPTY(zetGetMetricQueryPoolProcAddrTable, zet_metric_query_pool_dditable_t)
SOFT_TABLE_EMPTY(zetGetMetricStreamerProcAddrTable, zet_metric_streamer_dditable_t)
SOFT_TABLE_EMPTY(zetGetTracerExpProcAddrTable, zet_tracer_exp_dditable_t)
