/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the heap of large blocks (src/heap/page_heap.h) promises of its blocks and of its growth,
 * one thread and several. test_slab_heap_limits.c: memory that is short, and what is given back. */
#include "slab_heap_fixture.h"

#include <semaphore.h>

/* --- blocks ---------------------------------------------------------------------------------- */

static void blocks_are_whole_pages(bool by_map)
{
    slab_block *a, *b;

    open_heap(by_map);
    a = get(1);
    b = get(SLAB_PAGE + 1);
    CHECK_INT(a->span.size, SLAB_PAGE);
    CHECK_INT(b->span.size, 2 * SLAB_PAGE);
    CHECK_INT(stats_now().used, 3 * SLAB_PAGE);
    put(a);
    CHECK(source_pages_get((const void *)a->span.base) == NULL);
    put(b);
    CHECK_INT(stats_now().used, 0);
    CHECK_INT(stats_now().used_blocks, 0);
    close_heap();
}

static void a_block_is_as_aligned_as_asked(bool by_map)
{
    slab_block *b[24], *pad[24];
    size_t      n = 0;

    open_heap(by_map);
    for (size_t align = 1; align <= SLAB_MAX_ALIGN; align *= 2, n++) {
        pad[n] = get(SLAB_PAGE); /* so that the next free address is odd */
        b[n]   = get_aligned(align < MIB ? 3 * SLAB_PAGE : 3 * MIB, align);
    }
    (void)stats_now();
    for (size_t i = 0; i < n; i++) {
        put(b[i]);
        put(pad[i]);
    }
    CHECK_INT(stats_now().used, 0);
    close_heap();
}

static void neighbours_merge_at_once(bool by_map)
{
    slab_block *b[4];
    uintptr_t   base;
    size_t      calls;

    open_heap(by_map);
    for (size_t i = 0; i < 4; i++)
        b[i] = get(512 * KIB);
    base  = b[0]->span.base;
    calls = source_calls();
    put(b[1]);
    put(b[3]);
    put(b[2]); /* between two free ones */
    put(b[0]);
    CHECK_INT(stats_now().largest_free, stats_now().held);
    b[0] = get(2 * MIB);
    CHECK_INT(b[0]->span.base, base);
    CHECK_INT(source_calls(), calls);
    put(b[0]);
    close_heap();
}

static void the_best_fit_is_taken_and_there_the_lowest(bool by_map)
{
    slab_block *hole[3], *between[3];
    uintptr_t   base[3];

    open_heap(by_map);
    for (size_t i = 0; i < 3; i++) {
        hole[i]    = get(i == 0 ? 300 * KIB : 200 * KIB);
        base[i]    = hole[i]->span.base;
        between[i] = get(SLAB_PAGE);
    }
    put(hole[1]);
    put(hole[2]);
    put(hole[0]);
    hole[1] = get(196 * KIB);
    CHECK_INT(hole[1]->span.base, base[1]);
    hole[0] = get(250 * KIB);
    CHECK_INT(hole[0]->span.base, base[0]);
    put(hole[0]);
    put(hole[1]);
    for (size_t i = 0; i < 3; i++)
        put(between[i]);
    close_heap();
}

static void interior_pointers_find_their_block(bool by_map)
{
    slab_block *b[200];
    usm_area   *area;

    open_heap(by_map);
    for (size_t i = 0; i < 200; i++)
        b[i] = get((i % 7 + 1) * SLAB_PAGE * (i % 50 == 0 ? 300 : 1));
    for (size_t i = 1; i < 200; i += 3)
        put(b[i]);
    for (size_t i = 0; i < 200; i++) {
        if (i % 3 == 1)
            continue;
        for (size_t at = 0; at < b[i]->span.size; at += SLAB_PAGE - 1)
            CHECK(slab_heap_find(&heap, b[i]->span.area, (const void *)(b[i]->span.base + at)) ==
                  b[i]);
    }
    area = b[0]->span.area;
    for (size_t i = 0; i < 200; i++)
        if (i % 3 != 1)
            put(b[i]);
    CHECK(slab_heap_find(&heap, area, area->base) == NULL);
    CHECK(slab_heap_find(&heap, area, (const char *)area->base + area->size - 1) == NULL);
    close_heap();
}

/* The free that comes second finds no block, another block, or a live one elsewhere. */
static void a_large_block_is_freed_once(bool by_map)
{
    slab_block *b = NULL, *later;
    uintptr_t   base;

    open_heap(by_map);
    CHECK_INT(slab_heap_alloc_large(&heap, MIB, 1, &b), USM_OK);
    base = b->span.base;
    CHECK_INT(stats_now().large_bytes, MIB);
    CHECK(!slab_heap_free_large(&heap, b, base + SLAB_PAGE));
    CHECK(slab_heap_free_large(&heap, b, base));
    CHECK(!slab_heap_free_large(&heap, b, base));
    later = get(MIB); /* no block of the program's */
    CHECK(!slab_heap_free_large(&heap, later, later->span.base));
    CHECK_INT(stats_now().large_bytes, 0);
    CHECK_INT(stats_now().used_blocks, 1);
    put(later);
    close_heap();
}

static void held_memory_is_taken_without_growth(bool by_map)
{
    slab_block *b;
    size_t      calls;

    open_heap(by_map);
    CHECK(slab_heap_take_held(&heap, MIB, 1, true) == NULL);
    CHECK_INT(source_calls(), 0);
    put(get(2 * MIB));
    calls = source_calls();
    b     = slab_heap_take_held(&heap, MIB, 1, true);
    CHECK(b && b->state == USM_BLOCK_LIVE && b->is_large);
    CHECK(slab_heap_take_held(&heap, SIZE_MAX, 1, true) == NULL);
    CHECK(slab_heap_take_held(&heap, stats_now().free + SLAB_PAGE, 1, false) == NULL);
    CHECK_INT(source_calls(), calls);
    CHECK(slab_heap_free_large(&heap, b, b->span.base));
    close_heap();
}

static void what_cannot_be_is_refused(bool by_map)
{
    slab_block *b       = NULL;
    size_t      sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2};

    open_heap(by_map);
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT(slab_heap_alloc(&heap, sizes[i], 1, &b), USM_E_NO_MEMORY);
        CHECK_IN("more than there can be", usm_last_error());
    }
    CHECK(b == NULL);
    CHECK_INT(source_calls(), 0);
    close_heap();
}

/* --- growth ---------------------------------------------------------------------------------- */

static void areas_double_up_to_64_mib(void)
{
    static const size_t expected[] = {2, 2, 4, 8, 16, 32, 64, 64};
    slab_block         *b[400];
    size_t              n = 0, takes = 0;

    open_heap(false);
    while (takes < 8) {
        b[n++] = get(MIB);
        if (source.takes > takes)
            CHECK_INT(source.last_size, expected[takes++] * MIB);
    }
    while (n > 0)
        put(b[--n]);
    close_heap();
}

static void a_large_block_gets_an_area_of_its_own_size(void)
{
    slab_block *b;

    open_heap(false);
    b = get_aligned(100 * MIB + 1, 2 * MIB);
    CHECK_INT(source.last_size, 100 * MIB + SLAB_PAGE);
    CHECK_INT(source.last_align, 2 * MIB);
    put(b);
    close_heap();
}

static void areas_have_the_size_that_was_asked_for(void)
{
    slab_heap_params params = params_for(false);
    slab_block      *a, *b;

    params.area_size = 3 * MIB;
    open_with(&params);
    a = get(2 * MIB);
    CHECK_INT(source.last_size, 3 * MIB);
    b = get(2 * MIB);
    CHECK_INT(source.last_size, 3 * MIB);
    put(a);
    put(b);
    close_heap();
}

static void areas_are_small_where_memory_is(void)
{
    slab_heap_params params = params_for(false);
    slab_block      *b[64];

    params.memory_size = 128 * MIB;
    open_with(&params);
    for (size_t i = 0; i < 64; i++) {
        b[i] = get(MIB);
        CHECK(source.last_size <= 8 * MIB);
    }
    for (size_t i = 0; i < 64; i++)
        put(b[i]);
    close_heap();
}

static void only_missing_pieces_are_mapped(void)
{
    slab_block *a, *b, *c;

    open_heap(true);
    a = get(3 * MIB);
    CHECK_INT(source.maps, 2);
    b = get(3 * MIB);
    CHECK_INT(source.maps, 3);
    CHECK_INT(b->span.base, a->span.base + 3 * MIB);
    c = get(30 * MIB); /* to offset 36 MiB: pieces of 2 MiB to 32 MiB, then one of 8 MiB */
    CHECK_INT(source.maps, 3 + 13 + 1);
    CHECK_INT(source.bytes, 40 * MIB);
    CHECK_INT(source.reserves, 1);
    put(a);
    put(b);
    put(c);
    CHECK_INT(stats_now().idle, 40 * MIB);
    close_heap();
}

static void the_lowest_run_is_filled_first(void)
{
    slab_block *a, *b, *c;
    uintptr_t   base;

    open_heap(true);
    a    = get(8 * MIB);
    b    = get(9 * MIB);
    base = a->span.base;
    put(a);
    CHECK_INT(slab_heap_trim(&heap, 0), 8 * MIB);
    CHECK_INT(source.unmaps, 4);
    CHECK_INT(stats_now().held, 10 * MIB);
    c = get(5 * MIB); /* above b only two pieces were missing */
    CHECK_INT(c->span.base, base);
    CHECK_INT(stats_now().held, 16 * MIB);
    a = get(3 * MIB + 1); /* one page too much for what is left there */
    CHECK_INT(a->span.base, base + 17 * MIB);
    put(a);
    put(b);
    put(c);
    close_heap();
}

static void a_run_of_memory_and_holes_becomes_one_block(void)
{
    slab_block *b[5], *all;
    uintptr_t   base;

    open_heap(true);
    for (size_t i = 0; i < 5; i++)
        b[i] = get(i % 2 ? 3 * MIB : 4 * MIB); /* memory at 4..7, 11..14 MiB will be free */
    base = b[0]->span.base;
    put(b[0]);
    put(b[2]);
    CHECK_INT(slab_heap_trim(&heap, 0), 6 * MIB); /* 0..4, 8..10 MiB; the rest is partly used */
    put(b[1]);
    put(b[3]);
    all = get(14 * MIB);
    CHECK_INT(all->span.base, base);
    CHECK_INT(stats_now().held, 18 * MIB);
    put(all);
    put(b[4]);
    CHECK_INT(stats_now().largest_free, 18 * MIB);
    close_heap();
}

static void pieces_have_the_size_that_was_asked_for(void)
{
    slab_heap_params params = params_for(true);
    slab_block      *b;

    params.area_size = 512 * KIB;
    open_with(&params);
    b = get(600 * KIB);
    CHECK_INT(source.bytes, MIB);
    put(b);
    close_heap();
}

static void ranges_are_reserved_by_need(void)
{
    slab_heap_params params = params_for(true);
    slab_block      *b[4];

    open_with(&params);
    b[0] = get(3 * MIB);
    CHECK_INT(source.last_size, 256 * MIB);
    b[1] = get(255 * MIB); /* room for some more of it */
    CHECK_INT(source.last_size, GIB);
    b[2] = get(800 * MIB);
    CHECK_INT(source.last_size, 5 * GIB); /* as large as all before, times four */
    b[3] = get(100 * MIB);
    CHECK_INT(source.reserves, 3);
    for (size_t i = 0; i < 4; i++)
        put(b[i]);
    close_heap();
}

static void a_trim_gives_ranges_without_memory_back(void)
{
    slab_block *a, *b;

    open_heap(true);
    a = get(3 * MIB);
    b = get(500 * MIB);
    put(b);
    CHECK_INT(source.held, 2);
    CHECK(slab_heap_trim(&heap, 0) >= 500 * MIB);
    CHECK_INT(source.held, 1); /* a lies in the other */
    put(a);
    CHECK_INT(slab_heap_trim(&heap, 0), 4 * MIB);
    CHECK_INT(source.held, 0);
    put(get(3 * MIB)); /* and all begins anew */
    CHECK_INT(source.last_size, 256 * MIB);
    CHECK_INT(stats_now().held, 4 * MIB);
    close_heap();
}

static void a_range_that_is_refused_is_asked_for_smaller(void)
{
    slab_heap_params params = params_for(true);
    slab_block      *a, *b;

    open_with(&params);
    source.largest_range = GIB;
    a                    = get(800 * MIB);
    CHECK_INT(source.last_size, GIB);
    b = get(800 * MIB); /* a second range */
    CHECK_INT(source.reserves, 2);
    CHECK_INT(source.takes, 0);
    CHECK(a->span.area != b->span.area);
    put(a);
    put(b);
    close_heap();
}

static void without_ranges_areas_are_taken(void)
{
    slab_block *b;

    open_heap(true);
    source.largest_range = 1;
    b                    = get(3 * MIB);
    CHECK_INT(source.takes, 1);
    put(b);
    CHECK_INT(stats_now().idle, 3 * MIB);
    CHECK_INT(slab_heap_trim(&heap, 0), 3 * MIB);
    close_heap();
}

/* --- all at once ----------------------------------------------------------------------------- */

#define MODEL_BLOCKS 512

struct model {
    slab_block *block[MODEL_BLOCKS];
    uintptr_t   base[MODEL_BLOCKS];
    size_t      size[MODEL_BLOCKS];
    uint64_t    random;
};

static size_t draw(struct model *m, size_t n)
{
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(m->random >> 33) % n;
}

static size_t draw_size(struct model *m)
{
    return ((size_t)1 << (8 + draw(m, 16))) + draw(m, (size_t)1 << (8 + draw(m, 15)));
}

static void check_no_overlap(const struct model *m, size_t i)
{
    for (size_t j = 0; j < MODEL_BLOCKS; j++)
        CHECK(j == i || !m->block[j] || m->base[j] + m->size[j] <= m->base[i] ||
              m->base[i] + m->size[i] <= m->base[j]);
}

static void model_step(struct model *m)
{
    size_t i     = draw(m, MODEL_BLOCKS);
    size_t align = draw(m, 8) ? 1 : (size_t)1 << draw(m, 22);
    size_t at;

    if (m->block[i]) {
        at = draw(m, m->size[i]);
        CHECK(m->block[i]->span.base == m->base[i] && m->block[i]->span.size == m->size[i]);
        CHECK(slab_heap_find(&heap, m->block[i]->span.area, (const void *)(m->base[i] + at)) ==
              m->block[i]);
        m->block[i]->state = USM_BLOCK_FREE;
        put(m->block[i]);
        m->block[i] = NULL;
        return;
    }
    if (slab_heap_alloc(&heap, draw_size(m), align, &m->block[i])) {
        m->block[i] = NULL; /* the limit */
        return;
    }
    check_block(m->block[i], 1, align);
    m->block[i]->state = USM_BLOCK_LIVE;
    m->base[i]         = m->block[i]->span.base;
    m->size[i]         = m->block[i]->span.size;
    check_no_overlap(m, i);
}

static void random_operations_keep_the_invariants(bool by_map)
{
    static struct model m;

    for (uint64_t seed = 1; seed <= (PLAIN_SANITIZED ? 2 : 6); seed++) {
        slab_heap_params params = params_for(by_map);

        params.retain    = 16 * MIB;
        params.retain_ms = 1;
        m                = (struct model){.random = seed};
        open_with(&params);
        source.limit = seed % 2 ? 0 : 300 * MIB;
        for (size_t i = 0; i < 8000; i++) {
            model_step(&m);
            if (i % 32 == 0)
                (void)stats_now();
            if (i % 1000 == 999)
                (void)slab_heap_trim(&heap, draw(&m, 400 * MIB));
        }
        for (size_t i = 0; i < MODEL_BLOCKS; i++)
            if (m.block[i])
                put(m.block[i]);
        CHECK_INT(stats_now().used, 0);
        CHECK(slab_heap_trim(&heap, 0) > 0);
        CHECK_INT(stats_now().held, 0);
        close_heap();
    }
}

static void blocks_still_out_go_with_the_heap(bool by_map)
{
    slab_block *b;

    open_heap(by_map);
    (void)get(3 * MIB);
    b           = get(SLAB_PAGE);
    b->state    = USM_BLOCK_LIVE;
    source.poke = NULL;
    slab_heap_fini(&heap);
    CHECK_INT(source.held, 0);
    CHECK_INT(b->state, USM_BLOCK_FREE); /* what a free that comes too late reads */
    CHECK_INT(slab_heap_init(&heap, &(slab_heap_params){.api = &module_api}), USM_OK);
    close_heap();
}

/* --- threads --------------------------------------------------------------------------------- */

#define THREADS 4

struct worker {
    pthread_t thread;
    uint64_t  seed;
    size_t    steps;
};

/* A byte a page of the range or of the areas would be too much: blocks are marked by their state.
 */
static void *work(void *arg)
{
    struct worker *w        = arg;
    struct model   m        = {.random = w->seed};
    slab_block    *mine[64] = {NULL};

    for (size_t n = 0; n < w->steps; n++) {
        size_t i = draw(&m, 64);

        if (mine[i]) {
            CHECK(atomic_exchange(&mine[i]->state, USM_BLOCK_FREE) == USM_BLOCK_LIVE);
            CHECK(slab_heap_find(&heap, mine[i]->span.area, (const void *)mine[i]->span.base) ==
                  mine[i]);
            put(mine[i]);
            mine[i] = NULL;
        } else if (!slab_heap_alloc(&heap, draw_size(&m), 1, &mine[i])) {
            CHECK(atomic_exchange(&mine[i]->state, USM_BLOCK_LIVE) == USM_BLOCK_FREE);
        }
        if (n % 512 == 511) {
            (void)slab_heap_trim(&heap, draw(&m, 64 * MIB));
            CHECK(slab_heap_is_valid(&heap, source_pages_get));
        }
    }
    for (size_t i = 0; i < 64; i++)
        if (mine[i])
            put(mine[i]);
    return NULL;
}

static void run_workers(size_t steps)
{
    struct worker w[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.seed = i + 1, .steps = steps};
        CHECK(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(w[i].thread, NULL) == 0);
}

static void threads_share_a_heap(bool by_map)
{
    slab_heap_params params = params_for(by_map);

    params.retain    = 8 * MIB;
    params.retain_ms = 1;
    open_with(&params);
    source.limit = 200 * MIB;
    run_workers(PLAIN_SANITIZED ? 3000 : 20000);
    CHECK_INT(stats_now().used, 0);
    CHECK_INT(source.most_growing, 1);
    close_heap();
}

static void *miss(void *arg)
{
    slab_block **b = arg;

    CHECK_INT(slab_heap_alloc(&heap, 256 * KIB, 1, b), USM_OK);
    return NULL;
}

static void one_thread_grows_for_all_that_miss(bool by_map)
{
    pthread_t   thread[THREADS];
    slab_block *b[THREADS];

    open_heap(by_map);
    source.delay_ms = 50;
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, miss, &b[i]) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK_INT(stats_now().held, 2 * MIB);
    for (size_t i = 0; i < THREADS; i++)
        put(b[i]);
    close_heap();
}

static sem_t grown;

static void *grow_slowly(void *arg)
{
    slab_block **b = arg;

    CHECK_INT(slab_heap_alloc(&heap, 2 * MIB, 1, b), USM_OK);
    CHECK(sem_post(&grown) == 0);
    return NULL;
}

static void use_the_copy(void)
{
    pthread_mutex_unlock(&source.lock);
    slab_heap_fork(&heap, USM_FORK_CHILD);
    put(get(10 * MIB));
    CHECK(slab_heap_is_valid(&heap, source_pages_get));
}

static void a_child_uses_its_copy(bool by_map)
{
    pthread_t   thread;
    slab_block *b;

    open_heap(by_map);
    source.delay_ms = 50;
    CHECK(sem_init(&grown, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, grow_slowly, &b) == 0);
    CHECK(pthread_detach(thread) == 0); /* the child cannot join it */
    module_sleep_ms(20); /* most likely in the middle of a growth; no matter if not */
    slab_heap_fork(&heap, USM_FORK_PREPARE);
    pthread_mutex_lock(&source.lock);
    CHECK_INT(plain_child(use_the_copy, NULL), 0);
    pthread_mutex_unlock(&source.lock);
    slab_heap_fork(&heap, USM_FORK_PARENT);
    CHECK(sem_wait(&grown) == 0);
    put(b);
    CHECK_INT(stats_now().used, 0);
    close_heap();
}

/* --- the cases ------------------------------------------------------------------------------- */

BOTH(blocks_are_whole_pages)
BOTH(a_block_is_as_aligned_as_asked)
BOTH(neighbours_merge_at_once)
BOTH(the_best_fit_is_taken_and_there_the_lowest)
BOTH(interior_pointers_find_their_block)
BOTH(a_large_block_is_freed_once)
BOTH(held_memory_is_taken_without_growth)
BOTH(what_cannot_be_is_refused)
BOTH(random_operations_keep_the_invariants)
BOTH(blocks_still_out_go_with_the_heap)
BOTH(threads_share_a_heap)
BOTH(one_thread_grows_for_all_that_miss)
BOTH(a_child_uses_its_copy)

static const plain_case cases[] = {
    BOTH_CASES(blocks_are_whole_pages),
    BOTH_CASES(a_block_is_as_aligned_as_asked),
    BOTH_CASES(neighbours_merge_at_once),
    BOTH_CASES(the_best_fit_is_taken_and_there_the_lowest),
    BOTH_CASES(interior_pointers_find_their_block),
    BOTH_CASES(a_large_block_is_freed_once),
    BOTH_CASES(held_memory_is_taken_without_growth),
    BOTH_CASES(what_cannot_be_is_refused),
    CASE(areas_double_up_to_64_mib),
    CASE(a_large_block_gets_an_area_of_its_own_size),
    CASE(areas_have_the_size_that_was_asked_for),
    CASE(areas_are_small_where_memory_is),
    CASE(only_missing_pieces_are_mapped),
    CASE(the_lowest_run_is_filled_first),
    CASE(a_run_of_memory_and_holes_becomes_one_block),
    CASE(pieces_have_the_size_that_was_asked_for),
    CASE(ranges_are_reserved_by_need),
    CASE(a_trim_gives_ranges_without_memory_back),
    CASE(a_range_that_is_refused_is_asked_for_smaller),
    CASE(without_ranges_areas_are_taken),
    BOTH_CASES(random_operations_keep_the_invariants),
    BOTH_CASES(blocks_still_out_go_with_the_heap),
    BOTH_CASES(threads_share_a_heap),
    BOTH_CASES(one_thread_grows_for_all_that_miss),
    BOTH_CASES(a_child_uses_its_copy),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
