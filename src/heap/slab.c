/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pool `slab`: its table, the operations that bypass the thread caches, its statistics.  The
 * mechanism is in slab_class.c, slab_cache.c and page_heap.c; slab_private.h has the picture. */
#include "heap/slab.h"

#include "base/trace.h"
#include "heap/area.h"
#include "heap/pages.h"
#include "heap/pool.h"
#include "heap/slab_private.h"

/* ---- statistics --------------------------------------------------------------------------- */

static void raise(_Atomic(uint64_t) *peak, uint64_t now)
{
    uint64_t before = usm_load_relaxed(peak);

    while (now > before && !usm_cas_acq_rel(peak, &before, now))
        ;
}

/* low: minimum of live bytes of the classes.  Large blocks are counted under the heap's lock, so two
 * threads may each miss the other's block; the next call notices both. */
static void note_live(slab_pool *p, int64_t low)
{
    int64_t live = low + (int64_t)usm_load_relaxed(p->heap.large_bytes);

    if (live > 0)
        raise(&p->peak_bytes, (uint64_t)live);
}

void slab_live(slab_pool *p, int64_t bytes, int64_t more)
{
    note_live(p, usm_add_relaxed(&p->owner->held->low_bytes, bytes) + bytes + more);
}

void slab_note_cached(slab_pool *p, usm_cache *cache, unsigned k, const slab_swap *s)
{
    const int64_t size  = (int64_t)p->classes[k].size;
    int64_t       bytes = (s->moved - ((int64_t)s->most - (int64_t)cache->held[k])) * size;

    cache->held[k] = s->most;
    slab_live(p, bytes, ((int64_t)s->most - (int64_t)s->now) * size);
}

/* Caches that are small beside what the pool holds may outgrow the least budget. */
static size_t budget_of(const slab_pool *p)
{
    size_t held = usm_load_relaxed(&p->owner->held->reserved);

    return usm_min_size(p->cache_bytes, usm_max_size(p->cache_least, held / 16));
}

uint64_t slab_cache_limit(const void *pool)
{
    const slab_pool *p = pool;

    return p->slot ? budget_of(p) : 0;
}

/* Records the change in the trace: magazines are made, grow and end seldom. */
static void trace_room(const slab_pool *p)
{
    if (usm_load_relaxed(&usm__trace_on))
        usm__tracer_now->caches(p->owner->trace_id, usm_load_relaxed(&p->room_bytes), budget_of(p));
}

bool slab_take_room(slab_pool *p, uint64_t bytes)
{
    uint64_t now = usm_add_relaxed(&p->room_bytes, bytes) + bytes;

    if (now + usm_load_relaxed(&p->depot_bytes) > budget_of(p)) {
        usm_sub_relaxed(&p->room_bytes, bytes);
        return false;
    }
    raise(&p->room_peak, now);
    trace_room(p);
    return true;
}

void slab_give_room(slab_pool *p, uint64_t bytes)
{
    usm_sub_relaxed(&p->room_bytes, bytes);
    trace_room(p);
}

bool slab_has_room(const slab_pool *p, uint64_t bytes)
{
    const size_t budget = budget_of(p);
    uint64_t     depots = usm_load_relaxed(&p->depot_bytes) + bytes;

    return depots <= budget / DEPOTS_PART && depots + usm_load_relaxed(&p->room_bytes) <= budget;
}

static uint64_t blocks_out(const slab_class *c)
{
    return usm_load_relaxed(&c->filled) - usm_load_relaxed(&c->drained);
}

static void slab_get_stats(void *pool, usm_pool_stats *stats)
{
    slab_pool      *p          = pool;
    uint64_t        in_threads = stats->blocks;
    uint64_t        out = 0, bytes = 0;
    slab_heap_stats heap;

    slab_heap_get_stats(&p->heap, &heap);
    for (unsigned w = 0; w < 2; w++)
        for (uint64_t bits = usm_load_relaxed(&p->used[w]); bits; bits &= bits - 1) {
            const slab_class *c = &p->classes[w * 64 + (unsigned)__builtin_ctzll(bits)];

            out += blocks_out(c);
            bytes += blocks_out(c) * c->size;
            stats->allocations += usm_load_relaxed(&c->filled);
            stats->frees += usm_load_relaxed(&c->drained);
            stats->depot_cached += usm_load_relaxed(&c->depot_blocks) * c->size;
            stats->depot_hits += usm_load_relaxed(&c->depot_hits);
            stats->depot_misses += usm_load_relaxed(&c->depot_misses);
        }
    /* Other threads continue meanwhile, so the differences are kept from becoming negative. */
    out                    = out > in_threads ? out - in_threads : 0;
    bytes                  = bytes > stats->thread_cached ? bytes - stats->thread_cached : 0;
    stats->blocks          = out + heap.large_blocks;
    stats->live            = bytes + heap.large_bytes;
    stats->live_peak_error = usm_load_relaxed(&p->room_peak);
    /* This query may itself observe the peak. */
    raise(&p->peak_bytes, stats->live);
    stats->live_peak = usm_load_relaxed(&p->peak_bytes);
    stats->allocations += heap.large_allocations;
    stats->frees += heap.large_allocations - heap.large_blocks;
    stats->largest_free = heap.largest_free;
}

static void slab_reset_peaks(void *pool)
{
    slab_pool *p = pool;

    usm_store_relaxed(&p->room_peak, usm_load_relaxed(&p->room_bytes));
    usm_store_relaxed(&p->peak_bytes, (uint64_t)0);
    slab_live(p, 0, 0);
}

static void describe_class(const slab_class *c, usm_pool_class *out)
{
    *out = (usm_pool_class){
        .size         = c->size,
        .live         = blocks_out(c),
        .live_bytes   = blocks_out(c) * c->size,
        .cached       = usm_load_relaxed(&c->depot_blocks),
        .held         = usm_load_relaxed(&c->held),
        .allocations  = usm_load_relaxed(&c->filled),
        .depot_hits   = usm_load_relaxed(&c->depot_hits),
        .depot_misses = usm_load_relaxed(&c->depot_misses),
    };
}

void slab_get_classes(void *pool, usm_pool_class *list, size_t cap, size_t *count)
{
    slab_pool      *p = pool;
    size_t          n = 0;
    slab_heap_stats heap;

    for (unsigned k = 0; k < USM_BINS; k++) {
        if ((usm_load_relaxed(&p->used[k / 64]) >> k % 64 & 1) == 0)
            continue;
        if (n < cap)
            describe_class(&p->classes[k], &list[n]);
        n++;
    }
    slab_heap_get_stats(&p->heap, &heap);
    if (heap.large_allocations > 0) {
        if (n < cap)
            list[n] = (usm_pool_class){
                .live        = heap.large_blocks,
                .live_bytes  = heap.large_bytes,
                .held        = heap.large_bytes,
                .allocations = heap.large_allocations,
            };
        n++;
    }
    *count = n;
}

#define EXTENTS 256 /* at a time: the heap's lock is held for as many */

void slab_each_extent(void *pool, slab_extent_visit *fn, void *arg)
{
    slab_pool  *p = pool;
    slab_extent list[EXTENTS];
    uintptr_t   from = 0;
    size_t      n;

    do {
        n = slab_heap_extents(&p->heap, from, list, EXTENTS);
        for (size_t i = 0; i < n; i++)
            fn(&(usm__pool_extent){list[i].base, list[i].size,
                                   list[i].is_used ? USM__POOL_USED : USM__POOL_FREE},
               arg);
        from = n ? list[n - 1].base + list[n - 1].size : 0;
    } while (n == EXTENTS);
}

void slab_each_slab(void *pool, slab_free_visit *fn, void *arg)
{
    slab_pool *p = pool;

    for (unsigned k = 0; k < SLAB_CLASSES; k++)
        if (usm_load_relaxed(&p->used[k / 64]) >> k % 64 & 1)
            slab_class_each(&p->classes[k], fn, arg);
}

/* ---- allocation and free that bypass the caches ---------------------------------------------- */

static usm_status take_large(slab_pool *p, size_t size, size_t align, void **out)
{
    slab_block *block;
    usm_status  st = slab_heap_alloc_large(&p->heap, size, align, &block);

    if (st != USM_OK)
        return st;
    note_live(p, usm_load_relaxed(&p->owner->held->low_bytes));
    *out = (void *)block->span.base;
    return USM_OK;
}

void *slab_take_held(void *pool, size_t size, size_t align)
{
    slab_pool  *p = pool;
    slab_block *block =
        slab_heap_take_held(&p->heap, size, usm_max_size(align, p->least_align), true);

    if (!block)
        return NULL;
    note_live(p, usm_load_relaxed(&p->owner->held->low_bytes));
    return (void *)block->span.base;
}

static usm_status malloc_once(slab_pool *p, size_t size, size_t align, void **out)
{
    size_t     rounded = usm_align_up_ptr(size, align);
    unsigned   k       = usm_class_of(rounded);
    usm_slot   block;
    usm_status st;

    if (rounded < size)
        return p->api->report(USM_E_SIZE, "%zu bytes aligned to %zu exceed the address space", size,
                              align);
    if (align > USM_CACHED_ALIGN || k >= USM_BINS)
        return take_large(p, size, align, out);
    st = slab_take_block(p, k, &block);
    if (st == USM_OK) {
        usm_store_relaxed(block.state, (uint8_t)USM_BLOCK_LIVE);
        *out = block.p;
    }
    return st;
}

static void trim_classes(slab_pool *p)
{
    for (unsigned k = 0; k < USM_BINS; k++)
        slab_class_trim(p, k);
}

static usm_status slab_malloc(void *pool, size_t size, size_t align, void **out)
{
    slab_pool *p = pool;
    usm_status st;

    align = usm_max_size(align, p->least_align);
    st    = malloc_once(p, size, align, out);
    if (st != USM_E_NO_MEMORY && st != USM_E_BUDGET)
        return st;
    trim_classes(p);
    return malloc_once(p, size, align, out);
}

usm_status slab_malloc_beside(void *pool, usm_cache *cache, size_t size, size_t align, void **out)
{
    *out = slab_take_held(pool, size, align);
    if (*out)
        return USM_OK;
    slab_cache_give_runs(pool, cache);
    return slab_malloc(pool, size, align, out);
}

static usm_status refuse(const slab_pool *p, usm_status why, const void *ptr)
{
    if (why == USM_E_DOUBLE_FREE)
        return p->api->report(why, "the block at %p was freed before; free a block once", ptr);
    if (why == USM_E_INTERIOR_POINTER)
        return p->api->report(why, "%p lies inside a block: free the block's start", ptr);
    return p->api->report(why, "%p is in no live block", ptr);
}

/* Finds the block around ptr; returns its state, or NULL: there is none.  *span: at entry what the
 * page of ptr leads to, at exit the block's. */
static _Atomic(uint8_t) *find_block(slab_pool *p, const usm_area *area, const void *ptr,
                                    usm_span **span, usm_block *block)
{
    slab_block *large;

    if (*span)
        return usm__page_block_around(*span, ptr, block);
    large = slab_heap_find(&p->heap, area, ptr);
    if (!large)
        return NULL;
    *span  = &large->span;
    *block = (usm_block){(void *)large->span.base, large->span.size};
    return &large->state;
}

static usm_status slab_block_of(void *pool, usm_area *area, const void *ptr, usm_block *block)
{
    slab_pool        *p    = pool;
    usm_span         *span = usm__page_find(ptr);
    usm_block         found;
    _Atomic(uint8_t) *state = find_block(p, area, ptr, &span, &found);

    if (!state || usm_load_relaxed(state) == USM_BLOCK_FREE)
        return p->api->report(USM_E_INVALID_POINTER,
                              "%p is in no live block: what was there was freed", ptr);
    *block = found;
    return USM_OK;
}

/* NULL: the span is that of a size class. */
static slab_block *large_of(usm_span *span)
{
    slab_block *b = span->reciprocal ? NULL : (slab_block *)(void *)span;

    return b && b->is_large ? b : NULL;
}

bool slab_is_large(usm_span *span, const void *ptr)
{
    const slab_block *b = large_of(span);

    return b && span->base == (uintptr_t)ptr && usm_load_relaxed(&b->state) == USM_BLOCK_LIVE;
}

bool slab_free_large(void *pool, usm_span *span, const void *ptr)
{
    slab_pool *p = pool;

    return slab_heap_free_large(&p->heap, (slab_block *)(void *)span, (uintptr_t)ptr);
}

usm_status slab_free_of(void *pool, usm_area *area, usm_span *span, void *ptr)
{
    slab_pool        *p = pool;
    usm_block         block;
    _Atomic(uint8_t) *state = find_block(p, area, ptr, &span, &block);
    uint8_t           was   = state ? usm_load_relaxed(state) : (uint8_t)USM_BLOCK_FREE;
    slab_block       *large = state ? large_of(span) : NULL;

    if (!state)
        return refuse(p, USM_E_INVALID_POINTER, ptr);
    if (block.base != ptr)
        return refuse(p, was ? USM_E_INTERIOR_POINTER : USM_E_INVALID_POINTER, ptr);
    /* Of two threads that free a large block, the heap's lock lets one pass. */
    if (large && was != USM_BLOCK_FREE && slab_free_large(p, span, ptr))
        return USM_OK;
    while (!large && was != USM_BLOCK_FREE)
        if (usm_cas_acq_rel(state, &was, (uint8_t)USM_BLOCK_FREE)) {
            slab_give_block(p, span->bin, ptr);
            return USM_OK;
        }
    return refuse(p, USM_E_DOUBLE_FREE, ptr);
}

static usm_status slab_free(void *pool, usm_area *area, void *ptr)
{
    return slab_free_of(pool, area, usm__page_find(ptr), ptr);
}

static usm_status slab_trim_to(void *pool, size_t keep)
{
    slab_pool      *p = pool;
    slab_heap_stats stats;

    slab_heap_get_stats(&p->heap, &stats);
    if (stats.held > keep || keep == 0)
        trim_classes(p);
    (void)slab_heap_trim(&p->heap, keep);
    return USM_OK;
}

/* ---- caches: if memory is short, the depot is emptied first ---------------------------------- */

usm_status slab_fill(void *pool, usm_cache *cache, unsigned k, usm_slot *block)
{
    usm_status st = slab_cache_fill(pool, cache, k, block);

    if (st != USM_E_NO_MEMORY && st != USM_E_BUDGET)
        return st;
    trim_classes(pool);
    return slab_cache_fill(pool, cache, k, block);
}

/* ---- creation and destruction ---------------------------------------------------------------- */

/* The budget of all caches: 1 % of the memory, at least CACHE_BYTES; but no more than a 16th of
 * what there can be. */
static void set_budget(slab_pool *p, const usm_pool_params *params)
{
    size_t bytes = usm_max_size(CACHE_BYTES, params->memory_size / 100);

    if (params->maximum_size)
        bytes = usm_min_size(bytes, params->maximum_size / 16);
    if (params->memory_size)
        bytes = usm_min_size(bytes, params->memory_size / 16);
    p->cache_bytes = p->owner->thread_cache ? p->owner->thread_cache : bytes;
    p->cache_least = p->owner->thread_cache ? p->cache_bytes : CACHE_BYTES;
}

static slab_source source_of(usm_pool *owner)
{
    return (slab_source){
        .source      = owner,
        .granularity = usm__area_granularity(owner),
        .take        = usm__area_take,
        .give        = usm__area_give,
        .reserve     = usm__area_reserve,
        .map         = usm__area_map,
        .unmap       = usm__area_unmap,
        .pages_set   = usm__pages_set,
    };
}

static usm_status slab_create(const usm_pool_params *params, void **pool)
{
    slab_pool             *p    = params->api->heap_alloc(sizeof *p);
    const slab_heap_params heap = {
        .api          = params->api,
        .areas        = source_of(params->areas.source),
        .kind         = params->kind,
        .area_size    = params->area_size,
        .memory_size  = params->memory_size,
        .maximum_size = params->maximum_size,
        .retain       = params->retain,
        .retain_ms    = params->retain_ms,
        .large_bytes  = &((usm_pool *)params->areas.source)->held->large_bytes,
    };
    usm_status st;

    if (!p)
        return params->api->report(USM_E_NO_MEMORY, "no host memory for a pool");
    st = slab_heap_init(&p->heap, &heap);
    if (st != USM_OK) {
        params->api->heap_free(p);
        return st;
    }
    p->api         = params->api;
    p->owner       = params->areas.source;
    p->slot        = p->owner->slot;
    p->kind        = params->kind;
    p->least_align = usm_max_size(params->default_align, 1);
    set_budget(p, params);
    for (unsigned k = 0; k < USM_BINS; k++)
        slab_class_init(p, k);
    *pool = p;
    return USM_OK;
}

static void slab_destroy(void *pool)
{
    slab_pool *p = pool;

    /* Its caches have ended, without giving their room back one by one. */
    if (usm_load_relaxed(&p->room_bytes) > 0) {
        usm_store_relaxed(&p->room_bytes, UINT64_C(0));
        trace_room(p);
    }
    for (unsigned k = 0; k < USM_BINS; k++)
        slab_class_fini(p, k);
    slab_heap_fini(&p->heap);
    p->api->heap_free(p);
}

static void fork_classes(slab_pool *p, usm_fork_phase phase)
{
    for (unsigned k = 0; k < USM_BINS; k++)
        slab_class_fork(&p->classes[k], phase);
}

static void slab_fork(void *pool, usm_fork_phase phase)
{
    slab_pool *p = pool;

    if (phase == USM_FORK_PREPARE)
        fork_classes(p, phase);
    slab_heap_fork(&p->heap, phase);
    if (phase != USM_FORK_PREPARE)
        fork_classes(p, phase);
}

static const usm_pool_ops ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof ops,
    .name        = "slab",
    .create      = slab_create,
    .destroy     = slab_destroy,
    .malloc      = slab_malloc,
    .free        = slab_free,
    .block       = slab_block_of,
    .trim_to     = slab_trim_to,
    .get_stats   = slab_get_stats,
    .reset_peaks = slab_reset_peaks,
    .fork        = slab_fork,
};

const usm_pool_ops *usm_slab_pool_entry(const usm_host_api *api)
{
    (void)api; /* it is in the parameters of each pool */
    return &ops;
}

bool slab_is(const usm_pool_ops *some)
{
    return some->create == slab_create;
}
