/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the heap: page_heap.c (blocks), page_heap_growth.c (areas, pieces),
 * page_heap_bins.c (free blocks by size), page_heap_blocks.c (descriptors, used blocks by address),
 * page_heap_check.c (invariants).  All functions are entered with the heap's lock and keep it,
 * unless stated otherwise. */
#ifndef USM_HEAP_PAGE_HEAP_PRIVATE_H
#define USM_HEAP_PAGE_HEAP_PRIVATE_H

#include "heap/page_heap.h"

#include <base/inline/bits.h>

/* The use of a block's addresses.  Neighbours are never both FREE, nor both HOLE. */
enum slab_use {
    SLAB_SPARE = 0, /* none: a descriptor without a block                           */
    SLAB_FREE,      /* memory, in a bin                                             */
    SLAB_USED,      /* memory of the caller's                                       */
    SLAB_HOLE,      /* addresses without memory: whole pieces of a range            */
    SLAB_ASIDE,     /* memory that a thread needs next to pieces that it is mapping */
    SLAB_MAPPING,   /* pieces that a thread is mapping                              */
    SLAB_UNMAPPING  /* pieces that a thread is unmapping                            */
};

/* An area, or a range of addresses into which pieces are mapped.
 *
 *   the blocks from `bottom` on, each the upper neighbour of the one before, cover it without gaps
 *
 * Used blocks are found by groups of 64 pages: `first` has the lowest used block that starts in
 * each group, `bits` a bit for each group that has one, `summary` a bit for each word of bits that
 * is not 0. */
typedef struct slab_area {
    usm_list     link;
    usm_area    *area;
    uintptr_t    base;
    size_t       size;
    bool         is_range;
    slab_block  *bottom;
    usm_list     holes; /* by address; empty in an area                                   */
    slab_block **first;
    uint64_t    *bits, *summary;
} slab_area;

#define SLAB_GROUP_SHIFT (SLAB_PAGE_SHIFT + 6)

#define SLAB_BLOCK_OF(it) usm_container_of((it), slab_block, link)
#define SLAB_AREA_OF(it)  usm_container_of((it), slab_area, link)
#define SLAB_BLOCK_END(b) ((b)->span.base + (b)->span.size)
#define SLAB_OFFSET_OF(b) ((b)->span.base - (b)->home->base)

/* The number of spare descriptors with which a step cannot fail.  A step under a single hold of the
 * lock begins with as many, and takes two at most.  Growth takes six at most after it has ensured
 * them, under several holds; so twice that is there for a source that uses the heap itself. */
#define SLAB_STEP_BLOCKS 16

/* A request for a block until it has its answer: `block` or `status` is set. */
typedef struct slab_want {
    size_t      size, align; /* whole pages                                                     */
    bool        is_large;    /* for slab_heap_alloc_large()                                     */
    bool        is_growing;  /* this thread has to grow the heap for it; others wait for that   */
    bool        was_growing; /* it does so for another request already, further up the stack    */
    bool        is_frugal;   /* memory is short: no more is taken than the block needs          */
    slab_block *block;       /* handed out; NULL: not yet                                       */
    usm_status  status;
} slab_want;

/* --- page_heap_bins.c ------------------------------------------------------------------------- */
void slab_bins_init(slab_bins *bins);
void slab_bins_insert(slab_bins *bins, slab_block *b);
void slab_bins_remove(slab_bins *bins, slab_block *b);
/* Sets the size of b, which is in a bin. */
void slab_bins_resize(slab_bins *bins, slab_block *b, size_t size);
/* The best block into which `size` bytes, aligned, fit; NULL: none.  It stays in its bin. */
slab_block *slab_bins_find(const slab_bins *bins, size_t size, size_t align);
/* The largest block, or one that is smaller by less than 1/32; NULL: none. */
slab_block *slab_bins_largest(const slab_bins *bins);
/* The block with the highest address among those of at least `size` bytes, a power of two. */
slab_block *slab_bins_highest(const slab_bins *bins, size_t size,
                              bool (*is_wanted)(const slab_heap *, const slab_block *),
                              const slab_heap *h);
/* For tests: true if b's size belongs to that bin. */
bool slab_bins_is_in(const slab_block *b, unsigned row, unsigned column);

/* --- page_heap_blocks.c ----------------------------------------------------------------------- */
/* Without the lock.  Makes sure that there are SLAB_STEP_BLOCKS spare descriptors. */
usm_status slab_spare_ensure(slab_heap *h);

static inline bool slab_has_spares(const slab_heap *h)
{
    return h->spare_count >= SLAB_STEP_BLOCKS;
}

slab_block *slab_spare_take(slab_heap *h); /* never NULL: see above */
void        slab_spare_give(slab_heap *h, slab_block *b);
void        slab_chunks_give(slab_heap *h); /* to the process; needs no lock */
/* Returns only chunks without a block; none while a thread grows the heap, which relies on spare
 * descriptors. */
void slab_chunks_trim(slab_heap *h);

/* Without the lock.  NULL: no host memory; no error message. */
slab_area *slab_area_new(const slab_heap *h, size_t size, bool is_range);
void       slab_area_free(const slab_heap *h, slab_area *a);
/* Starts the area with a single block, of use `use`. */
void slab_area_start(slab_heap *h, slab_area *a, usm_area *area, enum slab_use use);

/* Used blocks by address. */
void        slab_index_add(slab_block *b);
void        slab_index_remove(slab_block *b);
slab_block *slab_index_find(const slab_area *a, uintptr_t p);
/* The block around p, of whichever use.  pre: p lies in the area. */
slab_block *slab_block_around(const slab_area *a, uintptr_t p);

/* Cuts b at `at`, which lies inside it; returns the upper part, of the same use, in no list. */
slab_block *slab_split(slab_heap *h, slab_block *b, uintptr_t at);
/* b grows by its upper neighbour, whose descriptor becomes spare; neither is in a list. */
void slab_join_upper(slab_heap *h, slab_block *b);
/* A new block of `size` bytes, in no list and of no use yet, that begins where b does; the caller
 * makes b begin behind it. */
slab_block *slab_chain_lower(slab_heap *h, slab_block *b, size_t size);
/* A neighbour has b's addresses now: its descriptor becomes spare.  It is in no list. */
void slab_unchain(slab_heap *h, slab_block *b);

/* --- page_heap.c ------------------------------------------------------------------------------ */
/* b, of any use and in no list, becomes FREE and merges with FREE neighbours.  The neighbour's
 * descriptor stays: the caller must not use b afterwards. */
void slab_make_free(slab_heap *h, slab_block *b);
/* b, FREE, is removed from its bin. */
void slab_unbin(slab_heap *h, slab_block *b);
/* The part [at, at + size) of b, which is in no list, becomes USED, the rest FREE. */
slab_block *slab_carve(slab_heap *h, slab_block *b, uintptr_t at, size_t size);
/* Makes a USED block from free memory; NULL: there is none. */
slab_block *slab_take_free(slab_heap *h, size_t size, size_t align);
/* Answers the request with b, which is USED. */
void slab_hand_out(slab_heap *h, slab_want *w, slab_block *b);

/* The idle bytes have changed for good. */
static inline void slab_idle_changed(slab_heap *h)
{
    if (h->low > h->idle)
        h->low = h->idle;
}

/* --- pieces, see page_heap_growth.c ----------------------------------------------------------- */
static inline unsigned slab_piece_shift(const slab_heap *h, size_t offset)
{
    return h->piece_shift[(offset >= h->piece_zone[0]) + (offset >= h->piece_zone[1])];
}

/* The start of the piece that contains offset; zones start at multiples of the size of their
 * pieces. */
static inline size_t slab_piece_start(const slab_heap *h, size_t offset)
{
    unsigned shift = slab_piece_shift(h, offset);

    return offset >> shift << shift;
}

/* The next start of a piece at or after offset. */
static inline size_t slab_piece_ceil(const slab_heap *h, size_t offset)
{
    unsigned shift = slab_piece_shift(h, offset);

    return (offset + ((size_t)1 << shift) - 1) >> shift << shift;
}

/* Bytes of b that are areas or pieces without a used block. */
static inline size_t slab_idle_in(const slab_heap *h, const slab_block *b)
{
    const slab_area *a = b->home;
    size_t           low, high;

    if (!a->is_range)
        return b->span.size == a->size ? a->size : 0;
    low  = slab_piece_ceil(h, SLAB_OFFSET_OF(b));
    high = slab_piece_start(h, SLAB_OFFSET_OF(b) + b->span.size);
    return high > low ? high - low : 0;
}

/* --- page_heap_growth.c ----------------------------------------------------------------------- */
void slab_growth_init(slab_heap *h);
/* Waits for `settled`; no thread is cancelled there. */
void slab_wait_settled(slab_heap *h);
/* Without the lock, by the growing thread.  Answers the request; then others may grow. */
void slab_grow(slab_heap *h, slab_want *w);
/* Without the lock.  Returns idle memory until it is `enough` bytes, never more than `most`. */
size_t slab_give_back(slab_heap *h, uint64_t enough, uint64_t most);
/* Without the lock.  Returns the ranges without mapped memory. */
void slab_give_ranges(slab_heap *h);
/* Called after a free: how many bytes were idle for too long.  The caller returns them. */
uint64_t slab_retention_due(slab_heap *h);

#endif
