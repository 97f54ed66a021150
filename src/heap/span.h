/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Spans, which describe the blocks of the pool `slab`, and thread caches, which keep free blocks of
 * such spans.  Here are the types alone.  The page map leads from an address to its span
 * (heap/pages.h), heap/magazine.h has the fast paths over both, heap/slab*.c makes and fills
 * them. */
#ifndef USM_HEAP_SPAN_H
#define USM_HEAP_SPAN_H

#include <base/inline/classes.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <usm/pool_ops.h>

/* A run of pages that is cut into blocks of one size, as the page map refers to it; embedded in
 * slab's own descriptor of the run, where the states of its blocks follow it.  While the page map
 * refers to it nothing but the states changes.  Type-stable: memory that held a span is never
 * unmapped and only ever holds spans, because a free that lost a race may still read it.
 *
 *   i = (p - base) * reciprocal >> USM_SPAN_SHIFT    block i is at base + i * size
 *
 * The state of the block at base + offset is number offset >> shift, where 2^shift is the largest
 * power of two that divides the size.  States at which no block starts remain FREE, so a state LIVE
 * says that a block starts there, without a division.  A span of one block has reciprocal 0, shift
 * 12 and one state.  There is a state for every i that the formula gives for an address in the
 * span's pages, including the tail behind the last block. */
typedef struct usm_span {
    /* a cache line of its own: it is read at every free, the states are written */
    _Alignas(64) uintptr_t base;
    uint64_t  states; /* their number                                       */
    void     *source; /* its usm_pool                                       */
    size_t    bin_at; /* offset of the size class's bin in a cache's `bins` */
    size_t    size;   /* bytes of a block                                   */
    uint64_t  reciprocal;
    usm_area *area;
    uint16_t  slot;  /* usm_pool.slot; 0: frees of its blocks bypass the caches              */
    uint16_t  pages; /* that lead to it: all pages of a slab, of a larger block only the first */
    uint8_t   shift;
    uint8_t   bin;  /* size class; < USM_BINS when slot is not 0 */
    uint8_t   kind; /* usm_kind                                  */
} usm_span;
_Static_assert(sizeof(usm_span) == 64, "the states begin at the next line");

#define USM_SPAN_SHIFT 40

static inline _Atomic(uint8_t) *usm_span_states(const usm_span *span)
{
    return (_Atomic(uint8_t) *)(uintptr_t)(span + 1);
}

/* The state that a block at base + offset has; NULL: no block can start there.  A rotation makes an
 * offset that is no multiple of 2^shift larger than any number of states. */
static inline _Atomic(uint8_t) *usm_span_state_at(const usm_span *span, uintptr_t offset)
{
    uint64_t i = offset >> span->shift | offset << (-span->shift & 63);

    return i < span->states ? usm_span_states(span) + i : NULL;
}

typedef enum usm_block_state {
    USM_BLOCK_FREE    = 0, /* in the pool or in a magazine; or not a block at all             */
    USM_BLOCK_LIVE    = 1, /* in use by the program                                           */
    USM_BLOCK_WATCHED = 2  /* live and tracked: its free must be observed, so caches reject it */
} usm_block_state;

/* A free block in a magazine. */
typedef struct usm_slot {
    void             *p;
    _Atomic(uint8_t) *state;
} usm_slot;

/* One size class of one thread's cache: a magazine, which is a stack of free blocks.  [bottom, top)
 * holds blocks and [top, limit) is free; all three are NULL while the bin has no magazine.  The
 * owner writes, any thread reads; but only the thread that uses the cache follows the pointers,
 * because it may replace the magazine (threads that count blocks compare them). */
typedef struct usm_bin {
    _Atomic(usm_slot *) top, bottom, limit;
    usm_slot *seen; /* `top` at the last visit of the clock hand (slab_cache.c): unchanged means
                       idle */
} usm_bin;

/* The number of blocks in a magazine, at most. */
#define USM_MAGAZINE_SLOTS 1024

/* The largest alignment that a block of a size class has, provided that its size is a multiple of
 * it. */
#define USM_CACHED_ALIGN ((size_t)4096)

/* One thread's cached blocks of one pool.  The owner uses it without a lock, another thread only
 * while the owner cannot use it. */
typedef struct usm_cache {
    usm_bin           bins[USM_BINS];
    _Atomic(uint64_t) active[2]; /* bit k: bins[k] has a magazine    */
    _Atomic(uint64_t) bytes;     /* bytes that its magazines can hold */
    /* of slab_cache.c */
    uint32_t held[USM_BINS]; /* blocks that the bin held at most when it was last noted */
    uint32_t hand;           /* clock hand: the next bin to take a magazine from        */
    uint32_t refused;        /* times that a bin was refused room                       */
} usm_cache;

/* Statistics of one size class.  Sizes are bytes.  A class that never held memory is left out. */
typedef struct usm_pool_class {
    size_t   size; /* of a block; 0 for the class of large blocks */
    uint64_t live; /* blocks in use by the program                */
    uint64_t live_bytes;
    uint64_t cached;       /* free blocks in threads' magazines and the depot   */
    uint64_t held;         /* bytes of the class's slabs                        */
    uint64_t allocations;  /* see usm_pool_stats                                */
    uint64_t depot_hits;   /* times a magazine was filled from the depot */
    uint64_t depot_misses; /* times a magazine was filled from slabs     */
} usm_pool_class;

#endif
