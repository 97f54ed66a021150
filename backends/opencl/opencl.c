/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The module's entry and its table.  Nothing is done here: the driver is not even looked for before
 * the first devices().  Called by the core's module loader. */
#include "opencl.h"

#include "base/inline/module.h"

const usm_host_api *ocl_host;

static const usm_backend_ops ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(usm_backend_ops),
    .name        = "opencl",
    /* No USM_CAP_PEER: OpenCL has nothing for it. */
    .caps = USM_CAP_QUEUES | USM_CAP_NOTIFY | USM_CAP_KERNELS | USM_CAP_PARTITION | USM_CAP_NATIVE |
            USM_CAP_MEMINFO | USM_CAP_GROUPS,

    .devices         = ocl_devices,
    .context_create  = ocl_context_create,
    .context_destroy = ocl_context_destroy,
    .mem_alloc       = ocl_mem_alloc,
    .mem_free        = ocl_mem_free,

    .sub_devices   = ocl_sub_devices,
    .device_memory = ocl_device_memory,

    .queue_create  = ocl_queue_create,
    .queue_destroy = ocl_queue_destroy,
    .queue_wait    = ocl_queue_wait,
    .copy          = driver_copy,
    .copy_2d       = driver_copy_2d,
    .fill          = driver_fill,
    .prefetch      = driver_prefetch,
    .advise        = driver_advise,
    .marker        = driver_marker,
    .barrier       = driver_barrier,

    .event_create_user = gate_event_create_user,
    .event_signal      = gate_event_signal,
    .event_query       = gate_event_query,
    .event_wait        = gate_event_wait,
    .event_profiling   = ocl_event_profiling,
    .event_release     = gate_event_release,
    .event_notify      = gate_event_notify,

    .program_build   = ocl_program_build,
    .program_destroy = ocl_program_destroy,
    .program_binary  = ocl_program_binary,
    .program_kernels = ocl_program_kernels,
    .kernel_create   = ocl_kernel_create,
    .kernel_destroy  = ocl_kernel_destroy,
    .kernel_info     = ocl_kernel_info,
    .kernel_groups   = ocl_kernel_groups,
    .launch          = ocl_launch,

    .context_from_native = ocl_context_from_native,
    .context_native      = ocl_context_native,
    .device_native       = ocl_device_native,
    .queue_from_native   = ocl_queue_from_native,
    .queue_native        = ocl_queue_native,
    .event_from_native   = ocl_event_from_native,
    .event_native        = ocl_event_native,
};

USM_API usm_backend_entry_fn usm_backend_entry;

const usm_backend_ops *usm_backend_entry(const usm_host_api *api)
{
    if (!usm_module_fits(api, "the OpenCL backend"))
        return NULL;
    ocl_host = api;
    return &ops;
}
