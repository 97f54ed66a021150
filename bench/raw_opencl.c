/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* OpenCL's side of raw.h.  OpenCL is dlopened, as libusm does: the loader that libusm
 * has loaded serves this too. */
#include "raw.h"

#ifdef USM_BENCH_OPENCL
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* X(type, name): the entry points used here. */
#define CORE_FUNCTIONS(X)                                                                          \
    X(cl_int, clGetCommandQueueInfo,                                                               \
      (cl_command_queue, cl_command_queue_info, size_t, void *, size_t *))                         \
    X(cl_int, clGetDeviceInfo, (cl_device_id, cl_device_info, size_t, void *, size_t *))           \
    X(void *, clGetExtensionFunctionAddressForPlatform, (cl_platform_id, const char *))            \
    X(void *, clSVMAlloc, (cl_context, cl_svm_mem_flags, size_t, cl_uint))                         \
    X(void, clSVMFree, (cl_context, void *))                                                       \
    X(cl_int, clEnqueueSVMMemcpy,                                                                  \
      (cl_command_queue, cl_bool, void *, const void *, size_t, cl_uint, const cl_event *,         \
       cl_event *))                                                                                \
    X(cl_int, clEnqueueSVMMemFill,                                                                 \
      (cl_command_queue, void *, const void *, size_t, size_t, cl_uint, const cl_event *,          \
       cl_event *))                                                                                \
    X(cl_int, clFlush, (cl_command_queue))                                                         \
    X(cl_int, clFinish, (cl_command_queue))

typedef void  *device_alloc_fn(cl_context, cl_device_id, const cl_ulong *, size_t, cl_uint,
                               cl_int *);
typedef cl_int free_fn(cl_context, void *);
typedef cl_int query_fn(cl_context, const void *, cl_uint, size_t, void *, size_t *);
typedef cl_int copy_fn(cl_command_queue, cl_bool, void *, const void *, size_t, cl_uint,
                       const cl_event *, cl_event *);

typedef cl_int fill_fn(cl_command_queue, void *, const void *, size_t, size_t, cl_uint,
                       const cl_event *, cl_event *);

typedef struct raw_opencl {
    raw_driver driver; /* first */
    void      *lib;
#define MEMBER(type, name, params) type(*name) params;
    CORE_FUNCTIONS(MEMBER)
#undef MEMBER
    device_alloc_fn *device_alloc;
    free_fn         *free;
    query_fn        *query;
    copy_fn         *copy;
    fill_fn         *fill;
    cl_command_queue queue;
    cl_context       context;
    cl_device_id     device;
} raw_opencl;

static bool load(raw_opencl *raw)
{
    raw->lib = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!raw->lib)
        return false;
#define LOAD(type, name, params)                                                                   \
    *(void **)&raw->name = dlsym(raw->lib, #name);                                                 \
    if (!raw->name)                                                                                \
        return false;
    CORE_FUNCTIONS(LOAD)
#undef LOAD
    return true;
}

static void load_usm(raw_opencl *raw)
{
    cl_platform_id platform = NULL;

    if (raw->clGetDeviceInfo(raw->device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL))
        return;
#define EXT(member, name)                                                                          \
    *(void **)&raw->member = raw->clGetExtensionFunctionAddressForPlatform(platform, name)
    EXT(device_alloc, "clDeviceMemAllocINTEL");
    EXT(free, "clMemFreeINTEL");
    EXT(query, "clGetMemAllocInfoINTEL");
    EXT(copy, "clEnqueueMemcpyINTEL");
    EXT(fill, "clEnqueueMemFillINTEL");
#undef EXT
    if (!raw->device_alloc || !raw->free || !raw->query || !raw->copy || !raw->fill)
        raw->device_alloc = NULL;
}

static void *alloc_block(raw_driver *driver, size_t size)
{
    raw_opencl *raw = (raw_opencl *)driver;
    cl_int      err = 0;

    if (raw->device_alloc)
        return raw->device_alloc(raw->context, raw->device, NULL, size, 64, &err);
    return raw->clSVMAlloc(raw->context, CL_MEM_READ_WRITE, size, 64);
}

static void free_block(raw_driver *driver, void *p)
{
    raw_opencl *raw = (raw_opencl *)driver;

    if (raw->device_alloc)
        raw->free(raw->context, p);
    else
        raw->clSVMFree(raw->context, p);
}

static int query(raw_driver *driver, const void *p)
{
    raw_opencl *raw  = (raw_opencl *)driver;
    cl_uint     type = 0;

    raw->query(raw->context, p, CL_MEM_ALLOC_TYPE_INTEL, sizeof type, &type, NULL);
    return (int)type;
}

static bool copy(raw_driver *driver, void *dst, const void *src, size_t n)
{
    raw_opencl *raw  = (raw_opencl *)driver;
    copy_fn    *call = raw->device_alloc ? raw->copy : raw->clEnqueueSVMMemcpy;

    return call(raw->queue, CL_FALSE, dst, src, n, 0, NULL, NULL) == CL_SUCCESS &&
           raw->clFlush(raw->queue) == CL_SUCCESS;
}

static bool fill(raw_driver *driver, void *dst, unsigned char value, size_t n)
{
    raw_opencl *raw  = (raw_opencl *)driver;
    fill_fn    *call = raw->device_alloc ? raw->fill : raw->clEnqueueSVMMemFill;

    return call(raw->queue, dst, &value, 1, n, 0, NULL, NULL) == CL_SUCCESS &&
           raw->clFlush(raw->queue) == CL_SUCCESS;
}

static bool finish(raw_driver *driver)
{
    raw_opencl *raw = (raw_opencl *)driver;

    return raw->clFinish(raw->queue) == CL_SUCCESS;
}

static void close_driver(raw_driver *driver)
{
    raw_opencl *raw = (raw_opencl *)driver;

    if (raw->lib)
        dlclose(raw->lib);
    free(raw);
}

raw_driver *raw_opencl_open(usm_queue *q)
{
    raw_opencl *raw = calloc(1, sizeof *raw);
    void       *native;

    if (!raw)
        return NULL;
    if (usm_queue_get_native(q, "opencl", &native) != USM_OK || !load(raw))
        goto err_close;
    raw->queue = native;
    if (raw->clGetCommandQueueInfo(raw->queue, CL_QUEUE_CONTEXT, sizeof raw->context, &raw->context,
                                   NULL) ||
        raw->clGetCommandQueueInfo(raw->queue, CL_QUEUE_DEVICE, sizeof raw->device, &raw->device,
                                   NULL))
        goto err_close;
    load_usm(raw);
    raw->driver = (raw_driver){raw->device_alloc ? "clDeviceMemAllocINTEL" : "clSVMAlloc",
                               raw->device_alloc ? "clGetMemAllocInfoINTEL" : NULL,
                               alloc_block,
                               free_block,
                               raw->device_alloc ? query : NULL,
                               copy,
                               fill,
                               finish,
                               close_driver};
    return &raw->driver;
err_close:
    close_driver(&raw->driver);
    return NULL;
}

#else

raw_driver *raw_opencl_open(usm_queue *q)
{
    (void)q;
    return NULL;
}

#endif
