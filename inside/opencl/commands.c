/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kernels, copies, fills and maps of the program's queues, in the trace of USM_TRACE.  Their entries
 * are replaced only if a trace is configured: inside_commands_watch().
 *
 * A command is recorded when its event has ended.  If its queue has profiling, times are the
 * device's, moved by the least time that lay between an end and its callback.  If not, a command
 * begins when it was enqueued and ends at its callback.  Drivers call back in any order: the
 * commands of an in-order queue are recorded in the order in which they were enqueued, and none
 * begins before the previous one ended.  No queue gets profiling that the program did not ask for:
 * it costs time. */
#include "layer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <usm/trace.h>

#define NAME_BYTES   64
#define KERNEL_BYTES 256
#define EXIT_WAIT_MS 100 /* for callbacks of commands that have ended as the process does */

typedef struct command command;

/* Stays: the next queue of that handle, device and properties continues it. */
typedef struct watched_queue {
    struct watched_queue       *next;
    cl_command_queue            handle;
    cl_device_id                dev;
    cl_command_queue_properties properties;
    char                        name[NAME_BYTES];
    /* Guarded by watch.lock. */
    uint64_t last_end_ns;
    uint64_t shift_ns; /* the host's clock - the device's */
    bool     has_shift;
    command *first, **last; /* in-order queues: commands that are not recorded yet */
} watched_queue;

/* From its call until it is recorded. */
struct command {
    command         *next; /* guarded by watch.lock, as is_done */
    watched_queue   *queue;
    usm_command_kind kind;
    bool             is_done, has_failed, has_device_times;
    uint64_t         begin_ns, end_ns, size;
    char             kernel[KERNEL_BYTES];
};

/* What the wrapper of a call has at hand. */
typedef struct call {
    cl_command_queue handle;
    uint64_t         begin_ns;    /* 0: no trace is written */
    cl_event         own, *event; /* own: if the program wants none */
} call;

/* No function of the driver or of libusm is called with the lock. */
static struct {
    pthread_mutex_t   lock;
    watched_queue    *queues;  /* guarded by lock */
    unsigned          n;       /* guarded by lock */
    _Atomic(unsigned) waiting; /* commands whose callback has not come */
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- queues ---------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool is_in_order(const watched_queue *q)
{
    return !(q->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
}

/* Adds q, unless the list has an equal one.  Returns the one that the list has. */
static watched_queue *add_queue(watched_queue *q, const char *device)
{
    watched_queue *known;

    pthread_mutex_lock(&watch.lock);
    known = watch.queues;
    while (known && !(known->handle == q->handle && known->dev == q->dev &&
                      known->properties == q->properties))
        known = known->next;
    if (!known) {
        (void)snprintf(q->name, sizeof q->name, "queue %u, %.31s", ++watch.n, device);
        q->last      = &q->first;
        q->next      = watch.queues;
        watch.queues = q;
    }
    pthread_mutex_unlock(&watch.lock);
    return known ? known : q;
}

/* NULL: no memory. */
static watched_queue *find_queue(cl_command_queue handle)
{
    watched_queue *q           = calloc(1, sizeof *q);
    watched_queue *found       = NULL;
    char           device[256] = "";

    if (!q)
        return NULL;
    q->handle = handle;
    (void)inside.target->clGetCommandQueueInfo(handle, CL_QUEUE_DEVICE, sizeof q->dev, &q->dev,
                                               NULL);
    (void)inside.target->clGetCommandQueueInfo(handle, CL_QUEUE_PROPERTIES, sizeof q->properties,
                                               &q->properties, NULL);
    (void)inside.target->clGetDeviceInfo(q->dev, CL_DEVICE_NAME, sizeof device - 1, device, NULL);
    found = add_queue(q, device);
    if (found != q)
        free(q);
    return found;
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Times of a command that has ended: of the device's clock, if has_device_times is true. */
static void ask_times(cl_event event, command *c)
{
    cl_ulong from = 0, to = 0;

    c->has_device_times =
        (c->queue->properties & CL_QUEUE_PROFILING_ENABLE) &&
        inside.target->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof from,
                                               &from, NULL) == CL_SUCCESS &&
        inside.target->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof to, &to,
                                               NULL) == CL_SUCCESS &&
        to >= from;
    if (c->has_device_times) {
        c->begin_ns = from;
        c->end_ns   = to;
    } else {
        c->end_ns = now_ns();
    }
}

/* With the lock.  Moves a command that is done to the host's clock. */
static void set_times(command *c, uint64_t now)
{
    watched_queue *q = c->queue;

    if (c->has_device_times) {
        if (!q->has_shift || (int64_t)(now - c->end_ns - q->shift_ns) < 0)
            q->shift_ns = now - c->end_ns;
        q->has_shift = true;
        c->begin_ns += q->shift_ns;
        c->end_ns += q->shift_ns;
    }
    if (!is_in_order(q))
        return;
    if (c->begin_ns < q->last_end_ns)
        c->begin_ns = q->last_end_ns;
    if (c->end_ns < c->begin_ns)
        c->end_ns = c->begin_ns;
    q->last_end_ns = c->end_ns;
}

/* With the lock.  Returns the commands that can be recorded now that c is done. */
static command *take_done(command *c, uint64_t now)
{
    watched_queue *q    = c->queue;
    command       *list = c, **end = &list;

    if (!is_in_order(q)) {
        set_times(c, now);
        return c;
    }
    for (list = NULL; q->first && q->first->is_done; end = &(*end)->next) {
        *end     = q->first;
        q->first = q->first->next;
        if (!(*end)->has_failed)
            set_times(*end, now);
    }
    *end = NULL;
    if (!q->first)
        q->last = &q->first;
    return list;
}

static void record(const command *c)
{
    usm_command_record r = USM_COMMAND_RECORD_INIT;

    if (c->has_failed || atomic_load(&inside.is_exiting))
        return;
    r.kind        = c->kind;
    r.queue       = c->queue->name;
    r.kernel      = c->kernel[0] ? c->kernel : NULL;
    r.size        = c->size;
    r.begin_ns    = c->begin_ns;
    r.end_ns      = c->end_ns;
    r.is_in_order = is_in_order(c->queue);
    (void)usm_trace_command(&r);
}

/* The command has ended, its times are known. */
static void finish(command *c)
{
    command *list;

    pthread_mutex_lock(&watch.lock);
    c->is_done = true;
    list       = take_done(c, now_ns());
    pthread_mutex_unlock(&watch.lock);
    while (list) {
        command *next = list->next;

        record(list);
        free(list);
        list = next;
    }
    atomic_fetch_sub(&watch.waiting, 1);
}

static void CL_CALLBACK on_end(cl_event event, cl_int status, void *user)
{
    command *c = user;

    c->has_failed = status != CL_COMPLETE;
    ask_times(event, c);
    finish(c);
}

static void wait_for_callbacks(void)
{
    const struct timespec step = {.tv_nsec = 1000000};

    for (int i = 0; i < EXIT_WAIT_MS && atomic_load(&watch.waiting); i++)
        (void)nanosleep(&step, NULL);
}

/* After the trace's handler was registered, so that it runs before it. */
static void at_first_command(void)
{
    (void)atexit(wait_for_callbacks);
}

static void call_begin(call *c, cl_command_queue handle, cl_event *theirs)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    *c = (call){.handle = handle, .event = theirs};
    if (!usm_trace_is_on())
        return;
    (void)pthread_once(&once, at_first_command);
    c->begin_ns = now_ns();
    if (!theirs)
        c->event = &c->own;
}

static void name_kernel(command *c, cl_kernel kernel)
{
    char name[4096] = ""; /* C++ names are long: the first bytes are kept */

    if (!inside.target->clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name - 1, name,
                                        NULL))
        (void)snprintf(c->kernel, sizeof c->kernel, "%.*s", KERNEL_BYTES - 1, name);
}

static command *new_command(const call *c, usm_command_kind kind, uint64_t size)
{
    command       *made = calloc(1, sizeof *made);
    watched_queue *q    = made ? find_queue(c->handle) : NULL;

    if (!q) {
        free(made);
        return NULL;
    }
    made->queue    = q;
    made->kind     = kind;
    made->size     = size;
    made->begin_ns = c->begin_ns;
    pthread_mutex_lock(&watch.lock);
    if (is_in_order(q)) {
        *q->last = made;
        q->last  = &made->next;
    }
    pthread_mutex_unlock(&watch.lock);
    atomic_fetch_add(&watch.waiting, 1);
    return made;
}

/* Returns err, the driver's answer. */
static cl_int call_end(const call *c, cl_int err, usm_command_kind kind, uint64_t size,
                       cl_kernel kernel)
{
    command *made;

    if (err || !c->begin_ns)
        return err;
    made = new_command(c, kind, size);
    if (made && kernel)
        name_kernel(made, kernel);
    if (made && inside.target->clSetEventCallback(*c->event, CL_COMPLETE, on_end, made)) {
        made->has_failed = true;
        finish(made);
    }
    if (c->own)
        (void)inside.target->clReleaseEvent(c->own);
    return CL_SUCCESS;
}

void inside_commands_in_parent(bool is_prepare)
{
    (void)(is_prepare ? pthread_mutex_lock(&watch.lock) : pthread_mutex_unlock(&watch.lock));
}

/* Its parent's commands call back in the parent only. */
void inside_commands_in_child(void)
{
    watch.queues = NULL;
    atomic_store(&watch.waiting, 0);
    pthread_mutex_unlock(&watch.lock);
}

/* ---- the calls: kernels ----------------------------------------------------------------------- */

static cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
                                 const size_t *offset, const size_t *global, const size_t *local,
                                 cl_uint nwait, const cl_event *wait, cl_event *event)
{
    uint64_t items = 1;
    cl_int   err;
    call     c;

    call_begin(&c, queue, event);
    err = inside.target->clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, nwait,
                                                wait, c.event);
    for (cl_uint i = 0; !err && global && i < dims; i++)
        items *= global[i];
    return call_end(&c, err, USM_COMMAND_KERNEL, items, kernel);
}

static cl_int CL_API_CALL task(cl_command_queue queue, cl_kernel kernel, cl_uint nwait,
                               const cl_event *wait, cl_event *event)
{
    call c;

    call_begin(&c, queue, event);
    return call_end(&c, inside.target->clEnqueueTask(queue, kernel, nwait, wait, c.event),
                    USM_COMMAND_KERNEL, 1, kernel);
}

/* ---- the calls: buffers ----------------------------------------------------------------------- */

static cl_int CL_API_CALL read_buffer(cl_command_queue queue, cl_mem mem, cl_bool is_blocking,
                                      size_t offset, size_t size, void *p, cl_uint nwait,
                                      const cl_event *wait, cl_event *event)
{
    call c;

    call_begin(&c, queue, event);
    return call_end(&c,
                    inside.target->clEnqueueReadBuffer(queue, mem, is_blocking, offset, size, p,
                                                       nwait, wait, c.event),
                    USM_COMMAND_COPY, size, NULL);
}

static cl_int CL_API_CALL write_buffer(cl_command_queue queue, cl_mem mem, cl_bool is_blocking,
                                       size_t offset, size_t size, const void *p, cl_uint nwait,
                                       const cl_event *wait, cl_event *event)
{
    call c;

    call_begin(&c, queue, event);
    return call_end(&c,
                    inside.target->clEnqueueWriteBuffer(queue, mem, is_blocking, offset, size, p,
                                                        nwait, wait, c.event),
                    USM_COMMAND_COPY, size, NULL);
}

static cl_int CL_API_CALL copy_buffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t at,
                                      size_t to_at, size_t size, cl_uint nwait,
                                      const cl_event *wait, cl_event *event)
{
    call c;

    call_begin(&c, queue, event);
    return call_end(
        &c,
        inside.target->clEnqueueCopyBuffer(queue, from, to, at, to_at, size, nwait, wait, c.event),
        USM_COMMAND_COPY, size, NULL);
}

static uint64_t volume(const size_t *region)
{
    return (uint64_t)region[0] * region[1] * region[2];
}

static cl_int CL_API_CALL read_rect(cl_command_queue queue, cl_mem mem, cl_bool is_blocking,
                                    const size_t *at, const size_t *host_at, const size_t *region,
                                    size_t row, size_t slice, size_t host_row, size_t host_slice,
                                    void *p, cl_uint nwait, const cl_event *wait, cl_event *event)
{
    cl_int err;
    call   c;

    call_begin(&c, queue, event);
    err = inside.target->clEnqueueReadBufferRect(queue, mem, is_blocking, at, host_at, region, row,
                                                 slice, host_row, host_slice, p, nwait, wait,
                                                 c.event);
    return err ? err : call_end(&c, err, USM_COMMAND_COPY, volume(region), NULL);
}

static cl_int CL_API_CALL write_rect(cl_command_queue queue, cl_mem mem, cl_bool is_blocking,
                                     const size_t *at, const size_t *host_at, const size_t *region,
                                     size_t row, size_t slice, size_t host_row, size_t host_slice,
                                     const void *p, cl_uint nwait, const cl_event *wait,
                                     cl_event *event)
{
    cl_int err;
    call   c;

    call_begin(&c, queue, event);
    err = inside.target->clEnqueueWriteBufferRect(queue, mem, is_blocking, at, host_at, region, row,
                                                  slice, host_row, host_slice, p, nwait, wait,
                                                  c.event);
    return err ? err : call_end(&c, err, USM_COMMAND_COPY, volume(region), NULL);
}

static cl_int CL_API_CALL copy_rect(cl_command_queue queue, cl_mem from, cl_mem to,
                                    const size_t *at, const size_t *to_at, const size_t *region,
                                    size_t row, size_t slice, size_t to_row, size_t to_slice,
                                    cl_uint nwait, const cl_event *wait, cl_event *event)
{
    cl_int err;
    call   c;

    call_begin(&c, queue, event);
    err = inside.target->clEnqueueCopyBufferRect(queue, from, to, at, to_at, region, row, slice,
                                                 to_row, to_slice, nwait, wait, c.event);
    return err ? err : call_end(&c, err, USM_COMMAND_COPY, volume(region), NULL);
}

static cl_int CL_API_CALL fill_buffer(cl_command_queue queue, cl_mem mem, const void *pattern,
                                      size_t pattern_size, size_t offset, size_t size,
                                      cl_uint nwait, const cl_event *wait, cl_event *event)
{
    call c;

    call_begin(&c, queue, event);
    return call_end(&c,
                    inside.target->clEnqueueFillBuffer(queue, mem, pattern, pattern_size, offset,
                                                       size, nwait, wait, c.event),
                    USM_COMMAND_FILL, size, NULL);
}

static void *CL_API_CALL map_buffer(cl_command_queue queue, cl_mem mem, cl_bool is_blocking,
                                    cl_map_flags flags, size_t offset, size_t size, cl_uint nwait,
                                    const cl_event *wait, cl_event *event, cl_int *err_ret)
{
    cl_int err = CL_SUCCESS;
    void  *p;
    call   c;

    call_begin(&c, queue, event);
    p = inside.target->clEnqueueMapBuffer(queue, mem, is_blocking, flags, offset, size, nwait, wait,
                                          c.event, &err);
    err = call_end(&c, err, USM_COMMAND_MAP, size, NULL);
    if (err_ret)
        *err_ret = err;
    return p;
}

static cl_int CL_API_CALL unmap(cl_command_queue queue, cl_mem mem, void *p, cl_uint nwait,
                                const cl_event *wait, cl_event *event)
{
    call c;

    call_begin(&c, queue, event);
    return call_end(&c, inside.target->clEnqueueUnmapMemObject(queue, mem, p, nwait, wait, c.event),
                    USM_COMMAND_MAP, 0, NULL);
}

/* ---- the calls: SVM, USM ----------------------------------------------------------------------- */

static cl_int CL_API_CALL svm_copy(cl_command_queue queue, cl_bool is_blocking, void *to,
                                   const void *from, size_t size, cl_uint nwait,
                                   const cl_event *wait, cl_event *event)
{
    call c;

    call_begin(&c, queue, event);
    return call_end(
        &c,
        inside.target->clEnqueueSVMMemcpy(queue, is_blocking, to, from, size, nwait, wait, c.event),
        USM_COMMAND_COPY, size, NULL);
}

static cl_int CL_API_CALL svm_fill(cl_command_queue queue, void *p, const void *pattern,
                                   size_t pattern_size, size_t size, cl_uint nwait,
                                   const cl_event *wait, cl_event *event)
{
    call c;

    call_begin(&c, queue, event);
    return call_end(&c,
                    inside.target->clEnqueueSVMMemFill(queue, p, pattern, pattern_size, size, nwait,
                                                       wait, c.event),
                    USM_COMMAND_FILL, size, NULL);
}

static cl_int CL_API_CALL svm_map(cl_command_queue queue, cl_bool is_blocking, cl_map_flags flags,
                                  void *p, size_t size, cl_uint nwait, const cl_event *wait,
                                  cl_event *event)
{
    call c;

    call_begin(&c, queue, event);
    return call_end(
        &c,
        inside.target->clEnqueueSVMMap(queue, is_blocking, flags, p, size, nwait, wait, c.event),
        USM_COMMAND_MAP, size, NULL);
}

static cl_int CL_API_CALL svm_unmap(cl_command_queue queue, void *p, cl_uint nwait,
                                    const cl_event *wait, cl_event *event)
{
    call c;

    call_begin(&c, queue, event);
    return call_end(&c, inside.target->clEnqueueSVMUnmap(queue, p, nwait, wait, c.event),
                    USM_COMMAND_MAP, 0, NULL);
}

/* The driver's function, which it has: the program was given the wrapper only then. */
static void *function_of(cl_command_queue queue, const char *name)
{
    cl_device_id   dev      = NULL;
    cl_platform_id platform = NULL;

    (void)inside.target->clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof dev, &dev, NULL);
    (void)inside.target->clGetDeviceInfo(dev, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    return inside.target->clGetExtensionFunctionAddressForPlatform(platform, name);
}

static cl_int CL_API_CALL usm_copy_intel(cl_command_queue queue, cl_bool is_blocking, void *to,
                                         const void *from, size_t size, cl_uint nwait,
                                         const cl_event *wait, cl_event *event)
{
    clEnqueueMemcpyINTEL_fn copy;
    call                    c;

    *(void **)&copy = function_of(queue, "clEnqueueMemcpyINTEL");
    if (!copy)
        return CL_INVALID_COMMAND_QUEUE;
    call_begin(&c, queue, event);
    return call_end(&c, copy(queue, is_blocking, to, from, size, nwait, wait, c.event),
                    USM_COMMAND_COPY, size, NULL);
}

static cl_int CL_API_CALL usm_fill_intel(cl_command_queue queue, void *p, const void *pattern,
                                         size_t pattern_size, size_t size, cl_uint nwait,
                                         const cl_event *wait, cl_event *event)
{
    clEnqueueMemFillINTEL_fn fill;
    call                     c;

    *(void **)&fill = function_of(queue, "clEnqueueMemFillINTEL");
    if (!fill)
        return CL_INVALID_COMMAND_QUEUE;
    call_begin(&c, queue, event);
    return call_end(&c, fill(queue, p, pattern, pattern_size, size, nwait, wait, c.event),
                    USM_COMMAND_FILL, size, NULL);
}

/* ---- which calls are seen -------------------------------------------------------------------- */

static bool is_configured(void)
{
    const char *file = getenv("USM_TRACE"); /* NOLINT(concurrency-mt-unsafe): at the start */

    return file && file[0];
}

void *inside_command_function(const char *name)
{
    clEnqueueMemcpyINTEL_fn  copy  = usm_copy_intel;
    clEnqueueMemFillINTEL_fn fill  = usm_fill_intel;
    void                    *found = NULL;

    if (!is_configured())
        return NULL;
    if (strcmp(name, "clEnqueueMemcpyINTEL") == 0)
        memcpy(&found, &copy, sizeof found); /* POSIX: dlsym() has such pointers */
    else if (strcmp(name, "clEnqueueMemFillINTEL") == 0)
        memcpy(&found, &fill, sizeof found);
    return found;
}

void inside_commands_watch(cl_icd_dispatch *table)
{
    if (!is_configured())
        return;
    table->clEnqueueNDRangeKernel   = launch;
    table->clEnqueueTask            = task;
    table->clEnqueueReadBuffer      = read_buffer;
    table->clEnqueueWriteBuffer     = write_buffer;
    table->clEnqueueCopyBuffer      = copy_buffer;
    table->clEnqueueReadBufferRect  = read_rect;
    table->clEnqueueWriteBufferRect = write_rect;
    table->clEnqueueCopyBufferRect  = copy_rect;
    table->clEnqueueFillBuffer      = fill_buffer;
    table->clEnqueueMapBuffer       = map_buffer;
    table->clEnqueueUnmapMemObject  = unmap;
    table->clEnqueueSVMMemcpy       = svm_copy;
    table->clEnqueueSVMMemFill      = svm_fill;
    table->clEnqueueSVMMap          = svm_map;
    table->clEnqueueSVMUnmap        = svm_unmap;
}
