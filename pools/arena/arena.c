/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pool `arena`: blocks are cut from the end of an area, one after the other, and all of them
 * are freed at once (usm_pool_reset), or all that are younger than a mark (usm_pool_reset_to).  For
 * work that comes in rounds: a request, a frame, a time step.
 *
 * Here: areas, the index of their blocks, reuse, marks.  Not here: the memory itself, which is
 * never accessed (it may be a device's); limits and the address map, which are the core's.  Called
 * by the core, through the table at the end.
 *
 *     area    |AAAAAA|BB|..|CCCCCCCC|DDDD|                     |
 *                                         ^ end
 *     entries  {A, size}{B, size, freed}{C, size}{D, size}        out of band, offsets ascend,
 *              number 1        2           5        6             and so do the numbers
 *
 * Each block leaves an entry in the index of its area.  Offsets only grow, so the index is sorted,
 * and a pointer is looked up by binary search.  A free only marks the entry: the answers "freed
 * before", "inside a block" and "no block" stay right until the space is needed again.  That is
 * when the next block is cut: marked entries at the end of the index are dropped first.  The space
 * of the most recent blocks, and of an area all of whose blocks were freed, is thus found again
 * without a free list.  Holes in between wait for their neighbours or for the reset.
 *
 *   end(area)  = offset + size of the last entry, 0 without entries
 *   live_count = entries that are not marked;  0: the area is free
 *   blocks     = allocations - frees = sum of live_count;  live = sum of the sizes of live entries
 *
 * Blocks are cut from the area `current`.  If a block does not fit there, the largest free area is
 * used if it is large enough; otherwise a new area is requested: 1 MiB at first, doubling up to 64
 * MiB.  A block that is larger than the next area would be gets an area of its own size.
 *
 * Areas stay until they are trimmed or memory runs short, however long they are free, because the
 * next round will need them.  `retain` and `retain_ms` are therefore not used.
 *
 * Marks.  Blocks are numbered in the order in which they are cut, over all areas, and a mark is the
 * number of the last one.  Going back to it drops the entries with higher numbers.  In each area
 * these are at its end, whichever area the blocks came from in between: the current one, one that
 * was free, or a new one.  The valid marks form a stack.  A mark has its position there, and is
 * valid while that position still has its id.  Going back to a mark removes those above it; a reset
 * removes all.
 *
 *     set A, cut, set B, cut, set C        positions  0: A   1: B   2: C
 *     go back to B                         positions  0: A   1: B              C is dropped
 *     set D, before anything is cut        positions  0: A   1: B..D           D is point B again
 *     go back to B                         positions  0: A   1: B              D is dropped
 *
 * D shares B's position, so that a loop that sets a mark and goes back to it in each iteration
 * needs one position, and not one for each iteration.  When a mark that shared a position was
 * dropped while another one there stays, as with D here, no further mark may share it: D's id would
 * count as valid.
 *
 * Rejected: size classes or a free list for the holes (the pool `slab` has these), and headers
 * before the blocks (the host may not access device memory). */
#include "arena.h"

#include <base/inline/atomic.h>
#include <base/inline/bits.h>
#include <base/inline/list.h>
#include <base/inline/pool_counts.h>

#include <pthread.h>
#include <string.h>

#define FIRST_AREA_SIZE   ((size_t)1 << 20)
#define LARGEST_AREA_SIZE ((size_t)64 << 20)
#define FIRST_INDEX_CAP   64
#define FIRST_MARKS_CAP   16
#define FREED             (~(SIZE_MAX >> 1)) /* no block is that large */

struct entry {
    size_t   offset; /* from the area's base                  */
    size_t   size;   /* the requested size; | FREED           */
    uint64_t number; /* the pool's `allocations` including it */
};

struct arena_area {
    usm_list      link;
    usm_area     *area;
    struct entry *entries;
    size_t        count, cap;
    size_t        live_count;
};

/* A point to go back to, and the ids of the marks that refer to it. */
struct place {
    uint64_t           number;      /* of the last block before it   */
    uint64_t           first, last; /* ids                           */
    struct arena_area *current;     /* NULL: none, or returned since */
    bool               is_closed;   /* ids above `last` were dropped */
};

struct arena_pool {
    usm_pool_counts counts; /* first */

    /* fixed after create */
    const usm_host_api *api;
    usm_area_source     areas;
    size_t              default_align;
    uint64_t            id; /* unique in the process */

    /* guarded by the lock of the counts, like the elements of the list */
    usm_list           list; /* of arena_area, largest first */
    struct arena_area *current;
    size_t             next_size; /* of the next area                 */
    uint64_t           held;      /* sum of the areas' sizes          */
    struct place      *places;    /* of the valid marks, oldest first */
    size_t             nplaces, places_cap;
    uint64_t           last_mark; /* the newest id                          */
    uint64_t           back_at;   /* `allocations` when the arena went back to the top mark, if
                                     nothing happened to that mark since; otherwise NOT_BACK */
};

#define NOT_BACK UINT64_MAX

static const usm_host_api *host_api;

#define AREA_OF(it) usm_container_of((it), struct arena_area, link)

/* --- entries --------------------------------------------------------------------------------- */

static bool is_freed(const struct entry *e)
{
    return (e->size & FREED) != 0;
}

static size_t entry_end(const struct entry *e)
{
    return e->offset + (e->size & ~FREED);
}

/* The number of entries that remain when the marked ones at the end are dropped. */
static size_t settled_count(const struct arena_area *a)
{
    size_t n = a->live_count ? a->count : 0;

    while (n > 0 && is_freed(&a->entries[n - 1]))
        n--;
    return n;
}

/* The maximum size of the next block, which would end where the area ends. */
static size_t room_in(const struct arena_area *a, size_t align)
{
    uintptr_t base  = (uintptr_t)a->area->base;
    size_t    n     = settled_count(a);
    size_t    end   = n ? entry_end(&a->entries[n - 1]) : 0;
    size_t    start = usm_align_up_ptr(base + end, align) - base;

    return start < a->area->size ? a->area->size - start : 0;
}

/* The entry that contains `offset`, freed or not; NULL: between blocks. */
static struct entry *find_entry(const struct arena_area *a, size_t offset)
{
    size_t low = 0, high = a->count;

    while (low < high) { /* entries before low start at offset or below it, from high on above it */
        size_t middle = low + (high - low) / 2;

        if (a->entries[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || offset >= entry_end(&a->entries[low - 1]))
        return NULL;
    return &a->entries[low - 1];
}

static bool grow_index(struct arena_pool *p, struct arena_area *a)
{
    size_t        cap     = a->cap ? a->cap * 2 : FIRST_INDEX_CAP;
    struct entry *entries = p->api->heap_alloc(cap * sizeof(*entries));

    if (!entries)
        return false;
    if (a->count)
        memcpy(entries, a->entries, a->count * sizeof(*entries));
    p->api->heap_free(a->entries);
    a->entries = entries;
    a->cap     = cap;
    return true;
}

/* --- areas ----------------------------------------------------------------------------------- */

/* Finds a free area for a block that does not fit into the current one; NULL: none. */
static struct arena_area *free_area_for(struct arena_pool *p, size_t size, size_t align)
{
    USM_LIST_FOREACH (it, &p->list) {
        struct arena_area *a = AREA_OF(it);

        if (a->live_count == 0 && room_in(a, align) >= size)
            return a;
    }
    return NULL;
}

/* Cuts a block at `offset`, where there is room for it.  False: no memory for its entry. */
static bool cut(struct arena_pool *p, struct arena_area *a, size_t size, size_t offset)
{
    a->count = settled_count(a);
    if (a->count == a->cap && !grow_index(p, a))
        return false;
    a->entries[a->count++] = (struct entry){offset, size, p->counts.allocations + 1};
    a->live_count++;
    usm_pool_counts_out(&p->counts, size);
    return true;
}

/* The next blocks come from the area with more room. */
static void prefer(struct arena_pool *p, struct arena_area *a)
{
    if (!p->current || room_in(a, p->default_align) > room_in(p->current, p->default_align))
        p->current = a;
}

/* USM_E_NOT_READY: a new area is needed. */
static usm_status cut_from_held(struct arena_pool *p, size_t size, size_t align, void **out)
{
    struct arena_area *a = p->current;
    size_t             offset;

    if (!a || room_in(a, align) < size)
        a = free_area_for(p, size, align);
    if (!a)
        return USM_E_NOT_READY;
    offset = a->area->size - room_in(a, align);
    if (!cut(p, a, size, offset))
        return USM_E_NO_MEMORY;
    if (a != p->current)
        prefer(p, a);
    *out = (char *)a->area->base + offset;
    return USM_OK;
}

/* Largest first: the order in which areas are reused. */
static void enter_area(struct arena_pool *p, struct arena_area *a)
{
    usm_list *at = p->list.next;

    while (at != &p->list && AREA_OF(at)->area->size > a->area->size)
        at = at->next;
    usm_list_append(at, &a->link); /* before `at` */
    p->held += a->area->size;
    a->area->pool_data = a;
}

/* Removes all references to the area from the marks. */
static void forget_area(struct arena_pool *p, const struct arena_area *a)
{
    if (p->current == a)
        p->current = NULL;
    for (size_t i = 0; i < p->nplaces; i++)
        if (p->places[i].current == a)
            p->places[i].current = NULL;
}

/* Moves free areas to `out` until at most `keep` bytes are held. */
static void collect_free_areas(struct arena_pool *p, uint64_t keep, usm_list *out)
{
    USM_LIST_FOREACH_SAFE (it, next, &p->list) {
        struct arena_area *a = AREA_OF(it);

        if (p->held <= keep)
            return;
        if (a->live_count)
            continue;
        forget_area(p, a);
        p->held -= a->area->size;
        a->area->pool_data = NULL;
        usm_list_remove(it);
        usm_list_append(out, it);
    }
}

/* Without the lock: the source may call anything. */
static void give_areas(struct arena_pool *p, usm_list *areas)
{
    usm_list *it;

    while ((it = usm_list_pop(areas))) {
        struct arena_area *a = AREA_OF(it);

        p->areas.give(p->areas.source, a->area);
        p->api->heap_free(a->entries);
        p->api->heap_free(a);
    }
}

static usm_status arena_trim_to(void *pool, size_t keep)
{
    struct arena_pool *p = pool;
    usm_list           out;

    usm_list_init(&out);
    pthread_mutex_lock(&p->counts.lock);
    collect_free_areas(p, keep, &out);
    pthread_mutex_unlock(&p->counts.lock);
    give_areas(p, &out);
    return USM_OK;
}

static bool is_full_answer(usm_status status)
{
    return status == USM_E_NO_MEMORY || status == USM_E_BUDGET;
}

static usm_status no_host_memory(const struct arena_pool *p)
{
    return p->api->report(USM_E_NO_MEMORY, "no host memory for the index of an arena's blocks");
}

/* Takes an area for at least one block of `size`.  If memory is short, free areas of the pool are
 * returned first, and only as much as the block needs is requested.  No lock is held. */
static usm_status take_area(struct arena_pool *p, size_t size, size_t align, usm_area **area)
{
    size_t     wanted;
    usm_status status;

    pthread_mutex_lock(&p->counts.lock);
    wanted = usm_max_size(size, p->next_size);
    pthread_mutex_unlock(&p->counts.lock);

    status = p->areas.take(p->areas.source, wanted, align, area);
    if (!is_full_answer(status))
        return status;
    (void)arena_trim_to(p, 0);
    return p->areas.take(p->areas.source, size, align, area);
}

static usm_status malloc_in_new_area(struct arena_pool *p, size_t size, size_t align, void **out)
{
    struct arena_area *a = p->api->heap_alloc(sizeof(*a));
    usm_status         status;

    if (!a || !grow_index(p, a)) {
        p->api->heap_free(a);
        return no_host_memory(p);
    }
    status = take_area(p, size, align, &a->area);
    if (status) {
        p->api->heap_free(a->entries);
        p->api->heap_free(a);
        return status;
    }
    pthread_mutex_lock(&p->counts.lock);
    enter_area(p, a);
    if (size <= p->next_size && p->next_size < LARGEST_AREA_SIZE)
        p->next_size = usm_min_size(p->next_size * 2, LARGEST_AREA_SIZE);
    (void)cut(p, a, size, 0); /* there is room: the area is aligned, its index has entries */
    prefer(p, a);
    *out = a->area->base;
    pthread_mutex_unlock(&p->counts.lock);
    return USM_OK;
}

/* --- the interface --------------------------------------------------------------------------- */

static usm_status arena_create(const usm_pool_params *params, void **pool)
{
    static _Atomic(uint64_t) last_id;
    struct arena_pool       *p = host_api->heap_alloc(sizeof(*p));

    if (!p)
        return host_api->report(USM_E_NO_MEMORY, "no host memory for a pool");
    if (params->options && params->options[0])
        host_api->log(USM_LOG_WARN, "the pool `arena` takes no options: \"%s\" is ignored",
                      params->options);
    p->api           = params->api;
    p->areas         = params->areas;
    p->default_align = usm_max_size(params->default_align, 1);
    p->next_size     = params->area_size ? params->area_size : FIRST_AREA_SIZE;
    p->id            = usm_add_relaxed(&last_id, 1) + 1;
    p->back_at       = NOT_BACK;
    pthread_mutex_init(&p->counts.lock, NULL);
    usm_list_init(&p->list);
    *pool = p;
    return USM_OK;
}

static void arena_destroy(void *pool)
{
    struct arena_pool *p = pool;

    give_areas(p, &p->list);
    p->api->heap_free(p->places);
    pthread_mutex_destroy(&p->counts.lock);
    p->api->heap_free(p);
}

static usm_status arena_malloc(void *pool, size_t size, size_t align, void **out)
{
    struct arena_pool *p = pool;
    usm_status         status;

    if (size >= FREED)
        return p->api->report(USM_E_NO_MEMORY, "%zu bytes are more than there can be", size);
    align = usm_max_size(align, p->default_align);
    pthread_mutex_lock(&p->counts.lock);
    status = cut_from_held(p, size, align, out);
    pthread_mutex_unlock(&p->counts.lock);
    if (status == USM_E_NOT_READY)
        return malloc_in_new_area(p, size, align, out);
    return status ? no_host_memory(p) : USM_OK;
}

static usm_status mark_freed(struct arena_pool *p, const usm_area *area, size_t offset)
{
    struct arena_area *a = area->pool_data;
    struct entry      *e = a ? find_entry(a, offset) : NULL;

    if (!e || (is_freed(e) && e->offset != offset))
        return USM_E_INVALID_POINTER;
    if (is_freed(e))
        return USM_E_DOUBLE_FREE;
    if (e->offset != offset)
        return USM_E_INTERIOR_POINTER;
    usm_pool_counts_in(&p->counts, e->size);
    a->live_count--;
    e->size |= FREED;
    return USM_OK;
}

static usm_status arena_free(void *pool, usm_area *area, void *ptr)
{
    struct arena_pool *p = pool;
    usm_status         status;

    pthread_mutex_lock(&p->counts.lock);
    status = mark_freed(p, area, (uintptr_t)ptr - (uintptr_t)area->base);
    pthread_mutex_unlock(&p->counts.lock);
    return status ? usm_pool_refuse(p->api, status, ptr) : USM_OK;
}

static usm_status arena_block(void *pool, usm_area *area, const void *ptr, usm_block *block)
{
    struct arena_pool *p     = pool;
    struct entry       found = {0, FREED, 0};
    struct entry      *e     = NULL;

    pthread_mutex_lock(&p->counts.lock);
    if (area->pool_data)
        e = find_entry(area->pool_data, (uintptr_t)ptr - (uintptr_t)area->base);
    if (e)
        found = *e;
    pthread_mutex_unlock(&p->counts.lock);
    if (is_freed(&found))
        return usm_pool_refuse(p->api, USM_E_INVALID_POINTER, ptr);
    *block = (usm_block){(char *)area->base + found.offset, found.size};
    return USM_OK;
}

static usm_status arena_reset(void *pool)
{
    struct arena_pool *p = pool;

    pthread_mutex_lock(&p->counts.lock);
    USM_LIST_FOREACH (it, &p->list) {
        AREA_OF(it)->count      = 0;
        AREA_OF(it)->live_count = 0;
    }
    p->current = usm_list_is_empty(&p->list) ? NULL : AREA_OF(p->list.next);
    p->nplaces = 0;
    p->back_at = NOT_BACK;
    p->counts.frees += p->counts.blocks;
    p->counts.blocks = 0;
    p->counts.live   = 0;
    pthread_mutex_unlock(&p->counts.lock);
    return USM_OK;
}

/* --- marks ----------------------------------------------------------------------------------- */

enum { MARK_POOL, MARK_ID, MARK_PLACE }; /* the words of a mark */

static bool grow_places(struct arena_pool *p)
{
    size_t        cap    = p->places_cap ? p->places_cap * 2 : FIRST_MARKS_CAP;
    struct place *places = p->api->heap_alloc(cap * sizeof(*places));

    if (!places)
        return false;
    if (p->nplaces)
        memcpy(places, p->places, p->nplaces * sizeof(*places));
    p->api->heap_free(p->places);
    p->places     = places;
    p->places_cap = cap;
    return true;
}

/* Returns the position for a new mark; NULL: no memory. */
static struct place *place_mark(struct arena_pool *p)
{
    if (p->nplaces && p->back_at == p->counts.allocations && !p->places[p->nplaces - 1].is_closed)
        return &p->places[p->nplaces - 1];
    if (p->nplaces == p->places_cap && !grow_places(p))
        return NULL;
    p->places[p->nplaces] = (struct place){
        .number = p->counts.allocations, .first = p->last_mark + 1, .current = p->current};
    return &p->places[p->nplaces++];
}

static usm_status arena_mark(void *pool, usm_pool_mark *mark)
{
    struct arena_pool *p   = pool;
    usm_pool_mark      set = {{p->id, 0, 0, 0}};
    struct place      *at;

    pthread_mutex_lock(&p->counts.lock);
    at = place_mark(p);
    if (at) {
        at->last               = ++p->last_mark;
        set.opaque[MARK_ID]    = at->last;
        set.opaque[MARK_PLACE] = (uint64_t)(at - p->places);
        p->back_at             = NOT_BACK;
    }
    pthread_mutex_unlock(&p->counts.lock);
    if (!at)
        return p->api->report(USM_E_NO_MEMORY, "no host memory for a mark of an arena");
    *mark = set;
    return USM_OK;
}

/* Drops the entries with numbers above `number`. */
static void drop_younger(struct arena_pool *p, struct arena_area *a, uint64_t number)
{
    while (a->count && a->entries[a->count - 1].number > number) {
        struct entry *e = &a->entries[--a->count];

        if (is_freed(e))
            continue;
        a->live_count--;
        usm_pool_counts_in(&p->counts, e->size);
    }
}

/* NULL: the mark is not valid (any more). */
static struct place *find_place(struct arena_pool *p, const usm_pool_mark *mark)
{
    uint64_t i = mark->opaque[MARK_PLACE], id = mark->opaque[MARK_ID];

    if (i >= p->nplaces || id < p->places[i].first || id > p->places[i].last)
        return NULL;
    return &p->places[i];
}

static void go_back(struct arena_pool *p, struct place *at, uint64_t id)
{
    USM_LIST_FOREACH (it, &p->list)
        drop_younger(p, AREA_OF(it), at->number);
    at->is_closed |= id < at->last;
    at->last   = id;
    p->nplaces = (size_t)(at - p->places) + 1;
    p->back_at = p->counts.allocations;
    if (at->current)
        p->current = at->current;
}

static usm_status arena_reset_to(void *pool, const usm_pool_mark *mark)
{
    struct arena_pool *p  = pool;
    struct place      *at = NULL;

    if (mark->opaque[MARK_POOL] != p->id)
        return p->api->report(USM_E_INVALID, "the mark is of another pool: each pool goes back "
                                             "to marks of its own only");
    pthread_mutex_lock(&p->counts.lock);
    at = find_place(p, mark);
    if (at)
        go_back(p, at, mark->opaque[MARK_ID]);
    pthread_mutex_unlock(&p->counts.lock);
    if (!at)
        return p->api->report(USM_E_INVALID,
                              "the mark was dropped by a reset, or by going back to one that was "
                              "set before it: set a new one");
    return USM_OK;
}

/* --- statistics ------------------------------------------------------------------------------ */

/* Over the areas that the next block may come from. */
static size_t largest_free(const struct arena_pool *p)
{
    size_t largest = 0;

    USM_LIST_FOREACH (it, &p->list) {
        const struct arena_area *a = AREA_OF(it);

        if (a == p->current || a->live_count == 0)
            largest = usm_max_size(largest, room_in(a, p->default_align));
    }
    return largest;
}

static void arena_get_stats(void *pool, usm_pool_stats *stats)
{
    struct arena_pool *p = pool;

    pthread_mutex_lock(&p->counts.lock);
    usm_pool_counts_get(&p->counts, largest_free(p), stats);
    pthread_mutex_unlock(&p->counts.lock);
}

static const usm_pool_ops arena_ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(usm_pool_ops),
    .name        = "arena",
    .caps        = USM_POOL_CAP_RESET | USM_POOL_CAP_MARK,
    .create      = arena_create,
    .destroy     = arena_destroy,
    .malloc      = arena_malloc,
    .free        = arena_free,
    .block       = arena_block,
    .trim_to     = arena_trim_to,
    .get_stats   = arena_get_stats,
    .reset_peaks = usm_pool_counts_reset_peaks,
    .fork        = usm_pool_counts_fork,
    .reset       = arena_reset,
    .mark        = arena_mark,
    .reset_to    = arena_reset_to,
};

const usm_pool_ops *usm_arena_pool_entry(const usm_host_api *api)
{
    host_api = api;
    return &arena_ops;
}
