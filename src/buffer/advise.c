/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Advice on the future use of a buffer, and commits.  Called by programs. */
#include "base/os.h"
#include "buffer/host.h"
#include "buffer/keep.h"
#include "spill/home.h"

/* ---- advice --------------------------------------------------------------------------- */

static bool has_other(const usm_list *head, const usm__track_order_entry *than)
{
    USM_LIST_FOREACH (it, head) {
        const usm__track_order_entry *e = usm_container_of(it, usm__track_order_entry, link);

        if (e != than && e->begin < than->end && than->begin < e->end)
            return true;
    }
    return false;
}

/* Whether anything else uses the range, including accesses opened by the hit path. */
static usm_status check_unused(usm_buffer *root, const usm__track_order_entry *own)
{
    usm__track *t = usm__track_of(root);
    usm_status  st;

    usm__track_lock();
    st = usm__track_start(root);
    if (st == USM_OK && (has_other(&t->order.active, own) || has_other(&t->order.covered, own)))
        st = usm__fail(USM_E_BUSY, "bytes of the range are accessed; discard them after that");
    usm__track_stop(root);
    usm__track_unlock();
    return st;
}

static usm_status discard_range(usm_buffer *root, size_t begin, size_t size)
{
    usm__track     *t         = usm__track_of(root);
    usm__locations *locations = usm_load_acquire(&t->locations);

    if (locations) {
        usm__mutex_lock(&t->lock);
        usm__locations_discard(locations, begin - root->base, size);
        usm__mutex_unlock(&t->lock);
    }
    return root->space->is_foreign
               ? USM_OK
               : usm__space_advise(root->space, begin, size, USM_BUFFER_DISCARD);
}

static usm_status discard(usm_buffer *root, size_t begin, size_t size)
{
    const usm_buffer_range r    = {root, begin - root->base, size, USM_WRITE_NO_INIT | USM_NO_WAIT};
    usm__open             *open = NULL;
    usm_status             st   = usm__access_enter(&r, &open);

    if (st == USM_E_AGAIN)
        st = usm__fail(USM_E_BUSY, "a command uses bytes of the range; discard them after it");
    if (st != USM_OK)
        return st;
    st = check_unused(root, &open->host.entry);
    if (st == USM_OK)
        st = discard_range(root, begin, size);
    usm__access_end(open);
    return st;
}

usm_status usm_buffer_advise(usm_buffer *buf, size_t offset, size_t size, usm_buffer_advice advice)
{
    usm_status st = usm__buffer_check(buf);

    if (st == USM_OK)
        st = usm__buffer_check_range(buf, offset, size);
    if (st == USM_OK && (advice < USM_BUFFER_NORMAL || advice > USM_BUFFER_DISCARD))
        st = usm__fail(USM_E_INVALID, "usm_buffer_advise: %d is not a usm_buffer_advice",
                       (int)advice);
    if (st == USM_OK && advice == USM_BUFFER_DISCARD)
        st = usm__buffer_check_mode(buf, USM_WRITE);
    if (st != USM_OK || size == 0)
        return st;
    if (advice == USM_BUFFER_DISCARD)
        return discard(buf->root, buf->base + offset, size);
    if (buf->space->is_foreign)
        return USM_OK; /* it is never evicted */
    if (advice == USM_BUFFER_PIN)
        return usm__buffer_keep(buf->root, buf->base + offset, size);
    if (advice == USM_BUFFER_UNPIN)
        return usm__buffer_unkeep(buf->root, buf->base + offset, size);
    return usm__space_advise(buf->space, buf->base + offset, size, advice);
}

/* ---- hints ------------------------------------------------------------------------------- */

static usm_status check_list(size_t n, const usm_buffer_range *list)
{
    usm_status st = USM_OK;

    if (n && !list)
        return usm__fail(USM_E_INVALID, "usm_announce: list is NULL");
    for (size_t i = 0; st == USM_OK && i < n; i++) {
        st = usm__buffer_check(list[i].buffer);
        if (st == USM_OK)
            st = usm__buffer_check_range(list[i].buffer, list[i].offset, list[i].size);
        if (st == USM_OK)
            st = usm__buffer_check_mode(list[i].buffer, list[i].mode ? list[i].mode : USM_READ);
    }
    return st;
}

static bool was_before(size_t i, const usm_buffer_range *list)
{
    for (size_t k = 0; k < i; k++)
        if (list[k].buffer->space->spill == list[i].buffer->space->spill)
            return true;
    return false;
}

/* Collects the elements of the list from i on that are in the engine of element i. */
static size_t collect(size_t i, size_t n, const usm_buffer_range *list, usm__pin *pins)
{
    const usm__spill *spill = list[i].buffer->space->spill;
    size_t            count = 0;

    for (size_t k = i; k < n; k++) {
        const usm_buffer *b = list[k].buffer;

        if (b->space->spill == spill && !b->space->is_foreign && list[k].size > 0)
            pins[count++] = (usm__pin){b->space, b->base + list[k].offset, list[k].size,
                                       list[k].mode ? list[k].mode : USM_READ};
    }
    return count;
}

/* Cancels the hints in the engine of the last list; if that buffer was destroyed they are gone. */
static void withdraw(void)
{
    usm__open_table *table = usm__slot_table();
    usm_buffer      *b     = table ? table->announced : NULL;

    if (!b)
        return;
    table->announced = NULL;
    if (usm__handle_is(b, USM__MAGIC_BUFFER) && b->fork_generation == usm__fork_generation())
        (void)usm__spill_announce(b->space->spill, 0, NULL);
}

static void note(usm_buffer *b)
{
    usm__open_table *table = usm__slot_table();

    if (table)
        table->announced = b;
}

usm_status usm_announce(size_t n, const usm_buffer_range *list)
{
    usm__pin  *pins;
    usm_status st = check_list(n, list);

    if (st != USM_OK)
        return st;
    withdraw();
    if (n == 0)
        return USM_OK;
    pins = usm__heap_alloc(n * sizeof *pins);
    if (!pins)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu announcements", n);
    for (size_t i = 0; st == USM_OK && i < n; i++)
        if (!was_before(i, list))
            st = usm__spill_announce(list[i].buffer->space->spill, collect(i, n, list, pins), pins);
    usm__heap_free(pins);
    note(list[0].buffer);
    return st;
}

/* ---- commit -------------------------------------------------------------------------------- */

/* Copies the bytes that only devices have to host memory, a block at a time. */
static usm_status bring_home(usm_buffer *root)
{
    usm__track *t     = usm__track_of(root);
    size_t      piece = (size_t)1 << root->space->shift;
    usm_status  st    = USM_OK;

    if (!t || !usm_load_acquire(&t->locations))
        return USM_OK;
    for (size_t at = 0; st == USM_OK && at < root->size; at += piece) {
        size_t           n    = root->size - at < piece ? root->size - at : piece;
        usm_buffer_range r    = {root, at, n, USM_READ};
        usm__open       *open = NULL;

        st = usm__access_begin(1, &r, &open);
        if (st == USM_OK)
            usm__access_end(open);
    }
    return st;
}

usm_status usm_buffer_commit(usm_buffer *buf)
{
    usm__open       *open = NULL;
    usm_buffer      *root;
    usm_buffer_range whole = {buf, 0, 0, USM_READ};
    usm_status       st    = usm__buffer_check(buf);

    if (st != USM_OK)
        return st;
    root = buf->root;
    if (!(usm_load_relaxed(&root->flags) & USM__BUFFER_HAS_HOME))
        return usm__fail(USM_E_NOT_SUPPORTED, "usm_buffer_commit: the buffer has no file or other "
                                              "backing store; see usm_buffer_open()");
    st = usm__buffer_check_mode(root, USM_WRITE);
    if (st != USM_OK)
        return st;
    whole.buffer = root;
    whole.size   = root->size;
    st           = usm__access_enter(&whole, &open); /* later writers wait           */
    if (st != USM_OK)
        return st;
    st = bring_home(root);
    if (st == USM_OK && usm__space_is_pinned(root->space, 0, root->size, true))
        st =
            usm__fail(USM_E_BUSY, "usm_buffer_commit: an access that writes is open; end it first");
    if (st == USM_OK)
        st = usm__space_commit(root->space);
    usm__access_end(open);
    return st;
}
