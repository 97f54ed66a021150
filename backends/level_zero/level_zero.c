/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The module's entry and its table.  Nothing is done here: the driver is not even looked for before
 * the first devices().  Called by the core's module loader. */
#include "program.h"
#include "queue.h"

#include "base/inline/module.h"

const usm_host_api *lz_host;

static const usm_backend_ops ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(usm_backend_ops),
    .name        = "level_zero",
    .caps = USM_CAP_QUEUES | USM_CAP_NOTIFY | USM_CAP_KERNELS | USM_CAP_PARTITION | USM_CAP_NATIVE |
            USM_CAP_MEMINFO | USM_CAP_PEER | USM_CAP_IPC | USM_CAP_VMEM | USM_CAP_GROUPS,

    .devices         = lz_devices,
    .context_create  = lz_context_create,
    .context_destroy = lz_context_destroy,
    .mem_alloc       = lz_mem_alloc,
    .mem_free        = lz_mem_free,

    .sub_devices     = lz_sub_devices,
    .device_memory   = lz_device_memory,
    .can_access_peer = lz_can_access_peer,

    .queue_create  = lz_queue_create,
    .queue_destroy = lz_queue_destroy,
    .queue_wait    = lz_queue_wait,
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
    .event_profiling   = lz_event_profiling,
    .event_release     = gate_event_release,
    .event_notify      = gate_event_notify,

    .program_build   = lz_program_build,
    .program_destroy = lz_program_destroy,
    .program_binary  = lz_program_binary,
    .program_kernels = lz_program_kernels,
    .kernel_create   = lz_kernel_create,
    .kernel_destroy  = lz_kernel_destroy,
    .kernel_info     = lz_kernel_info,
    .kernel_groups   = lz_kernel_groups,
    .launch          = lz_launch,

    .ipc_alloc = lz_ipc_alloc,
    .ipc_get   = lz_ipc_get,
    .ipc_put   = lz_ipc_put,
    .ipc_open  = lz_ipc_open,
    .ipc_close = lz_ipc_close,

    .vmem_granularity = lz_vmem_granularity,
    .vmem_reserve     = lz_vmem_reserve,
    .vmem_release     = lz_vmem_release,
    .phys_create      = lz_phys_create,
    .phys_destroy     = lz_phys_destroy,
    .vmem_map         = lz_vmem_map,
    .vmem_unmap       = lz_vmem_unmap,

    .context_from_native = lz_context_from_native,
    .context_native      = lz_context_native,
    .device_native       = lz_device_native,
    .queue_from_native   = lz_queue_from_native,
    .queue_native        = lz_queue_native,
    .event_from_native   = lz_event_from_native,
    .event_native        = lz_event_native,
};

USM_API usm_backend_entry_fn usm_backend_entry;

const usm_backend_ops *usm_backend_entry(const usm_host_api *api)
{
    if (!usm_module_fits(api, "the Level Zero backend"))
        return NULL;
    lz_host = api;
    return &ops;
}
