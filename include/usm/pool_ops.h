/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * What a pool is: a table of functions that cut areas into blocks.
 * EXPERIMENTAL.
 *
 * A pool never touches the memory it serves (it may be a device's) and never
 * calls a driver: it takes areas from its source, which fixes alignment, enters
 * them in the address map and keeps the accounts and limits.
 *
 * usm_free(p) finds p's area in the address map and hands both to `free`; a
 * pool leaves what it needs to find the block in area->pool_data (a per-page
 * table, a block index).  All functions are thread-safe; none may call the
 * source with a lock held that a free needs.
 *
 * A pool that describes its blocks by spans (below) may also have thread caches
 * (USM_POOL_CAP_CACHE): the core then serves blocks from, and takes them back
 * into, the calling thread's magazines without calling the pool at all. */
#ifndef USM_POOL_OPS_H
#define USM_POOL_OPS_H

#include <usm/module.h>
#include <usm/pool.h>
#include <usm/types.h>

#ifdef __cplusplus
#include <atomic>
#define USM_ATOMIC(type) std::atomic<type>
#else
#include <stdatomic.h>
#define USM_ATOMIC(type) _Atomic(type)
#endif

USM_BEGIN_DECLS

typedef enum usm_pool_cap {
    USM_POOL_CAP_SIZED = 1u << 0, /* free_sized                                         */
    USM_POOL_CAP_BATCH = 1u << 1, /* malloc_batch, free_batch                           */
    USM_POOL_CAP_RESET = 1u << 2, /* reset                                              */
    USM_POOL_CAP_MARK  = 1u << 3, /* mark, reset_to                                     */
    USM_POOL_CAP_CACHE = 1u << 4, /* cache_*: thread caches over spans                  */
    USM_POOL_CAP_CLASS = 1u << 5, /* get_classes                                        */
    USM_POOL_CAP_WHOLE = 1u << 6  /* no functions: every block is an area of its own     */
} usm_pool_cap;

/* ---- spans and thread caches ------------------------------------------------- */

/** A run of pages cut into blocks of one size, as the page map knows it; embedded in what the
 * pool keeps of it.  Fixed while any page leads to it, except for the states.  Type-stable:
 * memory that held a span is never unmapped and holds only spans, because a free that lost a
 * race may still read it.
 *
 *     i = (p - base) * reciprocal >> USM_SPAN_SHIFT        block i starts at base + i * size
 *
 * A span of one block has reciprocal 0.  There is a state for every i that an address of the span's
 * pages can give, the tail that is no block included. */
typedef struct usm_span {
    uintptr_t base;
    USM_ATOMIC(uint8_t) * states; /**< usm_block_state of each block                       */
    uint64_t reciprocal;
    size_t   size;   /**< bytes of a block                                    */
    void    *source; /**< the pool's usm_area_source.source                   */
    uint16_t slot;   /**< usm_pool_params.slot; 0: its frees are not cached   */
    uint16_t bin;    /**< size class; < USM_BINS when slot is not 0           */
    uint16_t kind;   /**< usm_kind                                            */
    uint16_t spread; /**< log2 of the bytes between two states: blocks of different threads should
                          not share a cache line of them                      */
} usm_span;

#define USM_SPAN_SHIFT 40

static inline USM_ATOMIC(uint8_t) * usm_span_state(const usm_span *span, uintptr_t i)
{
    return &span->states[i << span->spread];
}

typedef enum usm_block_state {
    USM_BLOCK_FREE    = 0, /* in the pool or in a magazine; also: no block                   */
    USM_BLOCK_LIVE    = 1, /* in the program's hands                                         */
    USM_BLOCK_WATCHED = 2  /* the same, and its free must be seen: caches refuse it          */
} usm_block_state;

/** A free block as magazines keep it. */
typedef struct usm_slot {
    void *p;
    USM_ATOMIC(uint8_t) * state;
} usm_slot;

/** A stack of free blocks.  The pool makes them, and may free those that are in no cache: nobody
 * but a cache's user follows its pointers (who counts blocks compares them, see usm_cache.rest). */
typedef struct usm_magazine {
    struct usm_magazine *next;  /**< the pool's                                         */
    USM_ATOMIC(uint32_t) count; /**< while it is not loaded                             */
    const void *owner;          /**< the pool's: the cache that filled it               */
    uint32_t    capacity;       /**< slots, which lie behind it                         */
} usm_magazine;

static inline usm_slot *usm_magazine_slots(usm_magazine *m)
{
    return (usm_slot *)(void *)(m + 1);
}

/** One size class of one thread's cache.  [bottom, top) of the loaded magazine are blocks, [top,
 * limit) is room; all NULL: no magazine.  Written by the owner, read by any thread. */
typedef struct usm_bin {
    USM_ATOMIC(usm_slot *) top, bottom, limit;
    USM_ATOMIC(usm_magazine *) spare; /**< a second one, full, empty or NULL                   */
} usm_bin;

/** Largest alignment that blocks of size classes have, when their size is a multiple of it. */
#define USM_CACHED_ALIGN ((size_t)4096)
/** Classes that can be cached: blocks up to 1 MiB (base/inline/classes.h). */
#define USM_BINS 96

/** One thread's blocks of one pool.  The owner uses it without a lock; the pool's cache_*
 * functions are called by the owner, or by another thread while the owner cannot use it. */
typedef struct usm_cache {
    usm_bin bins[USM_BINS];
    USM_ATOMIC(uint64_t) active[2]; /**< bit k: bins[k] has a magazine                    */
    USM_ATOMIC(uint32_t)
    rest[USM_BINS]; /**< blocks in the spare, which other threads may not
                         look into                                        */
    /* The pool's. */
    usm_slot *seen[USM_BINS]; /**< top when the hand passed: unchanged means idle           */
    uint32_t  held[USM_BINS]; /**< blocks when it was last looked at                        */
    uint64_t  bytes;          /**< what its magazines can hold                              */
    uint32_t  hand;           /**< the bin that gives way next                              */
    uint32_t  refused;        /**< magazines that there was no room for                     */
} usm_cache;

/** Bytes unless named otherwise.  A class that holds nothing and never did is left out. */
typedef struct usm_pool_class {
    size_t   size; /**< of a block; for the class of large blocks: 0          */
    uint64_t live; /**< blocks in the program's hands                         */
    uint64_t live_bytes;
    uint64_t cached;       /**< free blocks in threads' magazines and the depot       */
    uint64_t held;         /**< bytes of its slabs                                    */
    uint64_t allocations;  /**< see usm_pool_stats                                    */
    uint64_t depot_hits;   /**< magazines that another thread had filled              */
    uint64_t depot_misses; /**< magazines filled from slabs or the heap               */
} usm_pool_class;

/** A contiguous range taken from the driver.  base and size are fixed;
 * pool_data is the pool's, NULL at first. */
typedef struct usm_area {
    void  *base;
    size_t size;
    void  *pool_data;
} usm_area;

/** Where areas come from.  `source` goes back as the first argument. */
typedef struct usm_area_source {
    void  *source;
    size_t granularity; /**< of map and unmap; 0: reserve, map, unmap are not offered      */
    /** size > 0; align a power of two or 0.  USM_E_NO_MEMORY, USM_E_BUDGET: the
     * pool may give back what it does not use and ask again. */
    usm_status (*take)(void *source, size_t size, size_t align, usm_area **area);
    void (*give)(void *source, usm_area *area);

    /** Addresses without memory, aligned to 2 MiB; size a multiple of granularity.  Costs no
     * memory and counts for nothing.  give() takes it back, with what is mapped in it. */
    usm_status (*reserve)(void *source, size_t size, usm_area **area);
    /** Puts memory behind [offset, offset + size) of a reserved area, where none is; multiples
     * of granularity.  Fails as take() does. */
    usm_status (*map)(void *source, usm_area *area, size_t offset, size_t size);
    /** offset and size as map() got them. */
    void (*unmap)(void *source, usm_area *area, size_t offset, size_t size);

    /** n pages of 4 KiB from the address `at` on lead to `span` (NULL: to nothing).  They must lie
     * in an area of this source.  Lock-free once the tables exist; USM_E_NO_MEMORY only for a span.
     */
    usm_status (*pages_set)(void *source, uintptr_t at, size_t n, usm_span *span);
    /** What the page of p leads to; any address. */
    usm_span *(*pages_get)(void *source, const void *p);
} usm_area_source;

typedef struct usm_pool_params {
    size_t              struct_size;
    const usm_host_api *api;
    usm_area_source     areas;
    usm_kind            kind;
    bool                host_accessible; /**< the host may read and write blocks         */
    size_t              default_align;   /**< for alignment 0; blocks of a page or more
                                              may be aligned more                        */
    size_t              area_size;       /**< bytes; 0 = the pool's preference           */
    size_t              maximum_size;    /**< the source enforces it; for information    */
    size_t              memory_size;     /**< of the device or host; 0 = not known       */
    size_t              retain;          /**< free bytes to keep however idle; SIZE_MAX: all */
    uint32_t            retain_ms;       /**< how long more than that is kept, once idle */
    uint16_t            slot;            /**< of its thread caches; 0: none              */
    const char         *options;         /**< "name=value,..." from USM_POOL: those that the
                                              core does not know; or NULL                */
} usm_pool_params;

typedef struct usm_block {
    void  *base;
    size_t size; /**< usable bytes                                                       */
} usm_block;

typedef enum usm_fork_phase {
    USM_FORK_PREPARE = 0, /* in the parent, before: take your locks                      */
    USM_FORK_PARENT  = 1, /* in the parent, after: release them                          */
    USM_FORK_CHILD   = 2  /* in the child: release them; threads are gone                */
} usm_fork_phase;

typedef struct usm_pool_ops {
    uint32_t    abi; /**< USM_MODULE_ABI                                                  */
    uint32_t    struct_size;
    const char *name;
    uint32_t    caps; /**< usm_pool_cap                                                   */

    usm_status (*create)(const usm_pool_params *params, void **pool);
    /** Gives every area back, blocks still out included. */
    void (*destroy)(void *pool);
    /** size > 0 (the core turns 0 into 1); align 0 or a power of two. */
    usm_status (*malloc)(void *pool, size_t size, size_t align, void **p);
    /** USM_E_DOUBLE_FREE, USM_E_INTERIOR_POINTER, USM_E_INVALID_POINTER: refused,
     * nothing changed.  `area` is the one p lies in. */
    usm_status (*free)(void *pool, usm_area *area, void *p);
    /** The live block that p points into.  USM_E_INVALID_POINTER when it is free. */
    usm_status (*block)(void *pool, usm_area *area, const void *p, usm_block *block);
    usm_status (*trim_to)(void *pool, size_t keep);
    /** Fills everything but reserved*, driver_*, thread*.  On entry stats->thread_cached (bytes)
     * and
     * ->blocks say what lies in threads' caches, which the pool counts as handed out: taken off
     * live and blocks. */
    void (*get_stats)(void *pool, usm_pool_stats *stats);
    void (*reset_peaks)(void *pool);
    void (*fork)(void *pool, usm_fork_phase phase);

    /* USM_POOL_CAP_SIZED: as free, when the size asked is known. */
    usm_status (*free_sized)(void *pool, usm_area *area, void *p, size_t size);
    /* USM_POOL_CAP_BATCH: *got of n blocks of one size; all of free_batch's. */
    usm_status (*malloc_batch)(void *pool, size_t size, size_t align, size_t n, void **out,
                               size_t *got);
    usm_status (*free_batch)(void *pool, size_t n, usm_area *const *areas, void *const *p);
    /* USM_POOL_CAP_RESET: all blocks are gone, areas stay. */
    usm_status (*reset)(void *pool);
    /* USM_POOL_CAP_MARK: *mark names the present; reset_to drops all blocks younger than it.
     * USM_E_INVALID: the mark was dropped itself, or a reset came after it. */
    usm_status (*mark)(void *pool, usm_pool_mark *mark);
    usm_status (*reset_to)(void *pool, const usm_pool_mark *mark);
    /* USM_POOL_CAP_CLASS: as many as fit in cap; *count is how many there are.  Blocks in threads'
     * magazines count as live here: the core knows those and moves them to `cached`. */
    void (*get_classes)(void *pool, usm_pool_class *list, size_t cap, size_t *count);

    /* USM_POOL_CAP_CACHE: params->slot was not 0.  No lock of the core is held. ----------- */
    /** cache->bins[bin] is empty: one block of that class, FREE, and as many more in the bin as
     * the pool sees fit.  Fails as malloc does. */
    usm_status (*cache_fill)(void *pool, usm_cache *cache, unsigned bin, usm_slot *block);
    /** cache->bins[bin] is full: takes the block and makes room. */
    void (*cache_drain)(void *pool, usm_cache *cache, unsigned bin, usm_slot block);
    /** Everything in it goes back to the pool; it may be used again, or its memory may go. */
    void (*cache_flush)(void *pool, usm_cache *cache);
} usm_pool_ops;

/** The only export of a pool module, `usm_pool_entry`. */
typedef const usm_pool_ops *usm_pool_entry_fn(const usm_host_api *api);

USM_END_DECLS
#endif
