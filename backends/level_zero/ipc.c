/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Device memory of other processes.  Called by the core through the table.
 *
 * A handle is 64 bytes of the driver's.  On Linux a file descriptor stands in it, which means
 * nothing in another process: the core takes the descriptor there, and the bytes get the number it
 * has there. Drivers since API 1.6 tell the number; before, it is what the handle begins with if
 * that is a descriptor that is open, as it is in the handles of Intel's driver.
 *
 * In the other process zeMemGetIpcHandleFromFileDescriptorExp is asked first, and may not know a
 * descriptor that came from elsewhere (Intel's driver looks in the list of what this process
 * exported, and answers out of memory).  Then the number is put where the exporter's stood, at the
 * front, as Intel's memory provider for SYCL does; what else the driver noted in the bytes (its own
 * pooling's offset) stays. */
#include "level_zero.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(ze_ipc_mem_handle_t) == sizeof(((usm_backend_ipc *)NULL)->bytes),
               "a handle is what the core carries");

/* -1: it has none that could be told. */
static int descriptor_of(const lz_context *ctx, const ze_ipc_mem_handle_t *native)
{
    uint64_t number = 0;
    int32_t  front;

    if (lz.zeMemGetFileDescriptorFromIpcHandleExp &&
        !lz.zeMemGetFileDescriptorFromIpcHandleExp(ctx->native, *native, &number))
        return number <= INT32_MAX ? (int)number : -1;
    memcpy(&front, native->data, sizeof(front));
    return front > STDERR_FILENO && fcntl(front, F_GETFD) >= 0 ? front : -1;
}

/* All of a driver's memory can be shared that any can; none of it read-only. */
usm_status lz_ipc_alloc(void *ctx, void *dev, usm_kind kind, bool writable, size_t size,
                        size_t align, void **p)
{
    (void)writable;
    return lz_mem_alloc(ctx, dev, kind, size, align, p);
}

usm_status lz_ipc_get(void *ctx, void *p, usm_backend_ipc *handle)
{
    const lz_context   *c = ctx;
    ze_ipc_mem_handle_t native;
    ze_result_t         err;

    memset(&native, 0, sizeof(native));
    err = lz.zeMemGetIpcHandle(c->native, p, &native);
    if (err)
        return lz_fail(err, "zeMemGetIpcHandle");
    memcpy(handle->bytes, native.data, sizeof(handle->bytes));
    handle->fd = descriptor_of(c, &native);
    return USM_OK;
}

/* Drivers before API 1.6 keep what they made for a handle until the memory is freed. */
usm_status lz_ipc_put(void *ctx, usm_backend_ipc *handle)
{
    ze_ipc_mem_handle_t native;
    ze_result_t         err = ZE_RESULT_SUCCESS;

    memcpy(native.data, handle->bytes, sizeof(native.data));
    if (lz.zeMemPutIpcHandle)
        err = lz.zeMemPutIpcHandle(((lz_context *)ctx)->native, native);
    if (err && err != ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)
        return lz_free_status(err, "zeMemPutIpcHandle");
    handle->fd = -1;
    return USM_OK;
}

/* The handle as it reads in this process. */
static void localise(const lz_context *ctx, const usm_backend_ipc *handle,
                     ze_ipc_mem_handle_t *native)
{
    int32_t number = handle->fd;

    memcpy(native->data, handle->bytes, sizeof(native->data));
    if (number < 0)
        return;
    if (lz.zeMemGetIpcHandleFromFileDescriptorExp) {
        ze_ipc_mem_handle_t made = *native;

        if (!lz.zeMemGetIpcHandleFromFileDescriptorExp(ctx->native, (uint64_t)number, &made)) {
            *native = made;
            return;
        }
    }
    memcpy(native->data, &number, sizeof(number));
}

usm_status lz_ipc_open(void *ctx, void *dev, const usm_backend_ipc *handle, void **p)
{
    const lz_context   *c = ctx;
    const lz_device    *d = dev;
    ze_ipc_mem_handle_t native;
    void               *block = NULL;
    ze_result_t         err;

    localise(c, handle, &native);
    err = lz.zeMemOpenIpcHandle(c->native, d->native, native, 0, &block);
    if (native_to_status(err) == USM_E_INVALID)
        return lz_report(
            USM_E_INVALID,
            "zeMemOpenIpcHandle: %s (0x%x): the handle names no memory of this driver, "
            "or the process that owned it is gone or out of reach",
            lz_error_name(err), (unsigned)err);
    if (err || !block)
        return lz_fail(err ? err : ZE_RESULT_ERROR_UNKNOWN, "zeMemOpenIpcHandle");
    *p = block;
    return USM_OK;
}

usm_status lz_ipc_close(void *ctx, void *p)
{
    return lz_free_status(lz.zeMemCloseIpcHandle(((lz_context *)ctx)->native, p),
                          "zeMemCloseIpcHandle");
}
