/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory for other processes: handles.
 *
 * A handle names the file of the block as /proc/PID/fd/N of its owner, and the part of it.  Its
 * first four bytes are the number of the descriptor and nothing else: programs written for Intel's
 * driver send that descriptor through a socket and put the number they received in its place.  So
 * the opener first looks whether it has such a descriptor itself.
 *
 * ZE_SOFT_IPC takes these ways one by one, and looks at nothing but numbers, as Intel's driver
 * does: 1, until August 2025, a descriptor of the opener; 2, since then, that number in the process
 * whose number stands at byte 16, and where the system does not give it, once more one of the
 * opener.
 *
 * What makes a handle stale: the owner is gone (its start time is in the handle, as its number may
 * be another's now), the block is freed (its descriptor is closed or another file's; the generation
 * of a slot is another).  What is open already lives on: the pages belong to the mapping.
 *
 * Called through the tables Mem and MemExp (memory.c). */
#include "ipc.h"

#include "memory.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAGIC 0xf70cu

enum { IPC_EITHER, IPC_NUMBER, IPC_OPAQUE }; /* ZE_SOFT_IPC */

typedef struct handle {
    int32_t  fd; /* as the one who has the handle can use it */
    uint16_t magic, type;
    uint64_t offset;
    uint32_t process; /* whose fd is; 0 but with ZE_SOFT_IPC=2      */
    int32_t  owner_fd;
    uint64_t start; /* of the owner's process */
    uint64_t file_id;
    uint64_t size;
    uint32_t slot, generation;
    uint32_t pid;
    uint32_t check;
} handle;

_Static_assert(offsetof(handle, process) == 16, "where Intel's driver has it");

_Static_assert(sizeof(handle) == ZE_MAX_IPC_HANDLE_SIZE, "a handle fills Level Zero's exactly");

static uint64_t way(void)
{
    static _Atomic uint64_t known = UINT64_MAX;
    uint64_t                value = atomic_load(&known);

    if (value == UINT64_MAX) {
        value = soft_knob("IPC", IPC_EITHER);
        atomic_store(&known, value);
    }
    return value;
}

/* FNV-1a of all between fd and check, without the process where that counts: programs may write to
 * both. */
static uint32_t checksum(const handle *h)
{
    handle               copy = *h;
    const unsigned char *p    = (const unsigned char *)&copy;
    uint32_t             sum  = 2166136261u;

    if (way() == IPC_OPAQUE)
        copy.process = 0;
    for (size_t i = offsetof(handle, magic); i < offsetof(handle, check); i++)
        sum = (sum ^ p[i]) * 16777619u;
    return sum;
}

/* Field 22 of /proc/PID/stat, in ticks since the system started; 0: no such process. */
static uint64_t start_time(uint32_t pid)
{
    char   path[64], text[1024];
    char  *at;
    size_t n;
    FILE  *f;

    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    f = fopen(path, "re");
    if (f == NULL)
        return 0;
    n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    at      = strrchr(text, ')'); /* the name before it may hold anything */
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

static uint64_t own_start_time(uint32_t pid)
{
    static _Atomic uint64_t known_start;
    static _Atomic uint32_t known_pid;

    if (atomic_load(&known_pid) != pid) {
        atomic_store(&known_start, start_time(pid));
        atomic_store(&known_pid, pid);
    }
    return atomic_load(&known_start);
}

static ze_result_t handle_make(soft_block *b, int fd, ze_ipc_mem_handle_t *out)
{
    uint32_t pid = (uint32_t)getpid();
    handle   h   = {.fd         = fd,
                    .magic      = MAGIC,
                    .owner_fd   = fd,
                    .pid        = pid,
                    .start      = own_start_time(pid),
                    .file_id    = b->file_id,
                    .offset     = b->offset,
                    .size       = b->a.size,
                    .slot       = b->slot,
                    .generation = b->generation,
                    .type       = (uint16_t)b->a.type};

    if (way() == IPC_OPAQUE) {
        h.process = pid;
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    }
    if (fd < 0)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    h.check = checksum(&h);
    memcpy(out, &h, sizeof(h));
    return ZE_RESULT_SUCCESS;
}

static bool handle_read(const ze_ipc_mem_handle_t *in, handle *h)
{
    memcpy(h, in, sizeof(*h));
    return h->magic == MAGIC && h->check == checksum(h) && h->size != 0;
}

ze_result_t ZE_APICALL soft_zeMemGetIpcHandle(ze_context_handle_t ctx, const void *p,
                                              ze_ipc_mem_handle_t *out)
{
    ze_result_t result = ZE_RESULT_ERROR_INVALID_ARGUMENT;
    soft_block *b;

    SOFT_CALL();
    if (soft_context_of(ctx) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (p == NULL || out == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&soft_memory_lock);
    b = soft_block_find(p);
    if (b != NULL && b->a.base == p && b->origin != SOFT_OPENED &&
        b->a.type != ZE_MEMORY_TYPE_SHARED) /* of device or host memory, says the specification */
        result = handle_make(b, soft_block_export(b), out);
    pthread_mutex_unlock(&soft_memory_lock);
    return result;
}

/* --- opening ---------------------------------------------------------------------- */

static int take_by_number(const handle *h)
{
    int process = -1, fd = -1;

    if (way() == IPC_OPAQUE)
        process = (int)syscall(SYS_pidfd_open, h->process, 0);
    if (process >= 0) {
        fd = (int)syscall(SYS_pidfd_getfd, process, h->fd, 0);
        close(process);
    }
    return fd >= 0 ? fd : fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
}

/* A descriptor of the handle's file for this process; -1: the handle is stale. */
static int file_open(const handle *h)
{
    char path[64];
    int  fd;

    if (way() != IPC_EITHER)
        return take_by_number(h);
    if (soft_file_id(h->fd) == h->file_id)
        return fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
    snprintf(path, sizeof(path), "/proc/%u/fd/%d", h->pid, h->owner_fd);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (soft_file_id(fd) != h->file_id || start_time(h->pid) != h->start) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool is_current(const handle *h, int fd)
{
    off_t    end = lseek(fd, 0, SEEK_END);
    uint32_t generation;

    if (end < 0 || h->offset > (uint64_t)end || h->size > (uint64_t)end - h->offset)
        return false;
    if (h->slot == SOFT_NO_SLOT)
        return true;
    return soft_slot_generation(fd, h->offset, h->slot, &generation) && generation == h->generation;
}

static ze_result_t block_open(const handle *h, int fd, soft_block **made)
{
    size_t      skip = (size_t)(h->offset % SOFT_PAGE);
    soft_extent part = {.fd     = fd,
                        .offset = h->offset - skip,
                        .size   = soft_round_up((size_t)h->size + skip, SOFT_PAGE)};
    soft_block *b    = calloc(1, sizeof(*b));
    ze_result_t err  = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;

    if (b == NULL)
        return err;
    err = soft_pages_map(&b->pages, &part, SOFT_DEVICE_PAGE, h->type == ZE_MEMORY_TYPE_DEVICE);
    if (err != ZE_RESULT_SUCCESS)
        goto err_block;
    b->a         = (soft_alloc){.base  = b->pages.user + skip,
                                .alias = b->pages.alias + skip,
                                .size  = (size_t)h->size,
                                .type  = (ze_memory_type_t)h->type};
    b->origin    = SOFT_OPENED;
    b->fd        = -1;
    b->export_fd = -1;
    b->slot      = SOFT_NO_SLOT;
    if (!soft_block_insert(b)) {
        err = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        goto err_pages;
    }
    *made = b;
    return ZE_RESULT_SUCCESS;

err_pages:
    soft_pages_unmap(&b->pages);
err_block:
    free(b);
    return err;
}

static ze_result_t handle_open(const handle *h, soft_block **made)
{
    ze_result_t err = ZE_RESULT_ERROR_INVALID_ARGUMENT;
    int         fd  = file_open(h);

    if (fd < 0)
        return err;
    if (is_current(h, fd)) {
        pthread_mutex_lock(&soft_memory_lock);
        err = block_open(h, fd, made);
        pthread_mutex_unlock(&soft_memory_lock);
    }
    close(fd);
    return err;
}

ze_result_t ZE_APICALL soft_zeMemOpenIpcHandle(ze_context_handle_t ctx, ze_device_handle_t device,
                                               ze_ipc_mem_handle_t in, ze_ipc_memory_flags_t flags,
                                               void **p)
{
    soft_device *dev = soft_device_of(device);
    soft_block  *b;
    handle       h;
    ze_result_t  err;

    SOFT_CALL();
    if (soft_context_of(ctx) == NULL || dev == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (p == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (flags > 0x3u)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if (soft_is_lost(dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    if (!handle_read(&in, &h))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    err = handle_open(&h, &b);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    b->a.ctx = soft_context_of(ctx);
    b->a.dev = h.type == ZE_MEMORY_TYPE_HOST ? NULL : dev;
    soft_live(1);
    *p = b->a.base;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL soft_zeMemCloseIpcHandle(ze_context_handle_t ctx, const void *p)
{
    ze_result_t result = ZE_RESULT_ERROR_INVALID_ARGUMENT;
    soft_block *b;

    soft_enter_free(__func__);
    if (soft_context_of(ctx) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (p == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&soft_memory_lock);
    b = soft_block_find(p);
    if (b != NULL && b->a.base == p && b->origin == SOFT_OPENED) {
        soft_block_remove(b);
        soft_pages_unmap(&b->pages);
        free(b);
        soft_live(-1);
        result = ZE_RESULT_SUCCESS;
    }
    pthread_mutex_unlock(&soft_memory_lock);
    return result;
}

#if SOFT_HAS_API_1_12

/* --- later than 1.4 ------------------------------------------------------------------ */

/* The descriptor stays open as long as the block lives: it is the same for every handle of it, and
 * a handle may be put back more often than it was got (Intel's tests do so). */
ze_result_t ZE_APICALL soft_zeMemPutIpcHandle(ze_context_handle_t ctx, ze_ipc_mem_handle_t in)
{
    handle h;

    soft_enter_free(__func__);
    if (soft_context_of(ctx) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return handle_read(&in, &h) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

/* Of a descriptor that zeMemGetAllocProperties gave. */
ze_result_t ZE_APICALL soft_zeMemGetIpcHandleFromFileDescriptorExp(ze_context_handle_t  ctx,
                                                                   uint64_t             fd,
                                                                   ze_ipc_mem_handle_t *out)
{
    ze_result_t result = ZE_RESULT_ERROR_INVALID_ARGUMENT;
    soft_block *b;

    SOFT_CALL();
    if (soft_context_of(ctx) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (out == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (fd > INT_MAX)
        return result;
    pthread_mutex_lock(&soft_memory_lock);
    b = soft_block_lent((int)fd);
    if (b != NULL)
        result = handle_make(b, (int)fd, out);
    pthread_mutex_unlock(&soft_memory_lock);
    return result;
}

ze_result_t ZE_APICALL soft_zeMemGetFileDescriptorFromIpcHandleExp(ze_context_handle_t ctx,
                                                                   ze_ipc_mem_handle_t in,
                                                                   uint64_t           *fd)
{
    handle h;

    SOFT_CALL();
    if (soft_context_of(ctx) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (fd == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!handle_read(&in, &h) || soft_file_id(h.fd) != h.file_id)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    *fd = (uint64_t)h.fd;
    return ZE_RESULT_SUCCESS;
}

#endif
