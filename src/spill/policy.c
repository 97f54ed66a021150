/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The order of eviction: S3-FIFO (Yang and others 2023) with a second chance, extended so that
 * passes over data larger than memory (scans) do not evict the working set.
 *
 *     readahead --used--> young --> small --used again--> main --idle--> evicted
 *                                     |                     ^
 *                                     +--idle--> evicted ..../  history: it comes back soon
 *
 *  - A block starts in `young`, a queue of few frames in which use does not count, because one pass
 *    over a block consists of many accesses.  A block that is used later, in `small`, is really
 *    reused and moves to `main`; so does a block that is loaded again soon after its eviction.
 *    While young and small hold their share, at first a tenth of memory, the victims come from
 *    them: a scan leaves main alone.
 *  - `history` records the last evictions in their order, many more than there are frames.  In a
 *    cyclic scan that is larger than memory, blocks come back in exactly that order (or, after
 *    random accesses, in the order of their numbers).  While they do (`score`), main keeps its
 *    blocks and takes all frames but a few, through which the scan passes.  The scan then has about
 *    frames / blocks hits in each round, which is the optimum.  Blocks of main that were not used
 *    for a round do not belong to the scan: they are evicted, and when many of them follow each
 *    other, the scan is no longer considered cyclic.
 *  - Repeated passes over a part that fits in memory look the same at first.  Blocks that come back
 *    in order sooner than memory turns over raise `share`, the number of frames for new blocks, and
 *    with it the length from which a scan counts as larger than memory.
 *  - Blocks of readahead wait in a bounded queue of their own for their first use.  Blocks that
 *    were demoted, or are used once in passing, are evicted first.
 *
 * Each operation moves a constant number of frames, except for frames whose mark of use is cleared:
 * each of these marks was set by an access, so the amortised cost is constant.  Nothing is
 * allocated.  Called by the engine and the simulator. */
#include "spill/policy.h"

#include <string.h>

#define NONE           USM__NO_FRAME
#define HEADS          4  /* passes that are distinguished at a time                             */
#define SCORE_ON       8  /* blocks in a row that came back in order, so that the pass is cyclic */
#define SCORE_MORE     16 /* excess of the score over that: so many misses do not end a pass     */
#define STALE_MANY     8
#define HISTORY_FACTOR 16 /* a cycle longer than this many times memory is not worth recognising */
#define HISTORY_MIN    4096
#define NEXT_KEYS      4  /* a block is adjacent to one at most that many numbers before it */
#define STEP_OVER      32 /* frames in use at the head of a queue that keep their position  */

typedef enum queue_id {
    OUT = 0, /* the frame is empty                         */
    FIRST,   /* demoted, or used in passing: evicted first */
    GUESS,
    ANNOUNCED,
    YOUNG,
    SMALL,
    MAIN,
    QUEUES
} queue_id;

typedef struct slot {
    uint64_t key;
    uint32_t prev, next;
    uint32_t stamp; /* number of evictions when it was last known to be in use                */
    uint32_t back;  /* the number of the eviction that it came back from                      */
    uint8_t  queue;
    bool     has_back, returned; /* has come back, not yet evaluated; had been evicted before */
    bool     back_main;          /* it was evicted from main and came back */
    bool     in_passing;         /* a block of readahead that is used once */
    bool     demoted;            /* marks of use from before do not count  */
} slot;

typedef struct queue {
    uint32_t head, tail, count;
} queue;

/* A recorded eviction: number n is at n % history.  The entries of a bucket are chained by
 * `next`. */
typedef struct past {
    uint64_t key;
    uint32_t next; /* index + 1                      */
    bool     live; /* evicted, and has not come back */
    bool     from_main;
} past;

struct usm__policy {
    uint32_t frames, history;
    uint32_t evictions; /* number of evictions; wraps, so only differences count              */
    uint32_t small_most, young_most, predicted_most, order_slack;
    uint32_t share; /* frames for new blocks: grows while they come back soon after eviction      */
    queue    queues[QUEUES];
    /* the order in which blocks come back */
    uint32_t heads[HEADS]; /* of each order: the last eviction that was undone, ...           */
    uint64_t keys[HEADS];  /* ... and its key                                                 */
    uint32_t nheads, oldest_head;
    uint32_t score, round; /* evictions between leaving and coming back                       */
    uint32_t stale;        /* unused blocks of main found in succession                       */
    bool     cyclic, settled;
    uint32_t dirty_pressure; /* grows while victims are dirty                                 */
    slot     slots[]; /* then past[history], uint32_t buckets[history]                        */
};

/* --- memory ------------------------------------------------------------------- */

static uint32_t history_of(uint32_t frames)
{
    uint32_t wanted = frames * HISTORY_FACTOR, n = HISTORY_MIN;

    while (n < wanted)
        n *= 2;
    return n;
}

static size_t past_offset(uint32_t frames)
{
    return sizeof(usm__policy) + (size_t)frames * sizeof(slot);
}

static past *pasts(const usm__policy *p)
{
    return (past *)(uintptr_t)((const char *)p + past_offset(p->frames));
}

static uint32_t *buckets(const usm__policy *p)
{
    return (uint32_t *)(uintptr_t)(pasts(p) + p->history);
}

size_t usm__policy_size(uint32_t frames)
{
    return past_offset(frames) + (size_t)history_of(frames) * (sizeof(past) + sizeof(uint32_t));
}

static uint32_t at_least(uint32_t n, uint32_t least)
{
    return n > least ? n : least;
}

static uint32_t at_most(uint32_t n, uint32_t most)
{
    return n < most ? n : most;
}

void usm__policy_init(usm__policy *p, uint32_t frames)
{
    p->frames         = frames;
    p->history        = history_of(frames);
    p->small_most     = at_least(frames / 10, at_most(frames / 4, 4));
    p->small_most     = at_least(p->small_most, 1);
    p->young_most     = at_least(at_most(p->small_most / 2, 8), 1);
    p->predicted_most = frames < 8 ? 1 : at_least(frames / 4, at_most(frames / 2, 10));
    p->order_slack    = at_most(at_least(frames / 16, 4), 64);
    p->share          = p->small_most;
    for (int q = 0; q < QUEUES; q++)
        p->queues[q] = (queue){NONE, NONE, 0};
}

/* --- queues ------------------------------------------------------------------- */

static uint32_t count(const usm__policy *p, queue_id q)
{
    return p->queues[q].count;
}

/* Frames of new blocks and of those used in passing. */
static uint32_t count_small(const usm__policy *p)
{
    return count(p, SMALL) + count(p, YOUNG);
}

static void unlink_slot(usm__policy *p, uint32_t frame)
{
    slot  *s = &p->slots[frame];
    queue *q = &p->queues[s->queue];

    if (s->prev != NONE)
        p->slots[s->prev].next = s->next;
    else
        q->head = s->next;
    if (s->next != NONE)
        p->slots[s->next].prev = s->prev;
    else
        q->tail = s->prev;
    q->count--;
    s->queue = OUT;
}

static void push(usm__policy *p, uint32_t frame, queue_id id, bool is_head)
{
    slot    *s   = &p->slots[frame];
    queue   *q   = &p->queues[id];
    uint32_t was = is_head ? q->head : q->tail;

    s->queue = (uint8_t)id;
    s->prev  = is_head ? NONE : was;
    s->next  = is_head ? was : NONE;
    if (was == NONE)
        q->head = q->tail = frame;
    else if (is_head)
        p->slots[was].prev = q->head = frame;
    else
        p->slots[was].next = q->tail = frame;
    q->count++;
}

static void move(usm__policy *p, uint32_t frame, queue_id id)
{
    unlink_slot(p, frame);
    push(p, frame, id, false);
    p->slots[frame].stamp = p->evictions;
}

/* --- history ------------------------------------------------------------------ */

static uint32_t bucket_of(const usm__policy *p, uint64_t key)
{
    return (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (p->history - 1);
}

static void forget(usm__policy *p, uint32_t index)
{
    past     *all  = pasts(p);
    uint32_t *link = &buckets(p)[bucket_of(p, all[index].key)];

    while (*link != index + 1)
        link = &all[*link - 1].next;
    *link           = all[index].next;
    all[index].live = false;
}

static void remember(usm__policy *p, uint64_t key, bool from_main)
{
    uint32_t  index = p->evictions & (p->history - 1);
    past     *e     = &pasts(p)[index];
    uint32_t *link  = &buckets(p)[bucket_of(p, key)];

    if (e->live)
        forget(p, index);
    *e    = (past){.key = key, .next = *link, .live = true, .from_main = from_main};
    *link = index + 1;
}

/* Whether the key was evicted recently: the number of its eviction, and from which queue.  The
 * record is deleted. */
static bool recall(usm__policy *p, uint64_t key, slot *s)
{
    past    *all = pasts(p);
    uint32_t at  = buckets(p)[bucket_of(p, key)];

    while (at != 0 && all[at - 1].key != key)
        at = all[at - 1].next;
    if (at == 0)
        return false;
    forget(p, at - 1);
    s->back_main = all[at - 1].from_main;
    /* The last eviction with that index. */
    s->back = p->evictions - 1 - ((p->evictions - 1 - (at - 1)) & (p->history - 1));
    return true;
}

/* --- cyclic passes -------------------------------------------------------------- */

/* Whether a block that comes back continues one of the current orders: the order of eviction, or
 * that of block numbers.  near: it does not contradict one. */
static bool continues(usm__policy *p, const slot *s, bool *near)
{
    for (uint32_t i = 0; i < p->nheads; i++) {
        int32_t d = (int32_t)(s->back - p->heads[i]);
        int64_t k = (int64_t)(s->key - p->keys[i]);

        if ((d > 0 && d <= (int32_t)p->order_slack) || (k > 0 && k <= NEXT_KEYS)) {
            p->heads[i] = s->back;
            p->keys[i]  = s->key;
            return true;
        }
        *near |= d <= 0 && -d <= (int32_t)p->order_slack;
    }
    return false;
}

static void begin_order(usm__policy *p, const slot *s)
{
    uint32_t i = p->nheads;

    if (i < HEADS) {
        p->nheads++;
    } else {
        i              = p->oldest_head;
        p->oldest_head = (i + 1) % HEADS;
    }
    p->heads[i] = s->back;
    p->keys[i]  = s->key;
}

/* Number of blocks in order that make a cyclic pass.  If new blocks used to come back soon, the
 * pass must be longer than the share kept for them. */
static uint32_t score_on(const usm__policy *p)
{
    return p->share > 2 * p->small_most ? p->share : at_most(SCORE_ON, p->frames);
}

static void end_cycle(usm__policy *p)
{
    p->score = p->stale = 0;
    p->cyclic = p->settled = false;
}

static void lower_score(usm__policy *p, uint32_t by)
{
    p->score = p->score > by ? p->score - by : 0;
    if (p->score == 0)
        end_cycle(p);
}

/* A block is used that was not in memory when it was requested. */
static bool came_back_in_order(usm__policy *p, const slot *s)
{
    bool near = false;

    if (!s->has_back) {
        lower_score(p, 1);
        return false;
    }
    if (continues(p, s, &near)) {
        uint32_t age = p->evictions - s->back;

        p->round = p->round == 0 ? age : p->round - p->round / 4 + age / 4;
        p->score = at_most(p->score + 1, score_on(p) + SCORE_MORE);
        p->cyclic |= p->score >= score_on(p);
        return true;
    }
    if (near)
        return true;
    begin_order(p, s);
    lower_score(p, 2);
    return false;
}

/* Blocks that main kept are used again: new blocks get a smaller share. */
static void lower_share(usm__policy *p)
{
    p->share -= p->share > p->small_most;
}

/* The queue in which a block that is used now begins. */
static queue_id begin_at(usm__policy *p, slot *s)
{
    bool in_order = came_back_in_order(p, s);
    bool soon     = s->has_back && p->evictions - s->back <= p->frames;

    if (soon && in_order && p->score >= SCORE_ON / 2 && !s->back_main)
        p->share = at_most(p->share + 1, at_least(p->frames - p->small_most, p->small_most));
    else if (soon && in_order)
        lower_share(p);
    s->has_back = false;
    return soon && !(p->cyclic && in_order) ? MAIN : YOUNG;
}

/* Frames that are replaced during a pass: more if their content must be stored first, because that
 * takes time. */
static uint32_t turnover(const usm__policy *p)
{
    uint32_t usual = at_most(p->small_most, 16);

    if (p->dirty_pressure < 8)
        return usual;
    return at_least(usual, at_most(at_least(p->frames / 2, 1), 32));
}

/* --- reports of the engine ---------------------------------------------------------- */

void usm__policy_insert(usm__policy *p, uint32_t frame, uint64_t key, usm__policy_hint hint)
{
    slot    *s  = &p->slots[frame];
    queue_id to = YOUNG;

    *s            = (slot){.key = key, .stamp = p->evictions};
    s->in_passing = hint == USM__HINT_PREFETCH_SEQUENTIAL;
    s->has_back   = recall(p, key, s);
    s->returned   = s->has_back;
    switch (hint) {
    case USM__HINT_PREFETCH:
    case USM__HINT_PREFETCH_SEQUENTIAL:
        to = GUESS;
        break;
    case USM__HINT_ANNOUNCED:
        to = ANNOUNCED;
        break;
    case USM__HINT_SEQUENTIAL:
        to = FIRST;
        break;
    case USM__HINT_DEMAND:
        to = begin_at(p, s);
        break;
    }
    push(p, frame, to, false);
}

void usm__policy_remove(usm__policy *p, uint32_t frame, bool is_evicted)
{
    slot *s = &p->slots[frame];
    bool  is_predicted, was_main;

    if (s->queue == OUT)
        return;
    was_main     = s->queue == MAIN;
    is_predicted = s->queue == GUESS || s->queue == ANNOUNCED;
    unlink_slot(p, frame);
    if (!is_evicted)
        return;
    if (!is_predicted) /* a block of readahead that was not used says nothing about its reuse */
        remember(p, s->key, was_main);
    p->evictions += is_predicted ? 0 : 1;
}

void usm__policy_used(usm__policy *p, uint32_t frame)
{
    slot *s = &p->slots[frame];

    if (s->queue == GUESS || s->queue == ANNOUNCED)
        move(p, frame, s->in_passing ? FIRST : begin_at(p, s));
}

void usm__policy_demote(usm__policy *p, uint32_t frame)
{
    if (p->slots[frame].queue == OUT)
        return;
    unlink_slot(p, frame);
    push(p, frame, FIRST, true);
    p->slots[frame].demoted = true;
}

uint32_t usm__policy_readahead_room(const usm__policy *p)
{
    return p->predicted_most - at_most(count(p, GUESS), p->predicted_most);
}

bool usm__policy_is_cyclic(const usm__policy *p)
{
    return p->cyclic;
}

/* --- victims -------------------------------------------------------------------------- */

typedef struct search {
    usm__policy         *p;
    usm__policy_look_fn *look;
    void                *arg;
    bool                 dirty_too;
    uint32_t             dirty;    /* the first that was found                              */
    uint32_t             patience; /* more frames to look at for a clean one                */
    uint32_t             steps;    /* frames in use that may still be skipped               */
} search;

static usm__policy_look look_at(search *s, uint32_t frame)
{
    slot            *f    = &s->p->slots[frame];
    usm__policy_look seen = s->look(s->arg, frame);

    if (seen == USM__LOOK_USED && f->demoted)
        seen = s->look(s->arg, frame);
    return seen;
}

/* Handles a frame of `id` that is in use, or was since the last look.  A frame that is being stored
 * keeps its position, to be evicted afterwards; one that stays pinned is moved out of the way. */
static void keep(search *s, uint32_t frame, queue_id id, usm__policy_look seen)
{
    bool is_used = seen == USM__LOOK_USED;

    if (!is_used && id != MAIN && s->steps > 0)
        s->steps--;
    else if (id == SMALL)
        move(s->p, frame, is_used ? MAIN : YOUNG);
    else
        move(s->p, frame, id);
}

/* Searches from the head of the queue, `most` frames at most, for one that can be evicted. */
static uint32_t scan(search *s, queue_id id, uint32_t most)
{
    usm__policy *p  = s->p;
    uint32_t     at = p->queues[id].head;

    for (uint32_t next; most > 0 && at != NONE; at = next, most--) {
        usm__policy_look seen = look_at(s, at);

        next = p->slots[at].next;
        if (seen == USM__LOOK_IDLE)
            return at;
        if (seen != USM__LOOK_DIRTY)
            keep(s, at, id, seen);
        else if (s->dirty == NONE)
            s->dirty = at;
        if (next == NONE && most > 1) /* it was the last: continue at the head */
            next = p->queues[id].head;
        if (s->dirty != NONE && s->patience-- == 0)
            break;
    }
    return s->dirty_too ? s->dirty : NONE;
}

/* Moves the oldest blocks of young to small; their marks of use are from their first visit. */
static void grow_up(search *s)
{
    usm__policy *p = s->p;

    for (uint32_t most = count(p, YOUNG); most > 0 && count(p, YOUNG) > p->young_most; most--) {
        uint32_t frame = p->queues[YOUNG].head;

        move(p, frame, look_at(s, frame) == USM__LOOK_PINNED ? YOUNG : SMALL);
    }
}

/* In a cyclic pass: keeps the blocks that need not be replaced, the oldest first.  At first, when
 * the pass is recognised, that is all of them; later those known to come back. */
static void settle(usm__policy *p)
{
    while (count_small(p) > turnover(p) && count(p, SMALL) > 1 &&
           (!p->settled || p->slots[p->queues[SMALL].head].returned))
        move(p, p->queues[SMALL].head, MAIN);
    p->settled = true;
}

/* In a cyclic pass: finds a block of main that was not used for more than a round.  Looks at
 * one. */
static uint32_t find_stale(search *s)
{
    usm__policy     *p     = s->p;
    uint32_t         frame = p->queues[MAIN].head, age;
    usm__policy_look seen;

    if (frame == NONE)
        return NONE;
    seen = look_at(s, frame);
    age  = p->evictions - p->slots[frame].stamp;
    if ((seen == USM__LOOK_IDLE || (seen == USM__LOOK_DIRTY && s->dirty_too)) &&
        age > p->round + p->round / 8 + p->order_slack + turnover(p) + count(p, GUESS)) {
        p->stale++;
        return frame;
    }
    unlink_slot(p, frame);
    push(p, frame, MAIN, false);
    if (seen != USM__LOOK_USED && seen != USM__LOOK_PINNED)
        return NONE;
    p->slots[frame].stamp = p->evictions;
    p->stale              = 0;
    lower_share(p);
    lower_share(p);
    return NONE;
}

/* Blocks of readahead that were not used in time. */
static bool is_overdue(const usm__policy *p, queue_id id)
{
    uint32_t most   = id == GUESS ? p->predicted_most : at_least(p->frames / 2, 1);
    uint32_t head   = p->queues[id].head;
    uint32_t factor = id == GUESS ? 1 : 4;

    return head != NONE &&
           (count(p, id) > most || p->evictions - p->slots[head].stamp > factor * (p->frames + 32));
}

/* Finds a block that is evicted before demanded ones. */
static uint32_t find_first(search *s)
{
    static const queue_id guesses[] = {GUESS, ANNOUNCED};
    uint32_t              first     = count(s->p, FIRST);
    uint32_t              frame     = scan(s, FIRST, first > 3 ? 2 * first : first);

    for (size_t i = 0; i < 2 && frame == NONE; i++)
        if (is_overdue(s->p, guesses[i]))
            frame = scan(s, guesses[i], count(s->p, guesses[i]));
    return frame;
}

/* Small provides the victim while it has more than its share. */
static bool is_small_next(const usm__policy *p)
{
    uint32_t share = p->cyclic ? turnover(p) / 2 : p->share - 1;

    return count(p, SMALL) > 0 && (count_small(p) > share || count(p, MAIN) == 0);
}

static uint32_t find(search *s)
{
    static const queue_id any[] = {SMALL, MAIN, YOUNG, GUESS, ANNOUNCED, FIRST};
    usm__policy          *p     = s->p;
    uint32_t              frame = find_first(s);

    if (frame == NONE && p->cyclic) {
        settle(p);
        frame = find_stale(s);
        if (p->stale >= STALE_MANY) /* main's blocks do not belong to this pass */
            end_cycle(p);
    }
    if (frame == NONE && is_small_next(p))
        frame = scan(s, SMALL, count(p, SMALL));
    if (frame == NONE && (s->dirty_too || s->dirty == NONE))
        frame = scan(s, MAIN, 2 * count(p, MAIN));
    for (size_t i = 0; i < sizeof(any) / sizeof(any[0]) && frame == NONE; i++)
        if (s->dirty_too || s->dirty == NONE) /* else a block is stored, then evicted      */
            frame = scan(s, any[i], 2 * count(p, any[i]));
    return frame;
}

uint32_t usm__policy_victim(usm__policy *p, bool dirty_too, usm__policy_look_fn *look, void *arg)
{
    search   s = {.p         = p,
                  .look      = look,
                  .arg       = arg,
                  .dirty_too = dirty_too,
                  .dirty     = NONE,
                  .patience  = dirty_too ? at_most(p->frames / 8, 16) : 32,
                  .steps     = STEP_OVER};
    uint32_t frame;

    grow_up(&s);
    frame = find(&s);
    if (s.dirty != NONE && (frame == NONE || frame == s.dirty))
        p->dirty_pressure = at_most(p->dirty_pressure + 2, 32);
    else if (p->dirty_pressure > 0)
        p->dirty_pressure--;
    return frame;
}

/* --- storing early ---------------------------------------------------------------------- */

size_t usm__policy_clean_ahead(usm__policy *p, uint32_t *frames, size_t n,
                               usm__policy_look_fn *look, void *arg)
{
    static const queue_id order[] = {FIRST, SMALL, MAIN};
    size_t                found = 0, looks = 2 * n + 16;

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        uint32_t at = p->queues[order[i]].head;

        if (order[i] == MAIN && (p->cyclic || count_small(p) > p->share))
            break; /* not soon */
        for (; at != NONE && found < n && looks > 0; at = p->slots[at].next, looks--)
            if (look(arg, at) == USM__LOOK_DIRTY)
                frames[found++] = at;
    }
    return found;
}

/* --- check -------------------------------------------------------------------------------- */

static bool is_queue_valid(const usm__policy *p, queue_id id)
{
    const queue *q    = &p->queues[id];
    uint32_t     prev = NONE, n = 0;

    for (uint32_t at = q->head; at != NONE; at = p->slots[at].next, n++) {
        if (n >= p->frames || at >= p->frames || p->slots[at].queue != id ||
            p->slots[at].prev != prev)
            return false;
        prev = at;
    }
    return n == q->count && q->tail == prev;
}

static bool is_remembered(const usm__policy *p, uint32_t index)
{
    const past *all = pasts(p);
    uint32_t    at = buckets(p)[bucket_of(p, all[index].key)], steps = 0;

    while (at != 0 && at != index + 1 && steps++ < p->history)
        at = all[at - 1].next;
    return at == index + 1;
}

static bool is_history_valid(const usm__policy *p)
{
    for (uint32_t i = 0; i < p->history; i++)
        if (pasts(p)[i].live && !is_remembered(p, i))
            return false;
    for (uint32_t i = 0; i < p->history; i++)
        if (buckets(p)[i] > p->history || (buckets(p)[i] != 0 && !pasts(p)[buckets(p)[i] - 1].live))
            return false;
    return true;
}

bool usm__policy_is_valid(const usm__policy *p)
{
    uint32_t held = 0, in_queues = 0;

    for (uint32_t i = 0; i < p->frames; i++)
        held += p->slots[i].queue != OUT;
    for (queue_id q = FIRST; q < QUEUES; q++) {
        if (!is_queue_valid(p, q))
            return false;
        in_queues += count(p, q);
    }
    return held == in_queues && p->nheads <= HEADS && p->share >= p->small_most &&
           p->share <= p->frames && (p->history & (p->history - 1)) == 0 && is_history_valid(p);
}
