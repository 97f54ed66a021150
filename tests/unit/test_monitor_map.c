/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The map of addresses in the monitor page: which cells of a pool are in use, where memory is missing,
 * pools of more areas than segments, what readers make of forged maps. */
#include "../plain.h"

#include "heap/pool.h"
#include "monitor/monitor.h"
#include "monitor/reader.h"

#include <stdatomic.h>
#include <stddef.h>

#include <usm/usm.h>

#define MIB  ((size_t)1 << 20)
#define FULL (USM__MONITOR_FREE + USM__MONITOR_FULL)

static usm__monitor_map map; /* the last one */

static usm_pool *make_pool(const char *name)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.name = name;
    CHECK(usm_pool_create(NULL, NULL, USM_DEVICE, &desc, &pool) == USM_OK);
    return pool;
}

/* The page of this process, by the place that a pool has in it. */
static usm__monitor_page *page_of(const usm_pool *pool)
{
    static usm__monitor_page copy;
    usm__monitor_reader      r;
    char                     why[USM__MONITOR_WHY];
    usm__monitor_pool       *place =
        (usm__monitor_pool *)((char *)pool->held - offsetof(usm__monitor_pool, held));

    CHECK(pool->held != &pool->own_held);
    CHECK(usm__monitor_open(&r));
    CHECK(usm__monitor_read(&r, (uint32_t)getpid(), &copy, why) == USM__MONITOR_LIVES);
    for (size_t i = 0; i < USM__MONITOR_POOLS; i++)
        if (copy.pools[i].serial == place->serial)
            return (usm__monitor_page *)((char *)(place - i) - offsetof(usm__monitor_page, pools));
    CHECK(!"the pool has a place");
    return NULL;
}

static void take(const usm_pool *pool)
{
    usm__monitor_page *page = page_of(pool);

    page->map.taken_ns = 0;
    CHECK(usm__monitor_take_map(page, &map));
    CHECK(map.taken_ns > 0 && map.cost_ns > 0);
}

static const usm__monitor_segment *segment_of(uintptr_t p)
{
    for (uint32_t i = 0; i < map.nsegments; i++)
        if (p - map.segments[i].base < map.segments[i].size)
            return &map.segments[i];
    return NULL;
}

/* The cell at p; HOLE where no segment is. */
static uint8_t cell_at(uintptr_t p)
{
    const usm__monitor_segment *s = segment_of(p);

    return s ? map.cells[s->first + ((p - s->base) >> s->shift)] : (uint8_t)USM__MONITOR_HOLE;
}

/* Bytes in use of the pool that p is in, by its cells. */
static double used_around(uintptr_t p)
{
    const uint64_t pool = segment_of(p)->pool;
    double         sum  = 0;

    for (uint32_t i = 0; i < map.nsegments; i++) {
        const usm__monitor_segment *s = &map.segments[i];

        for (uint64_t at = 0; s->pool == pool && at < s->size; at += (uint64_t)1 << s->shift) {
            uint64_t left = s->size - at, cell = (uint64_t)1 << s->shift;
            int      used = map.cells[s->first + (at >> s->shift)] - USM__MONITOR_FREE;

            sum += used > 0 ? (double)(left < cell ? left : cell) * used / USM__MONITOR_FULL : 0;
        }
    }
    return sum;
}

static void large_blocks_are_used_until_they_are_freed(void)
{
    usm_pool       *pool = make_pool("slab");
    void           *p = usm_pool_malloc(pool, 4 * MIB), *q = usm_pool_malloc(pool, 4 * MIB);
    const uintptr_t low = (uintptr_t)p, high = (uintptr_t)q;

    CHECK(p && q);
    take(pool);
    CHECK_INT(cell_at(low), FULL);
    CHECK_INT(cell_at(low + 2 * MIB), FULL);
    CHECK_INT(cell_at(high), FULL);
    usm_free(p);
    take(pool);
    CHECK_INT(cell_at(low + 2 * MIB), USM__MONITOR_FREE);
    CHECK_INT(cell_at(high + 2 * MIB), FULL);
    usm_free(q);
    CHECK(usm_pool_trim_to(pool, 0) == USM_OK);
    take(pool);
    CHECK_INT(cell_at(high + 2 * MIB), USM__MONITOR_HOLE);
    usm_pool_destroy(pool);
}

/* The addresses between two blocks, where memory has gone back to the driver. */
static void memory_that_was_returned_is_a_hole(void)
{
    usm_pool       *pool = make_pool("slab");
    void           *p = usm_pool_malloc(pool, 4 * MIB), *q = usm_pool_malloc(pool, 32 * MIB);
    void           *r  = usm_pool_malloc(pool, 4 * MIB);
    const uintptr_t at = (uintptr_t)q + 16 * MIB;

    CHECK(p && q && r);
    take(pool);
    CHECK_INT(cell_at(at), FULL);
    usm_free(q);
    CHECK(usm_pool_trim_to(pool, 0) == USM_OK);
    take(pool);
    CHECK_INT(cell_at(at), USM__MONITOR_HOLE);
    CHECK_INT(cell_at((uintptr_t)p + 2 * MIB), FULL);
    CHECK_INT(cell_at((uintptr_t)r + 2 * MIB), FULL);
    usm_pool_destroy(pool);
}

/* More blocks than are looked at under one hold of the heap's lock. */
static void thousands_of_blocks_add_up(void)
{
    enum { BLOCKS = 3000 };

    static void   *blocks[BLOCKS];
    usm_pool      *pool  = make_pool("slab");
    usm_pool_stats stats = USM_POOL_STATS_INIT;
    const size_t   size  = MIB + 8192; /* no magazine has such a block */

    for (int i = 0; i < BLOCKS; i++)
        CHECK((blocks[i] = usm_pool_malloc(pool, size)) != NULL);
    for (int i = 1; i < BLOCKS; i += 3)
        usm_free(blocks[i]);
    CHECK(usm_pool_get_stats(pool, &stats) == USM_OK);
    take(pool);
    CHECK(used_around((uintptr_t)blocks[0]) > 0.98 * (double)stats.live);
    CHECK(used_around((uintptr_t)blocks[0]) < 1.02 * (double)stats.live);
    usm_pool_destroy(pool);
}

/* A page of small blocks, most of which are free, is used in part; what threads keep is, too. */
static void small_blocks_are_a_part_of_their_slab(void)
{
    enum { BLOCKS = 4096, SIZE = 512 };

    static char *blocks[BLOCKS];
    usm_pool    *pool = make_pool("slab");
    double       full, rest;

    for (int i = 0; i < BLOCKS; i++)
        CHECK((blocks[i] = usm_pool_malloc(pool, SIZE)) != NULL);
    take(pool);
    full = used_around((uintptr_t)blocks[0]);
    CHECK(full > 0.95 * BLOCKS * SIZE);
    for (int i = 0; i < BLOCKS; i++)
        if (i % 8)
            usm_free(blocks[i]);
    CHECK(usm_pool_trim_to(pool, 0) == USM_OK); /* threads' caches give back what they keep */
    take(pool);
    rest = used_around((uintptr_t)blocks[0]);
    CHECK(rest > 0.1 * full && rest < 0.2 * full);
    CHECK(cell_at((uintptr_t)blocks[0]) > USM__MONITOR_FREE &&
          cell_at((uintptr_t)blocks[0]) < FULL);
    usm_pool_destroy(pool);
}

static void a_pool_of_more_areas_than_segments_has_a_map(void)
{
    enum { BLOCKS = 4 * USM__MONITOR_SEGMENTS };

    char     *blocks[BLOCKS];
    usm_pool *direct = make_pool("direct"), *slab = make_pool("slab");
    char     *p = usm_pool_malloc(slab, 4 * MIB);

    for (int i = 0; i < BLOCKS; i++)
        CHECK((blocks[i] = usm_pool_malloc(direct, 256 << 10)) != NULL);
    for (int i = 1; i < BLOCKS; i += 2) /* else neighbours may be one segment */
        usm_free(blocks[i]);
    take(direct);
    CHECK(map.nsegments < USM__MONITOR_SEGMENTS);
    for (int i = 0; i < BLOCKS; i += 2)
        CHECK(cell_at((uintptr_t)blocks[i]) > USM__MONITOR_FREE);
    for (uint32_t i = 1; i < map.nsegments; i++)
        CHECK(map.segments[i].pool != map.segments[i - 1].pool ||
              map.segments[i].base >= map.segments[i - 1].base + map.segments[i - 1].size);
    CHECK(p && cell_at((uintptr_t)p) ==
                   FULL); /* another pool has its part of the segments all the same */
    usm_pool_destroy(direct);
    usm_pool_destroy(slab);
}

static void what_a_module_does_not_tell_is_unknown(void)
{
    usm_pool *pool = make_pool("arena");
    char     *p    = usm_pool_malloc(pool, MIB);

    CHECK(p != NULL);
    take(pool);
    CHECK_INT(cell_at((uintptr_t)p), USM__MONITOR_UNTOLD);
    usm_pool_destroy(pool);
}

static void a_map_that_took_long_is_followed_by_a_pause(void)
{
    usm_pool          *pool = make_pool("slab");
    void              *p    = usm_pool_malloc(pool, MIB);
    usm__monitor_page *page = page_of(pool);

    CHECK(p != NULL);
    take(pool);
    page->map         = map;
    page->map.cost_ns = 60000000000; /* a minute */
    CHECK(!usm__monitor_take_map(page, &map));
    page->map.cost_ns = 0;
    CHECK(usm__monitor_take_map(page, &map));
    usm_pool_destroy(pool);
}

static atomic_bool is_done;

static void *allocate_and_free(void *arg)
{
    enum { BLOCKS = 600, ROUNDS = 20000 };

    usm_pool *pool           = arg;
    void     *blocks[BLOCKS] = {NULL};

    for (unsigned i = 0, seed = 1; i < ROUNDS; i++) {
        unsigned k = (seed = seed * 1664525u + 1013904223u) % BLOCKS;

        usm_free(blocks[k]);
        blocks[k] = usm_pool_malloc(pool, (size_t)1 << (4 + (seed >> 24) % 18));
        if (i % 2000 == 0)
            (void)usm_pool_trim_to(pool, 0);
    }
    for (unsigned k = 0; k < BLOCKS; k++)
        usm_free(blocks[k]);
    atomic_store(&is_done, true);
    return NULL;
}

/* Whatever the pool does meanwhile, the map has segments in order, and their cells. */
static void a_map_is_taken_while_others_allocate(void)
{
    usm_pool *pool = make_pool("slab");
    void     *p    = usm_pool_malloc(pool, 4 * MIB);
    pthread_t thread;
    bool      was_last;

    CHECK(p != NULL);
    CHECK(pthread_create(&thread, NULL, allocate_and_free, pool) == 0);
    do {
        uint32_t cells = 0;

        was_last = atomic_load(&is_done);
        take(pool);
        for (uint32_t i = 0; i < map.nsegments; i++) {
            CHECK_INT(map.segments[i].first, cells);
            cells += (uint32_t)((map.segments[i].size - 1) >> map.segments[i].shift) + 1;
        }
        CHECK(cells <= USM__MONITOR_CELLS);
        CHECK_INT(cell_at((uintptr_t)p + MIB), FULL); /* of what nobody touches */
    } while (!was_last);
    CHECK(pthread_join(thread, NULL) == 0);
    usm_pool_destroy(pool);
}

static void forged_maps_are_cut_off(void)
{
    static usm__monitor_page page;
    char                     why[USM__MONITOR_WHY];

    memcpy(page.magic, USM__MONITOR_MAGIC, sizeof page.magic);
    page.version         = USM__MONITOR_VERSION;
    page.size            = sizeof page;
    page.map.nsegments   = UINT32_MAX;
    page.map.segments[0] = (usm__monitor_segment){.size = 8 << 12, .shift = 12};
    page.map.segments[1] = (usm__monitor_segment){
        .size = 2 << 12, .shift = 12, .first = USM__MONITOR_CELLS - 1}; /* one cell too many */
    memset(page.map.cells, 0xff, sizeof page.map.cells);
    CHECK(usm__monitor_check(&page, sizeof page, why));
    CHECK_INT(page.map.nsegments, 1);
    CHECK_INT(page.map.cells[0], USM__MONITOR_UNTOLD);
    page.map.segments[0].shift = 64;
    CHECK(usm__monitor_check(&page, sizeof page, why));
    CHECK_INT(page.map.nsegments, 0);
}

static const plain_case cases[] = {
    CASE(large_blocks_are_used_until_they_are_freed),
    CASE(memory_that_was_returned_is_a_hole),
    CASE(thousands_of_blocks_add_up),
    CASE(small_blocks_are_a_part_of_their_slab),
    CASE(a_pool_of_more_areas_than_segments_has_a_map),
    CASE(what_a_module_does_not_tell_is_unknown),
    CASE(a_map_is_taken_while_others_allocate),
    CASE(a_map_that_took_long_is_followed_by_a_pause),
    CASE(forged_maps_are_cut_off),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
