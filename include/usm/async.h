/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Stream-ordered allocation: memory that is allocated and freed in the order of
 * a queue's commands, and never makes the host wait.
 *
 * usm_async_malloc() returns its pointer at once; commands that come later in
 * the queue may use it.  usm_async_free() returns at once as well: the block is
 * free when the queue gets there.  Until then only the same in-order queue
 * gets it again, at once and without an event; another queue gets it as the
 * pool's reuse policies allow (usm_pool_set_attribute()):
 *
 *   USM_POOL_REUSE_FOLLOW_EVENTS   its commands already wait for the free
 *   USM_POOL_REUSE_OPPORTUNISTIC   the free has been reached
 *   USM_POOL_REUSE_INSERT_WAITS    the allocator lets its commands wait for the free,
 *                                  rather than take more from the driver
 *
 * These are the semantics of sycl_ext_oneapi_async_memory_alloc and of
 * cudaMallocAsync.  Blocks are ordinary memory of their pool: usm_free() takes
 * them as well, under its own precondition, and usm_async_free() takes blocks
 * of usm_malloc_device() and family.
 *
 * What a queue has freed goes back to everybody when the queue is waited for,
 * when others need it, when the queue has been left alone for a while, and when
 * it is destroyed: nothing is stranded.  Pools other than `slab` have no lists
 * of queues: there a freed block goes back when the queue has got there.
 *
 * Thread-safe: the order between calls on one queue is that of the calls. */
#ifndef USM_ASYNC_H
#define USM_ASYNC_H

#include <usm/types.h>

USM_BEGIN_DECLS

/** From the queue's device and its default pool of that kind.  Commands of q that are submitted
 * later may use the block; others must be ordered behind the call (an event of a later command,
 * usm_queue_wait()), and so must the host's own accesses: earlier commands of q may still use the
 * memory.  NULL and a story on failure, as usm_malloc().  Of an out-of-order queue nothing is
 * assumed: the block is free of other work when the function returns. */
USM_API USM_ALLOC_SIZE(3) void *usm_async_malloc(usm_queue *q, usm_kind kind, size_t size);
/** From a pool of the queue's context, and its device if the memory is a device's. */
USM_API USM_ALLOC_SIZE(2) void *usm_async_malloc_from_pool(usm_queue *q, size_t size,
                                                           usm_pool *pool);

/** Frees p when the commands submitted to q so far have ended; for an out-of-order queue that is a
 * barrier (usm_queue_barrier() without dependencies).  NULL is fine.  p may be of any pool of the
 * queue's context.  From here on p is free as far as libusm's checks and queries go.
 *   USM_E_INVALID_POINTER, USM_E_DOUBLE_FREE, USM_E_INTERIOR_POINTER as usm_free_ctx()
 *   USM_E_WRONG_CONTEXT  p is of another context */
USM_API usm_status usm_async_free(usm_queue *q, void *p);

/* With dependencies, for out-of-order queues (and in-order ones): the command takes place in q
 * after `deps`; *ev, which may be NULL, is its event, the caller's to release. */

/** Commands that use the block must depend on *ev. */
USM_API USM_ALLOC_SIZE(3) void *usm_async_malloc_after(usm_queue *q, usm_kind kind, size_t size,
                                                       size_t ndeps, usm_event *const *deps,
                                                       usm_event **ev);
USM_API USM_ALLOC_SIZE(2) void *usm_async_malloc_from_pool_after(usm_queue *q, size_t size,
                                                                 usm_pool *pool, size_t ndeps,
                                                                 usm_event *const *deps,
                                                                 usm_event       **ev);
/** Free once `deps` are complete; in an in-order queue also all commands before it.  Without
 * dependencies as usm_async_free(). */
USM_API usm_status usm_async_free_after(usm_queue *q, void *p, size_t ndeps, usm_event *const *deps,
                                        usm_event **ev);

USM_END_DECLS
#endif
