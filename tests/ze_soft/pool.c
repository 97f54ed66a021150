/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Event pools, also those of other processes.  Called by the loader through the table, and by
 * event.c, whose events keep their pool.
 *
 * The pool of another process is the same file of cells, mapped here, too: a handle names the file
 * by its descriptor, which may have been passed through a socket (then it is one of this process),
 * or is found by the process that made the handle. */
#include "exec.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLAGS_KNOWN 0xfu

/* ze_event_pool_counter_based_exp_desc_t of API 1.8. */
#define STYPE_COUNTER_BASED 0x00020014

/* What is in a ze_ipc_event_pool_handle_t: the descriptor first, which programs that pass it
 * through a socket replace by their own. */
typedef struct ipc_data {
    int32_t  fd;
    int32_t  pid, pid_fd;
    uint32_t flags, roots;
    uint64_t dev, ino, count;
} ipc_data;

_Static_assert(sizeof(ipc_data) <= ZE_MAX_IPC_HANDLE_SIZE, "the handle has no room for it");

/* Which root devices the list covers; false: not all are ours. */
static bool roots_of(uint32_t n, ze_device_handle_t *devices, uint32_t *roots)
{
    const uint32_t all = (1u << sizeof(soft_devices) / sizeof(soft_devices[0])) - 1;
    uint32_t       set = n ? 0 : all;

    for (uint32_t i = 0; i < n; i++) {
        const soft_device *dev = soft_device_of(devices[i]);

        if (!dev)
            return false;
        set |= 1u << dev->index;
    }
    *roots = set;
    return true;
}

static bool wants_counters(const void *chain)
{
    for (const ze_base_desc_t *d = chain; d; d = d->pNext)
        if ((uint32_t)d->stype == STYPE_COUNTER_BASED)
            return true;
    return false;
}

/* Takes the store. */
static ze_result_t pool_new(exec_store *store, size_t count, uint32_t flags, exec_pool **out)
{
    exec_pool *pool = exec_object_new(SOFT_POOL, sizeof(*pool));

    if (!pool)
        goto err_store;
    pool->in_use = calloc(count, sizeof(*pool->in_use));
    if (!pool->in_use)
        goto err_pool;
    atomic_store(&pool->refs, 1);
    pool->store = store;
    pool->count = count;
    pool->flags = flags;
    *out        = pool;
    return ZE_RESULT_SUCCESS;

err_pool:
    exec_object_retire(pool);
    exec_object_free(pool);
err_store:
    exec_store_unref(store);
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

void exec_pool_unref(exec_pool *pool)
{
    if (atomic_fetch_sub(&pool->refs, 1) != 1)
        return;
    exec_store_unref(pool->store);
    free(pool->in_use);
    exec_object_free(pool);
}

static ze_result_t ZE_APICALL soft_zeEventPoolCreate(ze_context_handle_t         hctx,
                                                     const ze_event_pool_desc_t *desc, uint32_t n,
                                                     ze_device_handle_t     *devices,
                                                     ze_event_pool_handle_t *out)
{
    exec_store *store;
    exec_pool  *pool;
    uint32_t    roots;
    ze_result_t res;

    SOFT_CALL();
    if (!soft_context_of(hctx))
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->flags & ~FLAGS_KNOWN)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if (!desc->count || (!devices && n))
        return ZE_RESULT_ERROR_INVALID_SIZE;
    if (!roots_of(n, devices, &roots))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    store = exec_store_new(desc->count, roots, desc->flags & ZE_EVENT_POOL_FLAG_IPC);
    if (!store)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    res = pool_new(store, desc->count, desc->flags, &pool);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    pool->ctx        = hctx;
    pool->is_counter = wants_counters(desc->pNext);
    *out             = (ze_event_pool_handle_t)pool;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t destroy(ze_event_pool_handle_t h, bool is_opened)
{
    exec_pool *pool;

    EXEC_HANDLE(pool, h, SOFT_POOL);
    if (pool->is_opened != is_opened)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    exec_object_retire(pool);
    exec_pool_unref(pool);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeEventPoolDestroy(ze_event_pool_handle_t h)
{
    soft_enter_free(__func__);
    return destroy(h, false);
}

/* --- other processes --------------------------------------------------------------- */

static ze_result_t ZE_APICALL soft_zeEventPoolGetIpcHandle(ze_event_pool_handle_t      h,
                                                           ze_ipc_event_pool_handle_t *out)
{
    exec_pool  *pool;
    ipc_data    data = {0};
    struct stat st;

    SOFT_CALL();
    EXEC_HANDLE(pool, h, SOFT_POOL);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    /* Counters are bound to their commands, which another process does not see. */
    if (pool->store->fd < 0 || pool->is_counter)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (fstat(pool->store->fd, &st))
        return ZE_RESULT_ERROR_UNKNOWN;
    data.fd = data.pid_fd = pool->store->fd;
    data.pid              = getpid();
    data.flags            = pool->flags;
    data.roots            = pool->store->roots;
    data.dev              = st.st_dev;
    data.ino              = st.st_ino;
    data.count            = pool->count;
    memset(out, 0, sizeof(*out));
    memcpy(out->data, &data, sizeof(data));
    return ZE_RESULT_SUCCESS;
}

static bool is_the_file(int fd, const ipc_data *data)
{
    struct stat st;

    return fd >= 0 && !fstat(fd, &st) && st.st_dev == data->dev && st.st_ino == data->ino;
}

/* A descriptor of the handle's file for ourselves; -1: it is gone. */
static int ipc_file(const ipc_data *data)
{
    char path[64];
    int  fd;

    if (is_the_file(data->fd, data))
        return fcntl(data->fd, F_DUPFD_CLOEXEC, 0);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)data->pid, (int)data->pid_fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && !is_the_file(fd, data)) {
        close(fd);
        return -1;
    }
    return fd;
}

static ze_result_t ZE_APICALL soft_zeEventPoolOpenIpcHandle(ze_context_handle_t        hctx,
                                                            ze_ipc_event_pool_handle_t handle,
                                                            ze_event_pool_handle_t    *out)
{
    ipc_data    data;
    exec_store *store;
    exec_pool  *pool;
    ze_result_t res;
    int         fd;

    SOFT_CALL();
    if (!soft_context_of(hctx))
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    memcpy(&data, handle.data, sizeof(data));
    fd = ipc_file(&data);
    if (fd < 0)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    store = exec_store_open(fd, data.count, data.roots);
    if (!store) {
        close(fd);
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    res = pool_new(store, data.count, data.flags, &pool);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    pool->ctx       = hctx;
    pool->is_opened = true;
    *out            = (ze_event_pool_handle_t)pool;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeEventPoolCloseIpcHandle(ze_event_pool_handle_t h)
{
    soft_enter_free(__func__);
    return destroy(h, true);
}

#if SOFT_HAS_API_1_12
/* A handle holds nothing. */
static ze_result_t ZE_APICALL soft_zeEventPoolPutIpcHandle(ze_context_handle_t        hctx,
                                                           ze_ipc_event_pool_handle_t handle)
{
    (void)handle;
    SOFT_CALL();
    return soft_context_of(hctx) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
}

static ze_result_t ZE_APICALL soft_zeEventPoolGetContextHandle(ze_event_pool_handle_t h,
                                                               ze_context_handle_t   *out)
{
    exec_pool *pool;

    SOFT_CALL();
    EXEC_HANDLE(pool, h, SOFT_POOL);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = pool->ctx;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeEventPoolGetFlags(ze_event_pool_handle_t h,
                                                       ze_event_pool_flags_t *out)
{
    exec_pool *pool;

    SOFT_CALL();
    EXEC_HANDLE(pool, h, SOFT_POOL);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = pool->flags;
    return ZE_RESULT_SUCCESS;
}
#endif

SOFT_TABLE(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnCreate, soft_zeEventPoolCreate);
    SOFT_FIELD(1, 0, pfnDestroy, soft_zeEventPoolDestroy);
    SOFT_FIELD(1, 0, pfnGetIpcHandle, soft_zeEventPoolGetIpcHandle);
    SOFT_FIELD(1, 0, pfnOpenIpcHandle, soft_zeEventPoolOpenIpcHandle);
    SOFT_FIELD(1, 0, pfnCloseIpcHandle, soft_zeEventPoolCloseIpcHandle);
#if SOFT_HAS_API_1_12
    SOFT_FIELD(1, 6, pfnPutIpcHandle, soft_zeEventPoolPutIpcHandle);
    SOFT_FIELD(1, 9, pfnGetContextHandle, soft_zeEventPoolGetContextHandle);
    SOFT_FIELD(1, 9, pfnGetFlags, soft_zeEventPoolGetFlags);
#endif
    return ZE_RESULT_SUCCESS;
}
