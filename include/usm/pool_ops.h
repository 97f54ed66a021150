/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The interface of pool modules: a table of functions that cut areas into
 * blocks.  EXPERIMENTAL.
 *
 * A pool never touches the memory that it manages (which may be a device's) and
 * never calls a driver: it takes areas from its area source.  The source
 * guarantees the alignment, enters the areas in the address map, and does the
 * memory accounting and limits.
 *
 * usm_free(p) looks p's area up in the address map and passes both to `free`.
 * A pool stores whatever it needs to find the block in area->pool_data (a table
 * of pages, a block index).  All functions are thread-safe.  A function must
 * not call the source while it holds a lock that `free` needs.
 *
 * A pool that describes its blocks by spans (below) may also have thread caches
 * (USM_POOL_CAP_CACHE).  The core then allocates blocks from the calling
 * thread's magazines, and frees them into these, without calling the pool. */
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
    USM_POOL_CAP_SIZED = 1u << 0, /* free_sized                                      */
    USM_POOL_CAP_BATCH = 1u << 1, /* malloc_batch, free_batch                        */
    USM_POOL_CAP_RESET = 1u << 2, /* reset                                           */
    USM_POOL_CAP_MARK  = 1u << 3, /* mark, reset_to                                  */
    USM_POOL_CAP_CACHE = 1u << 4, /* cache_*: thread caches, over spans              */
    USM_POOL_CAP_CLASS = 1u << 5, /* get_classes                                     */
    USM_POOL_CAP_WHOLE = 1u << 6  /* no functions: every block is an area of its own */
} usm_pool_cap;

/* ---- spans and thread caches ------------------------------------------------- */

/** A run of pages that is cut into blocks of one size, as the page map refers to
 * it; embedded in the pool's own descriptor of the run.  While the page map
 * refers to it nothing but the block states changes.  Type-stable: memory that
 * held a span is never unmapped and only ever holds spans, because a free that
 * lost a race may still read it.
 *
 *   i = (p - base) * reciprocal >> USM_SPAN_SHIFT    block i is at base + i * size
 *
 * A span of one block has reciprocal 0.  There is a state for every i that the
 * formula gives for an address in the span's pages, including the tail behind
 * the last block. */
typedef struct usm_span {
    uintptr_t base;
    USM_ATOMIC(uint8_t) * states; /**< the usm_block_state of each block */
    uint64_t reciprocal;
    size_t   size;   /**< bytes of a block                                               */
    void    *source; /**< the pool's usm_area_source.source                              */
    uint16_t slot;   /**< usm_pool_params.slot; 0: frees of its blocks bypass the caches */
    uint16_t bin;    /**< size class; < USM_BINS when slot is not 0                      */
    uint16_t kind;   /**< usm_kind                                                       */
    uint16_t spread; /**< log2 of the distance of two states in bytes, so that blocks of
                          different threads do not share a cache line of states */
} usm_span;

#define USM_SPAN_SHIFT 40

static inline USM_ATOMIC(uint8_t) * usm_span_state(const usm_span *span, uintptr_t i)
{
    return &span->states[i << span->spread];
}

typedef enum usm_block_state {
    USM_BLOCK_FREE    = 0, /* in the pool or in a magazine; or not a block at all               */
    USM_BLOCK_LIVE    = 1, /* in use by the program                                             */
    USM_BLOCK_WATCHED = 2  /* live and tracked: the core must see the free, so caches reject it */
} usm_block_state;

/** A free block in a magazine. */
typedef struct usm_slot {
    void *p;
    USM_ATOMIC(uint8_t) * state;
} usm_slot;

/** A stack of free blocks.  The pool creates magazines and keeps them until it
 * is destroyed, because a thread that counts another thread's blocks may read a
 * magazine that is just being exchanged. */
typedef struct usm_magazine {
    struct usm_magazine *next;  /**< used by the pool                                   */
    USM_ATOMIC(uint32_t) count; /**< blocks; valid while no cache has it loaded         */
    const void *owner;          /**< used by the pool: the cache that filled it         */
    uint32_t    capacity;       /**< number of magazine entries, which follow in memory */
} usm_magazine;

static inline usm_slot *usm_magazine_slots(usm_magazine *m)
{
    return (usm_slot *)(void *)(m + 1);
}

/** One size class of one thread's cache.  Of the loaded magazine, [bottom, top)
 * holds blocks and [top, limit) is free; all three are NULL when no magazine is
 * loaded.  The owner writes, any thread reads. */
typedef struct usm_bin {
    USM_ATOMIC(usm_slot *) top, bottom, limit;
    USM_ATOMIC(usm_magazine *) spare; /**< a second magazine: full, empty or NULL */
} usm_bin;

/** The largest alignment that a block of a size class has, provided that its
 * size is a multiple of it. */
#define USM_CACHED_ALIGN ((size_t)4096)
/** The number of size classes that can be cached: blocks up to 1 MiB
 * (base/inline/classes.h). */
#define USM_BINS 96

/** One thread's cached blocks of one pool.  The owner uses it without a lock.
 * The pool's cache_* functions are called by the owner, or by another thread
 * while the owner cannot use the cache. */
typedef struct usm_cache {
    usm_bin bins[USM_BINS];
    USM_ATOMIC(uint64_t) active[2]; /**< bit k: bins[k] has a magazine */
    USM_ATOMIC(uint32_t)
    rest[USM_BINS]; /**< Used by the pool. */
    /* `top` at the last visit of the clock hand: unchanged means idle */
    usm_slot *seen[USM_BINS]; /**< blocks at the last visit                          */
    uint32_t  held[USM_BINS]; /**< bytes that its magazines can hold                 */
    uint64_t  bytes;          /**< clock hand: the next bin to evict a magazine from */
    uint32_t  hand;           /**< magazines that were refused for lack of room      */
    uint32_t  refused;        /**< Statistics of one size class.  Sizes are bytes.  A class that
                                   never held memory is left out. */
} usm_cache;

/** size of a block; 0 for the class of large blocks */
typedef struct usm_pool_class {
    size_t   size; /**< blocks in use by the program                    */
    uint64_t live; /**< free blocks in threads' magazines and the depot */
    uint64_t live_bytes;
    uint64_t cached;       /**< bytes of the class's slabs                         */
    uint64_t held;         /**< bytes of its slabs                                 */
    uint64_t allocations;  /**< magazines from the depot, filled by another thread */
    uint64_t depot_hits;   /**< magazines that were filled from slabs or the heap  */
    uint64_t depot_misses; /**< A contiguous range taken from the driver.  base and size never
                                change.  pool_data is for the pool, initially NULL. */
} usm_pool_class;

/** The source of a pool's areas.  Each function gets `source` as its first
 * argument. */
typedef struct usm_area {
    void  *base;
    size_t size;
    void  *pool_data;
} usm_area;

/** unit of map and unmap; 0: reserve, map, unmap do not exist */
typedef struct usm_area_source {
    void  *source;
    size_t granularity; /**< Allocates an area; size > 0; align is a power of two, or 0.  After
                             USM_E_NO_MEMORY or USM_E_BUDGET the pool may release unused areas
                             and call again.  `give` releases an area. */
    /** Reserves an address range without memory, aligned to 2 MiB; size is a
     * multiple of granularity.  It uses no memory and counts towards no limit.
     * give() releases the range together with everything that is mapped in it. */
    usm_status (*take)(void *source, size_t size, size_t align, usm_area **area);
    void (*give)(void *source, usm_area *area);

    /** Maps memory to [offset, offset + size) of a reserved area, where nothing
     * is mapped yet; both are multiples of granularity.  Fails as take() does. */
    usm_status (*reserve)(void *source, size_t size, usm_area **area);
    /** offset and size are those of a call of map(). */
    usm_status (*map)(void *source, usm_area *area, size_t offset, size_t size);
    /** Makes the page map refer to `span` for n pages of 4 KiB from address `at`
     * on; `span` NULL removes the entries.  The pages must be in an area of
     * this source.  Lock-free once the tables exist.
     *   USM_E_NO_MEMORY  only when span is not NULL */
    void (*unmap)(void *source, usm_area *area, size_t offset, size_t size);

    /** Returns the span of the page that p is in, or NULL; p may be any address. */
    usm_status (*pages_set)(void *source, uintptr_t at, size_t n, usm_span *span);
    /** What the page of p leads to; any address. */
    usm_span *(*pages_get)(void *source, const void *p);
} usm_area_source;

typedef struct usm_pool_params {
    size_t              struct_size;
    const usm_host_api *api;
    usm_area_source     areas;
    usm_kind            kind;
    bool                host_accessible; /**< used for alignment 0; blocks of a page or more may
                                              be aligned more strictly */
    size_t              default_align;   /**< bytes; 0: the pool's default                       */
    size_t              area_size;       /**< bytes; for information: the source enforces it     */
    size_t              maximum_size;    /**< bytes of the device's or host's memory; 0: unknown */
    size_t              memory_size;     /**< free bytes to keep however long they are idle;
                                              SIZE_MAX: all */
    size_t              retain;          /**< how long to keep idle bytes beyond `retain` */
    uint32_t            retain_ms;       /**< slot of its thread caches; 0: it has none   */
    uint16_t            slot;            /**< "name=value,..." from USM_POOL that the core does
                                              not know; or NULL */
    const char         *options;         /**< "name=value,..." from USM_POOL: those that the core
                                              does not know; or NULL */
} usm_pool_params;

typedef struct usm_block {
    void  *base;
    size_t size; /**< in the parent, before the fork: take your locks */
} usm_block;

typedef enum usm_fork_phase {
    USM_FORK_PREPARE = 0, /* in the parent, after the fork: release them             */
    USM_FORK_PARENT  = 1, /* in the child: release them; no other thread exists here */
    USM_FORK_CHILD   = 2  /* in the child: release them; threads are gone            */
} usm_fork_phase;

typedef struct usm_pool_ops {
    uint32_t    abi; /**< USM_MODULE_ABI */
    uint32_t    struct_size;
    const char *name;
    uint32_t    caps; /**< Releases every area, even those with live blocks. */

    usm_status (*create)(const usm_pool_params *params, void **pool);
    /** size > 0 (the core turns 0 into 1); align is 0 or a power of two. */
    void (*destroy)(void *pool);
    /** `area` is the area that p is in.  After one of these statuses nothing has
     * changed:
     *   USM_E_DOUBLE_FREE, USM_E_INTERIOR_POINTER, USM_E_INVALID_POINTER */
    usm_status (*malloc)(void *pool, size_t size, size_t align, void **p);
    /** Returns the live block that p points into.
     *   USM_E_INVALID_POINTER  the block is free */
    usm_status (*free)(void *pool, usm_area *area, void *p);
    /** Fills everything except reserved*, driver_* and thread*.  On entry
     * stats->thread_cached (bytes) and stats->blocks say how much is in
     * threads' caches, which the pool counts as handed out: the pool subtracts
     * them from `live` and `blocks`. */
    usm_status (*block)(void *pool, usm_area *area, const void *p, usm_block *block);
    usm_status (*trim_to)(void *pool, size_t keep);
    /** USM_POOL_CAP_SIZED: as `free`, when the caller knows the size it
     * requested. */
    void (*get_stats)(void *pool, usm_pool_stats *stats);
    void (*reset_peaks)(void *pool);
    void (*fork)(void *pool, usm_fork_phase phase);

    /* USM_POOL_CAP_BATCH: malloc_batch allocates up to n blocks of one size;
     * *got is how many.  free_batch frees all n. */
    usm_status (*free_sized)(void *pool, usm_area *area, void *p, size_t size);
    /* USM_POOL_CAP_RESET: frees all blocks and keeps the areas. */
    usm_status (*malloc_batch)(void *pool, size_t size, size_t align, size_t n, void **out,
                               size_t *got);
    usm_status (*free_batch)(void *pool, size_t n, usm_area *const *areas, void *const *p);
    /* USM_POOL_CAP_MARK: `mark` records the current point; reset_to frees all
     * blocks allocated after it.
     *   USM_E_INVALID  a reset, or a reset_to an earlier mark, came after the mark */
    usm_status (*reset)(void *pool);
    /* USM_POOL_CAP_CLASS: fills at most `cap` entries; *count is how many
     * classes there are.  Blocks in threads' magazines count as live here: the
     * core knows their number and moves them to `cached`. */
    usm_status (*mark)(void *pool, usm_pool_mark *mark);
    usm_status (*reset_to)(void *pool, const usm_pool_mark *mark);
    /* USM_POOL_CAP_CACHE: params->slot is not 0.  The core calls these
     * functions without a lock held. */
    void (*get_classes)(void *pool, usm_pool_class *list, size_t cap, size_t *count);

    /* cache->bins[bin] is empty.  Returns one block of that class in state
     * FREE, and puts as many more into the bin as the pool chooses.  Fails as
     * `malloc` does. */
    /** cache->bins[bin] is full.  Takes `block` and makes room in the bin. */
    usm_status (*cache_fill)(void *pool, usm_cache *cache, unsigned bin, usm_slot *block);
    /** Returns all blocks of the cache to the pool.  Afterwards the cache may be
     * used again, or its memory may be released. */
    void (*cache_drain)(void *pool, usm_cache *cache, unsigned bin, usm_slot block);
    /** The only symbol that a pool module exports: `usm_pool_entry`. */
    void (*cache_flush)(void *pool, usm_cache *cache);
} usm_pool_ops;

/** The only export of a pool module, `usm_pool_entry`. */
typedef const usm_pool_ops *usm_pool_entry_fn(const usm_host_api *api);

USM_END_DECLS
#endif
