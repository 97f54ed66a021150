/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-replay --spill: how many hits other eviction policies would have had, without readahead, and
 * the most that is possible (Belady: the victim is the block that is used last in the future). */
#include "spill.h"

#include <stdlib.h>

#define NONE UINT32_MAX

/* Blocks in memory in the order of use: the head was used longest ago. */
typedef struct order {
    uint32_t *prev, *next; /* by block */
    bool     *is_in;
    uint32_t  head, tail, count;
} order;

static bool order_make(order *o, uint32_t blocks)
{
    *o       = (order){.head = NONE, .tail = NONE};
    o->prev  = calloc(blocks, sizeof *o->prev);
    o->next  = calloc(blocks, sizeof *o->next);
    o->is_in = calloc(blocks, sizeof *o->is_in);
    return o->prev && o->next && o->is_in;
}

static void order_free(order *o)
{
    free(o->prev);
    free(o->next);
    free(o->is_in);
}

static void take(order *o, uint32_t block)
{
    uint32_t prev = o->prev[block], next = o->next[block];

    *(prev != NONE ? &o->next[prev] : &o->head) = next;
    *(next != NONE ? &o->prev[next] : &o->tail) = prev;
    o->is_in[block]                             = false;
    o->count--;
}

static void append(order *o, uint32_t block)
{
    o->prev[block]                                    = o->tail;
    o->next[block]                                    = NONE;
    *(o->tail != NONE ? &o->next[o->tail] : &o->head) = block;
    o->tail                                           = block;
    o->is_in[block]                                   = true;
    o->count++;
}

static void count(spill_counts *c, bool is_hit)
{
    c->accesses++;
    c->hits += is_hit;
    c->missed += !is_hit;
}

static bool run_order(const spill_workload *w, uint32_t frames, spill_counts *counts, bool newest)
{
    order o;
    bool  good = order_make(&o, w->blocks);

    for (size_t i = 0, phase = 0; good && i < w->n; i++) {
        uint32_t block = w->accesses[i].block;

        phase = spill_phase_of(w, i, phase);
        count(&counts[phase], o.is_in[block]);
        if (o.is_in[block])
            take(&o, block);
        else if (o.count == frames)
            take(&o, newest ? o.tail : o.head);
        append(&o, block);
    }
    order_free(&o);
    return good;
}

bool spill_lru(const spill_workload *w, uint32_t frames, spill_counts *counts)
{
    return run_order(w, frames, counts, false);
}

bool spill_mru(const spill_workload *w, uint32_t frames, spill_counts *counts)
{
    return run_order(w, frames, counts, true);
}

bool spill_clock(const spill_workload *w, uint32_t frames, spill_counts *counts)
{
    uint32_t *block_in = calloc(frames, sizeof *block_in);
    uint32_t *frame_of = calloc(w->blocks, sizeof *frame_of); /* + 1 */
    bool     *used     = calloc(frames, sizeof *used);
    bool      good     = block_in && frame_of && used;
    uint32_t  hand = 0, filled = 0;

    for (size_t i = 0, phase = 0; good && i < w->n; i++) {
        uint32_t block = w->accesses[i].block, frame = frame_of[block] - 1;

        phase = spill_phase_of(w, i, phase);
        count(&counts[phase], frame != NONE);
        if (frame == NONE && filled < frames) {
            frame = filled++;
        } else if (frame == NONE) {
            for (; used[hand]; hand = (hand + 1) % frames)
                used[hand] = false;
            frame                     = hand;
            frame_of[block_in[frame]] = 0;
            hand                      = (hand + 1) % frames;
        }
        block_in[frame] = block;
        frame_of[block] = frame + 1;
        used[frame]     = true;
    }
    free(block_in);
    free(frame_of);
    free(used);
    return good;
}

/* ---- OPT: a heap of the blocks in memory, the one used last on top --------------------------- */

typedef struct heap {
    uint32_t *blocks, *place; /* place: position of a block, + 1 */
    size_t   *next_use;       /* by block */
    uint32_t  n;
} heap;

static void put_at(heap *h, uint32_t i, uint32_t block)
{
    h->blocks[i]    = block;
    h->place[block] = i + 1;
}

static void rise(heap *h, uint32_t i)
{
    uint32_t block = h->blocks[i];

    for (; i > 0 && h->next_use[h->blocks[(i - 1) / 2]] < h->next_use[block]; i = (i - 1) / 2)
        put_at(h, i, h->blocks[(i - 1) / 2]);
    put_at(h, i, block);
}

static void sink(heap *h, uint32_t i)
{
    uint32_t block = h->blocks[i];

    for (uint32_t child = 2 * i + 1; child < h->n; child = 2 * i + 1) {
        child +=
            child + 1 < h->n && h->next_use[h->blocks[child + 1]] > h->next_use[h->blocks[child]];
        if (h->next_use[h->blocks[child]] <= h->next_use[block])
            break;
        put_at(h, i, h->blocks[child]);
        i = child;
    }
    put_at(h, i, block);
}

static void drop_top(heap *h)
{
    h->place[h->blocks[0]] = 0;
    h->n--;
    if (h->n == 0)
        return;
    put_at(h, 0, h->blocks[h->n]);
    sink(h, 0);
}

/* following[i]: the next access to the same block. */
static void find_following(const spill_workload *w, size_t *following, size_t *last)
{
    for (uint32_t b = 0; b < w->blocks; b++)
        last[b] = SIZE_MAX;
    for (size_t i = w->n; i-- > 0;) {
        following[i]               = last[w->accesses[i].block];
        last[w->accesses[i].block] = i;
    }
}

static void run_opt(const spill_workload *w, uint32_t frames, spill_counts *counts, heap *h,
                    const size_t *following)
{
    for (size_t i = 0, phase = 0; i < w->n; i++) {
        uint32_t block  = w->accesses[i].block;
        bool     is_hit = h->place[block] != 0;

        phase = spill_phase_of(w, i, phase);
        count(&counts[phase], is_hit);
        h->next_use[block] = following[i];
        if (is_hit) {
            rise(h, h->place[block] - 1);
            continue;
        }
        if (h->n == frames)
            drop_top(h);
        put_at(h, h->n++, block);
        rise(h, h->n - 1);
    }
}

bool spill_opt(const spill_workload *w, uint32_t frames, spill_counts *counts)
{
    heap    h         = {.blocks   = calloc(frames, sizeof *h.blocks),
                         .place    = calloc(w->blocks, sizeof *h.place),
                         .next_use = calloc(w->blocks, sizeof *h.next_use)};
    size_t *following = calloc(w->n, sizeof *following);
    bool    good      = h.blocks && h.place && h.next_use && following;

    if (good) {
        find_following(w, following, h.next_use);
        run_opt(w, frames, counts, &h, following);
    }
    free(h.blocks);
    free(h.place);
    free(h.next_use);
    free(following);
    return good;
}
