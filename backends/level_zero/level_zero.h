/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the Level Zero backend: the driver's entry points, drivers, devices,
 * contexts, memory.  queue.h has queues and events, program.h modules and kernels.  Not here: the
 * interface to the core, which is usm/backend.h alone.
 *
 * Nothing of Level Zero is linked: functions are called as `lz.zeMemFree(...)` through a table that
 * loader.c fills from the real loader, libze_loader.so.1.  Headers of any age can build this
 * (Debian 12 has API 1.4): newer declarations are in compat.h under names of our own, and the
 * functions are looked up at run time.
 *
 * Locks: the registry's before a context's, before a stream's.  The driver may be called with any
 * of them held, the core with none. */
#ifndef USM_BACKENDS_LEVEL_ZERO_H
#define USM_BACKENDS_LEVEL_ZERO_H

#include "../common/defer.h"
#include "../common/registry.h"
#include "base/inline/atomic.h"
#include "base/inline/list.h"
#include "base/inline/module.h"
#include "compat.h"

#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>
#include <pthread.h>
#include <usm/backend.h>

/* --- the driver's functions (loader.c, status.c) ---------------------------- */

/* Functions of API 1.0, which are required. */
#define LZ_REQUIRED(X)                                                                             \
    X(zeInit)                                                                                      \
    X(zeDriverGet)                                                                                 \
    X(zeDriverGetApiVersion)                                                                       \
    X(zeDriverGetProperties)                                                                       \
    X(zeDriverGetExtensionProperties)                                                              \
    X(zeDeviceGet)                                                                                 \
    X(zeDeviceGetSubDevices)                                                                       \
    X(zeDeviceGetProperties)                                                                       \
    X(zeDeviceGetComputeProperties)                                                                \
    X(zeDeviceGetModuleProperties)                                                                 \
    X(zeDeviceGetCommandQueueGroupProperties)                                                      \
    X(zeDeviceGetMemoryProperties)                                                                 \
    X(zeDeviceGetMemoryAccessProperties)                                                           \
    X(zeDeviceCanAccessPeer)                                                                       \
    X(zeDeviceGetStatus)                                                                           \
    X(zeDeviceGetGlobalTimestamps)                                                                 \
    X(zeContextCreate)                                                                             \
    X(zeContextDestroy)                                                                            \
    X(zeContextGetStatus)                                                                          \
    X(zeContextMakeMemoryResident)                                                                 \
    X(zeContextEvictMemory)                                                                        \
    X(zeMemAllocShared)                                                                            \
    X(zeMemAllocDevice)                                                                            \
    X(zeMemAllocHost)                                                                              \
    X(zeMemFree)                                                                                   \
    X(zeMemGetAllocProperties)                                                                     \
    X(zeMemGetAddressRange)                                                                        \
    X(zeMemGetIpcHandle)                                                                           \
    X(zeMemOpenIpcHandle)                                                                          \
    X(zeMemCloseIpcHandle)                                                                         \
    X(zeVirtualMemReserve)                                                                         \
    X(zeVirtualMemFree)                                                                            \
    X(zeVirtualMemQueryPageSize)                                                                   \
    X(zeVirtualMemMap)                                                                             \
    X(zeVirtualMemUnmap)                                                                           \
    X(zePhysicalMemCreate)                                                                         \
    X(zePhysicalMemDestroy)                                                                        \
    X(zeCommandQueueCreate)                                                                        \
    X(zeCommandQueueDestroy)                                                                       \
    X(zeCommandQueueExecuteCommandLists)                                                           \
    X(zeCommandQueueSynchronize)                                                                   \
    X(zeCommandListCreate)                                                                         \
    X(zeCommandListCreateImmediate)                                                                \
    X(zeCommandListDestroy)                                                                        \
    X(zeCommandListClose)                                                                          \
    X(zeCommandListReset)                                                                          \
    X(zeCommandListAppendBarrier)                                                                  \
    X(zeCommandListAppendWaitOnEvents)                                                             \
    X(zeCommandListAppendSignalEvent)                                                              \
    X(zeCommandListAppendMemoryCopy)                                                               \
    X(zeCommandListAppendMemoryCopyRegion)                                                         \
    X(zeCommandListAppendMemoryFill)                                                               \
    X(zeCommandListAppendMemoryPrefetch)                                                           \
    X(zeCommandListAppendMemAdvise)                                                                \
    X(zeCommandListAppendLaunchKernel)                                                             \
    X(zeEventPoolCreate)                                                                           \
    X(zeEventPoolDestroy)                                                                          \
    X(zeEventCreate)                                                                               \
    X(zeEventDestroy)                                                                              \
    X(zeEventHostSignal)                                                                           \
    X(zeEventHostSynchronize)                                                                      \
    X(zeEventQueryStatus)                                                                          \
    X(zeEventHostReset)                                                                            \
    X(zeEventQueryKernelTimestamp)                                                                 \
    X(zeModuleCreate)                                                                              \
    X(zeModuleDestroy)                                                                             \
    X(zeModuleBuildLogDestroy)                                                                     \
    X(zeModuleBuildLogGetString)                                                                   \
    X(zeModuleGetNativeBinary)                                                                     \
    X(zeModuleGetKernelNames)                                                                      \
    X(zeKernelCreate)                                                                              \
    X(zeKernelDestroy)                                                                             \
    X(zeKernelSetGroupSize)                                                                        \
    X(zeKernelSuggestGroupSize)                                                                    \
    X(zeKernelSetArgumentValue)                                                                    \
    X(zeKernelSetIndirectAccess)                                                                   \
    X(zeKernelGetProperties)

/* NULL in an old loader, or if the driver lacks them (then they return UNSUPPORTED_FEATURE). */
#define LZ_OPTIONAL(X)                                                                             \
    X(zeDevicePciGetPropertiesExt)                                                                 \
    X(zeKernelSetGlobalOffsetExp)                                                                  \
    X(zesDeviceGetProperties)                                                                      \
    X(zesDevicePciGetProperties)                                                                   \
    X(zesDeviceEnumMemoryModules)                                                                  \
    X(zesMemoryGetProperties)                                                                      \
    X(zesMemoryGetState)

/* Newer than the oldest headers: types in compat.h. */
#define LZ_LATER(X)                                                                                \
    X(zeInitDrivers)                                                                               \
    X(zeCommandListHostSynchronize)                                                                \
    X(zeMemPutIpcHandle)                                                                           \
    X(zeMemGetIpcHandleFromFileDescriptorExp)                                                      \
    X(zeMemGetFileDescriptorFromIpcHandleExp)                                                      \
    X(zeDeviceGetRootDevice)                                                                       \
    X(zesInit)                                                                                     \
    X(zesDriverGet)                                                                                \
    X(zesDeviceGet)                                                                                \
    X(zesDriverGetDeviceByUuidExp)                                                                 \
    X(zelLoaderTranslateHandle)

typedef struct lz_functions {
#define LZ_MEMBER(name) __typeof__(&name) name;
    LZ_REQUIRED(LZ_MEMBER)
    LZ_OPTIONAL(LZ_MEMBER)
#undef LZ_MEMBER
#define LZ_MEMBER(name) lz_##name##_fn name;
    LZ_LATER(LZ_MEMBER)
#undef LZ_MEMBER
    void *library; /* NULL until it is loaded: under the lock of the registry of devices */
} lz_functions;

extern lz_functions        lz;
extern const usm_host_api *lz_host;

/* Opens the loader once; false with the reason.  Registry lock held. */
bool lz_load(char *why, size_t why_size);
/* Initialises the drivers and lists at most cap; *call is the name of the call that failed. */
ze_result_t lz_init_drivers(ze_driver_handle_t *list, uint32_t cap, uint32_t *count,
                            const char **call);

/* The only conversion of Level Zero's codes to statuses, and the name of a code. */
usm_status  native_to_status(ze_result_t code);
const char *lz_error_name(ze_result_t code);
/* Reports: "<what> failed: ZE_RESULT_ERROR_DEVICE_LOST (0x70000001); remedy". */
usm_status lz_fail(ze_result_t code, const char *what);
#define lz_no_memory() lz_report(USM_E_NO_MEMORY, "the host heap is exhausted")
/* The origin of every failure.  A macro, so that analysers see that the path fails. */
#define lz_report(status, ...) ((void)lz_host->report((status), __VA_ARGS__), (status))

/* --- drivers and devices (device.c, describe.c, part.c, sysman.c) ----------- */

/* Drivers and devices live as long as the process. */
typedef struct lz_driver {
    registry_driver    link; /* first member */
    ze_driver_handle_t native;
    uint32_t           version; /* ZE_MAJOR_VERSION << 16 | minor, of its API              */
    bool               has_relaxed_limits; /* ZE_experimental_relaxed_allocation_limits      */
    bool               has_global_offset;  /* ZE_experimental_global_offset                  */
    bool               has_in_order;       /* in-order command lists: API 1.7                */
    bool               has_copy_offload;   /* LZ_COPY_OFFLOAD_NAME                           */
    bool               has_pci;            /* ZE_extension_pci_properties                    */
    uint32_t           number;             /* its version: Intel's contains the build number */
    char               text[32];           /* the same, "1.3.24595"                          */
} lz_driver;

#define LZ_INTEL 0x8086u /* vendorId */

/* Where sysman reports a device's memory. */
typedef struct lz_sysman {
    bool                is_asked;
    zes_device_handle_t native;     /* NULL: not found                             */
    bool                is_on_part; /* only the memory of sub-device number `part` */
    uint32_t            part;
} lz_sysman;

typedef struct lz_device lz_device;
struct lz_device {
    registry_device link; /* first member */
    /* fixed after create */
    ze_device_handle_t                   native;
    lz_driver                           *driver;
    lz_device                           *parent; /* of a sub-device                             */
    ze_device_properties_t               properties;
    ze_device_memory_access_properties_t access;
    uint32_t                             ordinal; /* of the queue group for kernels and copies   */
    uint32_t                             nqueues; /* in that group                               */
    double                               tick_ns; /* of the device's timer                       */
    uint64_t                             timestamp_mask; /* valid bits of kernel timestamps       */
    bool               is_tile; /* a root device that shares its PCI address with others: FLAT */
    usm_backend_device info;
    /* atomic */
    _Atomic uint32_t next_queue; /* index for the next native queue */
    /* guarded by the registry lock */
    lz_sysman sysman;
};

extern registry lz_registry;

/* Fills dev->info and the other fields with queries of the driver (native, driver, parent are set).
 * USM_E_NOT_SUPPORTED: a device that libusm cannot use. */
usm_status lz_device_describe(lz_device *dev);
/* Fills a driver's fields with queries (native is set). */
usm_status lz_driver_describe(lz_driver *driver);
/* Makes a record, not yet published. */
usm_status lz_device_new(lz_driver *driver, ze_device_handle_t native, lz_device *parent,
                         lz_device **dev);
/* The registry's list_parts. */
usm_status lz_list_parts(registry_device *dev, registry_found *found);
/* The record of a native device, made if it is new; USM_E_INVALID for a foreign one. */
usm_status lz_device_find(ze_device_handle_t native, lz_device **dev);
/* Loads and lists if that was not done; USM_E_NO_BACKEND without a loader or driver. */
usm_status lz_devices_need(void);
/* The root devices, if there is only one driver; otherwise USM_E_INVALID.  A copy on the host
 * heap. */
usm_status lz_only_driver_devices(size_t *count, lz_device ***list);

/* --- contexts and memory (context.c, memory.c, ipc.c, vmem.c) ---------------- */

typedef struct lz_event_pools lz_event_pools; /* pool.c */

typedef struct lz_context {
    defer_context deferral; /* first member */
    /* fixed after create */
    ze_context_handle_t native;
    bool                is_owned; /* destroyed with this object */
    lz_driver          *driver;
    lz_event_pools     *events; /* made with the context, freed with it (queue.h) */
    size_t              ndevices;
    lz_device          *devices[];
} lz_context;

/* Frees and unmaps on a lost device count as successful. */
usm_status lz_free_status(ze_result_t code, const char *what);

/* Makes a context over a native one; is_owned: the new object destroys it.  On failure the caller
 * keeps it. */
usm_status lz_context_wrap(ze_context_handle_t native, bool is_owned, size_t n,
                           lz_device *const *devices, lz_context **ctx);
void lz_context_free(defer_context *ctx); /* the deferral queue's context_free                  */

/* --- the table ---------------------------------------------------------------- */

/* The functions of the backend's table, by the file that has them. */
/* clang-format off */
#define LZ_OPS(X)                                                                                  \
    /* device.c, part.c, sysman.c */                                                               \
    X(devices) X(sub_devices) X(can_access_peer) X(device_memory)                                  \
    /* context.c, memory.c */                                                                      \
    X(context_create) X(context_destroy) X(mem_alloc) X(mem_free)                                  \
    /* ipc.c, vmem.c */                                                                            \
    X(ipc_alloc) X(ipc_get) X(ipc_put) X(ipc_open) X(ipc_close) X(vmem_granularity)                \
    X(vmem_reserve) X(vmem_release) X(phys_create) X(phys_destroy) X(vmem_map) X(vmem_unmap)       \
    /* queue.c, event.c */                                                                         \
    X(queue_create) X(queue_destroy) X(queue_wait) X(event_profiling)                              \
    /* program.c, kernel.c */                                                                      \
    X(program_build) X(program_destroy) X(program_binary) X(program_kernels) X(kernel_create)      \
    X(kernel_destroy) X(kernel_info) X(kernel_groups) X(launch)                                    \
    /* native.c; queue_native.c, event.c: a queue is passed, and returned, as a usm_level_zero_queue
     * */\
    X(context_from_native) X(context_native) X(device_native) X(queue_from_native)                 \
    X(queue_native) X(event_from_native) X(event_native)
/* clang-format on */
#define LZ_DECLARE(member) USM_DECLARE_ENTRY(usm_backend_ops, member, lz_##member);
LZ_OPS(LZ_DECLARE)
#undef LZ_DECLARE

#endif
