/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Pools: allocators of blocks from areas that they take from the driver.
 *
 * Every (device, kind) of a context has a default pool, which USM_POOL selects;
 * usm_pool_create() creates more.
 *
 *   slab      the default: serves small blocks from magazines of the calling
 *             thread and large ones from a heap that coalesces; never touches
 *             the memory it manages
 *   arena     a bump allocator; usm_pool_reset() frees all blocks at once
 *   jemalloc  jemalloc over host and shared memory
 *   direct    calls the driver for each block
 *   whole     as `direct`, but keeps freed blocks for reuse: for shared memory
 *             that a driver migrates by whole allocations.  There it replaces
 *             the pools that cut areas into blocks
 *
 * usm_free() frees blocks of any pool.  Pools are thread-safe: any thread may
 * free any block, no matter which thread allocated it. */
#ifndef USM_POOL_H
#define USM_POOL_H

#include <usm/types.h>

USM_BEGIN_DECLS

typedef struct usm_pool_desc {
    size_t      struct_size;
    const char *name;         /**< "slab", "arena", "jemalloc", "direct"; NULL: the pool that
                                   USM_POOL selects */
    size_t      area_size;    /**< bytes to take from the driver at a time; 0: the pool's default */
    size_t      maximum_size; /**< most bytes to hold; 0: no limit                                */
    size_t      min_align;    /**< least alignment of every block, up to 2 MiB; 0: 64. Use 4096
                                   or 2 MiB for network buffers, which want pages of their own */
    size_t      retain;       /**< free bytes to keep however long they are idle; 0: the pool's
                                   default, SIZE_MAX: all */
    uint32_t    retain_ms;    /**< how long to keep free bytes beyond `retain`; 0: the pool's
                                   default */
    bool        zero_init;    /**< blocks are zeroed; usm_async_malloc() queues the fill */
    bool        read_only;    /**< a hint: kernels only read the memory                  */
    uint32_t    export_mode;  /**< usm_pool_export: whether usm_ipc_get() accepts the pool's
                                   blocks */
    size_t      threshold;    /**< usm_queue_wait() and usm_context_wait() return free memory
                                   beyond this to the driver; 0: only `retain` decides */
    size_t      thread_cache; /**< free bytes that the caches of all threads together may hold;
                                   0: 1 % of the memory, at least 32 MiB, but little of a small
                                   `maximum_size`; 1: no caches. An allocation takes them back
                                   before it fails, as does usm_pool_trim_to() */
} usm_pool_desc;
#define USM_POOL_DESC_INIT                                                                         \
    {                                                                                              \
        sizeof(usm_pool_desc), NULL, 0, 0, 0, 0, 0, false, false, 0, 0, 0                          \
    }

/** Whether other processes may open memory of the pool (usm/ipc.h).  A pool that
 * exports is inert in a forked child.  A handle of one of its blocks opens the
 * whole area that the block lies in. */
typedef enum usm_pool_export {
    USM_POOL_PRIVATE   = 0, /**< no                                 */
    USM_POOL_EXPORT_RW = 1, /**< other processes may read and write */
    USM_POOL_EXPORT_RO = 2  /**< other processes may only read; for host memory the kernel
                                 enforces it */
} usm_pool_export;

/** Statistics of a pool.  Sizes are bytes.
 *
 * A pool with thread caches counts when threads exchange blocks with the
 * pool, not when they allocate or free a block.  Therefore:
 *  - `live` and `blocks` are exact when no other thread uses the pool;
 *  - a peak is never too high, and at most live_peak_error too low;
 *  - `allocations` counts blocks handed out to a thread's magazine or to the
 *    program; a block that one thread frees and allocates again is not counted
 *    again (USM_TRACE records each allocation). */
typedef struct usm_pool_stats {
    size_t   struct_size;
    uint64_t live; /**< in use by the program */
    uint64_t live_peak;
    uint64_t live_peak_error; /**< most that threads' magazines can hold; 0: peaks are exact */
    uint64_t reserved;        /**< taken from the driver                                     */
    uint64_t reserved_peak;
    uint64_t blocks;        /**< live blocks                                   */
    uint64_t allocations;   /**< blocks handed out so far                      */
    uint64_t frees;         /**< blocks returned to the pool                   */
    uint64_t driver_allocs; /**< calls of the driver to allocate or map memory */
    uint64_t driver_frees;
    uint64_t largest_free;  /**< largest block that can be allocated without the driver */
    uint64_t thread_cached; /**< free bytes in threads' magazines, of ended threads too */
    uint64_t depot_cached;  /**< free bytes in the depot, on their way between threads  */
    uint64_t threads;       /**< threads that have a cache of this pool                 */
    uint64_t depot_hits;    /**< times a magazine was filled from the depot             */
    uint64_t depot_misses;  /**< times a magazine was filled from slabs                 */
    uint64_t asleep;        /**< has addresses and no memory: usm_pool_sleep()          */
} usm_pool_stats;
#define USM_POOL_STATS_INIT                                                                        \
    {                                                                                              \
        sizeof(usm_pool_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                  \
    }

/** A point in the history of an arena to which usm_pool_reset_to() returns.
 * Opaque; may be copied. */
typedef struct usm_pool_mark {
    uint64_t opaque[4];
} usm_pool_mark;

typedef enum usm_text_format {
    USM_TEXT = 0, /**< a table for people          */
    USM_JSON = 1  /**< one JSON object on one line */
} usm_text_format;

/** Creates a pool.  The caller owns *pool.  `dev` NULL: the context's first
 * device.
 *   USM_E_NO_BACKEND     there is no pool of that name
 *   USM_E_NOT_SUPPORTED  the device does not support the kind */
USM_API USM_NODISCARD usm_status usm_pool_create(usm_context *ctx, usm_device *dev, usm_kind kind,
                                                 const usm_pool_desc *desc, usm_pool **pool);
/** Destroys a pool, or does nothing if it is NULL.  Blocks that are still
 * allocated are a bug of the caller: the pool frees them, and lists them with
 * USM_VALIDATION=1.  No other thread may be using the pool. */
USM_API void usm_pool_destroy(usm_pool *pool);

/** Returns the context's default pool for a device and kind, which the context
 * owns.  NULL on failure, with an error message. */
USM_API usm_pool *usm_pool_default(usm_context *ctx, usm_device *dev, usm_kind kind);

/** Allocate a block, as usm_alloc() and usm_aligned_alloc(). */
USM_API USM_ALLOC_SIZE(2) void *usm_pool_malloc(usm_pool *pool, size_t size);
USM_API USM_ALLOC_SIZE(3) void *usm_pool_aligned_alloc(usm_pool *pool, size_t align, size_t size);
/** As usm_free(), for a block of this pool. */
USM_API void usm_pool_free(usm_pool *pool, void *p);
/** Allocates n blocks of one size.  Returns how many it wrote to `out`: fewer
 * than n when memory ran out. */
USM_API size_t usm_pool_malloc_batch(usm_pool *pool, size_t size, size_t n, void **out);
/** Frees n blocks of this pool, of any sizes.  Pointers may be NULL. */
USM_API void usm_pool_free_batch(usm_pool *pool, size_t n, void *const *p);
/** Frees a block; `size` is the one that was requested.  `slab` checks it. */
USM_API void usm_pool_free_sized(usm_pool *pool, void *p, size_t size);

/** Returns free memory to the driver until the pool holds at most `keep` bytes,
 * or nothing more can be returned. */
USM_API usm_status               usm_pool_trim_to(usm_pool *pool, size_t keep);
USM_API USM_NODISCARD usm_status usm_pool_get_stats(usm_pool *pool, usm_pool_stats *stats);
USM_API USM_NODISCARD usm_status usm_pool_reset_peaks(usm_pool *pool);

/** What becomes of the contents of a pool that sleeps. */
typedef enum usm_sleep_contents {
    USM_SLEEP_KEEP    = 0, /**< they are stored on the tiers of USM_SPILL (usm/buffer.h), and are
                                there again when the pool has woken */
    USM_SLEEP_DISCARD = 1  /**< they are indeterminate when the pool has woken */
} usm_sleep_contents;

/** Gives the memory of a pool back to the driver and the system; all addresses
 * stay.  The pool must be a `slab` that the program made, over a driver that
 * maps memory into reserved addresses: the host's, Level Zero's (for device
 * memory), null's.
 *
 * First waits for all work under way on the queues of the context.  From then
 * on until usm_pool_wake() nobody may use the blocks: the host gets SIGSEGV, and
 * what a device gets is up to its driver.  Allocations from the pool fail with
 * USM_E_BUSY; blocks may be freed; usm_pool_destroy() is allowed.  A failure
 * leaves the pool awake, with its contents.  Returns USM_OK if the pool sleeps
 * already.
 *   USM_E_NOT_SUPPORTED  this pool cannot sleep; the error message says why
 *   USM_E_BUSY           another thread puts the pool to sleep or wakes it, or
 *                        the call is made by a host task of one of the queues
 *   USM_E_SPILL_FULL, USM_E_IO  the contents cannot be stored
 *   USM_E_FORKED         the pool was made before fork() */
USM_API USM_NODISCARD usm_status usm_pool_sleep(usm_pool *pool, usm_sleep_contents contents);
/** Brings the memory of a pool back, at the same addresses.  A failure leaves
 * the pool asleep: the call may be repeated.  Returns USM_OK if the pool is
 * awake.
 *   USM_E_NO_MEMORY, USM_E_BUDGET  there is not enough memory now
 *   USM_E_IO, USM_E_CORRUPT  the contents cannot be read, or are not what was
 *                        stored
 *   USM_E_BUSY           as above */
USM_API USM_NODISCARD usm_status usm_pool_wake(usm_pool *pool);

/** Attributes of a pool, one number each, modelled on cudaMemPool's attributes
 * and the properties of SYCL's memory_pool.  Sizes are bytes; switches are 0 or
 * 1. (r): read only.  (0): can only be set to 0; then a peak restarts from the
 * current value, and a count from 0. */
typedef enum usm_pool_attribute {
    USM_POOL_THRESHOLD           = 1,  /**< usm_pool_desc.threshold   */
    USM_POOL_MAXIMUM_SIZE        = 2,  /**< (r)                       */
    USM_POOL_ZERO_INIT           = 3,  /**< (r)                       */
    USM_POOL_READ_ONLY           = 4,  /**< (r)                       */
    USM_POOL_EXPORT_MODE         = 5,  /**< (r) usm_pool_export       */
    USM_POOL_RESERVED_CURRENT    = 6,  /**< (r) taken from the driver */
    USM_POOL_RESERVED_HIGH       = 7,  /**< (0)                       */
    USM_POOL_USED_CURRENT        = 8,  /**< (r) in use by the program, without blocks that a
                                            queue has yet to free */
    USM_POOL_USED_HIGH           = 9,  /**< (0) see usm_pool_stats.live_peak */
    USM_POOL_REUSE_FOLLOW_EVENTS = 10, /**< usm/async.h; initially 1         */
    USM_POOL_REUSE_OPPORTUNISTIC = 11, /**< initially 1                      */
    USM_POOL_REUSE_INSERT_WAITS  = 12, /**< initially 1                      */
    USM_POOL_QUEUED_CURRENT      = 13, /**< (r) freed in queues that are not known to have
                                            reached the free: bytes that only these queues can
                                            reuse at once */
    USM_POOL_QUEUED_REUSES       = 14, /**< (0) blocks that were allocated from the free list of
                                            a queue */
    USM_POOL_QUEUED_EVENTS       = 15, /**< (0) events recorded for frees; one may serve many
                                            frees */
    USM_POOL_QUEUED_WAITS        = 16, /**< (0) waits inserted into a queue for blocks of another
                                            queue */
    USM_POOL_HOST_WAITS          = 17, /**< (0) times the host waited for a queue to get memory */
    USM_POOL_CACHED_CURRENT      = 18, /**< (r) free bytes in caches: thread_cached + depot_cached
                                            of usm_pool_stats; usm_pool_trim_to() takes them back,
                                            as does an allocation before it fails */
    USM_POOL_CACHED_LIMIT = 19 /**< (r) most that caches may hold now; 0: the pool has none */
} usm_pool_attribute;

/** Reads or sets one attribute.
 *   USM_E_INVALID  there is no such attribute; when setting: it is read only, or
 *                  does not accept this value */
USM_API USM_NODISCARD usm_status usm_pool_get_attribute(usm_pool *pool, usm_pool_attribute which,
                                                        uint64_t *value);
USM_API USM_NODISCARD usm_status usm_pool_set_attribute(usm_pool *pool, usm_pool_attribute which,
                                                        uint64_t value);
USM_API usm_context             *usm_pool_get_context(usm_pool *pool);
USM_API usm_device              *usm_pool_get_device(usm_pool *pool);
USM_API usm_kind                 usm_pool_get_kind(usm_pool *pool);

/** Writes the statistics as text: totals, size classes, reuse.  It writes at
 * most `cap` bytes, terminated by 0; *size (`size` may be NULL) is the length
 * of the whole text without the 0.  `pool` NULL: every pool of every context,
 * and the tags (usm/tag.h). */
USM_API usm_status usm_pool_describe(usm_pool *pool, usm_text_format format, char *text, size_t cap,
                                     size_t *size);

/** Frees every block of an `arena` pool; its areas are kept for reuse.
 *   USM_E_NOT_SUPPORTED  the pool has no reset */
USM_API USM_NODISCARD usm_status usm_pool_reset(usm_pool *pool);

/** usm_pool_set_mark() records the current point of an `arena` pool;
 * usm_pool_reset_to() frees every block allocated since.  Marks nest: returning
 * to one invalidates those set after it.
 *   USM_E_NOT_SUPPORTED  the pool has no marks
 *   USM_E_INVALID        the mark is no longer valid, or is of another pool */
USM_API USM_NODISCARD usm_status usm_pool_set_mark(usm_pool *pool, usm_pool_mark *mark);
USM_API USM_NODISCARD usm_status usm_pool_reset_to(usm_pool *pool, const usm_pool_mark *mark);

USM_END_DECLS
#endif
