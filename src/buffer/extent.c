/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Extents: runs of device memory, their lists and counts, and how a new one gets its memory when
 * the device is full.  extent_evict.c evicts them, locations_copy.c copies.  Called by these and
 * locations.c. */
#include "buffer/extent.h"

#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/os.h"
#include "base/text.h"
#include "heap/pool.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

usm__extents_state usm__extents = {.lock    = USM__MUTEX_INIT(USM__RANK_LOCATIONS, "locations"),
                                   .changed = PTHREAD_COND_INITIALIZER,
                                   .extents = {&usm__extents.extents, &usm__extents.extents},
                                   .copies  = {&usm__extents.copies, &usm__extents.copies}};

/* ---- the lock ------------------------------------------------------------------- */

void usm__extents_lock(void)
{
    usm__mutex_lock(&usm__extents.lock);
}

/* Freeing calls pools and drivers. */
void usm__extents_unlock(void)
{
    usm_list extents, copies, *it;

    usm_list_move(&usm__extents.extents, &extents);
    usm_list_move(&usm__extents.copies, &copies);
    usm__mutex_unlock(&usm__extents.lock);
    while ((it = usm_list_pop(&extents)))
        usm__extent_free(usm_container_of(it, usm__extent, link));
    while ((it = usm_list_pop(&copies)))
        usm__copying_free(usm_container_of(it, usm__copying, link));
}

void usm__extents_wait(void)
{
    (void)usm__mutex_wait(&usm__extents.lock, &usm__extents.changed, NULL);
}

void usm__extents_changed(void)
{
    (void)pthread_cond_broadcast(&usm__extents.changed);
}

void usm__locations_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&usm__extents.lock, phase);
    if (phase != USM_FORK_CHILD)
        return;
    (void)pthread_cond_init(&usm__extents.changed, NULL);
    usm_list_init(&usm__extents.extents);
    usm_list_init(&usm__extents.copies);
}

/* ---- devices -------------------------------------------------------------------- */

usm__memory *usm__memory_find(const usm_device *dev)
{
    usm__memory *m = usm__extents.memories;

    while (m && m->dev != dev)
        m = m->next;
    return m;
}

size_t usm__locations_devices(usm_device **list, size_t cap)
{
    size_t n = 0;

    usm__extents_lock();
    for (usm__memory *m = usm__extents.memories; m && n < cap; m = m->next)
        list[n++] = m->dev;
    usm__extents_unlock();
    return n;
}

usm__memory *usm__memory_of(usm_device *dev)
{
    usm__memory *m;

    usm__extents_lock();
    m = usm__memory_find(dev);
    if (!m && (m = usm__heap_alloc(sizeof *m))) {
        m->dev = dev;
        usm_list_init(&m->extents);
        m->next               = usm__extents.memories;
        usm__extents.memories = m;
    }
    usm__extents_unlock();
    if (!m)
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for the memory accounting of %s",
                        dev->term);
    return m;
}

uint64_t usm__locations_device_bytes(void)
{
    return usm_load_relaxed(&usm__extents.bytes);
}

/* ---- lists and counts ------------------------------------------------------------- */

bool usm__holding_reserve(usm__holding *h)
{
    return usm__valid_reserve(&h->valid, h->pending + 1);
}

static bool is_on(const usm__extent *e, const usm_queue *q)
{
    return e->ctx == q->ctx && e->index == q->index;
}

static bool covers(const usm__extent *e, size_t start, size_t end)
{
    return e->start <= start && end <= e->end;
}

static size_t valid_in(const usm__extent *e, size_t start, size_t end)
{
    usm__interval piece;
    size_t        sum = 0;

    while (usm__valid_next(&e->holding.valid, start, end, &piece)) {
        sum += piece.end - piece.start;
        start = piece.end;
    }
    return sum;
}

usm__extent *usm__extent_find(usm__locations *p, const usm_queue *q, size_t start, size_t end)
{
    usm__extent *best = NULL;
    size_t       most = 0;

    USM_LIST_FOREACH (it, &p->extents) {
        usm__extent *e = usm_container_of(it, usm__extent, link);
        size_t       n;

        if (!is_on(e, q) || !covers(e, start, end) || e->is_leaving)
            continue;
        n = valid_in(e, start, end);
        if (!best || n > most) {
            best = e;
            most = n;
        }
    }
    return best;
}

bool usm__locations_are_leaving(const usm__locations *p, size_t start, size_t end)
{
    USM_LIST_FOREACH (it, &p->extents) {
        const usm__extent *e = usm_container_of(it, usm__extent, link);

        if (e->is_leaving && usm__extent_overlaps(e, start, end))
            return true;
    }
    return false;
}

usm_status usm__locations_settle(const usm__locations *p, size_t start, size_t end, bool may_wait)
{
    while (usm__locations_are_leaving(p, start, end)) {
        if (!may_wait)
            return usm__fail(USM_E_AGAIN,
                             "a part of \"%s\" is being evicted from a device's memory",
                             p->space->name);
        usm__extents_wait();
    }
    return USM_OK;
}

void usm__extent_touch(usm__extent *e)
{
    usm_list_remove(&e->lru);
    usm_list_append(&e->memory->extents, &e->lru);
}

void usm__extent_unlink(usm__extent *e)
{
    usm_list_remove(&e->link);
    usm_list_remove(&e->lru);
    e->memory->turn++;
    usm__extents_changed();
}

void usm__extent_retire(usm__extent *e)
{
    usm__extent_unlink(e);
    usm_list_append(&usm__extents.extents, &e->link);
}

void usm__copying_retire(usm__copying *t)
{
    usm_list_append(&usm__extents.copies, &t->link);
}

static bool has_all_of(const usm__extent *more, const usm__extent *e)
{
    usm__interval piece;
    size_t        at = e->start;

    while (usm__valid_next(&e->holding.valid, at, e->end, &piece)) {
        if (!usm__valid_has_all(&more->holding.valid, piece.start, piece.end))
            return false;
        at = piece.end;
    }
    return true;
}

bool usm__extent_is_covered(const usm__extent *e)
{
    USM_LIST_FOREACH (it, &e->locations->extents) {
        const usm__extent *other = usm_container_of(it, usm__extent, link);

        if (other != e && !other->is_leaving && !other->is_surplus && other->ctx == e->ctx &&
            other->index == e->index && covers(other, e->start, e->end) && has_all_of(other, e))
            return true;
    }
    return false;
}

static void dropped(usm__extent *e)
{
    e->memory->turn++;
    usm__extent_touch(e);
    usm__extents_changed();
    if (usm__extent_is_used(e) || e->is_leaving || !e->is_surplus)
        return;
    e->is_surplus = false; /* checked again: it may be needed by now */
    if (usm__extent_is_covered(e))
        usm__extent_retire(e);
}

void usm__extent_drop_command(usm__extent *e)
{
    e->commands--;
    dropped(e);
}

void usm__extent_drop_copy(usm__extent *e)
{
    e->copies--;
    dropped(e);
}

void usm__extent_unuse(usm__extent *e)
{
    usm__extents_lock();
    usm__extent_drop_command(e);
    usm__extents_unlock();
}

void usm__extent_free(usm__extent *e)
{
    usm__message message;

    usm__message_save(&message); /* this also runs when a failure is cleaned up */
    usm_free(e->at);
    (void)usm_sub_relaxed(&usm__extents.bytes, (uint64_t)(e->end - e->start));
    usm__valid_fini(&e->holding.valid);
    if (!usm__context_is_inert(e->ctx))
        usm__context_unuse(e->ctx);
    usm__heap_free(e);
    usm__message_restore(&message);
}

/* ---- memory for an extent -------------------------------------------------------- */

unsigned usm__extent_own_uses(const usm__locations_want *want, const usm__extent *e)
{
    unsigned n = 0;

    for (size_t i = 0; i < want->nheld; i++)
        n += want->held[i] == e;
    return n;
}

/* Whether other commands use it; copies of the command's own extents end by themselves. */
static bool is_others(const usm__locations_want *want, const usm__extent *e)
{
    unsigned own = usm__extent_own_uses(want, e);

    return own ? e->commands > own : usm__extent_is_used(e);
}

typedef struct holders {
    char   text[400];
    size_t len;
    size_t n; /* number of extents; the text names some of them                       */
} holders;

static void add_holder(holders *h, const usm__extent *e)
{
    char size[16];
    int  len;

    h->n++;
    if (h->n > 4)
        return;
    len = snprintf(h->text + h->len, sizeof h->text - h->len, "%s%s of \"%s\"",
                   h->n > 1 ? ", " : "", usm__format_bytes(e->end - e->start, size, sizeof size),
                   e->locations->space->name);
    if (len > 0)
        h->len = usm_min_size(h->len + (size_t)len, sizeof h->text - 1);
}

/* Memory that is left to frames, where a device's memory is the host's: evicted bytes pass through
 * them. */
static size_t frames_share(const usm_queue *q)
{
    return (size_t)(usm__quota_buffer_limit(q->ctx) / 8);
}

/* Whether frames of the engine hold the memory at this moment, so that a wait may help. */
static bool is_kept_by_frames(const usm__memory *m, const usm__locations *p,
                              const usm__locations_want *want)
{
    return want->may_wait && usm__quota_is_host_memory(m->dev) &&
           usm__spill_in_memory(p->space->spill) > frames_share(want->q);
}

/* Fails with what is in the way, once nothing more can be evicted.  `why`: the error message of the
 * allocation, or of the eviction that failed. */
static usm_status no_room(const usm__memory *m, const usm__locations *p,
                          const usm__locations_want *want, const usm__message *why)
{
    holders others = {.len = 0}, own = {.len = 0};
    bool    has_unused = false; /* extents that would have to be copied away                */
    char    size[16];

    usm__extents_lock();
    USM_LIST_FOREACH (it, &m->extents) {
        const usm__extent *e = usm_container_of(it, usm__extent, lru);

        if (is_others(want, e) || e->is_leaving)
            add_holder(&others, e);
        else if (usm__extent_own_uses(want, e))
            add_holder(&own, e);
        else
            has_unused = true;
    }
    usm__extents_unlock();
    (void)usm__format_bytes(want->size, size, sizeof size);
    if (others.n)
        return usm__fail(
            want->may_wait ? USM_E_BUSY : USM_E_AGAIN,
            "there is no room for %s of \"%s\" on %s at present: commands use %s%s (%.300s)", size,
            p->space->name, m->dev->term, others.text, others.n > 4 ? ", ..." : "", why->text);
    if (has_unused && !want->may_wait)
        return usm__fail(USM_E_AGAIN,
                         "there is no room for %s of \"%s\" on %s unless other data is evicted, "
                         "which takes time (%.300s)",
                         size, p->space->name, m->dev->term, why->text);
    return usm__fail(is_kept_by_frames(m, p, want) ? USM_E_AGAIN : why->status,
                     "there is no room for %s of \"%s\" on %s%s%s%s: access less at a time, or "
                     "raise the limit (%.300s)",
                     size, p->space->name, m->dev->term,
                     own.n ? ", where the same command uses " : "", own.text,
                     own.n > 4 ? ", ..." : "", why->text);
}

/* Ways to make room: extents whose bytes are also on the host are evicted first. */
typedef enum way { WAY_CLEAN, WAY_REST } way;

typedef struct search {
    usm__memory               *memory;
    usm__locations            *locations;
    const usm__locations_want *want;
    way                        way;           /* the next to try              */
    bool                       is_over_share; /* taking frames would not help */
    bool                       have_pools_given;
    usm__message               why;
} search;

/* Evicts extents until so many bytes are free, or at least one was evicted; false: none could
 * be. */
static bool evict_some(search *s, bool may_copy)
{
    usm__evict_rule rule = {.for_pool = s->want->q->ctx, .may_copy = may_copy};
    size_t          left = 0, freed = 1;

    while (left < s->want->size && freed > 0) {
        if (usm__extent_evict(s->memory, &rule, &freed) != USM_OK)
            usm__message_save(&s->why);
        left += freed;
    }
    return left > 0;
}

/* Where the device's memory is the host's, frames of the engine make room too, except those that
 * evicted bytes pass through. */
static bool take_frames(const search *s)
{
    const usm_queue *q = s->want->q;

    return !s->is_over_share && usm__quota_lacks_host(q->ctx, q->index, USM_DEVICE) &&
           usm__spill_give_back(s->locations->space->spill, s->want->size, frames_share(q)) > 0;
}

/* Waits for copies to and from extents of the same command: the frames that they pin can be evicted
 * when they have ended.  False: there are none. */
static bool await_own_copy(const usm__locations_want *want)
{
    usm__copying *t = NULL;

    usm__extents_lock();
    for (size_t i = 0; i < want->nheld && !t; i++)
        t = usm__copying_hold(usm__extent_copying(want->held[i]));
    usm__extents_unlock();
    if (!t)
        return false;
    usm__copying_await(t);
    return true;
}

/* Free memory in pools of the device is returned before any extents are evicted. */
static bool pools_gave(search *s, const usm_pool *pool)
{
    usm_device             *dev    = s->want->q->dev;
    const usm__pools_memory memory = {dev, usm__quota_is_host_memory(dev), NULL};

    if (s->have_pools_given || s->is_over_share)
        return false;
    s->have_pools_given = true;
    return usm__pools_give_back(&memory, pool, s->want->size, false) > 0;
}

/* Other threads may take frames that were freed before this one does: then they have made
 * progress. */
static bool make_room(search *s)
{
    if (s->way == WAY_CLEAN && evict_some(s, false))
        return true;
    if (!s->want->may_wait)
        return false;
    s->way = WAY_REST;
    return take_frames(s) || evict_some(s, true) || await_own_copy(s->want);
}

static bool is_full(usm_status st)
{
    return st == USM_E_NO_MEMORY || st == USM_E_BUDGET;
}

static bool share_a_limit(const usm_context *a, const usm_context *b)
{
    return a == b || (!usm__quota_is_own(a) && !usm__quota_is_own(b));
}

/* Where the device's memory is the host's, frames keep a quarter of the limit: bytes on their way
 * from and to host memory pass through them. */
uint64_t usm__extents_most(const usm_queue *q)
{
    return usm__quota_is_host_memory(q->dev) ? usm__quota_buffer_limit(q->ctx) / 4 * 3 : UINT64_MAX;
}

static usm_status check_share(const search *s)
{
    const usm_context *ctx  = s->want->q->ctx;
    uint64_t           most = usm__extents_most(s->want->q), taken = 0;

    if (most == UINT64_MAX)
        return USM_OK;
    usm__extents_lock();
    USM_LIST_FOREACH (it, &s->memory->extents) {
        const usm__extent *e = usm_container_of(it, usm__extent, lru);

        taken += share_a_limit(e->ctx, ctx) ? e->end - e->start : 0;
    }
    usm__extents_unlock();
    if (s->want->size <= most && taken <= most - s->want->size)
        return USM_OK;
    return usm__fail(USM_E_BUDGET,
                     "%s's memory is the host's, of whose limit buffers may have %llu bytes there",
                     s->memory->dev->term, (unsigned long long)most);
}

static usm_status take_memory(usm__memory *m, usm__locations *p, const usm__locations_want *want,
                              void **at)
{
    const usm_queue *q = want->q;
    usm_kind         kind =
        usm_device_has(q->dev, USM_ASPECT_USM_DEVICE_ALLOCATIONS) ? USM_DEVICE : USM_SHARED;
    usm_pool  *pool = usm__pool_of(q->ctx, q->index, kind);
    search     s    = {.memory = m, .locations = p, .want = want};
    usm_status st;

    if (!pool)
        return usm_last_status();
    do {
        st              = check_share(&s);
        s.is_over_share = st != USM_OK;
        if (st == USM_OK)
            st = usm__pool_try(pool, want->size, at);
        if (!is_full(st))
            return st;
        usm__message_save(&s.why);
    } while (pools_gave(&s, pool) || make_room(&s));
    return no_room(m, p, want, &s.why);
}

static usm__extent *new_extent(usm__locations *p, usm__memory *m, const usm__locations_want *want)
{
    usm__extent *e = usm__heap_alloc(sizeof *e);

    if (!e) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory to describe an extent");
        return NULL;
    }
    e->locations = p;
    e->memory    = m;
    e->ctx       = want->q->ctx;
    e->index     = want->q->index;
    e->start     = want->offset;
    e->end       = want->offset + want->size;
    e->commands  = 1;
    usm_list_init(&e->link);
    usm_list_init(&e->lru);
    usm__valid_init(&e->holding.valid);
    return e;
}

usm_status usm__extent_make(usm__locations *p, const usm__locations_want *want, usm__extent **out)
{
    usm__memory *m  = usm__memory_of(want->q->dev);
    usm__extent *e  = m ? new_extent(p, m, want) : NULL;
    void        *at = NULL;
    usm_status   st;

    if (!e)
        return USM_E_NO_MEMORY;
    st = take_memory(m, p, want, &at);
    if (st != USM_OK) {
        usm__heap_free(e);
        return st;
    }
    e->at = at;
    usm__context_use(e->ctx);
    (void)usm_add_relaxed(&usm__extents.bytes, (uint64_t)want->size);
    usm__extents_lock();
    usm_list_append(&p->extents, &e->link);
    usm_list_append(&m->extents, &e->lru);
    usm__extents_unlock();
    *out = e;
    return USM_OK;
}
