/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See raw_opencl.h.  OpenCL is dlopened, as libusm does: the loader that libusm
 * has loaded serves this too. */
#include "raw_opencl.h"

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
    X(cl_int, clFlush, (cl_command_queue))                                                         \
    X(cl_int, clFinish, (cl_command_queue))

typedef void  *device_alloc_fn(cl_context, cl_device_id, const cl_ulong *, size_t, cl_uint,
                               cl_int *);
typedef cl_int free_fn(cl_context, void *);
typedef cl_int query_fn(cl_context, const void *, cl_uint, size_t, void *, size_t *);
typedef cl_int copy_fn(cl_command_queue, cl_bool, void *, const void *, size_t, cl_uint,
                       const cl_event *, cl_event *);

struct raw_opencl {
    void *lib;
#define MEMBER(type, name, params) type(*name) params;
    CORE_FUNCTIONS(MEMBER)
#undef MEMBER
    device_alloc_fn *device_alloc;
    free_fn         *free;
    query_fn        *query;
    copy_fn         *copy;
    cl_command_queue queue;
    cl_context       context;
    cl_device_id     device;
};

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
#undef EXT
    if (!raw->device_alloc || !raw->free || !raw->query || !raw->copy)
        raw->device_alloc = NULL;
}

raw_opencl *raw_open(usm_queue *q)
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
    return raw;
err_close:
    raw_close(raw);
    return NULL;
}

void raw_close(raw_opencl *raw)
{
    if (raw && raw->lib)
        dlclose(raw->lib);
    free(raw);
}

const char *raw_alloc_name(const raw_opencl *raw)
{
    return raw->device_alloc ? "clDeviceMemAllocINTEL" : "clSVMAlloc";
}

void *raw_alloc(raw_opencl *raw, size_t size)
{
    cl_int err = 0;

    if (raw->device_alloc)
        return raw->device_alloc(raw->context, raw->device, NULL, size, 64, &err);
    return raw->clSVMAlloc(raw->context, CL_MEM_READ_WRITE, size, 64);
}

void raw_free(raw_opencl *raw, void *p)
{
    if (raw->device_alloc)
        raw->free(raw->context, p);
    else
        raw->clSVMFree(raw->context, p);
}

bool raw_has_query(const raw_opencl *raw)
{
    return raw->device_alloc != NULL;
}

int raw_query(raw_opencl *raw, const void *p)
{
    cl_uint type = 0;

    raw->query(raw->context, p, CL_MEM_ALLOC_TYPE_INTEL, sizeof type, &type, NULL);
    return (int)type;
}

bool raw_copy(raw_opencl *raw, void *dst, const void *src, size_t n, bool wait)
{
    copy_fn *copy = raw->device_alloc ? raw->copy : raw->clEnqueueSVMMemcpy;

    return copy(raw->queue, wait, dst, src, n, 0, NULL, NULL) == CL_SUCCESS &&
           (wait || raw->clFlush(raw->queue) == CL_SUCCESS);
}

bool raw_finish(raw_opencl *raw)
{
    return raw->clFinish(raw->queue) == CL_SUCCESS;
}

#else

raw_opencl *raw_open(usm_queue *q)
{
    (void)q;
    return NULL;
}

void raw_close(raw_opencl *raw)
{
    (void)raw;
}

const char *raw_alloc_name(const raw_opencl *raw)
{
    (void)raw;
    return NULL;
}

void *raw_alloc(raw_opencl *raw, size_t size)
{
    (void)raw, (void)size;
    return NULL;
}

void raw_free(raw_opencl *raw, void *p)
{
    (void)raw, (void)p;
}

bool raw_has_query(const raw_opencl *raw)
{
    (void)raw;
    return false;
}

int raw_query(raw_opencl *raw, const void *p)
{
    (void)raw, (void)p;
    return 0;
}

bool raw_copy(raw_opencl *raw, void *dst, const void *src, size_t n, bool wait)
{
    (void)raw, (void)dst, (void)src, (void)n, (void)wait;
    return false;
}

bool raw_finish(raw_opencl *raw)
{
    (void)raw;
    return false;
}

#endif
