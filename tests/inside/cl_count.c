/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A layer for OpenCL's loaders that stands before the driver, counts the calls for memory that reach
 * it, and fails or holds a marker when it is told so, for processes with one platform. */
#include "cl_count.h"

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <string.h>
#include <unistd.h>
#define clInitLayerWithProperties clInitLayerWithProperties_of_headers
#include <CL/cl_layer.h>
#undef clInitLayerWithProperties

#define EXPORT __attribute__((visibility("default")))

EXPORT extern cl_count    cl_counts;
EXPORT cl_int CL_API_CALL clInitLayerWithProperties(cl_uint n, const cl_icd_dispatch *below,
                                                    cl_uint                *n_ret,
                                                    const cl_icd_dispatch **dispatch,
                                                    const void             *properties);
EXPORT cl_int CL_API_CALL clDeinitLayer(void);

cl_count cl_counts;

static const cl_icd_dispatch *target;

/* The driver's. */
static struct {
    clHostMemAllocINTEL_fn    host;
    clDeviceMemAllocINTEL_fn  device;
    clSharedMemAllocINTEL_fn  shared;
    clMemFreeINTEL_fn         free;
    clMemBlockingFreeINTEL_fn blocking_free;
} usm;

static void *CL_API_CALL host(cl_context ctx, const cl_mem_properties_intel *properties,
                              size_t size, cl_uint align, cl_int *err)
{
    cl_counts.usm_allocs++;
    return usm.host(ctx, properties, size, align, err);
}

static void *CL_API_CALL device(cl_context ctx, cl_device_id dev,
                                const cl_mem_properties_intel *properties, size_t size,
                                cl_uint align, cl_int *err)
{
    cl_counts.usm_allocs++;
    return usm.device(ctx, dev, properties, size, align, err);
}

static void *CL_API_CALL shared(cl_context ctx, cl_device_id dev,
                                const cl_mem_properties_intel *properties, size_t size,
                                cl_uint align, cl_int *err)
{
    cl_counts.usm_allocs++;
    return usm.shared(ctx, dev, properties, size, align, err);
}

static cl_int CL_API_CALL mem_free(cl_context ctx, void *p)
{
    cl_counts.usm_frees++;
    return usm.free(ctx, p);
}

static cl_int CL_API_CALL blocking_free(cl_context ctx, void *p)
{
    cl_counts.usm_frees++;
    return usm.blocking_free(ctx, p);
}

typedef void any_function(void);

static void *CL_API_CALL get_function(cl_platform_id platform, const char *name)
{
    static const struct {
        const char   *name;
        void         *theirs;
        any_function *ours;
    } list[] = {
        {"clHostMemAllocINTEL", &usm.host, (any_function *)host},
        {"clDeviceMemAllocINTEL", &usm.device, (any_function *)device},
        {"clSharedMemAllocINTEL", &usm.shared, (any_function *)shared},
        {"clMemFreeINTEL", &usm.free, (any_function *)mem_free},
        {"clMemBlockingFreeINTEL", &usm.blocking_free, (any_function *)blocking_free},
    };
    void *found = target->clGetExtensionFunctionAddressForPlatform(platform, name);

    for (size_t i = 0; found && i < sizeof list / sizeof list[0]; i++)
        if (strcmp(name, list[i].name) == 0) {
            if (memcmp(list[i].theirs, &found, sizeof found) != 0) /* once: others call it */
                memcpy(list[i].theirs, &found, sizeof found);
            memcpy(&found, &list[i].ours, sizeof found);
            break;
        }
    return found;
}

static void *CL_API_CALL svm_alloc(cl_context ctx, cl_svm_mem_flags flags, size_t size,
                                   cl_uint align)
{
    cl_counts.svm_allocs++;
    return target->clSVMAlloc(ctx, flags, size, align);
}

static void CL_API_CALL svm_free(cl_context ctx, void *p)
{
    cl_counts.svm_frees++;
    target->clSVMFree(ctx, p);
}

static cl_int CL_API_CALL set_exec_info(cl_kernel kernel, cl_kernel_exec_info what, size_t size,
                                        const void *value)
{
    cl_counts.told = (long)(size / sizeof(void *));
    return target->clSetKernelExecInfo(kernel, what, size, value);
}

static cl_int CL_API_CALL enqueue_marker(cl_command_queue queue, cl_event *event)
{
    int fail = CL_MARKER_FAIL, hold = CL_MARKER_HOLD;

    if (atomic_compare_exchange_strong(&cl_counts.marker, &fail, CL_MARKER_PASS))
        return CL_OUT_OF_RESOURCES;
    if (atomic_compare_exchange_strong(&cl_counts.marker, &hold, CL_MARKER_HELD))
        while (cl_counts.marker == CL_MARKER_HELD)
            (void)usleep(100);
    return target->clEnqueueMarker(queue, event);
}

EXPORT cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void *value,
                                         size_t *size_ret)
{
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;

    if (what != CL_LAYER_API_VERSION || (value && size < sizeof version))
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, &version, sizeof version);
    if (size_ret)
        *size_ret = sizeof version;
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clInitLayer(cl_uint n, const cl_icd_dispatch *below, cl_uint *n_ret,
                                      const cl_icd_dispatch **dispatch)
{
    static cl_icd_dispatch layer;

    if (n < sizeof layer / sizeof(void *))
        return CL_INVALID_VALUE;
    target                                         = below;
    layer                                          = *below;
    layer.clGetExtensionFunctionAddressForPlatform = get_function;
    layer.clSVMAlloc                               = svm_alloc;
    layer.clSVMFree                                = svm_free;
    layer.clSetKernelExecInfo                      = set_exec_info;
    layer.clEnqueueMarker                          = enqueue_marker;
    *n_ret                                         = sizeof layer / sizeof(void *);
    *dispatch                                      = &layer;
    return CL_SUCCESS;
}

cl_int CL_API_CALL clInitLayerWithProperties(cl_uint n, const cl_icd_dispatch *below,
                                             cl_uint *n_ret, const cl_icd_dispatch **dispatch,
                                             const void *properties)
{
    (void)properties;
    return clInitLayer(n, below, n_ret, dispatch);
}

cl_int CL_API_CALL clDeinitLayer(void)
{
    return CL_SUCCESS;
}
