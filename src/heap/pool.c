/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools: allocation and free, statistics, trims, marks.  heap/pool_create.c creates and destroys
 * them; the module cuts the blocks (include/usm/pool_ops.h); heap/area.c has the areas, and
 * heap/account.c the memory accounting. */
#include "heap/pool.h"

#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/log.h"
#include "base/os.h"
#include "device/init.h"
#include "heap/export.h"
#include "heap/magazine.h"
#include "heap/pool_report.h"
#include "observe/observe.h"

#include <errno.h>
#include <string.h>

/* Other pools are requested to return at least this much: a pool takes no less from the driver. */
#define GIVEN_AT_LEAST ((size_t)2 << 20)
/* Number of rounds of such requests: another thread may take the memory that they returned. */
#define GIVEN_OFTEN 4

/* ---- use ------------------------------------------------------------------------- */

static usm_status check_request(const usm_pool *pool, size_t align, size_t size)
{
    uint64_t memory = usm__pool_memory(pool);

    if (align && (!usm_is_pow2(align) || align > USM_MAX_ALIGNMENT))
        return usm__fail(USM_E_ALIGNMENT,
                         "alignment %zu is not a power of two up to 2 MiB (2097152)", align);
    if (size > (size_t)PTRDIFF_MAX)
        return usm__fail(USM_E_SIZE, "%zu bytes exceed the address space; was it negative?", size);
    if (memory && size > memory)
        return usm__fail(USM_E_SIZE, "%zu bytes are more than the %llu that %s has", size,
                         (unsigned long long)memory,
                         pool->kind == USM_HOST
                             ? "this machine (or the control group of this process)"
                             : pool->ctx->devices[pool->index].dev->desc.name);
    return USM_OK;
}

/* ---- blocks of pools with thread caches ------------------------------------------- */

/* Takes a block from the calling thread's cache, which the pool fills if it is empty.
 * USM_E_NOT_READY: the thread has no cache. */
static usm_status alloc_cached(usm_pool *pool, unsigned k, void **p)
{
    usm_cache *cache = usm__magazine_enter(pool);
    usm_slot   block;
    usm_status st = USM_OK;
    usm_bin   *bin;
    usm_slot  *top;

    if (!cache)
        return USM_E_NOT_READY;
    bin = &cache->bins[k];
    top = usm_load_relaxed(&bin->top);
    if (top != usm_load_relaxed(&bin->bottom)) {
        block = *--top;
        usm_store_relaxed(&bin->top, top);
    } else {
        st = pool->ops->cache_fill(pool->impl, cache, k, &block);
    }
    if (st == USM_OK) {
        usm_store_relaxed(block.state, (uint8_t)USM_BLOCK_LIVE);
        *p = block.p;
    }
    usm__magazine_leave();
    return st;
}

/* Marks the block at p as free if it was live, and returns its state; NULL: it was not live. */
static _Atomic(uint8_t) *end_life(const usm_span *span, const void *p)
{
    _Atomic(uint8_t) *state = usm__span_state(span, p);
    uint8_t           was   = state ? usm_load_relaxed(state) : (uint8_t)USM_BLOCK_FREE;

    while (was != USM_BLOCK_FREE)
        if (usm_cas_acq_rel(state, &was, (uint8_t)USM_BLOCK_FREE))
            return state;
    return NULL;
}

/* USM_E_NOT_READY: the free is not for the cache. */
static usm_status free_cached(usm_pool *pool, void *p)
{
    const usm_span *span = usm__page_find(p);
    usm_cache      *cache;
    usm_slot        block = {p, NULL};
    usm_bin        *bin;
    usm_slot       *top;

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
    top = usm_load_relaxed(&bin->top);
    if (top != usm_load_relaxed(&bin->limit)) {
        *top = block;
        usm_store_relaxed(&bin->top, top + 1);
    } else {
        pool->ops->cache_drain(pool->impl, cache, span->bin, block);
    }
    usm__magazine_leave();
    return USM_OK;
}

/* ---- allocation and free, unobserved ------------------------------------------------ */

static usm_status alloc_once(usm_pool *pool, size_t align, size_t size, void **p)
{
    usm_status st = USM_E_NOT_READY;

    if (pool->slot && align <= USM_CACHED_ALIGN) {
        /* The size of a class is a multiple of each alignment that divides the requested size. */
        size_t   rounded = align > USM__POOL_ALIGN ? usm_align_up_ptr(size, align) : size;
        unsigned k       = usm_class_of(rounded);

        if (rounded >= size && k < USM_BINS)
            st = alloc_cached(pool, k, p);
    }
    return st == USM_E_NOT_READY ? pool->ops->malloc(pool->impl, size, align, p) : st;
}

static bool is_full(usm_status st)
{
    return st == USM_E_NO_MEMORY || st == USM_E_BUDGET;
}

/* Reports the whole block to the checker of stream order. */
static void tell_served(void *p, size_t size)
{
    usm__area *area  = usm__map_find(p);
    usm_block  block = {p, size};

    if (area)
        (void)usm__pool_block_plain(area, p, &block);
    usm__order_block_served(block.base, block.size);
}

usm_status usm__pool_alloc_plain(usm_pool *pool, size_t align, size_t size, void **p)
{
    usm_status st = alloc_once(pool, align, size, p);

    /* The last reserve: blocks that lie unused in the caches of threads. */
    if (is_full(st) && usm__magazine_reclaim(pool))
        st = alloc_once(pool, align, size, p);
    if (st == USM_OK) {
        usm__freed_forget(*p);
        if (usm__order_on())
            tell_served(*p, size);
    }
    return st;
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
    usm_status st   = USM_E_NOT_READY;
    bool       lately;

    if (usm__order_on())
        usm__order_block_back(p);
    if (pool->slot)
        st = free_cached(pool, p);
    if (st != USM_E_NOT_READY)
        return st;
    lately = usm__freed_lately(p);
    /* Noted before the free: another thread may get the address as soon as it is free. */
    usm__freed_note(p);
    st = pool->ops->free(pool->impl, &area->view, p);
    if (st == USM_E_INVALID_POINTER && lately)
        return usm__fail(USM_E_DOUBLE_FREE, "the block at %p was freed before", p);
    if (st != USM_OK && st != USM_E_DOUBLE_FREE)
        usm__freed_forget(p);
    return st == USM_E_INTERIOR_POINTER ? fail_interior(area, p) : st;
}

usm_status usm__pool_block(usm__area *area, const void *p, usm_block *block)
{
    usm_status st = usm__observed_free() ? usm__observe_block(area, p, block)
                                         : usm__pool_block_plain(area, p, block);

    if (st == USM_OK && area->pool->export_mode != USM_POOL_PRIVATE &&
        usm__exports->is_freed(area, block->base))
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
        st = usm__exports->free(area, p);
    return st == USM_E_NOT_READY ? usm__pool_free_now(area, p) : st;
}

usm_status usm__pool_free_now(usm__area *area, void *p)
{
    return usm__observed_free() ? usm__observe_free(area, p) : usm__pool_free_plain(area, p);
}

/* ---- allocation and free --------------------------------------------------------------- */

/* For pools with zero_init; a block that cannot be zeroed is freed. */
static void *zeroed(usm_pool *pool, void *p, size_t size)
{
    usm_status st = USM_OK;
    usm__area *area;

    if (usm__pool_host_may_touch(pool))
        memset(p, 0, size);
    else
        st = usm_set(p, 0, size);
    if (st == USM_OK)
        return p;
    area = usm__map_find(p);
    if (area)
        (void)usm__pool_free(area, p);
    return NULL;
}

/* NULL: with an error message. */
static void *alloc_unzeroed(usm_pool *pool, size_t align, size_t size)
{
    void      *p  = NULL;
    usm_status st = check_request(pool, align, size);

    size  = size ? size : 1;
    align = usm_max_size(align, pool->min_align);
    if (st == USM_OK && usm__observed())
        p = usm__observe_alloc(pool, align, size);
    else if (st == USM_OK)
        (void)usm__pool_alloc_plain(pool, align, size, &p);
    return p;
}

static void *alloc_checked(usm_pool *pool, size_t align, size_t size)
{
    void *p = alloc_unzeroed(pool, align, size);

    return p && pool->zero_init ? zeroed(pool, p, size ? size : 1) : p;
}

void *usm__pool_alloc_held(usm_pool *pool, size_t size)
{
    void *p = NULL;

    if (usm__observe_wants_record() || check_request(pool, 0, size) != USM_OK)
        return NULL;
    usm__self.is_held = true;
    if (alloc_once(pool, pool->min_align, size ? size : 1, &p) != USM_OK)
        p = NULL;
    usm__self.is_held = false;
    if (p)
        usm__freed_forget(p);
    if (p && usm__order_on())
        tell_served(p, size);
    return p;
}

usm_status usm__pool_try(usm_pool *pool, size_t size, void **p)
{
    void *got = alloc_checked(pool, 0, size);

    if (!got)
        return usm_last_status();
    *p = got;
    return USM_OK;
}

usm__out_of_memory_fn *usm__area_out_of_memory;

/* True if the pool's own maximum_size leaves the least room: no other pool can help then. */
static bool is_at_maximum(usm_pool *pool)
{
    uint64_t          reserved = usm_load_relaxed(&pool->reserved);
    usm__account_view account;

    if (!pool->maximum_size || usm_last_status() != USM_E_BUDGET)
        return false;
    usm__account_get(pool->ctx, pool->index, pool->kind, &account);
    if (account.limit == 0)
        return true;
    return pool->maximum_size - usm_min_size(reserved, pool->maximum_size) <=
           account.limit - usm_min_size(account.reserved, account.limit);
}

/* True if other pools of the memory returned free areas. */
static bool pools_gave(usm_pool *pool, size_t align, size_t size)
{
    const usm_device    *dev    = pool->ctx->devices[pool->index].dev;
    usm__memory_of_pools memory = {.dev = pool->kind == USM_HOST ? NULL : dev,
                                   .is_host =
                                       pool->kind == USM_HOST || usm__device_is_host_memory(dev)};
    usm__account_view    account;
    size_t               wanted;

    if (!is_full(usm_last_status()) || is_at_maximum(pool) ||
        __builtin_add_overflow(usm_align_up_ptr(size, GIVEN_AT_LEAST), align, &wanted))
        return false;
    usm__account_get(pool->ctx, pool->index, pool->kind, &account);
    if (account.limit && account.is_own && usm_last_status() == USM_E_BUDGET)
        memory.ctx = pool->ctx;
    return usm__pools_give_back(&memory, pool, wanted, true) > 0;
}

/* True if buffers freed memory, so that another try makes sense.  The memory they may keep is in
 * other pools, or in this one, so they are called here, where no lock of a pool is held. */
static bool others_gave(usm_pool *pool, size_t size)
{
    usm__story story;
    size_t     given;

    if (!usm__area_out_of_memory || usm__self.is_giving || !is_full(usm_last_status()) ||
        is_at_maximum(pool))
        return false;
    usm__story_save(&story);
    usm__self.is_giving = true;
    given = usm__area_out_of_memory(pool->ctx, pool->ctx->devices[pool->index].dev, pool->kind,
                                    usm_align_up_ptr(size, GIVEN_AT_LEAST));
    usm__self.is_giving = false;
    usm__story_restore(&story);
    return given > 0;
}

size_t (*usm__pool_collect)(usm_pool *pool, bool wait);
void (*usm__pool_ending)(usm_pool *pool);

static bool may_ask_queues(usm_pool *pool)
{
    return usm__pool_collect && usm_load_acquire(&pool->async) && is_full(usm_last_status());
}

/* True if queues had freed blocks of the pool, which any thread can have now.  For the last of them
 * the host waits. */
static bool queues_gave(usm_pool *pool)
{
    usm__story story;
    bool       gave;

    usm__story_save(&story);
    gave = usm__pool_collect(pool, false) > 0 || usm__pool_collect(pool, true) > 0;
    usm__story_restore(&story);
    return gave;
}

typedef void *alloc_fn(usm_pool *pool, size_t align, size_t size);

static void *alloc_or_report(alloc_fn *alloc, usm_pool *pool, size_t align, size_t size)
{
    void *p    = alloc(pool, align, size);
    bool  gave = true;

    while (!p && gave && may_ask_queues(pool)) {
        gave = queues_gave(pool);
        p    = alloc(pool, align, size); /* also if another thread collected them: the blocks are in
                                            the pool now */
    }
    for (int i = 0; !p && i < GIVEN_OFTEN && pools_gave(pool, align, size); i++)
        p = alloc(pool, align, size);
    if (!p && others_gave(pool, size))
        p = alloc(pool, align, size);
    if (!p) {
        usm__pool_report_full(pool, size, align, usm_last_status());
        errno = ENOMEM;
    }
    return p;
}

void *usm__pool_alloc(usm_pool *pool, size_t align, size_t size)
{
    return alloc_or_report(alloc_checked, pool, align, size);
}

void *usm__pool_alloc_raw(usm_pool *pool, size_t size)
{
    return alloc_or_report(alloc_unzeroed, pool, 0, size);
}

void *usm_pool_malloc(usm_pool *pool, size_t size)
{
    void *p = pool ? usm__magazine_pop(usm_load_relaxed(&pool->alloc_slot), size) : NULL;

    return p ? p : usm_pool_aligned_alloc(pool, 0, size);
}

void *usm_pool_aligned_alloc(usm_pool *pool, size_t align, size_t size)
{
    if (usm__pool_check(pool) == USM_OK && pool)
        return usm__pool_alloc(pool, align, size);
    errno = ENOMEM;
    return NULL;
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
    bool freed = !lives && usm__freed_lately(p);

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

/* True if a block of `span` may belong to this pool, and the pool has caches. */
static bool is_of(const usm_pool *pool, const usm_span *span)
{
    return span && pool && span->slot == usm_load_relaxed(&pool->alloc_slot);
}

/* Separate from usm_pool_free(), which therefore saves no registers on its fast path. */
static __attribute__((noinline)) void free_missed(usm_pool *pool, void *p, const size_t *size)
{
    if (p && usm__pool_check(pool) == USM_OK && pool)
        free_of_pool(pool, p, size);
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
    if (usm__pool_collect && usm_load_acquire(&pool->async))
        (void)usm__pool_collect(pool, false);
    /* Each block in a magazine keeps its area; empty magazines cost only host memory. */
    if (keep < usm_load_relaxed(&pool->reserved) || keep == 0)
        (void)usm__magazine_reclaim(pool);
    return pool->ops->trim_to(pool->impl, keep);
}

uint64_t usm__pool_live(usm_pool *pool)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    usm__pool_stats(pool, &stats);
    return stats.live;
}

usm_status usm_pool_get_stats(usm_pool *pool, usm_pool_stats *stats)
{
    usm_status st = usm__pool_check(pool);

    if (st != USM_OK)
        return st;
    if (!stats || stats->struct_size < sizeof *stats)
        return usm__fail(stats ? USM_E_ABI : USM_E_INVALID,
                         "usm_pool_get_stats: stats %s; start with USM_POOL_STATS_INIT",
                         stats ? "has a wrong struct_size" : "is NULL");
    usm__pool_stats(pool, stats);
    return USM_OK;
}

usm_status usm_pool_reset_peaks(usm_pool *pool)
{
    usm_status st = usm__pool_check(pool);

    if (st != USM_OK)
        return st;
    pool->ops->reset_peaks(pool->impl);
    usm_store_relaxed(&pool->reserved_peak, usm_load_relaxed(&pool->reserved));
    return USM_OK;
}

static void tell_reset(usm_pool *pool, usm_status st)
{
    if (st == USM_OK)
        usm__observe_reset(pool);
    if (pool->export_mode != USM_POOL_PRIVATE)
        usm__exports->was_reset(pool);
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
        st = usm__exports->reset(pool);
    if (st != USM_OK)
        return st;
    st = pool->ops->reset(pool->impl);
    tell_reset(pool, st);
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
        st = usm__exports->reset(pool);
    if (st != USM_OK)
        return st;
    st = pool->ops->reset_to(pool->impl, mark);
    tell_reset(pool, st);
    return st;
}

void usm__pool_fork(usm_pool *pool, usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE) {
        pool->ops->fork(pool->impl, phase);
        usm__mutex_fork(&pool->lock, (int)phase);
    } else {
        if (phase == USM_FORK_CHILD)
            usm_store_relaxed(&pool->guests, 0u); /* the parent's */
        usm__mutex_fork(&pool->lock, (int)phase);
        pool->ops->fork(pool->impl, phase);
    }
}
