/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A layer of OpenCL's loaders (OPENCL_LAYERS): the entries that they look for, and the calls of a
 * program that the layer sees.  All others go to the driver as they are. */
#include "layer.h"

#include "areas.h"
#include "pools.h"

#include <stdlib.h>
#include <string.h>

/* Newer headers declare it, with a type that older ones do not have. */
#define clInitLayerWithProperties clInitLayerWithProperties_of_headers
#include <CL/cl_layer.h>
#undef clInitLayerWithProperties

#define EXPORT __attribute__((visibility("default")))

/* Loaders since 2025 pass over a library without these two. */
EXPORT cl_int CL_API_CALL clInitLayerWithProperties(cl_uint n, const cl_icd_dispatch *below,
                                                    cl_uint                *n_ret,
                                                    const cl_icd_dispatch **dispatch,
                                                    const void             *properties);
EXPORT cl_int CL_API_CALL clDeinitLayer(void);

inside_state inside = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

__thread int inside_callbacks;

/* ---- contexts -------------------------------------------------------------------------------- */

static cl_context added(cl_context ctx)
{
    inside_look_for_libusm();
    if (ctx)
        inside_context_add(ctx);
    return ctx;
}

static cl_context CL_API_CALL create_context(
    const cl_context_properties *properties, cl_uint n, const cl_device_id *devices,
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user, cl_int *err)
{
    return added(inside.target->clCreateContext(properties, n, devices, notify, user, err));
}

static cl_context CL_API_CALL create_context_from_type(
    const cl_context_properties *properties, cl_device_type                      type,
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user, cl_int *err)
{
    return added(inside.target->clCreateContextFromType(properties, type, notify, user, err));
}

static cl_int CL_API_CALL retain_context(cl_context ctx)
{
    cl_int err = inside.target->clRetainContext(ctx);

    if (!err)
        inside_context_retain(ctx);
    return err;
}

static cl_int CL_API_CALL release_context(cl_context ctx)
{
    inside_context_release(ctx);
    return inside.target->clReleaseContext(ctx);
}

/* ---- queues ---------------------------------------------------------------------------------- */

static cl_command_queue CL_API_CALL create_queue(cl_context ctx, cl_device_id dev,
                                                 cl_command_queue_properties properties,
                                                 cl_int                     *err)
{
    cl_command_queue queue = inside.target->clCreateCommandQueue(ctx, dev, properties, err);

    if (queue)
        inside_queue_add(ctx, queue);
    return queue;
}

static cl_command_queue CL_API_CALL create_queue_with_properties(
    cl_context ctx, cl_device_id dev, const cl_queue_properties *properties, cl_int *err)
{
    cl_command_queue queue =
        inside.target->clCreateCommandQueueWithProperties(ctx, dev, properties, err);

    if (queue)
        inside_queue_add(ctx, queue);
    return queue;
}

static cl_int CL_API_CALL retain_queue(cl_command_queue queue)
{
    cl_int err = inside.target->clRetainCommandQueue(queue);

    if (!err)
        inside_queue_retain(queue);
    return err;
}

static cl_int CL_API_CALL release_queue(cl_command_queue queue)
{
    inside_queue_release(queue);
    return inside.target->clReleaseCommandQueue(queue);
}

/* ---- user events ----------------------------------------------------------------------------- */

static cl_event CL_API_CALL create_user_event(cl_context ctx, cl_int *err)
{
    cl_event event = inside.target->clCreateUserEvent(ctx, err);

    if (event)
        inside_user_event_add(ctx, 1);
    return event;
}

/* Once for each event: a second time is the driver's error. */
static cl_int CL_API_CALL set_user_event(cl_event event, cl_int status)
{
    cl_context ctx = NULL;
    cl_int     err;

    (void)inside.target->clGetEventInfo(event, CL_EVENT_CONTEXT, sizeof ctx, &ctx, NULL);
    err = inside.target->clSetUserEventStatus(event, status);
    if (!err)
        inside_user_event_add(ctx, -1);
    return err;
}

/* ---- callbacks of events --------------------------------------------------------------------- */

typedef void CL_CALLBACK event_callback(cl_event event, cl_int status, void *user);

typedef struct callback {
    event_callback *fn;
    void           *user;
} callback;

static void CL_CALLBACK call_back(cl_event event, cl_int status, void *user)
{
    callback c = *(callback *)user;

    free(user);
    inside_callbacks++;
    c.fn(event, status, c.user);
    inside_callbacks--;
}

static cl_int CL_API_CALL set_event_callback(cl_event event, cl_int status, event_callback *fn,
                                             void *user)
{
    callback *c = fn ? malloc(sizeof *c) : NULL;
    cl_int    err;

    if (!c)
        return fn ? CL_OUT_OF_HOST_MEMORY
                  : inside.target->clSetEventCallback(event, status, fn, user);
    *c  = (callback){fn, user};
    err = inside.target->clSetEventCallback(event, status, call_back, c);
    if (err)
        free(c);
    return err;
}

/* ---- extensions ------------------------------------------------------------------------------ */

/* libusm's own backend, where the program loads it later, comes by here. */
static cl_int CL_API_CALL get_platforms(cl_uint n, cl_platform_id *platforms, cl_uint *n_ret)
{
    inside_look_for_libusm();
    return inside.target->clGetPlatformIDs(n, platforms, n_ret);
}

static void *CL_API_CALL get_function(cl_platform_id platform, const char *name)
{
    void *theirs = inside.target->clGetExtensionFunctionAddressForPlatform(platform, name);
    void *ours   = theirs ? inside_usm_function(name) : NULL;

    if (theirs && !ours)
        ours = inside_command_function(name);
    inside_look_for_libusm();
    if (ours)
        atomic_store(&inside.platform, platform);
    return ours ? ours : theirs;
}

/* ---- the loaders' entries -------------------------------------------------------------------- */

static cl_int tell(const void *from, size_t n, size_t size, void *value, size_t *size_ret)
{
    if (value && size < n)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, from, n);
    if (size_ret)
        *size_ret = n;
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void *value,
                                         size_t *size_ret)
{
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    static const char          name[]  = "libusm";

    if (what == CL_LAYER_API_VERSION)
        return tell(&version, sizeof version, size, value, size_ret);
    return what == CL_LAYER_NAME ? tell(name, sizeof name, size, value, size_ret)
                                 : CL_INVALID_VALUE;
}

static void at_exit(void)
{
    atomic_store(&inside.is_exiting, true);
}

/* A child finds the layer's lists whole and their locks free.  Its parent's pools are inert there,
 * as libusm's are, and what its driver still does is as without the layer. */
static void fork_prepare(void)
{
    pthread_mutex_lock(&inside.lock); /* whose holders never call libusm */
    inside_pools_lock();
    inside_commands_in_parent(true);
}

static void fork_parent(void)
{
    inside_commands_in_parent(false);
    inside_pools_unlock();
    pthread_mutex_unlock(&inside.lock);
}

static void fork_child(void)
{
    inside_areas_in_child();
    inside_commands_in_child();
    inside_pools_unlock();
    pthread_mutex_unlock(&inside.lock);
}

/* Once, though a loader may be loaded again, which the layer outlives. */
static void begin(void)
{
    (void)atexit(at_exit);
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

EXPORT cl_int CL_API_CALL clInitLayer(cl_uint n, const cl_icd_dispatch *below, cl_uint *n_ret,
                                      const cl_icd_dispatch **dispatch)
{
    static pthread_once_t  once = PTHREAD_ONCE_INIT;
    static cl_icd_dispatch table; /* the loader's for as long as the process lives */

    if (!below || !n_ret || !dispatch || n < sizeof table / sizeof(void *)) /* an older loader */
        return CL_INVALID_VALUE;
    (void)pthread_once(&once, begin);
    inside.target                                  = below;
    table                                          = *below;
    table.clGetPlatformIDs                         = get_platforms;
    table.clCreateContext                          = create_context;
    table.clCreateContextFromType                  = create_context_from_type;
    table.clRetainContext                          = retain_context;
    table.clReleaseContext                         = release_context;
    table.clCreateCommandQueue                     = create_queue;
    table.clCreateCommandQueueWithProperties       = create_queue_with_properties;
    table.clRetainCommandQueue                     = retain_queue;
    table.clReleaseCommandQueue                    = release_queue;
    table.clCreateUserEvent                        = create_user_event;
    table.clSetUserEventStatus                     = set_user_event;
    table.clSetEventCallback                       = set_event_callback;
    table.clGetExtensionFunctionAddressForPlatform = get_function;
    table.clSVMAlloc                               = inside_svm_alloc;
    table.clSVMFree                                = inside_svm_free;
    table.clEnqueueSVMFree                         = inside_enqueue_svm_free;
    table.clSetKernelExecInfo                      = inside_set_exec_info;
    inside_commands_watch(&table);
    *n_ret    = sizeof table / sizeof(void *);
    *dispatch = &table;
    return CL_SUCCESS;
}

cl_int CL_API_CALL clInitLayerWithProperties(cl_uint n, const cl_icd_dispatch *below,
                                             cl_uint *n_ret, const cl_icd_dispatch **dispatch,
                                             const void *properties)
{
    (void)properties;
    return clInitLayer(n, below, n_ret, dispatch);
}

/* The loader goes away, mostly as the process ends, and the drivers with it or before it: what the
 * pools hold is not given back. */
cl_int CL_API_CALL clDeinitLayer(void)
{
    return CL_SUCCESS;
}
