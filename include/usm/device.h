/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Devices, and their selection.
 *
 * USM_DEVICE_SELECTOR selects the devices that a program sees.  It has the
 * grammar of ONEAPI_DEVICE_SELECTOR plus the backend `host`: `opencl:gpu`,
 * `host:*`, `*:cpu;!opencl:1`, `opencl:0.1` for a sub-device.  If it is not
 * set: GPUs (over Level Zero if that backend is installed, then over OpenCL),
 * CPUs over OpenCL, then the host.  A physical device that two backends offer
 * is listed once.
 *
 * Devices are immutable and valid until the process ends. */
#ifndef USM_DEVICE_H
#define USM_DEVICE_H

#include <usm/types.h>

USM_BEGIN_DECLS

/** X(name, text): capabilities of devices; the names are SYCL's. */
#define USM_ASPECT_LIST(X)                                                                         \
    X(CPU, "cpu")                                                                                  \
    X(GPU, "gpu")                                                                                  \
    X(ACCELERATOR, "accelerator")                                                                  \
    X(FP16, "fp16")                                                                                \
    X(FP64, "fp64")                                                                                \
    X(ATOMIC64, "atomic64")                                                                        \
    X(USM_DEVICE_ALLOCATIONS, "usm_device_allocations")                                            \
    X(USM_HOST_ALLOCATIONS, "usm_host_allocations")                                                \
    X(USM_ATOMIC_HOST_ALLOCATIONS, "usm_atomic_host_allocations")                                  \
    X(USM_SHARED_ALLOCATIONS, "usm_shared_allocations")                                            \
    X(USM_ATOMIC_SHARED_ALLOCATIONS, "usm_atomic_shared_allocations")                              \
    X(USM_SYSTEM_ALLOCATIONS, "usm_system_allocations")                                            \
    X(QUEUE_PROFILING, "queue_profiling")                                                          \
    X(OUT_OF_ORDER_QUEUE, "out_of_order_queue")                                                    \
    X(KERNELS, "kernels")                                                                          \
    X(IMAGE_OPENCL_C, "image_opencl_c")                                                            \
    X(IMAGE_SPIRV, "image_spirv")                                                                  \
    X(IMAGE_NATIVE, "image_native")                                                                \
    X(PARTITION, "partition")

typedef enum usm_aspect {
#define USM_ASPECT_ENUM(name, text) USM_ASPECT_##name,
    USM_ASPECT_LIST(USM_ASPECT_ENUM)
#undef USM_ASPECT_ENUM
        USM_ASPECT_COUNT
} usm_aspect;

/** Returns the aspect's name in SYCL's spelling; NULL for a number out of range. */
USM_API const char *usm_aspect_name(usm_aspect aspect);

typedef enum usm_device_type {
    USM_DEVICE_TYPE_CPU         = 1,
    USM_DEVICE_TYPE_GPU         = 2,
    USM_DEVICE_TYPE_ACCELERATOR = 3
} usm_device_type;

/** Properties of a device.  Texts are valid as long as the device. */
typedef struct usm_device_info {
    size_t          struct_size;
    usm_device_type type;
    const char     *backend;  /**< "host", "opencl", "level_zero" */
    const char     *name;     /**< as reported by the driver      */
    const char     *platform; /**< the driver's platform          */
    const char     *vendor;
    const char     *driver_version;
    const char     *selector; /**< the selector term for it, "opencl:0.1" */
    uint32_t        compute_units;
    uint32_t        sub_devices;    /**< how many "N.*" would select; 0: none            */
    uint64_t        memory_size;    /**< bytes                                           */
    uint64_t        max_alloc_size; /**< bytes of one allocation, without relaxed limits */
    size_t          max_work_group_size;
    size_t          local_memory_size; /**< bytes for one work-group */
    uint32_t        compute_threads;   /**< threads of this process that compute for the device on
                                          the host's processors; 0: none.  Two devices that have
                                          such threads share the cores */
} usm_device_info;
/** Sets struct_size, and everything else to zero. */
#define USM_DEVICE_INFO_INIT                                                                       \
    {                                                                                              \
        sizeof(usm_device_info), (usm_device_type)0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0,  \
            0, 0, 0, 0                                                                             \
    }

/** Memory of a device in bytes; `free` is USM_MEMORY_UNKNOWN where the driver
 * does not report it. */
typedef struct usm_memory_info {
    size_t   struct_size;
    uint64_t total;
    uint64_t free;   /**< of the whole device, as the driver reports it          */
    uint64_t pooled; /**< held by libusm's pools of this process, live or cached */
    uint64_t ours;   /**< in use by this program                                 */
} usm_memory_info;
#define USM_MEMORY_INFO_INIT                                                                       \
    {                                                                                              \
        sizeof(usm_memory_info), 0, 0, 0, 0                                                        \
    }
#define USM_MEMORY_UNKNOWN UINT64_MAX

/** Lists the devices that the selector selects, in its order.  Fills at most
 * `cap` entries (`list` may be NULL if cap is 0), and always sets *count to the
 * number of devices.
 *   USM_E_SELECTOR    the selector does not parse
 *   USM_E_NO_BACKEND  the selector names a backend that does not exist
 *   USM_E_ABI         that backend's module belongs to another libusm
 *   USM_E_NO_DEVICE   no device is left; the error message names those excluded */
USM_API USM_NODISCARD usm_status usm_get_devices(usm_device **list, size_t cap, size_t *count);

/** The same, with a selector given as text instead of the setting. */
USM_API USM_NODISCARD usm_status usm_select_devices(const char *selector, usm_device **list,
                                                    size_t cap, size_t *count);

USM_API bool                     usm_device_has(const usm_device *dev, usm_aspect aspect);
USM_API USM_NODISCARD usm_status usm_device_get_info(const usm_device *dev, usm_device_info *info);
USM_API USM_NODISCARD usm_status usm_device_memory(const usm_device *dev, usm_memory_info *info);

/** Returns the device that this one is a sub-device of; NULL for a root device. */
USM_API usm_device *usm_device_parent(const usm_device *dev);

/** Returns the native handle (cl_device_id, ze_device_handle_t), valid until the
 * process ends.  `backend` must be the device's backend, which guards against a
 * wrong cast.
 *   USM_E_NOT_SUPPORTED  the backend has no native objects */
USM_API USM_NODISCARD usm_status usm_device_get_native(const usm_device *dev, const char *backend,
                                                       void **handle);

/** Says whether kernels and copies of `dev` can access the device memory of
 * `peer`. */
USM_API USM_NODISCARD usm_status usm_device_can_access_peer(const usm_device *dev,
                                                            const usm_device *peer, bool *can);

USM_END_DECLS
#endif
