/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory shared with other processes: memory files.  The file has no name, so nothing stays behind
 * when the last process that maps it has ended.
 *
 * Its size is sealed, so that no process that opens it can remove pages that the others use.
 * Memory that the others may only read is sealed against writing as well, after this process has
 * mapped it: from then on the kernel refuses every new writable mapping, and mprotect() on existing
 * ones.
 *
 * Device memory of guard mode is not shared, because its two mappings belong to this process.
 * Called by the core, through the table in host.c; by memory.c and host.c. */
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* The magic bytes of a handle. */
static const char handle_magic[8] = "host-mem";

typedef struct mapping {
    usm_list link;
    char    *start;
    size_t   size; /* whole pages                                            */
    int      fd;   /* -1: opened from another process (or closed in a child) */
} mapping;

void usm__host_ipc_lock(void)
{
    pthread_mutex_lock(&usm__host.files.lock);
}

void usm__host_ipc_unlock(void)
{
    pthread_mutex_unlock(&usm__host.files.lock);
}

void usm__host_ipc_in_child(void)
{
    for (size_t i = 0; i < USM__HOST_BUCKETS; i++) {
        if (!usm__host.files.buckets[i].next)
            continue;
        USM_LIST_FOREACH (it, &usm__host.files.buckets[i]) {
            mapping *m = usm_container_of(it, mapping, link);

            if (m->fd >= 0)
                (void)usm__host_lib->os->close(m->fd);
            m->fd = -1;
        }
    }
}

/* Under the lock. */
static usm_list *bucket_of(const void *start)
{
    usm_list *b = &usm__host.files.buckets[((uintptr_t)start * 0x9e3779b97f4a7c15u) >> 56];

    if (!b->next)
        usm_list_init(b);
    return b;
}

/* Under the lock. */
static mapping *find(const void *start)
{
    usm_list *b = bucket_of(start);

    USM_LIST_FOREACH (it, b)
        if (usm_container_of(it, mapping, link)->start == start)
            return usm_container_of(it, mapping, link);
    return NULL;
}

static void enter(mapping *m)
{
    pthread_mutex_lock(&usm__host.files.lock);
    usm_list_append(bucket_of(m->start), &m->link);
    usm_add_relaxed(&usm__host.files.count, 1);
    pthread_mutex_unlock(&usm__host.files.lock);
}

static usm_status refused(const char *what)
{
    bool full = errno == ENOMEM || errno == EFBIG || errno == ENOSPC;

    return usm__host_refused(full ? USM_E_NO_MEMORY : USM_E_SYSTEM, what, errno);
}

/* ---- exported memory --------------------------------------------------------- */

static usm_status map_file(mapping *m, size_t align, bool writable)
{
    const usm_os_api *os = usm__host_lib->os;

    m->fd = os->memfd_sealable("usm-export", m->size);
    if (m->fd < 0)
        return refused("memory for other processes: memfd_create");
    m->start = usm__host_map(m->size, align, PROT_READ | PROT_WRITE);
    if (!m->start) {
        (void)os->close(m->fd);
        return usm__host_lib->report(USM_E_NO_MEMORY, "the host has no %zu bytes left", m->size);
    }
    if (os->map_fd(m->start, m->size, PROT_READ | PROT_WRITE, m->fd) &&
        os->seal(m->fd, !writable) == 0)
        return USM_OK;

    usm_status status = refused("memory for other processes: mmap, or seals, of a memfd");

    (void)os->unmap(m->start, m->size);
    (void)os->close(m->fd);
    return status;
}

usm_status usm__host_ipc_alloc(void *ctx, void *dev, usm_kind kind, bool writable, size_t size,
                               size_t align, void **p)
{
    const usm__host_context *c = ctx;
    mapping                 *m;
    usm_status               status;
    size_t                   pages;

    if (kind == USM_DEVICE && c->guard)
        return usm__host_mem_alloc(ctx, dev, kind, size, align, p);
    if (!usm_align_up(size, usm__host.page, &pages))
        return usm__host_lib->report(USM_E_NO_MEMORY, "the host has no %zu bytes", size);
    m = usm__host_lib->heap_alloc(sizeof(*m));
    if (!m)
        return usm__host_lib->report(USM_E_NO_MEMORY, "no host memory for an allocation");
    m->size = pages;
    status  = map_file(m, align, writable);
    if (status != USM_OK) {
        usm__host_lib->heap_free(m);
        return status;
    }
    *p = m->start;
    enter(m);
    return USM_OK;
}

/* Removes the mapping and unmaps it.  *status is unchanged if there is none. */
static bool end_mapping(void *p, usm_status *status)
{
    const usm_os_api *os = usm__host_lib->os;
    mapping          *m;

    pthread_mutex_lock(&usm__host.files.lock);
    m = find(p);
    if (m)
        usm_list_remove(&m->link);
    pthread_mutex_unlock(&usm__host.files.lock);
    if (!m)
        return false;
    *status = USM_OK;
    if (os->unmap(m->start, m->size) != 0) {
        *status = usm__host_refused(USM_E_SYSTEM, "memory cannot be given back: munmap", errno);
        pthread_mutex_lock(&usm__host.files.lock);
        usm_list_append(bucket_of(m->start), &m->link);
        pthread_mutex_unlock(&usm__host.files.lock);
        return true;
    }
    usm_sub_relaxed(&usm__host.files.count, 1);
    if (m->fd >= 0)
        (void)os->close(m->fd);
    usm__host_lib->heap_free(m);
    return true;
}

bool usm__host_ipc_free(void *p, usm_status *status)
{
    return usm_load_relaxed(&usm__host.files.count) > 0 && end_mapping(p, status);
}

usm_status usm__host_ipc_get(void *ctx, void *p, usm_backend_ipc *handle)
{
    mapping *m;
    int      fd = -1;

    (void)ctx;
    pthread_mutex_lock(&usm__host.files.lock);
    m = find(p);
    if (m)
        fd = m->fd;
    pthread_mutex_unlock(&usm__host.files.lock);
    if (fd < 0)
        return usm__host_lib->report(USM_E_NOT_SUPPORTED,
                                     "this memory of the host is its process's own; device memory "
                                     "is so with USM_HOST_GUARD_DEVICE=1");
    memset(handle->bytes, 0, sizeof(handle->bytes));
    memcpy(handle->bytes, handle_magic, sizeof(handle_magic));
    handle->fd = fd;
    return USM_OK;
}

/* The file belongs to the memory, and ends with it. */
usm_status usm__host_ipc_put(void *ctx, usm_backend_ipc *handle)
{
    (void)ctx;
    handle->fd = -1;
    return USM_OK;
}

/* ---- opened memory ----------------------------------------------------------- */

usm_status usm__host_ipc_open(void *ctx, void *dev, const usm_backend_ipc *handle, void **p)
{
    const usm_os_api *os = usm__host_lib->os;
    usm_os_file       file;
    mapping          *m;
    usm_status        status;

    (void)ctx;
    (void)dev;
    if (handle->fd >= 0 && os->inspect(handle->fd, &file) != 0)
        return refused("another process's memory: fstat");
    if (handle->fd < 0 || memcmp(handle->bytes, handle_magic, sizeof(handle_magic)) != 0 ||
        file.size < handle->size || handle->size == 0)
        return usm__host_lib->report(USM_E_INVALID, "these bytes name no memory of the host");
    m = usm__host_lib->heap_alloc(sizeof(*m));
    if (!m)
        return usm__host_lib->report(USM_E_NO_MEMORY, "no host memory to open another's memory");
    m->fd    = -1;
    m->size  = (size_t)file.size;
    m->start = os->map_fd(NULL, m->size, handle->is_writable ? PROT_READ | PROT_WRITE : PROT_READ,
                          handle->fd);
    if (!m->start) {
        status = refused("another process's memory: mmap");
        usm__host_lib->heap_free(m);
        return status;
    }
    *p = m->start;
    enter(m);
    return USM_OK;
}

usm_status usm__host_ipc_close(void *ctx, void *p)
{
    usm_status status = USM_OK;

    (void)ctx;
    if (!end_mapping(p, &status))
        return usm__host_lib->report(USM_E_INVALID_POINTER, "%p was not opened", p);
    return status;
}
