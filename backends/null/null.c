/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The null backend: one device with memory that does not exist, for measuring pools without the
 * cost of a driver, and for replaying traces of larger devices.
 *
 * No kind of its memory may be accessed: a pool that does so crashes at that instruction.  Only a
 * selector that names `null` finds the device.  Here: the table, the device, contexts.  Called by
 * the core, which loads this module. */
#include "null.h"

#include <usm/version.h>

null_state null; /* fixed at the entry, but for what is atomic */

#define ASPECT(name) (UINT64_C(1) << USM_ASPECT_##name)

static usm_status null_devices(usm_backend_device *list, size_t cap, size_t *count)
{
    if (cap > 0)
        list[0] = (usm_backend_device){
            .handle         = &null,
            .platform       = &null,
            .type           = USM_DEVICE_TYPE_ACCELERATOR,
            .name           = "memory that is not there",
            .platform_name  = "null",
            .vendor         = "libusm",
            .driver_version = USM_VERSION_STRING,
            .aspects        = ASPECT(USM_DEVICE_ALLOCATIONS) | ASPECT(USM_HOST_ALLOCATIONS) |
                       ASPECT(USM_SHARED_ALLOCATIONS) | ASPECT(OUT_OF_ORDER_QUEUE),
            .compute_units       = 1,
            .memory_size         = null.limit,
            .max_alloc_size      = null.limit,
            .max_work_group_size = 1,
            .max_align           = USM_MAX_ALIGNMENT,
            .max_fill_pattern    = SIZE_MAX,
        };
    *count = 1;
    return USM_OK;
}

static usm_status null_context_create(size_t ndevices, void *const *devices, void **ctx)
{
    (void)ndevices;
    (void)devices;
    *ctx = &null;
    return USM_OK;
}

static void null_context_destroy(void *ctx)
{
    (void)ctx;
}

#define NULL_ENTRY(member) .member = null_##member,

/* clang-format off */
static const usm_backend_ops null_ops = {
    NULL_OPS(NULL_ENTRY) /* null.h */

    .abi             = USM_MODULE_ABI,
    .struct_size     = sizeof(usm_backend_ops),
    .name            = "null",
    .caps            = USM_CAP_QUEUES | USM_CAP_MEMINFO | USM_CAP_FORK_MEMORY | USM_CAP_NO_ACCESS,
    .devices         = null_devices,
    .context_create  = null_context_create,
    .context_destroy = null_context_destroy,
    .barrier         = null_marker,
    .event_wait      = null_event_query,
};
/* clang-format on */

USM_API usm_backend_entry_fn usm_backend_entry;

const usm_backend_ops *usm_backend_entry(const usm_host_api *api)
{
    if (!usm_module_fits(api, "the null backend"))
        return NULL;
    null.api   = api;
    null.limit = api->setting_size("null_memory");
    null.ops   = null_ops;
    if (api->setting_bool("null_vmem"))
        null.ops.caps |= USM_CAP_VMEM;
    return &null.ops;
}
