/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Accesses of the host.
 *
 * The hit path is for bytes in memory that no command uses: it takes a slot of the thread
 * (buffer/slot.h), one compare-and-swap to pin and one subtraction to unpin, and no lock.  Accesses
 * to bytes that are not in memory, or to several blocks, are pinned by the engine; all others enter
 * the order (host.c). */
#include "base/inline/plural.h"
#include "base/log.h"
#include "base/os.h"
#include "buffer/host.h"
#include "buffer/pins.h"

#include <string.h>

/* A bit for each valid usm_access_mode, with USM_NO_WAIT and without. */
#define MODES 0xceceu

static inline bool is_mode(usm_access_mode mode)
{
    return (unsigned)mode < 16 && (MODES >> mode & 1);
}

/* ---- checks ------------------------------------------------------------------------- */

usm_status usm__buffer_check(const usm_buffer *buf)
{
    usm_status st = usm__handle_check(buf, USM__MAGIC_BUFFER);

    if (st == USM_OK && buf->fork_generation != usm__fork_generation())
        st = usm__fail(USM_E_FORKED, "the buffer was made before fork(); make one in the child");
    return st;
}

usm_status usm__buffer_check_range(const usm_buffer *buf, size_t offset, size_t size)
{
    if (offset > buf->size || size > buf->size - offset)
        return usm__fail(USM_E_INVALID, "%zu %s at %zu exceed%s the buffer%s%s of %zu bytes", size,
                         usm__plural(size, "byte", "bytes"), offset, usm__plural(size, "s", ""),
                         buf->root->name ? " " : "", buf->root->name ? buf->root->name : "",
                         buf->size);
    return USM_OK;
}

usm_status usm__buffer_check_mode(const usm_buffer *buf, usm_access_mode mode)
{
    if (!is_mode(mode))
        return usm__fail(
            USM_E_INVALID,
            "0x%x is not an access mode: USM_READ, USM_WRITE or both; USM_NO_INIT goes with "
            "writing only",
            (unsigned)mode);
    if ((mode & USM_WRITE) && (usm_load_relaxed(&buf->root->flags) & USM__BUFFER_READ_ONLY))
        return usm__fail(USM_E_READ_ONLY,
                         "the buffer%s%s is read only: its file was opened for reading",
                         buf->root->name ? " " : "", buf->root->name ? buf->root->name : "");
    return USM_OK;
}

static usm_status check(const usm_buffer_range *r, const usm_access *acc)
{
    usm_status st = usm__buffer_check(r->buffer);

    if (st == USM_OK && !acc)
        st = usm__fail(USM_E_INVALID, "usm_access_begin: acc is NULL");
    if (st == USM_OK)
        st = usm__buffer_check_mode(r->buffer, r->mode);
    return st == USM_OK ? usm__buffer_check_range(r->buffer, r->offset, r->size) : st;
}

/* ---- opening and ending ---------------------------------------------------------------- */

static inline void fill(usm_access *acc, const usm_buffer_range *r, uint32_t state, void *opaque)
{
    acc->ptr    = r->buffer->ptr + r->offset;
    acc->size   = r->size;
    acc->buffer = r->buffer;
    acc->offset = r->offset;
    acc->mode   = r->mode;
    acc->state  = state;
    acc->opaque = opaque;
}

static inline bool is_tracked(usm_buffer *root)
{
    return (atomic_load(&root->flags) & USM__BUFFER_TRACKED) != 0;
}

/* pre: a barrier since the access: an unpin, or a pin that failed and a fence. */
static inline void close_slot(usm_buffer *root, const usm__slot *slot, uint32_t serial)
{
    if (__builtin_expect(is_tracked(root), 0)) {
        usm__access_slot_ended(root, slot, serial);
        usm__track_stop_placed(root);
    }
}

static void retract(usm_buffer *root, usm__slot *slot, uint32_t serial)
{
    usm__slot_close(slot);
    atomic_thread_fence(memory_order_seq_cst);
    close_slot(root, slot, serial);
}

/* A valid access with its bytes in one block that is in memory: opens it at once. */
static inline bool hit(const usm_buffer_range *r, usm_access *acc)
{
    usm_buffer *buf = r->buffer, *root = buf->root;
    usm__space *space = buf->space;
    size_t      at    = buf->base + r->offset;
    usm__slot  *slot  = usm__slot_find();
    uint32_t    serial;

    if (!slot)
        return false;
    serial = usm__slot_open(slot, root, at, at + r->size, r->mode);
    if (__builtin_expect(!usm__space_pin_hit(space, at, r->size, r->mode), 0)) {
        retract(root, slot, serial);
        return false;
    }
    usm__slot_barrier();
    if (__builtin_expect(is_tracked(root), 0)) {
        usm__word_unpin(space, (uint32_t)(at >> space->shift), r->mode);
        retract(root, slot, serial);
        return false;
    }
    fill(acc, r, USM__OPEN_HIT | serial << 8, slot);
    return true;
}

/* For bytes that are not in memory, or in several blocks.  While the engine loads them, commands
 * wait for the access in the slot as for an open one.  USM_E_NOT_READY: the buffer is tracked, this
 * way is closed. */
static usm_status begin_in_slot(const usm_buffer_range *r, usm_access *acc)
{
    usm_buffer    *root = r->buffer->root;
    size_t         at   = r->buffer->base + r->offset;
    const usm__pin pin  = {root->space, at, r->size, r->mode};
    usm__slot     *slot = is_tracked(root) ? NULL : usm__slot_get();
    uint32_t       serial;
    usm_status     st;

    if (!slot)
        return USM_E_NOT_READY;
    if (r->mode & USM_WRITE)
        usm__buffer_written(root); /* before the last check whether it is tracked: track.h */
    serial = usm__slot_open(slot, root, at, at + r->size, r->mode);
    atomic_thread_fence(memory_order_seq_cst);
    if (is_tracked(root)) {
        retract(root, slot, serial);
        return USM_E_NOT_READY;
    }
    st = r->mode & USM_NO_WAIT ? usm__pins_take(1, &pin) : usm__pins_take_waiting(1, &pin);
    if (st == USM_OK)
        fill(acc, r, USM__OPEN_SLOT | serial << 8, slot);
    else
        retract(root, slot, serial);
    return st;
}

static usm_status begin_in_order(const usm_buffer_range *r, usm_access *acc)
{
    usm__open *open = NULL;
    usm_status st   = usm__access_begin(1, r, &open);

    if (st == USM_OK)
        fill(acc, r, USM__OPEN_ENTRY, open);
    return st;
}

static usm_status begin_slowly(const usm_buffer_range *r, usm_access *acc)
{
    usm_status st = check(r, acc);

    if (st != USM_OK)
        return st;
    if (r->size == 0) {
        fill(acc, r, USM__OPEN_NOTHING, NULL);
        return USM_OK;
    }
    st = begin_in_slot(r, acc);
    if (st == USM_E_NOT_READY)
        st = begin_in_order(r, acc);
    return st;
}

/* The checks of check() for the common case; other cases are slow, and report errors there. */
static inline bool is_plain(const usm_buffer_range *r, const usm_access *acc)
{
    const usm_buffer *buf = r->buffer;
    uint32_t          no  = r->mode & USM_WRITE
                                ? USM__BUFFER_TRACKED | USM__BUFFER_READ_ONLY | USM__BUFFER_FRESH
                                : USM__BUFFER_TRACKED;

    return usm__handle_is(buf, USM__MAGIC_BUFFER) && acc && is_mode(r->mode) &&
           r->size - 1 < buf->size && r->offset <= buf->size - r->size &&
           buf->fork_generation == usm__fork_generation() &&
           (usm_load_relaxed(&buf->root->flags) & no) == 0;
}

usm_status usm_access_begin(usm_buffer *buf, size_t offset, size_t size, usm_access_mode mode,
                            usm_access *acc)
{
    const usm_buffer_range r = {buf, offset, size, mode};

    if (__builtin_expect(is_plain(&r, acc) && hit(&r, acc), 1))
        return USM_OK;
    return begin_slowly(&r, acc);
}

static void end_slowly(usm_access *acc, uint32_t state)
{
    usm_buffer *buf = acc->buffer;

    switch ((usm__open_kind)(state & 0xff)) {
    case USM__OPEN_SLOT:
        usm__slot_close(acc->opaque);
        usm__space_unpin(buf->space, buf->base + acc->offset, acc->size, acc->mode);
        atomic_thread_fence(memory_order_seq_cst);
        close_slot(buf->root, acc->opaque, state >> 8);
        return;
    case USM__OPEN_ENTRY:
        usm__access_end(acc->opaque);
        return;
    case USM__OPEN_NOTHING:
        return;
    case USM__OPEN_NOT:
    case USM__OPEN_HIT:
        break;
    }
    usm__warn("usm_access_end: the access %p is not open: ended twice, or never begun?",
              (void *)acc);
}

void usm_access_end(usm_access *acc)
{
    uint32_t    state;
    usm_buffer *buf;

    if (!acc)
        return;
    state      = acc->state;
    acc->state = USM__OPEN_NOT;
    if ((state & 0xff) != USM__OPEN_HIT || acc->buffer->fork_generation != usm__fork_generation()) {
        end_slowly(acc, state);
        return;
    }
    buf = acc->buffer;
    usm__slot_close(acc->opaque);
    usm__word_unpin(buf->space, (uint32_t)((buf->base + acc->offset) >> buf->space->shift),
                    acc->mode);
    usm__slot_barrier();
    close_slot(buf->root, acc->opaque, state >> 8);
}

/* ---- several accesses, and without waiting --------------------------------------------- */

static usm_status check_list(size_t n, const usm_buffer_range *list, const usm_access *accs)
{
    usm_status st = USM_OK;

    if (n && (!list || !accs))
        return usm__fail(USM_E_INVALID, "usm_access_many: %s is NULL", list ? "accs" : "list");
    for (size_t i = 0; st == USM_OK && i < n; i++)
        st = check(&list[i], &accs[i]);
    return st;
}

/* Accesses of no bytes are in no order. */
static size_t without_empty(size_t n, const usm_buffer_range *list, usm_buffer_range *out)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        if (list[i].size > 0)
            out[count++] = list[i];
    return count;
}

static usm_status begin_many(size_t n, const usm_buffer_range *list, usm_access *accs,
                             usm_buffer_range *ranges, usm__open **opens)
{
    size_t     count = without_empty(n, list, ranges);
    usm_status st    = usm__access_begin(count, ranges, opens);

    if (st != USM_OK)
        return st;
    for (size_t i = 0, k = 0; i < n; i++) {
        if (list[i].size > 0)
            fill(&accs[i], &list[i], USM__OPEN_ENTRY, opens[k++]);
        else
            fill(&accs[i], &list[i], USM__OPEN_NOTHING, NULL);
    }
    return USM_OK;
}

usm_status usm_access_many(size_t n, const usm_buffer_range *list, usm_access *accs)
{
    usm_buffer_range *ranges;
    usm__open       **opens;
    usm_status        st = check_list(n, list, accs);

    if (st != USM_OK || n == 0)
        return st;
    ranges = usm__heap_alloc(n * sizeof *ranges);
    opens  = usm__heap_alloc(n * sizeof(usm__open *));
    st     = ranges && opens ? begin_many(n, list, accs, ranges, opens)
                             : usm__fail(USM_E_NO_MEMORY, "no host memory for %zu accesses", n);
    usm__heap_free(ranges);
    usm__heap_free(opens);
    return st;
}

static usm_status begin_nothing(const usm_buffer_range *r, usm_access *acc, usm_event **ev)
{
    usm_event *made = NULL;
    usm_status st   = usm_event_create(r->buffer->root->ctx, &made);

    if (st != USM_OK)
        return st;
    (void)usm__event_end(made, USM_OK);
    made->is_task = true;
    *ev           = made;
    fill(acc, r, USM__OPEN_NOTHING, NULL);
    return USM_OK;
}

usm_status usm_access_begin_async(usm_buffer *buf, size_t offset, size_t size, usm_access_mode mode,
                                  usm_access *acc, usm_event **ev)
{
    /* This function never waits, whatever the mode says. */
    usm_buffer_range r    = {buf, offset, size, mode & ~USM_NO_WAIT};
    usm__open       *open = NULL;
    usm_status       st   = check(&r, acc);

    if (st == USM_OK && !ev)
        st = usm__fail(USM_E_INVALID, "usm_access_begin_async: ev is NULL");
    if (st != USM_OK)
        return st;
    if (size == 0)
        return begin_nothing(&r, acc, ev);
    st = usm__access_begin_async(&r, &open, ev);
    if (st == USM_OK)
        fill(acc, &r, USM__OPEN_ENTRY, open);
    return st;
}

/* ---- for the end of a buffer ------------------------------------------------------------ */

/* Reads a piece at a time, so that a buffer larger than memory can be read. */
usm_status usm__buffer_read(usm_buffer *root, size_t begin, void *dst, size_t size)
{
    size_t     piece = (size_t)1 << root->space->shift;
    usm_status st    = USM_OK;

    for (size_t done = 0, n; st == USM_OK && done < size; done += n) {
        usm_buffer_range r    = {root, begin - root->base + done, 0, USM_READ};
        usm__open       *open = NULL;

        n      = piece - ((begin + done) & (piece - 1));
        n      = n < size - done ? n : size - done;
        r.size = n;
        st     = usm__access_begin(1, &r, &open);
        if (st != USM_OK)
            break;
        memcpy((char *)dst + done, root->ptr + r.offset, n);
        usm__access_end(open);
    }
    return st;
}

usm_status usm__buffer_finalize(usm_buffer *root, bool bring)
{
    size_t     piece = (size_t)1 << root->space->shift;
    usm_status st = USM_OK, first = USM_OK;

    for (size_t done = 0; done < root->size; done += piece) {
        size_t           n    = root->size - done < piece ? root->size - done : piece;
        usm_buffer_range r    = {root, done, n, bring ? USM_READ_WRITE : USM_WRITE_NO_INIT};
        usm__open       *open = NULL;

        st = usm__access_begin(1, &r, &open);
        if (st == USM_OK)
            usm__access_end(open);
        else if (first == USM_OK)
            first = st;
    }
    return first;
}
