/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Areas of other processes in the page map, and the hooks for pools whose blocks are exported.
 * Called by src/ipc, heap/serve.c, heap/pool.c, heap/memory.c and heap/area.c. */
#include "heap/export.h"

#include "base/meta.h"

/* The area and the pool it belongs to.  Only code that finds the area sees the pool. */
typedef struct adopted {
    usm__area area; /* first member */
    usm_pool  pool;
} adopted;

/* The struct stays readable after its free: a thread that looks up a pointer at that moment may
 * still be reading it. */
static usm__meta_type adopted_type = USM__META_TYPE(adopted, sizeof(adopted), "adopted areas");

bool usm__pool_is_inert(const usm_pool *pool)
{
    return usm__context_is_inert(pool->ctx) &&
           (pool->export_mode != USM_POOL_PRIVATE ||
            !usm__backend_can(pool->ctx->be, USM_CAP_FORK_MEMORY));
}

usm_status usm__area_adopt(usm_context *ctx, size_t index, usm_kind kind, const usm_pool_ops *ops,
                           void *impl, usm_area range, usm__area **area)
{
    adopted         *a     = usm__meta_alloc(&adopted_type);
    const usm__area *other = NULL;
    usm_status       st;

    if (a == NULL)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for an area of another process");
    a->pool.ops         = ops;
    a->pool.impl        = impl;
    a->pool.ctx         = ctx;
    a->pool.index       = index;
    a->pool.kind        = kind;
    a->pool.is_imported = true;
    a->pool.alloc_slot  = 0;
    a->pool.slot        = 0;
    usm_list_init(&a->pool.link);
    usm_list_init(&a->pool.areas);
    usm_list_init(&a->pool.caches);
    a->area.view        = range;
    a->area.ctx         = ctx;
    a->area.pool        = &a->pool;
    a->area.dev         = ctx->devices[index].dev;
    a->area.kind        = kind;
    a->area.driver_base = range.base;
    a->area.driver_size = range.size;
    usm_list_init(&a->area.link);
    st = usm__map_insert(&a->area, &other);
    if (st != USM_OK) {
        usm__meta_free(&adopted_type, a);
        return st;
    }
    *area = &a->area;
    return USM_OK;
}

void usm__area_disown(usm__area *area)
{
    usm__gone_note(area->view.base);
    usm__map_remove(area);
    usm__meta_free(&adopted_type, usm_container_of(area, adopted, area));
}
