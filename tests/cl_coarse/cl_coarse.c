/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A layer for OpenCL's loader (OPENCL_LAYERS) that takes from a driver what NVIDIA's does not have:
 * SVM is coarse-grained, and there is no cl_intel_unified_shared_memory.  So device memory is the
 * only USM, and the runtime pocl-coarse (../runtimes.sh) tests libusm on such devices without one.
 *
 * As seen on NVIDIA's driver 580.159 (docs/hardware.md), clSetKernelArgSVMPointer() ignores NULL,
 * and an argument that was an SVM pointer once and is then set to a NULL cl_mem counts as not set.
 *
 * Not here: that the host cannot read device memory; PoCL's is the host's own. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_layer.h>

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static const cl_icd_dispatch *target;
static cl_icd_dispatch        layer;

static cl_int CL_API_CALL get_device_info(cl_device_id id, cl_device_info what, size_t size,
                                          void *value, size_t *size_ret)
{
    const cl_device_svm_capabilities coarse = CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
    cl_int                           err = target->clGetDeviceInfo(id, what, size, value, size_ret);

    if (!err && what == CL_DEVICE_SVM_CAPABILITIES && value)
        memcpy(value, &coarse, sizeof(coarse));
    return err;
}

static void *CL_API_CALL get_function(cl_platform_id id, const char *name)
{
    size_t n = strlen(name);

    if (n > 5 && strcmp(name + n - 5, "INTEL") == 0)
        return NULL;
    return target->clGetExtensionFunctionAddressForPlatform(id, name);
}

static void *CL_API_CALL svm_alloc(cl_context ctx, cl_svm_mem_flags flags, size_t size,
                                   cl_uint align)
{
    if (flags & (CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS))
        return NULL;
    return target->clSVMAlloc(ctx, flags, size, align);
}

/* --- NULL arguments ------------------------------------------------------------ */

#define KERNELS   256 /* at a time; further ones are not watched */
#define ARGUMENTS 64  /* the bits of a mask */

/* Arguments of a kernel, one bit each. */
typedef struct watched {
    cl_kernel kernel;
    cl_ulong  was_svm, is_unset;
} watched;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static watched         kernels[KERNELS]; /* guarded by lock; kernel NULL: free */

/* With the lock.  NULL: no room. */
static watched *find(cl_kernel kernel)
{
    watched *free_slot = NULL;

    for (size_t i = 0; i < KERNELS; i++) {
        if (kernels[i].kernel == kernel)
            return &kernels[i];
        if (!kernels[i].kernel && !free_slot)
            free_slot = &kernels[i];
    }
    if (free_slot)
        *free_slot = (watched){kernel, 0, 0};
    return free_slot;
}

static void note(cl_kernel kernel, cl_uint index, bool is_svm, bool is_null)
{
    cl_ulong bit = index < ARGUMENTS ? (cl_ulong)1 << index : 0;
    watched *w;

    pthread_mutex_lock(&lock);
    w = find(kernel);
    if (w) {
        w->was_svm |= is_svm ? bit : 0;
        w->is_unset &= ~bit;
        w->is_unset |= is_null ? w->was_svm & bit : 0;
    }
    pthread_mutex_unlock(&lock);
}

static cl_int CL_API_CALL set_svm_pointer(cl_kernel kernel, cl_uint index, const void *value)
{
    if (!value)
        return CL_SUCCESS;
    note(kernel, index, true, false);
    return target->clSetKernelArgSVMPointer(kernel, index, value);
}

static cl_int CL_API_CALL set_arg(cl_kernel kernel, cl_uint index, size_t size, const void *value)
{
    note(kernel, index, false, !value && size == sizeof(cl_mem));
    return target->clSetKernelArg(kernel, index, size, value);
}

static cl_int CL_API_CALL launch(cl_command_queue q, cl_kernel kernel, cl_uint dims,
                                 const size_t *offset, const size_t *global, const size_t *local,
                                 cl_uint n, const cl_event *wait, cl_event *event)
{
    const watched *w;
    bool           is_unset;

    pthread_mutex_lock(&lock);
    w        = find(kernel);
    is_unset = w && w->is_unset;
    pthread_mutex_unlock(&lock);
    if (is_unset)
        return CL_INVALID_KERNEL_ARGS;
    return target->clEnqueueNDRangeKernel(q, kernel, dims, offset, global, local, n, wait, event);
}

/* The backend takes no second reference, so this is the last. */
static cl_int CL_API_CALL release_kernel(cl_kernel kernel)
{
    watched *w;

    pthread_mutex_lock(&lock);
    w = find(kernel);
    if (w)
        w->kernel = NULL;
    pthread_mutex_unlock(&lock);
    return target->clReleaseKernel(kernel);
}

/* --- the rest -------------------------------------------------------------------- */

static cl_int CL_API_CALL set_exec_info(cl_kernel kernel, cl_kernel_exec_info what, size_t size,
                                        const void *value)
{
    if (what == CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM)
        return CL_INVALID_OPERATION;
    return target->clSetKernelExecInfo(kernel, what, size, value);
}

EXPORT cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void *value,
                                         size_t *size_ret)
{
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;

    if (what != CL_LAYER_API_VERSION || (value && size < sizeof(version)))
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, &version, sizeof(version));
    if (size_ret)
        *size_ret = sizeof(version);
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clInitLayer(cl_uint n, const cl_icd_dispatch *below, cl_uint *n_ret,
                                      const cl_icd_dispatch **dispatch)
{
    if (n < sizeof(layer) / sizeof(void *)) /* a loader older than these headers */
        return CL_INVALID_VALUE;
    target                                         = below;
    layer                                          = *below;
    layer.clGetDeviceInfo                          = get_device_info;
    layer.clGetExtensionFunctionAddressForPlatform = get_function;
    layer.clSVMAlloc                               = svm_alloc;
    layer.clSetKernelArgSVMPointer                 = set_svm_pointer;
    layer.clSetKernelArg                           = set_arg;
    layer.clEnqueueNDRangeKernel                   = launch;
    layer.clReleaseKernel                          = release_kernel;
    layer.clSetKernelExecInfo                      = set_exec_info;
    *n_ret                                         = sizeof(layer) / sizeof(void *);
    *dispatch                                      = &layer;
    return CL_SUCCESS;
}
