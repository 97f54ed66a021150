/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The arena of frames; see frames.h.  Called by the engine's files, which know where each frame is.
 *
 * The hole that a moved frame leaves in the arena is replaced by a fresh mapping, not only
 * protected: a mapping that held pages never merges with its neighbours again, and the process may
 * have 65,530.
 *
 * Huge pages.  The first touch of 2 MiB of the arena gives them a huge page: fewer, longer pieces for
 * the disk's controller.  Where several frames share one, it may be the only one: from then on some
 * of them are in spaces, and the kernel (khugepaged) would fill the holes that they leave, with
 * memory that nobody charges and nobody uses. */
#include "spill/frames.h"

#include "base/os.h"
#include "base/status.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* Addresses only: that may fault, or get memory at the first touch.  Neither is charged before, so
 * a limit may be more than the machine has. */
static char *map_aligned(size_t size, bool faults, int fd)
{
    size_t padded = size + HUGE_PAGE;
    char  *p      = faults ? usm__os_map(padded, PROT_NONE) : usm__os_map_noreserve(padded);
    char  *base;
    size_t head, tail;

    if (!p)
        return NULL;
    base = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    head = (size_t)(base - p);
    tail = padded - head - size;
    if (head)
        (void)usm__os_unmap(p, head);
    if (tail)
        (void)usm__os_unmap(base + size, tail);
    if (fd >= 0 && !usm__os_map_fd(base, size, PROT_READ | PROT_WRITE, fd)) {
        (void)usm__os_unmap(base, size);
        return NULL;
    }
    return base;
}

/* Whether pages can be moved here, tested with one page. */
static bool can_move(void)
{
    long  page = 4096;
    char *from = usm__os_map((size_t)page, PROT_READ | PROT_WRITE);
    char *to   = usm__os_map((size_t)page, PROT_NONE);
    bool  ok   = false;

    if (from && to) {
        *from = 1;
        ok    = usm__os_move(from, (size_t)page, to) == 0 && *to == 1;
    }
    if (from)
        (void)usm__os_unmap(from, (size_t)page);
    if (to)
        (void)usm__os_unmap(to, (size_t)page);
    return ok;
}

usm_status usm__frames_init(usm__frames *f, uint32_t count, size_t frame_size)
{
    size_t size = (size_t)count * frame_size;

    memset(f, 0, sizeof *f);
    f->fd = -1;
    if (!can_move()) {
        f->fd = usm__os_memfd("usm-frames", size);
        if (f->fd < 0)
            return usm__fail(USM_E_SYSTEM, "no memory file of %zu bytes for buffers (errno %d)",
                             size, errno);
    }
    f->base = map_aligned(size, f->fd >= 0, f->fd);
    if (!f->base) {
        if (f->fd >= 0)
            (void)usm__os_close(f->fd);
        return usm__fail(USM_E_NO_MEMORY, "no %zu bytes of addresses for the frames of buffers",
                         size);
    }
    if (frame_size >= HUGE_PAGE)
        (void)madvise(f->base, size, MADV_HUGEPAGE);
    /* A child would share pages that transfers write into: one of the two would not see the
     * bytes. */
    (void)madvise(f->base, size, MADV_DONTFORK);
    f->size       = size;
    f->frame_size = frame_size;
    f->count      = count;
    return USM_OK;
}

void usm__frames_fini(usm__frames *f)
{
    if (f->base)
        (void)usm__os_unmap(f->base, f->size);
    if (f->fd >= 0)
        (void)usm__os_close(f->fd);
    memset(f, 0, sizeof *f);
    f->fd = -1;
}

void usm__frames_touch(const usm__frames *f, uint32_t frame)
{
    size_t at   = (size_t)frame * f->frame_size;
    char  *page = f->base + at;

    if (f->fd >= 0 || at % HUGE_PAGE != 0 || at + HUGE_PAGE > f->size)
        return;
    (void)madvise(page, HUGE_PAGE, MADV_HUGEPAGE);
    *(volatile char *)page = 0;
    if (f->frame_size < HUGE_PAGE)
        (void)madvise(page, HUGE_PAGE, MADV_NOHUGEPAGE);
}

char *usm__frames_reserve(size_t size)
{
    return map_aligned(size, true, -1);
}

void usm__frames_release(char *range, size_t size)
{
    (void)usm__os_unmap(range, size);
}

int usm__frames_put(const usm__frames *f, uint32_t frame, char *at)
{
    if (f->fd < 0)
        return usm__os_move(usm__frames_at(f, frame), f->frame_size, at);
    return usm__os_map_fd_part(at, f->frame_size, f->fd, (uint64_t)frame * f->frame_size) ? 0
                                                                                          : errno;
}

int usm__frames_take(const usm__frames *f, uint32_t frame, char *at)
{
    if (f->fd < 0) {
        int rc = usm__os_move(at, f->frame_size, usm__frames_at(f, frame));

        if (rc != 0)
            return rc;
    }
    return usm__os_map_at(at, f->frame_size, PROT_NONE) ? 0 : errno;
}

void usm__frames_drop(const usm__frames *f, uint32_t frame)
{
    (void)madvise(usm__frames_at(f, frame), f->frame_size, f->fd < 0 ? MADV_DONTNEED : MADV_REMOVE);
}
