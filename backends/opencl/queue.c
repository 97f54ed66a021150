/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues.  Not here: their commands (../common/commands.c, kernel.c).  Called by the core through
 * the table.
 *
 * A queue that is destroyed with commands in flight: clReleaseCommandQueue does not wait, and the
 * driver's commands end nevertheless (stream.c has the exception); deferred commands keep a
 * reference to our queue. */
#include "opencl.h"

#include <string.h>

void ocl_queue_free(defer_queue *q)
{
    ocl_streams_release((ocl_queue *)q);
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
static cl_int create_streams(const ocl_context *ctx, ocl_queue *q, cl_bitfield bits)
{
    cl_int err = CL_SUCCESS;

    for (uint32_t i = 0; i < q->nstreams; i++) {
        q->streams[i] = create(ctx, q->dev, bits, &err);
        if (!err)
            continue;
        while (i)
            cl.clReleaseCommandQueue(q->streams[--i]);
        return err;
    }
    q->native = q->streams[0];
    return CL_SUCCESS;
}

static usm_status queue_new(ocl_device *dev, uint32_t flags, ocl_queue **out)
{
    ocl_queue *q = ocl_host->heap_alloc(sizeof(*q));

    if (!q)
        return ocl_no_memory();
    q->dev   = dev;
    q->flags = flags;
    *out     = q;
    return USM_OK;
}

/* The native queues exist: from here on releasing the last reference releases them. */
static void queue_open(ocl_queue *q, ocl_context *ctx)
{
    q->serial = usm_add_relaxed(&ctx->serials, (uint64_t)1) + 1;
    defer_queue_init(&q->deferral, &ctx->deferral, !(q->flags & USM_QUEUE_OUT_OF_ORDER));
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
        q->nstreams = ocl_streams_of(dev);
    if (q->nstreams) {
        err = create_streams(ctx, q, bits);
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
    defer_queue_unref(q);
}

usm_status ocl_queue_wait(void *queue)
{
    ocl_queue *q = queue;
    usm_status failure;
    cl_int     err;

    defer_queue_wait_deferred(&q->deferral);
    err     = ocl_streams_finish(q);
    failure = defer_queue_take_failure(&q->deferral);
    if (failure)
        return failure;
    return err ? ocl_fail(err, "clFinish") : USM_OK;
}
