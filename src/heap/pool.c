/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The public functions of pools: allocation and free, statistics, trims, marks.  heap/pool_create.c
 * creates and destroys pools; recover.c and serve.c are the layers below. */
#include "heap/pool.h"

#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/log.h"
#include "base/part.h"
#include "device/init.h"
#include "device/observer.h"
#include "heap/export.h"
#include "heap/magazine.h"
#include "heap/sleep.h"

#include <string.h>

/* Separate from usm_pool_malloc(), and with its arguments, so that the fast path moves none. */
static __attribute__((noinline)) void *alloc_missed(usm_pool *pool, size_t size)
{
    void *p = NULL;

    if (usm__magazine_self.traced)
        return usm__observer_get()->pool_malloc(pool, size);
    if (pool && usm__handle_is(pool, USM__MAGIC_POOL))
        p = usm__pool_take_large(pool, size); /* before any other check */
    return p ? p : usm_pool_aligned_alloc(pool, 0, size);
}

void *usm_pool_malloc(usm_pool *pool, size_t size)
{
    void *p = pool ? usm__magazine_pop(usm_load_relaxed(&pool->alloc_slot), size) : NULL;

    return p ? p : alloc_missed(pool, size);
}

void *usm_pool_aligned_alloc(usm_pool *pool, size_t align, size_t size)
{
    if (usm__pool_check(pool) == USM_OK && pool)
        return usm__pool_alloc(pool, align, size, USM__ZERO_AS_POOL);
    return usm__no_memory();
}

size_t usm_pool_malloc_batch(usm_pool *pool, size_t size, size_t n, void **out)
{
    size_t got = 0;

    if (n && !out)
        (void)usm__fail(USM_E_INVALID, "usm_pool_malloc_batch: out is NULL");
    while (out && got < n && (out[got] = usm_pool_malloc(pool, size)) != NULL)
        got++;
    return got;
}

/* area: that of p, in another pool, or NULL.  The record of recent frees says nothing about a block
 * that is live: the fast path does not update it when the block is allocated again. */
static usm_status refuse_foreign(usm__area *area, const void *p)
{
    usm_block block;
    bool      lives =
        area && !usm__context_is_ended(area->ctx) && usm__pool_block(area, p, &block) == USM_OK;
    bool freed = !lives && usm__freed_recently(p);

    return usm__fail(freed ? USM_E_DOUBLE_FREE : USM_E_INVALID_POINTER,
                     "usm_pool_free: %p is not a block of this pool%s", p,
                     freed   ? " any more: it was freed before"
                     : lives ? " but of another"
                             : "");
}

/* size NULL: unknown. */
static usm_status check_size(usm__area *area, const void *p, const size_t *size)
{
    usm_block  block;
    usm_status st = size ? usm__pool_block(area, p, &block) : USM_OK;

    if (st == USM_OK && size && *size > block.size)
        return usm__fail(USM_E_SIZE, "usm_pool_free_sized: the block at %p has %zu bytes, not %zu",
                         p, block.size, *size);
    return USM_OK; /* free reports any other error of p */
}

static void free_of_pool(usm_pool *pool, void *p, const size_t *size)
{
    usm__area *area = usm__map_find(p);
    usm_status st;

    if (!area || area->pool != pool)
        st = refuse_foreign(area, p);
    else
        st = check_size(area, p, size);
    if (st == USM_OK && area)
        st = usm__pool_free(area, p);
    if (st != USM_OK)
        usm__log(USM_LOG_ERROR, "%s", usm_last_error());
}

/* A span always has a pool: a pool that is NULL has none. */
static bool is_of(const usm_pool *pool, const usm_span *span)
{
    return __builtin_expect(span && span->source == pool, 1);
}

void usm__pool_free_slowly(usm_pool *pool, void *p, const size_t *size)
{
    if (p && (size || !usm__pool_free_large(pool, p)) && usm__pool_check(pool) == USM_OK && pool)
        free_of_pool(pool, p, size);
}

/* Separate from usm_pool_free(), which therefore saves no registers on its fast path. */
static __attribute__((noinline)) void free_missed(usm_pool *pool, void *p, const size_t *size)
{
    if (usm__magazine_self.traced)
        usm__observer_get()->pool_free(pool, p, size);
    else
        usm__pool_free_slowly(pool, p, size);
}

void usm_pool_free(usm_pool *pool, void *p)
{
    const usm_span *span = usm__page_find_low(p);

    if (__builtin_expect(!is_of(pool, span) || !usm__magazine_push(span, p), 0))
        free_missed(pool, p, NULL);
}

void usm_pool_free_sized(usm_pool *pool, void *p, size_t size)
{
    const usm_span *span = usm__page_find_low(p);

    if (!is_of(pool, span) || size > span->size || !usm__magazine_push(span, p))
        free_missed(pool, p, &size);
}

void usm_pool_free_batch(usm_pool *pool, size_t n, void *const *p)
{
    for (size_t i = 0; p && i < n; i++)
        usm_pool_free(pool, p[i]);
}

usm_status usm_pool_trim_to(usm_pool *pool, size_t keep)
{
    usm_status st = usm__pool_check(pool);

    if (st != USM_OK)
        return st;
    if (usm_load_acquire(&pool->async))
        (void)usm__parts_pool_collect(pool, false);
    /* Each block in a magazine keeps its area; empty magazines cost only host memory. */
    if (keep < usm_load_relaxed(&pool->held->reserved) || keep == 0)
        (void)usm__magazine_reclaim(pool);
    return pool->ops->trim_to(pool->impl, keep);
}

uint64_t usm__pool_live(usm_pool *pool)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    usm__pool_stats(pool, &stats);
    return stats.live;
}

/* The part that programs built before `asleep` existed know. */
#define OLD_POOL_STATS offsetof(usm_pool_stats, asleep)

usm_status usm_pool_get_stats(usm_pool *pool, usm_pool_stats *stats)
{
    usm_pool_stats full = USM_POOL_STATS_INIT;
    usm_status     st   = usm__pool_check(pool);

    if (st != USM_OK)
        return st;
    if (!stats || stats->struct_size < OLD_POOL_STATS)
        return usm__fail(stats ? USM_E_ABI : USM_E_INVALID,
                         "usm_pool_get_stats: stats %s; start with USM_POOL_STATS_INIT",
                         stats ? "has a wrong struct_size" : "is NULL");
    full.struct_size = stats->struct_size;
    usm__pool_stats(pool, &full);
    memcpy(stats, &full, usm_min_size(stats->struct_size, sizeof full));
    return USM_OK;
}

usm_status usm_pool_reset_peaks(usm_pool *pool)
{
    usm_status st = usm__pool_check(pool);

    if (st != USM_OK)
        return st;
    pool->ops->reset_peaks(pool->impl);
    usm_store_relaxed(&pool->held->reserved_peak, usm_load_relaxed(&pool->held->reserved));
    return USM_OK;
}

static void notify_reset(usm_pool *pool, usm_status st)
{
    if (st == USM_OK && usm__observer_get())
        usm__observer_get()->pool_reset(pool);
    if (pool->export_mode != USM_POOL_PRIVATE)
        usm__parts_exports()->was_reset(pool);
}

usm_status usm_pool_reset(usm_pool *pool)
{
    usm_status st = usm__pool_check(pool);

    if (st != USM_OK)
        return st;
    if (!(pool->ops->caps & USM_POOL_CAP_RESET))
        return usm__fail(USM_E_NOT_SUPPORTED, "a %s pool has no reset; an arena has",
                         pool->ops->name);
    if (pool->export_mode != USM_POOL_PRIVATE)
        st = usm__parts_exports()->reset(pool);
    if (st != USM_OK)
        return st;
    st = pool->ops->reset(pool->impl);
    notify_reset(pool, st);
    return st;
}

/* USM_OK: `pool` supports marks and `mark` may be used. */
static usm_status check_marks(usm_pool *pool, const void *mark, const char *function)
{
    usm_status st = usm__pool_check(pool);

    if (st != USM_OK)
        return st;
    if (!mark)
        return usm__fail(USM_E_INVALID, "%s: mark is NULL", function);
    if (!(pool->ops->caps & USM_POOL_CAP_MARK))
        return usm__fail(USM_E_NOT_SUPPORTED, "a %s pool has no marks; an arena has",
                         pool->ops->name);
    return USM_OK;
}

usm_status usm_pool_set_mark(usm_pool *pool, usm_pool_mark *mark)
{
    usm_status st = check_marks(pool, mark, "usm_pool_set_mark");

    return st == USM_OK ? pool->ops->mark(pool->impl, mark) : st;
}

usm_status usm_pool_reset_to(usm_pool *pool, const usm_pool_mark *mark)
{
    usm_status st = check_marks(pool, mark, "usm_pool_reset_to");

    if (st != USM_OK)
        return st;
    if (pool->export_mode != USM_POOL_PRIVATE)
        st = usm__parts_exports()->reset(pool);
    if (st != USM_OK)
        return st;
    st = pool->ops->reset_to(pool->impl, mark);
    notify_reset(pool, st);
    return st;
}

void usm__pool_fork(usm_pool *pool, usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE) {
        pool->ops->fork(pool->impl, phase);
        usm__mutex_fork(&pool->lock, phase);
    } else {
        if (phase == USM_FORK_CHILD)
            usm_store_relaxed(&pool->guests, 0u); /* the parent's */
        usm__mutex_fork(&pool->lock, phase);
        if (phase == USM_FORK_CHILD)
            usm__pool_sleep_fork_child(pool);
        pool->ops->fork(pool->impl, phase);
    }
}
