/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Device memory is closed to the host: pages of anonymous files, mapped twice.
 *
 * Where the program sees device memory it may touch nothing (PROT_NONE): who does so on a real
 * device without host access dies as well.  The driver's threads use a second mapping of the same
 * pages, the alias.  A kernel, though, is code that runs on the program's addresses: while one
 * runs, all guarded ranges are open.  A wild access of the host during a kernel therefore goes
 * unnoticed.
 *
 * Called by heap.c, ipc.c, vmem.c; open and close by the execution. */
#include "memory.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    pthread_once_t  once;
    bool            on; /* fixed once read */
    pthread_mutex_t lock;
    unsigned        open;   /* kernels that run */
    soft_guarded    ranges; /* a ring */
} guard = {.once   = PTHREAD_ONCE_INIT,
           .lock   = PTHREAD_MUTEX_INITIALIZER,
           .ranges = {.prev = &guard.ranges, .next = &guard.ranges}};

static void read_knob(void)
{
    guard.on = soft_knob("GUARD", 1) != 0;
}

bool soft_guarding(void)
{
    pthread_once(&guard.once, read_knob);
    return guard.on;
}

static int rights(void)
{
    return guard.open != 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
}

/* Splitting a mapping may fail for lack of mappings: the range keeps the rights it had, and a
 * kernel that touches it dies, which is better than to go on in silence. */
static void apply(const soft_guarded *range)
{
    if (mprotect(range->addr, range->size, rights()) != 0)
        perror("ze_soft: mprotect");
}

static void apply_all(void)
{
    for (const soft_guarded *r = guard.ranges.next; r != &guard.ranges; r = r->next)
        apply(r);
}

void soft_guard_add(soft_guarded *range, void *addr, size_t size)
{
    range->addr = addr;
    range->size = size;
    pthread_mutex_lock(&guard.lock);
    range->prev             = guard.ranges.prev;
    range->next             = &guard.ranges;
    guard.ranges.prev->next = range;
    guard.ranges.prev       = range;
    apply(range);
    pthread_mutex_unlock(&guard.lock);
}

void soft_guard_remove(soft_guarded *range)
{
    pthread_mutex_lock(&guard.lock);
    range->prev->next = range->next;
    range->next->prev = range->prev;
    pthread_mutex_unlock(&guard.lock);
}

void soft_guard_open(void)
{
    pthread_mutex_lock(&guard.lock);
    if (guard.open++ == 0)
        apply_all();
    pthread_mutex_unlock(&guard.lock);
}

void soft_guard_close(void)
{
    pthread_mutex_lock(&guard.lock);
    if (--guard.open == 0)
        apply_all();
    pthread_mutex_unlock(&guard.lock);
}

/* --- files ------------------------------------------------------------------------ */

ze_result_t soft_file_new(const char *kind, size_t size, int *fd)
{
    int made = memfd_create(kind, MFD_CLOEXEC);

    if (made < 0)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (ftruncate(made, (off_t)size) != 0) {
        close(made);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *fd = made;
    return ZE_RESULT_SUCCESS;
}

uint64_t soft_file_id(int fd)
{
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    return (uint64_t)st.st_ino ^ ((uint64_t)st.st_dev << 40); /* inodes are a file system's own */
}

/* --- address space ------------------------------------------------------------------ */

void *soft_space_reserve(const void *hint, size_t size, size_t align)
{
    size_t slack = align > SOFT_PAGE ? align - SOFT_PAGE : 0;
    char  *at, *start;
    size_t head;

    if (size > SIZE_MAX - slack)
        return NULL;
    at = mmap((void *)(uintptr_t)hint, size + slack, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    head  = (align - (uintptr_t)at % align) % align;
    start = at + head;
    if (head != 0)
        munmap(at, head);
    if (slack > head)
        munmap(start + size, slack - head);
    return start;
}

void soft_space_release(void *addr, size_t size)
{
    munmap(addr, size);
}

static bool map_at(void *at, const soft_extent *extent, int prot)
{
    return mmap(at, extent->size, prot, MAP_SHARED | MAP_FIXED, extent->fd,
                (off_t)extent->offset) != MAP_FAILED;
}

ze_result_t soft_pages_map(soft_pages *pages, const soft_extent *extent, size_t align, bool guarded)
{
    pages->guarded = guarded && soft_guarding();
    pages->size    = extent->size;
    pages->user    = soft_space_reserve(NULL, extent->size, align);
    if (pages->user == NULL)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    pages->alias = pages->user;
    if (pages->guarded) {
        pages->alias = soft_space_reserve(NULL, extent->size, SOFT_PAGE);
        if (pages->alias == NULL)
            goto err_user;
    }
    if (!map_at(pages->user, extent, PROT_READ | PROT_WRITE) ||
        (pages->guarded && !map_at(pages->alias, extent, PROT_READ | PROT_WRITE)))
        goto err_alias;
    if (pages->guarded)
        soft_guard_add(&pages->guard, pages->user, pages->size);
    return ZE_RESULT_SUCCESS;

err_alias:
    if (pages->guarded)
        soft_space_release(pages->alias, pages->size);
err_user:
    soft_space_release(pages->user, pages->size);
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

void soft_pages_unmap(soft_pages *pages)
{
    if (pages->guarded) {
        soft_guard_remove(&pages->guard);
        soft_space_release(pages->alias, pages->size);
    }
    soft_space_release(pages->user, pages->size);
}
