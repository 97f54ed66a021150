/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Allocation, by cl_intel_unified_shared_memory or by SVM.
 *
 * Handled here: sizes over CL_DEVICE_MAX_MEM_ALLOC_SIZE are requested with Intel's flag for
 * unrestricted sizes if the driver knows it, and fail with a message otherwise; a shared block
 * always names its device (PoCL 7.1 does not refuse one without); success with NULL counts as out
 * of memory.  Not here: size 0, alignments above 128 and checking them (several drivers ignore the
 * argument), which the core does. */
#include "opencl.h"

/* Intel's flag, newer than Debian 12's headers. */
#ifndef CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL
#define CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL ((cl_bitfield)1 << 23)
#endif

/* Host memory belongs to no device: the smallest limit counts. */
static const ocl_device *limiting_device(const ocl_context *ctx, const ocl_device *dev)
{
    if (dev)
        return dev;
    dev = ctx->devices[0];
    for (size_t i = 1; i < ctx->ndevices; i++)
        if (ctx->devices[i]->info.max_alloc_size < dev->info.max_alloc_size)
            dev = ctx->devices[i];
    return dev;
}

static usm_status too_large(const ocl_device *dev, size_t size)
{
    return ocl_report(USM_E_SIZE,
                      "%zu bytes are more than one allocation of '%s' may have "
                      "(CL_DEVICE_MAX_MEM_ALLOC_SIZE is %llu): allocate in parts",
                      size, dev->info.name, (unsigned long long)dev->info.max_alloc_size);
}

static usm_status no_such_kind(const ocl_context *ctx, usm_kind kind)
{
    return ocl_report(USM_E_NOT_SUPPORTED,
                      "the devices of this context ('%s') have no %s memory in common",
                      ctx->devices[0]->info.name,
                      kind == USM_HOST     ? "host"
                      : kind == USM_DEVICE ? "device"
                                           : "shared");
}

/* --- cl_intel_unified_shared_memory -------------------------------------------- */

static void *usm_call(const ocl_context *ctx, const ocl_device *dev, usm_kind kind,
                      const cl_mem_properties_intel *properties, size_t size, cl_uint align,
                      cl_int *err)
{
    const ocl_extensions *ext = ctx->ext;

    if (kind == USM_HOST)
        return ext->clHostMemAllocINTEL(ctx->native, properties, size, align, err);
    if (kind == USM_DEVICE)
        return ext->clDeviceMemAllocINTEL(ctx->native, dev->id, properties, size, align, err);
    return ext->clSharedMemAllocINTEL(ctx->native, dev->id, properties, size, align, err);
}

static usm_status usm_alloc_way(const ocl_context *ctx, const ocl_device *dev, usm_kind kind,
                                size_t size, size_t align, void **p)
{
    static const cl_mem_properties_intel unrestricted[] = {CL_MEM_FLAGS,
                                                           CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL, 0};
    const ocl_device                    *limiting       = limiting_device(ctx, dev);
    bool                                 is_too_large   = size > limiting->info.max_alloc_size;
    cl_uint                              cl_align       = align <= 128 ? (cl_uint)align : 0;
    cl_int                               err            = CL_SUCCESS;
    void                                *block;

    block = usm_call(ctx, dev, kind, NULL, size, cl_align, &err);
    if ((err || !block) && is_too_large && limiting->is_relaxed)
        block = usm_call(ctx, dev, kind, unrestricted, size, cl_align, &err);
    if (!err && block) {
        *p = block;
        return USM_OK;
    }
    if (is_too_large && native_to_status(err) != USM_E_NO_MEMORY)
        return too_large(limiting, size);
    return ocl_fail(err ? err : CL_OUT_OF_RESOURCES, "the allocation");
}

/* --- SVM ------------------------------------------------------------------------- */

static usm_status svm_alloc_way(const ocl_context *ctx, const ocl_device *dev, usm_kind kind,
                                size_t size, size_t align, void **p)
{
    const ocl_device *limiting = limiting_device(ctx, dev);
    cl_svm_mem_flags  flags    = CL_MEM_READ_WRITE;
    void             *block;

    if (kind != USM_DEVICE) {
        if (!(ctx->svm & CL_DEVICE_SVM_FINE_GRAIN_BUFFER))
            return no_such_kind(ctx, kind);
        flags |= CL_MEM_SVM_FINE_GRAIN_BUFFER;
        if (ctx->svm & CL_DEVICE_SVM_ATOMICS)
            flags |= CL_MEM_SVM_ATOMICS;
    }
    /* clSVMAlloc returns NULL for every failure, so the limit is checked first. */
    if (size > limiting->info.max_alloc_size)
        return too_large(limiting, size);
    block = cl.clSVMAlloc(ctx->native, flags, size, align <= 128 ? (cl_uint)align : 0);
    if (!block)
        return ocl_report(USM_E_NO_MEMORY, "clSVMAlloc has no %zu bytes left", size);
    *p = block;
    return USM_OK;
}

/* ------------------------------------------------------------------------------------ */

usm_status ocl_mem_alloc(void *ctx, void *dev, usm_kind kind, size_t size, size_t align, void **p)
{
    const ocl_context *c = ctx;

    if (c->way == OCL_WAY_USM)
        return usm_alloc_way(c, dev, kind, size, align, p);
    if (c->way == OCL_WAY_SVM)
        return svm_alloc_way(c, dev, kind, size, align, p);
    return no_such_kind(c, kind);
}

usm_status ocl_mem_free(void *ctx, usm_kind kind, void *p, size_t size)
{
    const ocl_context *c   = ctx;
    cl_int             err = CL_SUCCESS;

    (void)kind, (void)size;
    if (c->way == OCL_WAY_USM)
        err = c->ext->clMemFreeINTEL(c->native, p);
    else
        cl.clSVMFree(c->native, p);
    return err ? ocl_fail(err, "clMemFreeINTEL") : USM_OK;
}
