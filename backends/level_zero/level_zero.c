/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The module's entry and its table.  Nothing is done here: the driver is not even looked for before
 * the first devices().  Called by the core's module loader. */
#include "program.h"
#include "queue.h"

const usm_host_api *lz_host;

#define LZ_ENTRY(member) .member = lz_##member,

/* clang-format off */
static const usm_backend_ops ops = {
    LZ_OPS(LZ_ENTRY) DRIVER_OPS(DRIVER_ENTRY) DEFER_OPS(DEFER_ENTRY)

    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(usm_backend_ops),
    .name        = "level_zero",
    .caps = USM_CAP_QUEUES | USM_CAP_NOTIFY | USM_CAP_KERNELS | USM_CAP_PARTITION | USM_CAP_NATIVE |
            USM_CAP_MEMINFO | USM_CAP_PEER | USM_CAP_IPC | USM_CAP_VMEM | USM_CAP_GROUPS,
};
/* clang-format on */

USM_API usm_backend_entry_fn usm_backend_entry;

const usm_backend_ops *usm_backend_entry(const usm_host_api *api)
{
    if (!usm_module_fits(api, "the Level Zero backend"))
        return NULL;
    lz_host = api;
    return &ops;
}
