/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Device memory of other processes.  Called by the core through the table.
 *
 * A handle is 64 bytes of the driver's.  On Linux a file descriptor stands in it, which means
 * nothing in another process: the core takes the descriptor there, and the bytes get the number it
 * has there. Drivers since API 1.6 tell the number; before, it is what the handle begins with if
 * that is a descriptor that is open, as it is in the handles of Intel's driver.
 *
 * In the other process the number that stands in the bytes is some other descriptor's, or none's:
 * it is never handed to the driver as it is, unless the bytes say whose it is.  Since August 2025
 * those of Intel's driver do, in the word at byte 16 (IpcOpaqueMemoryData of its sources, packed);
 * the driver takes the descriptor from that process by itself.  Where that can be done here, and
 * gives the file that the core has brought, the handle goes to the driver untouched.  Where it
 * cannot (the driver would then fall back to the number, as one of this process), the descriptor
 * that the core has brought is named as one of this process.
 *
 * Older drivers: zeMemGetIpcHandleFromFileDescriptorExp is asked first, and may not know a
 * descriptor that came from elsewhere (Intel's driver looks in the list of what this process
 * exported, and answers out of memory).  Then the number is put where the exporter's stood, at the
 * front, as Intel's memory provider for SYCL does; what else the driver noted in the bytes (its own
 * pooling's offset) stays. */
#include "level_zero.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

/* --- handles that say whose descriptor they name ---------------------------------------------- */

#define PROCESS_AT  16u
#define LEAST_TOLD  5u /* older bytes have a small number there, of the kind of memory        */
#define BEYOND_KIND 17u

static int32_t number_in(const ze_ipc_mem_handle_t *native)
{
    int32_t number;

    memcpy(&number, native->data, sizeof(number));
    return number;
}

static void name_descriptor(ze_ipc_mem_handle_t *native, int32_t number)
{
    memcpy(native->data, &number, sizeof(number));
}

/* 0: they do not say. */
static uint32_t process_in(const ze_ipc_mem_handle_t *native)
{
    static const char zeroes[sizeof(native->data) - BEYOND_KIND];
    uint32_t          process;

    memcpy(&process, native->data + PROCESS_AT, sizeof(process));
    if (process < LEAST_TOLD && memcmp(native->data + BEYOND_KIND, zeroes, sizeof(zeroes)) == 0)
        return 0;
    return process <= INT32_MAX ? process : 0;
}

static bool is_same_file(int a, int b)
{
    struct stat one, other;

    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* Whether the driver can take what the handle names from `process`, and that is what `fd` is; an fd
 * of -1 is not compared. */
static bool can_take(uint32_t process, int32_t number, int fd)
{
    int  pidfd = (int)syscall(SYS_pidfd_open, (pid_t)process, 0);
    int  taken = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    bool can   = taken >= 0 && (fd < 0 || is_same_file(taken, fd));

    if (taken >= 0)
        (void)close(taken);
    if (pidfd >= 0)
        (void)close(pidfd);
    return can;
}

/* --- opening
 * -------------------------------------------------------------------------------------- */

/* The handle with the descriptor as one of this process, which drivers that take a number for
 * theirs get as the exporter's never. */
static void localise(const lz_context *ctx, int fd, ze_ipc_mem_handle_t *native)
{
    const uint32_t      own  = (uint32_t)getpid();
    ze_ipc_mem_handle_t made = *native;

    if (process_in(native)) {
        memcpy(native->data + PROCESS_AT, &own, sizeof(own));
    } else if (lz.zeMemGetIpcHandleFromFileDescriptorExp &&
               !lz.zeMemGetIpcHandleFromFileDescriptorExp(ctx->native, (uint64_t)fd, &made)) {
        *native = made;
        return;
    }
    name_descriptor(native, fd);
}

/* Another number of the same file: drivers remember what they took by process and number, and that
 * it is the exporter's own handle by the number. */
static int renumbered(int fd, int32_t taboo)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, fd > taboo ? fd : taboo + 1);
}

static ze_result_t open_localised(const lz_context *ctx, const lz_device *dev, int fd,
                                  const ze_ipc_mem_handle_t *as_sent, void **block)
{
    ze_ipc_mem_handle_t native = *as_sent;
    int                 own    = fd;
    ze_result_t         err;

    if (process_in(&native))
        own = renumbered(fd, number_in(&native));
    if (own < 0)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    localise(ctx, own, &native);
    err = lz.zeMemOpenIpcHandle(ctx->native, dev->native, native, 0, block);
    if (own != fd)
        (void)close(own);
    return err;
}

static ze_result_t open_handle(const lz_context *ctx, const lz_device *dev,
                               const usm_backend_ipc *handle, void **block)
{
    ze_ipc_mem_handle_t native;
    uint32_t            process;
    ze_result_t         err = ZE_RESULT_ERROR_INVALID_ARGUMENT;

    memcpy(native.data, handle->bytes, sizeof(native.data));
    process = process_in(&native);
    if (handle->fd < 0 || (process && can_take(process, number_in(&native), handle->fd)))
        err = lz.zeMemOpenIpcHandle(ctx->native, dev->native, native, 0, block);
    if (native_to_status(err) == USM_E_INVALID && handle->fd >= 0)
        err = open_localised(ctx, dev, handle->fd, &native, block);
    return err;
}

usm_status lz_ipc_open(void *ctx, void *dev, const usm_backend_ipc *handle, void **p)
{
    const lz_context *c     = ctx;
    const lz_device  *d     = dev;
    void             *block = NULL;
    ze_result_t       err   = open_handle(c, d, handle, &block);

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
