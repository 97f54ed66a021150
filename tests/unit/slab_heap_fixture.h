/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* For tests of the heap of large blocks: a heap over a source whose pages nobody can touch and that
 * checks every call: what is mapped, unmapped and given back, and how many threads grow at once.
 * Cases are run for both ways of growing: by areas, and by mapping pieces into reserved ranges. */
#ifndef SLAB_HEAP_FIXTURE_H
#define SLAB_HEAP_FIXTURE_H

#include "module_api.h"

#include "base/inline/bits.h"
#include "src/heap/page_heap.h"

#include <stdint.h>

#define KIB       ((size_t)1 << 10)
#define MIB       ((size_t)1 << 20)
#define GIB       ((size_t)1 << 30)
#define MAX_AREAS 16384
#define GRANULE   (64 * KIB)

/* --- a source -------------------------------------------------------------------------------- */

struct source_area {
    usm_area   view;   /* first */
    usm_span **pages;  /* what each page leads to */
    uint32_t  *mapped; /* by granule: bytes of the piece that begins there; ~0u inside one  */
    bool       is_range, gone;
};

static struct {
    pthread_mutex_t    lock;
    struct source_area areas[MAX_AREAS]; /* never reused: a stale one stays readable */
    size_t             count, held;
    size_t             bytes, limit;
    size_t             takes, gives, reserves, maps, unmaps;
    size_t             last_size, last_align;
    size_t             largest_range; /* reserve() refuses more; 0: no limit */
    uintptr_t          next;          /* no memory lies there: nobody may touch it */
    int                growing, most_growing;
    long               delay_ms;      /* of each take and map */
    long               give_delay_ms; /* of each give and unmap */
    slab_heap         *poke;          /* asked for its figures in each call, trimmed when full */
} source = {.lock = PTHREAD_MUTEX_INITIALIZER};

static slab_heap heap;

/* A heap that held its lock would hang. */
static void poke_heap(bool is_full)
{
    slab_heap_stats stats;

    if (!source.poke)
        return;
    slab_heap_get_stats(source.poke, &stats);
    if (is_full)
        (void)slab_heap_trim(source.poke, 0);
}

static struct source_area *new_area(size_t size, size_t align)
{
    struct source_area *a;

    CHECK(source.count < MAX_AREAS);
    a           = &source.areas[source.count++];
    source.next = usm_align_up_ptr(source.next, usm_max_size(align, SLAB_PAGE));
    a->view     = (usm_area){(void *)source.next, size, NULL};
    a->gone     = false;
    a->is_range = false;
    a->pages    = calloc(size / SLAB_PAGE + 1, sizeof(*a->pages));
    a->mapped   = calloc(size / GRANULE + 1, sizeof(*a->mapped));
    source.next += size + SLAB_PAGE;
    CHECK(a->pages && a->mapped);
    source.held++;
    return a;
}

/* With the lock. */
static bool add_bytes(size_t size)
{
    if (source.limit && source.bytes + size > source.limit)
        return false;
    source.bytes += size;
    return true;
}

static void delay(long ms)
{
    if (ms)
        module_sleep_ms(ms);
}

static void begin_growing(void)
{
    pthread_mutex_lock(&source.lock);
    if (++source.growing > source.most_growing)
        source.most_growing = source.growing;
    pthread_mutex_unlock(&source.lock);
    delay(source.delay_ms);
}

static usm_status end_growing(usm_status status)
{
    pthread_mutex_lock(&source.lock);
    source.growing--;
    pthread_mutex_unlock(&source.lock);
    if (status)
        poke_heap(true);
    return status ? usm__fail(status, "the source's own story") : USM_OK;
}

static usm_status source_take(void *arg, size_t size, size_t align, usm_area **area)
{
    usm_status status = USM_E_NO_MEMORY;

    CHECK(arg == &source && size > 0 && size % SLAB_PAGE == 0 && usm_is_pow2(align));
    poke_heap(false);
    begin_growing();
    if (usm__fault_hit("source.take", &status))
        return end_growing(status);
    pthread_mutex_lock(&source.lock);
    status = add_bytes(size) ? USM_OK : USM_E_BUDGET;
    if (!status) {
        *area             = &new_area(size, align)->view;
        source.last_size  = size;
        source.last_align = align;
        source.takes++;
    }
    pthread_mutex_unlock(&source.lock);
    return end_growing(status);
}

static usm_status source_reserve(void *arg, size_t size, usm_area **area)
{
    struct source_area *a;

    CHECK(arg == &source && size % GRANULE == 0);
    poke_heap(false);
    if (usm__fault_hit("source.reserve", NULL) ||
        (source.largest_range && size > source.largest_range))
        return usm__fail(USM_E_NO_MEMORY, "no such range");
    pthread_mutex_lock(&source.lock);
    a           = new_area(size, 2 * MIB);
    a->is_range = true;
    *area       = &a->view;
    source.reserves++;
    source.last_size = size;
    pthread_mutex_unlock(&source.lock);
    return USM_OK;
}

static usm_status source_map(void *arg, usm_area *area, size_t offset, size_t size)
{
    struct source_area *a      = (struct source_area *)area;
    usm_status          status = USM_E_NO_MEMORY;

    CHECK(arg == &source && !a->gone && size > 0 && size % GRANULE == 0 && offset % GRANULE == 0);
    CHECK(offset + size <= area->size);
    poke_heap(false);
    begin_growing();
    if (usm__fault_hit("source.map", &status))
        return end_growing(status);
    pthread_mutex_lock(&source.lock);
    status = add_bytes(size) ? USM_OK : USM_E_BUDGET;
    for (size_t i = 0; !status && i < size / GRANULE; i++) {
        CHECK(a->mapped[offset / GRANULE + i] == 0);
        a->mapped[offset / GRANULE + i] = i ? ~0u : (uint32_t)size;
    }
    source.maps += !status;
    pthread_mutex_unlock(&source.lock);
    return end_growing(status);
}

static void source_unmap(void *arg, usm_area *area, size_t offset, size_t size)
{
    struct source_area *a = (struct source_area *)area;

    CHECK(arg == &source && !a->gone);
    poke_heap(false);
    delay(source.give_delay_ms);
    pthread_mutex_lock(&source.lock);
    CHECK(a->mapped[offset / GRANULE] == size); /* what map() got */
    for (size_t i = 0; i < size / GRANULE; i++)
        a->mapped[offset / GRANULE + i] = 0;
    source.bytes -= size;
    source.unmaps++;
    pthread_mutex_unlock(&source.lock);
}

static void source_give(void *arg, usm_area *area)
{
    struct source_area *a = (struct source_area *)area;

    CHECK(arg == &source && !a->gone && !area->pool_data);
    poke_heap(false);
    delay(source.give_delay_ms);
    pthread_mutex_lock(&source.lock);
    for (size_t i = 0; i < area->size / SLAB_PAGE; i++)
        CHECK(!a->pages[i]); /* blocks still out included */
    for (size_t i = 0; i < area->size / GRANULE; i++)
        source.bytes -= a->mapped[i] != ~0u ? a->mapped[i] : 0;
    source.bytes -= a->is_range ? 0 : area->size;
    a->gone = true;
    free(a->pages);
    free(a->mapped);
    source.held--;
    source.gives++;
    pthread_mutex_unlock(&source.lock);
}

static struct source_area *area_of(uintptr_t p)
{
    for (size_t i = source.count; i-- > 0;)
        if (!source.areas[i].gone &&
            p - (uintptr_t)source.areas[i].view.base < source.areas[i].view.size)
            return &source.areas[i];
    return NULL;
}

static usm_status source_pages_set(usm_area *area, uintptr_t first, size_t n, usm_span *span)
{
    struct source_area *a;

    CHECK(n == 1 && first % SLAB_PAGE == 0);
    if (span && usm__fault_hit("source.pages", NULL))
        return usm__fail(USM_E_NO_MEMORY, "no table for pages");
    pthread_mutex_lock(&source.lock);
    a = area_of(first);
    CHECK(a == (struct source_area *)area);
    a->pages[(first - (uintptr_t)a->view.base) / SLAB_PAGE] = span;
    pthread_mutex_unlock(&source.lock);
    return USM_OK;
}

static usm_span *source_pages_get(const void *p)
{
    struct source_area *a;
    usm_span           *span = NULL;

    pthread_mutex_lock(&source.lock);
    a = area_of((uintptr_t)p);
    if (a)
        span = a->pages[((uintptr_t)p - (uintptr_t)a->view.base) / SLAB_PAGE];
    pthread_mutex_unlock(&source.lock);
    return span;
}

/* --- the heap at hand ------------------------------------------------------------------------ */

static slab_heap_params params_for(bool by_map)
{
    return (slab_heap_params){
        .api          = &module_api,
        .areas        = {.source      = &source,
                         .granularity = by_map ? GRANULE : 0,
                         .take        = source_take,
                         .give        = source_give,
                         .reserve     = source_reserve,
                         .map         = source_map,
                         .unmap       = source_unmap,
                         .pages_set   = source_pages_set},
        .kind         = USM_DEVICE,
        .maximum_size = by_map ? 2 * GIB : 0, /* ranges of 8 GiB: the source's tables are small */
        .retain       = SIZE_MAX,
    };
}

static void open_with(const slab_heap_params *params)
{
    module_start();
    source.count = source.held = source.bytes = source.limit = 0;
    source.takes = source.gives = source.reserves = source.maps = source.unmaps = 0;
    source.largest_range                                                        = 0;
    source.growing = source.most_growing = 0;
    source.delay_ms                      = 0;
    source.give_delay_ms                 = 0;
    source.next                          = (uintptr_t)1 << 40;
    CHECK_INT(slab_heap_init(&heap, params), USM_OK);
    source.poke = &heap;
}

static void open_heap(bool by_map)
{
    slab_heap_params params = params_for(by_map);

    open_with(&params);
}

static void close_heap(void)
{
    usm__fault_disarm_all();
    source.poke          = NULL;
    source.give_delay_ms = 0;
    slab_heap_fini(&heap);
    CHECK_INT(source.held, 0);
    CHECK_INT(source.bytes, 0);
    slab_heap_release_descriptors();
    module_clean();
}

static slab_heap_stats stats_now(void)
{
    slab_heap_stats s;

    CHECK(slab_heap_is_valid(&heap, source_pages_get));
    slab_heap_get_stats(&heap, &s);
    CHECK_INT(s.held, s.used + s.free);
    CHECK_INT(s.held, source.bytes);
    CHECK_INT(s.allocations - s.frees, s.used_blocks);
    CHECK(s.idle <= s.free && s.largest_free <= s.free);
    return s;
}

static void check_block(const slab_block *b, size_t size, size_t align)
{
    const struct source_area *a = (const struct source_area *)b->span.area;
    size_t                    offset;

    CHECK(b->span.base % usm_max_size(align, SLAB_PAGE) == 0 && b->span.size >= size);
    CHECK(b->span.reciprocal == 0 && usm_span_state_at(&b->span, 0) == &b->state &&
          b->span.source == &source);
    CHECK(b->span.slot == 0 && b->span.bin == 0 && b->span.kind == USM_DEVICE);
    CHECK(b->state == USM_BLOCK_FREE);
    CHECK(source_pages_get((const void *)b->span.base) == &b->span);
    CHECK(!a->gone && b->span.base >= (uintptr_t)a->view.base);
    offset = b->span.base - (uintptr_t)a->view.base;
    CHECK(offset + b->span.size <= a->view.size);
    for (size_t at = offset; a->is_range && at < offset + b->span.size; at += SLAB_PAGE)
        CHECK(a->mapped[at / GRANULE] != 0);
}

static slab_block *get_aligned(size_t size, size_t align)
{
    slab_block *b = NULL;

    CHECK_INT(slab_heap_alloc(&heap, size, align, &b), USM_OK);
    check_block(b, size, align);
    return b;
}

static slab_block *get(size_t size)
{
    return get_aligned(size, 1);
}

static void put(slab_block *b)
{
    slab_heap_free(&heap, b);
}

static size_t source_calls(void)
{
    return source.takes + source.gives + source.reserves + source.maps + source.unmaps;
}

/* --- both ways ------------------------------------------------------------------------------- */

#define BOTH(name)                                                                                 \
    static void name##_by_areas(void)                                                              \
    {                                                                                              \
        name(false);                                                                               \
    }                                                                                              \
    static void name##_by_map(void)                                                                \
    {                                                                                              \
        name(true);                                                                                \
    }
#define BOTH_CASES(name) CASE(name##_by_areas), CASE(name##_by_map)

#endif
