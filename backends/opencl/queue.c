/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues, and the commands of the backend's table in the form that submit.c takes.  Not here:
 * launches (kernel.c).  Called by the core through the table.
 *
 * A queue that is destroyed with commands in flight: clReleaseCommandQueue does not wait, and the
 * driver's commands end nevertheless (lane.c has the exception); deferred commands keep a reference
 * to our queue. */
#include "opencl.h"

#include <string.h>

void ocl_queue_free(gate_queue *q)
{
    ocl_lanes_release((ocl_queue *)q);
    ocl_host->heap_free(q);
}

static cl_command_queue create(const ocl_context *ctx, const ocl_device *dev, cl_bitfield bits,
                               cl_int *err)
{
    cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, bits, 0};

    if (ctx->platform->version >= 200 && cl.clCreateCommandQueueWithProperties)
        return cl.clCreateCommandQueueWithProperties(ctx->native, dev->id, properties, err);
    return cl.clCreateCommandQueue(ctx->native, dev->id, bits, err);
}

/* Creates all native queues of q, or none. */
static cl_int create_lanes(const ocl_context *ctx, ocl_queue *q, cl_bitfield bits)
{
    cl_int err = CL_SUCCESS;

    for (uint32_t i = 0; i < q->nlanes; i++) {
        q->lanes[i] = create(ctx, q->dev, bits, &err);
        if (!err)
            continue;
        while (i)
            cl.clReleaseCommandQueue(q->lanes[--i]);
        return err;
    }
    q->native = q->lanes[0];
    return CL_SUCCESS;
}

static usm_status queue_new(ocl_device *dev, uint32_t flags, ocl_queue **out)
{
    static _Atomic uint64_t serials;
    ocl_queue              *q = ocl_host->heap_alloc(sizeof(*q));

    if (!q)
        return ocl_no_memory();
    q->dev    = dev;
    q->flags  = flags;
    q->serial = usm_add_relaxed(&serials, (uint64_t)1) + 1;
    *out      = q;
    return USM_OK;
}

/* The native queues exist: from here on releasing the last reference releases them. */
static void queue_open(ocl_queue *q, ocl_context *ctx)
{
    gate_queue_init(&q->gate, &ctx->gate, !(q->flags & USM_QUEUE_OUT_OF_ORDER));
}

usm_status ocl_queue_wrap(ocl_context *ctx, ocl_device *dev, cl_command_queue native,
                          uint32_t flags, ocl_queue **out)
{
    usm_status status = queue_new(dev, flags, out);

    if (status)
        return status;
    (*out)->native = native;
    queue_open(*out, ctx);
    return USM_OK;
}

usm_status ocl_queue_create(void *ctx, void *dev, uint32_t flags, void **out)
{
    cl_bitfield bits   = flags & USM_QUEUE_PROFILING ? CL_QUEUE_PROFILING_ENABLE : 0;
    ocl_queue  *q      = NULL;
    usm_status  status = queue_new(dev, flags, &q);
    cl_int      err    = CL_SUCCESS;

    if (status)
        return status;
    if (flags & USM_QUEUE_OUT_OF_ORDER)
        q->nlanes = ocl_lanes_of(dev);
    if (q->nlanes) {
        err = create_lanes(ctx, q, bits);
    } else {
        if (flags & USM_QUEUE_OUT_OF_ORDER)
            bits |= CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        q->native = create(ctx, dev, bits, &err);
    }
    if (err) {
        ocl_host->heap_free(q);
        return ocl_fail(err, "clCreateCommandQueue");
    }
    queue_open(q, ctx);
    *out = q;
    return USM_OK;
}

void ocl_queue_destroy(void *q)
{
    gate_queue_unref(q);
}

usm_status ocl_queue_wait(void *queue)
{
    ocl_queue *q = queue;
    usm_status failure;
    cl_int     err;

    gate_queue_wait_held(&q->gate);
    err     = ocl_lanes_finish(q);
    failure = gate_queue_take_failure(&q->gate);
    if (failure)
        return failure;
    return err ? ocl_fail(err, "clFinish") : USM_OK;
}

/* --- commands ------------------------------------------------------------------ */

usm_status ocl_copy(void *q, void *dst, const void *src, size_t n, size_t ndeps, void *const *deps,
                    void **ev)
{
    ocl_command cmd; /* not cleared, because it is large, and a copy uses only these fields */

    cmd.type    = OCL_COPY;
    cmd.as.rect = (ocl_rect){dst, src, n, n, n, 1};
    return ocl_submit(q, &cmd, ndeps, deps, ev);
}

usm_status ocl_copy_2d(void *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                       size_t width, size_t height, size_t ndeps, void *const *deps, void **ev)
{
    ocl_command cmd = {.type    = OCL_COPY_2D,
                       .as.rect = {dst, src, dst_pitch, src_pitch, width, height}};

    return ocl_submit(q, &cmd, ndeps, deps, ev);
}

usm_status ocl_fill(void *q, void *dst, const void *pattern, size_t pattern_size, size_t size,
                    size_t ndeps, void *const *deps, void **ev)
{
    ocl_command cmd; /* not cleared, as for a copy */

    cmd.type                 = OCL_FILL;
    cmd.as.fill.dst          = dst;
    cmd.as.fill.size         = size;
    cmd.as.fill.pattern_size = pattern_size;
    if (pattern_size > OCL_MAX_PATTERN)
        return ocl_report(USM_E_INVALID, "a pattern of %zu bytes; %d at most", pattern_size,
                          OCL_MAX_PATTERN);
    memcpy(cmd.as.fill.pattern, pattern, pattern_size);
    return ocl_submit(q, &cmd, ndeps, deps, ev);
}

usm_status ocl_prefetch(void *q, const void *p, size_t n, size_t ndeps, void *const *deps,
                        void **ev)
{
    ocl_command cmd = {.type = OCL_PREFETCH, .as.range = {p, n}};

    return ocl_submit(q, &cmd, ndeps, deps, ev);
}

usm_status ocl_marker(void *q, size_t ndeps, void *const *deps, void **ev)
{
    ocl_command cmd = {.type = OCL_MARKER};

    return ocl_submit(q, &cmd, ndeps, deps, ev);
}

/* clEnqueueMemAdviseINTEL takes numbers that no specification defines, and drivers refuse some: the
 * hint is dropped and its dependencies are kept. */
usm_status ocl_advise(void *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                      void *const *deps, void **ev)
{
    (void)p, (void)n, (void)advice;
    return ocl_marker(q, ndeps, deps, ev);
}

usm_status ocl_barrier(void *q, size_t ndeps, void *const *deps, void **ev)
{
    ocl_command cmd = {.type = OCL_BARRIER};

    return ocl_submit(q, &cmd, ndeps, deps, ev);
}
