/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The choice of a native queue for a command.
 *
 * Nearly always there is one, and nothing to choose.  But Intel's CPU runtime (2026.22) cannot
 * release an out-of-order queue whose last command is just ending: its worker drops the last
 * reference, the queue's destructor waits for the worker's own task, and no command of any queue
 * runs any more.  Tested by releasing 20,000 queues with commands in flight: out of order the
 * process always hung, in order never.  So for this runtime an out-of-order queue consists of a few
 * native in-order queues ("lanes").  Commands use them in turn, wait lists order them across lanes,
 * and a command that stands for the whole queue gathers and blocks all lanes.
 *
 * Lanes order more than was requested.  That cannot deadlock, because no command that waits for a
 * user event is in a lane (../common/gate.c).  There is no lock: commands that threads submit at
 * the same time may come in any order, in each lane.
 *
 * Not here: the driver calls of a command (command.c).  Called by submit.c and queue.c. */
#include "opencl.h"

uint32_t ocl_lanes_of(const ocl_device *dev)
{
    uint32_t units = dev->info.compute_units;

    if (!dev->needs_lanes)
        return 0;
    return units < 2 ? 2 : units > OCL_MAX_LANES ? OCL_MAX_LANES : units;
}

cl_int ocl_lanes_finish(const ocl_queue *q)
{
    cl_int first = CL_SUCCESS;

    if (!q->nlanes)
        return cl.clFinish(q->native);
    for (uint32_t i = 0; i < q->nlanes; i++) {
        cl_int err = cl.clFinish(q->lanes[i]);

        first = first ? first : err;
    }
    return first;
}

void ocl_lanes_release(const ocl_queue *q)
{
    if (q->must_finish)
        (void)cl.clFinish(q->native);
    if (!q->nlanes)
        cl.clReleaseCommandQueue(q->native);
    for (uint32_t i = 0; i < q->nlanes; i++)
        cl.clReleaseCommandQueue(q->lanes[i]);
}

/* A failure to flush shows up at the next wait: the command is queued. */
static cl_int run_in(const ocl_queue *q, cl_command_queue to, const driver_command *cmd,
                     cl_uint nwait, const cl_event *wait, cl_event *event)
{
    cl_int err = ocl_command_run_in(q, to, cmd, nwait, wait, event);

    if (!err)
        (void)cl.clFlush(to);
    return err;
}

static cl_command_queue next_lane(ocl_queue *q)
{
    return q->lanes[usm_add_relaxed(&q->next_lane, 1) % q->nlanes];
}

static void release_events(cl_event *events, cl_uint n)
{
    while (n)
        cl.clReleaseEvent(events[--n]);
}

/* Makes an event for the end of all commands in the lanes. */
static cl_int gather(ocl_queue *q, cl_event *all)
{
    cl_event ends[OCL_MAX_LANES] = {NULL};
    cl_uint  n                   = 0;
    cl_int   err                 = CL_SUCCESS;

    for (; n < q->nlanes; n++) {
        err = cl.clEnqueueMarkerWithWaitList(q->lanes[n], 0, NULL, &ends[n]);
        if (err)
            break;
        (void)cl.clFlush(q->lanes[n]);
    }
    if (!err)
        err = cl.clEnqueueMarkerWithWaitList(q->lanes[0], n, ends, all);
    if (!err)
        (void)cl.clFlush(q->lanes[0]);
    release_events(ends, n);
    return err;
}

/* Makes later commands of all lanes wait for `end`. */
static cl_int block_lanes(const ocl_queue *q, cl_event end)
{
    cl_int err = CL_SUCCESS;

    for (uint32_t i = 0; i < q->nlanes && !err; i++) {
        err = cl.clEnqueueBarrierWithWaitList(q->lanes[i], 1, &end, NULL);
        (void)cl.clFlush(q->lanes[i]);
    }
    return err;
}

/* Runs a marker or a barrier; a barrier also blocks the lanes. */
static cl_int run_mark(ocl_queue *q, bool blocks, cl_uint nwait, const cl_event *wait,
                       cl_event *event)
{
    static const driver_command marker = {.type = DRIVER_MARKER};
    cl_event                    end    = NULL;
    cl_int err = nwait ? run_in(q, next_lane(q), &marker, nwait, wait, &end) : gather(q, &end);

    if (!err && blocks)
        err = block_lanes(q, end);
    if (!err && event)
        *event = end;
    else if (end)
        cl.clReleaseEvent(end);
    return err;
}

cl_int ocl_command_run(ocl_queue *q, const driver_command *cmd, cl_uint nwait, const cl_event *wait,
                       cl_event *event)
{
    if (!q->nlanes)
        return run_in(q, q->native, cmd, nwait, wait, event);
    if (cmd->type == DRIVER_MARKER || cmd->type == DRIVER_BARRIER)
        return run_mark(q, cmd->type == DRIVER_BARRIER, nwait, wait, event);
    return run_in(q, next_lane(q), cmd, nwait, wait, event);
}
