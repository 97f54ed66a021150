/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pool `slab`, for memory that the host may be unable to access: all information about a block
 * is stored elsewhere.
 *
 *     thread      a magazine of each size class                  heap/magazine.h, slab_cache.c
 *       | half a magazine at a time
 *     class       depot of blocks that threads returned          slab_class.c
 *       | block by block
 *     slab        a bit for each block, a run of pages           slab_class.c
 *       | 64 KiB to 256 KiB
 *     heap        runs of pages, merged at once when free        page_heap.c
 *       | 2 MiB and more
 *     area source the driver                                     heap/area.c
 *
 * Blocks up to 32 KiB are cut from slabs; those up to 1 MiB are runs of the heap that magazines
 * keep; larger ones, and those with an alignment above 4 KiB, are allocated and freed in the heap.
 *
 * The state of a block:
 *
 *     live       state LIVE or WATCHED, bit 0     allocated by the program
 *     cached     state FREE, bit 0                in a magazine or in the depot
 *     free       state FREE, bit 1                in its slab
 *
 *     live blocks of a class = filled - drained - blocks in threads' magazines
 *
 * Locks: a class's, then the heap's.  None is held while the source is called. */
#ifndef USM_HEAP_SLAB_PRIVATE_H
#define USM_HEAP_SLAB_PRIVATE_H

#include <base/inline/atomic.h>
#include <base/inline/bits.h>
#include <base/inline/classes.h>

#include "heap/page_heap.h"
#include "heap/slab.h"

#define SLAB_CLASSES    56 /* cut from slabs: up to 32 KiB                              */
#define SLAB_LEAST_SIZE ((size_t)64 << 10)
#define SLAB_LINE       ((size_t)64) /* a cache line               */
#define SLAB_LEAST      8            /* blocks in a slab, at least */
/* A magazine holds that many blocks and bytes, in its first and in its largest size.  FILL_BYTES is
 * taken from slabs at a time.  The first fill, half a magazine, is all blocks whose states share a
 * line where these are up to 1 KiB large, and a slab where they are up to 8 KiB: so threads that
 * begin side by side write to different lines. */
#define MAGAZINE_FIRST_SLOTS 128u
#define MAGAZINE_FIRST_BYTES ((size_t)128 << 10)
#define MAGAZINE_MOST_BYTES  ((size_t)512 << 10)
#define MAGAZINE_MOST_RUNS   2u /* of a class of runs, if that is more */
#define FILL_BYTES           ((size_t)64 << 10)
#define DEPOT_BYTES          ((size_t)512 << 10)
/* Budget of a pool for all its caches together; the part of it that the depots may take. */
#define CACHE_BYTES ((size_t)32 << 20)
#define DEPOTS_PART 4

/* A run of blocks of one class, followed by the states and the bits.  What is written under the
 * lock, what every free reads, and the states, which every allocation and free writes, are in
 * separate cache lines.  Type-stable, like its span. */
typedef struct slab {
    slab_block *block;
    /* guarded by the class's lock */
    struct slab *child, *next, *prev; /* in the heap of slabs with a free block            */
    usm_list     empty_link;          /* in the class's list of slabs without a live block */
    usm_list     link;                /* in the class's list of all                        */
    uint32_t     free;                /* number of set bits                                */
    uint32_t     hint;                /* no word before this one has a set bit             */
    uint64_t    *bits;                /* of free blocks; fixed                             */
    usm_span     span;                /* last: every page leads to it                      */
} slab;
_Static_assert(sizeof(slab) == offsetof(slab, span) + sizeof(usm_span), "the states follow");

typedef struct slab_class {
    pthread_mutex_t lock;
    /* fixed */
    size_t   size;  /* of a block                                                    */
    size_t   bytes; /* of a slab                                                     */
    uint64_t reciprocal;
    uint32_t blocks, words, states;         /* in a slab: blocks, words of bits, states */
    uint8_t  shift;                         /* of usm_span                              */
    uint32_t capacity_first, capacity_most; /* of a magazine; 0: not cached */
    uint32_t depot_most;                    /* blocks in the depot          */
    /* guarded by lock */
    slab     *partial; /* slabs with a free block, as a heap: lowest address on top */
    usm_list  slabs, empties;
    usm_slot *depot; /* depot_blocks of them; depot_most entries, NULL until first needed */
    uint32_t  nslabs, nempty; /* nempty: slabs without a live block                               */
    /* written under lock (for runs: atomically), read without */
    _Atomic(uint64_t) filled, drained; /* blocks moved to threads or the program, and back */
    _Atomic(uint64_t) depot_blocks, depot_hits, depot_misses, held;
} slab_class;

typedef struct slab_pool {
    const usm_host_api *api;
    usm_pool           *owner;
    uint16_t            slot; /* of its thread caches; 0: it has none */
    usm_kind            kind;
    size_t              cache_least; /* budget of all caches together, see slab_take_room(); */
    size_t              cache_bytes; /* the most that it may become                         */
    size_t              least_align;
    slab_heap           heap;
    slab_class          classes[USM_BINS];
    _Atomic(uint64_t)   used[2]; /* bit k: class k has ever served a block */
    /* peak_bytes: the maximum of live bytes.  room_bytes: capacity of the magazines; room_peak: its
     * maximum since the peak was reset. */
    _Atomic(uint64_t) peak_bytes;
    _Atomic(uint64_t) room_bytes, room_peak;
    _Atomic(uint64_t) depot_bytes; /* of blocks in the depots */
} slab_pool;

/* ---- slab_class.c: slabs and the depot ------------------------------------------------------- */

void slab_class_init(slab_pool *p, unsigned k);
/* The heap frees the memory of slabs; this function frees their descriptions. */
void slab_class_fini(slab_pool *p, unsigned k);

void slab_class_fork(slab_class *c, usm_fork_phase phase);
/* Calls fn for every slab of the class with its lock held: fn takes no lock. */
void slab_class_each(slab_class *c, slab_free_visit *fn, void *arg);

/* Takes one block for no magazine. */
usm_status slab_take_block(slab_pool *p, unsigned k, usm_slot *block);
/* The same for a run, but only from free memory; false: the heap would have to grow. */
bool slab_take_held_run(slab_pool *p, unsigned k, usm_slot *block);
/* Takes at least one block and at most `want`, from the depot or from slabs: *got. */
usm_status slab_take_blocks(slab_pool *p, unsigned k, usm_slot *blocks, uint32_t want,
                            uint32_t *got);
/* Returns FREE blocks of a magazine: to the depot if it has room, otherwise to their slabs, or the
 * heap.  to_slabs: all to their slabs, so that the next thread takes neighbours. */
void slab_give_blocks(slab_pool *p, unsigned k, const usm_slot *blocks, uint32_t n, bool to_slabs);
/* Returns a FREE block that is in no magazine. */
void slab_give_block(slab_pool *p, unsigned k, void *block);
/* Empties the depot into slabs, and returns slabs without a live block to the heap. */
void slab_class_trim(slab_pool *p, unsigned k);

/* ---- slab_cache.c: operations on a thread's cache; the others are in slab.h --------------------
 * */

/* As slab_fill(), which empties the depot if memory is short and calls it again. */
usm_status slab_cache_fill(slab_pool *p, usm_cache *cache, unsigned bin, usm_slot *block);

/* The runs of the cache go to the heap. */
void slab_cache_give_runs(slab_pool *p, usm_cache *cache);

/* Changes the minimum of live bytes by `bytes`; at this moment `more` are live in addition. */
void slab_live(slab_pool *p, int64_t bytes, int64_t more);
/* The blocks that a bin of a cache holds now, and at most until it is noted again, and the number
 * that it got from the pool or returned to it (< 0) since it was last noted. */
typedef struct slab_swap {
    int64_t  moved;
    uint32_t now, most;
} slab_swap;
void slab_note_cached(slab_pool *p, usm_cache *cache, unsigned k, const slab_swap *s);
/* Takes bytes for a magazine from the pool's budget; false: it is used up. */
bool slab_take_room(slab_pool *p, uint64_t bytes);
void slab_give_room(slab_pool *p, uint64_t bytes);
/* True if the budget allows the depots to hold as many bytes more. */
bool slab_has_room(const slab_pool *p, uint64_t bytes);

#endif
