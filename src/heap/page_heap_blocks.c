/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Descriptors of the heap's blocks, and the index that finds them by address.
 *
 * Descriptors are allocated in chunks of 64 KiB that are never unmapped and never used for anything
 * else, because a free that loses a race may still read a span in one.  It finds the span before it
 * announces its slot (heap/magazine.h, `busy`), so no thread can wait for its end.  Discarding the
 * pages would not be safe either: a base that was read before and states that were read after would
 * not give a valid address.
 *
 * When a heap ends it leaves its chunks to the other heaps of the process, and a trim leaves those
 * without a block.  The list of these chunks is a stack without a lock, so that fork() needs no
 * handler for it.  It is pushed to by compare-and-swap and emptied as a whole, so that the reuse of
 * an entry cannot confuse it. */
#include "heap/page_heap_private.h"

#include <base/inline/atomic.h>

#include <sys/mman.h>

#define CHUNK_SIZE ((size_t)64 << 10)

struct slab_chunk {
    usm_list            link;  /* in a heap                                                  */
    struct slab_chunk  *next;  /* in the process's stack                                     */
    size_t              spare; /* descriptors without a block, when slab_chunks_trim counted */
    const usm_host_api *api;
    slab_block          blocks[];
};

#define CHUNK_BLOCKS ((CHUNK_SIZE - sizeof(struct slab_chunk)) / sizeof(slab_block))

static _Atomic(struct slab_chunk *) unused_chunks;

/* --- descriptors ----------------------------------------------------------------------------- */

static void push_chunks(struct slab_chunk *first, struct slab_chunk *last)
{
    struct slab_chunk *top = usm_load_relaxed(&unused_chunks);

    do
        last->next = top;
    while (!usm_cas_acq_rel(&unused_chunks, &top, first));
}

static struct slab_chunk *last_chunk(struct slab_chunk *c)
{
    while (c->next)
        c = c->next;
    return c;
}

static struct slab_chunk *chunk_get(const usm_host_api *api)
{
    struct slab_chunk *c = usm_swap_acq_rel(&unused_chunks, NULL);

    if (c) {
        if (c->next)
            push_chunks(c->next, last_chunk(c->next));
        return c;
    }
    c = api->os->map(CHUNK_SIZE, PROT_READ | PROT_WRITE);
    if (c)
        c->api = api;
    return c;
}

static void add_chunk(slab_heap *h, struct slab_chunk *c)
{
    usm_list_append(&h->chunks, &c->link);
    for (size_t i = 0; i < CHUNK_BLOCKS; i++) {
        c->blocks[i].chunk = c;
        /* What is the same for all blocks of a heap: one page leads to them, and one state. */
        c->blocks[i].span = (usm_span){.states = 1,
                                       .source = h->params.areas.source,
                                       .pages  = 1,
                                       .shift  = SLAB_PAGE_SHIFT,
                                       .kind   = (uint8_t)h->params.kind};
        slab_spare_give(h, &c->blocks[i]);
    }
}

usm_status slab_spare_ensure(slab_heap *h)
{
    struct slab_chunk *c;

    pthread_mutex_lock(&h->lock);
    while (!slab_has_spares(h)) {
        pthread_mutex_unlock(&h->lock);
        c = chunk_get(h->params.api);
        if (!c)
            return h->params.api->report(
                USM_E_NO_MEMORY, "no host memory for libusm's tables, which describe blocks");
        pthread_mutex_lock(&h->lock);
        add_chunk(h, c);
    }
    pthread_mutex_unlock(&h->lock);
    return USM_OK;
}

slab_block *slab_spare_take(slab_heap *h)
{
    h->spare_count--;
    return SLAB_BLOCK_OF(usm_list_pop(&h->spare));
}

/* To the front: the most recently used descriptor is in the processor's caches. */
void slab_spare_give(slab_heap *h, slab_block *b)
{
    b->use = SLAB_SPARE;
    usm_store_relaxed(&b->state, USM_BLOCK_FREE);
    usm_list_append(h->spare.next, &b->link);
    h->spare_count++;
}

void slab_chunks_give(slab_heap *h)
{
    usm_list *it;

    while ((it = usm_list_pop(&h->chunks))) {
        struct slab_chunk *c = usm_container_of(it, struct slab_chunk, link);

        push_chunks(c, c);
    }
    usm_list_init(&h->spare);
    h->spare_count = 0;
}

/* pre: all its descriptors are spare. */
static void give_chunk(slab_heap *h, struct slab_chunk *c)
{
    for (size_t i = 0; i < CHUNK_BLOCKS; i++)
        usm_list_remove(&c->blocks[i].link);
    h->spare_count -= CHUNK_BLOCKS;
    usm_list_remove(&c->link);
    c->next = NULL;
    push_chunks(c, c);
}

/* Only the growing thread relies on spare descriptors after it has released the lock. */
void slab_chunks_trim(slab_heap *h)
{
    if (h->growing)
        return;
    USM_LIST_FOREACH (it, &h->chunks)
        usm_container_of(it, struct slab_chunk, link)->spare = 0;
    USM_LIST_FOREACH (it, &h->spare)
        SLAB_BLOCK_OF(it)->chunk->spare++;
    USM_LIST_FOREACH_SAFE (it, next, &h->chunks) {
        struct slab_chunk *c = usm_container_of(it, struct slab_chunk, link);

        if (c->spare == CHUNK_BLOCKS)
            give_chunk(h, c);
    }
}

void slab_heap_release_descriptors(void)
{
    struct slab_chunk *next, *c = usm_swap_acq_rel(&unused_chunks, NULL);

    for (; c; c = next) {
        next = c->next;
        (void)c->api->os->unmap(c, CHUNK_SIZE);
    }
}

/* --- areas ----------------------------------------------------------------------------------- */

slab_area *slab_area_new(const slab_heap *h, size_t size, bool is_range)
{
    size_t     groups  = (size >> SLAB_GROUP_SHIFT) + 1;
    size_t     words   = groups / 64 + 1;
    size_t     summary = words / 64 + 1;
    slab_area *a       = h->params.api->heap_alloc(sizeof(*a));

    if (!a)
        return NULL;
    a->first = h->params.api->heap_alloc((groups + words + summary) * sizeof(uint64_t));
    if (!a->first) {
        h->params.api->heap_free(a);
        return NULL;
    }
    a->bits     = (uint64_t *)(void *)(a->first + groups);
    a->summary  = a->bits + words;
    a->size     = size;
    a->is_range = is_range;
    usm_list_init(&a->holes);
    return a;
}

void slab_area_free(const slab_heap *h, slab_area *a)
{
    if (a)
        h->params.api->heap_free(a->first);
    h->params.api->heap_free(a);
}

void slab_area_start(slab_heap *h, slab_area *a, usm_area *area, enum slab_use use)
{
    slab_block *b = slab_spare_take(h);

    a->area         = area;
    a->base         = (uintptr_t)area->base;
    a->bottom       = b;
    area->pool_data = a;
    usm_list_append(&h->areas, &a->link);
    b->span.base = a->base;
    b->span.size = a->size;
    b->home      = a;
    b->span.area = area;
    b->lower = b->upper = NULL;
    b->use              = (uint8_t)use;
}

/* --- used blocks by address ------------------------------------------------------------------ */

static size_t group_of(const slab_block *b)
{
    return SLAB_OFFSET_OF(b) >> SLAB_GROUP_SHIFT;
}

void slab_index_add(slab_block *b)
{
    slab_area   *a     = b->home;
    size_t       group = group_of(b);
    slab_block **first = &a->first[group];

    if (*first) {
        if (b->span.base < (*first)->span.base)
            *first = b;
        return;
    }
    *first = b;
    a->bits[group / 64] |= 1ull << group % 64;
    a->summary[group / 4096] |= 1ull << group / 64 % 64;
}

void slab_index_remove(slab_block *b)
{
    slab_area  *a     = b->home;
    size_t      group = group_of(b);
    slab_block *next  = b->upper;

    if (a->first[group] != b)
        return;
    while (next && next->use != SLAB_USED && group_of(next) == group)
        next = next->upper;
    if (next && next->use == SLAB_USED && group_of(next) == group) {
        a->first[group] = next;
        return;
    }
    a->first[group] = NULL;
    a->bits[group / 64] &= ~(1ull << group % 64);
    if (!a->bits[group / 64])
        a->summary[group / 4096] &= ~(1ull << group / 64 % 64);
}

/* The last set bit at or before bit i; SIZE_MAX: none. */
static size_t previous_bit(const uint64_t *bits, size_t i)
{
    size_t   word = i / 64;
    uint64_t bit  = bits[word] & (~0ull >> (63 - i % 64));

    while (!bit) {
        if (word == 0)
            return SIZE_MAX;
        bit = bits[--word];
    }
    return word * 64 + 63 - (size_t)__builtin_clzll(bit);
}

/* As above, with the help of the summary: reads one word of each, and one of the summary for each
 * GiB without a used block. */
static size_t previous_group(const slab_area *a, size_t group)
{
    uint64_t bit  = a->bits[group / 64] & (~0ull >> (63 - group % 64));
    size_t   word = group / 64;

    if (!bit) {
        word = word ? previous_bit(a->summary, word - 1) : SIZE_MAX;
        if (word == SIZE_MAX)
            return SIZE_MAX;
        bit = a->bits[word];
    }
    return word * 64 + 63 - (size_t)__builtin_clzll(bit);
}

/* A used block that starts at or before p; NULL: there is none. */
static slab_block *used_before(const slab_area *a, uintptr_t p)
{
    size_t      group = (p - a->base) >> SLAB_GROUP_SHIFT;
    slab_block *b     = a->first[group];

    if (b && b->span.base <= p)
        return b;
    group = group ? previous_group(a, group - 1) : SIZE_MAX;
    return group == SIZE_MAX ? NULL : a->first[group];
}

slab_block *slab_index_find(const slab_area *a, uintptr_t p)
{
    slab_block *b = used_before(a, p);

    while (b && p >= SLAB_BLOCK_END(b)) /* at most two blocks for each page of a group */
        b = b->upper;
    return b && b->use == SLAB_USED ? b : NULL;
}

slab_block *slab_block_around(const slab_area *a, uintptr_t p)
{
    slab_block *b = used_before(a, p);

    if (!b)
        b = a->bottom;
    while (p >= SLAB_BLOCK_END(b))
        b = b->upper;
    return b;
}

/* --- cutting and joining --------------------------------------------------------------------- */

slab_block *slab_split(slab_heap *h, slab_block *b, uintptr_t at)
{
    slab_block *u = slab_spare_take(h);

    u->span.base = at;
    u->span.size = SLAB_BLOCK_END(b) - at;
    u->home      = b->home;
    u->span.area = b->span.area;
    u->use       = b->use;
    u->lower     = b;
    u->upper     = b->upper;
    if (b->upper)
        b->upper->lower = u;
    b->upper     = u;
    b->span.size = at - b->span.base;
    return u;
}

slab_block *slab_chain_lower(slab_heap *h, slab_block *b, size_t size)
{
    slab_block *u = slab_spare_take(h);

    u->span.base = b->span.base;
    u->span.size = size;
    u->home      = b->home;
    u->span.area = b->span.area;
    u->lower     = b->lower;
    u->upper     = b;
    if (b->lower)
        b->lower->upper = u;
    else
        b->home->bottom = u;
    b->lower = u;
    return u;
}

void slab_unchain(slab_heap *h, slab_block *b)
{
    if (b->lower)
        b->lower->upper = b->upper;
    else
        b->home->bottom = b->upper;
    if (b->upper)
        b->upper->lower = b->lower;
    slab_spare_give(h, b);
}

void slab_join_upper(slab_heap *h, slab_block *b)
{
    slab_block *u = b->upper;

    b->span.size += u->span.size;
    slab_unchain(h, u);
}
