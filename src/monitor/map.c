/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The map of addresses in the monitor page: which parts of the memory of each pool are in use.
 *
 * Two walks over the extents of each pool.  The first finds its segments: neighbours are joined, and
 * where there are more than the pool may have, the two with the smallest gap become one.  So a pool
 * of thousands of areas has a map, too.  The second adds up, cell by cell, what there is and what is
 * used; a third over slabs takes away what is free in them.  Extents that come or go in between are
 * cut to the segments.
 *
 * The heap's lock is held for a few hundred blocks at a time, a size class's for its slabs.  What that
 * costs the program is bounded: a map is followed by a pause of so many times as long as it took. */
#include "base/inline/bits.h"
#include "base/os.h"
#include "heap/pool.h"
#include "monitor/monitor.h"

#include <string.h>

#define LEAST_SHIFT 12 /* pools cut their memory in pages  */
#define PAUSE       49 /* times the last map: 2 % of a processor */

typedef struct walk {
    usm__monitor_map *map;
    uint32_t          pools; /* that have memory, and are not mapped yet */
    uint32_t          ncells;
    /* of the pool at hand */
    uint64_t serial;
    uint32_t from, most; /* its segments begin at `from`, and may be so many */
    bool     is_unknown;
    /* bytes of each cell; used: less than 0 for a moment where a slab has come or gone meanwhile */
    int64_t held[USM__MONITOR_CELLS], used[USM__MONITOR_CELLS];
} walk;

/* ---- segments ---------------------------------------------------------------------------------- */

static void remove_segment(usm__monitor_map *m, uint32_t i)
{
    m->nsegments--;
    memmove(&m->segments[i], &m->segments[i + 1], (m->nsegments - i) * sizeof m->segments[0]);
}

/* Joins segment i with its upper neighbour. */
static void join(usm__monitor_map *m, uint32_t i)
{
    const usm__monitor_segment *u   = &m->segments[i + 1];
    uint64_t                    end = m->segments[i].base + m->segments[i].size;

    m->segments[i].size = (u->base + u->size > end ? u->base + u->size : end) - m->segments[i].base;
    remove_segment(m, i + 1);
}

static uint64_t gap_above(const usm__monitor_map *m, uint32_t i)
{
    uint64_t end = m->segments[i].base + m->segments[i].size;

    return m->segments[i + 1].base > end ? m->segments[i + 1].base - end : 0;
}

static void join_nearest(const walk *w)
{
    uint32_t best = w->from;

    for (uint32_t i = w->from + 1; i + 1 < w->map->nsegments; i++)
        if (gap_above(w->map, i) < gap_above(w->map, best))
            best = i;
    join(w->map, best);
}

/* The first segment of the pool that begins behind `base`, or where one would. */
static uint32_t place_of(const walk *w, uint64_t base)
{
    uint32_t low = w->from, high = w->map->nsegments;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (w->map->segments[middle].base > base)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* There is room for one more than the pool may have, until the nearest have been joined. */
static void add_segment(const usm__pool_extent *e, void *arg)
{
    walk             *w = arg;
    usm__monitor_map *m = w->map;
    uint32_t          i = place_of(w, e->base);

    memmove(&m->segments[i + 1], &m->segments[i], (m->nsegments - i) * sizeof m->segments[0]);
    m->segments[i] = (usm__monitor_segment){.pool = w->serial, .base = e->base, .size = e->size};
    m->nsegments++;
    if (i + 1 < m->nsegments && gap_above(m, i) == 0)
        join(m, i);
    if (i > w->from && gap_above(m, i - 1) == 0)
        join(m, i - 1);
    if (m->nsegments - w->from > w->most)
        join_nearest(w);
}

/* ---- cells ------------------------------------------------------------------------------------- */

static uint64_t cells_of(const walk *w, unsigned shift)
{
    uint64_t n = 0;

    for (uint32_t i = w->from; i < w->map->nsegments; i++)
        n += ((w->map->segments[i].size - 1) >> shift) + 1;
    return n;
}

/* Cells as small as the pool's part of the array allows; it has one for each segment at least. */
static void lay_out(walk *w)
{
    uint64_t room  = (USM__MONITOR_CELLS - w->ncells) / w->pools;
    unsigned shift = LEAST_SHIFT;

    while (cells_of(w, shift) > room)
        shift++;
    for (uint32_t i = w->from; i < w->map->nsegments; i++) {
        usm__monitor_segment *s = &w->map->segments[i];

        s->shift = shift;
        s->first = w->ncells;
        w->ncells += (uint32_t)((s->size - 1) >> shift) + 1;
    }
}

/* Adds a part of the bytes [base, base + size), spread evenly, to the cells of their segment; what
 * lies outside has come since. */
static void add_bytes(const walk *w, int64_t *sums, uint64_t base, uint64_t size, double part)
{
    uint32_t                    i = place_of(w, base);
    const usm__monitor_segment *s = &w->map->segments[i - 1];
    uint64_t                    at, end;

    if (i == w->from || base - s->base >= s->size)
        return;
    at  = base - s->base;
    end = usm_min_size(at + size, s->size);
    while (at < end) {
        uint64_t next = usm_min_size(((at >> s->shift) + 1) << s->shift, end);

        sums[s->first + (at >> s->shift)] += (int64_t)((double)(next - at) * part);
        at = next;
    }
}

static void add_extent(const usm__pool_extent *e, void *arg)
{
    walk *w = arg;

    w->is_unknown |= e->use == USM__POOL_UNKNOWN;
    add_bytes(w, w->held, e->base, e->size, 1);
    if (e->use == USM__POOL_USED)
        add_bytes(w, w->used, e->base, e->size, 1);
}

static void subtract_free(uintptr_t base, size_t size, size_t free, void *arg)
{
    walk *w = arg;

    add_bytes(w, w->used, base, size, -(double)free / (double)size);
}

/* The least and the largest value say that nothing and that all of it is used. */
static uint8_t cell_of(const walk *w, uint32_t i)
{
    int64_t held = w->held[i], used = w->used[i];

    if (held <= 0)
        return USM__MONITOR_HOLE;
    if (w->is_unknown)
        return USM__MONITOR_UNTOLD;
    if (used <= 0)
        return USM__MONITOR_FREE;
    if (used >= held)
        return USM__MONITOR_FREE + USM__MONITOR_FULL;
    return (uint8_t)(USM__MONITOR_FREE + 1 +
                     (int)((double)used / (double)held * (USM__MONITOR_FULL - 1)));
}

/* ---- all of it --------------------------------------------------------------------------------- */

/* The place of a pool that has memory; NULL: it has none, or no place. */
static usm__monitor_pool *shown_of(usm_pool *pool)
{
    if (pool->held == &pool->own_held || usm_load_relaxed(&pool->held->reserved) == 0)
        return NULL;
    return (usm__monitor_pool *)((char *)pool->held - offsetof(usm__monitor_pool, held));
}

/* Of the pools, not of the places: a place is written while its pool is being made, which nobody else
 * sees yet. */
static void count_pool(usm_pool *pool, void *arg)
{
    walk *w = arg;

    w->pools += shown_of(pool) != NULL;
}

static void map_pool(usm_pool *pool, void *arg)
{
    walk              *w = arg;
    usm__monitor_pool *p = shown_of(pool);

    /* A pool that has got its memory since they were counted has its turn in the next map. */
    if (!p || w->pools == 0)
        return;
    w->serial     = usm_load_relaxed(&p->serial);
    w->from       = w->map->nsegments;
    w->most       = (USM__MONITOR_SEGMENTS - 1 - w->from) / w->pools;
    w->is_unknown = false;
    usm__pool_each_extent(pool, add_segment, w);
    lay_out(w);
    usm__pool_each_extent(pool, add_extent, w);
    usm__pool_each_slab(pool, subtract_free, w);
    for (uint32_t i = w->from; i < w->map->nsegments; i++) {
        const usm__monitor_segment *s = &w->map->segments[i];

        for (uint32_t k = s->first; k <= s->first + ((s->size - 1) >> s->shift); k++)
            w->map->cells[k] = cell_of(w, k);
    }
    w->pools--;
}

bool usm__monitor_take_map(usm__monitor_page *page, usm__monitor_map *map)
{
    const uint64_t begin = usm__os_now_ns();
    walk          *w;

    if (page->map.taken_ns != 0 && begin - page->map.taken_ns < PAUSE * page->map.cost_ns)
        return false;
    w = usm__os_map_noreserve(sizeof *w);
    if (!w)
        return false;
    memset(map, 0, sizeof *map);
    w->map = map;
    usm__pools_each(count_pool, w);
    usm__pools_each(map_pool, w);
    (void)usm__os_unmap(w, sizeof *w);
    map->taken_ns = usm__os_now_ns();
    map->cost_ns  = map->taken_ns - begin;
    return true;
}
