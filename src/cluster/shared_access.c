/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Accesses to shared buffers.
 *
 * An access takes its blocks in the order of their numbers, each as the protocol allows, and copies
 * blocks that were received as pages into the local buffer; at the end it opens an access to that.
 * While it is open the blocks stay with the rank.  Readahead requests the next blocks, so that they
 * arrive while the access waits for one block and copies it; if it continues others, those behind it
 * as well (shared_ahead.c). */
#include "cluster/shared.h"

#include "base/log.h"
#include "cluster/internal.h"
#include "device/init.h"

#include <string.h>

#define SLICE_MS 20u

typedef struct span {
    uint64_t first, behind; /* of blocks */
} span;

/* An access that is taking its blocks. */
typedef struct taking {
    const usm_shared_access *acc;
    span                     blocks;
    uint64_t                 at;    /* the block that is being taken              */
    uint64_t                 asked; /* the first one that was not requested ahead */
    usm__shared_waiter       waiter;
    unsigned                 turn;  /* 0: it does not wait for the block          */
    bool                     fills; /* the block's bytes are to be copied from `page` into the local
                                       buffer, without the lock; the status of that is `filled` */
    uint8_t                  kind;  /* of the block then                          */
    usm__shared_page        *page;
    usm_status               filled;
} taking;

/* Not a status of the library: the caller, which took the lock, releases it, copies bytes or lets
 * time pass, and calls again. */
#define DEFERRED ((usm_status)1)

bool usm__shared_wait(usm_shared_buffer *s, unsigned turn)
{
    struct timespec until;

    if (!s->is_sending && !usm_list_is_empty(&s->out))
        return false;
    until = usm__job_deadline(turn < SLICE_MS ? turn : SLICE_MS);
    return usm__mutex_wait(&s->lock, &s->changed, &until) == 0;
}

/* A module without a thread makes progress only during calls, so one is called. */
void usm__shared_step(usm_shared_buffer *s)
{
    const usm_transport_ops *ops;
    void                    *job;
    uint32_t                 self, count;

    if (usm__job_enter(&ops, &job) == USM_OK) {
        (void)ops->members(job, &self, &count);
        usm__job_leave();
    }
    usm__mutex_lock(&s->lock);
    if (s->broken == USM_OK && !usm__job_is_attached())
        usm__shared_break(s, USM_E_MPI);
    (void)usm__shared_unlock(s);
}

/* ---- blocks ------------------------------------------------------------------------------ */

static span span_of(const usm_shared_buffer *s, size_t offset, size_t size)
{
    if (size == 0)
        return (span){0, 0};
    return (span){offset >> s->shift, ((offset + size - 1) >> s->shift) + 1};
}

/* NO_INIT is used only for blocks that will be overwritten as a whole. */
static usm_access_mode mode_of(const usm_shared_buffer *s, uint64_t block,
                               const usm_shared_access *acc)
{
    size_t begin = (size_t)usm__shared_block_offset(s, block);
    size_t end   = begin + usm__shared_block_size(s, block);

    if ((acc->mode & USM_NO_INIT) && (begin < acc->offset || end > acc->offset + acc->size))
        return acc->mode & USM_READ_WRITE;
    return acc->mode;
}

static usm_status notify(const usm_shared_buffer *s, uint64_t block, usm_status st)
{
    if (st == USM_E_PEER && !usm__job_is_attached()) /* then all others seem to have ended */
        st = USM_E_MPI;
    if (st == USM_E_PEER)
        return usm__fail(USM_E_PEER,
                         "the rank that owned bytes %llu to %llu of the shared buffer %s has "
                         "ended, so they are lost",
                         (unsigned long long)usm__shared_block_offset(s, block),
                         (unsigned long long)(usm__shared_block_offset(s, block) +
                                              usm__shared_block_size(s, block) - 1),
                         s->name);
    if (st == USM_E_MPI)
        return usm__fail(
            USM_E_MPI, "the process has left its job: the shared buffer %s went with it", s->name);
    return usm__fail(
        st, "bytes from %llu on of the shared buffer %s could not be fetched from their owner: %s",
        (unsigned long long)usm__shared_block_offset(s, block), s->name, usm_status_string(st));
}

/* Requests the blocks from `at` on that were not requested yet.  Half of them at a time, so that
 * their messages are sent together. */
static void look_ahead(usm_shared_buffer *s, taking *t)
{
    const uint64_t most = usm__shared_ahead(s);

    if (t->blocks.behind - t->blocks.first == 1 || t->asked > t->at + 1 + most / 2)
        return;
    if (t->asked < t->at)
        t->asked = t->at;
    for (; t->asked < t->blocks.behind && t->asked - t->at <= most; t->asked++)
        usm__shared_want(&s->machine, t->asked, mode_of(s, t->asked, t->acc));
}

static usm_status open_block(usm_shared_buffer *s, taking *t)
{
    usm_status st;

    if (t->turn == 0) {
        if (s->broken != USM_OK)
            return s->broken;
        look_ahead(s, t);
        st = usm__shared_begin(&s->machine, t->at, mode_of(s, t->at, t->acc), &t->waiter);
        if (st != USM_E_NOT_READY)
            return st;
    }
    while (!t->waiter.is_done && s->broken == USM_OK)
        if (!usm__shared_wait(s, ++t->turn))
            return DEFERRED;
    t->turn = 0;
    if (t->waiter.is_done)
        return t->waiter.status;
    usm__shared_cancel(&s->machine, t->at, &t->waiter);
    return s->broken;
}

static usm_status fill(usm_shared_buffer *s, uint64_t block, const usm__shared_page *page)
{
    size_t     size = usm__shared_block_size(s, block);
    usm_access acc;
    usm_status st = usm_access_begin(s->local, (size_t)usm__shared_block_offset(s, block), size,
                                     USM_WRITE_NO_INIT, &acc);

    if (st != USM_OK)
        return st;
    if (page)
        memcpy(acc.ptr, page->bytes, size);
    else
        memset(acc.ptr, 0, size);
    usm_access_end(&acc);
    return USM_OK;
}

static usm_status end_fill(usm_shared_buffer *s, taking *t)
{
    usm__shared_block *b = &s->blocks[t->at];

    t->fills = false;
    usm__shared_busy_end(s, t->at, t->page);
    if (t->filled == USM_OK && b->kind == t->kind) {
        usm__shared_page_drop(s, b->page);
        b->page = NULL;
        b->kind = USM__SHARED_KIND_LOCAL;
    }
    return t->filled;
}

/* Copies the bytes of a block that is open into the local buffer. */
static usm_status settle(usm_shared_buffer *s, taking *t)
{
    usm__shared_block *b = &s->blocks[t->at];

    if (t->fills)
        return end_fill(s, t);
    while (b->is_busy && b->kind != USM__SHARED_KIND_LOCAL)
        (void)usm__mutex_wait(&s->lock, &s->changed, NULL);
    if (b->kind == USM__SHARED_KIND_BLANK)
        b->kind = USM__SHARED_KIND_LOCAL;
    if (b->kind == USM__SHARED_KIND_LOCAL)
        return USM_OK;
    t->kind  = b->kind;
    t->fills = usm__shared_busy_begin(s, t->at, &t->page);
    return t->fills ? DEFERRED : USM_E_PEER; /* a copy whose owner has ended just now */
}

/* The lock is held. */
static usm_status take_blocks(usm_shared_buffer *s, taking *t)
{
    usm_status st = USM_OK;

    for (; t->at < t->blocks.behind; t->at++) {
        if (!t->fills)
            st = open_block(s, t);
        if (st != USM_OK)
            return st;
        st = settle(s, t);
        if (st != USM_OK && st != DEFERRED)
            usm__shared_end(&s->machine, t->at, mode_of(s, t->at, t->acc));
        if (st != USM_OK)
            return st;
    }
    return USM_OK;
}

static void give_back(usm_shared_buffer *s, const usm_shared_access *acc, uint64_t first,
                      uint64_t behind)
{
    for (uint64_t b = first; b < behind; b++)
        usm__shared_end(&s->machine, b, mode_of(s, b, acc));
}

/* Takes all blocks of the access, or none. */
static usm_status take_all(usm_shared_buffer *s, const usm_shared_access *acc)
{
    const span blocks = span_of(s, acc->offset, acc->size);
    taking     t      = {.acc = acc, .blocks = blocks, .at = blocks.first, .asked = blocks.first};
    usm__shared_stream *stream;
    uint64_t            missed;
    usm_status          st;

    usm__mutex_lock(&s->lock);
    stream = usm__shared_stream_continue(s, blocks.first, blocks.behind);
    missed = s->machine.misses;
    while ((st = take_blocks(s, &t)) == DEFERRED) {
        bool any = usm__shared_unlock(s);

        if (t.fills)
            t.filled = fill(s, t.at, t.page);
        else if (!any)
            usm__shared_step(s);
        usm__mutex_lock(&s->lock);
    }
    usm__shared_stream_ended(stream, s->machine.misses != missed);
    if (st != USM_OK)
        give_back(s, acc, blocks.first, t.at);
    (void)usm__shared_unlock(s);
    /* The local buffer has set the error message of its own failure. */
    return st == USM_OK || t.filled != USM_OK ? st : notify(s, t.at, st);
}

/* ---- the calls ------------------------------------------------------------------------------ */

static usm_status check(usm_shared_buffer *buf, size_t offset, size_t size, usm_access_mode mode,
                        const usm_shared_access *acc)
{
    usm_status st = usm__handle_check(buf, USM__MAGIC_SHARED_BUFFER);

    if (st != USM_OK)
        return st;
    if (buf->fork_generation != usm__fork_generation())
        return usm__fail(USM_E_FORKED,
                         "the shared buffer %s was made before fork(); this process "
                         "is not a rank of the job",
                         buf->name);
    if (!acc)
        return usm__fail(USM_E_INVALID, "usm_shared_access_begin: acc is NULL");
    if (mode & USM_NO_WAIT || !(mode & USM_READ_WRITE) || mode & ~7u ||
        (mode & (USM_WRITE | USM_NO_INIT)) == USM_NO_INIT)
        return usm__fail(
            USM_E_INVALID,
            "0x%x is not an access mode of shared buffers: USM_READ, USM_WRITE or both; "
            "USM_NO_INIT goes with writing only",
            (unsigned)mode);
    if (offset > buf->size || size > buf->size - offset)
        return usm__fail(USM_E_INVALID, "%zu bytes at %zu exceed the shared buffer %s of %zu bytes",
                         size, offset, buf->name, buf->size);
    return USM_OK;
}

usm_status usm_shared_access_begin(usm_shared_buffer *buf, size_t offset, size_t size,
                                   usm_access_mode mode, usm_shared_access *acc)
{
    usm_shared_access made = {NULL, size, buf, offset, mode, {0}};
    usm_status        st   = check(buf, offset, size, mode, acc);

    if (st == USM_OK)
        st = take_all(buf, &made);
    if (st != USM_OK)
        return st;
    st = usm_access_begin(buf->local, offset, size, mode, &made.local);
    if (st != USM_OK) {
        span blocks = span_of(buf, offset, size);

        usm__mutex_lock(&buf->lock);
        give_back(buf, &made, blocks.first, blocks.behind);
        (void)usm__shared_unlock(buf);
        return st;
    }
    made.ptr = made.local.ptr;
    *acc     = made;
    return USM_OK;
}

void usm_shared_access_end(usm_shared_access *acc)
{
    usm_shared_buffer *s = acc ? acc->buffer : NULL;
    span               blocks;

    if (!acc)
        return;
    if (!usm__handle_is(s, USM__MAGIC_SHARED_BUFFER)) {
        usm__warn("usm_shared_access_end: the access %p is not open: ended twice, or never begun?",
                  (void *)acc);
        return;
    }
    acc->buffer = NULL;
    if (s->fork_generation != usm__fork_generation())
        return;
    usm_access_end(&acc->local);
    blocks = span_of(s, acc->offset, acc->size);
    usm__mutex_lock(&s->lock);
    give_back(s, acc, blocks.first, blocks.behind);
    (void)usm__shared_unlock(s);
}
