/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Copies between the locations of a buffer's bytes.
 *
 * Copies to a device are queued and not waited for.  Each is a usm__copying in its buffer's list
 * until it has ended: it counts on its extents and holds the pins of its host blocks, and others
 * that use the bytes meanwhile wait for its event.  It is queued
 *
 *     in the command's queue   if commands under way use one of the extents (it then waits for
 *                              `deps`), or if it comes after such a copy
 *     in the context's own     otherwise: it waits for no command, and overlaps with running ones
 *
 * so nothing in the context's own queue waits for a command, and evictions, which use it too, are
 * never held up: a task that allocates may wait for one, and commands for the task.  If a copy
 * fails, its target is not valid after all.  Bytes that are then valid nowhere, because the command
 * that was to come after the copy has been recorded as their writer, become valid again in the
 * source: the command did not run.
 *
 * Copies to the host are waited for (usm__locations_fetch). */
#include "buffer/extent.h"

#include "base/inline/bits.h"
#include "base/os.h"

#define PIN_BLOCKS 16 /* most blocks that one copy pins                                  */
#define CRUMB      4  /* a farther source with this many times more bytes saves a copy   */

/* ---- pins --------------------------------------------------------------------------- */

/* Does not wait for frames that others hold: the buffer is locked, or an extent of it is being
 * evicted, and their holders may wait for either. */
static usm_status pin(const usm__locations *p, const usm__interval *piece, usm_access_mode mode,
                      bool is_leaving)
{
    const usm__pin one = {p->space, p->base + piece->start, piece->end - piece->start, mode};

    return usm__spill_pin_hastily(p->space->spill, &one, is_leaving);
}

/* Pins as many blocks as fit in memory at once: half as many after each refusal. */
usm_status usm__locations_pin(const usm__locations *p, usm__interval *piece, usm_access_mode mode,
                              bool is_leaving)
{
    size_t     block = (size_t)1 << p->space->shift, n = PIN_BLOCKS;
    size_t     first = p->base + piece->start;
    usm_status st;

    if (p->space->is_foreign)
        return USM_OK;
    for (;; n /= 2) {
        size_t end = (first & ~(block - 1)) + n * block - p->base;

        piece->end = usm_min_size(piece->end, end);
        st         = pin(p, piece, mode, is_leaving);
        if ((st != USM_E_BUDGET && st != USM_E_AGAIN) || n == 1)
            return st;
    }
}

void usm__locations_unpin(const usm__locations *p, const usm__interval *piece, usm_access_mode mode)
{
    if (!p->space->is_foreign)
        usm__space_unpin(p->space, p->base + piece->start, piece->end - piece->start, mode);
}

/* ---- copies under way ----------------------------------------------------------------- */

static usm__holding *holding_of(usm__locations *p, usm__extent *e)
{
    return e ? &e->holding : &p->host;
}

static bool is_valid_anywhere(const usm__locations *p, const usm__interval *piece)
{
    if (usm__valid_has_any(&p->host.valid, piece->start, piece->end))
        return true;
    USM_LIST_FOREACH (it, &p->extents) {
        const usm__extent *e = usm_container_of(it, usm__extent, link);

        if (usm__valid_has_any(&e->holding.valid, piece->start, piece->end))
            return true;
    }
    return false;
}

/* Records a failed copy.  Lock held; both sets have room for the change. */
static void enter_failure(usm__copying *t)
{
    usm__locations *p     = t->locations;
    usm__interval   piece = {t->start, t->end};

    usm__valid_remove(&holding_of(p, t->to)->valid, t->start, t->end);
    if (!t->is_superseded && !is_valid_anywhere(p, &piece))
        usm__valid_add(&holding_of(p, t->from)->valid, t->start, t->end);
    USM_LIST_FOREACH (it, &p->copies) {
        usm__copying *later = usm_container_of(it, usm__copying, link);

        if (later != t && later->from == t->to && later->start < t->end && t->start < later->end)
            later->is_superseded = true;
    }
}

/* The copy counts on them no more.  Lock held. */
static void drop_locations(usm__locations *p, usm__extent *from, usm__extent *to)
{
    holding_of(p, from)->pending--;
    holding_of(p, to)->pending--;
    if (from)
        usm__extent_drop_copy(from);
    if (to)
        usm__extent_drop_copy(to);
}

/* Records that the copy ended with that status, unless another thread has.  Lock held. */
static void end(usm__copying *t, usm_status status)
{
    const usm__interval piece = {t->start, t->end};

    if (usm_list_is_empty(&t->link))
        return;
    if (t->is_pinned)
        usm__locations_unpin(t->locations, &piece, USM_READ);
    if (status < 0) {
        t->to->failure = status;
        enter_failure(t);
    }
    usm_list_remove(&t->link);
    usm__extents_changed();
    drop_locations(t->locations, t->from, t->to);
}

/* Lock held. */
static void unref(usm__copying *t)
{
    if (--t->refs == 0)
        usm__copying_retire(t);
}

void usm__copying_free(usm__copying *t)
{
    usm_event_release(t->ev);
    usm__heap_free(t);
}

static void ended(usm__completion *c)
{
    usm__copying *t = usm_container_of(c, usm__copying, c);

    usm__extents_lock();
    end(t, c->status);
    unref(t);
    usm__extents_unlock();
}

usm__copying *usm__copying_hold(usm__copying *t)
{
    if (t)
        t->refs++;
    return t;
}

void usm__copying_await(usm__copying *t)
{
    usm_status st = usm_event_wait(t->ev);

    usm__extents_lock();
    end(t, st);
    unref(t);
    usm__extents_unlock();
}

usm__copying *usm__extent_copying(const usm__extent *e)
{
    USM_LIST_FOREACH (it, &e->locations->copies) {
        usm__copying *t = usm_container_of(it, usm__copying, link);

        if (t->from == e || t->to == e)
            return t;
    }
    return NULL;
}

/* A copy over an extent of m that was not looked at in this pass. */
static usm__copying *next_unseen(const usm__memory *m, uint64_t pass)
{
    USM_LIST_FOREACH (it, &m->extents) {
        const usm__extent *e = usm_container_of(it, usm__extent, lru);

        if (e->copies == 0)
            continue;
        USM_LIST_FOREACH (jt, &e->locations->copies) {
            usm__copying *t = usm_container_of(jt, usm__copying, link);

            if (t->seen != pass)
                return t;
        }
    }
    return NULL;
}

void usm__locations_reap(usm__memory *m)
{
    usm__copying *t;
    uint64_t      pass;
    usm__message  message;

    usm__message_save(&message);
    usm__extents_lock();
    pass = ++usm__extents.reaps;
    while ((t = next_unseen(m, pass))) {
        usm_status st;

        t->seen = pass;
        usm__copying_hold(t);
        usm__extents_unlock();
        st = usm_event_query(t->ev);
        usm__extents_lock();
        if (st != USM_E_NOT_READY)
            end(t, st);
        unref(t);
    }
    usm__extents_unlock();
    usm__message_restore(&message);
}

/* ---- sources -------------------------------------------------------------------------- */

/* The extent with the first byte of `piece` that `lacking` does not have (of several, the one with
 * most bytes from there on); cuts `piece` to what that extent has. */
usm__extent *usm__locations_source(const usm__locations *p, const usm__valid *lacking,
                                   const usm__extent *but, usm__interval *piece)
{
    usm__interval gap = *piece, best = {SIZE_MAX, SIZE_MAX};
    usm__extent  *from = NULL;

    while (!from && usm__valid_next_gap(lacking, gap.start, piece->end, &gap)) {
        USM_LIST_FOREACH (it, &p->extents) {
            usm__extent  *e = usm_container_of(it, usm__extent, link);
            usm__interval there;

            if (e == but || e->is_leaving ||
                !usm__valid_next(&e->holding.valid, gap.start, gap.end, &there))
                continue;
            if (there.start < best.start || (there.start == best.start && there.end > best.end)) {
                best = there;
                from = e;
            }
        }
        gap.start = gap.end;
    }
    if (from)
        *piece = best;
    return from;
}

/* The source of the next bytes that `e` lacks. */
typedef struct source {
    usm__interval piece;
    usm__extent  *from; /* NULL: host memory                                           */
} source;

static bool is_near(const usm__extent *e, const usm_queue *q)
{
    return e->ctx == q->ctx;
}

static bool is_same_memory(const usm__extent *e, const usm_queue *q)
{
    return is_near(e, q) && e->index == q->index;
}

/* Cheapest first: the same device, another one of the context, the host, another context. */
static int rank_of(const usm__extent *from, const usm_queue *q)
{
    if (!from)
        return 2;
    return is_same_memory(from, q) ? 0 : is_near(from, q) ? 1 : 3;
}

/* Of two that start at the same byte, the nearer is better, unless it has very few bytes. */
static bool is_better(const source *a, const source *b, const usm_queue *q)
{
    int    rank_a = rank_of(a->from, q), rank_b = rank_of(b->from, q);
    size_t size_a = a->piece.end - a->piece.start, size_b = b->piece.end - b->piece.start;

    if (rank_a == rank_b)
        return size_a > size_b;
    return rank_a < rank_b ? size_a >= size_b / CRUMB : size_b < size_a / CRUMB;
}

/* Keeps s if it is better than the best so far: at the same byte, or at an earlier one. */
static void consider(source *best, bool *found, source s, const usm_queue *q)
{
    if (*found && (s.piece.start > best->piece.start ||
                   (s.piece.start == best->piece.start && !is_better(&s, best, q))))
        return;
    *found = true;
    *best  = s;
}

/* Lock held. */
static bool next_source(const usm__locations *p, const usm_queue *q, const usm__extent *e,
                        usm__interval range, source *s)
{
    usm__interval gap, there;
    bool          found = false;

    for (; !found && usm__valid_next_gap(&e->holding.valid, range.start, range.end, &gap);
         range.start = gap.end) {
        if (usm__valid_next(&p->host.valid, gap.start, gap.end, &there))
            consider(s, &found, (source){there, NULL}, q);
        USM_LIST_FOREACH (it, &p->extents) {
            usm__extent *other = usm_container_of(it, usm__extent, link);

            if (other != e && !other->is_leaving &&
                usm__valid_next(&other->holding.valid, gap.start, gap.end, &there))
                consider(s, &found, (source){there, other}, q);
        }
    }
    return found;
}

/* ---- to a device ------------------------------------------------------------------------ */

/* A copy that is about to be queued. */
typedef struct plan {
    usm__locations            *p;
    const usm__locations_want *want;
    usm__extent               *e;
    usm__interval              range; /* of the bytes that remain                                */
    source                     s;
    bool                       waits_for_commands;
    bool                       is_behind; /* as usm__copying's                                 */
    usm__locations_events      deps;      /* copies under way over the same bytes              */
} plan;

static bool touches(const usm__copying *t, const plan *c)
{
    if (t->start >= c->s.piece.end || c->s.piece.start >= t->end)
        return false;
    return t->to == c->e || t->from == c->e || (c->s.from && t->to == c->s.from);
}

/* In use by a command in `deps`. */
static bool may_be_in_use(const plan *c)
{
    const usm__extent *from = c->s.from;

    if (c->want->ndeps == 0)
        return false;
    return !from || c->e->commands > 1 + usm__extent_own_uses(c->want, c->e) ||
           from->commands > usm__extent_own_uses(c->want, from);
}

/* Lock held: finds what the copy counts on, and what it has to wait for. */
static usm_status prepare(plan *c)
{
    usm__holding *from = holding_of(c->p, c->s.from);

    c->e->holding.pending++;
    from->pending++;
    if (!usm__holding_reserve(&c->e->holding) || !usm__holding_reserve(from))
        return usm__fail(USM_E_NO_MEMORY, "no host memory to record which bytes are valid");
    c->waits_for_commands = c->is_behind = may_be_in_use(c);
    USM_LIST_FOREACH (it, &c->p->copies) {
        usm__copying *t = usm_container_of(it, usm__copying, link);
        usm_status    st;

        if (!touches(t, c))
            continue;
        c->is_behind |= t->is_behind;
        st = usm_event_retain(t->ev);
        if (st == USM_OK)
            st = usm__locations_events_add(&c->deps, t->ev);
        if (st != USM_OK)
            return st;
    }
    return USM_OK;
}

static usm_status add_deps(plan *c)
{
    usm_status st = USM_OK;

    for (size_t i = 0; st == USM_OK && c->waits_for_commands && i < c->want->ndeps; i++) {
        st = usm_event_retain(c->want->deps[i]);
        if (st == USM_OK)
            st = usm__locations_events_add(&c->deps, c->want->deps[i]);
    }
    return st;
}

static usm_status queue_copy(plan *c, usm_event **ev)
{
    const usm_queue *q = c->want->q;
    usm_queue       *on =
        c->is_behind ? c->want->q : usm__queue_own(q->ctx, q->index, USM__QUEUE_BLOCKING);
    size_t      start = c->s.piece.start;
    const void *src =
        c->s.from ? c->s.from->at + (start - c->s.from->start) : usm__locations_host(c->p, start);

    if (!on)
        return usm_last_status();
    return usm_memcpy(on, c->e->at + (start - c->e->start), src, c->s.piece.end - start, c->deps.n,
                      c->deps.list, ev);
}

static usm_status start(plan *c, usm__copying *t)
{
    usm_access_mode mode = c->want->may_wait ? USM_READ : (usm_access_mode)(USM_READ | USM_NO_WAIT);
    usm_status      st   = add_deps(c);

    if (st == USM_OK && !c->s.from)
        st = usm__locations_pin(c->p, &c->s.piece, mode, false);
    if (st != USM_OK)
        return st;
    t->is_pinned = !c->s.from && !c->p->space->is_foreign;
    st           = queue_copy(c, &t->ev);
    if (st != USM_OK && t->is_pinned)
        usm__locations_unpin(c->p, &c->s.piece, USM_READ);
    return st;
}

/* Records a copy that was queued.  Lock held. */
static void enter(plan *c, usm__copying *t)
{
    t->locations = c->p;
    t->from      = c->s.from;
    t->to        = c->e;
    t->start     = c->s.piece.start;
    t->end       = c->s.piece.end;
    t->is_behind = c->is_behind;
    t->refs      = 1;
    usm_list_append(&c->p->copies, &t->link);
    usm__valid_add(&c->e->holding.valid, t->start, t->end);
}

/* If its completion cannot be armed, waits for it here. */
static void follow(usm__copying *t)
{
    if (usm__completion_arm(&t->c, t->ev->ctx->be, t->ev->native, ended) != USM_OK)
        usm__copying_await(t);
}

/* Host memory is full: of this buffer's own copies, one with pins, which ends by itself.  Counted;
 * NULL: there is none.  Lock held. */
static usm__copying *own_pinned(const usm__locations *p)
{
    USM_LIST_FOREACH (it, &p->copies) {
        usm__copying *t = usm_container_of(it, usm__copying, link);

        if (t->is_pinned)
            return usm__copying_hold(t);
    }
    return NULL;
}

/* Records the copy, or that it could not be queued.  The answer, counted, is to be awaited before
 * the copy is chosen again; NULL. */
static usm__copying *record(plan *c, usm__copying *t, usm_status st)
{
    usm__copying *first = NULL;

    usm__extents_lock();
    if (st == USM_OK) {
        enter(c, t);
    } else {
        drop_locations(c->p, c->s.from, c->e);
        if (c->want->may_wait && !c->s.from && (st == USM_E_AGAIN || st == USM_E_BUDGET))
            first = own_pinned(c->p);
    }
    usm__extents_unlock();
    return first;
}

/* Queues the copy that choose_piece() has chosen, or fails as that did.  USM_OK also if it is to be
 * chosen again. */
static usm_status copy_piece(plan *c, usm_status st)
{
    usm__copying *t = usm__heap_alloc(sizeof *t), *first;

    if (!t)
        st = usm__fail(USM_E_NO_MEMORY, "no host memory to track a copy");
    if (st == USM_OK)
        st = start(c, t);
    usm__locations_events_fini(&c->deps);
    first = record(c, t, st);
    if (st == USM_OK) {
        c->range.start = c->s.piece.end;
        follow(t);
        return USM_OK;
    }
    usm__heap_free(t);
    if (!first)
        return st;
    usm__copying_await(first);
    return USM_OK;
}

/* False: no copy is needed, or there is none to be had now. */
static bool choose_piece(plan *c, usm_status *st)
{
    const usm__locations_want *want = c->want;
    bool                       found;

    usm__extents_lock();
    *st   = usm__locations_settle(c->p, want->offset, want->offset + want->size, want->may_wait);
    found = *st == USM_OK && next_source(c->p, want->q, c->e, c->range, &c->s);
    if (found) {
        c->e->copies++;
        if (c->s.from)
            c->s.from->copies++;
        *st = prepare(c);
    }
    usm__extents_unlock();
    return found;
}

usm_status usm__locations_bring(usm__locations *p, const usm__locations_want *want, usm__extent *e)
{
    plan c = {.p = p, .want = want, .e = e, .range = {want->offset, want->offset + want->size}};
    usm_status st = USM_OK;

    while (st == USM_OK && choose_piece(&c, &st))
        st = copy_piece(&c, st);
    return st;
}

bool usm__locations_lacks(const usm__locations *p, const usm__locations_want *want,
                          const usm__extent *e)
{
    const usm__interval range = {want->offset, want->offset + want->size};
    source              s;

    return next_source(p, want->q, e, range, &s);
}

/* ---- to the host -------------------------------------------------------------------------- */

usm_status usm__locations_fetch(const usm__extent *from, const usm__interval *piece)
{
    usm_queue *q  = usm__queue_own(from->ctx, from->index, USM__QUEUE_BLOCKING);
    usm_event *ev = NULL;
    usm_status st;

    if (!q)
        return usm_last_status();
    st = usm_memcpy(q, usm__locations_host(from->locations, piece->start),
                    from->at + (piece->start - from->start), piece->end - piece->start, 0, NULL,
                    &ev);
    if (st != USM_OK)
        return st;
    st = usm_event_wait(ev);
    usm_event_release(ev);
    return st;
}
