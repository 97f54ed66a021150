/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Guard mode (USM_HOST_GUARD_DEVICE=1): a program that touches device memory from the host dies
 * here as it would with a device, at the instruction that does it.
 *
 * The memory is a memfd that is mapped twice.  The program's range has no access rights; copies and
 * fills use the other one, the alias.  Kernels get the program's pointers, so while any runs all
 * ranges are opened, and closed after the last: mprotect, because protection keys, which would be
 * per thread, are missing on most virtual machines.  A wrong access during a kernel goes unseen.
 *
 *     program's range  |..............|  PROT_NONE, open while kernels run
 *     alias            |..............|  read and write          shift = alias - range
 *
 * A child made by fork() shares this memory with its parent, unlike ordinary host memory.
 * Who calls: memory.c, copy.c and kernel.c. */
#include "internal.h"

#include <errno.h>
#include <sys/mman.h>

struct region {
    usm_list link;
    char    *start;
    size_t   size; /* whole pages */
    char    *alias;
};

static struct {
    pthread_mutex_t lock;
    usm_list        regions;
    size_t          kernels;  /* that run now; > 0: regions are open    */
    atomic_size_t   nregions; /* so that without guard mode no lock is taken */
} guard = {PTHREAD_MUTEX_INITIALIZER, {&guard.regions, &guard.regions}, 0, 0};

void usm__host_guard_lock(void)
{
    pthread_mutex_lock(&guard.lock);
}

void usm__host_guard_unlock(void)
{
    pthread_mutex_unlock(&guard.lock);
}

static struct region *find_region(const void *p)
{
    USM_LIST_FOREACH (it, &guard.regions) {
        struct region *r = usm_container_of(it, struct region, link);

        if ((uintptr_t)p - (uintptr_t)r->start < r->size)
            return r;
    }
    return NULL;
}

static int set_access(const struct region *r, bool open)
{
    return usm__host_lib->os->protect(r->start, r->size, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

/* EFBIG, ENOSPC: what a memfd says of more than there is. */
static usm_status refused(const char *what)
{
    bool full = errno == ENOMEM || errno == EFBIG || errno == ENOSPC;

    return usm__host_refused(full ? USM_E_NO_MEMORY : USM_E_SYSTEM, what, errno);
}

static usm_status map_twice(struct region *r, size_t align, int fd)
{
    const usm_os_api *os = usm__host_lib->os;

    /* With access, so that the system refuses what it could never back. */
    r->start = usm__host_map(r->size, align, PROT_READ | PROT_WRITE);
    if (!r->start)
        return usm__host_lib->report(USM_E_NO_MEMORY, "the host has no %zu bytes left", r->size);
    if (!os->map_fd(r->start, r->size, PROT_NONE, fd))
        goto err_start;
    r->alias = os->map_fd(NULL, r->size, PROT_READ | PROT_WRITE, fd);
    if (!r->alias)
        goto err_start;
    return USM_OK;

err_start:;
    usm_status status = refused("guarded device memory: mmap of a memfd");

    (void)os->unmap(r->start, r->size);
    return status;
}

/* What is not unmapped can be tried again. */
static bool unmap_both(struct region *r)
{
    if (r->alias && usm__host_lib->os->unmap(r->alias, r->size) != 0)
        return false;
    r->alias = NULL;
    return usm__host_lib->os->unmap(r->start, r->size) == 0;
}

/* A range that comes while kernels run is theirs to use as well. */
static bool enter_region(struct region *r)
{
    bool entered;

    pthread_mutex_lock(&guard.lock);
    entered = guard.kernels == 0 || set_access(r, true) == 0;
    if (entered) {
        usm_list_append(&guard.regions, &r->link);
        usm_add_relaxed(&guard.nregions, 1);
    }
    pthread_mutex_unlock(&guard.lock);
    return entered;
}

usm_status usm__host_guard_alloc(size_t size, size_t align, void **p)
{
    const usm_os_api *os = usm__host_lib->os;
    struct region    *r  = usm__host_lib->heap_alloc(sizeof(*r));
    usm_status        status;
    int               fd;

    if (!r)
        return usm__host_lib->report(USM_E_NO_MEMORY, "no host memory to note device memory");
    r->size = size;
    fd      = os->memfd("usm-device", size);
    if (fd < 0) {
        status = refused("guarded device memory: memfd_create");
        goto err_region;
    }
    status = map_twice(r, align, fd);
    (void)os->close(fd); /* the mappings keep the memory */
    if (status)
        goto err_region;
    if (!enter_region(r)) {
        status = refused("guarded device memory: mprotect");
        goto err_maps;
    }
    *p = r->start;
    return USM_OK;

err_maps:
    (void)unmap_both(r);
err_region:
    usm__host_lib->heap_free(r);
    return status;
}

static struct region *leave_region(const void *p)
{
    struct region *r;

    pthread_mutex_lock(&guard.lock);
    r = find_region(p);
    if (r) {
        usm_list_remove(&r->link);
        usm_sub_relaxed(&guard.nregions, 1);
    }
    pthread_mutex_unlock(&guard.lock);
    return r;
}

usm_status usm__host_guard_free(const void *p)
{
    struct region *r = usm_load_relaxed(&guard.nregions) ? leave_region(p) : NULL;
    usm_status     status;

    if (!r)
        return USM_E_INVALID_POINTER;
    if (unmap_both(r)) {
        usm__host_lib->heap_free(r);
        return USM_OK;
    }
    status = refused("guarded device memory: munmap");
    (void)enter_region(r);
    return status;
}

ptrdiff_t usm__host_guard_shift(const void *p)
{
    const struct region *r;
    ptrdiff_t            shift = 0;

    if (usm_load_relaxed(&guard.nregions) == 0)
        return 0;
    pthread_mutex_lock(&guard.lock);
    r = find_region(p);
    if (r)
        shift = r->alias - r->start;
    pthread_mutex_unlock(&guard.lock);
    return shift;
}

/* Also shuts again what was opened when one cannot be opened. */
static bool open_all(void)
{
    USM_LIST_FOREACH (it, &guard.regions) {
        if (set_access(usm_container_of(it, struct region, link), true) == 0)
            continue;
        while ((it = it->prev) != &guard.regions)
            (void)set_access(usm_container_of(it, struct region, link), false);
        return false;
    }
    return true;
}

usm_status usm__host_guard_open(void)
{
    bool opened;

    pthread_mutex_lock(&guard.lock);
    opened = guard.kernels > 0 || open_all();
    if (opened)
        guard.kernels++;
    pthread_mutex_unlock(&guard.lock);
    return opened ? USM_OK : refused("guarded device memory: mprotect");
}

void usm__host_guard_close(void)
{
    pthread_mutex_lock(&guard.lock);
    if (--guard.kernels == 0) {
        USM_LIST_FOREACH (it, &guard.regions)
            (void)set_access(usm_container_of(it, struct region, link), false);
    }
    pthread_mutex_unlock(&guard.lock);
}
