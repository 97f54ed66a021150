/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues, and the commands of the backend's table in the form that the gate takes.  Not here:
 * launches (kernel.c), the further steps of a command (submit.c, lane.c).  Called by the core
 * through the table.
 *
 * If a queue is destroyed with commands in flight, it releases its lanes, which end by themselves
 * (lane.c); deferred commands keep a reference to the queue. */
#include "queue.h"

#include "program.h"

#include <string.h>

static void command_drop(const gate_command *gcmd)
{
    const lz_command *cmd = (const lz_command *)gcmd;

    if (cmd->type == LZ_LAUNCH)
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

lz_device *lz_queue_device(void *q)
{
    return ((lz_queue *)q)->dev;
}

/* --- commands ---------------------------------------------------------------------- */

/* The fast path of gate_submit() and lz_issue(): no dependencies, no event, one lane. */
static usm_status submit_plain(lz_queue *q, const lz_command *cmd)
{
    lz_slot   *none = NULL;
    lz_waits   w;
    usm_status status;

    lz_waits_few(&w);
    lz_lane_lock(q->lanes[0]);
    status = lz_lane_submit(q->lanes[0], cmd, &w, false, &none);
    lz_lane_unlock(q->lanes[0]);
    command_drop(&cmd->gate);
    return status;
}

usm_status lz_submit(void *q, lz_command *cmd, size_t ndeps, void *const *deps, void **ev)
{
    cmd->gate.size       = sizeof(*cmd);
    cmd->gate.is_mark    = cmd->type == LZ_MARKER || cmd->type == LZ_BARRIER;
    cmd->gate.is_barrier = cmd->type == LZ_BARRIER;
    if (!ndeps && !ev && ((lz_queue *)q)->nlanes == 1 && gate_queue_is_open(q))
        return submit_plain(q, cmd);
    return gate_submit(q, &cmd->gate, ndeps, deps, ev);
}

usm_status lz_copy(void *q, void *dst, const void *src, size_t n, size_t ndeps, void *const *deps,
                   void **ev)
{
    lz_command cmd; /* not cleared, because it is large, and a copy uses only these fields */

    cmd.type    = LZ_COPY;
    cmd.as.rect = (lz_rect){dst, src, n, n, n, 1};
    return lz_submit(q, &cmd, ndeps, deps, ev);
}

usm_status lz_copy_2d(void *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                      size_t width, size_t height, size_t ndeps, void *const *deps, void **ev)
{
    lz_command cmd = {.type    = LZ_COPY_2D,
                      .as.rect = {dst, src, dst_pitch, src_pitch, width, height}};

    return lz_submit(q, &cmd, ndeps, deps, ev);
}

usm_status lz_fill(void *q, void *dst, const void *pattern, size_t pattern_size, size_t size,
                   size_t ndeps, void *const *deps, void **ev)
{
    lz_command cmd; /* not cleared, as for a copy */

    cmd.type                 = LZ_FILL;
    cmd.as.fill.dst          = dst;
    cmd.as.fill.size         = size;
    cmd.as.fill.pattern_size = pattern_size;
    if (pattern_size > LZ_MAX_PATTERN)
        return lz_report(USM_E_INVALID, "a pattern of %zu bytes; %d at most", pattern_size,
                         LZ_MAX_PATTERN);
    memcpy(cmd.as.fill.pattern, pattern, pattern_size);
    return lz_submit(q, &cmd, ndeps, deps, ev);
}

usm_status lz_prefetch(void *q, const void *p, size_t n, size_t ndeps, void *const *deps, void **ev)
{
    lz_command cmd = {.type = LZ_PREFETCH, .as.range = {p, n, USM_ADVICE_DEFAULT}};

    return lz_submit(q, &cmd, ndeps, deps, ev);
}

usm_status lz_advise(void *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                     void *const *deps, void **ev)
{
    lz_command cmd = {.type = LZ_ADVISE, .as.range = {p, n, advice}};

    return lz_submit(q, &cmd, ndeps, deps, ev);
}

usm_status lz_marker(void *q, size_t ndeps, void *const *deps, void **ev)
{
    lz_command cmd = {.type = LZ_MARKER};

    return lz_submit(q, &cmd, ndeps, deps, ev);
}

usm_status lz_barrier(void *q, size_t ndeps, void *const *deps, void **ev)
{
    lz_command cmd = {.type = LZ_BARRIER};

    return lz_submit(q, &cmd, ndeps, deps, ev);
}
