/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the pool `arena` promises: cutting, pointers, reuse, reset and marks. What it shares with
 * `direct` is in test_pools.c. */
#include "pool_fixture.h"

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

/* --- arena: marks ----------------------------------------------------------------------------- */

static usm_pool_mark set_mark(void)
{
    usm_pool_mark mark = {{0}};

    CHECK_INT(ops->mark(pool, &mark), USM_OK);
    return mark;
}

static usm_status back_to(usm_pool_mark mark)
{
    return ops->reset_to(pool, &mark);
}

static bool is_live(const void *p)
{
    usm_block b;

    return block_of(p, &b) == USM_OK && b.base == p;
}

static void arena_goes_back_to_a_mark(void)
{
    char          *a, *b, *c;
    usm_pool_mark  mark;
    usm_pool_stats s;

    open_arena(0);
    a    = get(1000, 0);
    mark = set_mark();
    b    = get(1000, 0);
    c    = get(1000, 0);
    CHECK_INT(put(c), USM_OK);
    CHECK_INT(back_to(mark), USM_OK);
    CHECK(is_live(a) && !is_live(b));
    CHECK_INT(put(b), USM_E_INVALID_POINTER);
    s = stats_now();
    CHECK_INT(s.blocks, 1);
    CHECK_INT(s.live, 1000);
    CHECK_INT(s.frees, 2);
    CHECK(get(500, 0) == b);          /* its space is found again */
    CHECK_INT(back_to(mark), USM_OK); /* and the mark stays */
    CHECK_INT(back_to(mark), USM_OK);
    CHECK_INT(stats_now().blocks, 1);
    CHECK_INT(put(a), USM_OK);
    close_pool();
}

/* Blocks younger than the mark: in the area that was current, in one that was free, in new ones. */
static void arena_drops_younger_blocks_wherever_they_are(void)
{
    char         *old[3], *young[6], *idle, *rest;
    usm_pool_mark mark;

    open_arena(64 * KIB);
    old[0] = get(40 * KIB, 0);
    idle   = get(100 * KIB, 0);
    old[1] = get(110 * KIB, 0); /* a second area: room is left in the first */
    CHECK_INT(put(idle), USM_OK);
    old[2] = get(KIB, 0);
    mark   = set_mark();
    for (size_t i = 0; i < 6; i++)
        young[i] = get((i + 1) * 30 * KIB, 0);
    CHECK(area_of(young[0]) != area_of(young[5]));
    CHECK_INT(put(young[3]), USM_OK);
    CHECK_INT(back_to(mark), USM_OK);
    for (size_t i = 0; i < 6; i++)
        CHECK(!is_live(young[i]));
    for (size_t i = 0; i < 3; i++)
        CHECK(is_live(old[i]));
    CHECK_INT(stats_now().blocks, 3);
    rest = get(30 * KIB, 0);
    CHECK(rest == young[0]); /* the area that was current then is so again */
    close_pool();
}

static void arena_marks_nest(void)
{
    usm_pool_mark a, b, c;
    char         *p, *q, *r;

    open_arena(0);
    a = set_mark();
    p = get(100, 0);
    b = set_mark();
    q = get(100, 0);
    c = set_mark();
    r = get(100, 0);
    CHECK_INT(back_to(b), USM_OK);
    CHECK(is_live(p) && !is_live(q) && !is_live(r));
    CHECK_INT(back_to(c), USM_E_INVALID); /* set after it */
    CHECK_IN("dropped", usm_last_error());
    q = get(100, 0);
    CHECK_INT(back_to(c), USM_E_INVALID);
    CHECK(is_live(q));
    CHECK_INT(back_to(a), USM_OK);
    CHECK_INT(back_to(b), USM_E_INVALID);
    CHECK_INT(back_to(c), USM_E_INVALID);
    CHECK_INT(stats_now().blocks, 0);
    b = set_mark(); /* in a place that another had */
    CHECK_INT(back_to(c), USM_E_INVALID);
    CHECK_INT(back_to(a), USM_OK);
    CHECK_INT(back_to(b), USM_E_INVALID);
    close_pool();
}

static void arena_marks_at_one_point_are_told_apart(void)
{
    usm_pool_mark a, b, c;
    char         *p;

    open_arena(0);
    a = set_mark();
    b = set_mark(); /* nothing between them */
    CHECK_INT(back_to(b), USM_OK);
    c = set_mark();
    (void)get(100, 0);
    CHECK_INT(back_to(c), USM_OK);
    CHECK_INT(back_to(b), USM_OK);
    CHECK_INT(back_to(c), USM_E_INVALID);
    p = get(100, 0);
    CHECK_INT(back_to(c), USM_E_INVALID);
    CHECK(is_live(p));
    CHECK_INT(back_to(a), USM_OK);
    CHECK_INT(back_to(b), USM_E_INVALID);
    CHECK(!is_live(p));
    close_pool();
}

static void arena_refuses_marks_that_are_not_its_own(void)
{
    usm_pool_params params = params_for(0, NULL);
    usm_pool_mark   mine, foreign, none = {{0}};
    void           *other = NULL;

    open_arena(0);
    mine = set_mark();
    CHECK_INT(ops->create(&params, &other), USM_OK);
    CHECK_INT(ops->mark(other, &foreign), USM_OK);
    CHECK_INT(back_to(foreign), USM_E_INVALID);
    CHECK_IN("another pool", usm_last_error());
    CHECK_INT(back_to(none), USM_E_INVALID);
    CHECK_INT(ops->reset_to(other, &mine), USM_E_INVALID);
    ops->destroy(other);
    CHECK_INT(ops->create(&params, &other), USM_OK); /* perhaps where the other was */
    CHECK_INT(ops->reset_to(other, &foreign), USM_E_INVALID);
    ops->destroy(other);
    CHECK_INT(back_to(mine), USM_OK);
    close_pool();
}

static void arena_reset_drops_every_mark(void)
{
    usm_pool_mark a, b;
    char         *p;

    open_arena(0);
    a = set_mark();
    CHECK_INT(ops->reset(pool), USM_OK);
    CHECK_INT(back_to(a), USM_E_INVALID);
    CHECK_IN("reset", usm_last_error());
    b = set_mark(); /* takes its place */
    p = get(100, 0);
    CHECK_INT(back_to(a), USM_E_INVALID);
    CHECK(is_live(p));
    CHECK_INT(back_to(b), USM_OK);
    CHECK(!is_live(p));
    close_pool();
}

static void arena_goes_back_past_areas_that_were_trimmed(void)
{
    usm_pool_mark mark;
    char         *p, *q;

    open_arena(64 * KIB);
    p    = get(60 * KIB, 0);
    mark = set_mark();
    q    = get(100 * KIB, 0);
    CHECK_INT(put(p), USM_OK);
    CHECK_INT(ops->trim_to(pool, 0), USM_OK); /* the mark's area goes */
    CHECK_INT(source.held, 1);
    CHECK_INT(back_to(mark), USM_OK);
    CHECK(!is_live(q));
    CHECK(get(1 * KIB, 0) == q); /* the area that went would have had room for that */
    CHECK_INT(back_to(mark), USM_OK);
    CHECK(get(90 * KIB, 0) == q);
    CHECK_INT(back_to(mark), USM_OK);
    CHECK_INT(ops->trim_to(pool, 0), USM_OK);
    CHECK_INT(source.held, 0);
    (void)get(100, 0);
    CHECK_INT(back_to(mark), USM_OK);
    CHECK_INT(stats_now().blocks, 0);
    close_pool();
}

/* Rounds in rounds, each with a mark, for ever: nothing grows. */
static void arena_marks_of_rounds_need_no_further_memory(void)
{
    usm_pool_mark outer, inner;

    open_arena(0);
    for (int i = 0; i < 3000; i++) {
        if (i == 10)
            CHECK(usm__fault_arm("heap.alloc", 1, true, USM_OK));
        outer = set_mark();
        (void)get(100, 0);
        for (int k = 0; k < 3; k++) {
            inner = set_mark();
            (void)get(1000, 0);
            CHECK_INT(back_to(inner), USM_OK);
        }
        CHECK_INT(back_to(outer), USM_OK);
    }
    CHECK_INT(stats_now().blocks, 0);
    close_pool();
}

static void arena_without_memory_for_a_mark_says_so(void)
{
    usm_pool_mark untouched = {{1, 2, 3, 4}}, mark;
    usm_status    status    = USM_OK;
    int           n         = 0;

    open_arena(0);
    mark = set_mark();
    (void)get(100, 0);
    CHECK(usm__fault_arm("heap.alloc", 1, true, USM_OK));
    while (n < 1000 && !status) {
        usm_pool_mark m = untouched;

        status = ops->mark(pool, &m);
        n += 1;
        CHECK(!status || memcmp(&m, &untouched, sizeof(m)) == 0);
    }
    usm__fault_disarm_all();
    CHECK_INT(status, USM_E_NO_MEMORY);
    CHECK_INT(back_to(mark), USM_OK);
    CHECK_INT(stats_now().blocks, 0);
    close_pool();
}

/* The model: which blocks and marks there are, in the order they were made. */
static struct {
    struct {
        char    *p;
        uint64_t number;
        bool     live;
    } block[400];
    struct {
        usm_pool_mark mark;
        uint64_t      number; /* of the last block before it */
        bool          valid;
    } mark[64];
    size_t   blocks, marks;
    uint64_t number;
} model;

static void model_free(size_t i)
{
    if (!model.block[i].live)
        return;
    CHECK_INT(put(model.block[i].p), USM_OK);
    model.block[i].live = false;
}

static void model_back_to(size_t i)
{
    usm_status status = back_to(model.mark[i].mark);

    CHECK_INT(status, model.mark[i].valid ? USM_OK : USM_E_INVALID);
    if (status)
        return;
    for (size_t k = 0; k < model.blocks; k++)
        model.block[k].live &= model.block[k].number <= model.mark[i].number;
    for (size_t k = i + 1; k < model.marks; k++) /* in the order they were set */
        model.mark[k].valid = false;
}

/* Room for new ones: forgets those that are gone; a full model is reset. */
static void model_make_room(void)
{
    size_t n = 0;

    for (size_t i = 0; i < model.blocks; i++)
        if (model.block[i].live)
            model.block[n++] = model.block[i];
    model.blocks = n;
    if (n < 350 && model.marks < 60)
        return;
    CHECK_INT(ops->reset(pool), USM_OK);
    for (size_t i = 0; i < model.marks; i++) {
        CHECK_INT(back_to(model.mark[i].mark), USM_E_INVALID);
        model.mark[i].valid = false;
    }
    model.blocks = model.marks = 0;
}

static void model_step(unsigned *seed)
{
    unsigned what = (unsigned)rand_r(seed) % 100, pick = (unsigned)rand_r(seed);

    if (what < 55) {
        model.block[model.blocks].p      = get(1 + pick % 9000, 0);
        model.block[model.blocks].number = ++model.number;
        model.block[model.blocks++].live = true;
    } else if (what < 80 && model.blocks) {
        model_free(pick % model.blocks);
    } else if (what < 88) {
        model.mark[model.marks].mark    = set_mark();
        model.mark[model.marks].number  = model.number;
        model.mark[model.marks++].valid = true;
    } else if (what < 95 && model.marks) {
        model_back_to(pick % model.marks);
    } else if (what < 97) {
        CHECK_INT(ops->trim_to(pool, 0), USM_OK);
    }
    if (model.blocks == 400 || model.marks == 64)
        model_make_room();
}

static void arena_agrees_with_a_model_of_marks(void)
{
    open_arena(64 * KIB);
    memset(&model, 0, sizeof(model));
    for (unsigned step = 0, seed = 4711; step < 20000 && source.count < MAX_AREAS - 8; step++) {
        uint64_t live = 0;

        model_step(&seed);
        for (size_t i = 0; i < model.blocks; i++)
            live += model.block[i].live;
        CHECK_INT(stats_now().blocks, live);
        if (step % 64 == 0)
            for (size_t i = 0; i < model.blocks; i++)
                CHECK(!model.block[i].live || is_live(model.block[i].p));
    }
    close_pool();
}

static void *rounds(void *arg)
{
    for (int i = 0; i < 2000; i++) {
        usm_pool_mark mark = set_mark();
        usm_status    status;

        (void)get(200, 0);
        status = back_to(mark); /* another thread may have dropped it */
        CHECK(status == USM_OK || status == USM_E_INVALID);
    }
    return arg;
}

static void arena_marks_may_be_set_by_any_thread(void)
{
    pthread_t threads[4];

    open_arena(64 * KIB);
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, rounds, NULL) == 0);
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    close_pool();
}

static const plain_case cases[] = {
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
    CASE(arena_goes_back_to_a_mark),
    CASE(arena_drops_younger_blocks_wherever_they_are),
    CASE(arena_marks_nest),
    CASE(arena_marks_at_one_point_are_told_apart),
    CASE(arena_refuses_marks_that_are_not_its_own),
    CASE(arena_reset_drops_every_mark),
    CASE(arena_goes_back_past_areas_that_were_trimmed),
    CASE(arena_marks_of_rounds_need_no_further_memory),
    CASE(arena_without_memory_for_a_mark_says_so),
    CASE(arena_agrees_with_a_model_of_marks),
    CASE(arena_marks_may_be_set_by_any_thread),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
