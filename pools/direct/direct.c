/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pool `direct`: each block is an area of its own, taken from the driver when it is allocated
 * and returned when it is freed.
 *
 * Here: the bookkeeping that the interface requires, which is a list of the live blocks (returned
 * when the pool is destroyed) and the counts.  Not here: the address map, limits and alignment,
 * which are the core's.  Called by the core, through the table at the end.
 *
 * area->pool_data points to the record of a live block.  A free removes it under the lock, so that
 * only one of two threads that free the same pointer succeeds. */
#include "direct.h"

#include <base/inline/bits.h>
#include <base/inline/list.h>
#include <base/inline/pool_counts.h>

#include <pthread.h>

struct direct_pool {
    usm_pool_counts counts; /* first; live = the sizes of `blocks` */

    /* fixed after create */
    const usm_host_api *api;
    usm_area_source     areas;
    size_t              default_align;

    usm_list blocks; /* guarded by the lock of the counts */
};

struct direct_block {
    usm_list  link;
    usm_area *area;
};

static const usm_host_api *host_api;

static usm_status direct_create(const usm_pool_params *params, void **pool)
{
    struct direct_pool *p = host_api->heap_alloc(sizeof(*p));

    if (!p)
        return host_api->report(USM_E_NO_MEMORY, "no host memory for a pool");
    if (params->options && params->options[0])
        host_api->log(USM_LOG_WARN, "the pool `direct` takes no options: \"%s\" is ignored",
                      params->options);
    p->api           = params->api;
    p->areas         = params->areas;
    p->default_align = params->default_align;
    pthread_mutex_init(&p->counts.lock, NULL);
    usm_list_init(&p->blocks);
    *pool = p;
    return USM_OK;
}

static void direct_destroy(void *pool)
{
    struct direct_pool *p = pool;
    usm_list           *it;

    while ((it = usm_list_pop(&p->blocks))) {
        struct direct_block *b = usm_container_of(it, struct direct_block, link);

        p->areas.give(p->areas.source, b->area);
        p->api->heap_free(b);
    }
    pthread_mutex_destroy(&p->counts.lock);
    p->api->heap_free(p);
}

static void count_block(struct direct_pool *p, struct direct_block *b)
{
    pthread_mutex_lock(&p->counts.lock);
    b->area->pool_data = b;
    usm_list_append(&p->blocks, &b->link);
    usm_pool_counts_out(&p->counts, b->area->size);
    pthread_mutex_unlock(&p->counts.lock);
}

static usm_status direct_malloc(void *pool, size_t size, size_t align, void **out)
{
    struct direct_pool  *p = pool;
    struct direct_block *b = p->api->heap_alloc(sizeof(*b));
    usm_status           status;

    if (!b)
        return p->api->report(USM_E_NO_MEMORY, "no host memory for the record of a block");
    align  = usm_max_size(align, p->default_align);
    status = p->areas.take(p->areas.source, size, align, &b->area);
    if (status) {
        p->api->heap_free(b);
        return status;
    }
    /* Read before it is counted: afterwards another thread may free it. */
    void *base = b->area->base;

    count_block(p, b);
    *out = base;
    return USM_OK;
}

/* Removes the record from the area, for the first caller only. */
static struct direct_block *uncount_block(struct direct_pool *p, usm_area *area)
{
    struct direct_block *b;

    pthread_mutex_lock(&p->counts.lock);
    b = area->pool_data;
    if (b) {
        area->pool_data = NULL;
        usm_list_remove(&b->link);
        usm_pool_counts_in(&p->counts, area->size);
    }
    pthread_mutex_unlock(&p->counts.lock);
    return b;
}

static usm_status direct_free(void *pool, usm_area *area, void *ptr)
{
    struct direct_pool  *p = pool;
    struct direct_block *b;

    if (ptr != area->base)
        return p->api->report(USM_E_INTERIOR_POINTER,
                              "%p lies inside the block at %p: free the block's start", ptr,
                              area->base);
    b = uncount_block(p, area);
    if (!b)
        return p->api->report(USM_E_DOUBLE_FREE, "the block at %p was freed before", ptr);
    p->areas.give(p->areas.source, area);
    p->api->heap_free(b);
    return USM_OK;
}

static usm_status direct_block(void *pool, usm_area *area, const void *ptr, usm_block *block)
{
    struct direct_pool *p      = pool;
    uintptr_t           offset = (uintptr_t)ptr - (uintptr_t)area->base;
    bool                live;

    pthread_mutex_lock(&p->counts.lock);
    live = area->pool_data != NULL;
    pthread_mutex_unlock(&p->counts.lock);
    if (!live || offset >= area->size)
        return p->api->report(USM_E_INVALID_POINTER, "%p is in no live block", ptr);
    *block = (usm_block){area->base, area->size};
    return USM_OK;
}

/* The pool holds no memory that is not in use. */
static usm_status direct_trim_to(void *pool, size_t keep)
{
    (void)pool;
    (void)keep;
    return USM_OK;
}

static void direct_get_stats(void *pool, usm_pool_stats *stats)
{
    struct direct_pool *p = pool;

    pthread_mutex_lock(&p->counts.lock);
    usm_pool_counts_get(&p->counts, 0, stats);
    pthread_mutex_unlock(&p->counts.lock);
}

static const usm_pool_ops direct_ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(usm_pool_ops),
    .name        = "direct",
    .caps        = USM_POOL_CAP_WHOLE,
    .create      = direct_create,
    .destroy     = direct_destroy,
    .malloc      = direct_malloc,
    .free        = direct_free,
    .block       = direct_block,
    .trim_to     = direct_trim_to,
    .get_stats   = direct_get_stats,
    .reset_peaks = usm_pool_counts_reset_peaks,
    .fork        = usm_pool_counts_fork,
};

const usm_pool_ops *usm_direct_pool_entry(const usm_host_api *api)
{
    host_api = api;
    return &direct_ops;
}
