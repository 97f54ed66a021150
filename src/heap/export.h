/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The core's interface to memory that several processes see: areas of other processes in our
 * page map, and hooks around the blocks of our pools that export.  src/ipc knows what a handle
 * is, and which process has which block open. */
#ifndef USM_HEAP_EXPORT_H
#define USM_HEAP_EXPORT_H

#include "base/part.h"
#include "heap/pool.h"

/* The hooks of a part (base/part.h); there is one before a pool that exports.  No lock of a pool is
 * held, unless stated otherwise. */
typedef struct usm__pool_export_hooks {
    /* Called before the block that starts at p is freed.  USM_E_NOT_READY: the core frees it now;
     * USM_OK: the free is deferred, and usm__pool_free_now() follows later; otherwise it is
     * refused. */
    usm_status (*free)(usm__area *area, void *p);
    /* The program has freed the block that starts at p, but its memory is freed later. */
    void (*end_handles)(const usm__area *area, const void *p);
    /* True if the block at `base` was freed and its memory is kept for now. */
    bool (*is_freed)(const usm__area *area, const void *base);
    /* A reset will free all blocks of the pool.  USM_E_BUSY: other processes have some open. */
    usm_status (*reset)(usm_pool *pool);
    /* The reset is done; blocks that are no longer in the pool have no handles from now on. */
    void (*was_reset)(usm_pool *pool);
    /* The pool is being destroyed: none of its blocks has handles from now on, and none is
     * freed. */
    void (*finish)(usm_pool *pool);
    /* The area returns to the driver. */
    void (*area_gone)(usm__area *area);
} usm__pool_export_hooks;

/* True if the pool was inherited through fork(), and nothing may be done with it in this
 * process. */
bool usm__pool_is_inert(const usm_pool *pool);

/* Enters memory of another process, which a backend mapped at [base, base + size), into the page
 * map.  It becomes an area of a pool that has only ops->block, which gets `impl`; the core refuses
 * to free its blocks.  The memory counts in no quota here, only in its owner's. */
usm_status usm__area_adopt(usm_context *ctx, size_t index, usm_kind kind, const usm_pool_ops *ops,
                           void *impl, usm_area range, usm__area **area);
void       usm__area_disown(usm__area *area);

#endif
