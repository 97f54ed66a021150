/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* src/spill/policy.c: what it promises of hits, over a cache without I/O, and that its lists hold
 * under random operations.  The references (CLOCK, the best a cycle can have) are computed here. */
#include "plain.h"
#include "spill/policy.h"

#include <math.h>

#define NOWHERE UINT32_MAX

/* --- a cache: which key is in which frame --------------------------------------- */

typedef struct cache {
    usm__policy *policy;
    uint32_t     frames, keys, filled;
    uint32_t    *frame_of; /* by key   */
    uint32_t    *key_of;   /* by frame */
    bool        *used, *dirty, *pinned;
    bool        *touched; /* by key: since it came in */
    uint64_t     accesses, hits, looks;
} cache;

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n, size);

    CHECK(p != NULL);
    return p;
}

static cache cache_of(uint32_t frames, uint32_t keys)
{
    cache c = {.frames = frames, .keys = keys};

    c.policy   = zeroed(1, usm__policy_size(frames));
    c.frame_of = zeroed(keys, sizeof(*c.frame_of));
    c.key_of   = zeroed(frames, sizeof(*c.key_of));
    c.used     = zeroed(frames, sizeof(*c.used));
    c.dirty    = zeroed(frames, sizeof(*c.dirty));
    c.pinned   = zeroed(frames, sizeof(*c.pinned));
    c.touched  = zeroed(keys, sizeof(*c.touched));
    usm__policy_init(c.policy, frames);
    for (uint32_t i = 0; i < keys; i++)
        c.frame_of[i] = NOWHERE;
    for (uint32_t i = 0; i < frames; i++)
        c.key_of[i] = NOWHERE;
    return c;
}

static void cache_free(cache *c)
{
    CHECK(usm__policy_is_valid(c->policy));
    free(c->policy);
    free(c->frame_of);
    free(c->key_of);
    free(c->used);
    free(c->dirty);
    free(c->pinned);
    free(c->touched);
}

static usm__policy_look look(void *arg, uint32_t frame)
{
    cache *c    = arg;
    bool   used = c->used[frame];

    c->looks++;
    CHECK(c->key_of[frame] != NOWHERE); /* it looks at nothing that holds nothing */
    if (c->pinned[frame])
        return USM__LOOK_PINNED;
    c->used[frame] = false;
    if (used)
        return USM__LOOK_USED;
    return c->dirty[frame] ? USM__LOOK_DIRTY : USM__LOOK_IDLE;
}

static usm__policy_look glance(void *arg, uint32_t frame)
{
    cache *c = arg;

    if (c->pinned[frame])
        return USM__LOOK_PINNED;
    if (c->used[frame])
        return USM__LOOK_USED;
    return c->dirty[frame] ? USM__LOOK_DIRTY : USM__LOOK_IDLE;
}

static void drop(cache *c, uint32_t frame, bool is_evicted)
{
    usm__policy_remove(c->policy, frame, is_evicted);
    c->frame_of[c->key_of[frame]] = NOWHERE;
    c->key_of[frame]              = NOWHERE;
    c->used[frame] = c->dirty[frame] = c->pinned[frame] = false;
    c->filled--;
}

/* A frame that holds nothing; NOWHERE: all are pinned. */
static uint32_t room(cache *c)
{
    uint32_t frame;

    if (c->filled == c->frames) {
        frame = usm__policy_victim(c->policy, true, look, c);
        if (frame == USM__NO_FRAME)
            return NOWHERE;
        CHECK(frame < c->frames && c->key_of[frame] != NOWHERE && !c->pinned[frame]);
        drop(c, frame, true);
        return frame;
    }
    for (frame = 0; c->key_of[frame] != NOWHERE; frame++)
        ;
    return frame;
}

static uint32_t bring_in(cache *c, uint32_t key, usm__policy_hint hint)
{
    uint32_t frame = room(c);

    if (frame == NOWHERE)
        return frame;
    usm__policy_insert(c->policy, frame, key, hint);
    c->key_of[frame] = key;
    c->frame_of[key] = frame;
    c->touched[key]  = false;
    c->filled++;
    return frame;
}

static bool touch(cache *c, uint32_t key)
{
    uint32_t frame = c->frame_of[key];
    bool     hit   = frame != NOWHERE;

    if (!hit)
        frame = bring_in(c, key, USM__HINT_DEMAND);
    c->used[frame]  = true;
    c->touched[key] = true;
    c->accesses++;
    c->hits += hit;
    return hit;
}

static double pass(cache *c, uint32_t first, uint32_t n)
{
    uint64_t hits = c->hits;

    for (uint32_t i = 0; i < n; i++)
        (void)touch(c, first + i);
    return (double)(c->hits - hits) / n;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Below n. */
static uint32_t pick(uint64_t *state, uint32_t n)
{
    return (uint32_t)(next_random(state) % n);
}

/* --- CLOCK, to compare with ---------------------------------------------------------- */

static double hits_of_clock(uint32_t frames, const uint32_t *trace, size_t n, uint32_t keys)
{
    uint32_t *frame_of = zeroed(keys, sizeof(*frame_of)), *key_of = zeroed(frames, sizeof(*key_of));
    bool     *used = zeroed(frames, sizeof(*used));
    uint32_t  hand = 0, filled = 0;
    size_t    hits = 0;

    for (uint32_t i = 0; i < keys; i++)
        frame_of[i] = NOWHERE;
    for (size_t i = 0; i < n; i++) {
        uint32_t frame = frame_of[trace[i]];

        hits += frame != NOWHERE;
        if (frame == NOWHERE && filled < frames) {
            frame = filled++;
        } else if (frame == NOWHERE) {
            for (; used[hand]; hand = (hand + 1) % frames)
                used[hand] = false;
            frame                   = hand;
            frame_of[key_of[frame]] = NOWHERE;
            hand                    = (hand + 1) % frames;
        }
        key_of[frame]      = trace[i];
        frame_of[trace[i]] = frame;
        used[frame]        = true;
    }
    free(frame_of);
    free(key_of);
    free(used);
    return (double)hits / (double)n;
}

static double hits_of_policy(uint32_t frames, const uint32_t *trace, size_t n, uint32_t keys)
{
    cache  c = cache_of(frames, keys);
    double rate;

    for (size_t i = 0; i < n; i++)
        (void)touch(&c, trace[i]);
    rate = (double)c.hits / (double)n;
    cache_free(&c);
    return rate;
}

/* --- properties -------------------------------------------------------------------------- */

static const uint32_t sizes[] = {4, 8, 16, 64, 256, 1024};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Of a pass k times as long as memory, most of 1/k hits from the third round on. */
static void a_cyclic_pass_hits_what_fits(void)
{
    for (size_t i = 0; i < SIZES; i++)
        for (uint32_t twice_k = 3; twice_k <= 24; twice_k += 3) {
            uint32_t n     = sizes[i] * twice_k / 2;
            cache    c     = cache_of(sizes[i], n);
            double   least = sizes[i] == 4 ? 0.5 : sizes[i] <= 16 ? 0.7 : 0.9;

            (void)pass(&c, 0, n);
            (void)pass(&c, 0, n);
            for (int round = 0; round < 6; round++)
                CHECK(pass(&c, 0, n) * twice_k / 2 >= least);
            CHECK(usm__policy_is_cyclic(c.policy));
            cache_free(&c);
        }
}

static void a_loop_that_fits_misses_nothing(void)
{
    for (size_t i = 0; i < SIZES; i++) {
        cache c = cache_of(sizes[i], sizes[i]);

        (void)pass(&c, 0, sizes[i]);
        CHECK(pass(&c, 0, sizes[i]) == 1);
        cache_free(&c);
    }
}

static void cyclic_passes_end(void)
{
    enum { FRAMES = 64, N = 8 * FRAMES };
    uint64_t state = 88172645463325252u;
    cache    c     = cache_of(FRAMES, 2 * N);

    for (int round = 0; round < 4; round++)
        (void)pass(&c, 0, N);
    CHECK(usm__policy_is_cyclic(c.policy));
    for (int i = 0; i < N; i++)
        (void)touch(&c, pick(&state, N));
    CHECK(!usm__policy_is_cyclic(c.policy));
    /* Another pass over other blocks: what the first left behind gives way. */
    for (int round = 0; round < 6; round++)
        (void)pass(&c, N, N);
    CHECK(usm__policy_is_cyclic(c.policy));
    CHECK(pass(&c, N, N) >= 0.9 / 8);
    cache_free(&c);
}

/* Straight from one cyclic pass into another: nothing says that the first has ended but that nobody
 * comes back to it. */
static void a_cyclic_pass_replaces_another(void)
{
    enum { FRAMES = 64, N = 4 * FRAMES };
    cache c = cache_of(FRAMES, 2 * N);

    for (int round = 0; round < 5; round++)
        (void)pass(&c, 0, N);
    for (int round = 0; round < 6; round++)
        (void)pass(&c, N, N);
    CHECK(pass(&c, N, N) >= 0.9 / 4);
    cache_free(&c);
}

static void a_hot_set_survives_a_scan(void)
{
    for (size_t i = 1; i < SIZES; i++) {
        uint32_t frames = sizes[i], hot = frames / 2, scan = 20 * frames;
        cache    c = cache_of(frames, hot + scan);

        /* It becomes hot while other blocks come and go. */
        for (uint32_t k = 0; k < 12; k++) {
            (void)pass(&c, 0, hot);
            (void)pass(&c, hot + k * frames, frames);
        }
        (void)pass(&c, 0, hot);
        (void)pass(&c, hot + 12 * frames, scan - 12 * frames); /* nobody touches it meanwhile */
        CHECK(pass(&c, 0, hot) >= 0.9);
        cache_free(&c);
    }
}

/* A scan whose every block is used many times in a row is a scan. */
static void many_accesses_to_a_block_are_one_visit(void)
{
    enum { FRAMES = 64, HOT = 32, SCAN = 20 * FRAMES };
    cache c = cache_of(FRAMES, HOT + SCAN);

    for (uint32_t k = 0; k < 12; k++) {
        (void)pass(&c, 0, HOT);
        for (uint32_t i = 0; i < FRAMES; i++)
            for (int visit = 0; visit < 128; visit++)
                (void)touch(&c, HOT + k * FRAMES + i);
    }
    (void)pass(&c, 0, HOT);
    for (uint32_t i = 12 * FRAMES; i < SCAN; i++)
        for (int visit = 0; visit < 128; visit++)
            (void)touch(&c, HOT + i);
    CHECK(pass(&c, 0, HOT) >= 0.9);
    cache_free(&c);
}

/* A part of the data that fits is passed over eight times, then the next part, and all of that
 * again: each part's first pass continues the order of a cycle longer than memory. */
static void parts_that_fit_are_kept_before_long(void)
{
    enum { PARTS = 16, TIMES = 8 };

    for (size_t i = 2; i < SIZES; i++) {
        uint32_t part = sizes[i] / 2;
        double   sum  = 0;
        cache    c    = cache_of(sizes[i], PARTS * part);

        for (uint32_t k = 0; k < 3 * PARTS * TIMES; k++) {
            double hits = pass(&c, k / TIMES % PARTS * part, part);

            sum += k >= PARTS * TIMES ? hits : 0;
        }
        CHECK(sum / (2 * PARTS * TIMES) >= 0.5);
        cache_free(&c);
    }
}

static void another_hot_set_takes_over(void)
{
    for (size_t i = 2; i < SIZES; i++) {
        uint32_t frames = sizes[i], hot = frames * 3 / 4;
        uint64_t state = 1234567;
        cache    c     = cache_of(frames, 2 * hot + 8 * frames);

        for (uint32_t k = 0; k < 40 * hot; k++) {
            (void)touch(&c, pick(&state, hot));
            if (k % 4 == 0)
                (void)touch(&c, 2 * hot + pick(&state, 8 * frames));
        }
        for (uint32_t k = 0; k < 40 * hot; k++) {
            (void)touch(&c, hot + pick(&state, hot));
            if (k % 4 == 0)
                (void)touch(&c, 2 * hot + pick(&state, 8 * frames));
        }
        CHECK(pass(&c, hot, hot) >= 0.75);
        cache_free(&c);
    }
}

static void fill_zipf(uint32_t *trace, size_t n, uint32_t keys, double skew)
{
    double  *sums = zeroed(keys, sizeof(*sums)), sum = 0;
    uint64_t state = 88172645463325252u;

    for (uint32_t i = 0; i < keys; i++)
        sums[i] = sum += pow(i + 1.0, -skew);
    for (size_t i = 0; i < n; i++) {
        double   x   = (double)(next_random(&state) >> 11) / 9007199254740992.0 * sum;
        uint32_t low = 0, high = keys - 1;

        while (low < high) {
            uint32_t middle = low + (high - low) / 2;

            if (sums[middle] < x)
                low = middle + 1;
            else
                high = middle;
        }
        trace[i] = (uint32_t)((uint64_t)low * 2654435761u % keys);
    }
    free(sums);
}

static void zipf_is_not_worse_than_clock(void)
{
    enum { N = 50000 };
    uint32_t *trace = zeroed(N, sizeof(*trace));

    for (size_t i = 0; i < SIZES; i++)
        for (uint32_t k = 2; k <= 16; k *= 2)
            for (int tenths = 6; tenths <= 12; tenths += 3) {
                uint32_t keys = sizes[i] * k;

                fill_zipf(trace, N, keys, tenths / 10.0);
                CHECK(hits_of_policy(sizes[i], trace, N, keys) >=
                      hits_of_clock(sizes[i], trace, N, keys) - 0.02);
            }
    free(trace);
}

/* --- guesses ------------------------------------------------------------------------------- */

/* Guesses that nobody uses, as many as there is room for. */
static void useless_guesses_are_bounded(void)
{
    for (size_t i = 0; i < SIZES; i++) {
        uint32_t frames = sizes[i], hot = frames / 4;
        cache    c = cache_of(frames, 64 * frames);

        for (uint32_t k = 0; k < 8; k++) { /* hot, and memory is full */
            (void)pass(&c, 0, hot);
            (void)pass(&c, hot + k * frames, frames / 2);
        }
        for (uint32_t k = 0; k < 16 * frames; k++) {
            if (usm__policy_readahead_room(c.policy) > 0)
                (void)bring_in(&c, 32 * frames + k, USM__HINT_PREFETCH);
            (void)touch(&c, k % hot);
            (void)touch(&c, 16 * frames + k);
        }
        CHECK(pass(&c, 0, hot) == 1);
        cache_free(&c);
    }
}

static void guesses_that_nobody_came_for_give_way(void)
{
    enum { FRAMES = 64 };
    cache    c = cache_of(FRAMES, 64 * FRAMES);
    uint32_t n = usm__policy_readahead_room(c.policy);

    for (uint32_t i = 0; i < n; i++)
        (void)bring_in(&c, i, USM__HINT_PREFETCH);
    CHECK_INT(usm__policy_readahead_room(c.policy), 0);
    (void)pass(&c, 1000, 10 * FRAMES);
    for (uint32_t i = 0; i < n; i++)
        CHECK(c.frame_of[i] == NOWHERE);
    CHECK_INT(usm__policy_readahead_room(c.policy), n);
    cache_free(&c);
}

/* A guess that comes before its use is not lost to demanded blocks. */
static void guesses_within_bounds_stay_until_used(void)
{
    for (size_t i = 0; i < SIZES; i++) {
        uint32_t frames = sizes[i], n = 20 * frames, ahead;
        cache    c = cache_of(frames, n);

        ahead = usm__policy_readahead_room(c.policy);
        CHECK(ahead > 0);
        for (uint32_t at = 0, next = 0; at < n; at++) {
            for (; next < n && next <= at + ahead / 2; next++)
                if (c.frame_of[next] == NOWHERE)
                    (void)bring_in(&c, next, USM__HINT_PREFETCH);
            CHECK(c.frame_of[at] != NOWHERE);
            usm__policy_used(c.policy, c.frame_of[at]);
            (void)touch(&c, at);
        }
        cache_free(&c);
    }
}

/* The cyclic pass is recognised, and held, when all its blocks come in as guesses. */
static void a_cyclic_pass_of_guesses_hits_what_fits(void)
{
    for (size_t i = 2; i < SIZES; i++) {
        uint32_t frames = sizes[i], n = 8 * frames, ahead = frames / 8;
        cache    c    = cache_of(frames, n);
        uint64_t kept = 0;

        for (uint32_t at = 0; at < 6 * n; at++) {
            uint32_t key = at % n;
            bool     is_guess;

            for (uint32_t k = 1; k <= ahead; k++)
                if (c.frame_of[(key + k) % n] == NOWHERE &&
                    usm__policy_readahead_room(c.policy) > 0) {
                    uint32_t frame = bring_in(&c, (key + k) % n, USM__HINT_PREFETCH);

                    c.dirty[frame] = false;
                }
            is_guess = c.frame_of[key] != NOWHERE && !c.touched[key];
            if (is_guess)
                usm__policy_used(c.policy, c.frame_of[key]);
            kept += touch(&c, key) && !is_guess && at >= 3 * n;
        }
        CHECK(usm__policy_is_cyclic(c.policy));
        CHECK((double)kept / (3.0 * n) >= 0.6 / 8);
        cache_free(&c);
    }
}

/* --- hints ------------------------------------------------------------------------------------ */

static void demoted_frames_leave_first(void)
{
    cache c = cache_of(16, 64);

    (void)pass(&c, 0, 16);
    usm__policy_demote(c.policy, c.frame_of[9]);
    (void)touch(&c, 20);
    CHECK(c.frame_of[9] == NOWHERE);
    CHECK(c.frame_of[0] != NOWHERE);
    cache_free(&c);
}

static void what_is_used_in_passing_leaves_the_rest_alone(void)
{
    cache c = cache_of(16, 256);

    (void)pass(&c, 0, 12); /* once: nothing says that they are hot */
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t frame = bring_in(&c, 100 + i, USM__HINT_SEQUENTIAL);

        c.used[frame] = true;
    }
    CHECK(pass(&c, 0, 12) >= 10.0 / 12);
    cache_free(&c);
}

static void announced_blocks_wait_for_their_use(void)
{
    cache c = cache_of(16, 256);

    (void)pass(&c, 0, 16);
    for (uint32_t i = 0; i < 6; i++)
        (void)bring_in(&c, 100 + i, USM__HINT_ANNOUNCED);
    (void)pass(&c, 20, 40);
    for (uint32_t i = 0; i < 6; i++)
        CHECK(c.frame_of[100 + i] != NOWHERE);
    cache_free(&c);
}

/* --- dirty and pinned
 * ------------------------------------------------------------------------------ */

static void a_clean_neighbour_goes_before_a_dirty_one(void)
{
    cache    c = cache_of(64, 128);
    uint32_t frame;

    (void)pass(&c, 0, 64);
    for (uint32_t i = 0; i < 64; i++)
        c.dirty[c.frame_of[i]] = i != 3;
    frame = usm__policy_victim(c.policy, true, look, &c);
    CHECK_INT(frame, c.frame_of[3]);
    drop(&c, frame, true);
    CHECK(usm__policy_victim(c.policy, false, look, &c) == USM__NO_FRAME);
    frame = usm__policy_victim(c.policy, true, look, &c);
    CHECK(frame != USM__NO_FRAME && c.dirty[frame]);
    cache_free(&c);
}

static void whatever_can_go_is_found(void)
{
    for (size_t i = 0; i < SIZES; i++)
        for (uint32_t free_one = 0; free_one < sizes[i]; free_one += sizes[i] / 4) {
            cache c = cache_of(sizes[i], sizes[i]);

            (void)pass(&c, 0, sizes[i]);
            for (uint32_t k = 0; k < sizes[i]; k++)
                c.pinned[c.frame_of[k]] = k != free_one;
            CHECK_INT(usm__policy_victim(c.policy, false, look, &c), c.frame_of[free_one]);
            c.pinned[c.frame_of[free_one]] = true;
            c.looks                        = 0;
            CHECK(usm__policy_victim(c.policy, true, look, &c) == USM__NO_FRAME);
            CHECK(c.looks <= 8 * (uint64_t)sizes[i] + 8);
            cache_free(&c);
        }
}

static void what_is_stored_ahead_is_what_goes_next(void)
{
    enum { FRAMES = 64, N = 8 };
    cache    c = cache_of(FRAMES, 256);
    uint32_t list[N];
    size_t   n;

    (void)pass(&c, 0, FRAMES + 20); /* some have been looked at */
    for (uint32_t i = 0; i < FRAMES; i++)
        c.dirty[i] = true;
    n = usm__policy_clean_ahead(c.policy, list, N, glance, &c);
    CHECK_INT(n, N);
    for (size_t i = 0; i < n; i++)
        c.dirty[list[i]] = false;
    for (size_t i = 0; i < n; i++) {
        uint32_t frame = usm__policy_victim(c.policy, false, look, &c);

        CHECK_INT(frame, list[i]);
        drop(&c, frame, true);
    }
    cache_free(&c);
}

static void looks_are_few(void)
{
    enum { FRAMES = 256, N = 8 * FRAMES };
    cache c = cache_of(FRAMES, N);

    for (int round = 0; round < 4; round++)
        (void)pass(&c, 0, N);
    CHECK(c.looks <= 4 * c.accesses);
    cache_free(&c);
}

/* --- everything at random
 * --------------------------------------------------------------------------- */

static void do_anything(cache *c, uint64_t *state)
{
    uint32_t key   = pick(state, c->keys);
    uint32_t frame = c->frame_of[key], list[4];

    switch (next_random(state) % 12) {
    case 0:
        if (frame != NOWHERE)
            usm__policy_used(c->policy, frame);
        break;
    case 1:
        if (frame != NOWHERE)
            usm__policy_demote(c->policy, frame);
        break;
    case 2:
        if (frame != NOWHERE)
            drop(c, frame, next_random(state) % 2 == 0);
        break;
    case 3:
        if (frame != NOWHERE)
            c->pinned[frame] = !c->pinned[frame];
        break;
    case 4:
        if (frame != NOWHERE)
            c->dirty[frame] = true;
        break;
    case 5:
        for (size_t n = usm__policy_clean_ahead(c->policy, list, 4, glance, c); n > 0; n--)
            c->dirty[list[n - 1]] = false;
        break;
    case 6:
    case 7:
        if (frame == NOWHERE)
            (void)bring_in(c, key, (usm__policy_hint)(next_random(state) % 5));
        break;
    default:
        if (frame != NOWHERE || bring_in(c, key, USM__HINT_DEMAND) != NOWHERE)
            c->used[c->frame_of[key]] = true;
        break;
    }
}

static void random_operations_leave_it_valid(void)
{
    for (uint32_t frames = 1; frames <= 40; frames += 3) {
        uint64_t state = 88172645463325252u + frames;
        cache    c     = cache_of(frames, 6 * frames);

        for (int i = 0; i < 4000; i++) {
            do_anything(&c, &state);
            if (i % 16 == 0)
                CHECK(usm__policy_is_valid(c.policy));
        }
        cache_free(&c);
    }
}

/* The history comes round several times. */
static void history_comes_round(void)
{
    cache c = cache_of(4, 100000);

    for (int round = 0; round < 2; round++)
        (void)pass(&c, 0, 20000);
    CHECK(usm__policy_is_valid(c.policy));
    cache_free(&c);
}

static void memory_is_small(void)
{
    size_t ghost = 24; /* bytes, at most 16 of them a frame, 4096 at least */

    for (uint32_t frames = 256; frames <= 8192; frames *= 2)
        CHECK(usm__policy_size(frames) <= 64 * (size_t)frames + 16 * ghost * frames + 1024);
    CHECK(usm__policy_size(4) <= 4096 * ghost + 2048);
}

static const plain_case cases[] = {
    CASE(a_cyclic_pass_hits_what_fits),
    CASE(a_loop_that_fits_misses_nothing),
    CASE(cyclic_passes_end),
    CASE(a_cyclic_pass_replaces_another),
    CASE(a_hot_set_survives_a_scan),
    CASE(many_accesses_to_a_block_are_one_visit),
    CASE(parts_that_fit_are_kept_before_long),
    CASE(another_hot_set_takes_over),
    CASE(zipf_is_not_worse_than_clock),
    CASE(useless_guesses_are_bounded),
    CASE(guesses_that_nobody_came_for_give_way),
    CASE(guesses_within_bounds_stay_until_used),
    CASE(a_cyclic_pass_of_guesses_hits_what_fits),
    CASE(demoted_frames_leave_first),
    CASE(what_is_used_in_passing_leaves_the_rest_alone),
    CASE(announced_blocks_wait_for_their_use),
    CASE(a_clean_neighbour_goes_before_a_dirty_one),
    CASE(whatever_can_go_is_found),
    CASE(what_is_stored_ahead_is_what_goes_next),
    CASE(looks_are_few),
    CASE(random_operations_leave_it_valid),
    CASE(history_comes_round),
    CASE(memory_is_small),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
