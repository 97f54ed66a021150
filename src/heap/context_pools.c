/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pools of contexts: over all of them, at the end of a context, in fork(); the slots of the
 * default context's pools. */
#include "base/fork.h"
#include "device/init.h"
#include "heap/pool.h"

/* ---- over all contexts ---------------------------------------------------------- */

typedef struct visit {
    usm__pool_visit *fn;
    void            *arg;
} visit;

static void visit_pools(usm_context *ctx, void *arg)
{
    const visit *v = arg;

    usm__mutex_lock(&ctx->lock);
    USM_LIST_FOREACH (it, &ctx->pools)
        v->fn(usm_container_of(it, usm_pool, link), v->arg);
    usm__mutex_unlock(&ctx->lock);
}

void usm__pools_each(usm__pool_visit *fn, void *arg)
{
    visit v = {fn, arg};

    usm__contexts_each(visit_pools, &v);
}

typedef struct live_sum {
    const usm_device *dev;
    uint64_t          bytes;
} live_sum;

static void add_live(usm_pool *pool, void *arg)
{
    live_sum *sum = arg;

    if (pool->ctx->devices[pool->index].dev == sum->dev && pool->kind != USM_HOST)
        sum->bytes += usm__pool_live(pool);
}

static uint64_t live_bytes(const usm_device *dev)
{
    live_sum sum = {dev, 0};

    usm__pools_each(add_live, &sum);
    return sum.bytes;
}

usm_status usm_device_memory(const usm_device *dev, usm_memory_info *info)
{
    uint64_t   total, free = USM_MEMORY_UNKNOWN;
    usm_status st = usm__handle_check(dev, USM__MAGIC_DEVICE);

    if (st == USM_OK)
        st = usm__struct_check("usm_device_memory", "info", info, sizeof *info,
                               "USM_MEMORY_INFO_INIT");
    if (st != USM_OK)
        return st;
    total = dev->desc.memory_size;
    if (usm__backend_can(dev->be, USM_CAP_MEMINFO)) {
        st = usm__be_device_memory(dev->be, dev->desc.handle, &total, &free);
        if (st != USM_OK)
            return st;
    }
    info->total  = total;
    info->free   = free;
    info->pooled = usm_load_relaxed(&((struct usm_device *)(uintptr_t)dev)->quota.reserved);
    info->ours   = live_bytes(dev);
    return USM_OK;
}

/* ---- the end of a context, and fork() ---------------------------------------------- */

void usm__pools_end(usm_context *ctx)
{
    usm_list *it;

    for (;;) {
        usm__mutex_lock(&ctx->lock);
        it = usm_list_pop(&ctx->pools);
        usm__mutex_unlock(&ctx->lock);
        if (!it)
            return;
        usm__pool_finish(usm_container_of(it, usm_pool, link));
    }
}

static void fork_pools(usm_context *ctx, usm_fork_phase phase)
{
    USM_LIST_FOREACH (it, &ctx->pools)
        usm__pool_fork(usm_container_of(it, usm_pool, link), phase);
}

void usm__pools_fork(usm_fork_phase phase)
{
    usm__contexts_each_in_fork(fork_pools, phase);
}

/* ---- slots of the default context --------------------------------------------------- */

_Atomic(uint8_t) usm__pools_default[4];

static void set_slot(void *arg)
{
    const usm_pool *pool = arg;

    usm_store_relaxed(&usm__pools_default[pool->kind], usm_load_relaxed(&pool->alloc_slot));
}

/* After the end of the default context the slot may be another pool's. */
void usm__pools_set_default(usm_pool *pool)
{
    if (usm_load_relaxed(&pool->alloc_slot))
        (void)usm__default_run(pool->ctx, set_slot, pool);
}

void usm__pools_clear_defaults(void)
{
    for (int kind = USM_HOST; kind <= USM_SHARED; kind++)
        usm_store_relaxed(&usm__pools_default[kind], (uint8_t)0);
}
