/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A thread's cache of the pool `slab`, on the slow path: its magazines grow and shrink, and
 * exchange blocks with their classes.
 *
 * A magazine starts small and doubles whenever it was too small: it ran empty, or full.  So its
 * size follows from how far the program's allocations and frees of that class run ahead of each
 * other.  When it may not grow, half of a full one is returned: those blocks that were freed first.
 *
 * What all magazines of a pool can hold is limited by its budget (slab_take_room()).  A bin that is
 * refused room makes other bins of the thread give theirs up: a clock hand goes around, and takes
 * the magazines that were not used since its last visit.  If that never helps, another thread loses
 * its cache (usm__magazine_rob).
 *
 * Called by heap/magazine.c and heap/serve.c; one thread at a time has a cache. */
#include "heap/slab.h"
#include "heap/slab_private.h"

#include <string.h>

#define HAND_STEPS 8
#define STARVED    4096u /* refusals: the work of emptying a cache that is worth taking */

/* ---- magazines ----------------------------------------------------------------------------- */

/* Without a `bottom` there is no magazine, whatever the others are: see load(). */
static uint32_t slots_before(const usm_bin *bin, const usm_slot *end)
{
    const usm_slot *bottom = usm_load_relaxed(&bin->bottom);

    return bottom ? (uint32_t)(end - bottom) : 0;
}

static uint32_t count_of(const usm_bin *bin)
{
    return slots_before(bin, usm_load_relaxed(&bin->top));
}

static uint32_t capacity_of(const usm_bin *bin)
{
    return slots_before(bin, usm_load_relaxed(&bin->limit));
}

/* A magazine's slots begin at a cache line, because its top is written at every operation; in the
 * line before is what heap_free() gets. */
static usm_slot *make_slots(const slab_pool *p, uint32_t capacity)
{
    void     *raw = p->api->heap_alloc(2 * SLAB_LINE + capacity * sizeof(usm_slot));
    uintptr_t at  = usm_align_up_ptr((uintptr_t)raw, SLAB_LINE) + SLAB_LINE;

    if (!raw)
        return NULL;
    ((void **)at)[-1] = raw;
    return (usm_slot *)at;
}

static void free_slots(const slab_pool *p, usm_slot *slots)
{
    if (slots)
        p->api->heap_free(((void **)(void *)slots)[-1]);
}

/* A process may be forked between any two of these stores, and the child empties the caches it
 * inherits.  `bottom` marks that there is a magazine, so it is cleared first and stored last. */
static void load(usm_bin *bin, usm_slot *slots, uint32_t count, uint32_t capacity)
{
    usm_store_relaxed(&bin->bottom, (usm_slot *)NULL);
    usm_store_release(&bin->top, slots ? slots + count : NULL);
    usm_store_relaxed(&bin->limit, slots ? slots + capacity : NULL);
    usm_store_release(&bin->bottom, slots);
}

/* A function that is called from within the pool may allocate and free: it takes the fast path,
 * which finds a bin without a magazine while the magazine is being filled or emptied. */
static usm_slot *unload(usm_bin *bin)
{
    usm_slot *slots = usm_load_relaxed(&bin->bottom);

    load(bin, NULL, 0, 0);
    return slots;
}

static void mark(usm_cache *c, unsigned k, bool is_active)
{
    uint64_t bits = usm_load_relaxed(&c->active[k / 64]);
    uint64_t bit  = 1ull << k % 64;

    usm_store_relaxed(&c->active[k / 64], is_active ? bits | bit : bits & ~bit);
}

/* Notes that `moved` blocks came from the pool, or went there (< 0).  Before the next call for this
 * bin, it can hold at most as many blocks as it has room for. */
static void note(slab_pool *p, usm_cache *c, unsigned k, int64_t moved)
{
    const usm_bin  *bin = &c->bins[k];
    const slab_swap s   = {moved, count_of(bin), capacity_of(bin)};

    slab_note_cached(p, c, k, &s);
}

/* ---- room ---------------------------------------------------------------------------------- */

static void set_bytes(usm_cache *c, uint64_t bytes)
{
    usm_store_relaxed(&c->bytes, bytes); /* the cache's user alone writes it */
}

/* Returns the bin's magazine with its blocks. */
static void give_up(slab_pool *p, usm_cache *c, unsigned k, bool to_slabs)
{
    usm_bin       *bin   = &c->bins[k];
    const uint32_t n     = count_of(bin);
    const uint64_t room  = capacity_of(bin) * p->classes[k].size;
    usm_slot      *slots = unload(bin);

    mark(c, k, false);
    note(p, c, k, -(int64_t)n);
    set_bytes(c, usm_load_relaxed(&c->bytes) - room);
    slab_give_room(p, room);
    if (n > 0)
        slab_give_blocks(p, k, slots, n, to_slabs);
    free_slots(p, slots);
}

/* The bits of word w of `active` that belong to classes of runs. */
static uint64_t runs_in(const usm_cache *c, unsigned w)
{
    return usm_load_relaxed(&c->active[w]) & (w == 0 ? ~0ull << SLAB_CLASSES : ~0ull);
}

/* What a magazine holds of runs may be what a larger block needs: the pool does not grow before it
 * has tried. */
void slab_cache_give_runs(slab_pool *p, usm_cache *c)
{
    for (unsigned w = 0; w < 2; w++)
        for (uint64_t bits = runs_in(c, w); bits; bits &= bits - 1)
            give_up(p, c, w * 64 + (unsigned)__builtin_ctzll(bits), true);
}

/* The first bin with a magazine at or after the hand, cyclically; USM_BINS: none. */
static unsigned next_active(usm_cache *c)
{
    for (unsigned i = 0; i < 3; i++) {
        unsigned w    = c->hand / 64;
        uint64_t bits = usm_load_relaxed(&c->active[w]) & (~0ull << c->hand % 64);
        unsigned k    = w * 64 + (unsigned)__builtin_ctzll(bits | 1ull << 63);

        if (bits) {
            c->hand = (k + 1) % USM_BINS;
            return k;
        }
        c->hand = w == 0 ? 64 : 0;
    }
    return USM_BINS;
}

/* Takes room for a magazine of bin k.  The hand makes only a few steps: in a cache full of bins in
 * use nothing is moved, and the block bypasses the cache. */
static bool take_room(slab_pool *p, usm_cache *c, unsigned k, uint64_t bytes)
{
    bool has = slab_take_room(p, bytes);
    /* The hand moves at every 32nd refusal only.  Meanwhile bins in use change their tops, so that
     * it does not take the magazines of some for others that lose them again at once. */
    unsigned steps = !has && c->refused++ % 32 == 0 ? HAND_STEPS : 0;

    for (unsigned i = 0; i < steps && !has; i++) {
        unsigned v = next_active(c);
        usm_bin *bin;

        if (v == USM_BINS)
            break;
        bin = &c->bins[v];
        if (v != k && usm_load_relaxed(&bin->top) == bin->seen) {
            give_up(p, c, v, false);
            has = slab_take_room(p, bytes);
        }
        bin->seen = usm_load_relaxed(&bin->top);
    }
    if (has)
        set_bytes(c, usm_load_relaxed(&c->bytes) + bytes);
    return has;
}

bool slab_cache_is_starved(usm_cache *c)
{
    if (c->refused < STARVED)
        return false;
    c->refused = 0;
    return true;
}

/* Doubles the capacity of the bin's magazine, or makes its first one; false: it is as large as it
 * may become, there is no room, or no memory. */
static bool grow(slab_pool *p, usm_cache *c, unsigned k)
{
    const slab_class *class = &p->classes[k];
    usm_bin       *bin      = &c->bins[k];
    const uint32_t was      = capacity_of(bin);
    const uint32_t capacity =
        (uint32_t)usm_min_size(was ? was * 2ul : class->capacity_first, class->capacity_most);
    const uint64_t room = (capacity - was) * class->size;
    usm_slot      *old, *slots;
    uint32_t       n;

    if (capacity == was || !take_room(p, c, k, room))
        return false;
    slots = make_slots(p, capacity);
    if (!slots) {
        set_bytes(c, usm_load_relaxed(&c->bytes) - room);
        slab_give_room(p, room);
        return false;
    }
    old = usm_load_relaxed(&bin->bottom);
    n   = count_of(bin);
    if (n > 0)
        memcpy(slots, old, n * sizeof *slots);
    load(bin, slots, n, capacity);
    mark(c, k, true);
    note(p, c, k, 0);
    free_slots(p, old);
    return true;
}

/* ---- fill, drain, flush --------------------------------------------------------------------- */

/* Fills an empty magazine; *got blocks. */
static usm_status fill(slab_pool *p, usm_cache *c, unsigned k, uint32_t *got)
{
    usm_bin       *bin      = &c->bins[k];
    const uint32_t capacity = capacity_of(bin);
    const size_t   most     = usm_min_size(capacity / 2, FILL_BYTES / p->classes[k].size);
    usm_slot      *slots    = unload(bin);
    usm_status     st       = slab_take_blocks(p, k, slots, (uint32_t)usm_max_size(most, 1), got);

    load(bin, slots, *got, capacity);
    return st;
}

/* Of runs the heap gives one at a time: a bin has those that the thread has freed. */
static usm_status take_run(slab_pool *p, usm_cache *c, unsigned k, usm_slot *block)
{
    if (slab_take_held_run(p, k, block))
        return USM_OK;
    slab_cache_give_runs(p, c);
    return slab_take_block(p, k, block);
}

usm_status slab_cache_fill(slab_pool *p, usm_cache *c, unsigned k, usm_slot *block)
{
    usm_bin   *bin = &c->bins[k];
    uint32_t   got = 0;
    usm_status st  = USM_OK;

    if (k >= SLAB_CLASSES)
        return take_run(p, c, k, block);
    if (!grow(p, c, k) && capacity_of(bin) == 0)
        return slab_take_block(p, k, block);
    if (count_of(bin) == 0) /* else a function called from within has freed a block */
        st = fill(p, c, k, &got);
    if (st == USM_OK)
        *block = usm_bin_pop(bin);
    note(p, c, k, got);
    return st;
}

/* Returns the older half of a full magazine. */
static uint32_t give_half(slab_pool *p, usm_cache *c, unsigned k)
{
    usm_bin       *bin      = &c->bins[k];
    const uint32_t capacity = capacity_of(bin), n = count_of(bin), half = (n + 1) / 2;
    usm_slot      *slots = unload(bin); /* nor does a forked child find these blocks twice */

    slab_give_blocks(p, k, slots, half, false);
    memmove(slots, slots + half, (n - half) * sizeof *slots);
    load(bin, slots, n - half, capacity);
    return half;
}

void slab_cache_drain(void *pool, usm_cache *c, unsigned k, usm_slot block)
{
    slab_pool *p     = pool;
    usm_bin   *bin   = &c->bins[k];
    int64_t    moved = 0;

    if (!grow(p, c, k)) {
        if (k >= SLAB_CLASSES || capacity_of(bin) == 0) {
            slab_give_block(p, k, block.p);
            return;
        }
        moved = -(int64_t)give_half(p, c, k);
    }
    usm_bin_push(bin, block);
    note(p, c, k, moved);
}

void slab_cache_flush(void *pool, usm_cache *c)
{
    for (unsigned w = 0; w < 2; w++)
        for (uint64_t bits = usm_load_relaxed(&c->active[w]); bits; bits &= bits - 1)
            give_up(pool, c, w * 64 + (unsigned)__builtin_ctzll(bits), true);
}

void slab_cache_drop(void *pool, usm_cache *c)
{
    for (unsigned k = 0; k < USM_BINS; k++)
        free_slots(pool, usm_load_relaxed(&c->bins[k].bottom));
}
