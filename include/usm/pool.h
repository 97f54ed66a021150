/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Pools: blocks out of areas that were taken from the driver once.
 *
 * Every (device, kind) of a context has a default pool, chosen by USM_POOL;
 * more can be made.  `slab`, the default, serves small blocks from the calling
 * thread's own magazines and large ones from a heap that coalesces, and never
 * touches the memory; `arena` bumps a pointer and gives everything back at a
 * reset; `jemalloc` lays jemalloc over host and shared memory; `direct` asks
 * the driver each time; `whole` does and keeps what is freed, for shared memory
 * that a driver moves by whole allocations, where it stands in for pools that
 * cut.  usm_free() works on blocks of any pool.
 *
 * Pools are thread-safe: any thread frees any block, whichever allocated it. */
#ifndef USM_POOL_H
#define USM_POOL_H

#include <usm/types.h>

USM_BEGIN_DECLS

typedef struct usm_pool_desc {
    size_t      struct_size;
    const char *name;      /**< "slab", "arena", "jemalloc", "direct"; NULL: what USM_POOL says */
    size_t      area_size; /**< bytes taken from the driver at a time; 0 = the pool's preference */
    size_t      maximum_size; /**< most bytes to hold; 0 = no limit                       */
    size_t      min_align;    /**< every block's alignment at least, up to 2 MiB; 0 = 64.
                                   Network buffers want 4096 or 2 MiB, pages of their own */
    size_t      retain;       /**< free bytes to keep however long they lie idle; 0 = the pool's
                                   preference, SIZE_MAX = all                                   */
    uint32_t    retain_ms;    /**< how long more than that is kept; 0 = the pool's preference   */
    bool        zero_init;    /**< blocks come zeroed; usm_async_malloc() queues the fill       */
    bool        read_only;    /**< a hint: kernels only read the memory                         */
    uint32_t    export_mode;  /**< usm_pool_export: whether usm_ipc_get() takes its blocks       */
    size_t      threshold;    /**< at usm_queue_wait() and usm_context_wait() what is held beyond it
                                   goes back to the driver, as far as it is free; 0: `retain` alone
                                   decides                                                      */
} usm_pool_desc;
#define USM_POOL_DESC_INIT                                                                         \
    {                                                                                              \
        sizeof(usm_pool_desc), NULL, 0, 0, 0, 0, 0, false, false, 0, 0                             \
    }

/** Whether other processes may open a pool's memory (usm/ipc.h).  Such a pool is inert in a forked
 * child, and a handle of one of its blocks opens the whole area that the block lies in. */
typedef enum usm_pool_export {
    USM_POOL_PRIVATE   = 0, /**< no                                                   */
    USM_POOL_EXPORT_RW = 1, /**< others may read and write                            */
    USM_POOL_EXPORT_RO = 2  /**< others may read; on the host the kernel sees to it     */
} usm_pool_export;

/** Bytes unless named otherwise.  Pools with thread caches count where magazines are swapped, not
 * where blocks are served, so: `live` and `blocks` are exact when no other thread uses the pool; a
 * peak is never too high and at most live_peak_error too low; `allocations` are blocks handed out,
 * to a thread's magazine or to the program, and a block that a thread frees and allocates again is
 * not counted again (USM_TRACE sees each). */
typedef struct usm_pool_stats {
    size_t   struct_size;
    uint64_t live; /**< in the program's hands                           */
    uint64_t live_peak;
    uint64_t live_peak_error; /**< what threads' magazines can hold: 0 = exact      */
    uint64_t reserved;        /**< taken from the driver                            */
    uint64_t reserved_peak;
    uint64_t blocks;        /**< live blocks                                      */
    uint64_t allocations;   /**< blocks handed out so far                         */
    uint64_t frees;         /**< blocks that came back                            */
    uint64_t driver_allocs; /**< calls that reached the driver, maps included     */
    uint64_t driver_frees;
    uint64_t largest_free;  /**< largest block that needs no driver call          */
    uint64_t thread_cached; /**< free, in threads' magazines                      */
    uint64_t depot_cached;  /**< free, in magazines between threads               */
    uint64_t threads;       /**< threads that have a cache of this pool           */
    uint64_t depot_hits;    /**< magazines another thread had filled              */
    uint64_t depot_misses;  /**< magazines filled from slabs or the heap          */
} usm_pool_stats;
#define USM_POOL_STATS_INIT                                                                        \
    {                                                                                              \
        sizeof(usm_pool_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                     \
    }

/** A point in an arena's life, to be returned to.  Opaque; copy it freely. */
typedef struct usm_pool_mark {
    uint64_t opaque[4];
} usm_pool_mark;

typedef enum usm_text_format {
    USM_TEXT = 0, /**< a table for people          */
    USM_JSON = 1  /**< one JSON object, one line   */
} usm_text_format;

/** Caller owns *pool.  `dev` NULL: the context's first.
 *   USM_E_NO_BACKEND     no pool of that name
 *   USM_E_NOT_SUPPORTED  the device lacks the kind */
USM_API USM_NODISCARD usm_status usm_pool_create(usm_context *ctx, usm_device *dev, usm_kind kind,
                                                 const usm_pool_desc *desc, usm_pool **pool);
/** NULL is fine.  Blocks still out are the caller's bug: they are given back
 * and, with USM_VALIDATION=1, listed.  No other thread may be using the pool. */
USM_API void usm_pool_destroy(usm_pool *pool);

/** The context's own pool for a device and kind; borrowed. NULL and a story. */
USM_API usm_pool *usm_pool_default(usm_context *ctx, usm_device *dev, usm_kind kind);

USM_API USM_ALLOC_SIZE(2) void *usm_pool_malloc(usm_pool *pool, size_t size);
USM_API USM_ALLOC_SIZE(3) void *usm_pool_aligned_alloc(usm_pool *pool, size_t align, size_t size);
/** As usm_free(), for blocks of this pool. */
USM_API void usm_pool_free(usm_pool *pool, void *p);
/** n blocks of one size; returns how many there are in `out`, fewer than n when memory ran out. */
USM_API size_t usm_pool_malloc_batch(usm_pool *pool, size_t size, size_t n, void **out);
/** n blocks of this pool, of any sizes; NULL among them is fine. */
USM_API void usm_pool_free_batch(usm_pool *pool, size_t n, void *const *p);
/** The size must be the one asked for: `slab` then checks it. */
USM_API void usm_pool_free_sized(usm_pool *pool, void *p, size_t size);

/** Gives memory that is not in use back to the driver until at most `keep`
 * bytes are held, as far as that goes. */
USM_API usm_status               usm_pool_trim_to(usm_pool *pool, size_t keep);
USM_API USM_NODISCARD usm_status usm_pool_get_stats(usm_pool *pool, usm_pool_stats *stats);
USM_API USM_NODISCARD usm_status usm_pool_reset_peaks(usm_pool *pool);

/** What can be asked about a pool and set, one number each; after cudaMemPool's attributes and the
 * properties of SYCL's memory_pool.  Sizes are bytes, switches 0 or 1; (r) is read only, (0) can be
 * set to 0 alone: a peak starts from what there is, a count anew. */
typedef enum usm_pool_attribute {
    USM_POOL_THRESHOLD           = 1,  /**< usm_pool_desc.threshold                            */
    USM_POOL_MAXIMUM_SIZE        = 2,  /**< (r)                                                */
    USM_POOL_ZERO_INIT           = 3,  /**< (r)                                                */
    USM_POOL_READ_ONLY           = 4,  /**< (r)                                                */
    USM_POOL_EXPORT_MODE         = 5,  /**< (r) usm_pool_export                                */
    USM_POOL_RESERVED_CURRENT    = 6,  /**< (r) taken from the driver                          */
    USM_POOL_RESERVED_HIGH       = 7,  /**< (0)                                                */
    USM_POOL_USED_CURRENT        = 8,  /**< (r) in the program's hands; what a queue has yet to
                                            free is not                                        */
    USM_POOL_USED_HIGH           = 9,  /**< (0) see usm_pool_stats.live_peak                   */
    USM_POOL_REUSE_FOLLOW_EVENTS = 10, /**< usm/async.h; on                                    */
    USM_POOL_REUSE_OPPORTUNISTIC = 11, /**< on                                                 */
    USM_POOL_REUSE_INSERT_WAITS  = 12, /**< on                                                 */
    USM_POOL_QUEUED_CURRENT      = 13, /**< (r) freed in queues that have not been seen to get
                                            there: bytes that only those queues get at once     */
    USM_POOL_QUEUED_REUSES       = 14, /**< (0) blocks that came from the list of a queue        */
    USM_POOL_QUEUED_EVENTS       = 15, /**< (0) events recorded for frees, one for many           */
    USM_POOL_QUEUED_WAITS        = 16, /**< (0) waits put into queues for blocks of others        */
    USM_POOL_HOST_WAITS          = 17  /**< (0) times the host waited for a queue to get memory   */
} usm_pool_attribute;

/** One attribute.
 *   USM_E_INVALID  no such attribute; for _set: it is read only, or the value is none of its own */
USM_API USM_NODISCARD usm_status usm_pool_get_attribute(usm_pool *pool, usm_pool_attribute which,
                                                        uint64_t *value);
USM_API USM_NODISCARD usm_status usm_pool_set_attribute(usm_pool *pool, usm_pool_attribute which,
                                                        uint64_t value);
USM_API usm_context             *usm_pool_get_context(usm_pool *pool);
USM_API usm_device              *usm_pool_get_device(usm_pool *pool);
USM_API usm_kind                 usm_pool_get_kind(usm_pool *pool);

/** The statistics as text: totals, size classes, reuse.  Writes at most `cap` bytes, 0-terminated;
 * *size (may be NULL) is what all of it needs without the 0.  `pool` NULL: every pool of every
 * context, with the tags (usm/tag.h). */
USM_API usm_status usm_pool_describe(usm_pool *pool, usm_text_format format, char *text, size_t cap,
                                     size_t *size);

/** `arena` only: every block of the pool is gone, its areas stay for reuse.
 *   USM_E_NOT_SUPPORTED  the pool has no reset */
USM_API USM_NODISCARD usm_status usm_pool_reset(usm_pool *pool);

/** `arena` only: remembers what is allocated now; usm_pool_reset_to() drops every block allocated
 * since.  Marks nest: going back to one drops those set after it.
 *   USM_E_NOT_SUPPORTED  the pool has no marks
 *   USM_E_INVALID        the mark was dropped, or is of another pool */
USM_API USM_NODISCARD usm_status usm_pool_set_mark(usm_pool *pool, usm_pool_mark *mark);
USM_API USM_NODISCARD usm_status usm_pool_reset_to(usm_pool *pool, const usm_pool_mark *mark);

USM_END_DECLS
#endif
