/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Coherence of a buffer's bytes (buffer/locations.h): the functions that commands and host accesses
 * call.  Each finds out which bytes are lacking where, has them copied (locations_copy.c) to memory
 * from extent.c, and records what the access makes valid and invalid. */
#include "buffer/locations.h"

#include "base/os.h"
#include "buffer/extent.h"
#include "heap/pool.h"

#include <string.h>

/* ---- lists of events -------------------------------------------------------------- */

usm_status usm__locations_events_add(usm__locations_events *l, usm_event *ev)
{
    usm_event **grown;
    size_t      cap;

    if (!l->list) {
        l->list = l->first;
        l->cap  = sizeof l->first / sizeof *l->first;
    }
    if (l->n == l->cap) {
        cap   = 2 * l->cap;
        grown = usm__heap_alloc(cap * sizeof(usm_event *));
        if (!grown) {
            usm_event_release(ev);
            return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu events", cap);
        }
        memcpy(grown, l->list, l->n * sizeof(usm_event *));
        if (l->list != l->first)
            usm__heap_free(l->list);
        l->list = grown;
        l->cap  = cap;
    }
    l->list[l->n++] = ev;
    return USM_OK;
}

void usm__locations_events_fini(usm__locations_events *l)
{
    for (size_t i = 0; i < l->n; i++)
        usm_event_release(l->list[i]);
    if (l->list != l->first)
        usm__heap_free(l->list);
    l->list = NULL;
    l->n = l->cap = 0;
}

/* ---- the record of a buffer -------------------------------------------------------- */

usm_status usm__locations_create(usm__space *space, size_t base, size_t size, bool host_valid,
                                 usm__locations **out)
{
    usm__locations *p = usm__heap_alloc(sizeof *p);

    if (!p)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to record where a buffer's bytes are");
    p->space = space;
    p->base  = base;
    p->size  = size;
    usm__valid_init(&p->host.valid);
    usm_list_init(&p->extents);
    usm_list_init(&p->copies);
    if (host_valid)
        usm__valid_add(&p->host.valid, 0, size);
    usm__spill_add_record(space->spill, sizeof *p);
    *out = p;
    return USM_OK;
}

void usm__locations_destroy(usm__locations *p)
{
    usm_list *it;

    if (!p)
        return;
    usm__extents_lock();
    while (!usm_list_is_empty(&p->copies)) {
        usm__copying *t = usm__copying_hold(usm_container_of(p->copies.next, usm__copying, link));

        usm__extents_unlock();
        usm__copying_await(t);
        usm__extents_lock();
    }
    (void)usm__locations_settle(p, 0, p->size, true);
    while ((it = p->extents.next) != &p->extents)
        usm__extent_retire(usm_container_of(it, usm__extent, link));
    usm__extents_unlock();
    usm__valid_fini(&p->host.valid);
    usm__spill_drop_record(p->space->spill, sizeof *p);
    usm__heap_free(p);
}

void usm__locations_force_copies(bool force)
{
    usm_store_relaxed(&usm__extents.forces_copies, force);
}

bool usm__locations_in_place(const usm_queue *q)
{
    return !usm_load_relaxed(&usm__extents.forces_copies) &&
           usm_device_has(q->dev, USM_ASPECT_USM_SYSTEM_ALLOCATIONS);
}

/* ---- validity ------------------------------------------------------------------------ */

/* Reserves room in every set for one change; lock held. */
static usm_status reserve_all(usm__locations *p)
{
    bool has_room = usm__holding_reserve(&p->host);

    USM_LIST_FOREACH (it, &p->extents) {
        usm__extent *e = usm_container_of(it, usm__extent, link);

        has_room = has_room && usm__holding_reserve(&e->holding);
    }
    if (has_room)
        return USM_OK;
    return usm__fail(USM_E_NO_MEMORY, "no host memory to record which bytes are valid");
}

/* The range becomes valid in `in` (NULL: host memory) and nowhere else.  pre: reserve_all(). */
static void valid_only_in(usm__locations *p, usm__extent *in, size_t start, size_t end)
{
    if (in)
        usm__valid_remove(&p->host.valid, start, end);
    else
        usm__valid_add(&p->host.valid, start, end);
    USM_LIST_FOREACH (it, &p->extents) {
        usm__extent *e = usm_container_of(it, usm__extent, link);

        if (in && e == in)
            usm__valid_add(&e->holding.valid, start, end);
        else
            usm__valid_remove(&e->holding.valid, start, end);
    }
}

/* ---- to a device ------------------------------------------------------------------------ */

static usm_status find_extent(usm__locations *p, const usm__locations_want *want,
                              usm__extent **found)
{
    size_t     start = want->offset, end = start + want->size;
    usm_status st;

    usm__extents_lock();
    st     = usm__locations_settle(p, start, end, want->may_wait);
    *found = st == USM_OK ? usm__extent_find(p, want->q, start, end) : NULL;
    if (*found) {
        (*found)->commands++;
        usm__extent_touch(*found);
    }
    usm__extents_unlock();
    return st;
}

/* Adds the copies under way that the command must come after: those to its bytes, and if it writes
 * also those from them.  Lock held. */
static usm_status add_copies(const usm__locations *p, const usm__locations_want *want,
                             const usm__extent *e, usm__locations_events *after)
{
    USM_LIST_FOREACH (it, &p->copies) {
        const usm__copying *t = usm_container_of(it, usm__copying, link);
        usm_status          st;

        if (t->start >= want->offset + want->size || want->offset >= t->end ||
            (t->to != e && !(t->from == e && (want->mode & USM_WRITE))))
            continue;
        st = usm_event_retain(t->ev);
        if (st == USM_OK)
            st = usm__locations_events_add(after, t->ev);
        if (st != USM_OK)
            return st;
    }
    return USM_OK;
}

static usm_status enter(usm__locations *p, const usm__locations_want *want, usm__extent *e,
                        usm__locations_events *after)
{
    usm_status st;

    usm__extents_lock();
    st = usm__locations_settle(p, want->offset, want->offset + want->size, want->may_wait);
    if (st == USM_OK && !(want->mode & USM_NO_INIT) && usm__locations_lacks(p, want, e))
        st = usm__fail(e->failure, "a copy of \"%s\" to %s failed", p->space->name,
                       e->memory->dev->term);
    if (st == USM_OK)
        st = add_copies(p, want, e, after);
    if (st == USM_OK && (want->mode & USM_WRITE)) {
        st = reserve_all(p);
        if (st == USM_OK)
            valid_only_in(p, e, want->offset, want->offset + want->size);
    }
    usm__extents_unlock();
    return st;
}

/* Bytes that `e` covers now need not be kept elsewhere in the same memory. */
static void drop_covered(usm__locations *p, const usm__extent *e)
{
    usm__extents_lock();
    USM_LIST_FOREACH_SAFE (at, next, &p->extents) {
        usm__extent *old = usm_container_of(at, usm__extent, link);

        if (old == e || old->is_leaving || !usm__extent_is_covered(old))
            continue;
        old->is_surplus = usm__extent_is_used(old);
        if (!old->is_surplus)
            usm__extent_retire(old);
    }
    usm__extents_unlock();
}

usm_status usm__locations_to_device(usm__locations *p, const usm__locations_want *want,
                                    usm__extent **extent, void **ptr, usm__locations_events *after)
{
    usm__extent *e      = NULL;
    bool         is_new = false;
    usm_status   st     = find_extent(p, want, &e);

    if (st == USM_OK && !e) {
        st     = usm__extent_make(p, want, &e);
        is_new = st == USM_OK;
    }
    if (st != USM_OK)
        return st;
    if (!(want->mode & USM_NO_INIT))
        st = usm__locations_bring(p, want, e);
    if (st == USM_OK)
        st = enter(p, want, e, after);
    if (st != USM_OK) {
        usm__extent_unuse(e); /* with the bytes that are valid there by now */
        return st;
    }
    if (is_new)
        drop_covered(p, e);
    *extent = e;
    *ptr    = e->at + (want->offset - e->start);
    return USM_OK;
}

/* ---- waiting for memory ------------------------------------------------------------------- */

uint64_t usm__locations_turn(const usm_queue *q)
{
    const usm__memory *m;
    uint64_t           turn;

    usm__extents_lock();
    m    = usm__memory_find(q->dev);
    turn = m ? m->turn : 0;
    usm__extents_unlock();
    return turn;
}

static bool is_in_use(const usm__memory *m)
{
    USM_LIST_FOREACH (it, &m->extents) {
        const usm__extent *e = usm_container_of(it, usm__extent, lru);

        if (usm__extent_is_used(e) || e->is_leaving)
            return true;
    }
    return false;
}

void usm__locations_await_memory(const usm_queue *q, uint64_t turn)
{
    const usm__memory *m;

    usm__extents_lock();
    m = usm__memory_find(q->dev);
    while (m && m->turn == turn && is_in_use(m))
        usm__extents_wait();
    usm__extents_unlock();
}

/* ---- to the host ---------------------------------------------------------------------------- */

static bool is_valid_on_device(const usm__locations *p, size_t start, size_t end)
{
    USM_LIST_FOREACH (it, &p->extents) {
        const usm__extent *e = usm_container_of(it, usm__extent, link);

        if (usm__valid_has_any(&e->holding.valid, start, end))
            return true;
    }
    return false;
}

/* A copy under way of these bytes, to `to` (NULL: to any location); NULL: none. */
static usm__copying *copy_over(const usm__locations *p, const usm__extent *to, size_t start,
                               size_t end)
{
    USM_LIST_FOREACH (it, &p->copies) {
        usm__copying *t = usm_container_of(it, usm__copying, link);

        if (t->start < end && start < t->end && (!to || t->to == to))
            return t;
    }
    return NULL;
}

/* Lock held. */
static bool is_on_host(const usm__locations *p, size_t start, size_t end, usm_access_mode mode)
{
    usm__interval piece = {start, end};

    if (usm__locations_are_leaving(p, start, end))
        return false;
    if (mode & USM_WRITE)
        return usm__valid_has_all(&p->host.valid, start, end) &&
               !is_valid_on_device(p, start, end) && !copy_over(p, NULL, start, end);
    return !usm__locations_source(p, &p->host.valid, NULL, &piece);
}

bool usm__locations_is_on_host(const usm__locations *p, size_t offset, size_t size,
                               usm_access_mode mode)
{
    bool is;

    usm__extents_lock();
    is = is_on_host(p, offset, offset + size, mode);
    usm__extents_unlock();
    return is;
}

/* What is to be done without the lock before the host may use bytes. */
typedef struct step {
    usm__copying *copy; /* counted: it is to be awaited                           */
    usm__extent  *from; /* counted: `piece` is to be copied from it               */
    usm__interval piece;
} step;

/* Waits until nothing of the range is being evicted.  False: nothing is to be done, and that stays
 * so until the lock is released.  Lock held. */
static bool next_step(const usm__locations *p, size_t start, size_t end, usm_access_mode mode,
                      step *s)
{
    *s = (step){.piece = {start, end}};
    (void)usm__locations_settle(p, start, end, true);
    if (mode & USM_WRITE)
        s->copy = usm__copying_hold(copy_over(p, NULL, start, end));
    if (s->copy || (mode & USM_NO_INIT))
        return s->copy != NULL;
    s->from = usm__locations_source(p, &p->host.valid, NULL, &s->piece);
    if (!s->from)
        return false;
    /* Its bytes are valid once a copy to it has ended. */
    s->copy = usm__copying_hold(copy_over(p, s->from, s->piece.start, s->piece.end));
    s->from->copies += !s->copy;
    return true;
}

/* Lock not held. */
static usm_status take_step(usm__locations *p, const step *s)
{
    usm_status st;

    if (s->copy) {
        usm__copying_await(s->copy);
        return USM_OK;
    }
    st = usm__locations_fetch(s->from, &s->piece);
    usm__extents_lock();
    if (st == USM_OK && !usm__holding_reserve(&p->host))
        st = usm__fail(USM_E_NO_MEMORY, "no host memory to record which bytes are valid");
    if (st == USM_OK)
        usm__valid_add(&p->host.valid, s->piece.start, s->piece.end);
    usm__extent_drop_copy(s->from);
    usm__extents_unlock();
    return st;
}

usm_status usm__locations_to_host(usm__locations *p, size_t offset, size_t size,
                                  usm_access_mode mode)
{
    size_t     start = offset, end = offset + size;
    usm_status st = USM_OK;
    step       s;

    usm__extents_lock();
    while (st == USM_OK && next_step(p, start, end, mode, &s)) {
        usm__extents_unlock();
        st = take_step(p, &s);
        usm__extents_lock();
    }
    if (st == USM_OK && (mode & USM_WRITE))
        st = reserve_all(p);
    if (st == USM_OK && (mode & USM_WRITE))
        valid_only_in(p, NULL, start, end);
    usm__extents_unlock();
    return st;
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* If there is no room to record it, the dead content stays valid: correct, but it costs copies. */
void usm__locations_discard(usm__locations *p, size_t offset, size_t size)
{
    size_t start = offset, end = offset + size;
    step   s;

    usm__extents_lock();
    while (next_step(p, start, end, USM_WRITE_NO_INIT, &s)) {
        usm__extents_unlock();
        (void)take_step(p, &s);
        usm__extents_lock();
    }
    if (reserve_all(p) == USM_OK) {
        valid_only_in(p, NULL, start, end);
        usm__valid_remove(&p->host.valid, start, end);
    }
    usm__extents_unlock();
}

static size_t evict_of(usm__memory *m, const usm_context *ctx, size_t bytes)
{
    usm__evict_rule rule = {.of = ctx};
    size_t          left = 0, freed = 1;

    while (left < bytes) {
        usm_status st = usm__extent_evict(m, &rule, &freed);

        left += freed;
        if (st != USM_OK || (freed == 0 && rule.may_copy))
            break;
        rule.may_copy = freed == 0; /* clean extents are evicted first */
    }
    return left;
}

size_t usm__locations_give_back(usm_context *ctx, usm_device *dev, size_t bytes)
{
    usm__memory *m;
    size_t       left = 0;
    usm__message message;

    usm__message_save(&message);
    usm__extents_lock();
    m = usm__memory_find(dev);
    usm__extents_unlock();
    if (m && ctx)
        left = evict_of(m, ctx, bytes);
    if (m && left < bytes)
        left += evict_of(m, NULL, bytes - left);
    usm__message_restore(&message);
    return left;
}
