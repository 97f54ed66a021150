/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the pools `direct` and `arena` promise to the core (usm/pool_ops.h), over a source of areas
 * whose pages nobody can touch: a pool that did would die. */
#include "module_api.h"

#include "pools/arena/arena.h"
#include "pools/direct/direct.h"

#include <sys/mman.h>

#define KIB       ((size_t)1 << 10)
#define MIB       ((size_t)1 << 20)
#define MAX_AREAS 4096

/* --- a source -------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    usm_area        areas[MAX_AREAS]; /* never reused: a stale one stays readable, as in the core */
    size_t          count;            /* taken so far */
    size_t          held;             /* areas not given back */
    size_t          bytes, limit;
    usm_status      full; /* the answer beyond the limit */
    size_t          last_size, last_align;
    /* asked for its figures in each call: a pool that held its lock would hang */
    const usm_pool_ops *ops;
    void               *pool;
} source = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void poke_pool(void)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    if (source.pool)
        source.ops->get_stats(source.pool, &stats);
}

static void *reserve(size_t size, size_t align)
{
    size_t room = align > 4096 ? align : 0; /* what is not used of it goes at the process's end */
    uintptr_t base = (uintptr_t)mmap(NULL, size + room, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(base != (uintptr_t)MAP_FAILED);
    return (void *)(room ? (base + align - 1) & ~(uintptr_t)(align - 1) : base);
}

static usm_status source_take(void *arg, size_t size, size_t align, usm_area **area)
{
    usm_status full = USM_E_NO_MEMORY;
    void      *base;

    CHECK(arg == &source);
    poke_pool();
    if (usm__fault_hit("source.take", &full))
        return usm__fail(full, "the source is full for a test");
    base = reserve(size, align);
    pthread_mutex_lock(&source.lock);
    if (source.limit && source.bytes + size > source.limit) {
        pthread_mutex_unlock(&source.lock);
        CHECK(munmap(base, size) == 0);
        return usm__fail(source.full, "the source's limit");
    }
    CHECK(source.count < MAX_AREAS);
    *area             = &source.areas[source.count++];
    **area            = (usm_area){base, size, NULL};
    source.last_size  = size;
    source.last_align = align;
    source.held++;
    source.bytes += size;
    pthread_mutex_unlock(&source.lock);
    return USM_OK;
}

static void source_give(void *arg, usm_area *area)
{
    CHECK(arg == &source);
    poke_pool();
    CHECK(munmap(area->base, area->size) == 0);
    pthread_mutex_lock(&source.lock);
    source.held--;
    source.bytes -= area->size;
    pthread_mutex_unlock(&source.lock);
}

/* As the core's address map; areas that were given back do not count, unless nothing else fits. */
static usm_area *area_of(const void *p)
{
    usm_area *found = NULL;

    pthread_mutex_lock(&source.lock);
    for (size_t i = source.count; i-- > 0 && !found;)
        if ((uintptr_t)p - (uintptr_t)source.areas[i].base < source.areas[i].size)
            found = &source.areas[i];
    pthread_mutex_unlock(&source.lock);
    CHECK(found != NULL);
    return found;
}

/* --- the pool at hand ------------------------------------------------------------------------ */

static const usm_pool_ops *ops;
static void               *pool;

static usm_pool_params params_for(size_t area_size, const char *options)
{
    return (usm_pool_params){
        .struct_size   = sizeof(usm_pool_params),
        .api           = &module_api,
        .areas         = {&source, source_take, source_give},
        .kind          = USM_DEVICE,
        .default_align = 64,
        .area_size     = area_size,
        .options       = options,
    };
}

static void open_pool(const usm_pool_ops *which, size_t area_size)
{
    usm_pool_params params = params_for(area_size, NULL);

    module_start();
    source.count = source.held = source.bytes = source.limit = 0;
    source.full                                              = USM_E_NO_MEMORY;
    ops                                                      = which;
    CHECK_INT(ops->create(&params, &pool), USM_OK);
    source.ops  = ops;
    source.pool = pool;
}

static void open_direct(void)
{
    open_pool(usm_direct_pool_entry(&module_api), 0);
}

static void open_arena(size_t area_size)
{
    open_pool(usm_arena_pool_entry(&module_api), area_size);
}

static void close_pool(void)
{
    usm__fault_disarm_all();
    source.pool = NULL;
    ops->destroy(pool);
    CHECK_INT(source.held, 0);
    CHECK_INT(source.bytes, 0);
    module_clean();
}

static char *get(size_t size, size_t align)
{
    void *p = NULL;

    CHECK_INT(ops->malloc(pool, size, align, &p), USM_OK);
    CHECK(p != NULL);
    CHECK_INT((uintptr_t)p % (align ? align : 64), 0);
    return p;
}

static usm_status put(void *p)
{
    return ops->free(pool, area_of(p), p);
}

static usm_pool_stats stats_now(void)
{
    usm_pool_stats s = USM_POOL_STATS_INIT;

    ops->get_stats(pool, &s);
    CHECK_INT(s.blocks, s.allocations - s.frees);
    CHECK(s.live_peak >= s.live);
    return s;
}

static usm_status block_of(const void *p, usm_block *b)
{
    return ops->block(pool, area_of(p), p, b);
}

/* --- direct ---------------------------------------------------------------------------------- */

static void direct_takes_an_area_for_each_block(void)
{
    void *a, *b;

    open_direct();
    a = get(100, 0);
    CHECK_INT(source.last_size, 100);
    CHECK_INT(source.last_align, 64);
    b = get(5 * MIB, 2 * MIB);
    CHECK_INT(source.last_align, 2 * MIB);
    CHECK_INT(source.held, 2);
    CHECK(a == area_of(a)->base && b == area_of(b)->base);
    CHECK_INT(put(a), USM_OK);
    CHECK_INT(source.held, 1);
    CHECK_INT(put(b), USM_OK);
    CHECK_INT(source.held, 0);
    close_pool();
}

static void direct_counts_exactly(void)
{
    void          *a, *b;
    usm_pool_stats s;

    open_direct();
    a = get(1000, 0);
    b = get(3000, 0);
    CHECK_INT(put(a), USM_OK);
    s = stats_now();
    CHECK_INT(s.live, 3000);
    CHECK_INT(s.live_peak, 4000);
    CHECK_INT(s.blocks, 1);
    CHECK_INT(s.allocations, 2);
    CHECK_INT(s.frees, 1);
    CHECK_INT(s.largest_free, 0);
    ops->reset_peaks(pool);
    CHECK_INT(stats_now().live_peak, 3000);
    CHECK_INT(put(b), USM_OK);
    close_pool();
}

static void direct_refuses_interior_and_second_frees(void)
{
    char *a;

    open_direct();
    a = get(1000, 0);
    CHECK_INT(put(a + 1), USM_E_INTERIOR_POINTER);
    CHECK_IN("start", usm_last_error());
    CHECK_INT(put(a + 999), USM_E_INTERIOR_POINTER);
    CHECK_INT(stats_now().blocks, 1);
    CHECK_INT(put(a), USM_OK);
    CHECK_INT(put(a), USM_E_DOUBLE_FREE);
    CHECK_INT(stats_now().frees, 1);
    close_pool();
}

static void direct_finds_the_block_of_interior_pointers(void)
{
    char     *a;
    usm_block b = {NULL, 0};

    open_direct();
    a = get(1000, 0);
    CHECK_INT(block_of(a + 999, &b), USM_OK);
    CHECK(b.base == a && b.size == 1000);
    CHECK_INT(put(a), USM_OK);
    CHECK_INT(block_of(a, &b), USM_E_INVALID_POINTER);
    close_pool();
}

static void direct_gives_blocks_back_that_are_out_at_its_end(void)
{
    open_direct();
    (void)get(1, 0);
    (void)get(2, 0);
    CHECK_INT(source.held, 2);
    close_pool(); /* checks */
}

static void direct_hands_the_sources_refusal_on(void)
{
    void *p = &source;

    open_direct();
    source.limit = 100;
    CHECK_INT(ops->malloc(pool, 101, 0, &p), USM_E_NO_MEMORY);
    source.full = USM_E_BUDGET;
    CHECK_INT(ops->malloc(pool, 101, 0, &p), USM_E_BUDGET);
    CHECK(p == &source);
    CHECK_INT(stats_now().allocations, 0);
    close_pool();
}

/* --- arena: cutting -------------------------------------------------------------------------- */

static void arena_cuts_blocks_one_behind_the_other(void)
{
    char *a, *b, *c;

    open_arena(0);
    a = get(100, 0);
    b = get(1, 0);
    c = get(64, 0);
    CHECK_INT(b - a, 128);
    CHECK_INT(c - b, 64);
    CHECK_INT(source.held, 1);
    CHECK_INT(source.last_size, MIB);
    close_pool();
}

static void arena_honours_alignments_up_to_2_mib(void)
{
    open_arena(0);
    for (size_t align = 1; align <= 2 * MIB; align *= 2) {
        char *odd = get(3, 1);
        char *p   = get(5, align);

        CHECK(p >= odd + 3 || p + 5 <= odd);
    }
    close_pool();
}

static void arena_doubles_its_areas_up_to_64_mib(void)
{
    static const size_t sizes[] = {1, 2, 4, 8, 16, 32, 64, 64};

    open_arena(0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CHECK_INT(source.held, i);
        (void)get(sizes[i] * MIB - 4 * KIB, 0);
        CHECK_INT(source.last_size, sizes[i] * MIB);
        (void)get(4 * KIB, 0); /* full to the brim */
        CHECK_INT(source.held, i + 1);
    }
    close_pool();
    open_arena(48 * MIB);
    (void)get(48 * MIB, 0);
    (void)get(1, 0);
    CHECK_INT(source.last_size, 64 * MIB);
    close_pool();
}

static void arena_gives_large_blocks_an_area_of_their_own(void)
{
    char *a, *b;

    open_arena(64 * KIB);
    a = get(16, 0);
    (void)get(200 * KIB, 0);
    CHECK_INT(source.last_size, 200 * KIB);
    b = get(16, 0);
    CHECK_INT(b - a, 64); /* the area at hand stayed */
    (void)get(64 * KIB, 0);
    CHECK_INT(source.last_size, 128 * KIB); /* and its successor did not grow for it */
    close_pool();
}

static void arena_refuses_what_no_index_can_hold(void)
{
    void *p = &source;

    open_arena(0);
    CHECK_INT(ops->malloc(pool, SIZE_MAX, 0, &p), USM_E_NO_MEMORY);
    CHECK_INT(ops->malloc(pool, SIZE_MAX / 2 + 1, 2 * MIB, &p), USM_E_NO_MEMORY);
    CHECK(p == &source);
    CHECK_INT(source.count, 0);
    close_pool();
}

/* --- arena: pointers ------------------------------------------------------------------------- */

static void arena_tells_wrong_pointers_apart(void)
{
    char *a, *b;

    open_arena(0);
    a = get(100, 0);
    b = get(100, 0);
    CHECK_INT(put(a + 1), USM_E_INTERIOR_POINTER);
    CHECK_INT(put(a + 110), USM_E_INVALID_POINTER); /* between two blocks */
    CHECK_INT(put(b + 100), USM_E_INVALID_POINTER); /* behind the last */
    CHECK_INT(put(a), USM_OK);
    CHECK_INT(put(a), USM_E_DOUBLE_FREE);
    CHECK_IN("before", usm_last_error());
    CHECK_INT(put(a + 1), USM_E_INVALID_POINTER); /* inside one that is free */
    CHECK_INT(put(b), USM_OK);
    CHECK_INT(put(b), USM_E_DOUBLE_FREE); /* also of the last one */
    CHECK_INT(stats_now().frees, 2);
    close_pool();
}

static void arena_finds_blocks_by_halving(void)
{
    char     *p[1000];
    usm_block b;

    open_arena(0);
    for (size_t i = 0; i < 1000; i++)
        p[i] = get(1 + i % 77, 0);
    for (size_t i = 0; i < 1000; i++) {
        CHECK_INT(block_of(p[i] + i % 77, &b), USM_OK);
        CHECK(b.base == p[i]);
        CHECK_INT(b.size, 1 + i % 77);
    }
    CHECK_INT(put(p[500]), USM_OK);
    CHECK_INT(block_of(p[500], &b), USM_E_INVALID_POINTER);
    CHECK(b.base == p[999]); /* untouched */
    CHECK_INT(block_of(p[501], &b), USM_OK);
    close_pool();
}

/* --- arena: reuse ---------------------------------------------------------------------------- */

static void arena_finds_the_space_of_the_last_blocks_again(void)
{
    char *a, *b, *c;

    open_arena(0);
    (void)get(1000, 0);
    b = get(1000, 0);
    c = get(1000, 0);
    CHECK_INT(put(b), USM_OK);
    CHECK(get(10, 0) > c); /* a hole waits for its neighbour */
    close_pool();
    open_arena(0);
    a = get(1000, 0);
    b = get(1000, 0);
    c = get(1000, 0);
    CHECK_INT(put(b), USM_OK);
    CHECK_INT(put(c), USM_OK);
    CHECK(get(10, 0) == b);
    CHECK(a < b);
    close_pool();
}

static void arena_takes_areas_into_use_again_when_all_is_freed(void)
{
    char *p[8];

    open_arena(64 * KIB);
    for (int round = 0; round < 100; round++) {
        for (size_t i = 0; i < 8; i++)
            p[i] = get(40 * KIB, 0);
        for (size_t i = 0; i < 8; i++)
            CHECK_INT(put(p[i]), USM_OK);
    }
    CHECK(source.count < 8); /* the first round's */
    close_pool();
}

static void arena_reset_forgets_blocks_and_keeps_areas(void)
{
    char          *small, *large;
    usm_block      b;
    usm_pool_stats s;

    open_arena(64 * KIB);
    large = get(200 * KIB, 0);
    small = get(60 * KIB, 0);
    CHECK_INT(ops->reset(pool), USM_OK);
    CHECK_INT(block_of(small, &b), USM_E_INVALID_POINTER);
    CHECK_INT(put(small), USM_E_INVALID_POINTER);
    s = stats_now();
    CHECK_INT(s.live, 0);
    CHECK_INT(s.blocks, 0);
    CHECK_INT(s.frees, 2);
    CHECK_INT(source.held, 2);
    CHECK(get(10 * KIB, 0) == large); /* largest first */
    (void)get(191 * KIB, 0);
    CHECK_INT(source.count, 3); /* what is left fits into neither */
    CHECK_INT(ops->reset(pool), USM_OK);
    close_pool();
}

static void arena_trim_gives_free_areas_back(void)
{
    char *a, *b, *c;

    open_arena(64 * KIB);
    a = get(64 * KIB, 0);
    b = get(128 * KIB, 0);
    c = get(256 * KIB, 0);
    CHECK_INT(ops->trim_to(pool, 0), USM_OK);
    CHECK_INT(source.held, 3); /* all in use */
    CHECK_INT(put(c), USM_OK);
    CHECK_INT(put(a), USM_OK);
    CHECK_INT(ops->trim_to(pool, 448 * KIB), USM_OK);
    CHECK_INT(source.bytes, 448 * KIB); /* that much is allowed */
    CHECK_INT(ops->trim_to(pool, 200 * KIB), USM_OK);
    CHECK_INT(source.bytes, 192 * KIB);
    CHECK_INT(ops->trim_to(pool, 0), USM_OK);
    CHECK_INT(source.bytes, 128 * KIB); /* b is live */
    CHECK_INT(put(b), USM_OK);
    CHECK_INT(ops->reset(pool), USM_OK);
    CHECK_INT(ops->trim_to(pool, 0), USM_OK);
    CHECK_INT(source.held, 0);
    (void)get(100, 0); /* and it goes on */
    close_pool();
}

static void arena_makes_room_and_asks_for_less_when_memory_is_short(void)
{
    char *idle;
    void *p = &source;

    open_arena(64 * KIB);
    source.limit = 200 * KIB;
    source.full  = USM_E_BUDGET;
    idle         = get(64 * KIB, 0);
    CHECK_INT(put(idle), USM_OK);
    (void)get(150 * KIB, 0); /* fits only without the idle area */
    CHECK_INT(source.bytes, 150 * KIB);
    (void)get(20 * KIB, 0); /* a whole area would be too much */
    CHECK_INT(source.bytes, 170 * KIB);
    CHECK_INT(ops->malloc(pool, 31 * KIB, 0, &p), USM_E_BUDGET);
    CHECK(p == &source);
    close_pool();
}

static void arena_knows_its_largest_free_block(void)
{
    size_t largest;

    open_arena(64 * KIB);
    (void)get(10000, 0);
    (void)get(200 * KIB, 0);
    largest = stats_now().largest_free;
    CHECK_INT(largest, 64 * KIB - 10048); /* aligned to 64 */
    (void)get(largest, 0);
    CHECK_INT(source.count, 2);
    CHECK_INT(stats_now().largest_free, 0);
    (void)get(1, 1);
    CHECK_INT(source.count, 3);
    close_pool();
}

/* --- both ------------------------------------------------------------------------------------ */

static void for_both(void (*check)(void))
{
    open_direct();
    check();
    close_pool();
    open_arena(64 * KIB);
    check();
    close_pool();
}

/* A model: the live blocks.  Checks every answer against it. */
static void random_calls_agree_with_a_model(void)
{
    enum { SLOTS = 64 };
    struct {
        char  *p;
        size_t size;
    } slot[SLOTS]      = {{NULL, 0}};
    unsigned long seed = 12345;
    uint64_t      live = 0;

    for (int step = 0; step < 3000; step++) {
        usm_block b;
        size_t    i, n;

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        i    = (seed >> 33) % SLOTS;
        n    = 1 + (seed >> 40) % 5000;
        if (slot[i].p) {
            CHECK_INT(block_of(slot[i].p + slot[i].size - 1, &b), USM_OK);
            CHECK(b.base == slot[i].p && b.size == slot[i].size);
            CHECK_INT(put(slot[i].p), USM_OK);
            live -= slot[i].size;
            slot[i].p = NULL;
        } else {
            slot[i].p    = get(n, (size_t)1 << (seed >> 50) % 13);
            slot[i].size = n;
            live += n;
            for (size_t k = 0; k < SLOTS; k++)
                CHECK(k == i || !slot[k].p || slot[i].p + n <= slot[k].p ||
                      slot[k].p + slot[k].size <= slot[i].p);
        }
        CHECK_INT(stats_now().live, live);
    }
}

static void both_agree_with_a_model(void)
{
    for_both(random_calls_agree_with_a_model);
}

static usm_status try_get(size_t i, char **p)
{
    uint64_t   blocks = stats_now().blocks;
    void      *q      = NULL;
    usm_status status = ops->malloc(pool, 3000, 0, &q);

    *p = q;
    CHECK_INT(stats_now().blocks, blocks + (status == USM_OK));
    if (!status && i % 3 == 0)
        CHECK_INT(put(q), USM_OK);
    if (!status)
        return USM_OK;
    CHECK_INT(status, USM_E_NO_MEMORY);
    CHECK(q == NULL);
    CHECK(usm_last_error()[0] != 0);
    return status;
}

/* A whole life under failures: everything may fail, nothing may be lost. */
static bool life_passes(void)
{
    usm_pool_params params = params_for(64 * KIB, NULL);
    char           *p;
    usm_status      status = ops->create(&params, &pool);

    if (status) {
        CHECK_INT(status, USM_E_NO_MEMORY);
        return false;
    }
    source.ops  = ops;
    source.pool = pool;
    for (size_t i = 0; i < 100 && !status; i++)
        status = try_get(i, &p);
    source.pool = NULL;
    ops->destroy(pool);
    CHECK_INT(source.held, 0);
    CHECK_INT(module.heap_blocks, 0);
    return status == USM_OK;
}

/* The n-th call and all after it fail: what was asked again must fail as well. */
static void sweep(const usm_pool_ops *which, const char *point)
{
    uint64_t n = 1;

    module_start();
    ops          = which;
    source.limit = 0;
    for (;; n++) {
        bool passed;

        source.count = 0;
        CHECK(usm__fault_arm(point, n, true, USM_OK));
        passed = life_passes();
        usm__fault_disarm_all();
        if (passed)
            break;
    }
    CHECK(n > 3); /* there was something to fail */
}

static void both_survive_each_failure(void)
{
    sweep(usm_direct_pool_entry(&module_api), "heap.alloc");
    sweep(usm_direct_pool_entry(&module_api), "source.take");
    sweep(usm_arena_pool_entry(&module_api), "heap.alloc");
    sweep(usm_arena_pool_entry(&module_api), "source.take");
}

static void arena_asks_again_after_one_refusal(void)
{
    open_arena(64 * KIB);
    CHECK(usm__fault_arm("source.take", 1, false, USM_E_BUDGET));
    (void)get(100, 0);
    CHECK_INT(source.last_size, 100);
    usm__fault_disarm_all();
    close_pool();
}

static void *churn(void *arg)
{
    void    *p[32] = {NULL};
    unsigned seed  = *(const unsigned *)arg;

    for (int i = 0; i < 1500; i++) {
        size_t k = (size_t)rand_r(&seed) % 32;

        if (p[k])
            CHECK_INT(put(p[k]), USM_OK);
        p[k] = p[k] ? NULL : get(1 + (size_t)rand_r(&seed) % 300, 0);
        if (i % 100 == 0)
            CHECK_INT(ops->trim_to(pool, 0), USM_OK);
    }
    for (size_t k = 0; k < 32; k++)
        if (p[k])
            CHECK_INT(put(p[k]), USM_OK);
    return NULL;
}

static void threads_share_a_pool(void)
{
    pthread_t threads[4];
    unsigned  seeds[4] = {1, 2, 3, 4};

    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, &seeds[i]) == 0);
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_INT(stats_now().blocks, 0);
    CHECK_INT(stats_now().live, 0);
}

static void both_are_thread_safe(void)
{
    for_both(threads_share_a_pool);
}

static void *free_the_block(void *p)
{
    usm_area  *area = &source.areas[0];
    usm_status s    = ops->free(pool, area, p);

    CHECK(s == USM_OK || s == USM_E_DOUBLE_FREE);
    return s == USM_OK ? p : NULL;
}

static void two_threads_free_one_block_once(void)
{
    for (int i = 0; i < 200; i++) {
        void     *p, *won;
        pthread_t other;
        int       wins;

        if (ops->reset)
            CHECK_INT(ops->reset(pool), USM_OK);
        source.count -= source.count && source.held == 0; /* the same slot again */
        p = get(64, 0);
        CHECK(pthread_create(&other, NULL, free_the_block, p) == 0);
        wins = free_the_block(p) != NULL;
        CHECK(pthread_join(other, &won) == 0);
        CHECK_INT(wins + (won != NULL), 1);
    }
}

static void both_free_a_block_once_when_threads_race(void)
{
    for_both(two_threads_free_one_block_once);
}

static void in_child(void)
{
    ops->fork(pool, USM_FORK_CHILD);
    CHECK_INT(put(get(100, 0)), USM_OK);
}

static void fork_keeps_the_lock_whole(void)
{
    (void)get(100, 0);
    ops->fork(pool, USM_FORK_PREPARE);
    CHECK_INT(plain_child(in_child, NULL), 0);
    ops->fork(pool, USM_FORK_PARENT);
    CHECK_INT(put(get(100, 0)), USM_OK);
}

static void both_go_on_after_fork(void)
{
    for_both(fork_keeps_the_lock_whole);
}

static void options_are_named_and_ignored(const usm_pool_ops *which)
{
    usm_pool_params params = params_for(0, "threshold=1G");

    module_start();
    CHECK_INT(which->create(&params, &pool), USM_OK);
    CHECK_IN("threshold=1G", module.log);
    CHECK_IN(which->name, module.log);
    which->destroy(pool);
}

static void both_name_options_that_they_do_not_know(void)
{
    options_are_named_and_ignored(usm_direct_pool_entry(&module_api));
    options_are_named_and_ignored(usm_arena_pool_entry(&module_api));
    module_clean();
}

static const plain_case cases[] = {
    CASE(direct_takes_an_area_for_each_block),
    CASE(direct_counts_exactly),
    CASE(direct_refuses_interior_and_second_frees),
    CASE(direct_finds_the_block_of_interior_pointers),
    CASE(direct_gives_blocks_back_that_are_out_at_its_end),
    CASE(direct_hands_the_sources_refusal_on),
    CASE(arena_cuts_blocks_one_behind_the_other),
    CASE(arena_honours_alignments_up_to_2_mib),
    CASE(arena_doubles_its_areas_up_to_64_mib),
    CASE(arena_gives_large_blocks_an_area_of_their_own),
    CASE(arena_refuses_what_no_index_can_hold),
    CASE(arena_tells_wrong_pointers_apart),
    CASE(arena_finds_blocks_by_halving),
    CASE(arena_finds_the_space_of_the_last_blocks_again),
    CASE(arena_takes_areas_into_use_again_when_all_is_freed),
    CASE(arena_reset_forgets_blocks_and_keeps_areas),
    CASE(arena_trim_gives_free_areas_back),
    CASE(arena_makes_room_and_asks_for_less_when_memory_is_short),
    CASE(arena_knows_its_largest_free_block),
    CASE(both_agree_with_a_model),
    CASE(both_survive_each_failure),
    CASE(arena_asks_again_after_one_refusal),
    CASE(both_are_thread_safe),
    CASE(both_free_a_block_once_when_threads_race),
    CASE(both_go_on_after_fork),
    CASE(both_name_options_that_they_do_not_know),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
