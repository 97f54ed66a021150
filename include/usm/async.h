/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Stream-ordered allocation: memory that is allocated and freed in the order of
 * the commands of a queue, without making the host wait.
 *
 * usm_async_malloc() returns a pointer at once; later commands of the queue may
 * use it.  usm_async_free() also returns at once; the block is free when the
 * queue has reached that point.  Until then only the same in-order queue can
 * reuse the block, immediately and without an event.  Another queue reuses it
 * as the pool's reuse policies allow (usm_pool_set_attribute()):
 *
 *   USM_POOL_REUSE_FOLLOW_EVENTS   its commands already depend on the free
 *   USM_POOL_REUSE_OPPORTUNISTIC   the queue has already reached the free
 *   USM_POOL_REUSE_INSERT_WAITS    the allocator makes its commands wait for the
 *                                  free, instead of taking memory from the driver
 *
 * These are the semantics of sycl_ext_oneapi_async_memory_alloc and of
 * cudaMallocAsync.  The blocks are ordinary blocks of their pool: usm_free()
 * accepts them as well, under its own precondition, and usm_async_free()
 * accepts blocks of usm_malloc_device() and its family.
 *
 * Blocks freed in a queue become available to all queues when the program waits
 * for the queue, when another queue needs them, when the queue has been idle
 * for a while, and when it is destroyed: no memory is stranded.  Pools other
 * than `slab` have no free lists of queues: there a block is freed when the
 * queue reaches that point.
 *
 * Thread-safe: the order of calls for one queue is the order in which threads
 * make them. */
#ifndef USM_ASYNC_H
#define USM_ASYNC_H

#include <usm/types.h>

USM_BEGIN_DECLS

/** Allocates from the default pool of the queue's device for that kind.  `size`
 * is bytes.  Commands submitted to q later may use the block.  Earlier commands
 * of q may still use the memory, so other commands, and the host's own
 * accesses, must be ordered after this call: by an event of a later command of
 * q, or by usm_queue_wait().  With an out-of-order queue the block is free of
 * other work when the function returns.  Returns NULL with an error message on
 * failure, as usm_malloc() does. */
USM_API USM_ALLOC_SIZE(3) void *usm_async_malloc(usm_queue *q, usm_kind kind, size_t size);
/** The same, from a pool of the queue's context; for device memory, the pool's
 * device must be the queue's. */
USM_API USM_ALLOC_SIZE(2) void *usm_async_malloc_from_pool(usm_queue *q, size_t size,
                                                           usm_pool *pool);

/** Frees p when the commands submitted to q so far have ended; in an
 * out-of-order queue this acts as a barrier (usm_queue_barrier() without
 * dependencies).  p may be NULL, or of any pool of the queue's context.  For
 * libusm's checks and queries p is free from now on.
 *   USM_E_INVALID_POINTER, USM_E_DOUBLE_FREE, USM_E_INTERIOR_POINTER as
 *                        usm_free_ctx()
 *   USM_E_WRONG_CONTEXT  p belongs to another context */
USM_API usm_status usm_async_free(usm_queue *q, void *p);

/* The forms with dependencies, for out-of-order and in-order queues.  The
 * allocation or free takes effect in q after `deps`.  *ev is its event, which
 * the caller releases; `ev` may be NULL. */

/** Commands that use the block must depend on *ev. */
USM_API USM_ALLOC_SIZE(3) void *usm_async_malloc_after(usm_queue *q, usm_kind kind, size_t size,
                                                       size_t ndeps, usm_event *const *deps,
                                                       usm_event **ev);
USM_API USM_ALLOC_SIZE(2) void *usm_async_malloc_from_pool_after(usm_queue *q, size_t size,
                                                                 usm_pool *pool, size_t ndeps,
                                                                 usm_event *const *deps,
                                                                 usm_event       **ev);
/** Frees p once `deps` are complete, in an in-order queue also all earlier
 * commands.  Without dependencies as usm_async_free(). */
USM_API usm_status usm_async_free_after(usm_queue *q, void *p, size_t ndeps, usm_event *const *deps,
                                        usm_event **ev);

USM_END_DECLS
#endif
