/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Guard mode (USM_HOST_GUARD_DEVICE=1): a program that accesses device memory from the host crashes
 * here as it would with a device, at the instruction that does so.
 *
 * The memory is a memfd that is mapped twice.  The program's range has no access rights; copies and
 * fills use the other mapping, the alias.  Kernels get the program's pointers, so all ranges are
 * opened while any kernel runs, and closed after the last: with mprotect, because protection keys,
 * which work per thread, are missing on most virtual machines.  A wrong access during a kernel is
 * not detected.
 *
 *     program's range  |..............|  PROT_NONE, open while kernels run
 *     alias            |..............|  read and write          shift = alias - range
 *
 * A range that is mapped piece by piece (vmem.c) has an alias of its full length, so that all its
 * pieces, each with a memfd of its own, have the same shift: a copy may cross from one to the next.
 *
 * A child made by fork() shares this memory with its parent, unlike ordinary host memory.  Called
 * by memory.c, vmem.c, copy.c and kernel.c. */
#include "internal.h"

#include <errno.h>
#include <sys/mman.h>

struct region {
    usm_list link;
    char    *start;
    size_t   size; /* whole pages */
    char    *alias;
    bool     in_range; /* a piece: its addresses stay reserved by the range */
};

void usm__host_guard_lock(void)
{
    pthread_mutex_lock(&usm__host.guard.lock);
}

void usm__host_guard_unlock(void)
{
    pthread_mutex_unlock(&usm__host.guard.lock);
}

static struct region *find_region(const usm_list *list, const void *p)
{
    USM_LIST_FOREACH (it, list) {
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

/* EFBIG and ENOSPC are errors of a memfd that is too large. */
static usm_status refused(const char *what)
{
    bool full = errno == ENOMEM || errno == EFBIG || errno == ENOSPC;

    return usm__host_refused(full ? USM_E_NO_MEMORY : USM_E_SYSTEM, what, errno);
}

static usm_status map_twice(struct region *r, size_t align, int fd)
{
    const usm_os_api *os = usm__host_lib->os;

    /* Mapped with access first, so that the system refuses a size that it could never provide. */
    r->start = usm__host_map(r->size, align, PROT_READ | PROT_WRITE);
    if (!r->start)
        return usm__host_no_memory(r->size, "");
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

/* Replaces the piece by fresh pages without access. */
static bool clear_piece(const struct region *r)
{
    const usm_os_api *os = usm__host_lib->os;

    return os->map_at(r->start, r->size, PROT_NONE) && os->map_at(r->alias, r->size, PROT_NONE);
}

static usm_status map_piece(const struct region *r, int fd)
{
    const usm_os_api *os = usm__host_lib->os;
    usm_status        status;

    if (os->map_fd(r->start, r->size, PROT_NONE, fd) &&
        os->map_fd(r->alias, r->size, PROT_READ | PROT_WRITE, fd))
        return USM_OK;
    status = refused("guarded device memory: mmap of a memfd");
    (void)clear_piece(r);
    return status;
}

/* If unmapping fails, it can be tried again. */
static bool unmap_both(struct region *r)
{
    if (r->in_range)
        return clear_piece(r);
    if (r->alias && usm__host_lib->os->unmap(r->alias, r->size) != 0)
        return false;
    r->alias = NULL;
    return usm__host_lib->os->unmap(r->start, r->size) == 0;
}

/* A range that is added while kernels run is opened for them as well. */
static bool enter_region(struct region *r)
{
    bool entered;

    pthread_mutex_lock(&usm__host.guard.lock);
    entered = usm__host.guard.kernels == 0 || set_access(r, true) == 0;
    if (entered) {
        usm_list_append(&usm__host.guard.regions, &r->link);
        usm_add_relaxed(&usm__host.guard.nregions, 1);
    }
    pthread_mutex_unlock(&usm__host.guard.lock);
    return entered;
}

/* Puts memory behind r, which already has its start and alias if it is a piece, and enters it. */
static usm_status make_region(struct region *r, size_t align)
{
    const usm_os_api *os = usm__host_lib->os;
    int               fd = os->memfd("usm-device", r->size);
    usm_status        status;

    if (fd < 0)
        return refused("guarded device memory: memfd_create");
    status = r->in_range ? map_piece(r, fd) : map_twice(r, align, fd);
    (void)os->close(fd); /* the mappings keep the memory */
    if (status == USM_OK && !enter_region(r)) {
        status = refused("guarded device memory: mprotect");
        (void)unmap_both(r);
    }
    return status;
}

static struct region *new_region(size_t size)
{
    struct region *r = usm__host_lib->heap_alloc(sizeof(*r));

    if (r)
        r->size = size;
    else
        (void)usm__host_lib->report(USM_E_NO_MEMORY, "no host memory to note device memory");
    return r;
}

usm_status usm__host_guard_alloc(size_t size, size_t align, void **p)
{
    struct region *r = new_region(size);
    usm_status     status;

    if (!r)
        return USM_E_NO_MEMORY;
    status = make_region(r, align);
    if (status == USM_OK)
        *p = r->start;
    else
        usm__host_lib->heap_free(r);
    return status;
}

static struct region *leave_region(const void *p)
{
    struct region *r;

    pthread_mutex_lock(&usm__host.guard.lock);
    r = find_region(&usm__host.guard.regions, p);
    if (r) {
        usm_list_remove(&r->link);
        usm_sub_relaxed(&usm__host.guard.nregions, 1);
    }
    pthread_mutex_unlock(&usm__host.guard.lock);
    return r;
}

usm_status usm__host_guard_free(const void *p)
{
    struct region *r = usm_load_relaxed(&usm__host.guard.nregions) ? leave_region(p) : NULL;
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

    if (usm_load_relaxed(&usm__host.guard.nregions) == 0)
        return 0;
    pthread_mutex_lock(&usm__host.guard.lock);
    r = find_region(&usm__host.guard.regions, p);
    if (r)
        shift = r->alias - r->start;
    pthread_mutex_unlock(&usm__host.guard.lock);
    return shift;
}

/* --- ranges --------------------------------------------------------------------------------- */

static void enter_range(struct region *r)
{
    pthread_mutex_lock(&usm__host.guard.lock);
    usm_list_append(&usm__host.guard.ranges, &r->link);
    pthread_mutex_unlock(&usm__host.guard.lock);
}

usm_status usm__host_guard_reserve(size_t size, size_t align, void **p)
{
    struct region *r = new_region(size);

    if (!r)
        return USM_E_NO_MEMORY;
    r->start = usm__host_map(size, align, PROT_NONE);
    if (!r->start)
        goto err_region;
    r->alias = usm__host_map(size, align, PROT_NONE);
    if (!r->alias)
        goto err_start;
    enter_range(r);
    *p = r->start;
    return USM_OK;

err_start:
    (void)usm__host_lib->os->unmap(r->start, size);
err_region:
    usm__host_lib->heap_free(r);
    return usm__host_no_memory(size, " of addresses");
}

usm_status usm__host_guard_release(const void *p)
{
    struct region *r;

    pthread_mutex_lock(&usm__host.guard.lock);
    r = find_region(&usm__host.guard.ranges, p);
    if (r)
        usm_list_remove(&r->link);
    pthread_mutex_unlock(&usm__host.guard.lock);
    if (!r)
        return USM_E_INVALID_POINTER;
    if (!unmap_both(r)) {
        usm_status status = refused("addresses of guarded device memory: munmap");

        enter_range(r);
        return status;
    }
    usm__host_lib->heap_free(r);
    return USM_OK;
}

usm_status usm__host_guard_map(void *p, size_t size)
{
    struct region       *r = new_region(size);
    const struct region *range;
    usm_status           status;

    if (!r)
        return USM_E_NO_MEMORY;
    pthread_mutex_lock(&usm__host.guard.lock);
    range = find_region(&usm__host.guard.ranges, p);
    if (range) /* always true, because p was reserved */
        r->alias = (char *)p + (range->alias - range->start);
    pthread_mutex_unlock(&usm__host.guard.lock);
    r->start    = p;
    r->in_range = true;
    status      = make_region(r, 1);
    if (status != USM_OK)
        usm__host_lib->heap_free(r);
    return status;
}

/* --- kernels -------------------------------------------------------------------------------- */

/* If one region cannot be opened, closes those that were opened. */
static bool open_all(void)
{
    USM_LIST_FOREACH (it, &usm__host.guard.regions) {
        if (set_access(usm_container_of(it, struct region, link), true) == 0)
            continue;
        while ((it = it->prev) != &usm__host.guard.regions)
            (void)set_access(usm_container_of(it, struct region, link), false);
        return false;
    }
    return true;
}

usm_status usm__host_guard_open(void)
{
    bool opened;

    pthread_mutex_lock(&usm__host.guard.lock);
    opened = usm__host.guard.kernels > 0 || open_all();
    if (opened)
        usm__host.guard.kernels++;
    pthread_mutex_unlock(&usm__host.guard.lock);
    return opened ? USM_OK : refused("guarded device memory: mprotect");
}

void usm__host_guard_close(void)
{
    pthread_mutex_lock(&usm__host.guard.lock);
    if (--usm__host.guard.kernels == 0) {
        USM_LIST_FOREACH (it, &usm__host.guard.regions)
            (void)set_access(usm_container_of(it, struct region, link), false);
    }
    pthread_mutex_unlock(&usm__host.guard.lock);
}
