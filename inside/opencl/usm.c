/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cl_intel_unified_shared_memory: its functions for memory, which programs get by name.  The
 * extension's others (copies, fills, arguments) take pointers inside an allocation, and stay the
 * driver's. */
#include "layer.h"

#include <string.h>

/* What the program asks for. */
typedef struct inside_request {
    const cl_mem_properties_intel *properties;
    size_t                         size;
    cl_uint                        align;
} inside_request;

/* No property but flags that are 0. */
static bool is_default(const cl_mem_properties_intel *properties)
{
    for (; properties && properties[0]; properties += 2)
        if (properties[0] != CL_MEM_ALLOC_FLAGS_INTEL || properties[1] != 0)
            return false;
    return true;
}

/* false: the driver is to be asked. */
static bool is_served(cl_context ctx, cl_device_id dev, inside_sort sort,
                      const inside_request *request, void **p, cl_int *err)
{
    bool is_refused = false;

    *p = NULL;
    if (is_default(request->properties))
        *p = inside_alloc(ctx, dev, sort, request->size, request->align, &is_refused);
    if (err && (*p || is_refused))
        *err = is_refused ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
    return *p || is_refused;
}

/* A driver without the function has not given the program this one either. */
static void *CL_API_CALL host_alloc(cl_context ctx, const cl_mem_properties_intel *properties,
                                    size_t size, cl_uint align, cl_int *err)
{
    const inside_request request = {properties, size, align};
    void                *p;

    if (is_served(ctx, NULL, INSIDE_HOST, &request, &p, err))
        return p;
    return inside_driver_of(ctx).host_alloc(ctx, properties, size, align, err);
}

static void *CL_API_CALL device_alloc(cl_context ctx, cl_device_id dev,
                                      const cl_mem_properties_intel *properties, size_t size,
                                      cl_uint align, cl_int *err)
{
    const inside_request request = {properties, size, align};
    void                *p;

    if (dev && is_served(ctx, dev, INSIDE_DEVICE, &request, &p, err))
        return p;
    return inside_driver_of(ctx).device_alloc(ctx, dev, properties, size, align, err);
}

static void *CL_API_CALL shared_alloc(cl_context ctx, cl_device_id dev,
                                      const cl_mem_properties_intel *properties, size_t size,
                                      cl_uint align, cl_int *err)
{
    const inside_request request = {properties, size, align};
    void                *p;

    if (is_served(ctx, dev, INSIDE_SHARED, &request, &p, err))
        return p;
    return inside_driver_of(ctx).shared_alloc(ctx, dev, properties, size, align, err);
}

static cl_int CL_API_CALL mem_free(cl_context ctx, void *p)
{
    cl_int err;

    return inside_free(p, false, &err) ? err : inside_driver_of(ctx).free(ctx, p);
}

static cl_int CL_API_CALL mem_blocking_free(cl_context ctx, void *p)
{
    cl_int err;

    return inside_free(p, true, &err) ? err : inside_driver_of(ctx).blocking_free(ctx, p);
}

static cl_int answer(const void *from, size_t n, size_t size, void *value, size_t *size_ret)
{
    if (value && size < n)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, from, n);
    if (size_ret)
        *size_ret = n;
    return CL_SUCCESS;
}

/* Kind and device are those of the area.  What lies free in it is no allocation. */
static cl_int CL_API_CALL info(cl_context ctx, const void *p, cl_mem_info_intel what, size_t size,
                               void *value, size_t *size_ret)
{
    const cl_unified_shared_memory_type_intel unknown = CL_MEM_TYPE_UNKNOWN_INTEL;
    const cl_device_id                        nobody  = NULL;
    size_t                                    n;
    void                                     *base;

    if (inside_block(p, &base, &n)) {
        if (what == CL_MEM_ALLOC_BASE_PTR_INTEL)
            return answer(&base, sizeof base, size, value, size_ret);
        if (what == CL_MEM_ALLOC_SIZE_INTEL)
            return answer(&n, sizeof n, size, value, size_ret);
        if (!base && what == CL_MEM_ALLOC_TYPE_INTEL)
            return answer(&unknown, sizeof unknown, size, value, size_ret);
        if (!base && what == CL_MEM_ALLOC_DEVICE_INTEL)
            return answer(&nobody, sizeof nobody, size, value, size_ret);
    }
    return inside_driver_of(ctx).info(ctx, p, what, size, value, size_ret);
}

/* Of drivers older than OpenCL 2.0. */
static cl_command_queue CL_API_CALL create_queue(cl_context ctx, cl_device_id dev,
                                                 const cl_queue_properties_khr *properties,
                                                 cl_int                        *err)
{
    clCreateCommandQueueWithPropertiesKHR_fn create;
    cl_command_queue                         queue;
    cl_platform_id                           platform = atomic_load(&inside.platform);

    (void)inside.target->clGetDeviceInfo(dev, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    *(void **)&create = inside.target->clGetExtensionFunctionAddressForPlatform(
        platform, "clCreateCommandQueueWithPropertiesKHR");
    queue = create(ctx, dev, properties, err);
    if (queue)
        inside_queue_add(ctx, queue);
    return queue;
}

typedef void any_function(void);

void *inside_usm_function(const char *name)
{
    static const struct {
        const char   *name;
        any_function *ours;
    } list[] = {
        {"clHostMemAllocINTEL", (any_function *)host_alloc},
        {"clDeviceMemAllocINTEL", (any_function *)device_alloc},
        {"clSharedMemAllocINTEL", (any_function *)shared_alloc},
        {"clMemFreeINTEL", (any_function *)mem_free},
        {"clMemBlockingFreeINTEL", (any_function *)mem_blocking_free},
        {"clGetMemAllocInfoINTEL", (any_function *)info},
        {"clCreateCommandQueueWithPropertiesKHR", (any_function *)create_queue},
    };
    void *found = NULL;

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (strcmp(name, list[i].name) == 0)
            memcpy(&found, &list[i].ours, sizeof found); /* POSIX: dlsym() has such pointers */
    return found;
}
