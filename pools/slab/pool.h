/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pool `slab`, for memory that the host may never touch: all that is known of a block lies
 * elsewhere.
 *
 *     thread      loaded, spare magazine of each size class      core/magazine.h, cache.c
 *       | a magazine at a time
 *     class       depot of magazines                             class.c
 *       | block by block
 *     slab        a bit a block, a run of pages                  class.c
 *       | 64 KiB to 256 KiB
 *     heap        runs of pages, merged at once when free        heap.c
 *       | 2 MiB and more
 *     area source the driver                                     core/area.c
 *
 * Blocks up to 32 KiB are cut from slabs; those up to 1 MiB are runs of the heap that magazines
 * keep; larger ones, and those with an alignment above 4 KiB, go to the heap and back.
 *
 * Where a block is:
 *
 *     live       state LIVE or WATCHED, bit 0     in the program's hands
 *     cached     state FREE, bit 0                in one magazine, of a thread or of the depot
 *     free       state FREE, bit 1                in its slab
 *
 *     live blocks of a class = filled - drained - blocks in threads' magazines
 *
 * Locks: a class's, then the heap's.  None is held while the source is asked. */
#ifndef USM_POOL_SLAB_POOL_H
#define USM_POOL_SLAB_POOL_H

#include <base/inline/atomic.h>
#include <base/inline/bits.h>
#include <base/inline/classes.h>

#include "heap.h"

#define SLAB_CLASSES    56 /* cut from slabs: up to 32 KiB                              */
#define SLAB_LEAST_SIZE ((size_t)64 << 10)
#define SLAB_LINE       ((size_t)64) /* of the cache                                   */
#define SLAB_LEAST      8            /* blocks in a slab                                          */
#define MAGAZINE_SLOTS  64
#define MAGAZINE_BYTES  ((size_t)64 << 10)
#define CACHE_BYTES     ((size_t)2 << 20) /* most that a thread's magazines can hold     */
#define DEPOT_BYTES     ((size_t)512 << 10)

/* A run of blocks of one class.  Bits and states stand behind it.  Type-stable, as its span. */
typedef struct slab {
    usm_span    span; /* first: the page map leads to it, from every page                  */
    slab_block *block;
    uint64_t    rest_of_the_line;
    /* guarded by the class's lock */
    struct slab *child, *next, *prev; /* in the heap of slabs with a free block           */
    usm_list     empty_link;          /* in the class's list of slabs without a live block */
    usm_list     link;                /* in the class's list of all                       */
    uint32_t     free;                /* bits that are set                                */
    uint32_t     hint;                /* no word before it has one                        */
    uint64_t     bits[];
} slab;

typedef struct slab_class {
    pthread_mutex_t lock;
    /* fixed */
    size_t   size;  /* of a block                                                    */
    size_t   bytes; /* of a slab                                                     */
    uint64_t reciprocal;
    uint32_t blocks, words, states; /* in a slab: blocks, words of bits, states            */
    uint16_t spread;                /* usm_span.spread                                    */
    uint32_t capacity;              /* of a magazine; 0: not cached                       */
    uint32_t depot_max;             /* magazines                                          */
    /* guarded by lock */
    slab         *partial; /* slabs with a free block, as a heap: the lowest address on top */
    usm_list      slabs, empties;
    usm_magazine *full, *empty;
    usm_list      made; /* every magazine, in threads' caches too                         */
    uint32_t      nfull, nslabs, nempty; /* nempty: slabs all of whose blocks are free      */
    /* written under lock (those of runs: atomically), read without */
    _Atomic(uint64_t) filled, drained; /* blocks handed to threads or the program, and back */
    _Atomic(uint64_t) depot_blocks, depot_hits, depot_misses, held;
} slab_class;

typedef struct slab_pool {
    const usm_host_api *api;
    usm_area_source     areas;
    uint16_t            slot;
    usm_kind            kind;
    size_t              cache_bytes; /* cap of a thread's cache                            */
    size_t              least_align;
    slab_heap           heap;
    slab_class          classes[USM_BINS];
    _Atomic(uint64_t)   used[2]; /* bit k: class k ever served a block                     */
    /* bytes: handed out, less what threads' magazines may hold: the least that is live; the highest
     * of that; what magazines have room for, now and at most since the peak was reset */
    _Atomic(int64_t)  low_bytes;
    _Atomic(uint64_t) peak_bytes;
    _Atomic(uint64_t) room_bytes, room_peak;
} slab_pool;

/* ---- class.c: slabs and the depot ----------------------------------------------------- */

void slab_class_init(slab_pool *p, unsigned k, size_t maximum_size);
/* Memory of slabs goes with the heap; this frees what describes it. No thread has a magazine. */
void slab_class_fini(slab_pool *p, unsigned k);

void slab_class_fork(slab_class *c, usm_fork_phase phase);

/* One block, straight from a slab or the heap. */
usm_status slab_take_block(slab_pool *p, unsigned k, usm_slot *block);
/* A magazine with blocks for `empty`, which has none. */
usm_status slab_fill_magazine(slab_pool *p, unsigned k, const usm_cache *owner,
                              usm_magazine **magazine);
/* Blocks that are FREE go back: whole to the depot when there is room, else one by one.  An empty
 * magazine comes for them; NULL: no host memory for one. */
usm_magazine *slab_swap_magazine(slab_pool *p, unsigned k, const usm_cache *owner,
                                 usm_magazine *magazine);
/* The same, and no magazine comes.  owner NULL: one by one, so that who takes them next takes
 * neighbours. */
void slab_drain_magazine(slab_pool *p, unsigned k, const usm_cache *owner, usm_magazine *magazine);
void slab_give_block(slab_pool *p, unsigned k, void *block);
/* An empty one; NULL: no host memory. */
usm_magazine *slab_get_magazine(slab_pool *p, unsigned k);
void          slab_put_magazine(slab_pool *p, unsigned k, usm_magazine *magazine);
/* The owner ends: its magazines in the depot go back into slabs. */
void slab_class_disown(slab_pool *p, unsigned k, const usm_cache *owner);
/* The depot goes back into slabs, slabs without a live block into the heap. */
void slab_class_trim(slab_pool *p, unsigned k);
/* Magazines that are in no cache and not in the depot go back to the host heap. */
void slab_class_free_magazines(slab_pool *p, unsigned k);

/* ---- cache.c: what is done to a thread's cache --------------------------------------------- */

usm_status slab_cache_fill(void *pool, usm_cache *cache, unsigned bin, usm_slot *block);
void       slab_cache_drain(void *pool, usm_cache *cache, unsigned bin, usm_slot block);
void       slab_cache_flush(void *pool, usm_cache *cache);

/* The least that is live changes by `bytes`; at this moment `more` than that is. */
void slab_live(slab_pool *p, int64_t bytes, int64_t more);
/* What a bin of a cache holds now and at most until it is noted again, in blocks, and how many it
 * got from the pool or gave to it (< 0) since it was noted last. */
typedef struct slab_swap {
    int64_t  moved;
    uint32_t now, most;
} slab_swap;
void slab_note_cached(slab_pool *p, usm_cache *cache, unsigned k, const slab_swap *s);
/* Threads' magazines have room for that many bytes more, or less. */
void slab_note_room(slab_pool *p, int64_t bytes);

#endif
