/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The interface of pool modules: a table of functions that cut areas into
 * blocks.  EXPERIMENTAL.
 *
 * A pool never touches the memory that it manages (which may be a device's) and
 * never calls a driver: it takes areas from its area source.  The source
 * guarantees the alignment, enters the areas in the page map, and does the
 * memory accounting and limits.
 *
 * usm_free(p) looks p's area up in the page map and passes both to `free`.  A
 * pool stores whatever it needs to find the block in area->pool_data (a table
 * of pages, a block index).  All functions are thread-safe.  A function must
 * not call the source while it holds a lock that `free` needs. */
#ifndef USM_POOL_OPS_H
#define USM_POOL_OPS_H

#include <usm/module.h>
#include <usm/pool.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef enum usm_pool_cap {
    USM_POOL_CAP_RESET = 1u << 0, /* reset                                           */
    USM_POOL_CAP_MARK  = 1u << 1, /* mark, reset_to                                  */
    USM_POOL_CAP_WHOLE = 1u << 2  /* no functions: every block is an area of its own */
} usm_pool_cap;

/** A contiguous range taken from the driver.  base and size never change. */
typedef struct usm_area {
    void  *base;
    size_t size;
    void  *pool_data; /**< for the pool, initially NULL */
} usm_area;

/** The source of a pool's areas.  Each function gets `source` as its first
 * argument. */
typedef struct usm_area_source {
    void *source;
    /** Allocates an area; size > 0; align is a power of two, or 0.  After
     * USM_E_NO_MEMORY or USM_E_BUDGET the pool may release unused areas and call
     * again. */
    usm_status (*take)(void *source, size_t size, size_t align, usm_area **area);
    /** Releases an area. */
    void (*give)(void *source, usm_area *area);
} usm_area_source;

typedef struct usm_pool_params {
    size_t              struct_size;
    const usm_host_api *api;
    usm_area_source     areas;
    usm_kind            kind;
    bool                host_accessible; /**< the host may read and write the blocks         */
    size_t              default_align;   /**< used for alignment 0; blocks of a page or more may
                                              be aligned more strictly */
    size_t              area_size;       /**< bytes to take at a time; 0: the pool's default */
    size_t              maximum_size;    /**< for information: the source enforces it        */
    size_t              memory_size;     /**< bytes of the device's or host's memory; 0: unknown */
    size_t              retain;          /**< free bytes to keep however long they are idle;
                                              SIZE_MAX: all */
    uint32_t            retain_ms;       /**< how long to keep idle bytes beyond `retain` */
    const char         *options;         /**< "name=value,..." from USM_POOL: those that the core
                                              does not know; or NULL */
} usm_pool_params;

typedef struct usm_block {
    void  *base;
    size_t size; /**< usable bytes */
} usm_block;

typedef enum usm_fork_phase {
    USM_FORK_PREPARE = 0, /* in the parent, before the fork: take your locks         */
    USM_FORK_PARENT  = 1, /* in the parent, after the fork: release them             */
    USM_FORK_CHILD   = 2  /* in the child: release them; no other thread exists here */
} usm_fork_phase;

typedef struct usm_pool_ops {
    uint32_t    abi; /**< USM_MODULE_ABI */
    uint32_t    struct_size;
    const char *name;
    uint32_t    caps; /**< usm_pool_cap */

    usm_status (*create)(const usm_pool_params *params, void **pool);
    /** Releases every area, even those with live blocks. */
    void (*destroy)(void *pool);
    /** size > 0 (the core turns 0 into 1); align is 0 or a power of two. */
    usm_status (*malloc)(void *pool, size_t size, size_t align, void **p);
    /** `area` is the area that p is in.  After one of these statuses nothing has
     * changed:
     *   USM_E_DOUBLE_FREE, USM_E_INTERIOR_POINTER, USM_E_INVALID_POINTER */
    usm_status (*free)(void *pool, usm_area *area, void *p);
    /** Returns the live block that p points into.
     *   USM_E_INVALID_POINTER  the block is free */
    usm_status (*block)(void *pool, usm_area *area, const void *p, usm_block *block);
    /** Releases unused areas until at most `keep` bytes are held. */
    usm_status (*trim_to)(void *pool, size_t keep);
    /** Fills everything except reserved*, driver_* and thread*. */
    void (*get_stats)(void *pool, usm_pool_stats *stats);
    void (*reset_peaks)(void *pool);
    void (*fork)(void *pool, usm_fork_phase phase);

    /* USM_POOL_CAP_RESET: frees all blocks and keeps the areas. */
    usm_status (*reset)(void *pool);
    /* USM_POOL_CAP_MARK: `mark` records the current point; reset_to frees all
     * blocks allocated after it.
     *   USM_E_INVALID  a reset, or a reset_to an earlier mark, came after the mark */
    usm_status (*mark)(void *pool, usm_pool_mark *mark);
    usm_status (*reset_to)(void *pool, const usm_pool_mark *mark);
} usm_pool_ops;

/** The only symbol that a pool module exports: `usm_pool_entry`. */
typedef const usm_pool_ops *usm_pool_entry_fn(const usm_host_api *api);

USM_END_DECLS
#endif
