/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The memory functions with a queue, whose context and device they are for: SYCL's forms.  Like
 * heap/memory.c, which has the others, this is the first of the three layers of an allocation
 * (heap/recover.c has the picture). */
#include "command/queue.h"
#include "heap/magazine.h"
#include "heap/pool.h"

/* After fork(), memory of the parent's context may still be usable, and the queue identifies it.
 * So only the handle and the context are checked.  NULL with an error message. */
static usm_pool *pool_for(const usm_queue *q, usm_kind kind)
{
    if (usm__kind_check(kind) != USM_OK || usm__handle_check(q, USM__MAGIC_QUEUE) != USM_OK ||
        usm__context_check(q->ctx) != USM_OK)
        return NULL;
    return usm__pool_of(q->ctx, q->index, kind);
}

static void *request(size_t align, size_t size, usm_queue *q, usm_kind kind)
{
    usm_pool *pool = pool_for(q, kind);
    void     *p = pool ? usm__pool_alloc(pool, align, size, USM__ZERO_AS_POOL) : usm__no_memory();

    if (p)
        usm_store_relaxed(&q->alloc_slots[kind], usm_load_relaxed(&pool->alloc_slot));
    return p;
}

/* The fast path: the queue has the slots of its device's pools.  NULL: a miss. */
static inline void *hit(size_t size, usm_queue *q, usm_kind kind)
{
    return q ? usm__magazine_pop(usm_load_relaxed(&q->alloc_slots[kind]), size) : NULL;
}

void *usm_malloc(size_t size, usm_queue *q, usm_kind kind)
{
    void *p = usm__is_kind(kind) ? hit(size, q, kind) : NULL;

    return p ? p : request(0, size, q, kind);
}

void *usm_malloc_device(size_t size, usm_queue *q)
{
    void *p = hit(size, q, USM_DEVICE);

    return p ? p : request(0, size, q, USM_DEVICE);
}

void *usm_malloc_host(size_t size, usm_queue *q)
{
    void *p = hit(size, q, USM_HOST);

    return p ? p : request(0, size, q, USM_HOST);
}

void *usm_malloc_shared(size_t size, usm_queue *q)
{
    void *p = hit(size, q, USM_SHARED);

    return p ? p : request(0, size, q, USM_SHARED);
}

void *usm_aligned_alloc_device(size_t align, size_t size, usm_queue *q)
{
    return request(align, size, q, USM_DEVICE);
}

void *usm_aligned_alloc_host(size_t align, size_t size, usm_queue *q)
{
    return request(align, size, q, USM_HOST);
}

void *usm_aligned_alloc_shared(size_t align, size_t size, usm_queue *q)
{
    return request(align, size, q, USM_SHARED);
}
