/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranges of addresses, and separately the device memory behind them.  For device memory only: the
 * driver has no such shared memory.  Unmapping and freeing succeed if the device is lost.  Called
 * by the core through the table. */
#include "level_zero.h"

#include <string.h>

/* Intel's driver gives a kernel that addresses its buffer through a surface the total length of the
 * pieces that were mapped when the argument was set.  Until April 2024 memory behind a gap, or
 * mapped later, was beyond the end of the surface.  24.22.29735 is the first release with the
 * change ("fix: kernel access to multiple stateful virtual regions").  The number is 0x01030000
 * plus the build. */
#define RIGHT_SINCE (0x01030000u + 29735u)

static bool maps_pieces(const lz_device *dev)
{
    const char *text = lz_host->setting("level_zero_vmem");

    if (text && strcmp(text, "auto") != 0)
        return strcmp(text, "on") == 0;
    return dev->properties.vendorId != LZ_INTEL || dev->driver->number >= RIGHT_SINCE;
}

usm_status lz_vmem_granularity(void *ctx, void *dev, usm_kind kind, size_t size,
                               size_t *granularity)
{
    size_t      page = 0;
    ze_result_t err;

    if (kind != USM_DEVICE)
        return lz_report(USM_E_NOT_SUPPORTED, "Level Zero maps device memory only");
    if (!maps_pieces(dev))
        return lz_report(USM_E_NOT_SUPPORTED,
                         "the driver %s is not used to map memory in pieces: %s",
                         ((lz_device *)dev)->driver->text,
                         "USM_LEVEL_ZERO_VMEM=on does so all the same, a driver since 24.22 does");
    err = lz.zeVirtualMemQueryPageSize(((lz_context *)ctx)->native, ((lz_device *)dev)->native,
                                       size, &page);
    if (err)
        return lz_fail(err, "zeVirtualMemQueryPageSize");
    *granularity = page;
    return USM_OK;
}

/* Any address is acceptable.  The validation layer of the loader 1.8 does not accept NULL for that,
 * so it gets an arbitrary hint. */
static ze_result_t reserve(ze_context_handle_t ctx, size_t size, void **p)
{
    const void *hint = (const void *)((uintptr_t)1 << 44);
    ze_result_t err  = lz.zeVirtualMemReserve(ctx, NULL, size, p);

    return err == ZE_RESULT_ERROR_INVALID_NULL_POINTER ? lz.zeVirtualMemReserve(ctx, hint, size, p)
                                                       : err;
}

usm_status lz_vmem_reserve(void *ctx, usm_kind kind, size_t size, void **p)
{
    void       *range = NULL;
    ze_result_t err   = reserve(((lz_context *)ctx)->native, size, &range);

    (void)kind;
    if (err || !range)
        return lz_fail(err ? err : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "zeVirtualMemReserve");
    *p = range;
    return USM_OK;
}

usm_status lz_vmem_release(void *ctx, void *p, size_t size)
{
    return lz_free_status(lz.zeVirtualMemFree(((lz_context *)ctx)->native, p, size),
                          "zeVirtualMemFree");
}

usm_status lz_phys_create(void *ctx, void *dev, usm_kind kind, size_t size, void **phys)
{
    ze_physical_mem_desc_t   desc   = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = size};
    ze_physical_mem_handle_t native = NULL;
    ze_result_t              err    = lz.zePhysicalMemCreate(((lz_context *)ctx)->native,
                                                             ((lz_device *)dev)->native, &desc, &native);

    (void)kind;
    if (err)
        return lz_fail(err, "zePhysicalMemCreate");
    *phys = native;
    return USM_OK;
}

usm_status lz_phys_destroy(void *ctx, void *phys)
{
    return lz_free_status(lz.zePhysicalMemDestroy(((lz_context *)ctx)->native, phys),
                          "zePhysicalMemDestroy");
}

usm_status lz_vmem_map(void *ctx, void *p, size_t size, void *phys, size_t offset)
{
    ze_result_t err = lz.zeVirtualMemMap(((lz_context *)ctx)->native, p, size, phys, offset,
                                         ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE);

    return err ? lz_fail(err, "zeVirtualMemMap") : USM_OK;
}

usm_status lz_vmem_unmap(void *ctx, void *p, size_t size)
{
    return lz_free_status(lz.zeVirtualMemUnmap(((lz_context *)ctx)->native, p, size),
                          "zeVirtualMemUnmap");
}
