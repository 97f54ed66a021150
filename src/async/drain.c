/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Giving back: what a queue has freed and got to goes to its pool, where everybody finds it.
 *
 * It happens where the program waits for the queue (usm_queue_wait), when an allocation would take
 * more from the driver (_collect), when a queue was left alone (idle.c) and when it ends. */
#include "async/internal.h"
#include "base/log.h"
#include "base/os.h"
#include "core/magazine.h"

/* Alive for a moment: for its pool it was handed out all the time. */
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
        usm__warn("%p, which a queue had freed, was not taken back: %s", b->p, usm_last_error());
}

size_t usm__async_drain(usm__async_list *l, uint64_t position, bool is_users)
{
    usm__async_block *chain;
    size_t            bytes = 0;

    usm__async_lock(l);
    chain = usm__async_take(l, position);
    usm__async_unlock(l);
    if (!chain)
        return 0;
    for (const usm__async_block *b = chain; b; b = b->next) {
        bytes += b->size;
        give_back(l->pool->pool, b, is_users);
    }
    usm__async_lock(l);
    usm__async_put_spares(l, chain);
    usm__async_unlock(l);
    return bytes;
}

/* All of it; the host waits. */
static size_t drain_waiting(usm__async_list *l)
{
    usm__async_queue *aq = l->queue;
    usm__async_event *ev;
    uint64_t          last;
    size_t            bytes;

    usm__async_lock(l);
    last = usm__async_last(l);
    usm__async_unlock(l);
    ev = usm__async_event_behind(aq, l->pool, last);
    usm_add_relaxed(&l->pool->host_waits, (uint64_t)1);
    if (ev) {
        (void)usm__be_event_wait(ev->ctx->be, ev->native); /* its failure is the commands' own */
        last = ev->position;
    } else { /* no event is to be had, or the device is lost: then nothing runs either */
        (void)usm__be_queue_wait(aq->q->be, aq->q->native);
    }
    usm__async_reach(aq, last);
    bytes = usm__async_drain(l, last, false);
    usm__async_event_release(ev);
    return bytes;
}

size_t usm__async_collect(usm__async_pool *ap, bool wait)
{
    usm__async_some some;
    size_t          bytes = 0;

    usm__async_of_pool(ap, &some);
    for (size_t i = 0; i < some.n; i++) {
        usm__async_list *l = some.list[i];

        bytes += usm__async_drain(l, usm__async_see(l), false);
        if (wait && usm_load_relaxed(&l->blocks) != 0)
            bytes += drain_waiting(l);
    }
    usm__async_pool_release(&some);
    return bytes;
}

/* ---- without a list --------------------------------------------------------------------- */

typedef struct later {
    usm__completion  c;
    usm__async_pool *ap;
    usm__async_block b;
    usm_event       *ev;
    usm_context     *ctx; /* a user: its pools stay */
} later;

static void count_later(usm__async_pool *ap, bool is_more, size_t size)
{
    usm__mutex_lock(&ap->lock);
    ap->later += is_more ? 1 : (uint64_t)-1;
    ap->later_bytes += is_more ? size : (uint64_t)0 - size;
    if (ap->later == 0)
        pthread_cond_broadcast(&ap->changed);
    usm__mutex_unlock(&ap->lock);
}

static void free_now(usm_pool *pool, const usm__async_block *b)
{
    usm__area *area = usm__map_find(b->p);

    if (b->state)
        give_back(pool, b, false);
    else if (!area || usm__pool_free(area, b->p) != USM_OK)
        usm__warn("%p, which a queue had freed, was not taken back: %s", b->p, usm_last_error());
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
    usm_add_relaxed(&ap->host_waits, (uint64_t)1); /* no memory or no thread to be had */
    (void)usm__be_event_wait(ctx->be, ev->native);
    free_now(ap->pool, b);
    usm_event_release(ev);
}
