/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The order of accesses by range; see buffer/order.h.
 *
 * There are two lists in order of arrival.  The active one is short: a write puts aside all entries
 * that it covers, so the list has the last writers of each part, and the readers since. */
#include "buffer/order.h"

#include "base/inline/bits.h"

void usm__track_order_init(usm__track_order *o)
{
    usm_list_init(&o->active);
    usm_list_init(&o->covered);
    o->ncommands = o->nwrites = 0;
}

bool usm__track_order_conflict(const usm__track_order_entry *a, const usm__track_order_entry *b)
{
    return a->begin < b->end && b->begin < a->end && ((a->mode | b->mode) & USM_WRITE) &&
           !(a->is_host && b->is_host);
}

static usm__track_order_entry *entry_of(usm_list *it)
{
    return usm_container_of(it, usm__track_order_entry, link);
}

static usm__track_order_entry *next_in(usm_list *head, usm_list *it,
                                       const usm__track_order_entry *e)
{
    for (; it != head; it = it->next)
        if (usm__track_order_conflict(entry_of(it), e))
            return entry_of(it);
    return NULL;
}

usm__track_order_entry *usm__track_order_next(usm__track_order *o, const usm__track_order_entry *e,
                                              bool all, const usm__track_order_entry *prev)
{
    usm__track_order_entry *found = NULL;

    if (!(e->mode & USM_WRITE) && o->nwrites == 0)
        return NULL; /* however many read */
    if (!prev || !prev->is_covered)
        found = next_in(&o->active, prev ? prev->link.next : o->active.next, e);
    if (!found && all)
        found =
            next_in(&o->covered, prev && prev->is_covered ? prev->link.next : o->covered.next, e);
    return found;
}

/* Whether waiting for e implies waiting for `old`.  Never true for accesses of the host: they have
 * no event that a command could wait for, so each is waited for separately. */
static bool covers(const usm__track_order_entry *e, const usm__track_order_entry *old)
{
    if (e->is_host || old->is_host || old->begin < e->begin || old->end > e->end)
        return false;
    if (e->mode & USM_WRITE)
        return true;
    return e->lane != 0 && e->lane == old->lane && !(old->mode & USM_WRITE);
}

static bool may_cover(const usm__track_order_entry *e)
{
    return !e->is_host && ((e->mode & USM_WRITE) || e->lane != 0);
}

static void cover(usm__track_order *o, const usm__track_order_entry *e)
{
    USM_LIST_FOREACH_SAFE (it, next, &o->active) {
        usm__track_order_entry *old = entry_of(it);

        if (!covers(e, old))
            continue;
        usm_list_remove(it);
        usm_list_append(&o->covered, it);
        old->is_covered = true;
    }
}

void usm__track_order_add(usm__track_order *o, usm__track_order_entry *e)
{
    if (may_cover(e))
        cover(o, e);
    e->is_covered = false;
    usm_list_append(&o->active, &e->link);
    o->ncommands += !e->is_host;
    o->nwrites += (e->mode & USM_WRITE) != 0;
}

static void uncover(usm__track_order *o, const usm__track_order_entry *e)
{
    USM_LIST_FOREACH_SAFE (it, next, &o->covered) {
        usm__track_order_entry *old = entry_of(it);

        if (old->begin < e->begin || old->end > e->end)
            continue;
        usm_list_remove(it);
        usm_list_append(&o->active, it);
        old->is_covered = false;
    }
}

void usm__track_order_remove(usm__track_order *o, usm__track_order_entry *e, bool is_clean)
{
    usm_list_remove(&e->link);
    o->ncommands -= !e->is_host;
    o->nwrites -= (e->mode & USM_WRITE) != 0;
    if (!is_clean && !e->is_host)
        uncover(o, e);
}

/* ---- failures ------------------------------------------------------------------ */

static size_t distance(const struct usm__failure *f, size_t begin, size_t end)
{
    if (f->end < begin)
        return begin - f->end;
    return end < f->begin ? f->begin - end : 0;
}

void usm__failures_add(usm__failures *f, size_t begin, size_t end, usm_status status)
{
    struct usm__failure *near = NULL;

    for (unsigned i = 0; i < f->n; i++)
        if (!near || distance(&f->list[i], begin, end) < distance(near, begin, end))
            near = &f->list[i];
    if (near && (distance(near, begin, end) == 0 || f->n == USM__FAILURES)) {
        near->begin = usm_min_size(near->begin, begin);
        near->end   = usm_max_size(near->end, end);
        return;
    }
    f->list[f->n++] = (struct usm__failure){begin, end, status};
}

/* Removes [begin, end) from failure i.  A hole splits it if there is room for the second half;
 * otherwise the whole failure stays. */
static void cut(usm__failures *f, unsigned i, size_t begin, size_t end)
{
    struct usm__failure *x = &f->list[i];

    if (begin <= x->begin && end >= x->end) {
        *x = f->list[--f->n];
    } else if (begin <= x->begin) {
        x->begin = end;
    } else if (end >= x->end) {
        x->end = begin;
    } else if (f->n < USM__FAILURES) {
        f->list[f->n++] = (struct usm__failure){end, x->end, x->status};
        x->end          = begin;
    }
}

usm_status usm__failures_take(usm__failures *f, size_t begin, size_t end, usm_access_mode mode)
{
    usm_status first = USM_OK;

    for (unsigned i = f->n; i-- > 0;) {
        struct usm__failure *x = &f->list[i];

        if (x->end <= begin || x->begin >= end)
            continue;
        if (mode & USM_NO_INIT) {
            cut(f, i, begin, end);
        } else {
            first = x->status;
            *x    = f->list[--f->n];
        }
    }
    return first;
}
