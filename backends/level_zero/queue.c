/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues.  Not here: their commands (../common/commands.c, kernel.c), whose further steps are in
 * submit.c and lane.c.  Called by the core through the table.
 *
 * If a queue is destroyed with commands in flight, it releases its lanes, which end by themselves
 * (lane.c); deferred commands keep a reference to the queue. */
#include "queue.h"

#include "program.h"

static void command_drop(const gate_command *gcmd)
{
    const driver_command *cmd = (const driver_command *)gcmd;

    if (cmd->type == DRIVER_LAUNCH)
        lz_instance_give_back(cmd->as.launch.instance);
}

static void queue_free(gate_queue *gate)
{
    lz_queue *q = (lz_queue *)gate;

    if (!lz_enter()) /* a thread of the core may release the last queues while the process ends */
        return;
    for (uint32_t i = 0; i < q->nlanes; i++)
        lz_lane_retire(q->lanes[i]);
    lz_leave();
    lz_host->heap_free(q);
}

const gate_ops lz_gate_ops = {
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
                         const lz_stream *streams, lz_queue **out)
{
    lz_queue  *q      = lz_host->heap_alloc(sizeof(*q));
    usm_status status = USM_OK;

    if (!q)
        return lz_no_memory();
    for (; q->nlanes < n && !status; q->nlanes += !status)
        status = lz_lane_create(ctx, dev, flags & USM_QUEUE_PROFILING, &streams[q->nlanes],
                                &q->lanes[q->nlanes]);
    if (status)
        goto err_lanes;
    q->dev    = dev;
    q->flags  = flags;
    q->native = (usm_level_zero_queue)USM_LEVEL_ZERO_QUEUE_INIT;

    q->native.command_list  = streams[0].list;
    q->native.command_queue = streams[0].queue;
    q->native.device        = dev->native;
    q->native.ordinal       = streams[0].ordinal;
    q->native.is_in_order   = streams[0].is_in_order;
    gate_queue_init(&q->gate, &ctx->gate, !(flags & USM_QUEUE_OUT_OF_ORDER));
    *out = q;
    return USM_OK;
err_lanes:
    while (q->nlanes)
        lz_lane_discard(q->lanes[--q->nlanes]);
    lz_host->heap_free(q);
    return status;
}

usm_status lz_queue_create(void *context, void *dev, uint32_t flags, void **out)
{
    lz_context *ctx = context;
    lz_stream   streams[LZ_MAX_LANES];
    uint32_t    wanted = flags & USM_QUEUE_OUT_OF_ORDER ? LZ_MAX_LANES : 1, n = 0;
    lz_queue   *q      = NULL;
    usm_status  status = USM_OK;

    for (; n < wanted && !status; n += !status)
        status = lz_stream_create(ctx, dev, &streams[n]);
    if (!status)
        status = lz_queue_wrap(ctx, dev, flags, n, streams, &q);
    if (!status) {
        *out = q;
        return USM_OK;
    }
    while (n)
        lz_stream_destroy(&streams[--n]);
    return status;
}

void lz_queue_destroy(void *q)
{
    gate_queue_unref(q);
}

usm_status lz_queue_wait(void *queue)
{
    lz_queue  *q     = queue;
    usm_status first = USM_OK, failure;

    gate_queue_wait_held(&q->gate);
    for (uint32_t i = 0; i < q->nlanes; i++) {
        usm_status status = lz_lane_wait(q->lanes[i]);

        first = first ? first : status;
    }
    failure = gate_queue_take_failure(&q->gate);
    return failure ? failure : first;
}
