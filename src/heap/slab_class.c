/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Size classes of the pool `slab`: slabs, the bitmaps of their blocks, and the depot, which keeps
 * whole magazines that one thread filled until another one empties them.
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

#define DEPOT_LOOK 8 /* magazines whose owner is compared */

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

/* The fields that every free reads, the fields written under the lock, and the states, written at
 * every allocation and free, are in separate cache lines. */
static slab *make_descriptor(slab_pool *p, const slab_class *c)
{
    size_t    head = usm_align_up_ptr(sizeof(slab) + c->words * sizeof(uint64_t), SLAB_LINE);
    uintptr_t raw =
        (uintptr_t)p->api->heap_alloc(head + ((size_t)c->states << c->spread) + SLAB_LINE);
    slab *s = (slab *)usm_align_up_ptr(raw, SLAB_LINE);

    if (raw)
        s->span.states = (_Atomic(uint8_t) *)((uintptr_t)s + head);
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

    s->span.base       = block->span.base;
    s->span.reciprocal = c->reciprocal;
    s->span.size       = c->size;
    s->span.source     = p->owner;
    s->span.slot       = p->slot;
    s->span.bin        = (uint16_t)k;
    s->span.area       = block->span.area;
    s->span.pages      = (uint16_t)(c->bytes >> SLAB_PAGE_SHIFT);
    s->span.kind       = (uint8_t)p->kind;
    s->span.spread     = c->spread;
    s->block           = block;
    s->free            = c->blocks;
    s->hint            = 0;
    memset(s->bits, 0xff, c->words * sizeof s->bits[0]);
    if (c->blocks % 64)
        s->bits[c->words - 1] = (1ull << c->blocks % 64) - 1;
    for (uint32_t i = 0; i < c->states; i++)
        usm_store_relaxed(usm_span_state(&s->span, i), (uint8_t)USM_BLOCK_FREE);
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
    block->user = s;
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
    uint32_t n = 0;

    if (s->free == c->blocks)
        leave_empties(c, s);
    for (uint32_t w = s->hint; n < want && s->free > 0; w++) {
        uint64_t bits = s->bits[w];

        for (; bits && n < want; bits &= bits - 1, n++, s->free--) {
            uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(bits);

            out[want - 1 - n] =
                (usm_slot){(void *)(s->span.base + i * c->size), usm_span_state(&s->span, i)};
        }
        s->bits[w] = bits;
        s->hint    = w;
    }
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

/* s: the block's slab, or NULL.  A slab that need not stay is moved to *list. */
static void put_block(slab_class *c, slab *s, const void *block, slab **list)
{
    uint32_t i;

    if (!s)
        return;
    i = (uint32_t)(((uintptr_t)block - s->span.base) * c->reciprocal >> USM_SPAN_SHIFT);
    /* If two threads freed it at the same moment, it is back already, or was allocated again. */
    if (s->bits[i / 64] >> i % 64 & 1 ||
        usm_load_relaxed(usm_span_state(&s->span, i)) != USM_BLOCK_FREE)
        return;
    s->bits[i / 64] |= 1ull << i % 64;
    if (i / 64 < s->hint)
        s->hint = i / 64;
    if (s->free++ == 0)
        enter_partial(c, s);
    if (s->free < c->blocks)
        return;
    enter_empties(c, s);
    if (c->nempty > empties_to_keep(c))
        detach(c, s, list);
}

/* NULL: the block is in no slab of the class.  Two threads freed it at the same moment, and the
 * slab was returned after the first free. */
static slab *slab_of(slab_pool *p, unsigned k, const void *block)
{
    usm_span *span = usm__page_find(block);

    return span && span->source == p->owner && span->bin == k && span->reciprocal
               ? (slab *)(void *)span
               : NULL;
}

/* ---- large cached classes: a block is a run of the heap ---------------------- */

static usm_status take_run(slab_pool *p, unsigned k, usm_slot *out)
{
    slab_block *block;
    usm_status  st = slab_heap_alloc(&p->heap, p->classes[k].size, SLAB_PAGE, &block);

    if (st != USM_OK)
        return st;
    block->span.slot = p->slot;
    block->span.bin  = (uint16_t)k;
    block->user      = p; /* marks a block of a class, for slab.c */
    *out             = (usm_slot){(void *)block->span.base, &block->state};
    return USM_OK;
}

/* As put_block(): ignores a block that is back already, or was allocated again. */
static void give_run(slab_pool *p, unsigned k, const void *base)
{
    usm_span *span = usm__page_find(base);

    if (span && span->source == p->owner && span->bin == k && !span->reciprocal &&
        span->base == (uintptr_t)base && usm_load_relaxed(span->states) == USM_BLOCK_FREE)
        slab_heap_free(&p->heap, (slab_block *)(void *)span);
}

/* ---- magazines ------------------------------------------------------------------------------- */

static usm_magazine *pop(usm_magazine **list)
{
    usm_magazine *m = *list;

    if (m)
        *list = m->next;
    return m;
}

static void push(usm_magazine **list, usm_magazine *m)
{
    m->next = *list;
    *list   = m;
}

/* The slots begin at a cache line, because the top of a thread's magazine is written at every
 * operation.  Before it, in a line of their own, are this struct and the magazine's own words. */
typedef struct made {
    usm_list link; /* in the class's list of all magazines */
    void    *raw;  /* start of the allocated memory        */
} made;

static made *made_of(usm_magazine *m)
{
    return (made *)((uintptr_t)(m + 1) - SLAB_LINE);
}

static usm_magazine *make_magazine(slab_pool *p, slab_class *c)
{
    void         *raw = p->api->heap_alloc(2 * SLAB_LINE + c->capacity * sizeof(usm_slot));
    uintptr_t     at  = usm_align_up_ptr((uintptr_t)raw, SLAB_LINE);
    usm_magazine *m   = (usm_magazine *)(at + SLAB_LINE) - 1;

    if (!raw)
        return NULL;
    m->capacity     = c->capacity;
    made_of(m)->raw = raw;
    pthread_mutex_lock(&c->lock);
    usm_list_append(&c->made, &made_of(m)->link);
    pthread_mutex_unlock(&c->lock);
    return m;
}

usm_magazine *slab_get_magazine(slab_pool *p, unsigned k)
{
    slab_class   *c = &p->classes[k];
    usm_magazine *m;

    pthread_mutex_lock(&c->lock);
    m = pop(&c->empty);
    pthread_mutex_unlock(&c->lock);
    return m ? m : make_magazine(p, c);
}

void slab_put_magazine(slab_pool *p, unsigned k, usm_magazine *m)
{
    slab_class *c = &p->classes[k];

    usm_store_relaxed(&m->count, 0u);
    pthread_mutex_lock(&c->lock);
    push(&c->empty, m);
    pthread_mutex_unlock(&c->lock);
}

static void free_made(slab_pool *p, usm_list *list)
{
    usm_list *it;

    while ((it = usm_list_pop(list)))
        p->api->heap_free(usm_container_of(it, made, link)->raw);
}

/* A magazine is in one place: in a cache, in the depot, among the empty ones, or owned by one
 * thread that moves it between two of these.  Every move is a store of that thread.  So no other
 * thread can have a pointer to an empty magazine: a cache's pointer to it was overwritten before it
 * came here, and threads that count blocks follow no pointer (usm_cache.rest).  The same holds in a
 * forked child: the class was locked at the fork, and a magazine that was being moved is in no list
 * but `made`. */
void slab_class_free_magazines(slab_pool *p, unsigned k)
{
    slab_class   *c = &p->classes[k];
    usm_magazine *m;
    usm_list      list;

    usm_list_init(&list);
    pthread_mutex_lock(&c->lock);
    while ((m = pop(&c->empty))) {
        usm_list_remove(&made_of(m)->link);
        usm_list_append(&list, &made_of(m)->link);
    }
    pthread_mutex_unlock(&c->lock);
    free_made(p, &list);
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

static usm_status take_counted_run(slab_pool *p, unsigned k, usm_slot *block)
{
    usm_status st = take_run(p, k, block);

    if (st == USM_OK && usm_add_relaxed(&p->classes[k].filled, (uint64_t)1) == 0)
        atomic_fetch_or_explicit(&p->used[k / 64], 1ull << k % 64, memory_order_relaxed);
    return st;
}

usm_status slab_take_block(slab_pool *p, unsigned k, usm_slot *block)
{
    slab_class *c  = &p->classes[k];
    usm_status  st = USM_OK;
    uint32_t    n  = 0;

    if (k >= SLAB_CLASSES)
        st = take_counted_run(p, k, block);
    while (k < SLAB_CLASSES && st == USM_OK && n == 0) {
        pthread_mutex_lock(&c->lock);
        n = take_blocks(c, block, 1);
        count_filled(p, k, n);
        pthread_mutex_unlock(&c->lock);
        if (n == 0)
            st = add_slab(p, k);
    }
    if (st == USM_OK)
        slab_live(p, (int64_t)c->size, 0);
    return st;
}

/* A thread preferably gets its own magazines back.  Neighbouring blocks have their states in one
 * cache line, for which two threads with blocks of both would compete at every free.  For the same
 * reason a run of neighbours from an existing slab is preferred to another thread's magazine, but
 * not a new slab.  pre: the class is locked. */
static usm_magazine *pop_for(slab_class *c, const usm_cache *owner, uint32_t want)
{
    usm_magazine **at = &c->full;

    for (int i = 0; *at && i < DEPOT_LOOK; i++, at = &(*at)->next)
        if ((*at)->owner == owner)
            return pop(at);
    if (c->partial && (c->nempty > 0 || c->partial->free >= want))
        return NULL;
    return pop(&c->full);
}

/* Takes a magazine from the depot in exchange for an empty one; NULL: there is none, and `m` was
 * filled from slabs. */
static usm_magazine *exchange(slab_pool *p, unsigned k, const usm_cache *owner, usm_magazine *m,
                              uint32_t *got)
{
    slab_class   *c = &p->classes[k];
    usm_magazine *full;

    pthread_mutex_lock(&c->lock);
    full = pop_for(c, owner, m->capacity);
    if (full) {
        c->nfull--;
        push(&c->empty, m);
        *got = usm_load_relaxed(&full->count);
        tally(&c->depot_hits, 1);
        usm_sub_relaxed(&c->depot_blocks, (uint64_t)*got);
    } else {
        *got = take_blocks(c, usm_magazine_slots(m), m->capacity);
        tally(&c->depot_misses, *got > 0);
    }
    count_filled(p, k, *got);
    pthread_mutex_unlock(&c->lock);
    return full;
}

usm_status slab_fill_magazine(slab_pool *p, unsigned k, const usm_cache *owner,
                              usm_magazine **magazine)
{
    usm_magazine *m   = *magazine;
    uint32_t      got = 0;
    usm_status    st  = USM_OK;

    for (;;) {
        usm_magazine *full = exchange(p, k, owner, m, &got);

        if (full)
            m = full;
        if (got > 0)
            break;
        st = add_slab(p, k);
        if (st != USM_OK)
            break;
    }
    usm_store_relaxed(&m->count, got);
    *magazine = m;
    return st;
}

/* Returns the blocks of a magazine to their slabs or to the heap. */
static void scatter(slab_pool *p, unsigned k, usm_magazine *m)
{
    slab_class *c    = &p->classes[k];
    uint32_t    n    = usm_load_relaxed(&m->count);
    slab       *list = NULL;

    usm_store_relaxed(&m->count, 0u);
    if (k >= SLAB_CLASSES) {
        for (uint32_t i = 0; i < n; i++)
            give_run(p, k, usm_magazine_slots(m)[i].p);
        return;
    }
    pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; i < n; i++)
        put_block(c, slab_of(p, k, usm_magazine_slots(m)[i].p), usm_magazine_slots(m)[i].p, &list);
    pthread_mutex_unlock(&c->lock);
    release_slabs(p, k, list);
}

/* Puts a magazine into the depot, and takes an empty one of the class, if there is one; false: the
 * depot is full. */
static bool deposit(slab_class *c, usm_magazine *m, usm_magazine **empty)
{
    uint32_t n    = usm_load_relaxed(&m->count);
    bool     kept = false;

    pthread_mutex_lock(&c->lock);
    tally(&c->drained, n);
    if (n > 0 && m->owner && c->nfull < c->depot_max) {
        push(&c->full, m);
        c->nfull++;
        usm_add_relaxed(&c->depot_blocks, (uint64_t)n);
        kept = true;
        if (empty)
            *empty = pop(&c->empty);
    }
    pthread_mutex_unlock(&c->lock);
    return kept;
}

usm_magazine *slab_swap_magazine(slab_pool *p, unsigned k, const usm_cache *owner, usm_magazine *m)
{
    slab_class   *c     = &p->classes[k];
    usm_magazine *empty = NULL;

    m->owner = owner;
    if (deposit(c, m, &empty))
        return empty ? empty : make_magazine(p, c);
    scatter(p, k, m);
    return m;
}

void slab_drain_magazine(slab_pool *p, unsigned k, const usm_cache *owner, usm_magazine *m)
{
    slab_class *c = &p->classes[k];

    m->owner = owner;
    if (k >= SLAB_CLASSES)
        usm_add_relaxed(&c->drained, (uint64_t)usm_load_relaxed(&m->count));
    else if (deposit(c, m, NULL))
        return;
    scatter(p, k, m);
    slab_put_magazine(p, k, m);
}

void slab_give_block(slab_pool *p, unsigned k, void *block)
{
    slab_class *c    = &p->classes[k];
    slab       *list = NULL;

    slab_live(p, -(int64_t)c->size, 0);
    if (k >= SLAB_CLASSES) {
        usm_add_relaxed(&c->drained, (uint64_t)1);
        give_run(p, k, block);
        return;
    }
    pthread_mutex_lock(&c->lock);
    tally(&c->drained, 1);
    put_block(c, slab_of(p, k, block), block, &list);
    pthread_mutex_unlock(&c->lock);
    release_slabs(p, k, list);
}

/* Takes a magazine of the owner's from the depot: its blocks, distributed among other threads,
 * would have neighbours in many of them. */
static usm_magazine *pop_of(slab_class *c, const usm_cache *owner)
{
    usm_magazine **at = &c->full, *m;

    pthread_mutex_lock(&c->lock);
    while (*at && (*at)->owner != owner)
        at = &(*at)->next;
    m = pop(at);
    if (m) {
        c->nfull--;
        usm_sub_relaxed(&c->depot_blocks, (uint64_t)usm_load_relaxed(&m->count));
    }
    pthread_mutex_unlock(&c->lock);
    return m;
}

void slab_class_disown(slab_pool *p, unsigned k, const usm_cache *owner)
{
    usm_magazine *m;

    while ((m = pop_of(&p->classes[k], owner)) != NULL) {
        scatter(p, k, m);
        slab_put_magazine(p, k, m);
    }
}

void slab_class_trim(slab_pool *p, unsigned k)
{
    slab_class   *c = &p->classes[k];
    usm_magazine *m;
    slab         *list = NULL;

    for (;;) {
        pthread_mutex_lock(&c->lock);
        m = pop(&c->full);
        if (m) {
            c->nfull--;
            usm_sub_relaxed(&c->depot_blocks, (uint64_t)usm_load_relaxed(&m->count));
        }
        pthread_mutex_unlock(&c->lock);
        if (!m)
            break;
        scatter(p, k, m);
        slab_put_magazine(p, k, m);
    }
    pthread_mutex_lock(&c->lock);
    while (!usm_list_is_empty(&c->empties))
        detach(c, usm_container_of(c->empties.next, slab, empty_link), &list);
    pthread_mutex_unlock(&c->lock);
    release_slabs(p, k, list);
}

/* ---- geometry -------------------------------------------------------------------------------- */

/* Slots of a magazine: such that four of them fit into a quarter of a thread's share; at most
 * 64. */
static uint32_t capacity_for(size_t size, size_t cache_bytes)
{
    size_t n = usm_min_size(usm_max_size(MAGAZINE_BYTES / size, 1), MAGAZINE_SLOTS);

    while (n > 1 && n * size > cache_bytes / 4)
        n /= 2;
    return n * size <= cache_bytes / 2 ? (uint32_t)n : 0;
}

static uint32_t depot_for(size_t magazine, size_t maximum_size)
{
    size_t bytes = usm_max_size(DEPOT_BYTES, 2 * magazine);

    if (maximum_size)
        bytes = usm_min_size(bytes, maximum_size / 64);
    return magazine ? (uint32_t)(bytes / magazine) : 0;
}

void slab_class_init(slab_pool *p, unsigned k, size_t maximum_size)
{
    slab_class *c = &p->classes[k];

    pthread_mutex_init(&c->lock, NULL);
    usm_list_init(&c->empties);
    usm_list_init(&c->slabs);
    usm_list_init(&c->made);
    c->size = usm_class_size(k);
    if (p->slot)
        c->capacity = capacity_for(c->size, p->cache_bytes);
    c->depot_max = depot_for(c->capacity * c->size, maximum_size);
    if (k >= SLAB_CLASSES)
        return;
    c->bytes  = usm_align_up_ptr(usm_max_size(SLAB_LEAST_SIZE, SLAB_LEAST * c->size), SLAB_PAGE);
    c->blocks = (uint32_t)(c->bytes / c->size);
    c->words  = (c->blocks + 63) / 64;
    c->states = (uint32_t)((c->bytes + c->size - 1) / c->size);
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
            usm_store_relaxed(usm_span_state(&s->span, i), (uint8_t)USM_BLOCK_FREE);
        put_descriptor(k, s);
    }
}

void slab_class_fini(slab_pool *p, unsigned k)
{
    slab_class *c = &p->classes[k];

    if (k < SLAB_CLASSES)
        forget_slabs(p, k);
    free_made(p, &c->made);
    pthread_mutex_destroy(&c->lock);
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
