/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Draining: blocks that a queue has freed, and whose free it has reached, return to their pool,
 * where every queue and thread finds them.
 *
 * This happens where the program waits for the queue (usm_queue_wait), when an allocation would
 * take more from the driver (_collect), when a queue is not used for a while (idle.c) and when it
 * ends. */
#include "async/internal.h"
#include "base/inline/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "base/settings.h"
#include "heap/magazine.h"

#include <sched.h>

/* The block is live for a moment: for its pool it was handed out all the time. */
static void give_back(usm_pool *pool, const usm__async_block *b, bool is_users)
{
    usm__area *area = usm__map_find(b->p);
    usm_status st   = USM_E_INTERNAL;

    usm_store_relaxed(b->state, b->was);
    if (is_users && !b->is_seen && usm__magazine_push(usm__page_find(b->p), b->p))
        return;
    if (area)
        st = b->is_seen ? usm__pool_free(area, b->p)
                        : pool->ops->free(pool->impl, &area->view, b->p);
    if (st != USM_OK)
        usm__warn("%p, which was freed in a queue, could not be returned to its pool: %s", b->p,
                  usm_last_error());
}

size_t usm__async_drain(usm__async_list *l, uint64_t position, bool is_users)
{
    usm__async_block *chain;
    size_t            bytes = 0;

    usm__async_lock(l);
    (void)usm_ref_take(&l->draining);
    chain = usm__async_take(l, position);
    usm__async_unlock(l);
    for (const usm__async_block *b = chain; b; b = b->next) {
        bytes += b->size;
        give_back(l->pool->pool, b, is_users);
    }
    usm__async_lock(l);
    usm__async_put_spares(l, chain);
    (void)usm_ref_drop(&l->draining);
    usm__async_unlock(l);
    return bytes;
}

/* While another thread returns blocks they are neither in the list nor in the pool: waits for that.
 * Returns whether there were any. */
static bool await_drains(const usm__async_list *l)
{
    bool any = false;

    for (; usm_load_acquire(&l->draining) != 0; any = true)
        (void)sched_yield();
    return any;
}

/* ---- waiting ------------------------------------------------------------------------------ */

/* A wait for an event with a deadline; references: the waiting thread's and the completion's. */
typedef struct waiter {
    usm__completion   c;
    usm__async_event *ev;
    usm__mutex        lock;
    pthread_cond_t    cond;
    bool              done; /* guarded by lock */
    _Atomic(uint32_t) refs;
} waiter;

static void waiter_unref(waiter *w)
{
    if (!usm_ref_drop(&w->refs))
        return;
    usm__async_event_release(w->ev);
    pthread_cond_destroy(&w->cond);
    usm__mutex_fini(&w->lock);
    usm__heap_free(w);
}

static void waiter_run(usm__completion *c)
{
    waiter *w = usm_container_of(c, waiter, c);

    usm__mutex_lock(&w->lock);
    w->done = true;
    pthread_cond_signal(&w->cond);
    usm__mutex_unlock(&w->lock);
    waiter_unref(w);
}

/* NULL: no memory, or no thread for the completion. */
static waiter *waiter_for(usm__async_event *ev)
{
    waiter *w = usm__heap_alloc(sizeof *w);

    if (!w)
        return NULL;
    *w = (waiter){.ev = ev};
    (void)usm_ref_take(&ev->refs);
    usm__mutex_init(&w->lock, USM__RANK_ASYNC, "who waits for a queue");
    pthread_cond_init(&w->cond, NULL);
    usm_store_relaxed(&w->refs, 2u);
    if (usm__completion_arm(&w->c, ev->ctx->be, ev->native, waiter_run) == USM_OK)
        return w;
    usm_store_relaxed(&w->refs, 1u);
    waiter_unref(w);
    return NULL;
}

/* Whether the event is complete by then; a failure belongs to its commands. */
static bool await(usm__async_event *ev, const struct timespec *deadline)
{
    waiter *w    = deadline ? waiter_for(ev) : NULL;
    bool    done = true;
    int     rc   = 0;

    if (!w) {
        (void)usm__be_event_wait(ev->ctx->be, ev->native);
        return true;
    }
    usm__mutex_lock(&w->lock);
    while (!w->done && rc == 0)
        rc = usm__mutex_wait(&w->lock, &w->cond, deadline);
    done = w->done;
    usm__mutex_unlock(&w->lock);
    waiter_unref(w);
    return done;
}

/* Drains all of the list; the host waits, until the deadline if there is one: the queue may be held
 * up by something that only the waiting thread can release. */
static size_t drain_waiting(usm__async_list *l, const struct timespec *deadline)
{
    usm__async_queue *aq = l->queue;
    usm__async_event *ev;
    uint64_t          last;
    size_t            bytes = 0;

    usm__async_lock(l);
    last = usm__async_last(l);
    usm__async_unlock(l);
    ev = usm__async_event_behind(aq, l->pool, last);
    usm_add_relaxed(&l->pool->host_waits, (uint64_t)1);
    if (!ev) /* none is to be had, or the device is lost: then nothing runs either */
        (void)usm__be_queue_wait(aq->q->be, aq->q->native);
    if (!ev || await(ev, deadline)) {
        last = ev ? ev->position : last;
        usm__async_reach(aq, last);
        bytes = usm__async_drain(l, last, false);
    }
    usm__async_event_release(ev);
    return bytes;
}

/* Waits for frees without a list; returns whether some took effect in time. */
static bool await_later(usm__async_pool *ap, const struct timespec *deadline)
{
    uint64_t before;
    bool     fewer;
    int      rc = 0;

    usm__mutex_lock(&ap->lock);
    before = ap->later;
    if (before != 0)
        usm_add_relaxed(&ap->host_waits, (uint64_t)1);
    while (ap->later != 0 && ap->later >= before && rc == 0)
        rc = usm__mutex_wait(&ap->lock, &ap->changed, deadline);
    fewer = ap->later < before;
    usm__mutex_unlock(&ap->lock);
    return fewer;
}

size_t usm__async_collect(usm__async_pool *ap, usm__async_wait wait)
{
    struct timespec deadline = {0, 0};
    usm__async_some some;
    size_t          bytes = 0;

    if (wait == USM__ASYNC_WAIT)
        deadline = usm_clock_in_ms(CLOCK_REALTIME, usm__setting_size("queue_wait"));
    usm__async_of_pool(ap, &some);
    for (size_t i = 0; i < some.n; i++) {
        usm__async_list *l = some.list[i];

        bytes += usm__async_drain(l, usm__async_see(l), false);
        bytes += await_drains(l);
        if (wait != USM__ASYNC_LOOK_ONLY && usm_load_relaxed(&l->blocks) != 0)
            bytes += drain_waiting(l, wait == USM__ASYNC_WAIT ? &deadline : NULL);
    }
    usm__async_pool_release(&some);
    if (bytes == 0 && wait == USM__ASYNC_WAIT)
        bytes = await_later(ap, &deadline);
    return bytes;
}

/* ---- without a list --------------------------------------------------------------------- */

typedef struct later {
    usm__completion  c;
    usm__async_pool *ap;
    usm__async_block b;
    usm_event       *ev;
    usm_context     *ctx; /* counted as a user: its pools stay */
} later;

static void count_later(usm__async_pool *ap, bool is_more, size_t size)
{
    usm__mutex_lock(&ap->lock);
    ap->later += is_more ? 1 : (uint64_t)-1;
    ap->later_bytes += is_more ? size : (uint64_t)0 - size;
    if (!is_more)
        pthread_cond_broadcast(&ap->changed);
    usm__mutex_unlock(&ap->lock);
}

static void free_now(usm_pool *pool, const usm__async_block *b)
{
    usm__area *area = usm__map_find(b->p);

    if (b->state)
        give_back(pool, b, false);
    else if (!area || usm__pool_free(area, b->p) != USM_OK)
        usm__warn("%p, which was freed in a queue, could not be returned to its pool: %s", b->p,
                  usm_last_error());
}

static void later_run(usm__completion *c)
{
    later *l = usm_container_of(c, later, c);

    free_now(l->ap->pool, &l->b);
    count_later(l->ap, false, l->b.size);
    usm_event_release(l->ev);
    usm__context_unuse(l->ctx);
    usm__heap_free(l);
}

void usm__async_free_later(usm__async_pool *ap, const usm__async_block *b, usm_event *ev)
{
    usm_context *ctx = ap->pool->ctx;
    later       *l   = usm__heap_alloc(sizeof *l);

    if (l) {
        *l = (later){.ap = ap, .b = *b, .ev = ev, .ctx = ctx};
        usm__context_use(ctx);
        count_later(ap, true, b->size);
        if (usm__completion_arm(&l->c, ctx->be, ev->native, later_run) == USM_OK)
            return;
        count_later(ap, false, b->size);
        usm__context_unuse(ctx);
        usm__heap_free(l);
    }
    usm_add_relaxed(&ap->host_waits, (uint64_t)1); /* no memory, or no thread          */
    (void)usm__be_event_wait(ctx->be, ev->native);
    free_now(ap->pool, b);
    usm_event_release(ev);
}
