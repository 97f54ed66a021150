/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Size classes of the pool `slab`: slabs, the bitmaps of their blocks, and the depot, which keeps
 * blocks that one thread returned until another one takes them.
 *
 * Blocks are taken from the slab with the lowest address that has a free one, so that the slabs
 * above become empty and return to the heap.  Empty slabs stay with their class while they are no
 * more than an eighth of its slabs, and at least one: a program that frees everything and starts
 * again finds them.  The heap keeps memory as well (page_heap.h, retain).
 *
 * Called by slab_cache.c for threads with a cache, and by slab.c for the others. */
#include "heap/pages.h"
#include "heap/slab.h"
#include "heap/slab_private.h"

#include <string.h>

/* ---- slabs by address: a pairing heap ----------------------------------------------------- */

/* Inserts in constant time, removes in logarithmic (amortised) time; the links are members of the
 * slabs.  (Fredman, Sedgewick, Sleator, Tarjan: The pairing heap, 1986.)  prev: the parent of a
 * first child, otherwise the previous sibling. */
static slab *meld(slab *a, slab *b)
{
    slab *low, *high;

    if (!a || !b)
        return a ? a : b;
    low        = a->span.base < b->span.base ? a : b;
    high       = low == a ? b : a;
    high->next = low->child;
    if (low->child)
        low->child->prev = high;
    high->prev = low;
    low->child = high;
    return low;
}

/* Combines the children of a removed slab into one heap. */
static slab *meld_children(slab *first)
{
    slab *pairs = NULL, *all = NULL;

    while (first) {
        slab *a = first, *b = a->next;

        first   = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b)
            b->next = b->prev = NULL;
        a       = meld(a, b);
        a->next = pairs;
        pairs   = a;
    }
    while (pairs) {
        slab *a = pairs;

        pairs   = a->next;
        a->next = NULL;
        all     = meld(all, a);
    }
    return all;
}

static void enter_partial(slab_class *c, slab *s)
{
    s->child = s->next = s->prev = NULL;
    c->partial                   = meld(c->partial, s);
}

static void leave_partial(slab_class *c, slab *s)
{
    slab *rest = meld_children(s->child);

    if (s == c->partial) {
        c->partial = rest;
        return;
    }
    if (s->prev->child == s)
        s->prev->child = s->next;
    else
        s->prev->next = s->next;
    if (s->next)
        s->next->prev = s->prev;
    c->partial = meld(c->partial, rest);
}

static void enter_empties(slab_class *c, slab *s)
{
    usm_list_append(&c->empties, &s->empty_link);
    c->nempty++;
}

static void leave_empties(slab_class *c, slab *s)
{
    usm_list_remove(&s->empty_link);
    c->nempty--;
}

/* ---- descriptors ------------------------------------------------------------------------ */

/* Spare descriptors of each class, for all pools: never freed (usm_span). */
static struct {
    pthread_mutex_t lock;
    slab           *first[SLAB_CLASSES];
} spares = {.lock = PTHREAD_MUTEX_INITIALIZER};

static slab *make_descriptor(slab_pool *p, const slab_class *c)
{
    size_t    head = sizeof(slab) + usm_align_up_ptr(c->states, SLAB_LINE);
    uintptr_t raw  = (uintptr_t)p->api->heap_alloc(head + c->words * sizeof(uint64_t) + SLAB_LINE);
    slab     *s    = (slab *)usm_align_up_ptr(raw, SLAB_LINE);

    if (raw)
        s->bits = (uint64_t *)((uintptr_t)s + head);
    return raw ? s : NULL;
}

static slab *get_descriptor(slab_pool *p, unsigned k)
{
    const slab_class *c = &p->classes[k];
    slab             *s;

    pthread_mutex_lock(&spares.lock);
    s = spares.first[k];
    if (s)
        spares.first[k] = s->next;
    pthread_mutex_unlock(&spares.lock);
    if (s)
        return s;
    return make_descriptor(p, c);
}

static void put_descriptor(unsigned k, slab *s)
{
    pthread_mutex_lock(&spares.lock);
    s->next         = spares.first[k];
    spares.first[k] = s;
    pthread_mutex_unlock(&spares.lock);
}

/* A pool that is being destroyed or created is in no list, but takes descriptors.  So this lock is
 * taken at every fork, independent of the existing pools. */
static void before_fork(void)
{
    pthread_mutex_lock(&spares.lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&spares.lock);
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&spares.lock, NULL);
}

usm_status usm_slab_watch_forks(void)
{
    return pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0
               ? USM_OK
               : USM_E_NO_MEMORY;
}

/* ---- slabs ----------------------------------------------------------------------------------- */

static void lay_out(const slab_pool *p, unsigned k, slab *s, slab_block *block)
{
    const slab_class *c = &p->classes[k];

    s->span = (usm_span){
        .base       = block->span.base,
        .states     = c->states,
        .source     = p->owner,
        .bin_at     = k * sizeof(usm_bin),
        .size       = c->size,
        .reciprocal = c->reciprocal,
        .area       = block->span.area,
        .slot       = p->slot,
        .pages      = (uint16_t)(c->bytes >> SLAB_PAGE_SHIFT),
        .shift      = c->shift,
        .bin        = (uint8_t)k,
        .kind       = (uint8_t)p->kind,
    };
    s->block = block;
    s->free  = c->blocks;
    s->hint  = 0;
    memset(s->bits, 0xff, c->words * sizeof s->bits[0]);
    if (c->blocks % 64)
        s->bits[c->words - 1] = (1ull << c->blocks % 64) - 1;
    for (uint32_t i = 0; i < c->states; i++)
        usm_store_relaxed(usm_span_states(&s->span) + i, (uint8_t)USM_BLOCK_FREE);
}

static usm_status no_host_memory(const slab_pool *p)
{
    return p->api->report(USM_E_NO_MEMORY,
                          "no host memory for libusm's tables, which describe a slab");
}

/* Adds a slab to the class.  No lock is held. */
static usm_status add_slab(slab_pool *p, unsigned k)
{
    slab_class *c     = &p->classes[k];
    slab       *s     = get_descriptor(p, k);
    slab_block *block = NULL;
    usm_status  st = s ? slab_heap_alloc(&p->heap, c->bytes, SLAB_PAGE, &block) : no_host_memory(p);

    if (!s || !block) /* st has the reason */
        goto err_descriptor;
    lay_out(p, k, s, block);
    st = usm__pages_set(block->span.area, s->span.base, c->bytes >> SLAB_PAGE_SHIFT, &s->span);
    if (st != USM_OK)
        goto err_block;
    pthread_mutex_lock(&c->lock);
    c->nslabs++;
    enter_empties(c, s);
    usm_add_relaxed(&c->held, (uint64_t)c->bytes);
    enter_partial(c, s);
    usm_list_append(&c->slabs, &s->link);
    pthread_mutex_unlock(&c->lock);
    return USM_OK;

err_block:
    (void)usm__pages_set(block->span.area, s->span.base, c->bytes >> SLAB_PAGE_SHIFT, NULL);
    slab_heap_free(&p->heap, block);
err_descriptor:
    if (s)
        put_descriptor(k, s);
    return st;
}

/* Returns slabs without a live block, chained by next, to the heap.  No lock is held. */
static void release_slabs(slab_pool *p, unsigned k, slab *list)
{
    while (list) {
        slab       *s     = list;
        slab_block *block = s->block;

        list = s->next;
        (void)usm__pages_set(block->span.area, s->span.base, p->classes[k].bytes >> SLAB_PAGE_SHIFT,
                             NULL);
        put_descriptor(k, s);
        slab_heap_free(&p->heap, block);
    }
}

/* pre: the class is locked; s is empty. */
static void detach(slab_class *c, slab *s, slab **list)
{
    leave_partial(c, s);
    leave_empties(c, s);
    usm_list_remove(&s->link);
    c->nslabs--;
    usm_sub_relaxed(&c->held, (uint64_t)c->bytes);
    s->next = *list;
    *list   = s;
}

/* ---- blocks of slabs: the class is locked ---------------------------------------------------- */

/* Takes at most `want` blocks, the lowest last: a magazine is used from its end. */
static uint32_t take_from(slab_class *c, slab *s, usm_slot *out, uint32_t want)
{
    const uintptr_t   base   = s->span.base;
    const size_t      size   = c->size;
    const unsigned    shift  = c->shift;
    _Atomic(uint8_t) *states = usm_span_states(&s->span);
    const uint32_t    n      = s->free < want ? s->free : want;
    usm_slot         *end    = out + want;
    usm_slot *const   first  = end - n;

    if (s->free == c->blocks)
        leave_empties(c, s);
    for (uint32_t w = s->hint; end > first; w++) {
        uint64_t bits = s->bits[w];

        for (; bits && end > first; bits &= bits - 1) {
            size_t offset = (w * 64 + (uint32_t)__builtin_ctzll(bits)) * size;

            *--end = (usm_slot){(void *)(base + offset), states + (offset >> shift)};
        }
        s->bits[w] = bits;
        s->hint    = w;
    }
    s->free -= n;
    if (s->free == 0)
        leave_partial(c, s);
    return n;
}

static uint32_t take_blocks(slab_class *c, usm_slot *out, uint32_t want)
{
    uint32_t n = 0;

    while (n < want && c->partial)
        n += take_from(c, c->partial, out, want - n);
    if (n > 0 && n < want)
        memmove(out, out + (want - n), n * sizeof *out);
    return n;
}

static uint32_t empties_to_keep(const slab_class *c)
{
    return c->nslabs / 8 > 1 ? c->nslabs / 8 : 1;
}

/* Sets the bits of the first of n blocks, those up to one that is not in s; returns how many they
 * are, in *set how many bits were not set before.  If two threads freed a block at the same moment,
 * it is back already, or was allocated again, or s was cut anew meanwhile. */
static uint32_t set_bits(const slab_class *c, slab *s, const usm_slot *blocks, uint32_t n,
                         uint32_t *set)
{
    const usm_span          span   = s->span;
    const uintptr_t         end    = c->blocks * span.size;
    const _Atomic(uint8_t) *states = usm_span_states(&s->span);
    uint64_t *const         bits   = s->bits;
    uint32_t                low = s->hint, fresh = 0, done = 0;

    for (; done < n; done++) {
        uintptr_t offset = (uintptr_t)blocks[done].p - span.base;
        uint32_t  i      = (uint32_t)(offset * span.reciprocal >> USM_SPAN_SHIFT);
        uint64_t  bit    = 1ull << i % 64;

        if (offset >= end)
            break;
        if (bits[i / 64] & bit || i * span.size != offset ||
            usm_load_relaxed(states + (offset >> span.shift)) != USM_BLOCK_FREE)
            continue;
        bits[i / 64] |= bit;
        low = i / 64 < low ? i / 64 : low;
        fresh++;
    }
    s->hint = low;
    *set    = fresh;
    return done;
}

/* Returns the first of n blocks, those up to one that is not in s, to s; returns how many they are.
 * If s need not stay, it is moved to *list. */
static uint32_t put_into(slab_class *c, slab *s, const usm_slot *blocks, uint32_t n, slab **list)
{
    uint32_t       set;
    const uint32_t done = set_bits(c, s, blocks, n, &set);

    if (set == 0)
        return done;
    if (s->free == 0)
        enter_partial(c, s);
    s->free += set;
    if (s->free < c->blocks)
        return done;
    enter_empties(c, s);
    if (c->nempty > empties_to_keep(c))
        detach(c, s, list);
    return done;
}

/* NULL: the block is in no slab of the class.  Two threads freed it at the same moment, and the
 * slab was returned after the first free. */
static slab *slab_of(slab_pool *p, unsigned k, const void *block)
{
    usm_span *span = usm__page_find(block);

    return span && span->source == p->owner && span->bin == k && span->reciprocal
               ? usm_container_of(span, slab, span)
               : NULL;
}

/* ---- large cached classes: a block is a run of the heap ---------------------- */

/* The heap's block becomes a run of class k, and leaves for a thread. */
static usm_slot lend_run(slab_pool *p, unsigned k, slab_block *block)
{
    block->span.slot   = p->slot;
    block->span.bin    = (uint8_t)k;
    block->span.bin_at = k * sizeof(usm_bin);
    if (usm_add_relaxed(&p->classes[k].filled, (uint64_t)1) == 0)
        atomic_fetch_or_explicit(&p->used[k / 64], 1ull << k % 64, memory_order_relaxed);
    slab_live(p, (int64_t)p->classes[k].size, 0);
    return (usm_slot){(void *)block->span.base, &block->state};
}

/* As put_block(): ignores a block that is back already, or was allocated again. */
static void give_run(slab_pool *p, unsigned k, const void *base)
{
    usm_span *span = usm__page_find(base);

    if (span && span->source == p->owner && span->bin == k && !span->reciprocal &&
        span->base == (uintptr_t)base && usm_load_relaxed(usm_span_states(span)) == USM_BLOCK_FREE)
        slab_heap_free(&p->heap, (slab_block *)(void *)span);
}

/* ---- exchange of blocks ---------------------------------------------------------------------- */

static void tally(_Atomic(uint64_t) *count, uint64_t n)
{
    usm_store_relaxed(count, usm_load_relaxed(count) + n); /* its writers hold a lock */
}

/* pre: the class is locked. */
static void count_filled(slab_pool *p, unsigned k, uint64_t n)
{
    slab_class *c = &p->classes[k];

    if (n > 0 && usm_load_relaxed(&c->filled) == 0)
        atomic_fetch_or_explicit(&p->used[k / 64], 1ull << k % 64, memory_order_relaxed);
    tally(&c->filled, n);
}

static usm_status take_run(slab_pool *p, unsigned k, usm_slot *out)
{
    slab_block *block;
    usm_status  st = slab_heap_alloc(&p->heap, p->classes[k].size, SLAB_PAGE, &block);

    if (st == USM_OK)
        *out = lend_run(p, k, block);
    return st;
}

bool slab_take_held_run(slab_pool *p, unsigned k, usm_slot *out)
{
    slab_block *block = slab_heap_take_held(&p->heap, p->classes[k].size, SLAB_PAGE, false);

    if (block)
        *out = lend_run(p, k, block);
    return block != NULL;
}

/* Takes at most `want` blocks from the depot; the last returned first, which the processor's caches
 * know best.  pre: the class is locked. */
static uint32_t take_from_depot(slab_pool *p, unsigned k, usm_slot *blocks, uint32_t want)
{
    slab_class *c    = &p->classes[k];
    uint32_t    have = (uint32_t)usm_load_relaxed(&c->depot_blocks);
    uint32_t    n    = have < want ? have : want;

    if (n == 0)
        return 0;
    memcpy(blocks, c->depot + (have - n), n * sizeof *blocks);
    usm_store_relaxed(&c->depot_blocks, (uint64_t)(have - n));
    usm_sub_relaxed(&p->depot_bytes, n * c->size);
    return n;
}

usm_status slab_take_blocks(slab_pool *p, unsigned k, usm_slot *blocks, uint32_t want,
                            uint32_t *got)
{
    slab_class *c  = &p->classes[k];
    usm_status  st = USM_OK;
    uint32_t    n  = 0;

    while (st == USM_OK && n == 0) {
        pthread_mutex_lock(&c->lock);
        n = take_from_depot(p, k, blocks, want);
        tally(&c->depot_hits, n > 0);
        if (n == 0) {
            n = take_blocks(c, blocks, want);
            tally(&c->depot_misses, n > 0);
        }
        count_filled(p, k, n);
        pthread_mutex_unlock(&c->lock);
        if (n == 0)
            st = add_slab(p, k);
    }
    *got = n;
    return st;
}

usm_status slab_take_block(slab_pool *p, unsigned k, usm_slot *block)
{
    uint32_t   got;
    usm_status st;

    if (k >= SLAB_CLASSES)
        return take_run(p, k, block);
    st = slab_take_blocks(p, k, block, 1, &got);
    if (st == USM_OK)
        slab_live(p, (int64_t)p->classes[k].size, 0);
    return st;
}

static bool has_depot(slab_pool *p, slab_class *c)
{
    if (!c->depot)
        c->depot = p->api->heap_alloc(c->depot_most * sizeof *c->depot);
    return c->depot != NULL;
}

/* Puts as many of the blocks into the depot as the class and the budget allow; returns how many.
 * pre: the class is locked. */
static uint32_t deposit(slab_pool *p, unsigned k, const usm_slot *blocks, uint32_t n)
{
    slab_class *c    = &p->classes[k];
    uint32_t    have = (uint32_t)usm_load_relaxed(&c->depot_blocks);

    if (n > c->depot_most - have)
        n = c->depot_most - have;
    if (n == 0 || !slab_has_room(p, n * c->size) || !has_depot(p, c))
        return 0;
    memcpy(c->depot + have, blocks, n * sizeof *blocks);
    usm_store_relaxed(&c->depot_blocks, (uint64_t)(have + n));
    usm_add_relaxed(&p->depot_bytes, n * c->size);
    return n;
}

/* Returns blocks to their slabs; slabs that need not stay are moved to *list.  pre: the class is
 * locked. */
static void put_blocks(slab_pool *p, unsigned k, const usm_slot *blocks, uint32_t n, slab **list)
{
    uint32_t i = 0;

    while (i < n) {
        slab    *s    = slab_of(p, k, blocks[i].p);
        uint32_t done = s ? put_into(&p->classes[k], s, blocks + i, n - i, list) : 0;

        i += done ? done : 1;
    }
}

static void give_runs(slab_pool *p, unsigned k, const usm_slot *blocks, uint32_t n)
{
    usm_add_relaxed(&p->classes[k].drained, (uint64_t)n);
    for (uint32_t i = 0; i < n; i++)
        give_run(p, k, blocks[i].p);
}

void slab_give_blocks(slab_pool *p, unsigned k, const usm_slot *blocks, uint32_t n, bool to_slabs)
{
    slab_class *c    = &p->classes[k];
    slab       *list = NULL;
    uint32_t    kept = 0;

    if (k >= SLAB_CLASSES) {
        give_runs(p, k, blocks, n);
        return;
    }
    pthread_mutex_lock(&c->lock);
    tally(&c->drained, n);
    if (!to_slabs)
        kept = deposit(p, k, blocks, n);
    put_blocks(p, k, blocks + kept, n - kept, &list);
    pthread_mutex_unlock(&c->lock);
    release_slabs(p, k, list);
}

void slab_give_block(slab_pool *p, unsigned k, void *block)
{
    const usm_slot slot = {block, NULL};

    slab_live(p, -(int64_t)p->classes[k].size, 0);
    slab_give_blocks(p, k, &slot, 1, true);
}

/* pre: the class is locked. */
static void empty_depot(slab_pool *p, unsigned k, slab **list)
{
    slab_class *c = &p->classes[k];
    uint32_t    n = (uint32_t)usm_load_relaxed(&c->depot_blocks);

    usm_store_relaxed(&c->depot_blocks, (uint64_t)0);
    usm_sub_relaxed(&p->depot_bytes, n * c->size);
    put_blocks(p, k, c->depot, n, list);
    p->api->heap_free(c->depot);
    c->depot = NULL;
}

void slab_class_trim(slab_pool *p, unsigned k)
{
    slab_class *c    = &p->classes[k];
    slab       *list = NULL;

    pthread_mutex_lock(&c->lock);
    empty_depot(p, k, &list);
    while (!usm_list_is_empty(&c->empties))
        detach(c, usm_container_of(c->empties.next, slab, empty_link), &list);
    pthread_mutex_unlock(&c->lock);
    release_slabs(p, k, list);
}

/* ---- geometry -------------------------------------------------------------------------------- */

/* The most that fit into a number of bytes, within bounds. */
static uint32_t slots_in(size_t bytes, size_t size, size_t least, size_t most)
{
    return (uint32_t)usm_min_size(usm_max_size(bytes / size, least), most);
}

static void size_magazines(slab_class *c, bool is_run)
{
    c->capacity_first = slots_in(MAGAZINE_FIRST_BYTES, c->size, 1, MAGAZINE_FIRST_SLOTS);
    c->capacity_most =
        slots_in(MAGAZINE_MOST_BYTES, c->size, is_run ? MAGAZINE_MOST_RUNS : 1, USM_MAGAZINE_SLOTS);
    c->depot_most = slots_in(DEPOT_BYTES, c->size, 2, SIZE_MAX);
}

void slab_class_init(slab_pool *p, unsigned k)
{
    slab_class *c = &p->classes[k];

    pthread_mutex_init(&c->lock, NULL);
    usm_list_init(&c->empties);
    usm_list_init(&c->slabs);
    c->size = usm_class_size(k);
    if (p->slot)
        size_magazines(c, k >= SLAB_CLASSES);
    if (k >= SLAB_CLASSES)
        return;
    c->bytes  = usm_align_up_ptr(usm_max_size(SLAB_LEAST_SIZE, SLAB_LEAST * c->size), SLAB_PAGE);
    c->blocks = (uint32_t)(c->bytes / c->size);
    c->words  = (c->blocks + 63) / 64;
    c->shift  = (uint8_t)__builtin_ctzll(c->size);
    c->states = (uint32_t)((c->bytes + c->size - 1) / c->size * c->size >> c->shift);
    /* Rounded up: exact for every offset in a slab, because offset * size < 2^40 (Granlund,
     * Montgomery: Division by invariant integers using multiplication, 1994). */
    c->reciprocal = ((1ull << USM_SPAN_SHIFT) + c->size - 1) / c->size;
}

/* Called when the pool is destroyed: a late free finds no page that leads to a block, and no live
 * block. */
static void forget_slabs(slab_pool *p, unsigned k)
{
    slab_class *c = &p->classes[k];
    usm_list   *it;

    while ((it = usm_list_pop(&c->slabs))) {
        slab *s = usm_container_of(it, slab, link);

        (void)usm__pages_set(s->block->span.area, s->span.base, c->bytes >> SLAB_PAGE_SHIFT, NULL);
        for (uint32_t i = 0; i < c->states; i++)
            usm_store_relaxed(usm_span_states(&s->span) + i, (uint8_t)USM_BLOCK_FREE);
        put_descriptor(k, s);
    }
}

void slab_class_fini(slab_pool *p, unsigned k)
{
    slab_class *c = &p->classes[k];

    if (k < SLAB_CLASSES)
        forget_slabs(p, k);
    p->api->heap_free(c->depot);
    pthread_mutex_destroy(&c->lock);
}

void slab_class_each(slab_class *c, slab_free_visit *fn, void *arg)
{
    pthread_mutex_lock(&c->lock);
    USM_LIST_FOREACH (it, &c->slabs) {
        const slab *s = usm_container_of(it, slab, link);

        fn(s->span.base, c->bytes, c->bytes - (c->blocks - s->free) * c->size, arg);
    }
    pthread_mutex_unlock(&c->lock);
}

void slab_class_fork(slab_class *c, usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE)
        pthread_mutex_lock(&c->lock);
    else if (phase == USM_FORK_PARENT)
        pthread_mutex_unlock(&c->lock);
    else
        pthread_mutex_init(&c->lock, NULL);
}
