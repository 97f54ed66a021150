/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues.  Not here: their commands (../common/commands.c, kernel.c), whose further steps are in
 * submit.c and stream.c.  Called by the core through the table.
 *
 * If a queue is destroyed with commands in flight, it releases its streams, which end by themselves
 * (stream.c); deferred commands keep a reference to the queue. */
#include "queue.h"

#include "program.h"

static void command_drop(const defer_command *gcmd)
{
    const driver_command *cmd = (const driver_command *)gcmd;

    if (cmd->type == DRIVER_LAUNCH)
        lz_instance_give_back(cmd->as.launch.instance);
}

static void queue_free(defer_queue *deferral)
{
    lz_queue *q = (lz_queue *)deferral;

    if (!lz_enter()) /* a thread of the core may release the last queues while the process ends */
        return;
    for (uint32_t i = 0; i < q->nstreams; i++)
        lz_stream_retire(q->streams[i]);
    lz_leave();
    lz_host->heap_free(q);
}

const defer_ops lz_defer_ops = {
    .event_size    = sizeof(lz_event),
    .issue         = lz_issue,
    .issue_plain   = lz_issue_plain,
    .command_drop  = command_drop,
    .event_query   = lz_event_query,
    .event_wait    = lz_event_wait,
    .event_notify  = lz_event_notify,
    .event_fini    = lz_event_fini,
    .event_settled = lz_event_settled,
    .queue_free    = queue_free,
    .context_free  = lz_context_free,
};

/* --- creation ------------------------------------------------------------------- */

usm_status lz_queue_wrap(lz_context *ctx, lz_device *dev, uint32_t flags, uint32_t n,
                         const lz_native_stream *native_streams, lz_queue **out)
{
    lz_queue  *q      = lz_host->heap_alloc(sizeof(*q));
    usm_status status = USM_OK;

    if (!q)
        return lz_no_memory();
    for (; q->nstreams < n && !status; q->nstreams += !status)
        status = lz_stream_create(ctx, dev, flags & USM_QUEUE_PROFILING,
                                  &native_streams[q->nstreams], &q->streams[q->nstreams]);
    if (status)
        goto err_streams;
    q->dev    = dev;
    q->flags  = flags;
    q->native = (usm_level_zero_queue)USM_LEVEL_ZERO_QUEUE_INIT;

    q->native.command_list  = native_streams[0].list;
    q->native.command_queue = native_streams[0].queue;
    q->native.device        = dev->native;
    q->native.ordinal       = native_streams[0].ordinal;
    q->native.is_in_order   = native_streams[0].is_in_order;
    defer_queue_init(&q->deferral, &ctx->deferral, !(flags & USM_QUEUE_OUT_OF_ORDER));
    *out = q;
    return USM_OK;
err_streams:
    while (q->nstreams)
        lz_stream_discard(q->streams[--q->nstreams]);
    lz_host->heap_free(q);
    return status;
}

usm_status lz_queue_create(void *context, void *dev, uint32_t flags, void **out)
{
    lz_context      *ctx = context;
    lz_native_stream native_streams[LZ_MAX_LANES];
    uint32_t         wanted = flags & USM_QUEUE_OUT_OF_ORDER ? LZ_MAX_LANES : 1, n = 0;
    lz_queue        *q      = NULL;
    usm_status       status = USM_OK;

    for (; n < wanted && !status; n += !status)
        status = lz_native_stream_create(ctx, dev, &native_streams[n]);
    if (!status)
        status = lz_queue_wrap(ctx, dev, flags, n, native_streams, &q);
    if (!status) {
        *out = q;
        return USM_OK;
    }
    while (n)
        lz_native_stream_destroy(&native_streams[--n]);
    return status;
}

void lz_queue_destroy(void *q)
{
    defer_queue_unref(q);
}

usm_status lz_queue_wait(void *queue)
{
    lz_queue  *q     = queue;
    usm_status first = USM_OK, failure;

    defer_queue_wait_deferred(&q->deferral);
    for (uint32_t i = 0; i < q->nstreams; i++) {
        usm_status status = lz_stream_wait(q->streams[i]);

        first = first ? first : status;
    }
    failure = defer_queue_take_failure(&q->deferral);
    return failure ? failure : first;
}
