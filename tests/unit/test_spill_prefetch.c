/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* src/spill/prefetch.c: which blocks it asks for, and that wrong guesses stay few.  Memory is a
 * set of guesses here: what was asked for is there, until it is used or pushed out. */
#include "plain.h"
#include "spill/prefetch.h"

#define CAP 64

typedef struct world {
    usm__prefetch *p;
    uint32_t       blocks;
    bool          *there;           /* by block: a guess that nobody has used */
    uint32_t      *order, first, n; /* guesses in the order they came; a queue */
    uint32_t       room;
    uint64_t       asked, used, missed, wasted;
    size_t         last; /* guesses of the last access */
} world;

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n, size);

    CHECK(p != NULL);
    return p;
}

static world world_of(uint32_t blocks, uint32_t most, uint32_t room)
{
    world w = {.blocks = blocks, .room = room};

    w.p     = zeroed(1, usm__prefetch_size(blocks));
    w.there = zeroed(blocks, sizeof(*w.there));
    w.order = zeroed(1 << 20, sizeof(*w.order));
    usm__prefetch_init(w.p, blocks, most);
    return w;
}

static void world_free(world *w)
{
    free(w->p);
    free(w->there);
    free(w->order);
}

static void push_out(world *w)
{
    uint32_t block = w->order[w->first++];

    if (!w->there[block])
        return; /* it was used */
    w->there[block] = false;
    w->wasted++;
    usm__prefetch_wasted(w->p, block);
}

/* Every access is told: it missed, or it used a guess. */
static bool visit(world *w, uint32_t block)
{
    uint32_t out[CAP];
    bool     was_guess = w->there[block];
    size_t   n;

    w->there[block] = false;
    w->used += was_guess;
    w->missed += !was_guess;
    n = usm__prefetch_next(w->p, block, was_guess, out, CAP);
    CHECK(n <= CAP);
    w->last = n;
    for (size_t i = 0; i < n; i++) {
        CHECK(out[i] < w->blocks);
        if (w->there[out[i]] || out[i] == block)
            continue;
        w->there[out[i]] = true;
        w->asked++;
        CHECK(w->n < 1 << 20);
        w->order[w->n++] = out[i];
        while (w->n - w->first > w->room)
            push_out(w);
    }
    return was_guess;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* How many guesses wait right now. */
static uint32_t waiting(const world *w)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->blocks; i++)
        n += w->there[i];
    return n;
}

/* --- passes ------------------------------------------------------------------------ */

static void a_pass_has_its_window_after_four_blocks(void)
{
    for (uint32_t most = 1; most <= 32; most *= 2) {
        world w = world_of(4096, most, 64);

        for (uint32_t i = 0; i < 4; i++)
            (void)visit(&w, i);
        CHECK(waiting(&w) >= (most < 8 ? most : 8));
        (void)visit(&w, 4);
        CHECK_INT(waiting(&w), most);
        for (uint32_t i = 5; i < 4096; i++)
            CHECK(visit(&w, i));
        CHECK_INT(w.wasted, 0);
        world_free(&w);
    }
}

static void nearest_come_first(void)
{
    usm__prefetch *p = zeroed(1, usm__prefetch_size(100));
    uint32_t       out[CAP], last;
    size_t         n;

    usm__prefetch_init(p, 100, 16);
    (void)usm__prefetch_next(p, 10, false, out, CAP);
    (void)usm__prefetch_next(p, 11, false, out, CAP);
    (void)usm__prefetch_next(p, 12, true, out, CAP);
    (void)usm__prefetch_next(p, 13, true, out, CAP);
    n = usm__prefetch_next(p, 14, true, out, 3); /* no more than it is given room for */
    CHECK_INT(n, 3);
    CHECK(out[0] < out[1] && out[1] < out[2]);
    last = out[2];
    n    = usm__prefetch_next(p, 15, true, out, CAP); /* the rest, and nothing twice */
    CHECK(n > 0);
    CHECK_INT(out[0], last + 1);
    free(p);
}

static void strides_of_any_kind_are_found(void)
{
    static const int strides[] = {-1, 2, -2, 7, -16, 100};

    for (size_t k = 0; k < sizeof(strides) / sizeof(strides[0]); k++) {
        world   w    = world_of(8192, 8, 64);
        int64_t at   = strides[k] > 0 ? 5 : 8000;
        int     hits = 0;

        for (int i = 0; i < 60; i++, at += strides[k])
            hits += visit(&w, (uint32_t)at);
        CHECK(hits >= 55);
        CHECK(w.wasted == 0 && w.asked <= 60 + 8);
        world_free(&w);
    }
}

static void passes_side_by_side_are_told_apart(void)
{
    static const uint32_t bases[] = {0, 1000, 2300, 3500, 5555, 7001};

    for (uint32_t streams = 2; streams <= 6; streams++) {
        world    w = world_of(8192, 8, 64);
        uint32_t misses;

        for (uint32_t i = 0; i < 300; i++)
            for (uint32_t s = 0; s < streams; s++)
                (void)visit(&w, bases[s] + i);
        misses = (uint32_t)w.missed;
        CHECK(misses <= 5 * streams);
        CHECK(w.wasted / 2 <= streams);
        world_free(&w);
    }
}

/* One access in three goes elsewhere. */
static void a_pass_is_seen_through_noise(void)
{
    world    w     = world_of(8192, 8, 64);
    uint64_t state = 88172645463325252u;
    uint32_t hits  = 0;

    for (uint32_t i = 0; i < 2000; i++) {
        hits += visit(&w, i);
        if (i % 2 == 0)
            (void)visit(&w, (uint32_t)(3000 + next_random(&state) % 5000));
    }
    CHECK(hits >= 1950);
    CHECK(w.wasted <= 40);
    world_free(&w);
}

/* Two threads take blocks of one pass in turn, and not quite in order. */
static void a_pass_of_two_threads_is_one(void)
{
    world    w    = world_of(4096, 8, 64);
    uint32_t hits = 0;

    for (uint32_t i = 0; i + 1 < 1000; i += 2) {
        hits += visit(&w, i + 1);
        hits += visit(&w, i);
    }
    CHECK(hits >= 980);
    world_free(&w);
}

/* What is in memory is not told: the pass goes on behind it. */
static void a_pass_goes_on_behind_what_is_there(void)
{
    world    w    = world_of(4096, 8, 64);
    uint32_t hits = 0;

    for (int round = 0; round < 4; round++)
        for (uint32_t i = 0; i < 2000; i++)
            if (i % 500 < 400) /* a fifth is in memory */
                hits += visit(&w, i);
    CHECK(hits >= 4 * 1600 - 4 * 4 * 4);
    world_free(&w);
}

static void a_pass_that_overwrites_asks_for_nothing(void)
{
    usm__prefetch *p = zeroed(1, usm__prefetch_size(100));
    uint32_t       out[CAP];

    usm__prefetch_init(p, 100, 16);
    for (uint32_t i = 0; i < 50; i++)
        CHECK_INT(usm__prefetch_next(p, i, false, out, 0), 0);
    CHECK(usm__prefetch_in_order(p));
    CHECK(usm__prefetch_next(p, 50, false, out, CAP) >= 8); /* it was followed */
    free(p);
}

/* --- random -------------------------------------------------------------------------- */

static void random_accesses_cost_a_few_probes(void)
{
    for (uint32_t blocks = 64; blocks <= 65536; blocks *= 4)
        for (uint32_t most = 4; most <= 32; most *= 8) {
            world    w     = world_of(blocks, most, most);
            uint64_t state = 88172645463325252u + blocks;

            for (int i = 0; i < 8192; i++)
                (void)visit(&w, (uint32_t)(next_random(&state) % blocks));
            if (blocks > 1024) /* else many are used by chance */
                CHECK(w.asked <= 8192 / 50 + 16);
            CHECK(w.asked - w.used <= 8192 / 50 + 16);
            world_free(&w);
        }
}

/* What went well before is not held against the disk for long. */
static void random_accesses_after_a_pass_cost_little(void)
{
    world    w     = world_of(4096, 32, 32);
    uint64_t state = 1234567, asked;

    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 4096; i++)
            (void)visit(&w, i);
    asked = w.asked;
    for (int i = 0; i < 4096; i++)
        (void)visit(&w, (uint32_t)(next_random(&state) % 4096));
    CHECK(w.asked - asked <= 4096 / 50);
    for (uint32_t i = 0; i < 4096; i++) /* and back */
        if (visit(&w, i))
            asked++;
    CHECK(w.missed <= 4096 + 2 * 4096 / 100 + 64);
    world_free(&w);
}

/* Runs of six blocks that begin anywhere: windows of 32 would waste 32,000. */
static void short_runs_get_short_windows(void)
{
    world    w     = world_of(65536, 32, 64);
    uint64_t state = 88172645463325252u;

    for (int i = 0; i < 1000; i++) {
        uint32_t begin = (uint32_t)(next_random(&state) % 65000);

        for (uint32_t k = 0; k < 6; k++)
            (void)visit(&w, begin + k);
    }
    CHECK(w.asked <= 6000 + 1500);
    CHECK(w.wasted <= 3000);
    world_free(&w);
}

static void useless_guesses_end(void)
{
    world    w = world_of(65536, 32, 64);
    uint32_t out[CAP];
    uint64_t late = 0;

    /* Four blocks in order, again and again elsewhere, and no guess is ever used. */
    for (uint32_t i = 0; i < 4000; i++) {
        for (uint32_t k = 0; k < 4; k++) {
            size_t n = usm__prefetch_next(w.p, (i * 16 + k) % 65536, false, out, CAP);

            for (size_t j = 0; j < n; j++)
                usm__prefetch_wasted(w.p, out[j]);
            late += i >= 2000 ? n : 0;
        }
    }
    CHECK(late <= 2000 * 4 / 50);
    world_free(&w);
}

/* --- tours -------------------------------------------------------------------------------- */

static void a_tour_is_remembered(void)
{
    enum { N = 1024 };
    world    w     = world_of(N, 8, 64);
    uint64_t state = 88172645463325252u, missed = 0;
    uint32_t order[N] = {0};

    for (uint32_t i = 0; i < N; i++) {
        uint32_t at = (uint32_t)(next_random(&state) % (i + 1));

        order[i]  = order[at];
        order[at] = i;
    }
    for (int round = 0; round < 5; round++) {
        missed = w.missed;
        for (uint32_t i = 0; i < N; i++)
            (void)visit(&w, order[i]);
        missed = w.missed - missed;
    }
    CHECK(missed <= N / 20);
    world_free(&w);
}

/* --- hints ----------------------------------------------------------------------------------- */

static void what_the_owner_says_counts(void)
{
    usm__prefetch *p = zeroed(1, usm__prefetch_size(1000));
    uint32_t       out[CAP];

    usm__prefetch_init(p, 1000, 16);
    usm__prefetch_set(p, USM__PATTERN_SEQUENTIAL, 16);
    CHECK_INT(usm__prefetch_next(p, 500, false, out, CAP), 16);
    CHECK_INT(out[0], 501);
    usm__prefetch_set(p, USM__PATTERN_RANDOM, 16);
    for (uint32_t i = 0; i < 100; i++)
        CHECK_INT(usm__prefetch_next(p, i, false, out, CAP), 0);
    free(p);
}

static void order_within_a_block_is_seen(void)
{
    usm__prefetch *p = zeroed(1, usm__prefetch_size(1000));
    uint32_t       out[CAP];
    uint64_t       state = 1234567;

    usm__prefetch_init(p, 1000, 16);
    for (int i = 0; i < 100; i++)
        (void)usm__prefetch_next(p, (uint32_t)(next_random(&state) % 1000), false, out, CAP);
    CHECK(!usm__prefetch_in_order(p));
    for (int i = 0; i < 3; i++) /* parts of one block, each missed */
        (void)usm__prefetch_next(p, 7, false, out, CAP);
    CHECK(usm__prefetch_in_order(p));
    free(p);
}

/* Nothing out of bounds, whatever comes. */
static void anything_may_come(void)
{
    uint64_t state = 88172645463325252u;

    for (uint32_t blocks = 1; blocks < 200; blocks += 13) {
        world w = world_of(blocks, 1 + blocks % 33, 8);

        for (int i = 0; i < 5000; i++) {
            uint32_t r = (uint32_t)(next_random(&state) % 100);

            if (r < 80)
                (void)visit(&w, (uint32_t)((uint64_t)i * (1 + blocks % 3)) % blocks);
            else if (r < 97)
                (void)visit(&w, (uint32_t)(next_random(&state) % blocks));
            else if (r < 98)
                usm__prefetch_wasted(w.p, (uint32_t)(next_random(&state) % blocks));
            else
                usm__prefetch_set(w.p, (usm__pattern)(next_random(&state) % 3), r % 40);
        }
        world_free(&w);
    }
}

static const plain_case cases[] = {
    CASE(a_pass_has_its_window_after_four_blocks),
    CASE(nearest_come_first),
    CASE(strides_of_any_kind_are_found),
    CASE(passes_side_by_side_are_told_apart),
    CASE(a_pass_is_seen_through_noise),
    CASE(a_pass_of_two_threads_is_one),
    CASE(a_pass_goes_on_behind_what_is_there),
    CASE(a_pass_that_overwrites_asks_for_nothing),
    CASE(random_accesses_cost_a_few_probes),
    CASE(random_accesses_after_a_pass_cost_little),
    CASE(short_runs_get_short_windows),
    CASE(useless_guesses_end),
    CASE(a_tour_is_remembered),
    CASE(what_the_owner_says_counts),
    CASE(order_within_a_block_is_seen),
    CASE(anything_may_come),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
