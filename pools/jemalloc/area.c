/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The memory under jemalloc's arenas: areas of libusm, divided into pages.
 *
 * Here: taking and returning areas, finding pages for jemalloc, the map from an address to its
 * area.  Not here: blocks, limits.  Called by hooks.c, from inside jemalloc and with its locks
 * held, so every lock here is a leaf, and the source is called with none held.
 *
 * Each arena has areas of its own.  An area is as large as the request, and at least 2 MiB or a
 * quarter of the arena's memory, up to 32 MiB; its pages are found by first fit in a bitmap.  Pages
 * that jemalloc returns are free for the same arena at once.  An empty area is kept while such
 * areas are no more than `retain` bytes; otherwise it is returned.
 *
 * The map has one entry for each 2 MiB of the address space.  Areas are aligned to that, so an
 * entry belongs to one area.  It is read without a lock, by every malloc and free of any such pool.
 * Records of returned areas stay for a while (KEEP_GONE), because a second free of their last
 * block, at the same moment as the first, may have found the record already. */
#include "internal.h"

#define LARGEST_AREA ((size_t)32 << 20)
#define CHUNK_BITS   21
#define LEAF_BITS    14 /* 2^14 chunks: 32 GiB */
#define TOP_BITS     (48 - CHUNK_BITS - LEAF_BITS)
#define KEEP_GONE    16 /* for each arena */

#define AREA_OF(it) usm_container_of((it), struct usm_je_area, link)

typedef _Atomic(struct usm_je_area *) leaf_entry;

static _Atomic(leaf_entry *) map[(size_t)1 << TOP_BITS];

/* --- the map --------------------------------------------------------------------------------- */

struct usm_je_area *usm_je_area_of(const void *p)
{
    uintptr_t           chunk = (uintptr_t)p >> CHUNK_BITS;
    leaf_entry         *leaf  = NULL;
    struct usm_je_area *a     = NULL;

    if (chunk >> LEAF_BITS < (uintptr_t)1 << TOP_BITS)
        leaf = usm_load_acquire(&map[chunk >> LEAF_BITS]);
    if (leaf)
        a = usm_load_acquire(&leaf[chunk & (((uintptr_t)1 << LEAF_BITS) - 1)]);
    return a && (uintptr_t)p - a->blocks.base < a->blocks.size ? a : NULL;
}

/* Leaves are never freed: there are few, and readers take no lock. */
static leaf_entry *leaf_for(const usm_host_api *api, uintptr_t chunk)
{
    _Atomic(leaf_entry *) *at   = &map[chunk >> LEAF_BITS];
    leaf_entry            *leaf = usm_load_acquire(at), *made;

    if (leaf)
        return leaf;
    made = api->heap_alloc(((size_t)1 << LEAF_BITS) * sizeof(*made));
    if (!made || usm_cas_acq_rel(at, &leaf, made))
        return made;
    api->heap_free(made);
    return leaf;
}

/* Sets the entries of [base, base + size) to `a`, or to NULL.  False: no host memory. */
static bool map_set(const usm_host_api *api, uintptr_t base, size_t size, struct usm_je_area *a)
{
    uintptr_t first = base >> CHUNK_BITS, last = (base + size - 1) >> CHUNK_BITS;

    for (uintptr_t chunk = first; chunk <= last; chunk++)
        if (!leaf_for(api, chunk))
            return false;
    for (uintptr_t chunk = first; chunk <= last; chunk++)
        usm_store_release(&leaf_for(api, chunk)[chunk & (((uintptr_t)1 << LEAF_BITS) - 1)], a);
    return true;
}

/* --- pages ----------------------------------------------------------------------------------- */

/* The first page at or after `from` whose bit is `value`; `npages`: none. */
static size_t next_page(const struct usm_je_area *a, size_t from, bool value)
{
    uint64_t flip = value ? 0 : UINT64_MAX;

    while (from < a->npages) {
        uint64_t word = (a->pages[from / 64] ^ flip) >> from % 64;

        if (word)
            return usm_min_size(from + (size_t)__builtin_ctzll(word), a->npages);
        from = (from / 64 + 1) * 64;
    }
    return a->npages;
}

static void set_pages(struct usm_je_area *a, size_t first, size_t n, bool value)
{
    while (n) {
        size_t   here = usm_min_size(n, 64 - first % 64);
        uint64_t mask = (here == 64 ? UINT64_MAX : (UINT64_C(1) << here) - 1) << first % 64;

        if (value)
            a->pages[first / 64] |= mask;
        else
            a->pages[first / 64] &= ~mask;
        first += here;
        n -= here;
    }
}

/* Finds n free pages that start at a multiple of `align` pages; npages: none. */
static size_t find_pages(const struct usm_je_area *a, size_t n, size_t align)
{
    size_t first = 0, end;

    if (a->npages - a->used < n)
        return a->npages;
    for (;;) {
        first = usm_align_up_ptr(next_page(a, first, false), align);
        if (first >= a->npages || a->npages - first < n)
            return a->npages;
        end = next_page(a, first, true);
        if (end - first >= n)
            return first;
        first = usm_max_size(end, first + 1);
    }
}

/* Under the arena's lock.  NULL: no room. */
static void *cut(struct usm_je_area *a, size_t size, size_t align)
{
    struct usm_je_pool *p     = a->arena->pool;
    size_t              n     = size / USM_JE_PAGE;
    size_t              first = find_pages(a, n, usm_max_size(align / USM_JE_PAGE, 1));

    if (first == a->npages)
        return NULL;
    if (a->used == 0)
        usm_sub_relaxed(&p->empty, (uint64_t)a->blocks.size);
    set_pages(a, first, n, true);
    a->used += n;
    return (void *)(a->blocks.base + first * USM_JE_PAGE);
}

static void *cut_from_held(struct usm_je_arena *arena, size_t size, size_t align)
{
    void *p = NULL;

    USM_LIST_FOREACH (it, &arena->areas) {
        p = cut(AREA_OF(it), size, align);
        if (p)
            break;
    }
    return p;
}

/* --- records --------------------------------------------------------------------------------- */

static size_t page_words(size_t size)
{
    return size / USM_JE_PAGE / 64 + 1;
}

/* For an area of `size` bytes; all zero.  NULL: no host memory. */
static struct usm_je_area *make_record(const struct usm_je_pool *p, size_t size)
{
    size_t words = page_words(size) + usm_je_blocks_words(size, p->shift);

    return p->api->heap_alloc(sizeof(struct usm_je_area) + words * sizeof(uint64_t));
}

static void keep_record(struct usm_je_arena *arena, struct usm_je_area *a)
{
    usm_list *oldest = NULL;

    pthread_mutex_lock(&arena->lock);
    usm_list_append(&arena->gone, &a->link);
    if (++arena->ngone > KEEP_GONE) {
        oldest = usm_list_pop(&arena->gone);
        arena->ngone--;
    }
    pthread_mutex_unlock(&arena->lock);
    if (oldest)
        arena->pool->api->heap_free(AREA_OF(oldest));
}

/* --- areas ----------------------------------------------------------------------------------- */

static void raise_to(_Atomic(uint64_t) *peak, uint64_t now)
{
    uint64_t old = usm_load_relaxed(peak);

    while (now > old && !usm_cas_acq_rel(peak, &old, now))
        ;
}

/* Initialises the record for the area. */
static void describe(struct usm_je_area *a, struct usm_je_arena *arena, usm_area *view)
{
    uint64_t *words = (uint64_t *)(a + 1);

    a->view         = view;
    a->arena        = arena;
    a->pages        = words;
    a->npages       = view->size / USM_JE_PAGE;
    a->blocks.base  = (uintptr_t)view->base;
    a->blocks.size  = view->size;
    a->blocks.shift = arena->pool->shift;
    usm_je_blocks_init(&a->blocks, (_Atomic(uint64_t) *)(words + page_words(view->size)));
    usm_list_init(&a->link);
}

/* The area is in no list yet.  NULL with an error message. */
static struct usm_je_area *take_area(struct usm_je_arena *arena, size_t size, usm_status *status)
{
    struct usm_je_pool *p = arena->pool;
    struct usm_je_area *a = make_record(p, size);
    usm_area           *view;

    if (!a)
        goto err_none;
    *status = p->areas.take(p->areas.source, size, USM_JE_CHUNK, &view);
    if (*status)
        goto err_record;
    describe(a, arena, view);
    if (!map_set(p->api, a->blocks.base, size, a))
        goto err_area;
    view->pool_data = a;
    raise_to(&p->held_peak, usm_add_relaxed(&p->held, (uint64_t)size) + size);
    return a;

err_area:
    p->areas.give(p->areas.source, view);
    p->api->heap_free(a);
err_none:
    *status = p->api->report(USM_E_NO_MEMORY, "no host memory for the record of an area");
    return NULL;
err_record:
    p->api->heap_free(a);
    return NULL;
}

/* The area is in no list any more. */
static void give_area(struct usm_je_area *a)
{
    struct usm_je_arena *arena = a->arena;
    struct usm_je_pool  *p     = arena->pool;

    (void)map_set(p->api, a->blocks.base, a->blocks.size, NULL); /* its leaves exist */
    usm_sub_relaxed(&p->held, (uint64_t)a->blocks.size);
    p->areas.give(p->areas.source, a->view);
    keep_record(arena, a);
}

/* A quarter of the arena's memory.  Under its lock. */
static size_t next_size(const struct usm_je_arena *arena)
{
    size_t quarter = usm_align_up_ptr(arena->total / 4, USM_JE_CHUNK);

    return usm_max_size(usm_min_size(quarter, LARGEST_AREA), arena->pool->first_size);
}

/* If memory is short, takes only as much as was requested. */
static struct usm_je_area *take_some(struct usm_je_arena *arena, size_t size, usm_status *status)
{
    struct usm_je_area *a;
    size_t              wanted;

    pthread_mutex_lock(&arena->lock);
    wanted = usm_max_size(size, next_size(arena));
    pthread_mutex_unlock(&arena->lock);
    a = take_area(arena, wanted, status);
    if (!a && wanted > size && (*status == USM_E_NO_MEMORY || *status == USM_E_BUDGET))
        a = take_area(arena, size, status);
    return a;
}

/* --- for the hooks --------------------------------------------------------------------------- */

void *usm_je_arena_serve(struct usm_je_arena *arena, size_t size, size_t align, usm_status *status)
{
    struct usm_je_area *a;
    void               *p;

    if (align > USM_JE_CHUNK)
        return NULL;
    pthread_mutex_lock(&arena->lock);
    p = cut_from_held(arena, size, align);
    pthread_mutex_unlock(&arena->lock);
    if (p)
        return p;
    a = take_some(arena, size, status);
    if (!a)
        return NULL;
    usm_add_relaxed(&arena->pool->empty, (uint64_t)a->blocks.size);
    pthread_mutex_lock(&arena->lock);
    usm_list_append(&arena->areas, &a->link);
    arena->total += a->blocks.size;
    p = cut(a, size, align);
    pthread_mutex_unlock(&arena->lock);
    return p;
}

/* Under the arena's lock: takes an empty area out of the list. */
static void pull_out(struct usm_je_area *a)
{
    usm_sub_relaxed(&a->arena->pool->empty, (uint64_t)a->blocks.size);
    a->arena->total -= a->blocks.size;
    usm_list_remove(&a->link);
}

void usm_je_arena_take_back(struct usm_je_arena *arena, struct usm_je_area *a, void *p, size_t size)
{
    struct usm_je_pool *pool = arena->pool;
    bool                goes = false;

    pthread_mutex_lock(&arena->lock);
    set_pages(a, ((uintptr_t)p - a->blocks.base) / USM_JE_PAGE, size / USM_JE_PAGE, false);
    a->used -= size / USM_JE_PAGE;
    if (a->used == 0) {
        uint64_t size_of = a->blocks.size;

        goes = usm_add_relaxed(&pool->empty, size_of) + size_of > pool->retain;
        if (goes)
            pull_out(a);
    }
    pthread_mutex_unlock(&arena->lock);
    if (goes)
        give_area(a);
}

/* --- for the pool ---------------------------------------------------------------------------- */

void usm_je_arena_init(struct usm_je_arena *arena, struct usm_je_pool *pool)
{
    arena->pool = pool;
    pthread_mutex_init(&arena->lock, NULL);
    usm_list_init(&arena->areas);
    usm_list_init(&arena->gone);
}

void usm_je_arena_fini(struct usm_je_arena *arena)
{
    usm_list *it;

    while ((it = usm_list_pop(&arena->areas)))
        give_area(AREA_OF(it));
    while ((it = usm_list_pop(&arena->gone)))
        arena->pool->api->heap_free(AREA_OF(it));
    pthread_mutex_destroy(&arena->lock);
}

/* Takes an empty area out of the list; NULL: none. */
static struct usm_je_area *pull_empty(struct usm_je_arena *arena)
{
    struct usm_je_area *found = NULL;

    pthread_mutex_lock(&arena->lock);
    USM_LIST_FOREACH (it, &arena->areas) {
        if (AREA_OF(it)->used)
            continue;
        found = AREA_OF(it);
        pull_out(found);
        break;
    }
    pthread_mutex_unlock(&arena->lock);
    return found;
}

void usm_je_arena_trim(struct usm_je_arena *arena, uint64_t keep)
{
    struct usm_je_area *a;

    while (usm_load_relaxed(&arena->pool->held) > keep && (a = pull_empty(arena)))
        give_area(a);
}

static size_t largest_run(const struct usm_je_area *a)
{
    size_t largest = 0, end;

    for (size_t first = next_page(a, 0, false); first < a->npages;
         first        = next_page(a, end, false)) {
        end     = next_page(a, first, true);
        largest = usm_max_size(largest, end - first);
    }
    return largest * USM_JE_PAGE;
}

size_t usm_je_arena_largest_free(struct usm_je_arena *arena)
{
    size_t largest = 0;

    pthread_mutex_lock(&arena->lock);
    USM_LIST_FOREACH (it, &arena->areas)
        if ((AREA_OF(it)->npages - AREA_OF(it)->used) * USM_JE_PAGE > largest)
            largest = usm_max_size(largest, largest_run(AREA_OF(it)));
    pthread_mutex_unlock(&arena->lock);
    return largest;
}
