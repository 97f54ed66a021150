/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contexts: each has one native context, its own or a borrowed one (native.c).  The deferral queue
 * counts references: queues that still have commands keep it alive.  Called by the core through the
 * table.
 *
 * A native context covers all devices of its driver (zeContextCreate).  Every driver and SYCL use
 * this way, and it makes memory of a root device usable by queues of its sub-devices. */
#include "queue.h"

#include <string.h>

usm_status lz_context_wrap(ze_context_handle_t native, bool is_owned, size_t n,
                           lz_device *const *devices, lz_context **out)
{
    lz_context *ctx = lz_host->heap_alloc(sizeof(*ctx) + n * sizeof(ctx->devices[0]));
    usm_status  status;

    if (!ctx)
        return lz_no_memory();
    ctx->native   = native;
    ctx->is_owned = is_owned;
    ctx->driver   = devices[0]->driver;
    ctx->ndevices = n;
    memcpy(ctx->devices, devices, n * sizeof(devices[0]));
    status = lz_event_pools_create(ctx, &ctx->events);
    if (status) {
        lz_host->heap_free(ctx);
        return status;
    }
    defer_context_init(&ctx->deferral, &lz_defer_ops, lz_host);
    *out = ctx;
    return USM_OK;
}

void lz_context_free(defer_context *deferral)
{
    lz_context *ctx = usm_container_of(deferral, lz_context, deferral);
    ze_result_t err = ZE_RESULT_SUCCESS;

    if (!lz_enter()) /* the process is ending, and the commands of its queues were left alone too */
        return;
    lz_event_pools_destroy(ctx->events);
    if (ctx->is_owned)
        err = lz.zeContextDestroy(ctx->native);
    if (err && native_to_status(err) != USM_E_DEVICE_LOST)
        lz_host->log(USM_LOG_WARN, "Level Zero: zeContextDestroy failed: %s (0x%x)",
                     lz_error_name(err), (unsigned)err);
    lz_leave();
    lz_host->heap_free(ctx);
}

usm_status lz_context_create(size_t ndevices, void *const *devices, void **out)
{
    lz_device *const   *list   = (lz_device *const *)devices;
    ze_context_desc_t   desc   = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t native = NULL;
    lz_context         *ctx    = NULL;
    ze_result_t         err    = lz.zeContextCreate(list[0]->driver->native, &desc, &native);
    usm_status          status;

    if (err)
        return lz_fail(err, "zeContextCreate");
    status = lz_context_wrap(native, true, ndevices, list, &ctx);
    if (status)
        (void)lz.zeContextDestroy(native);
    else
        *out = ctx;
    return status;
}

void lz_context_destroy(void *ctx)
{
    defer_context_unref(&((lz_context *)ctx)->deferral);
}
