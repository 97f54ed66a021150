/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Pools: blocks out of areas that were taken from the driver once.
 *
 * Every (device, kind) of a context has a default pool, chosen by USM_POOL;
 * more can be made.  `direct` asks the driver each time; `arena` bumps a
 * pointer and gives everything back at a reset.  usm_free() works on blocks of
 * any pool.  Pools are thread-safe. */
#ifndef USM_POOL_H
#define USM_POOL_H

#include <usm/types.h>

USM_BEGIN_DECLS

typedef struct usm_pool_desc {
    size_t      struct_size;
    const char *name;      /**< "direct", "arena"; NULL: what USM_POOL says      */
    size_t      area_size; /**< bytes taken from the driver at a time; 0 = the
                                pool's preference                                */
    size_t maximum_size;   /**< most bytes to hold; 0 = no limit                 */
    size_t min_align;      /**< every block's alignment at least; 0 = default    */
} usm_pool_desc;
#define USM_POOL_DESC_INIT                                                                         \
    {                                                                                              \
        sizeof(usm_pool_desc), NULL, 0, 0, 0                                                       \
    }

/** Bytes unless named otherwise; exact when no other thread uses the pool. */
typedef struct usm_pool_stats {
    size_t   struct_size;
    uint64_t live; /**< in the program's hands                           */
    uint64_t live_peak;
    uint64_t reserved; /**< taken from the driver                            */
    uint64_t reserved_peak;
    uint64_t blocks;      /**< live blocks                                      */
    uint64_t allocations; /**< calls served so far                              */
    uint64_t frees;
    uint64_t driver_allocs; /**< calls that reached the driver                    */
    uint64_t driver_frees;
    uint64_t largest_free; /**< largest block that needs no driver call          */
} usm_pool_stats;
#define USM_POOL_STATS_INIT                                                                        \
    {                                                                                              \
        sizeof(usm_pool_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                       \
    }

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
/** The size must be the one asked for: it saves the look-up. */
USM_API void usm_pool_free_sized(usm_pool *pool, void *p, size_t size);

/** Gives memory that is not in use back to the driver until at most `keep`
 * bytes are held, as far as that goes. */
USM_API usm_status               usm_pool_trim_to(usm_pool *pool, size_t keep);
USM_API USM_NODISCARD usm_status usm_pool_get_stats(usm_pool *pool, usm_pool_stats *stats);
USM_API USM_NODISCARD usm_status usm_pool_reset_peaks(usm_pool *pool);

/** `arena` only: every block of the pool is gone, its areas stay for reuse.
 *   USM_E_NOT_SUPPORTED  the pool has no reset */
USM_API USM_NODISCARD usm_status usm_pool_reset(usm_pool *pool);

USM_END_DECLS
#endif
