/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One command, passed to the driver: by cl_intel_unified_shared_memory or by SVM, depending on the
 * context.  Not here: wait lists and events (submit.c), arguments of kernels (kernel.c).  Called by
 * stream.c.
 *
 * Handled here: OpenCL has no copy of rectangles between pointers, so on CPUs a host function
 * copies them, and elsewhere each row is a copy; hints that a driver refuses become markers. */
#include "opencl.h"

#include <string.h>

static cl_int copy_bytes(const ocl_queue *q, cl_command_queue to, void *dst, const void *src,
                         size_t n, cl_uint nwait, const cl_event *wait, cl_event *event)
{
    if (ocl_context_of(q)->way == OCL_WAY_USM)
        return ocl_context_of(q)->ext->clEnqueueMemcpyINTEL(to, CL_FALSE, dst, src, n, nwait, wait,
                                                            event);
    return cl.clEnqueueSVMMemcpy(to, CL_FALSE, dst, src, n, nwait, wait, event);
}

static cl_int fill(const ocl_queue *q, cl_command_queue to, const driver_command *cmd,
                   cl_uint nwait, const cl_event *wait, cl_event *event)
{
    if (ocl_context_of(q)->way == OCL_WAY_USM)
        return ocl_context_of(q)->ext->clEnqueueMemFillINTEL(
            to, cmd->as.fill.dst, cmd->as.fill.pattern, cmd->as.fill.pattern_size,
            cmd->as.fill.size, nwait, wait, event);
    return cl.clEnqueueSVMMemFill(to, cmd->as.fill.dst, cmd->as.fill.pattern,
                                  cmd->as.fill.pattern_size, cmd->as.fill.size, nwait, wait, event);
}

/* --- rectangles -------------------------------------------------------------- */

static void CL_CALLBACK copy_rows_on_host(void *args)
{
    driver_rect rect;
    char       *dst;
    const char *src;

    memcpy(&rect, args, sizeof(rect)); /* the driver's copy may be unaligned */
    dst = rect.dst;
    src = rect.src;
    for (size_t y = 0; y < rect.height; y++)
        memcpy(dst + y * rect.dst_pitch, src + y * rect.src_pitch, rect.width);
}

#define ROWS_AT_ONCE 64

/* Events of rows that no marker covers yet.  The first may itself be such a marker. */
typedef struct row_events {
    cl_event events[ROWS_AT_ONCE];
    cl_uint  n;
} row_events;

static cl_int gather(cl_command_queue to, row_events *rows, cl_event *event)
{
    cl_int err = cl.clEnqueueMarkerWithWaitList(to, rows->n, rows->events, event);

    for (cl_uint i = 0; i < rows->n; i++)
        cl.clReleaseEvent(rows->events[i]);
    rows->n = 0;
    return err;
}

/* Copies row by row.  In an in-order queue the last row ends the command.  In an out-of-order queue
 * all rows have the same wait list, and markers gather them, 64 at a time. */
static cl_int copy_rows(const ocl_queue *q, cl_command_queue to, const driver_rect *rect,
                        cl_uint nwait, const cl_event *wait, cl_event *event)
{
    bool        gathers = event && (q->flags & USM_QUEUE_OUT_OF_ORDER) && !q->nstreams;
    row_events  rows    = {.n = 0};
    char       *dst     = rect->dst;
    const char *src     = rect->src;
    cl_int      err     = CL_SUCCESS;

    for (size_t y = 0; y < rect->height && !err; y++) {
        cl_event *mine = gathers ? &rows.events[rows.n] : y + 1 == rect->height ? event : NULL;

        err = copy_bytes(q, to, dst + y * rect->dst_pitch, src + y * rect->src_pitch, rect->width,
                         nwait, wait, mine);
        if (err || !gathers)
            continue;
        rows.n++;
        if (rows.n == ROWS_AT_ONCE && y + 1 < rect->height) {
            cl_event sum = NULL;

            err = gather(to, &rows, &sum);
            if (!err)
                rows.events[rows.n++] = sum;
        }
    }
    if (!gathers)
        return err;
    if (!err)
        return gather(to, &rows, event);
    while (rows.n)
        cl.clReleaseEvent(rows.events[--rows.n]);
    return err;
}

static cl_int copy_rect(const ocl_queue *q, cl_command_queue to, const driver_rect *rect,
                        cl_uint nwait, const cl_event *wait, cl_event *event)
{
    driver_rect args = *rect;
    cl_int      err  = CL_INVALID_OPERATION;

    if (rect->dst_pitch == rect->width && rect->src_pitch == rect->width)
        return copy_bytes(q, to, rect->dst, rect->src, rect->width * rect->height, nwait, wait,
                          event);
    if (q->dev->runs_native && rect->height > 1)
        err = cl.clEnqueueNativeKernel(to, copy_rows_on_host, &args, sizeof(args), 0, NULL, NULL,
                                       nwait, wait, event);
    if (err == CL_INVALID_OPERATION)
        err = copy_rows(q, to, rect, nwait, wait, event);
    return err;
}

/* --- the rest -------------------------------------------------------------------- */

static cl_int marker(cl_command_queue to, cl_uint nwait, const cl_event *wait, cl_event *event)
{
    return cl.clEnqueueMarkerWithWaitList(to, nwait, wait, event);
}

/* Flags 0 means "to the device, with its contents".  Intel's CPU runtime refuses 0, and the flags
 * it accepts mean "to the host" or "contents lost", so it gets a marker. */
static cl_int prefetch(const ocl_queue *q, cl_command_queue to, const driver_command *cmd,
                       cl_uint nwait, const cl_event *wait, cl_event *event)
{
    const ocl_extensions *ext = ocl_context_of(q)->ext;
    const void           *p   = cmd->as.range.p;
    size_t                n   = cmd->as.range.n;
    cl_int                err = CL_INVALID_OPERATION;

    if (ocl_context_of(q)->way == OCL_WAY_USM && ext->clEnqueueMigrateMemINTEL)
        err = ext->clEnqueueMigrateMemINTEL(to, p, n, 0, nwait, wait, event);
    if (ocl_context_of(q)->way == OCL_WAY_SVM && ocl_context_of(q)->platform->version >= 201 &&
        cl.clEnqueueSVMMigrateMem)
        err = cl.clEnqueueSVMMigrateMem(to, 1, &p, &n, 0, nwait, wait, event);
    return err ? marker(to, nwait, wait, event) : CL_SUCCESS;
}

static cl_int launch(cl_command_queue to, const driver_command *cmd, cl_uint nwait,
                     const cl_event *wait, cl_event *event)
{
    const driver_launch *l = &cmd->as.launch;

    return cl.clEnqueueNDRangeKernel(to, ((const ocl_instance *)l->instance)->native, l->dims,
                                     l->has_offset ? l->offset : NULL, l->global,
                                     l->has_local ? l->local : NULL, nwait, wait, event);
}

cl_int ocl_command_run_in(const ocl_queue *q, cl_command_queue to, const driver_command *cmd,
                          cl_uint nwait, const cl_event *wait, cl_event *event)
{
    const driver_rect *rect = &cmd->as.rect;

    switch (cmd->type) {
    case DRIVER_COPY:
        return copy_bytes(q, to, rect->dst, rect->src, rect->width, nwait, wait, event);
    case DRIVER_COPY_2D:
        return copy_rect(q, to, rect, nwait, wait, event);
    case DRIVER_FILL:
        return fill(q, to, cmd, nwait, wait, event);
    case DRIVER_PREFETCH:
        return prefetch(q, to, cmd, nwait, wait, event);
    case DRIVER_ADVISE: /* clEnqueueMemAdviseINTEL takes numbers that no specification defines, and
                           drivers refuse some: the hint is dropped */
    case DRIVER_MARKER:
        return marker(to, nwait, wait, event);
    case DRIVER_BARRIER:
        return cl.clEnqueueBarrierWithWaitList(to, nwait, wait, event);
    case DRIVER_LAUNCH:
        return launch(to, cmd, nwait, wait, event);
    }
    return CL_INVALID_OPERATION;
}

void ocl_command_drop(const defer_command *command)
{
    const driver_command *cmd = (const driver_command *)command;

    if (cmd->type == DRIVER_LAUNCH)
        ocl_instance_give_back(cmd->as.launch.instance);
}
