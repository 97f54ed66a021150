/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contexts: each has one cl_context, its own or a borrowed one (native.c), and one way of
 * allocating memory.  The deferral queue counts references: queues that still have commands keep it
 * alive.  Called by the core through the table, and by the deferral queue. */
#include "opencl.h"

#include <string.h>

/* The driver's remarks; the failure itself is returned by the call. */
static void CL_CALLBACK on_remark(const char *text, const void *data, size_t size, void *user)
{
    (void)data, (void)size, (void)user;
    if (ocl_host->log_enabled(USM_LOG_DEBUG))
        ocl_host->log(USM_LOG_DEBUG, "OpenCL driver: %s", text);
}

/* USM if all devices have it, otherwise SVM if all have that. */
static ocl_way common_way(size_t n, ocl_device *const *devices, cl_bitfield *svm)
{
    bool all_usm = true;

    *svm = ~(cl_bitfield)0;
    for (size_t i = 0; i < n; i++) {
        all_usm = all_usm && devices[i]->way == OCL_WAY_USM;
        *svm &= devices[i]->svm;
    }
    if (all_usm)
        return OCL_WAY_USM;
    return *svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER ? OCL_WAY_SVM : OCL_WAY_NONE;
}

usm_status ocl_context_wrap(cl_context native, size_t n, ocl_device *const *devices,
                            ocl_context **out)
{
    ocl_context *ctx = ocl_host->heap_alloc(sizeof(*ctx) + n * sizeof(ctx->devices[0]));

    if (!ctx)
        return ocl_no_memory();
    ctx->native   = native;
    ctx->platform = devices[0]->platform;
    ctx->ext      = &ctx->platform->ext;
    ctx->way      = common_way(n, devices, &ctx->svm);
    ctx->ndevices = n;
    memcpy(ctx->devices, devices, n * sizeof(devices[0]));
    defer_context_init(&ctx->deferral, &ocl_defer_ops, ocl_host);
    *out = ctx;
    return USM_OK;
}

void ocl_context_free(defer_context *context)
{
    ocl_context *ctx = (ocl_context *)context;

    if (usm_load_acquire(&ctx->done))
        cl.clReleaseEvent(usm_load_acquire(&ctx->done));
    cl.clReleaseContext(ctx->native);
    ocl_host->heap_free(ctx);
}

usm_status ocl_context_create(size_t ndevices, void *const *devices, void **out)
{
    ocl_device *const    *list          = (ocl_device *const *)devices;
    cl_context_properties properties[3] = {CL_CONTEXT_PLATFORM, 0, 0};
    ocl_context          *ctx           = NULL;
    cl_device_id         *ids;
    cl_context            native;
    usm_status            status;
    cl_int                err;

    ids = ocl_host->heap_alloc(ndevices * sizeof(*ids));
    if (!ids)
        return ocl_no_memory();
    for (size_t i = 0; i < ndevices; i++)
        ids[i] = list[i]->id;
    properties[1] = (cl_context_properties)list[0]->platform->id;
    native        = cl.clCreateContext(properties, (cl_uint)ndevices, ids, on_remark, NULL, &err);
    ocl_host->heap_free(ids);
    if (err)
        return ocl_fail(err, "clCreateContext");
    status = ocl_context_wrap(native, ndevices, list, &ctx);
    if (status)
        cl.clReleaseContext(native);
    else
        *out = ctx;
    return status;
}

void ocl_context_destroy(void *ctx)
{
    defer_context_unref(ctx);
}
