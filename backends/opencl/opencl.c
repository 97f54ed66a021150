/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The module's entry and its table.  Nothing is done here: the driver is not even looked for before
 * the first devices().  Called by the core's module loader. */
#include "opencl.h"

const usm_host_api *ocl_host;

#define OCL_ENTRY(member) .member = ocl_##member,

/* clang-format off */
static const usm_backend_ops ops = {
    OCL_OPS(OCL_ENTRY) DRIVER_OPS(DRIVER_ENTRY) DEFER_OPS(DEFER_ENTRY)

    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(usm_backend_ops),
    .name        = "opencl",
    /* No USM_CAP_PEER: OpenCL has nothing for it. */
    .caps = USM_CAP_QUEUES | USM_CAP_NOTIFY | USM_CAP_KERNELS | USM_CAP_PARTITION | USM_CAP_NATIVE |
            USM_CAP_MEMINFO | USM_CAP_GROUPS,
};
/* clang-format on */

USM_API usm_backend_entry_fn usm_backend_entry;

const usm_backend_ops *usm_backend_entry(const usm_host_api *api)
{
    if (!usm_module_fits(api, "the OpenCL backend"))
        return NULL;
    ocl_host = api;
    return &ops;
}
