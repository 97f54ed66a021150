/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks of other queues, as the pool's policies allow: blocks of queues that this one comes after
 * anyway, blocks whose queue has reached their free, and blocks that this queue is made to wait
 * for. */
#include "async/internal.h"
#include "base/fault.h"

/* The position up to which this queue may have blocks of `from` without a wait. */
static uint64_t allowed(const usm__async_list *l, usm__async_list *from)
{
    const usm_pool *pool     = l->pool->pool;
    uint64_t        position = 0, follows = 0;

    if (usm__fault_hit("async.skip_event", NULL)) /* the order checker must find this */
        return UINT64_MAX;
    if (usm_load_relaxed(&pool->reuse) & USM__REUSE_OPPORTUNISTIC)
        position = usm__async_see(from);
    if (usm_load_relaxed(&pool->reuse) & USM__REUSE_FOLLOW_EVENTS)
        follows = usm__queue_follows(l->queue->q, from->queue->q->serial);
    return position > follows ? position : follows;
}

void *usm__async_reuse(usm__async_list *l, size_t size)
{
    usm__async_some some;
    void           *p = NULL;

    usm__async_of_pool(l->pool, &some);
    for (size_t i = 0; i < some.n && !p; i++)
        if (some.list[i] != l)
            p = usm__async_reuse_from(some.list[i], size, USM__ASYNC_CLOSE,
                                      allowed(l, some.list[i]));
    usm__async_pool_release(&some);
    return p;
}

/* An inserted wait makes this queue depend on one that it may have nothing to do with.  More memory
 * is cheaper than that, until the blocks in lists are an eighth of the pool's memory: without waits
 * the lists would make the pool grow without limit. */
static bool is_worth_a_wait(const usm__async_list *l, const usm__async_some *some)
{
    const usm_pool *pool  = l->pool->pool;
    uint64_t        bytes = 0;

    for (size_t i = 0; i < some->n; i++)
        if (some->list[i] != l)
            bytes += usm_load_relaxed(&some->list[i]->bytes);
    return bytes >= usm_load_relaxed(&pool->held->reserved) / 8;
}

static void *wait_and_take(usm__async_list *l, usm__async_list *from, size_t size)
{
    usm__async_event *ev;
    uint64_t          position;
    void             *p = NULL;

    usm__async_lock(from);
    position = usm__async_peek(from, size, USM__ASYNC_CLOSE);
    usm__async_unlock(from);
    if (position == UINT64_MAX)
        return NULL;
    ev = usm__async_event_behind(from->queue, l->pool, position);
    if (!ev)
        return NULL;
    if (usm__fault_hit("async.skip_wait", NULL) || /* the order checker must find this */
        usm__queue_come_after(l->queue->q, ev->native, from->queue->q->serial, ev->position) ==
            USM_OK) {
        usm_add_relaxed(&l->pool->waits, (uint64_t)1);
        p = usm__async_reuse_from(from, size, USM__ASYNC_CLOSE,
                                  ev->position); /* NULL: another thread was faster */
    }
    usm__async_event_release(ev);
    return p;
}

void *usm__async_wait_for(usm__async_list *l, size_t size)
{
    usm__async_some some;
    void           *p = NULL;

    if (!(usm_load_relaxed(&l->pool->pool->reuse) & USM__REUSE_INSERT_WAITS))
        return NULL;
    usm__async_of_pool(l->pool, &some);
    if (is_worth_a_wait(l, &some))
        for (size_t i = 0; i < some.n && !p; i++)
            if (some.list[i] != l)
                p = wait_and_take(l, some.list[i], size);
    usm__async_pool_release(&some);
    return p;
}
