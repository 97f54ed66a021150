/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the pools `direct` and `arena` promise to the core (usm/pool_ops.h), each and both; what
 * only an arena does is in test_pool_arena.c. */
#include "pool_fixture.h"

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
