/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The choice of a native queue for a command.
 *
 * Nearly always there is one, and nothing to choose.  But Intel's CPU runtime (2026.22) cannot
 * release an out-of-order queue whose last command is just ending: its worker drops the last
 * reference, the queue's destructor waits for the worker's own task, and no command of any queue
 * runs any more.  Tested by releasing 20,000 queues with commands in flight: out of order the
 * process always hung, in order never.  So for this runtime an out-of-order queue consists of a few
 * native in-order queues ("streams").  Commands use them in turn, wait lists order them across
 * streams, and a command that stands for the whole queue gathers and blocks all streams.
 *
 * Streams order more than was requested.  That cannot deadlock, because no command that waits for a
 * user event is in a stream (../common/defer.c).  There is no lock: commands that threads submit at
 * the same time may come in any order, in each stream.
 *
 * Not here: the driver calls of a command (command.c).  Called by submit.c and queue.c. */
#include "opencl.h"

uint32_t ocl_streams_of(const ocl_device *dev)
{
    uint32_t units = dev->info.compute_units;

    if (!dev->needs_streams)
        return 0;
    return units < 2 ? 2 : units > OCL_MAX_LANES ? OCL_MAX_LANES : units;
}

cl_int ocl_streams_finish(const ocl_queue *q)
{
    cl_int first = CL_SUCCESS;

    if (!q->nstreams)
        return cl.clFinish(q->native);
    for (uint32_t i = 0; i < q->nstreams; i++) {
        cl_int err = cl.clFinish(q->streams[i]);

        first = first ? first : err;
    }
    return first;
}

void ocl_streams_release(const ocl_queue *q)
{
    if (q->must_finish)
        (void)cl.clFinish(q->native);
    if (!q->nstreams)
        cl.clReleaseCommandQueue(q->native);
    for (uint32_t i = 0; i < q->nstreams; i++)
        cl.clReleaseCommandQueue(q->streams[i]);
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

static cl_command_queue next_stream(ocl_queue *q)
{
    return q->streams[usm_add_relaxed(&q->next_stream, 1) % q->nstreams];
}

static void release_events(cl_event *events, cl_uint n)
{
    while (n)
        cl.clReleaseEvent(events[--n]);
}

/* Makes an event for the end of all commands in the streams. */
static cl_int gather(ocl_queue *q, cl_event *all)
{
    cl_event ends[OCL_MAX_LANES] = {NULL};
    cl_uint  n                   = 0;
    cl_int   err                 = CL_SUCCESS;

    for (; n < q->nstreams; n++) {
        err = cl.clEnqueueMarkerWithWaitList(q->streams[n], 0, NULL, &ends[n]);
        if (err)
            break;
        (void)cl.clFlush(q->streams[n]);
    }
    if (!err)
        err = cl.clEnqueueMarkerWithWaitList(q->streams[0], n, ends, all);
    if (!err)
        (void)cl.clFlush(q->streams[0]);
    release_events(ends, n);
    return err;
}

/* Makes later commands of all streams wait for `end`. */
static cl_int block_streams(const ocl_queue *q, cl_event end)
{
    cl_int err = CL_SUCCESS;

    for (uint32_t i = 0; i < q->nstreams && !err; i++) {
        err = cl.clEnqueueBarrierWithWaitList(q->streams[i], 1, &end, NULL);
        (void)cl.clFlush(q->streams[i]);
    }
    return err;
}

/* Runs a marker or a barrier; a barrier also blocks the streams. */
static cl_int run_mark(ocl_queue *q, bool blocks, cl_uint nwait, const cl_event *wait,
                       cl_event *event)
{
    static const driver_command marker = {.type = DRIVER_MARKER};
    cl_event                    end    = NULL;
    cl_int err = nwait ? run_in(q, next_stream(q), &marker, nwait, wait, &end) : gather(q, &end);

    if (!err && blocks)
        err = block_streams(q, end);
    if (!err && event)
        *event = end;
    else if (end)
        cl.clReleaseEvent(end);
    return err;
}

cl_int ocl_command_run(ocl_queue *q, const driver_command *cmd, cl_uint nwait, const cl_event *wait,
                       cl_event *event)
{
    if (!q->nstreams)
        return run_in(q, q->native, cmd, nwait, wait, event);
    if (cmd->type == DRIVER_MARKER || cmd->type == DRIVER_BARRIER)
        return run_mark(q, cmd->type == DRIVER_BARRIER, nwait, wait, event);
    return run_in(q, next_stream(q), cmd, nwait, wait, event);
}
