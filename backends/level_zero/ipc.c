/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Device memory of other processes.  Called by the core through the table.
 *
 * A handle consists of 64 bytes of the driver's.  On Linux it contains a file descriptor, which
 * means nothing in another process: the core transfers the descriptor, and its number in the other
 * process is written to the bytes.  Drivers since API 1.6 return the number; with older ones, it is
 * the first word of the handle if that is an open descriptor, as in the handles of Intel's driver.
 *
 * In the other process the number in the bytes denotes another descriptor or none, so the bytes are
 * never passed to the driver as they are, unless they identify their process.  Since August 2025
 * those of Intel's driver do, in the word at byte 16 (IpcOpaqueMemoryData of its sources, packed);
 * the driver then takes the descriptor from that process itself.  If that is possible here, and
 * gives the same file that the core transferred, the handle is passed to the driver unchanged.  If
 * not (the driver would fall back to the number, as one of this process), the transferred
 * descriptor is entered as one of this process.
 *
 * Older drivers: zeMemGetIpcHandleFromFileDescriptorExp is tried first, and may not know a
 * descriptor from elsewhere (Intel's driver looks in the list of this process's exports, and
 * returns out of memory).  Then the number replaces the exporter's at the front of the bytes, as in
 * Intel's memory provider for SYCL; the other data of the driver in the bytes (the offset in its
 * own pooling) stay. */
#include "level_zero.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(ze_ipc_mem_handle_t) == sizeof(((usm_backend_ipc *)NULL)->bytes),
               "a handle is what the core carries");

/* -1: there is none, or it is unknown. */
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

/* If a driver can share any of its memory, it can share all of it; none of it is read-only. */
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

/* Drivers before API 1.6 keep the data of a handle until the memory is freed. */
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

/* --- handles that identify their process ------------------------------------------------------ */

#define PROCESS_AT  16u
#define LEAST_TOLD  5u /* older bytes have a small number there, for the kind of memory */
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

/* Returns 0 if they do not identify it. */
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

/* True if the driver can take the descriptor named by the handle from `process`, and it is the same
 * file as `fd`; an fd of -1 is not compared. */
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

/* --- opening ---------------------------------------------------------------------------------- */

/* Makes the descriptor in the handle one of this process, so that drivers which take the number for
 * their own never use the exporter's. */
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

/* Another number for the same file.  Drivers remember what they opened by process and number, and
 * recognise by the number whether a handle is the exporter's own. */
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
