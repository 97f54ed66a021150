/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the core knows of memory that other processes see: areas of theirs in our address map, and
 * hook points around the blocks of our pools that export.  What a handle is, and who has what open,
 * is for src/ipc. */
#ifndef USM_CORE_EXPORT_H
#define USM_CORE_EXPORT_H

#include "core/pool.h"

/* Filled by src/usm.c before any pool exists.  No lock of a pool is held, unless said otherwise. */
typedef struct usm__export_hooks {
    /* Before the block that starts at p is freed.  USM_E_NOT_READY: free it; USM_OK: its end is put
     * off, usm__pool_free_now() comes later; else refused. */
    usm_status (*free)(usm__area *area, void *p);
    /* The block that starts at p is free as far as the program goes, but its free comes later. */
    void (*end_handles)(const usm__area *area, const void *p);
    /* Whether the block at `base` was freed, and its end put off. */
    bool (*is_freed)(const usm__area *area, const void *base);
    /* Blocks of the pool are to go without a free.  USM_E_BUSY: some are open elsewhere. */
    usm_status (*reset)(usm_pool *pool);
    /* So they have; those that are not in the pool any more have no handles from now on. */
    void (*was_reset)(usm_pool *pool);
    /* The pool ends: none of its blocks has handles from now on, and nobody frees any. */
    void (*finish)(usm_pool *pool);
    /* The area goes back to the driver. */
    void (*area_gone)(usm__area *area);
} usm__export_hooks;
extern const usm__export_hooks *usm__exports;

/* Whether nothing must be done with it in this process: it was inherited through fork(). */
bool usm__pool_is_inert(const usm_pool *pool);

/* Memory of another process that a backend mapped at [base, base + size): in the address map from
 * here on, as an area of a pool that has ops->block and nothing else; frees of it are refused.  No
 * account counts it: it is its owner's.  ops->block gets `impl`. */
usm_status usm__area_adopt(usm_context *ctx, size_t index, usm_kind kind, const usm_pool_ops *ops,
                           void *impl, usm_area range, usm__area **area);
void       usm__area_disown(usm__area *area);

#endif
