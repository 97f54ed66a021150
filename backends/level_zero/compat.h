/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The parts of Level Zero that are newer than the oldest headers this backend builds with (API
 * 1.4), under names of our own, so that headers of any age can be used.  Values and layouts are
 * those of the Level Zero specification; the version in brackets is the one that introduced
 * them. */
#ifndef USM_BACKENDS_LEVEL_ZERO_COMPAT_H
#define USM_BACKENDS_LEVEL_ZERO_COMPAT_H

#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>

#define LZ_API(major, minor) (((uint32_t)(major) << 16) | (uint32_t)(minor))

/* [1.10] zeInitDrivers */
#define LZ_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC 0x00020021
#define LZ_INIT_DRIVER_TYPE_FLAG_GPU            0x1u
typedef struct lz_init_driver_type_desc {
    uint32_t    stype;
    const void *pNext;
    uint32_t    flags;
} lz_init_driver_type_desc;
typedef ze_result_t(ZE_APICALL *lz_zeInitDrivers_fn)(uint32_t *count, ze_driver_handle_t *drivers,
                                                     lz_init_driver_type_desc *desc);

/* [1.7] in-order command lists */
#define LZ_COMMAND_QUEUE_FLAG_IN_ORDER 0x2u
#define LZ_COMMAND_LIST_FLAG_IN_ORDER  0x8u

/* An extension of Intel's driver (2024): copies of a list for kernels may go to copy engines. */
#define LZ_COPY_OFFLOAD_NAME           "ZEX_intel_experimental_queue_copy_operations_offload_hint"
#define LZ_STRUCTURE_TYPE_COPY_OFFLOAD 0x0003001b
typedef struct lz_copy_offload_desc {
    uint32_t    stype;
    const void *pNext;
    ze_bool_t   is_wanted;
} lz_copy_offload_desc;

/* [1.6] */
typedef ze_result_t(ZE_APICALL *lz_zeCommandListHostSynchronize_fn)(ze_command_list_handle_t list,
                                                                    uint64_t timeout_ns);
typedef ze_result_t(ZE_APICALL *lz_zeMemPutIpcHandle_fn)(ze_context_handle_t ctx,
                                                         ze_ipc_mem_handle_t handle);
typedef ze_result_t(ZE_APICALL *lz_zeMemGetIpcHandleFromFileDescriptorExp_fn)(
    ze_context_handle_t ctx, uint64_t fd, ze_ipc_mem_handle_t *handle);
typedef ze_result_t(ZE_APICALL *lz_zeMemGetFileDescriptorFromIpcHandleExp_fn)(
    ze_context_handle_t ctx, ze_ipc_mem_handle_t handle, uint64_t *fd);

/* [1.7] */
typedef ze_result_t(ZE_APICALL *lz_zeDeviceGetRootDevice_fn)(ze_device_handle_t  dev,
                                                             ze_device_handle_t *root);

/* [1.5] sysman without an environment variable */
typedef ze_result_t(ZE_APICALL *lz_zesInit_fn)(uint32_t flags);
typedef ze_result_t(ZE_APICALL *lz_zesDriverGet_fn)(uint32_t *count, zes_driver_handle_t *drivers);
typedef ze_result_t(ZE_APICALL *lz_zesDeviceGet_fn)(zes_driver_handle_t driver, uint32_t *count,
                                                    zes_device_handle_t *devices);

/* [1.8] an extension of sysman: finds the device, or sub-device, with a UUID */
typedef struct lz_zes_uuid {
    uint8_t id[16];
} lz_zes_uuid;
typedef ze_result_t(ZE_APICALL *lz_zesDriverGetDeviceByUuidExp_fn)(zes_driver_handle_t  driver,
                                                                   lz_zes_uuid          uuid,
                                                                   zes_device_handle_t *dev,
                                                                   ze_bool_t           *is_on_part,
                                                                   uint32_t            *part);

/* A function of the loader itself [1.0]: translates a handle of the loader to the driver's.  They
 * are the same unless the loader intercepts calls, as it does with several drivers. */
#define LZ_HANDLE_DEVICE 1
typedef ze_result_t(ZE_APICALL *lz_zelLoaderTranslateHandle_fn)(int type, void *in, void **out);

#endif
