/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The heap of large blocks: blocks are cut from free ones, and merged with their neighbours when
 * they are freed (page_heap.h has the contract, page_heap_private.h the list of files).
 *
 *     area      |  used  |used|   free    | used |      hole      | free | used |  hole ...
 *     blocks    <-lower  upper->   a descriptor each, out of band
 *
 * A request takes the smallest free block that fits, as far as the bins show, and of these the one
 * with the lowest address.  If there is none, the heap grows (page_heap_growth.c).  Only one thread
 * at a time does so; others without a block wait, because its memory may be sufficient for them
 * too.
 *
 * A request is looked at with the lock, and what it lacks is provided without: spare descriptors,
 * or growth. */
#include "heap/page_heap_private.h"

#include <base/inline/atomic.h>

/* A clock check every so many allocations, for programs that free nothing here; each free checks as
 * well. */
#define CHECK_EVERY 64

/* --- blocks, with the lock held -------------------------------------------------------------- */

static void enter_free(slab_heap *h, slab_block *b)
{
    b->use = SLAB_FREE;
    h->free += b->span.size;
    b->idle = slab_idle_in(h, b);
    h->idle += b->idle;
    slab_bins_insert(&h->bins, b);
}

void slab_unbin(slab_heap *h, slab_block *b)
{
    slab_bins_remove(&h->bins, b);
    h->free -= b->span.size;
    h->idle -= b->idle;
}

/* Moves the ends of b, which is FREE.  It mostly stays in its bin, so that cutting a block from a
 * much larger one, or merging it back, changes no list. */
static void resize_free(slab_heap *h, slab_block *b, uintptr_t base, size_t size)
{
    h->free += size - b->span.size;
    h->idle -= b->idle;
    slab_bins_resize(&h->bins, b, size);
    b->span.base = base;
    b->idle      = slab_idle_in(h, b);
    h->idle += b->idle;
}

void slab_make_free(slab_heap *h, slab_block *b)
{
    slab_block  *lower = b->lower && b->lower->use == SLAB_FREE ? b->lower : NULL;
    slab_block  *upper = b->upper && b->upper->use == SLAB_FREE ? b->upper : NULL;
    const size_t size  = b->span.size;

    if (lower && upper) {
        slab_unbin(h, upper);
        resize_free(h, lower, lower->span.base, lower->span.size + size + upper->span.size);
        slab_unchain(h, upper);
        slab_unchain(h, b);
    } else if (lower) {
        resize_free(h, lower, lower->span.base, lower->span.size + size);
        slab_unchain(h, b);
    } else if (upper) {
        resize_free(h, upper, b->span.base, upper->span.size + size);
        slab_unchain(h, b);
    } else {
        enter_free(h, b);
    }
}

slab_block *slab_carve(slab_heap *h, slab_block *b, uintptr_t at, size_t size)
{
    slab_block *rest;

    b->use = SLAB_USED; /* prevents the rest from merging with it */
    if (at > b->span.base) {
        rest = b;
        b    = slab_split(h, b, at);
        slab_make_free(h, rest);
    }
    if (size < b->span.size) {
        rest = slab_split(h, b, at + size);
        slab_make_free(h, rest);
    }
    h->used += size;
    return b;
}

slab_block *slab_take_free(slab_heap *h, size_t size, size_t align)
{
    slab_block *b = slab_bins_find(&h->bins, size, align), *u;
    uintptr_t   at;

    if (!b)
        return NULL;
    at = usm_align_up_ptr(b->span.base, align);
    if (at > b->span.base || b->span.size == size) {
        slab_unbin(h, b);
        return slab_carve(h, b, at, size);
    }
    u = slab_chain_lower(h, b, size);
    resize_free(h, b, at + size, b->span.size - size);
    u->use = SLAB_USED;
    h->used += size;
    return u;
}

static usm_status map_page(slab_heap *h, slab_block *b, usm_span *span)
{
    return h->params.areas.pages_set(b->span.area, b->span.base, 1, span);
}

static void put_back(slab_heap *h, slab_block *b)
{
    h->used -= b->span.size;
    slab_make_free(h, b);
}

/* A plain addition: its writers hold the lock. */
static void add_large_bytes(slab_heap *h, uint64_t bytes)
{
    usm_store_relaxed(h->large_bytes, usm_load_relaxed(h->large_bytes) + bytes);
}

static void count_large(slab_heap *h, slab_block *b)
{
    b->is_large = true;
    add_large_bytes(h, b->span.size);
    h->large_blocks++;
    h->large_allocations++;
    usm_store_relaxed(&b->state, (uint8_t)USM_BLOCK_LIVE);
}

/* The span is complete before a page leads to it. */
void slab_hand_out(slab_heap *h, slab_want *w, slab_block *b)
{
    b->span.slot   = 0;
    b->span.bin    = 0;
    b->span.bin_at = 0;
    b->is_large    = false;
    w->status      = map_page(h, b, &b->span);
    if (w->status) {
        put_back(h, b);
        return;
    }
    slab_index_add(b);
    h->used_blocks++;
    h->allocations++;
    slab_idle_changed(h);
    if (w->is_large)
        count_large(h, b);
    w->block = b;
}

/* --- the interface --------------------------------------------------------------------------- */

/* False: the size is too large. */
static bool round_size(size_t size, size_t *rounded)
{
    return size <= SIZE_MAX / 4 && usm_align_up(size, SLAB_PAGE, rounded);
}

/* True if another thread is growing.  The calling thread may itself be the growing one, called from
 * within its own growth; then it must not wait. */
static bool must_wait(const slab_heap *h)
{
    return h->growing && !pthread_equal(h->grower, pthread_self());
}

/* True: the request has its answer.  False: spare descriptors are missing, or the heap has to grow
 * (is_growing). */
static bool answer(slab_heap *h, slab_want *w)
{
    slab_block *b;

    while (!w->block && !w->status && slab_has_spares(h)) {
        if ((b = slab_take_free(h, w->size, w->align))) {
            slab_hand_out(h, w, b);
        } else if (must_wait(h)) {
            slab_wait_settled(h);
        } else {
            w->is_growing  = true;
            w->was_growing = h->growing;
            h->growing     = true;
            h->grower      = pthread_self();
            return false;
        }
    }
    return w->block || w->status;
}

/* After an allocation: how many idle bytes are due. */
static uint64_t due_after(slab_heap *h, const slab_want *w)
{
    return w->block && h->idle > h->retain && h->allocations % CHECK_EVERY == 0
               ? slab_retention_due(h)
               : 0;
}

static usm_status take(slab_heap *h, slab_want w, slab_block **block)
{
    size_t   size = w.size;
    uint64_t due;

    if (!round_size(size, &w.size))
        return h->params.api->report(USM_E_NO_MEMORY, "%zu bytes are more than there can be", size);
    pthread_mutex_lock(&h->lock);
    while (!answer(h, &w)) {
        pthread_mutex_unlock(&h->lock);
        if (w.is_growing)
            slab_grow(h, &w);
        else
            w.status = slab_spare_ensure(h);
        pthread_mutex_lock(&h->lock);
    }
    due = due_after(h, &w);
    pthread_mutex_unlock(&h->lock);
    if (w.block)
        *block = w.block;
    if (due)
        (void)slab_give_back(h, due, due);
    return w.status;
}

usm_status slab_heap_alloc(slab_heap *h, size_t size, size_t align, slab_block **block)
{
    return take(h, (slab_want){.size = size, .align = usm_max_size(align, SLAB_PAGE)}, block);
}

usm_status slab_heap_alloc_large(slab_heap *h, size_t size, size_t align, slab_block **block)
{
    return take(
        h, (slab_want){.size = size, .align = usm_max_size(align, SLAB_PAGE), .is_large = true},
        block);
}

slab_block *slab_heap_take_held(slab_heap *h, size_t size, size_t align, bool is_large)
{
    slab_want   w = {.align = usm_max_size(align, SLAB_PAGE), .is_large = is_large};
    slab_block *b;
    uint64_t    due;

    if (!round_size(size, &w.size))
        return NULL;
    pthread_mutex_lock(&h->lock);
    if (slab_has_spares(h) && (b = slab_take_free(h, w.size, w.align)))
        slab_hand_out(h, &w, b);
    due = due_after(h, &w);
    pthread_mutex_unlock(&h->lock);
    if (due)
        (void)slab_give_back(h, due, due);
    return w.block;
}

/* With the lock held.  Returns how many idle bytes are due. */
static uint64_t take_back(slab_heap *h, slab_block *b)
{
    if (b->is_large) {
        add_large_bytes(h, 0 - b->span.size);
        h->large_blocks--;
    }
    usm_store_relaxed(&b->state, USM_BLOCK_FREE);
    (void)map_page(h, b, NULL); /* cannot fail: its table exists */
    slab_index_remove(b);
    h->used_blocks--;
    h->frees++;
    put_back(h, b);
    return h->idle > h->retain ? slab_retention_due(h) : 0;
}

void slab_heap_free(slab_heap *h, slab_block *b)
{
    uint64_t due;

    pthread_mutex_lock(&h->lock);
    due = take_back(h, b);
    pthread_mutex_unlock(&h->lock);
    if (due)
        (void)slab_give_back(h, due, due);
}

bool slab_heap_free_large(slab_heap *h, slab_block *b, uintptr_t base)
{
    uint64_t due = 0;
    bool     is_ours;

    pthread_mutex_lock(&h->lock);
    is_ours = b->use == SLAB_USED && b->is_large && b->span.base == base &&
              usm_load_relaxed(&b->state) != USM_BLOCK_FREE;
    if (is_ours)
        due = take_back(h, b);
    pthread_mutex_unlock(&h->lock);
    if (due)
        (void)slab_give_back(h, due, due);
    return is_ours;
}

slab_block *slab_heap_find(slab_heap *h, const usm_area *area, const void *p)
{
    slab_block *b = NULL;

    pthread_mutex_lock(&h->lock);
    if (area->pool_data)
        b = slab_index_find(area->pool_data, (uintptr_t)p);
    pthread_mutex_unlock(&h->lock);
    return b;
}

size_t slab_heap_trim(slab_heap *h, size_t keep)
{
    size_t   given = 0;
    uint64_t excess;

    pthread_mutex_lock(&h->lock);
    excess = h->held > keep ? h->held - keep : 0;
    pthread_mutex_unlock(&h->lock);
    if (excess)
        given = slab_give_back(h, excess, UINT64_MAX);
    slab_give_ranges(h);
    pthread_mutex_lock(&h->lock);
    slab_chunks_trim(h);
    pthread_mutex_unlock(&h->lock);
    return given;
}

/* The area with the lowest address that ends behind p; NULL: there is none. */
static slab_area *area_after(const slab_heap *h, uintptr_t p)
{
    slab_area *found = NULL;

    USM_LIST_FOREACH (it, &h->areas) {
        slab_area *a = SLAB_AREA_OF(it);

        if (a->base + a->size > p && (!found || a->base < found->base))
            found = a;
    }
    return found;
}

size_t slab_heap_extents(slab_heap *h, uintptr_t from, slab_extent *list, size_t cap)
{
    size_t           n = 0;
    const slab_area *a;

    pthread_mutex_lock(&h->lock);
    while (n < cap && (a = area_after(h, from)) != NULL) {
        const slab_block *b = slab_block_around(a, from > a->base ? from : a->base);

        for (; b && n < cap; b = b->upper) {
            uintptr_t base = from > b->span.base ? from : b->span.base;

            from = SLAB_BLOCK_END(b);
            if (b->use != SLAB_HOLE && b->use != SLAB_MAPPING)
                list[n++] = (slab_extent){base, from - base, b->use == SLAB_USED};
        }
    }
    pthread_mutex_unlock(&h->lock);
    return n;
}

void slab_heap_get_stats(slab_heap *h, slab_heap_stats *s)
{
    slab_block *largest;

    pthread_mutex_lock(&h->lock);
    largest = slab_bins_largest(&h->bins);
    *s      = (slab_heap_stats){
             .held              = h->held,
             .used              = h->used,
             .free              = h->free,
             .idle              = h->idle,
             .used_blocks       = h->used_blocks,
             .largest_free      = largest ? largest->span.size : 0,
             .allocations       = h->allocations,
             .frees             = h->frees,
             .large_bytes       = usm_load_relaxed(h->large_bytes),
             .large_blocks      = h->large_blocks,
             .large_allocations = h->large_allocations,
    };
    pthread_mutex_unlock(&h->lock);
}

/* The lock is held from PREPARE on; the child has no other thread that could wait. */
void slab_heap_fork(slab_heap *h, usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE) {
        pthread_mutex_lock(&h->lock);
        while (h->growing || h->gives)
            slab_wait_settled(h);
        return;
    }
    if (phase == USM_FORK_CHILD)
        pthread_cond_init(&h->settled, NULL);
    pthread_mutex_unlock(&h->lock);
}

usm_status slab_heap_init(slab_heap *h, const slab_heap_params *params)
{
    *h             = (slab_heap){.params = *params};
    h->large_bytes = params->large_bytes ? params->large_bytes : &h->own_large_bytes;
    usm_list_init(&h->areas);
    usm_list_init(&h->spare);
    usm_list_init(&h->chunks);
    slab_bins_init(&h->bins);
    /* Not one that spins first: who sleeps lets the other thread do several operations, whose data
     * its processor then has. */
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->settled, NULL);
    slab_growth_init(h);
    return USM_OK;
}

/* A late free must find no page that leads to a block, and no live block. */
static void forget_blocks(slab_heap *h, slab_area *a)
{
    for (slab_block *b = a->bottom; b; b = b->upper) {
        if (b->use == SLAB_USED)
            (void)map_page(h, b, NULL);
        usm_store_relaxed(&b->state, USM_BLOCK_FREE);
    }
    a->area->pool_data = NULL;
}

void slab_heap_fini(slab_heap *h)
{
    usm_list *it;

    while ((it = usm_list_pop(&h->areas))) {
        slab_area *a = SLAB_AREA_OF(it);

        forget_blocks(h, a);
        h->params.areas.give(h->params.areas.source, a->area);
        slab_area_free(h, a);
    }
    slab_chunks_give(h);
    pthread_cond_destroy(&h->settled);
    pthread_mutex_destroy(&h->lock);
}
