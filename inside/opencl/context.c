/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The program's contexts and queues, as far as pools have to know of them: how long a context
 * lives, and what a blocking free waits for.
 *
 * A driver's memory may hold a reference to its context (PoCL's does), so the pools must go before
 * the program's last reference does.  The layer counts the program's own references.  When it has
 * released the last and freed the last block, the pools end, and their areas with them.  A program
 * that leaks its blocks leaks the context; where the driver destroys that all the same, a callback
 * tells. */
#include "layer.h"
#include "pools.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 64 /* contexts of more are left to the driver */

/* A queue of the program, or one that it has released and whose commands may still run. */
struct inside_queue {
    cl_command_queue handle;     /* NULL: `marker` instead */
    cl_event         marker;     /* behind the last commands of a released queue, which it holds */
    size_t           references; /* the program's */
    inside_queue    *next;
};

/* ---- libusm in the program ------------------------------------------------------------------- */

static int is_backend(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    if (!strstr(info->dlpi_name, "libusm_backend_opencl."))
        return 0;
    *(bool *)found = true;
    return 1;
}

/* Pools of pools would be two owners of one address in libusm's page map. */
void inside_look_for_libusm(void)
{
    bool found = false;

    if (atomic_load_explicit(&inside.stands_aside, memory_order_relaxed))
        return;
    (void)dl_iterate_phdr(is_backend, &found);
    if (found)
        atomic_store(&inside.stands_aside, true);
}

/* ---- what a context has ---------------------------------------------------------------------- */

static size_t devices_of(cl_context handle, cl_device_id *devices)
{
    size_t bytes = 0;

    if (inside.target->clGetContextInfo(handle, CL_CONTEXT_DEVICES, DEVICES_MAX * sizeof *devices,
                                        devices, &bytes))
        return 0;
    return bytes / sizeof *devices;
}

static cl_platform_id platform_of(cl_device_id device)
{
    cl_platform_id platform = NULL;

    (void)inside.target->clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform,
                                         NULL);
    return platform;
}

static inside_driver driver_of_platform(cl_platform_id platform)
{
    inside_driver d;

#define FIND(member, name)                                                                         \
    *(void **)&d.member = inside.target->clGetExtensionFunctionAddressForPlatform(platform, name)
    FIND(host_alloc, "clHostMemAllocINTEL");
    FIND(device_alloc, "clDeviceMemAllocINTEL");
    FIND(shared_alloc, "clSharedMemAllocINTEL");
    FIND(free, "clMemFreeINTEL");
    FIND(blocking_free, "clMemBlockingFreeINTEL");
    FIND(info, "clGetMemAllocInfoINTEL");
#undef FIND
    return d;
}

/* A device with memory of its own may move shared memory by whole allocations: two blocks in one
 * would overwrite each other's data. */
static bool may_cut(const cl_device_id *devices, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        cl_bool is_unified = CL_FALSE;

        if (inside.target->clGetDeviceInfo(devices[i], CL_DEVICE_HOST_UNIFIED_MEMORY,
                                           sizeof is_unified, &is_unified, NULL) ||
            !is_unified)
            return false;
    }
    return true;
}

/* ---- contexts -------------------------------------------------------------------------------- */

inside_context *inside_context_find(cl_context handle)
{
    inside_context *ctx = inside.contexts;

    while (ctx && !(ctx->handle == handle && ctx->references > 0))
        ctx = ctx->next;
    return ctx;
}

inside_driver inside_driver_of(cl_context handle)
{
    cl_device_id    devices[DEVICES_MAX];
    inside_context *ctx;
    inside_driver   d;

    pthread_mutex_lock(&inside.lock);
    ctx = inside_context_find(handle);
    if (ctx)
        d = ctx->driver;
    pthread_mutex_unlock(&inside.lock);
    if (!ctx)
        d = driver_of_platform(devices_of(handle, devices) ? platform_of(devices[0])
                                                           : atomic_load(&inside.platform));
    return d;
}

/* With what the layer holds of them: a marker, or a released queue without one. */
static void free_queues(inside_queue *queue, bool holds)
{
    while (queue) {
        inside_queue *next = queue->next;

        if (holds && queue->marker)
            (void)inside.target->clReleaseEvent(queue->marker);
        else if (holds && queue->references == 0)
            (void)inside.target->clReleaseCommandQueue(queue->handle);
        free(queue);
        queue = next;
    }
}

/* pre: nobody else looks at ctx any more. */
static void end_context(inside_context *ctx)
{
    inside_context **at = &inside.contexts;

    pthread_mutex_lock(&inside.lock);
    while (*at != ctx)
        at = &(*at)->next;
    *at = ctx->next;
    pthread_mutex_unlock(&inside.lock);
    inside_pools_end(ctx);
    /* An event holds its context: the driver that has destroyed that all the same has done so
     * with both. */
    free_queues(ctx->queues, !atomic_load(&ctx->is_destroyed));
    free(ctx);
}

/* The driver destroys a context whose blocks the program has leaked: the areas go with it.  Or the
 * last area that held it is given back: then the thread that frees the block ends the context.  As
 * the process ends, drivers destroy what is left, in an order of theirs. */
static void CL_CALLBACK on_destroyed(cl_context handle, void *user)
{
    inside_context *ctx;

    (void)user;
    if (atomic_load(&inside.is_exiting))
        return;
    pthread_mutex_lock(&inside.lock);
    ctx = inside.contexts;
    while (ctx && !(ctx->handle == handle && ctx->references == 0))
        ctx = ctx->next;
    pthread_mutex_unlock(&inside.lock);
    if (!ctx)
        return;
    atomic_store(&ctx->is_destroyed, true);
    if (atomic_load(&ctx->gives) == 0)
        end_context(ctx);
}

/* Drivers older than OpenCL 3.0 have a shorter table, without the function. */
static void ask_for_the_end(cl_context handle, cl_platform_id platform)
{
    char     version[256] = "";
    unsigned major        = 0;

    (void)inside.target->clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof version - 1,
                                           version, NULL);
    if (sscanf(version, "OpenCL %u", &major) == 1 && major >= 3)
        (void)inside.target->clSetContextDestructorCallback(handle, on_destroyed, NULL);
}

void inside_context_add(cl_context handle)
{
    cl_device_id    devices[DEVICES_MAX];
    size_t          n   = devices_of(handle, devices);
    inside_context *ctx = n > 0 ? calloc(1, sizeof *ctx) : NULL;

    if (!ctx)
        return;
    ctx->handle     = handle;
    ctx->driver     = driver_of_platform(platform_of(devices[0]));
    ctx->may_cut    = may_cut(devices, n);
    ctx->references = 1;
    atomic_init(&ctx->uses, 1);
    ask_for_the_end(handle, platform_of(devices[0]));
    pthread_mutex_lock(&inside.lock);
    ctx->next       = inside.contexts;
    inside.contexts = ctx;
    pthread_mutex_unlock(&inside.lock);
}

void inside_context_retain(cl_context handle)
{
    inside_context *ctx;

    pthread_mutex_lock(&inside.lock);
    ctx = inside_context_find(handle);
    if (ctx)
        ctx->references++;
    pthread_mutex_unlock(&inside.lock);
}

void inside_context_release(cl_context handle)
{
    inside_context *ctx;
    bool            is_last;

    pthread_mutex_lock(&inside.lock);
    ctx     = inside_context_find(handle);
    is_last = ctx && --ctx->references == 0;
    if (is_last) /* the handle may stand for another context soon */
        inside_pools_forget();
    pthread_mutex_unlock(&inside.lock);
    if (is_last)
        inside_context_unuse(ctx);
}

void inside_context_unuse(inside_context *ctx)
{
    if (atomic_fetch_sub(&ctx->uses, 1) == 1) /* the only one that reads 1: it alone ends ctx */
        end_context(ctx);
}

/* ---- queues ---------------------------------------------------------------------------------- */

void inside_queue_add(cl_context handle, cl_command_queue queue)
{
    inside_queue   *q = calloc(1, sizeof *q);
    inside_context *ctx;

    if (!q)
        return;
    q->handle     = queue;
    q->references = 1;
    pthread_mutex_lock(&inside.lock);
    ctx = inside_context_find(handle);
    if (ctx) {
        q->next     = ctx->queues;
        ctx->queues = q;
    }
    pthread_mutex_unlock(&inside.lock);
    if (!ctx)
        free(q);
}

/* With the lock.  Where the queue stands in its context's list; NULL: it is not known. */
static inside_queue **find_queue(cl_command_queue queue, inside_context **owner)
{
    for (inside_context *ctx = inside.contexts; ctx; ctx = ctx->next)
        for (inside_queue **at = &ctx->queues; *at; at = &(*at)->next)
            if ((*at)->handle == queue) {
                *owner = ctx;
                return at;
            }
    return NULL;
}

void inside_queue_retain(cl_command_queue queue)
{
    inside_context *owner;
    inside_queue  **at;

    pthread_mutex_lock(&inside.lock);
    at = find_queue(queue, &owner);
    if (at)
        (*at)->references++;
    pthread_mutex_unlock(&inside.lock);
}

/* With the lock.  A marker holds its queue, and the queue its context. */
static inside_queue *take_ended(inside_context *ctx)
{
    inside_queue *ended = NULL;

    for (inside_queue **at = &ctx->queues; *at;) {
        inside_queue *queue  = *at;
        cl_int        status = queue->marker ? CL_COMPLETE : CL_QUEUED;

        if (queue->marker)
            (void)inside.target->clGetEventInfo(queue->marker, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                sizeof status, &status, NULL);
        if (status > CL_COMPLETE) {
            at = &queue->next;
        } else {
            *at         = queue->next;
            queue->next = ended;
            ended       = queue;
        }
    }
    return ended;
}

/* false: the context has no blocks that a command could use. */
static bool use_with_blocks(inside_context *ctx)
{
    size_t uses = atomic_load(&ctx->uses);

    while (uses > 1)
        if (atomic_compare_exchange_weak(&ctx->uses, &uses, uses + 1))
            return true;
    return false;
}

/* Enqueueing may run the program's callbacks, so the lock is not held.  Where the driver refuses
 * the marker the queue is kept itself. */
static void put_marker(inside_context *ctx, inside_queue *queue)
{
    cl_event      marker = NULL;
    inside_queue *ended;

    if (inside.target->clEnqueueMarker(queue->handle, &marker)) {
        (void)inside.target->clRetainCommandQueue(queue->handle);
        return;
    }
    pthread_mutex_lock(&inside.lock);
    queue->marker = marker;
    queue->handle = NULL; /* which soon may be another queue's */
    ended         = take_ended(ctx);
    pthread_mutex_unlock(&inside.lock);
    free_queues(ended, true);
}

/* A released queue goes on with its commands, which a blocking free has to wait for: at any time
 * the context's list has the queue or its marker. */
void inside_queue_release(cl_command_queue queue)
{
    inside_context *owner;
    inside_queue  **at, *last = NULL;
    bool            is_used = false;

    pthread_mutex_lock(&inside.lock);
    at = find_queue(queue, &owner);
    if (at && --(*at)->references == 0) {
        last    = *at;
        is_used = use_with_blocks(owner);
        if (!is_used)
            *at = last->next;
    }
    pthread_mutex_unlock(&inside.lock);
    if (is_used) {
        put_marker(owner, last);
        inside_context_unuse(owner);
    } else {
        free(last);
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* One of the two. */
typedef struct awaited {
    cl_command_queue queue;
    cl_event         event;
} awaited;

/* With the lock.  All of them, retained, as other threads may release them meanwhile. */
static cl_int list_awaited(const inside_context *ctx, awaited **list, size_t *n)
{
    size_t room = 1;

    for (const inside_queue *q = ctx->queues; q; q = q->next)
        room++;
    *list = calloc(room, sizeof **list);
    if (!*list)
        return CL_OUT_OF_HOST_MEMORY;
    for (const inside_queue *q = ctx->queues; q; q = q->next)
        if (q->handle && inside.target->clRetainCommandQueue(q->handle) == CL_SUCCESS)
            (*list)[(*n)++].queue = q->handle;
        else if (q->marker && inside.target->clRetainEvent(q->marker) == CL_SUCCESS)
            (*list)[(*n)++].event = q->marker;
    return CL_SUCCESS;
}

cl_int inside_context_wait(const inside_context *ctx)
{
    awaited *list = NULL;
    size_t   n    = 0;
    cl_int   err;

    pthread_mutex_lock(&inside.lock);
    err = list_awaited(ctx, &list, &n);
    pthread_mutex_unlock(&inside.lock);
    for (size_t i = 0; i < n; i++) {
        if (list[i].queue) {
            (void)inside.target->clFinish(list[i].queue);
            (void)inside.target->clReleaseCommandQueue(list[i].queue);
        } else {
            (void)inside.target->clWaitForEvents(1, &list[i].event);
            (void)inside.target->clReleaseEvent(list[i].event);
        }
    }
    free(list);
    return err;
}

/* What is to be done when the last of some events is there. */
typedef struct after {
    _Atomic(size_t) remaining;
    void (*fn)(void *data);
    void *data;
} after;

static void one_less(after *a)
{
    if (atomic_fetch_sub(&a->remaining, 1) != 1)
        return;
    if (!atomic_load(&inside.is_exiting))
        a->fn(a->data);
    free(a);
}

/* The event holds the context meanwhile. */
static void CL_CALLBACK on_event(cl_event event, cl_int status, void *user)
{
    (void)status;
    one_less(user);
    (void)inside.target->clReleaseEvent(event);
}

/* pre: one of `remaining` is for w.  Where the driver cannot call back, it is waited for. */
static void follow(const awaited *w, after *a)
{
    cl_event event = w->event;

    if (w->queue) {
        if (inside.target->clEnqueueMarker(w->queue, &event))
            event = NULL;
        (void)(event ? inside.target->clFlush(w->queue) : inside.target->clFinish(w->queue));
        (void)inside.target->clReleaseCommandQueue(w->queue);
    }
    if (event && !inside.target->clSetEventCallback(event, CL_COMPLETE, on_event, a))
        return;
    if (event) {
        (void)inside.target->clWaitForEvents(1, &event);
        (void)inside.target->clReleaseEvent(event);
    }
    one_less(a);
}

cl_int inside_context_after(const inside_context *ctx, void (*fn)(void *data), void *data)
{
    awaited *list = NULL;
    size_t   n    = 0;
    after   *a    = malloc(sizeof *a);
    cl_int   err  = CL_OUT_OF_HOST_MEMORY;

    if (a) {
        pthread_mutex_lock(&inside.lock);
        err = list_awaited(ctx, &list, &n);
        pthread_mutex_unlock(&inside.lock);
    }
    if (err) {
        free(a);
        return err;
    }
    a->fn   = fn;
    a->data = data;
    atomic_init(&a->remaining, n + 1);
    for (size_t i = 0; i < n; i++)
        follow(&list[i], a); /* NOLINT(clang-analyzer-unix.Malloc): n + 1 are waited for */
    free(list);
    one_less(a); /* NOLINT(clang-analyzer-unix.Malloc): the last of them frees it */
    return CL_SUCCESS;
}

/* ---- user events ----------------------------------------------------------------------------- */

/* A context that the program has released may have some yet. */
void inside_user_event_add(cl_context handle, long change)
{
    inside_context *ctx;

    pthread_mutex_lock(&inside.lock);
    ctx = inside.contexts;
    while (ctx && ctx->handle != handle)
        ctx = ctx->next;
    if (ctx)
        atomic_fetch_add(&ctx->user_events, change);
    pthread_mutex_unlock(&inside.lock);
}
