/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Allocation of the three kinds.
 *
 * Handled here: sizes over maxMemAllocSize are requested with relaxed limits if the driver supports
 * that, and fail with a message otherwise.  Device memory is made resident on its device, and only
 * there, so that kernels may follow pointers into it that were not passed to them, and is evicted
 * before it is freed.  Success with NULL counts as out of memory.
 *
 * Shared memory is not made resident: Intel's driver moves resident memory to the device with every
 * command, whether the command uses it or not, and keeps it in that list after a free.  Not here:
 * size 0, alignments above 64 KiB and checking them, which the core does. */
#include "level_zero.h"

/* Host memory belongs to no device: the smallest limit counts. */
static const lz_device *limiting_device(const lz_context *ctx, const lz_device *dev)
{
    if (dev)
        return dev;
    dev = ctx->devices[0];
    for (size_t i = 1; i < ctx->ndevices; i++)
        if (ctx->devices[i]->properties.maxMemAllocSize < dev->properties.maxMemAllocSize)
            dev = ctx->devices[i];
    return dev;
}

static usm_status too_large(const lz_device *dev, size_t size)
{
    return lz_report(USM_E_SIZE,
                     "%zu bytes are more than one allocation of '%s' may have (maxMemAllocSize is "
                     "%llu): allocate in parts",
                     size, dev->info.name, (unsigned long long)dev->properties.maxMemAllocSize);
}

/* `chain`: the structs that follow both descriptions, or NULL. */
static ze_result_t allocate(const lz_context *ctx, const lz_device *dev, usm_kind kind,
                            const void *chain, size_t size, size_t align, void **p)
{
    ze_device_mem_alloc_desc_t of_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                            .pNext = chain};
    ze_host_mem_alloc_desc_t   of_host   = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC,
                                            .pNext = chain};

    if (kind == USM_HOST)
        return lz.zeMemAllocHost(ctx->native, &of_host, size, align, p);
    if (kind == USM_DEVICE)
        return lz.zeMemAllocDevice(ctx->native, &of_device, size, align, dev->native, p);
    of_host.pNext = NULL; /* the chain is needed in only one of the two */
    return lz.zeMemAllocShared(ctx->native, &of_device, &of_host, size, align, dev->native, p);
}

/* Residency helps but is not required: Intel's driver without a GPU returns "uninitialised". */
static ze_result_t make_resident(const lz_context *ctx, const lz_device *dev, void *p, size_t size)
{
    ze_result_t err = lz.zeContextMakeMemoryResident(ctx->native, dev->native, p, size);

    return err == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE || err == ZE_RESULT_ERROR_UNINITIALIZED
               ? ZE_RESULT_SUCCESS
               : err;
}

/* The device is the one on which the memory was allocated.  If this fails, the free will show
 * it. */
static void evict(const lz_context *ctx, void *p, size_t size)
{
    ze_memory_allocation_properties_t properties = {
        .stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t dev = NULL;

    if (!lz.zeMemGetAllocProperties(ctx->native, p, &properties, &dev) && dev)
        (void)lz.zeContextEvictMemory(ctx->native, dev, p, size);
}

usm_status lz_mem_alloc(void *ctx, void *dev, usm_kind kind, size_t size, size_t align, void **p)
{
    const ze_relaxed_allocation_limits_exp_desc_t relaxed = {
        .stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
        .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE,
    };
    const lz_context *c            = ctx;
    const lz_device  *limiting     = limiting_device(c, dev);
    bool              is_too_large = size > limiting->properties.maxMemAllocSize;
    const void       *chain = is_too_large && c->driver->has_relaxed_limits ? &relaxed : NULL;
    void             *block = NULL;
    ze_result_t       err   = allocate(c, dev, kind, chain, size, align, &block);

    if (is_too_large && err && native_to_status(err) != USM_E_NO_MEMORY &&
        native_to_status(err) != USM_E_DEVICE_LOST)
        return too_large(limiting, size);
    if (err || !block)
        return lz_fail(err ? err : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "the allocation");
    if (kind == USM_DEVICE)
        err = make_resident(c, dev, block, size);
    if (err)
        goto err_free_block;
    *p = block;
    return USM_OK;
err_free_block:
    (void)lz.zeMemFree(c->native, block);
    return lz_fail(err, "zeContextMakeMemoryResident");
}

usm_status lz_mem_free(void *ctx, usm_kind kind, void *p, size_t size)
{
    const lz_context *c = ctx;

    if (kind == USM_DEVICE)
        evict(c, p, size);
    return lz_free_status(lz.zeMemFree(c->native, p), "zeMemFree");
}
