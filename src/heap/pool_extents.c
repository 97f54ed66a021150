/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where a pool has memory, and which of it is in use, for a map of its addresses.  Only `slab` and
 * pools whose blocks are areas of their own know that without a question to their module.  Called by
 * src/monitor. */
#include "heap/pool.h"
#include "heap/slab.h"

/* Modules call the source of areas with no lock that `block` needs, so it may be asked with the lock
 * of the areas held. */
static usm__pool_extent_use use_of(usm_pool *pool, usm__area *a)
{
    usm_block block;

    if (!(pool->ops->caps & USM_POOL_CAP_WHOLE))
        return USM__POOL_UNKNOWN;
    return pool->ops->block(pool->impl, &a->view, a->view.base, &block) == USM_OK ? USM__POOL_USED
                                                                                  : USM__POOL_FREE;
}

static void each_area(usm_pool *pool, usm__pool_extent_visit *fn, void *arg)
{
    usm__mutex_lock(&pool->lock);
    USM_LIST_FOREACH (it, &pool->areas) {
        usm__area *a = usm_container_of(it, usm__area, link);

        fn(&(usm__pool_extent){(uintptr_t)a->view.base, a->view.size, use_of(pool, a)}, arg);
    }
    usm__mutex_unlock(&pool->lock);
}

void usm__pool_each_extent(usm_pool *pool, usm__pool_extent_visit *fn, void *arg)
{
    if (slab_is(pool->ops))
        slab_each_extent(pool->impl, fn, arg);
    else
        each_area(pool, fn, arg);
}

void usm__pool_each_slab(usm_pool *pool, usm__pool_slab_visit *fn, void *arg)
{
    if (slab_is(pool->ops))
        slab_each_slab(pool->impl, fn, arg);
}
