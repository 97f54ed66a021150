/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Readahead: predicting the next blocks.  The engine reports misses and first uses of blocks of
 * readahead; it does not report hits on other blocks in memory.
 *
 *     streams  up to eight passes, with one stride each.  An access continues the stream that it
 *              is few strides ahead of.  An access that continues none is compared with the
 *              recent ones that did not either: a neighbour, or three points in a line, begin a
 *              stream, whatever other accesses were in between.
 *     history  the block that followed each block last time.  Predictions are first compared with
 *              the accesses that follow, before they are used, so a random order costs nothing.
 *
 * The cost of wrong predictions is bounded in three ways.  A stream that four accesses have not
 * confirmed pays one of a few tokens for each prediction; used predictions earn tokens back, and
 * time does so slowly.  Each stream has a limit, which is halved by each of its blocks that was
 * evicted unused.  New streams begin with the limit `reach`, which the last streams attained.
 *
 * Called by the engine and the simulator. */
#include "spill/prefetch.h"

#include <string.h>

#define STREAMS     8
#define RECENT      16
#define SURE        4 /* accesses in order after which a stream pays no tokens              */
#define TOKENS      8 /* at first, and at most                                              */
#define BOLD        4
#define RETRY       64  /* accesses in order before a failed stream predicts again       */
#define TOKEN_EVERY 256 /* accesses that earn one token                                  */
#define NEAR_STRIDE 64  /* largest stride between accesses that have others between them */
#define NEAR_TIME   64  /* accesses after which an earlier access counts as unrelated    */
#define TOUR_SURE   8   /* right predictions in a row                                    */
#define TOUR_MAX    64

typedef struct stream {
    int64_t  last, ahead; /* last block reached; last block requested    */
    int64_t  stride;      /* 0: none                                     */
    uint32_t run;         /* accesses in order                           */
    uint32_t limit;       /* of the window                               */
    uint32_t used;        /* predictions that were used                  */
    uint32_t seen;        /* number of the access that continued it last */
} stream;

struct usm__prefetch {
    uint32_t     blocks, most;
    usm__pattern pattern;
    uint32_t     now; /* number of accesses                                                  */
    uint32_t     tokens, reach;
    uint32_t     bold; /* streams that a single access may begin: as many became SURE             */
    int64_t      stride; /* of the last stream that reached SURE; 0: none                    */
    bool         in_order, has_prev;
    uint32_t     prev, repeats;
    stream       streams[STREAMS];
    uint32_t     recent[RECENT], recent_when[RECENT], nrecent; /* accesses of no stream; a ring */
    /* successors */
    bool     history_is_right; /* the last prediction                                            */
    uint32_t history_score, history_limit, history_asked, history_ahead;
    uint32_t after[]; /* by block: its successor + 1                                          */
};

static uint32_t at_most(uint32_t n, uint32_t most)
{
    return n < most ? n : most;
}

size_t usm__prefetch_size(uint32_t blocks)
{
    return sizeof(usm__prefetch) + (size_t)blocks * sizeof(uint32_t);
}

uint32_t usm__prefetch_usual(uint32_t frames, uint64_t block_size)
{
    uint64_t most   = ((uint64_t)32 << 20) / block_size;
    uint32_t window = at_most(frames / 4, 8);

    if (window < frames / 16)
        window = frames / 16;
    if (window > most)
        window = (uint32_t)most;
    return window > 0 ? window : 1;
}

void usm__prefetch_init(usm__prefetch *p, uint32_t blocks, uint32_t most)
{
    p->blocks        = blocks;
    p->most          = most;
    p->reach         = most;
    p->history_limit = most;
    p->tokens        = TOKENS;
}

void usm__prefetch_set(usm__prefetch *p, usm__pattern pattern, uint32_t most)
{
    p->pattern       = pattern;
    p->most          = most;
    p->reach         = most;
    p->history_limit = most;
    memset(p->streams, 0, sizeof(p->streams));
}

bool usm__prefetch_in_order(const usm__prefetch *p)
{
    return p->in_order;
}

/* --- streams ---------------------------------------------------------------------- */

/* How far readahead of a stream may be ahead: four times as far with each access that confirms it,
 * and at most eight times the predictions that were used. */
static uint32_t window(const stream *s)
{
    static const uint32_t by_run[] = {0, 2, 8, 32};

    if (s->run < SURE)
        return at_most(s->limit, by_run[s->run]);
    return at_most(s->limit, 8 * (at_most(s->used, s->limit) + 1));
}

/* The number of strides that the block is ahead of the stream; 0: it is not on it. */
static int64_t steps_ahead(const stream *s, uint32_t block)
{
    int64_t d = s->stride != 0 ? (int64_t)block - s->last : 0;

    return d != 0 && d % s->stride == 0 && d / s->stride > 0 ? d / s->stride : 0;
}

/* The stream that the block continues.  A stream without a recent access must be met exactly. */
static stream *find_stream(usm__prefetch *p, uint32_t block, bool was_predicted, int64_t *steps)
{
    stream *best = NULL;

    for (int i = 0; i < STREAMS; i++) {
        stream *s = &p->streams[i];
        int64_t n = steps_ahead(s, block);

        if (n == 0 || n > (int64_t)window(s) + 2 || (best != NULL && n >= *steps))
            continue;
        if (n > 1 && !was_predicted && p->now - s->seen > NEAR_TIME / 4)
            continue;
        best   = s;
        *steps = n;
    }
    return best;
}

/* The stream that has just passed the block, because another thread was faster. */
static stream *find_passed(usm__prefetch *p, uint32_t block)
{
    for (int i = 0; i < STREAMS; i++) {
        stream *s = &p->streams[i];
        int64_t d = s->stride != 0 ? s->last - (int64_t)block : 0;

        if (d != 0 && d % s->stride == 0 && d / s->stride > 0 && d / s->stride <= 4 && s->run > 1)
            return s;
    }
    return NULL;
}

/* The end of a stream adjusts the limit of the next ones. */
static void end_stream(usm__prefetch *p, stream *s)
{
    int64_t unused = s->stride != 0 ? (s->ahead - s->last) / s->stride : 0;

    if (unused > (int64_t)(s->used / 2))
        p->reach /= 2;
    else if (s->used >= p->reach)
        p->reach = at_most(p->reach * 2 + 1, p->most);
    s->stride = 0;
}

/* Replaces the stream that was not used for the longest time. */
static stream *begin_stream(usm__prefetch *p, uint32_t block, int64_t stride, uint32_t run)
{
    stream *s = &p->streams[0];

    for (int i = 0; i < STREAMS && s->stride != 0; i++)
        if (p->streams[i].stride == 0 || p->now - p->streams[i].seen > p->now - s->seen)
            s = &p->streams[i];
    if (s->stride != 0)
        end_stream(p, s);
    *s = (stream){.last   = block,
                  .ahead  = block,
                  .stride = stride,
                  .run    = run,
                  .limit  = p->reach,
                  .seen   = p->now};
    return s;
}

static bool was_recent(const usm__prefetch *p, int64_t block, uint32_t before, uint32_t *when)
{
    for (uint32_t i = before; i < RECENT && i < p->nrecent; i++) {
        uint32_t at = (p->nrecent - 1 - i) % RECENT;

        if (p->now - p->recent_when[at] > NEAR_TIME)
            return false;
        if (p->recent[at] != block)
            continue;
        *when = i;
        return true;
    }
    return false;
}

/* The stride from a recent neighbour, or from three points in a line: small strides may have other
 * accesses between them, other strides none. 0: none. */
static int64_t find_stride(const usm__prefetch *p, uint32_t block, uint32_t *run)
{
    uint32_t when = 0, unused = 0;
    bool     is_next = was_recent(p, (int64_t)block - 1, 0, &when);

    *run = is_next && was_recent(p, (int64_t)block - 2, 0, &unused) ? 2 : 1;
    if (is_next && *run == 2)
        return 1;
    if (was_recent(p, (int64_t)block + 1, 0, &when)) {
        *run = was_recent(p, (int64_t)block + 2, 0, &unused) ? 2 : 1;
        return is_next && *run == 1 ? 1 : -1;
    }
    if (is_next)
        return 1;
    *run = 2;
    for (uint32_t i = 0; i < RECENT && i < p->nrecent; i++) {
        int64_t d = (int64_t)block - p->recent[(p->nrecent - 1 - i) % RECENT];

        if (d != 0 && (i == 0 || (d <= NEAR_STRIDE && d >= -NEAR_STRIDE)) &&
            was_recent(p, block - 2 * d, i + 1, &unused) && (i == 0 ? unused == 1 : true))
            return d;
    }
    return 0;
}

static stream *find_new(usm__prefetch *p, uint32_t block)
{
    uint32_t run    = 0;
    int64_t  stride = find_stride(p, block, &run);
    stream  *s;

    if (stride == 0 && p->pattern == USM__PATTERN_SEQUENTIAL) {
        stride = 1;
        run    = SURE;
    } else if (stride == 0 && p->bold > 0) { /* recent streams were right               */
        stride = p->stride;
        run    = 1;
        p->bold--;
    }
    p->recent[p->nrecent % RECENT]      = block;
    p->recent_when[p->nrecent % RECENT] = p->now;
    p->nrecent++;
    s = stride != 0 ? begin_stream(p, block, stride, run) : NULL;
    if (s != NULL && p->pattern == USM__PATTERN_SEQUENTIAL)
        s->used = p->most; /* its owner has announced the pass */
    return s;
}

static void go_on(usm__prefetch *p, stream *s, uint32_t block, int64_t steps, bool was_predicted)
{
    s->last = block;
    s->seen = p->now;
    if (was_predicted) {
        s->used++;
        s->limit = at_most(s->limit + 1, p->most);
    } else {
        s->ahead = block; /* what was requested is not in memory: request it again */
    }
    if ((s->ahead - s->last) / s->stride < 0)
        s->ahead = block;
    if (steps == 1 || was_predicted)
        s->run += s->run < RETRY;
    else
        s->run = at_most(s->run, SURE - 1) / 2 + 1;
    if (s->run == SURE) {
        p->stride = s->stride;
        p->bold   = at_most(p->bold + 1, BOLD);
    }
    if (s->limit == 0 && s->run >= RETRY)
        s->limit = 1;
}

/* --- successors ---------------------------------------------------------------------- */

static void note_order(usm__prefetch *p, uint32_t block, bool was_predicted)
{
    bool is_right = p->has_prev && p->after[p->prev] == block + 1;

    if (is_right) {
        p->history_score = at_most(p->history_score + 1, TOUR_MAX);
        if (was_predicted || (p->history_limit == 0 && p->history_score == TOUR_MAX))
            p->history_limit = at_most(p->history_limit + 1, p->most);
    } else {
        p->history_score /= 2;
        p->history_limit = p->history_asked > 0 ? p->history_limit / 2 : p->history_limit;
        p->history_asked = 0;
    }
    p->history_is_right = is_right;
    if (is_right && p->history_asked > 0)
        p->history_asked--;
    if (p->has_prev)
        p->after[p->prev] = block + 1;
    if (p->history_asked == 0)
        p->history_ahead = block;
}

static size_t ask_history(usm__prefetch *p, uint32_t most, uint32_t *out, size_t cap)
{
    size_t n = 0;

    if (p->history_score < TOUR_SURE || !p->history_is_right)
        return 0;
    most = at_most(at_most(most, p->history_score / 4), p->history_limit);
    while (n < cap && p->history_asked < most && p->after[p->history_ahead] != 0) {
        p->history_ahead = p->after[p->history_ahead] - 1;
        p->history_asked++;
        out[n++] = p->history_ahead;
    }
    return n;
}

/* --- requests -------------------------------------------------------------------------- */

static bool pay(usm__prefetch *p, const stream *s)
{
    if (s->run >= SURE)
        return true;
    if (p->tokens == 0)
        return false;
    p->tokens--;
    return true;
}

static size_t ask_stream(usm__prefetch *p, stream *s, uint32_t *out, size_t cap)
{
    int64_t end = s->last + (int64_t)window(s) * s->stride;
    size_t  n   = 0;

    while (n < cap && s->ahead != end) {
        int64_t next = s->ahead + s->stride;

        if (next < 0 || next >= p->blocks)
            break;
        if (!pay(p, s))
            return n;
        out[n++] = (uint32_t)next;
        s->ahead = next;
    }
    return n;
}

size_t usm__prefetch_next(usm__prefetch *p, uint32_t block, bool was_predicted, uint32_t *out,
                          size_t cap)
{
    int64_t steps = 0;
    stream *s;
    size_t  n = 0;

    if (p->pattern == USM__PATTERN_RANDOM || block >= p->blocks)
        return 0;
    if (p->has_prev && block == p->prev) { /* parts of one block, one after the other */
        p->in_order |= ++p->repeats > 1;
        return 0;
    }
    p->repeats = 0;
    p->now++;
    if (was_predicted || p->now % TOKEN_EVERY == 0)
        p->tokens = at_most(p->tokens + 1, TOKENS);
    note_order(p, block, was_predicted);
    s = find_stream(p, block, was_predicted, &steps);
    if (s != NULL)
        go_on(p, s, block, steps, was_predicted);
    else if (find_passed(p, block) == NULL)
        s = find_new(p, block);
    p->in_order = p->now == 1 || (s != NULL && s->run >= SURE); /* three in a row occur by chance */
    if (s != NULL)
        n = ask_stream(p, s, out, cap);
    else
        n = ask_history(p, p->most, out, cap);
    p->prev     = block;
    p->has_prev = true;
    return n;
}

void usm__prefetch_wasted(usm__prefetch *p, uint32_t block)
{
    for (int i = 0; i < STREAMS; i++) {
        stream *s     = &p->streams[i];
        int64_t steps = steps_ahead(s, block);

        if (steps == 0 || (s->ahead - (int64_t)block) / s->stride < 0)
            continue;
        s->limit /= 2;
        if (s->limit == 0)
            s->run = at_most(s->run, SURE);
        p->tokens -= p->tokens > 0;
        if (s->used == 0) { /* and the next is no better           */
            p->reach /= 2;
            p->bold = 0;
        }
        return;
    }
    p->tokens -= p->tokens > 0;
    p->history_limit = p->history_asked > 0 ? p->history_limit / 2 : p->history_limit;
}
