/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Native queues in both directions, as a usm_level_zero_queue, because Level Zero's handles do not
 * show their type.  Events: event.c.  Called by the core through the table.
 *
 * Level Zero has no reference counts: a handle passed with USM_KEEP must stay valid until the queue
 * is destroyed and its commands have ended. */
#include "queue.h"

static usm_status check(const usm_level_zero_queue *native)
{
    if (native->struct_size < sizeof(*native))
        return lz_report(USM_E_ABI, "struct_size of the usm_level_zero_queue is too small; start "
                                    "with USM_LEVEL_ZERO_QUEUE_INIT");
    if (!native->command_list == !native->command_queue)
        return lz_report(USM_E_INVALID, "a usm_level_zero_queue is over a command_list or a "
                                        "command_queue: set one of them");
    if (!native->device)
        return lz_report(USM_E_INVALID, "a usm_level_zero_queue needs the device that its handle "
                                        "was made for");
    if (native->is_in_order && native->command_queue)
        return lz_report(USM_E_INVALID, "is_in_order of a usm_level_zero_queue is for immediate "
                                        "command lists only");
    return USM_OK;
}

static bool has_device(const lz_context *ctx, const lz_device *dev)
{
    for (size_t i = 0; i < ctx->ndevices; i++)
        if (ctx->devices[i] == dev)
            return true;
    return false;
}

/* The queue is in order, and could have times; but its creator did not request them from us. */
usm_status lz_queue_from_native(void *context, void *handle, usm_ownership ownership, void **out,
                                void **dev_out, uint32_t *flags)
{
    const usm_level_zero_queue *native        = handle;
    lz_context                 *ctx           = context;
    lz_native_stream            native_stream = {0};
    lz_device                  *dev           = NULL;
    lz_queue                   *q             = NULL;
    usm_status                  status        = check(native);

    if (!status)
        status = lz_device_find(native->device, &dev);
    if (status)
        return status;
    if (!has_device(ctx, dev))
        return lz_report(USM_E_INVALID, "the native queue's device is not in the context");
    native_stream.list        = native->command_list;
    native_stream.queue       = native->command_queue;
    native_stream.ordinal     = native->ordinal;
    native_stream.is_in_order = native->is_in_order;
    native_stream.is_owned    = ownership == USM_TRANSFER;
    status                    = lz_queue_wrap(ctx, dev, USM_QUEUE_IN_ORDER, 1, &native_stream, &q);
    if (status)
        return status;
    *out     = q;
    *dev_out = dev;
    *flags   = USM_QUEUE_IN_ORDER;
    return USM_OK;
}

usm_status lz_queue_native(void *q, void **native)
{
    *native = &((lz_queue *)q)->native;
    return USM_OK;
}
