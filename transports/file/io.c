/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Carries out a transfer in the calling thread.  Also here: how ends are reported, and the bounce
 * buffers of unaligned transfers.  Called by submit() for a transfer that the caller waits for, and
 * by the crew's threads; the ring shares the ends and the faults. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>

size_t usm_file_cut(const usm_file_store *s, size_t size)
{
    if (size <= PAGE_SIZE || !s->api->fault("file.short", NULL))
        return size;
    return size >= 2 * PAGE_SIZE ? size / 2 & ~(PAGE_SIZE - 1) : PAGE_SIZE;
}

int64_t usm_file_result(const usm_file_store *s, bool is_store, int64_t result)
{
    usm_status status = USM_E_IO;

    if (!s->api->fault(is_store ? "file.store" : "file.fetch", &status))
        return result;
    switch ((int)status) {
    case USM_E_SPILL_FULL:
        return -ENOSPC;
    case USM_E_AGAIN:
        return -EINTR;
    case USM_E_BUSY:
        return -EAGAIN;
    case USM_E_NO_MEMORY:
        return -ENOMEM;
    default:
        return -EIO;
    }
}

/* Makes one call; returns bytes, or -errno. */
static int64_t move_once(const usm_file_store *s, const usm_file_span *span)
{
    const usm_os_api *os   = s->api->os;
    size_t            size = usm_file_cut(s, span->size - span->moved);
    char             *data = span->data + span->moved;
    uint64_t          at   = span->at + span->moved;
    int64_t           n;

    n = span->is_store ? os->pwrite(span->fd, data, size, at) : os->pread(span->fd, data, size, at);
    return usm_file_result(s, span->is_store, n < 0 ? -errno : n);
}

int usm_file_move(const usm_file_store *s, usm_file_span *span)
{
    unsigned attempts = 0;

    while (span->moved < span->size) {
        int64_t n    = move_once(s, span);
        size_t  left = span->size - span->moved;

        if (n > 0 && (size_t)n < left && (size_t)n >= PAGE_SIZE)
            n &= ~(int64_t)(PAGE_SIZE - 1); /* direct I/O continues only at a page */
        if (n >= (int64_t)PAGE_SIZE || (n > 0 && (size_t)n == left)) {
            span->moved += (size_t)n;
            attempts = 0;
            continue;
        }
        if (n == 0 || (n > 0 && !span->is_store)) { /* the end, or a part of a page before it */
            span->moved += (size_t)n;
            return span->is_store ? EIO : ENODATA;
        }
        if (n < 0 && n != -EINTR && n != -EAGAIN)
            return (int)-n;
        if (++attempts == ATTEMPTS_MAX)
            return n < 0 ? (int)-n : EIO;
    }
    return 0;
}

/* ---- ends ------------------------------------------------------------------- */

/* strerror_r of this C library, which may return a text outside the buffer. */
static const char *words(int error, char *room, size_t size)
{
    return strerror_r(error, room, size);
}

static usm_status status_of(bool is_store, int error)
{
    if (error == ENOMEM)
        return USM_E_NO_MEMORY;
    if (is_store && (error == ENOSPC || error == EDQUOT || error == EFBIG))
        return USM_E_SPILL_FULL;
    return USM_E_IO;
}

usm_status usm_file_explain(const usm_file_store *s, const usm_transfer *t, int error)
{
    const bool            is_store = t->op == USM_TRANSFER_STORE;
    const usm_status      st       = status_of(is_store, error);
    uint32_t              place    = 0;
    uint64_t              at       = 0, end;
    const usm_file_place *file;
    char                  room[128];

    usm_file_locate(s, t->block, &place, &at);
    at += t->offset;
    end  = at + t->size;
    file = &s->places[place];
    if (st == USM_E_NO_MEMORY)
        return s->api->report(st, "no memory for a transfer of %zu bytes", t->size);
    if (st == USM_E_SPILL_FULL)
        return s->api->report(
            st,
            "%s has no room for %zu bytes more: %s; give it room, or name another "
            "folder in USM_SPILL",
            file->path, t->size, words(error, room, sizeof(room)));
    if (error == ENODATA)
        return s->api->report(st, "%s ends before byte %llu: the file was truncated", file->path,
                              (unsigned long long)end);
    return s->api->report(st, "%s %zu bytes at %llu %s %s failed: %s",
                          is_store ? "storing" : "fetching", t->size, (unsigned long long)at,
                          is_store ? "into" : "from", file->path, words(error, room, sizeof(room)));
}

void usm_file_finish(usm_transfer *t, usm_status status)
{
    t->next = NULL;
    t->done(t, status);
}

/* ---- scratch files ------------------------------------------------------------ */

static usm_status run_scratch(usm_file_store *s, usm_transfer *t)
{
    const usm_file_piece *piece  = usm_file_piece_of(t);
    const usm_file_place *place  = &s->places[piece->place];
    const bool            direct = place->direct >= 0;
    usm_file_span         span   = {
                  .fd       = direct ? place->direct : place->buffered,
                  .is_store = t->op == USM_TRANSFER_STORE,
                  .data     = t->data,
                  .size     = t->size,
                  .moved    = piece->moved,
                  .at       = piece->at,
    };
    int error = usm_file_move(s, &span);

    if (!direct)
        s->api->os->drop_cache(place->buffered, span.at, span.size);
    return error ? usm_file_explain(s, t, error) : USM_OK;
}

usm_status usm_file_run(usm_file_store *s, usm_transfer *t)
{
    return s->is_home ? usm_file_run_home(s, t) : run_scratch(s, t);
}

/* ---- bounce buffers ------------------------------------------------------------ */

usm_file_bounce *usm_file_bounce_take(usm_file_store *s)
{
    usm_file_bounce *b = usm_recycler_take(&s->bounces, 0);

    if (b)
        return b;
    b = s->api->heap_alloc(sizeof(*b) + s->block_size + 3 * PAGE_SIZE);
    if (b) {
        b->data = (char *)(b + 1);
        b->data += -(uintptr_t)b->data & (PAGE_SIZE - 1);
    }
    return b;
}

void usm_file_bounce_give(usm_file_store *s, usm_file_bounce *b)
{
    (void)usm_recycler_give(&s->bounces, b);
}
