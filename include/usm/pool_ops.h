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
 * source with a lock held that a free needs. */
#ifndef USM_POOL_OPS_H
#define USM_POOL_OPS_H

#include <usm/module.h>
#include <usm/pool.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef enum usm_pool_cap {
    USM_POOL_CAP_SIZED = 1u << 0, /* free_sized                                         */
    USM_POOL_CAP_BATCH = 1u << 1, /* malloc_batch, free_batch                           */
    USM_POOL_CAP_RESET = 1u << 2  /* reset                                              */
} usm_pool_cap;

/** A contiguous range taken from the driver.  base and size are fixed;
 * pool_data is the pool's, NULL at first. */
typedef struct usm_area {
    void  *base;
    size_t size;
    void  *pool_data;
} usm_area;

/** Where areas come from.  `source` goes back as the first argument. */
typedef struct usm_area_source {
    void *source;
    /** size > 0; align a power of two or 0.  USM_E_NO_MEMORY, USM_E_BUDGET: the
     * pool may give back what it does not use and ask again. */
    usm_status (*take)(void *source, size_t size, size_t align, usm_area **area);
    void (*give)(void *source, usm_area *area);
} usm_area_source;

typedef struct usm_pool_params {
    size_t              struct_size;
    const usm_host_api *api;
    usm_area_source     areas;
    usm_kind            kind;
    bool                host_accessible; /**< the host may read and write blocks         */
    size_t              default_align;   /**< for alignment 0; blocks of a page or more
                                              may be aligned more                        */
    size_t      area_size;               /**< bytes; 0 = the pool's preference           */
    size_t      maximum_size;            /**< the source enforces it; for information    */
    const char *options;                 /**< "name=value,..." from USM_POOL; or NULL    */
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
    /** Fills everything but reserved*, driver_*: those are the source's. */
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
} usm_pool_ops;

/** The only export of a pool module, `usm_pool_entry`. */
typedef const usm_pool_ops *usm_pool_entry_fn(const usm_host_api *api);

USM_END_DECLS
#endif
