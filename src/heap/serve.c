/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The last of the three layers of an allocation (recover.c has the picture), and its inverse: a
 * block comes from the calling thread's cache or from the pool, and returns there.  Nothing here
 * asks a second time.
 *
 * usm__pool_take_large() and _free_large() are the short way for blocks above the size classes.
 *
 * usm__pool_serve(), _free_plain() and _block_plain() are unobserved; the observed path is built on
 * them (observe/observe.c). */
#include "heap/pool.h"

#include "base/inline/bits.h"
#include "base/part.h"
#include "base/watched.h"
#include "device/observer.h"
#include "heap/export.h"
#include "heap/magazine.h"
#include "heap/slab.h"

/* ---- allocation ---------------------------------------------------------------------- */

/* The size class from which the calling thread's cache may serve the request; USM_BINS: none.  The
 * size of a class is a multiple of each alignment that divides the requested size. */
static unsigned cached_class(const usm_pool *pool, size_t align, size_t size)
{
    size_t rounded = align > USM__POOL_ALIGN ? usm_align_up_ptr(size, align) : size;

    if (!pool->slot || align > USM_CACHED_ALIGN || rounded < size)
        return USM_BINS;
    return (unsigned)usm_min_size(usm_class_of(rounded), USM_BINS);
}

static usm_status take_cached(usm_pool *pool, usm_cache *cache, unsigned k, usm_slot *block)
{
    usm_bin *bin = &cache->bins[k];

    if (usm_load_relaxed(&bin->top) == usm_load_relaxed(&bin->bottom))
        return slab_fill(pool->impl, cache, k, block);
    *block = usm_bin_pop(bin);
    return USM_OK;
}

/* A thread that may use the fast path for smaller blocks needs no layer between it and the pool. */
void *usm__pool_take_large(usm_pool *pool, size_t size)
{
    void *p = NULL;

    usm__watched_poll();
    if (size > usm_class_size(USM_BINS - 1) &&
        usm__magazine_is_open(usm_load_relaxed(&pool->alloc_slot)))
        p = slab_take_held(pool->impl, size, 1);
    if (p)
        usm__freed_forget(p);
    return p;
}

/* Reports the whole block to the checker of stream order. */
static void notify_served(void *p, size_t size)
{
    usm__area *area  = usm__map_find(p);
    usm_block  block = {p, size};

    if (area)
        (void)usm__pool_block_plain(area, p, &block);
    usm__observer_get()->block_served(block.base, block.size);
}

usm_status usm__pool_serve(usm_pool *pool, size_t align, size_t size, void **p)
{
    unsigned   k     = cached_class(pool, align, size);
    usm_cache *cache = usm__magazine_enter(pool);
    bool       is_starved;
    usm_slot   block;
    usm_status st;

    if (!cache) {
        st = usm__pool_check_awake(pool); /* one that is not has no caches */
        if (st == USM_OK)
            st = pool->ops->malloc(pool->impl, size, align, p);
    } else if (k == USM_BINS) {
        st = slab_malloc_beside(pool->impl, cache, size, align, p);
        usm__magazine_leave();
    } else {
        st = take_cached(pool, cache, k, &block);
        if (st == USM_OK) {
            usm_store_relaxed(block.state, (uint8_t)USM_BLOCK_LIVE);
            *p = block.p;
        }
        is_starved = slab_cache_is_starved(cache);
        usm__magazine_leave();
        if (is_starved)
            usm__magazine_rob(pool);
    }
    if (st == USM_OK) {
        usm__freed_forget(*p);
        if (usm__observer_order_on())
            notify_served(*p, size);
    }
    return st;
}

/* ---- free ----------------------------------------------------------------------------- */

/* Marks the block at p as free if it was live, and returns its state; NULL: it was not live. */
static _Atomic(uint8_t) *end_life(const usm_span *span, const void *p)
{
    _Atomic(uint8_t) *state = usm__magazine_state(span, p);
    uint8_t           was   = state ? usm_load_relaxed(state) : (uint8_t)USM_BLOCK_FREE;

    while (was != USM_BLOCK_FREE)
        if (usm_cas_acq_rel(state, &was, (uint8_t)USM_BLOCK_FREE))
            return state;
    return NULL;
}

/* USM_E_NOT_READY: the free is not for the cache. */
static usm_status free_cached(usm_pool *pool, const usm_span *span, void *p)
{
    usm_cache *cache;
    usm_slot   block = {p, NULL};
    usm_bin   *bin;

    if (!span || !span->slot || span->slot != pool->slot)
        return USM_E_NOT_READY;
    cache = usm__magazine_enter(pool);
    if (!cache)
        return USM_E_NOT_READY;
    block.state = end_life(span, p);
    if (!block.state) {
        usm__magazine_leave();
        return USM_E_NOT_READY; /* the pool writes the error message */
    }
    bin = &cache->bins[span->bin];
    if (usm_load_relaxed(&bin->top) != usm_load_relaxed(&bin->limit))
        usm_bin_push(bin, block);
    else
        slab_cache_drain(pool->impl, cache, span->bin, block);
    usm__magazine_leave();
    return USM_OK;
}

bool usm__pool_free_large(const usm_pool *pool, void *p)
{
    usm_span *span = usm__page_find(p);

    if (!span || span->source != pool || !usm__magazine_is_open(pool->slot) ||
        !slab_is_large(span, p))
        return false;
    usm__freed_note(p); /* before, as in usm__pool_free_plain() */
    return slab_free_large(pool->impl, span, p);
}

usm_status usm__pool_block_plain(usm__area *area, const void *p, usm_block *block)
{
    return area->pool->ops->block(area->pool->impl, &area->view, p, block);
}

/* The error message names the block that should have been freed, whatever its pool. */
static usm_status fail_interior(usm__area *area, const void *p)
{
    usm_block block;

    if (usm__pool_block_plain(area, p, &block) != USM_OK)
        return usm__fail(USM_E_INTERIOR_POINTER, "%p lies inside a block: free the block's start",
                         p);
    return usm__fail(USM_E_INTERIOR_POINTER, "%p lies %td bytes inside the block at %p; free that",
                     p, (const char *)p - (const char *)block.base, block.base);
}

usm_status usm__pool_free_plain(usm__area *area, void *p)
{
    usm_pool  *pool = area->pool;
    usm_span  *span = usm__page_find(p);
    usm_status st;
    bool       recently;

    if (usm__observer_order_on())
        usm__observer_get()->block_back(p);
    st = free_cached(pool, span, p);
    if (st != USM_E_NOT_READY)
        return st;
    recently = usm__freed_recently(p);
    /* Noted before the free: another thread may get the address as soon as it is free. */
    usm__freed_note(p);
    /* Only slab has spans.  That of another pool was found by a free that lost a race. */
    st = span && span->source == pool ? slab_free_of(pool->impl, &area->view, span, p)
                                      : pool->ops->free(pool->impl, &area->view, p);
    if (st == USM_E_INVALID_POINTER && recently)
        return usm__fail(USM_E_DOUBLE_FREE, "the block at %p was freed before", p);
    if (st != USM_OK && st != USM_E_DOUBLE_FREE)
        usm__freed_forget(p);
    return st == USM_E_INTERIOR_POINTER ? fail_interior(area, p) : st;
}

usm_status usm__pool_block(usm__area *area, const void *p, usm_block *block)
{
    usm_status st = usm__observed_free() ? usm__observer_get()->block(area, p, block)
                                         : usm__pool_block_plain(area, p, block);

    if (st == USM_OK && area->pool->export_mode != USM_POOL_PRIVATE &&
        usm__parts_exports()->is_freed(area, block->base))
        return usm__fail(USM_E_INVALID_POINTER,
                         "%p was freed; other processes still have the block open", p);
    return st;
}

usm_status usm__pool_free(usm__area *area, void *p)
{
    const usm_pool *pool = area->pool;
    usm_status      st   = USM_E_NOT_READY;

    if (pool->is_imported)
        return usm__fail(USM_E_IMPORTED, "%p was opened from another process: usm_ipc_close() it",
                         p);
    if (pool->export_mode != USM_POOL_PRIVATE)
        st = usm__parts_exports()->free(area, p);
    return st == USM_E_NOT_READY ? usm__pool_free_now(area, p) : st;
}

usm_status usm__pool_free_now(usm__area *area, void *p)
{
    return usm__observed_free() ? usm__observer_get()->free(area, p)
                                : usm__pool_free_plain(area, p);
}
