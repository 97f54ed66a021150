/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A thread's cache of the pool `slab`, on the slow path, where whole magazines are exchanged.  A
 * bin has a loaded magazine and a spare one (Bonwick, Adams: Magazines and vmem, 2001): a thread
 * that alternates around the end of a magazine swaps the two, without calling the depot.
 *
 * The capacity of a cache's magazines is limited (slab_pool.cache_bytes).  A bin that needs another
 * magazine makes other bins give theirs up.  A clock hand goes around, and takes from bins that
 * were not used since its last visit; after one round it takes from any.
 *
 * Called by heap/magazine.c and heap/serve.c; one thread at a time has a cache. */
#include "heap/slab.h"
#include "heap/slab_private.h"

#define HAND_STEPS 8

/* ---- bins -------------------------------------------------------------------------------- */

static usm_magazine *loaded_of(const usm_bin *bin)
{
    usm_slot *bottom = usm_load_relaxed(&bin->bottom);

    return bottom ? (usm_magazine *)(void *)bottom - 1 : NULL;
}

static uint32_t loaded_count(const usm_bin *bin)
{
    return (uint32_t)(usm_load_relaxed(&bin->top) - usm_load_relaxed(&bin->bottom));
}

/* Notes that `moved` blocks came from the pool, or went there (< 0).  Before the next call for this
 * bin, it can hold at most as many blocks as it has room for, not counting an empty spare. */
static void note(slab_pool *p, usm_cache *c, unsigned k, int64_t moved)
{
    const usm_bin      *bin    = &c->bins[k];
    const usm_magazine *loaded = loaded_of(bin);
    uint32_t            rest   = usm_load_relaxed(&c->rest[k]);
    const slab_swap s = {moved, loaded_count(bin) + rest, (loaded ? loaded->capacity : 0) + rest};

    slab_note_cached(p, c, k, &s);
}

/* m may be NULL.  pre: none is loaded.
 *
 * A process may be forked between any two of these stores, and the child empties the caches it
 * inherits.  `bottom` marks that a magazine is loaded, so it is stored last here, and first
 * below. */
static void load(usm_bin *bin, usm_magazine *m)
{
    usm_slot *slots = m ? usm_magazine_slots(m) : NULL;

    usm_store_relaxed(&bin->top, slots ? slots + usm_load_relaxed(&m->count) : NULL);
    usm_store_relaxed(&bin->limit, slots ? slots + m->capacity : NULL);
    usm_store_release(&bin->bottom, slots);
}

/* Returns the loaded magazine, with its count stored; the bin has none afterwards. */
static usm_magazine *unload(usm_bin *bin)
{
    usm_magazine *m = loaded_of(bin);

    if (m)
        usm_store_relaxed(&m->count, loaded_count(bin));
    usm_store_relaxed(&bin->bottom, (usm_slot *)NULL);
    usm_store_release(&bin->top, (usm_slot *)NULL);
    usm_store_relaxed(&bin->limit, (usm_slot *)NULL);
    return m;
}

/* m may be NULL.  Its count is stored for threads that count the blocks of others
 * (heap/magazine.c). */
static void set_spare(usm_cache *c, unsigned k, usm_magazine *m)
{
    usm_store_relaxed(&c->rest[k], m ? usm_load_relaxed(&m->count) : 0u);
    usm_store_release(&c->bins[k].spare, m);
}

static void swap(usm_cache *c, unsigned k)
{
    usm_bin      *bin   = &c->bins[k];
    usm_magazine *spare = usm_load_relaxed(&bin->spare);

    set_spare(c, k, unload(bin));
    load(bin, spare);
}

static void mark(usm_cache *c, unsigned k, bool is_active)
{
    uint64_t bits = usm_load_relaxed(&c->active[k / 64]);
    uint64_t bit  = 1ull << k % 64;

    usm_store_relaxed(&c->active[k / 64], is_active ? bits | bit : bits & ~bit);
}

static usm_slot pop(usm_bin *bin)
{
    usm_slot *top = usm_load_relaxed(&bin->top) - 1;

    usm_store_relaxed(&bin->top, top);
    return *top;
}

static void push(usm_bin *bin, usm_slot block)
{
    usm_slot *top = usm_load_relaxed(&bin->top);

    *top = block;
    usm_store_relaxed(&bin->top, top + 1);
}

/* ---- room ---------------------------------------------------------------------------------- */

static size_t weight(const slab_pool *p, unsigned k)
{
    return p->classes[k].capacity * p->classes[k].size;
}

/* The cache got magazines for bin k (n > 0), or gave some up. */
static void count_magazines(slab_pool *p, usm_cache *c, unsigned k, int n)
{
    int64_t bytes = n * (int64_t)weight(p, k);

    c->bytes += (uint64_t)bytes;
    slab_note_room(p, bytes);
}

/* Moves a magazine of the bin, the spare one first, to the depot, marked with its owner; owner
 * NULL: its blocks return to their slabs. */
static void give_up(slab_pool *p, usm_cache *c, unsigned k, const usm_cache *owner)
{
    usm_bin      *bin = &c->bins[k];
    usm_magazine *m   = usm_load_relaxed(&bin->spare);

    if (m)
        set_spare(c, k, NULL);
    else
        m = unload(bin);
    if (!m)
        return;
    count_magazines(p, c, k, -1);
    mark(c, k, loaded_of(bin) != NULL);
    note(p, c, k, -(int64_t)usm_load_relaxed(&m->count));
    slab_drain_magazine(p, k, owner, m);
}

static bool has_room(const slab_pool *p, const usm_cache *c, size_t wanted)
{
    return c->bytes + wanted <= p->cache_bytes;
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

/* True if another magazine for bin k fits.  The hand makes only a few steps: in a cache full of
 * bins in use nothing is moved, and the block bypasses the cache. */
static bool make_room(slab_pool *p, usm_cache *c, unsigned k)
{
    size_t wanted = weight(p, k);
    /* Runs are large: only every 32nd refusal may evict others. */
    unsigned steps = k < SLAB_CLASSES || c->refused++ % 32 == 0 ? HAND_STEPS : 0;

    for (unsigned i = 0; i < steps && !has_room(p, c, wanted); i++) {
        unsigned  v = next_active(c);
        usm_slot *top;

        if (v == USM_BINS)
            break;
        top = usm_load_relaxed(&c->bins[v].top);
        if (v != k && top == c->seen[v])
            give_up(p, c, v, c);
        c->seen[v] = usm_load_relaxed(&c->bins[v].top);
    }
    return has_room(p, c, wanted);
}

/* A new empty magazine for the cache; NULL: no room, no memory, or the class is not cached. */
static usm_magazine *own_magazine(slab_pool *p, usm_cache *c, unsigned k)
{
    usm_magazine *m = NULL;

    if (p->classes[k].capacity && make_room(p, c, k))
        m = slab_get_magazine(p, k);
    if (m) {
        count_magazines(p, c, k, 1);
        mark(c, k, true);
    }
    return m;
}

/* ---- fill, drain, flush --------------------------------------------------------------------- */

usm_status slab_cache_fill(slab_pool *p, usm_cache *c, unsigned k, usm_slot *block)
{
    usm_bin            *bin   = &c->bins[k];
    const usm_magazine *spare = usm_load_relaxed(&bin->spare);
    usm_magazine       *m;
    uint32_t            got;
    usm_status          st;

    if (spare && usm_load_relaxed(&spare->count) > 0) {
        swap(c, k);
        *block = pop(bin);
        return USM_OK;
    }
    if (k >= SLAB_CLASSES) /* a run: the heap is as fast as the depot would be */
        return slab_take_block(p, k, block);
    m = loaded_of(bin) ? unload(bin) : own_magazine(p, c, k);
    if (!m)
        return slab_take_block(p, k, block);
    st = slab_fill_magazine(p, k, c, &m);
    load(bin, m);
    if (st != USM_OK)
        return st;
    got    = usm_load_relaxed(&m->count);
    *block = pop(bin);
    note(p, c, k, got);
    return USM_OK;
}

/* The loaded magazine is full, or there is none: returns one with room to replace it, and none is
 * loaded afterwards.  NULL: there is none. */
static usm_magazine *with_room(slab_pool *p, usm_cache *c, unsigned k, int64_t *moved)
{
    usm_bin      *bin   = &c->bins[k];
    usm_magazine *spare = usm_load_relaxed(&bin->spare);
    usm_magazine *fresh = NULL;

    if (!loaded_of(bin))
        return own_magazine(p, c, k);
    if (spare && usm_load_relaxed(&spare->count) == 0)
        fresh = spare;
    else if (!spare)
        fresh = own_magazine(p, c, k);
    if (fresh) {
        set_spare(c, k, unload(bin));
        return fresh;
    }
    if (k >= SLAB_CLASSES)
        return NULL;
    /* One goes to the depot, in exchange for an empty one. */
    if (spare)
        set_spare(c, k, unload(bin));
    else
        spare = unload(bin);
    *moved = -(int64_t)usm_load_relaxed(&spare->count);
    fresh  = slab_swap_magazine(p, k, c, spare);
    if (!fresh)
        count_magazines(p, c, k, -1);
    return fresh;
}

void slab_cache_drain(void *pool, usm_cache *c, unsigned k, usm_slot block)
{
    slab_pool    *p     = pool;
    usm_bin      *bin   = &c->bins[k];
    int64_t       moved = 0;
    usm_magazine *m     = with_room(p, c, k, &moved);

    if (!m) {
        mark(c, k, loaded_of(bin) || usm_load_relaxed(&bin->spare));
        note(p, c, k, moved);
        slab_give_block(p, k, block.p);
        return;
    }
    load(bin, m);
    push(bin, block);
    note(p, c, k, moved);
}

void slab_cache_flush(void *pool, usm_cache *c)
{
    slab_pool *p = pool;

    for (unsigned k = 0; k < USM_BINS; k++) {
        if ((usm_load_relaxed(&c->active[k / 64]) >> k % 64 & 1) != 0) {
            give_up(p, c, k, NULL);
            give_up(p, c, k, NULL);
        }
        if (k < SLAB_CLASSES && (usm_load_relaxed(&p->used[k / 64]) >> k % 64 & 1) != 0)
            slab_class_disown(p, k, c);
    }
}
