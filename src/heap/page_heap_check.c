/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The heap's invariants, for tests. */
#include "heap/page_heap_private.h"

#include <base/inline/atomic.h>

struct sums {
    uint64_t held, used, free, idle, used_blocks, free_blocks;
};

static bool is_block_valid(slab_span_of *span_of, const slab_area *a, const slab_block *b)
{
    bool has_span = span_of((const void *)b->span.base) == &b->span;

    return b->home == a && b->span.area == a->area && b->span.size &&
           b->span.base % SLAB_PAGE == 0 && b->span.size % SLAB_PAGE == 0 &&
           (b->use == SLAB_USED ? b->span.states == 1 : !has_span) &&
           (b->use == SLAB_USED || usm_load_relaxed(&b->state) == USM_BLOCK_FREE);
}

static bool are_neighbours_valid(const slab_block *b)
{
    const slab_block *u = b->upper;

    if (!u)
        return SLAB_BLOCK_END(b) == b->home->base + b->home->size;
    return u->lower == b && u->span.base == SLAB_BLOCK_END(b) &&
           !(b->use == u->use && (b->use == SLAB_FREE || b->use == SLAB_HOLE));
}

static void add(const slab_heap *h, const slab_block *b, struct sums *sums)
{
    sums->used += b->use == SLAB_USED ? b->span.size : 0;
    sums->used_blocks += b->use == SLAB_USED;
    sums->free += b->use == SLAB_FREE ? b->span.size : 0;
    sums->free_blocks += b->use == SLAB_FREE;
    sums->idle += b->use == SLAB_FREE ? slab_idle_in(h, b) : 0;
    sums->held += b->use == SLAB_HOLE || b->use == SLAB_MAPPING ? 0 : b->span.size;
}

static bool is_area_valid(const slab_heap *h, slab_span_of *span_of, const slab_area *a,
                          struct sums *sums)
{
    const usm_list *hole = a->holes.next;

    if (a->bottom->lower || a->bottom->span.base != a->base || a->area->pool_data != a)
        return false;
    for (const slab_block *b = a->bottom; b; b = b->upper) {
        if (!is_block_valid(span_of, a, b) || !are_neighbours_valid(b))
            return false;
        if (b->use == SLAB_USED && (slab_index_find(a, b->span.base) != b ||
                                    slab_index_find(a, SLAB_BLOCK_END(b) - 1) != b))
            return false;
        if (b->use == SLAB_FREE && slab_index_find(a, b->span.base))
            return false;
        if (b->use == SLAB_HOLE) {
            if (hole != &b->link)
                return false;
            hole = hole->next;
        }
        add(h, b, sums);
    }
    return hole == &a->holes;
}

static bool are_bins_valid(const slab_bins *bins, uint64_t blocks)
{
    for (unsigned r = 0; r < SLAB_BIN_ROWS; r++) {
        if (!(bins->rows >> r & 1) != !bins->columns[r])
            return false;
        for (unsigned c = 0; c < 32; c++) {
            const usm_list *bin = &bins->blocks[32 * r + c];

            if (!(bins->columns[r] >> c & 1) != usm_list_is_empty(bin))
                return false;
            USM_LIST_FOREACH (it, bin)
                if (SLAB_BLOCK_OF(it)->use != SLAB_FREE ||
                    !slab_bins_is_in(SLAB_BLOCK_OF(it), r, c) || blocks-- == 0)
                    return false;
        }
    }
    return blocks == 0;
}

static bool is_valid(const slab_heap *h, slab_span_of *span_of)
{
    struct sums sums = {0};

    USM_LIST_FOREACH (it, &h->areas)
        if (!is_area_valid(h, span_of, SLAB_AREA_OF(it), &sums))
            return false;
    return h->held == sums.held && h->used == sums.used && h->free == sums.free &&
           h->idle == sums.idle && h->used_blocks == sums.used_blocks &&
           h->allocations - h->frees == sums.used_blocks &&
           are_bins_valid(&h->bins, sums.free_blocks);
}

bool slab_heap_is_valid(slab_heap *h, slab_span_of *span_of)
{
    bool valid;

    pthread_mutex_lock(&h->lock);
    valid = is_valid(h, span_of);
    pthread_mutex_unlock(&h->lock);
    return valid;
}
