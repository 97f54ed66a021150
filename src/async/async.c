/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The public functions of usm/async.h, and the core's hook points.
 *
 * The hit path of both allocation and free is the list of the queue's default pool: a lock that is
 * one exchange, a bin, no driver.  An allocation that finds nothing there tries, in this order: the
 * pool's free memory, without asking the driver; blocks that other queues have freed and this one
 * may have; all blocks whose queues have reached their free, returned to the pool; blocks that are
 * worth a wait.  Then it asks the driver, and if that refuses, the host waits for queues before the
 * allocation fails. */
#include "async/internal.h"
#include "base/inline/bits.h"
#include "base/log.h"
#include "base/part.h"
#include "base/settings.h"
#include "command/command.h"
#include "device/init.h"
#include "device/observer.h"
#include "heap/export.h"
#include "heap/magazine.h"

#include <errno.h>

/* ---- the hit path ------------------------------------------------------------------------ */

/* The list of the queue's default pool; NULL: take the slow path. */
static inline usm__async_list *list_at_hand(usm_queue *q, unsigned kind)
{
    usm__async_queue *aq;

    if (!usm__handle_is(q, USM__MAGIC_QUEUE))
        return NULL;
    aq = usm_load_acquire(&q->async);
    if (!aq || aq->fork_generation != usm_load_relaxed(&usm__async_now.generation) ||
        usm__observed() || usm__observer_order_on())
        return NULL;
    return usm_load_acquire(&aq->by_kind[kind & 3]);
}

static inline void *pop_hit(usm__async_list *l, unsigned k)
{
    void *p = NULL;

    usm__async_lock(l);
    if (l->bin[k]) {
        p = usm__async_pop(l, k);
        usm_store_relaxed(&l->reuses, usm_load_relaxed(&l->reuses) + 1);
    }
    usm__async_unlock(l);
    return p;
}

/* Whether the block of `span` that starts at p was live and is now in the list. */
static inline bool push_hit(usm__async_list *l, const usm_span *span, void *p)
{
    usm__async_block b  = {.p = p, .size = span->size, .was = USM_BLOCK_LIVE};
    bool             ok = false;

    b.state = usm__magazine_state(span, p);
    if (!b.state)
        return false;
    b.position = usm__queue_position(l->queue->q);
    usm__async_lock(l);
    if (l->spare && usm_load_relaxed(b.state) == USM_BLOCK_LIVE) {
        usm_store_relaxed(b.state, (uint8_t)USM_BLOCK_FREE);
        usm__async_push(l, &b);
        ok = true;
    }
    usm__async_unlock(l);
    if (ok && !usm_load_relaxed(&l->is_watched))
        usm__async_watch(l);
    return ok;
}

/* ---- allocation --------------------------------------------------------------------------- */

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* The block's own size selects its bin; a pool's least alignment may have made it larger. */
static size_t request_size(const usm_pool *pool, size_t size)
{
    size = size ? size : 1;
    return pool->min_align > USM__POOL_ALIGN ? usm_align_up_ptr(size, pool->min_align) : size;
}

/* A block that can be had without the driver; NULL: none.  Leaves no error message. */
static void *find(usm__async_list *l, size_t size)
{
    usm_pool    *pool = l->pool->pool;
    size_t       want = request_size(pool, size);
    usm__message message;
    void        *p;

    if (want < size || want > PTRDIFF_MAX)
        return NULL;
    usm__message_save(&message);
    p = usm__async_reuse_from(l, want, USM__ASYNC_CLOSE, UINT64_MAX);
    if (!p)
        p = usm__pool_alloc_held(pool, size);
    if (!p)
        p = usm__async_reuse(l, want);
    if (!p && usm__async_collect(l->pool, USM__ASYNC_LOOK_ONLY) > 0)
        p = usm__pool_alloc_held(pool, size);
    if (!p)
        p = usm__async_wait_for(l, want);
    if (!p) /* blocks in lists are not cut: rather a large one than more memory */
        p = usm__async_reuse_from(l, want, USM__ASYNC_LOOSE, UINT64_MAX);
    usm__message_restore(&message);
    return p;
}

/* The block is zeroed when the queue gets there.  If that cannot be queued the block is freed in
 * queue order, because commands of its former user may still be queued. */
static void *zeroed(usm_queue *q, void *p, size_t size)
{
    if (!p || usm_memset(q, p, 0, size, 0, NULL, NULL) == USM_OK)
        return p;
    (void)usm_async_free(q, p);
    return no_memory();
}

/* p is about to be returned; ev: the event that its users must depend on, or NULL. */
static void *served(usm_queue *q, void *p, size_t size, const usm_event *ev)
{
    if (p && usm__observer_order_on())
        usm__observer_get()->async_alloc(q, p, size, ev ? ev->native : NULL);
    return p;
}

/* From lists and free memory, unless the block needs a record; NULL: nothing. */
static void *find_notified(usm_queue *q, usm_pool *pool, size_t size)
{
    usm__async_list *l = usm__observed_with_record() ? NULL : usm__async_list_of(q, pool);
    void            *p = l ? find(l, size) : NULL;

    if (p && usm__observed())
        usm__observer_get()->served(pool, p, size);
    return p;
}

static void *alloc_in_order(usm_queue *q, usm_pool *pool, size_t size)
{
    void *p = find_notified(q, pool, size);

    if (!p)
        p = usm__pool_alloc(pool, 0, size, USM__ZERO_NOT);
    return pool->zero_init ? zeroed(q, served(q, p, size, NULL), size) : p;
}

/* pre: q and pool are valid. */
static void *alloc_of(usm_queue *q, usm_pool *pool, size_t size)
{
    return usm__queue_in_order(q) ? alloc_in_order(q, pool, size)
                                  : usm__pool_alloc(pool, 0, size, USM__ZERO_AS_POOL);
}

static usm_pool *default_pool(usm_queue *q, usm_kind kind)
{
    return usm__queue_check(q) == USM_OK ? usm__pool_of(q->ctx, q->index, kind) : NULL;
}

static __attribute__((noinline)) void *malloc_missed(usm_queue *q, usm_kind kind, size_t size)
{
    usm_pool *pool = default_pool(q, kind);

    return pool ? served(q, alloc_of(q, pool, size), size, NULL) : no_memory();
}

void *usm_async_malloc(usm_queue *q, usm_kind kind, size_t size)
{
    usm__async_list *l = list_at_hand(q, (unsigned)kind);
    unsigned         k = usm_class_of(size);
    void            *p = NULL;

    if (l && l->is_plain && k < USM_BINS && (unsigned)kind <= USM_SHARED) {
        p = pop_hit(l, k);
        if (!p)
            p = usm__magazine_pop(usm_load_relaxed(&l->pool->pool->alloc_slot), size);
    }
    return p ? p : malloc_missed(q, kind, size);
}

static usm_status check_pool(usm_queue *q, usm_pool *pool)
{
    usm_status st = usm__queue_check(q);

    if (st == USM_OK)
        st = usm__pool_check(pool);
    if (st == USM_OK)
        st = usm__pool_check_awake(pool); /* the lists of queues may have its blocks */
    if (st != USM_OK)
        return st;
    if (pool->ctx != q->ctx)
        return usm__fail(USM_E_WRONG_CONTEXT, "the pool belongs to another context than the queue");
    if (pool->kind != USM_HOST && pool->index != q->index)
        return usm__fail(USM_E_INVALID, "the pool's memory is of %s, the queue of %s",
                         q->ctx->devices[pool->index].dev->term, q->dev->term);
    return USM_OK;
}

void *usm_async_malloc_from_pool(usm_queue *q, size_t size, usm_pool *pool)
{
    if (check_pool(q, pool) != USM_OK)
        return no_memory();
    return served(q, alloc_of(q, pool, size), size, NULL);
}

/* An event behind the dependencies, in the queue. */
static usm_status after(usm_queue *q, size_t ndeps, usm_event *const *deps, usm_event **ev)
{
    return usm__queue_in_order(q) ? usm_queue_barrier(q, ndeps, deps, ev)
                                  : usm__submit_nothing(q, ndeps, deps, ev);
}

/* The event is placed behind everything that makes the block usable: inserted waits, the
 * zeroing. */
static void *malloc_after(usm_queue *q, usm_pool *pool, size_t size, size_t ndeps,
                          usm_event *const *deps, usm_event **ev)
{
    usm_event *made = NULL;
    void      *p    = alloc_of(q, pool, size);

    if (p && (ndeps > 0 || ev) && after(q, ndeps, deps, &made) != USM_OK) {
        (void)usm_async_free(q, p); /* in queue order, as above */
        p = no_memory();
    }
    p = served(q, p, size, made);
    if (p && ev)
        *ev = made;
    else
        usm_event_release(made);
    return p;
}

void *usm_async_malloc_after(usm_queue *q, usm_kind kind, size_t size, size_t ndeps,
                             usm_event *const *deps, usm_event **ev)
{
    usm_pool *pool = default_pool(q, kind);

    return pool ? malloc_after(q, pool, size, ndeps, deps, ev) : no_memory();
}

void *usm_async_malloc_from_pool_after(usm_queue *q, size_t size, usm_pool *pool, size_t ndeps,
                                       usm_event *const *deps, usm_event **ev)
{
    return check_pool(q, pool) == USM_OK ? malloc_after(q, pool, size, ndeps, deps, ev)
                                         : no_memory();
}

/* ---- free ------------------------------------------------------------------------------------ */

static usm_status refuse(const void *p)
{
    if (usm__freed_recently(p))
        return usm__fail(USM_E_DOUBLE_FREE, "the block at %p was freed before", p);
    return usm__fail(USM_E_INVALID_POINTER, "%p is not libusm memory", p);
}

/* *block: the live block that starts at p. */
static usm_status check_block(usm_queue *q, usm__area *area, void *p, usm_block *block)
{
    usm_status st;

    if (area->pool->is_imported)
        return usm__fail(USM_E_IMPORTED, "%p was opened from another process: usm_ipc_close() it",
                         p);
    if (area->ctx != q->ctx)
        return usm__fail(USM_E_WRONG_CONTEXT, "%p belongs to another context than the queue", p);
    st = usm__pool_block(area, p, block);
    if (st == USM_E_INVALID_POINTER)
        return usm__fail(USM_E_DOUBLE_FREE, "the block at %p was freed before", p);
    if (st == USM_OK && block->base != p)
        return usm__fail(USM_E_INTERIOR_POINTER, "%p lies inside the block at %p", p, block->base);
    return st;
}

/* Puts the block into the list.  USM_E_NOT_READY: there is no memory for a node. */
static usm_status free_to_list(usm__async_list *l, usm__async_block *b)
{
    usm_queue *q    = l->queue->q;
    bool       done = false;

    b->position = usm__queue_position(q);
    if (usm__observer_order_on())
        usm__observer_get()->async_free(q, b->p, b->position, NULL);
    while (!done) {
        usm__async_lock(l);
        if (l->spare) {
            usm__async_push(l, b);
            done = true;
        }
        usm__async_unlock(l);
        if (!done && usm__async_spare(l) != USM_OK)
            return USM_E_NOT_READY;
    }
    if (!usm_load_relaxed(&l->is_watched))
        usm__async_watch(l);
    return USM_OK;
}

/* Ends the life of the live block at p for all checks; *b tells how to return it.  Blocks of pools
 * without spans have no state: they live on until they are returned.  False: another thread was
 * faster. */
static bool end_life(usm__area *area, void *p, usm__async_block *b)
{
    usm_block       whole;
    const usm_span *span;

    if (usm__pool_block_plain(area, p, &whole) != USM_OK)
        return false;
    span       = usm__page_find(whole.base);
    b->p       = p;
    b->size    = whole.size;
    b->is_seen = false;
    b->state   = span && span->source == area->pool ? usm__magazine_state(span, whole.base) : NULL;
    if (!b->state)
        return true;
    b->was = usm_load_relaxed(b->state);
    while (b->was != USM_BLOCK_FREE)
        if (usm_cas_acq_rel(b->state, &b->was, (uint8_t)USM_BLOCK_FREE)) {
            b->is_seen |= b->was != USM_BLOCK_LIVE;
            return true;
        }
    return false;
}

/* The dependencies of a free in an out-of-order queue, and where its event goes. */
typedef struct free_deps {
    size_t            n;
    usm_event *const *list;
    usm_event       **out; /* NULL: nobody wants the event */
} free_deps;

static const free_deps no_deps;

/* The event behind which a free of q takes effect, for a queue without a list. */
static usm_status event_of(usm_queue *q, size_t ndeps, usm_event *const *deps, usm_event **ev)
{
    if (ndeps == 0 && !usm__queue_in_order(q))
        return usm_queue_barrier(q, 0, NULL, ev);
    return usm__submit_nothing(q, ndeps, deps, ev);
}

/* Frees without a list. */
static usm_status free_behind(usm_queue *q, usm__async_pool *ap, const usm__async_block *b,
                              usm_event *ev)
{
    if (usm__observer_order_on())
        usm__observer_get()->async_free(q, b->p, 0, ev->native);
    usm__async_free_later(ap, b, ev);
    return USM_OK;
}

/* The block's life has ended; it is restored if the free cannot be queued. */
static usm_status free_ended(usm_queue *q, usm__async_list *l, usm__async_block *b)
{
    usm_event *ev;
    /* A block that other processes may have open must be taken back by its pool before it is used
     * again. */
    bool       to_list = b->state && l->pool->pool->export_mode == USM_POOL_PRIVATE;
    usm_status st      = to_list ? free_to_list(l, b) : USM_E_NOT_READY;

    if (st != USM_E_NOT_READY)
        return st;
    st = event_of(q, 0, NULL, &ev);
    if (st == USM_OK)
        return free_behind(q, l->pool, b, ev);
    if (b->state)
        usm_store_relaxed(b->state, b->was);
    return st;
}

static usm_status free_out_of_order(usm_queue *q, usm__async_list *l, usm__async_block *b,
                                    const free_deps *deps)
{
    usm_event *ev;
    usm_status st = event_of(q, deps->n, deps->list, &ev);

    if (st != USM_OK) {
        if (b->state)
            usm_store_relaxed(b->state, b->was);
        return st;
    }
    if (deps->out) {
        (void)usm_event_retain(ev);
        *deps->out = ev;
    }
    return free_behind(q, l->pool, b, ev);
}

static usm_status free_one(usm_queue *q, void *p, const free_deps *deps)
{
    usm__area       *area = usm__map_find(p);
    usm__async_block b    = {.p = p};
    usm__async_list *l;
    usm_block        block;
    bool             is_notified;
    usm_status       st;

    if (!area)
        return refuse(p);
    st = check_block(q, area, p, &block);
    if (st != USM_OK)
        return st;
    l = usm__async_list_of(q, area->pool);
    if (!l)
        return usm_last_status();
    if (!end_life(area, p, &b))
        return usm__fail(USM_E_DOUBLE_FREE, "the block at %p was freed before", p);
    if (area->pool->export_mode != USM_POOL_PRIVATE) {
        b.is_seen = true; /* by processes that have it open */
        usm__parts_exports()->end_handles(area, p);
    }
    is_notified = b.state && !b.is_seen && usm__observed();
    if (is_notified) /* a block with a record reports its return to the pool  */
        usm__observer_get()->freed(area->pool, p);
    st = usm__queue_in_order(q) ? free_ended(q, l, &b) : free_out_of_order(q, l, &b, deps);
    if (st != USM_OK && is_notified)
        usm__observer_get()->served(area->pool, p, block.size);
    return st;
}

static __attribute__((noinline)) usm_status free_missed(usm_queue *q, void *p)
{
    usm_status st = usm__queue_check(q);

    return st == USM_OK && p ? free_one(q, p, &no_deps) : st;
}

usm_status usm_async_free(usm_queue *q, void *p)
{
    const usm_span  *span = usm__page_find_low(p);
    usm__async_list *l    = span ? list_at_hand(q, span->kind) : NULL;

    if (l && span->source == l->pool->pool && push_hit(l, span, p))
        return USM_OK;
    return free_missed(q, p);
}

static usm_status free_after_in_order(usm_queue *q, void *p, size_t ndeps, usm_event *const *deps,
                                      usm_event **ev)
{
    usm_event *made = NULL;
    usm_status st   = usm_queue_barrier(q, ndeps, deps, ev ? &made : NULL);

    if (st == USM_OK)
        st = free_one(q, p, &no_deps);
    if (st == USM_OK && ev)
        *ev = made;
    else
        usm_event_release(made);
    return st;
}

usm_status usm_async_free_after(usm_queue *q, void *p, size_t ndeps, usm_event *const *deps,
                                usm_event **ev)
{
    usm_status st = usm__queue_check(q);

    if (st != USM_OK)
        return st;
    if (!p)
        return ev ? after(q, ndeps, deps, ev) : USM_OK;
    if (!usm__queue_in_order(q))
        return free_one(q, p, &(free_deps){ndeps, deps, ev});
    if (ndeps == 0 && !ev)
        return free_one(q, p, &no_deps);
    return free_after_in_order(q, p, ndeps, deps, ev);
}

/* ---- hook points ----------------------------------------------------------------------------- */

static void waited(usm_queue *q, uint64_t position)
{
    usm__async_queue *aq = usm__async_queue_there(q);
    usm__async_some   some;

    if (aq) {
        usm__async_reach(aq, position);
        usm__async_of_queue(aq, &some);
        for (size_t i = 0; i < some.n; i++)
            (void)usm__async_drain(some.list[i], position, true);
        usm__async_queue_release(&some);
    }
    usm__pools_release_excess(q->ctx);
}

static void retired(usm_queue *q)
{
    usm__async_queue *aq = usm__async_queue_there(q);
    usm__async_some   some;

    if (!aq)
        return;
    for (usm__async_of_queue(aq, &some); some.n > 0; usm__async_of_queue(aq, &some)) {
        for (size_t i = 0; i < some.n; i++)
            (void)usm__async_drain(some.list[i], UINT64_MAX, false);
        usm__async_queue_release(&some);
    }
    usm__async_queue_end(aq);
}

static size_t collect(usm_pool *pool, bool wait)
{
    usm__async_pool *ap = usm__async_pool_there(pool);

    return ap ? usm__async_collect(ap, wait ? USM__ASYNC_WAIT : USM__ASYNC_LOOK_ONLY) : 0;
}

/* Waits for frees that are still queued: their commands may use the pool's memory. */
static void ending(usm_pool *pool)
{
    usm__async_pool *ap = usm__async_pool_there(pool);
    usm__async_some  some;

    if (!ap)
        return;
    do {
        (void)usm__async_collect(ap, USM__ASYNC_FOR_EVER);
        usm__async_of_pool(ap, &some);
        usm__async_pool_release(&some);
    } while (some.n > 0);
    usm__mutex_lock(&ap->lock);
    while (ap->later > 0)
        (void)usm__mutex_wait(&ap->lock, &ap->changed, NULL);
    usm__mutex_unlock(&ap->lock);
    usm__async_pool_end(ap);
}

static void figures(usm_pool *pool, usm__pool_queued *f)
{
    usm__async_pool *ap = usm__async_pool_there(pool);

    *f = (usm__pool_queued){0};
    if (!ap)
        return;
    usm__mutex_lock(&ap->lock);
    f->bytes  = ap->later_bytes;
    f->reuses = usm_load_relaxed(&ap->reuses);
    USM_LIST_FOREACH (it, &ap->lists) {
        usm__async_list *l = usm_container_of(it, usm__async_list, of_pool);

        f->bytes += usm_load_relaxed(&l->bytes);
        f->reuses += usm_load_relaxed(&l->reuses);
    }
    usm__mutex_unlock(&ap->lock);
    f->events     = usm_load_relaxed(&ap->events);
    f->waits      = usm_load_relaxed(&ap->waits);
    f->host_waits = usm_load_relaxed(&ap->host_waits);
}

static void fork_lists(usm_fork_phase phase)
{
    if (phase == USM_FORK_CHILD)
        usm_store_relaxed(&usm__async_now.generation, usm__fork_generation());
    usm__async_idle_fork(phase);
}

const usm_part usm__async_part = {.name          = "async",
                                  .fork          = {{USM__RANK_ASYNC, fork_lists}},
                                  .queue_waited  = waited,
                                  .queue_retired = retired,
                                  .pool_collect  = collect,
                                  .pool_ending   = ending,
                                  .pool_figures  = figures};
