/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools: creation and destruction; default pools, and the choices of USM_POOL and of descriptors.
 * heap/pool.c has their use. */
#include "heap/pool.h"

#include "base/inline/bits.h"
#include "base/inline/plural.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "base/part.h"
#include "base/settings.h"
#include "base/trace.h"
#include "device/init.h"
#include "device/observer.h"
#include "heap/export.h"
#include "heap/magazine.h"
#include "heap/pool_setting.h"
#include "heap/slab.h"
#include "heap/sleep.h"

#include <string.h>

#define DEFAULT_POOL "slab"
#define NO_CACHES    1u /* usm_pool_desc.thread_cache */

/* The part that the fast path reads of a stale handle stays valid: alloc_slot is 0 then. */
static usm__meta_type pool_type =
    USM__META_TYPE(struct usm_pool, offsetof(struct usm_pool, ops), "pools");

/* ---- creation ------------------------------------------------------------------ */

static usm_aspect aspect_of(usm_kind kind)
{
    return kind == USM_HOST     ? USM_ASPECT_USM_HOST_ALLOCATIONS
           : kind == USM_DEVICE ? USM_ASPECT_USM_DEVICE_ALLOCATIONS
                                : USM_ASPECT_USM_SHARED_ALLOCATIONS;
}

usm_status usm__kind_check(usm_kind kind)
{
    if (usm__is_kind(kind))
        return USM_OK;
    return usm__fail(
        USM_E_KIND,
        "%lld is not a kind of memory (USM_HOST 1, USM_DEVICE 2, USM_SHARED 3): were size "
        "and kind swapped?",
        (long long)(int)kind);
}

static usm_status check_kind(const usm_device *dev, usm_kind kind)
{
    usm_status st = usm__kind_check(kind);

    if (st == USM_OK && !usm_device_has(dev, aspect_of(kind)))
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "%s (%s) has no %s memory: use %s, or a device that has it (see usm-info)",
                         dev->term, dev->desc.name, usm__kind_name(kind),
                         usm_device_has(dev, USM_ASPECT_USM_DEVICE_ALLOCATIONS)
                             ? "device memory and copies, or a usm_buffer"
                             : "memory of another kind");
    return st;
}

bool usm__pool_host_may_touch(const usm_pool *pool)
{
    return pool->kind != USM_DEVICE && !usm__backend_can(pool->ctx->be, USM_CAP_NO_ACCESS);
}

uint64_t usm__pool_memory(const usm_pool *pool)
{
    return pool->kind == USM_HOST && usm__pool_host_may_touch(pool)
               ? usm__quota_memory_total()
               : pool->ctx->devices[pool->index].dev->desc.memory_size;
}

static usm_status start_pool(usm_pool *pool, const usm_pool_desc *desc)
{
    usm_pool_params params = {
        .struct_size     = sizeof params,
        .api             = &usm__registry_api,
        .areas           = {pool, usm__area_take, usm__area_give},
        .kind            = pool->kind,
        .host_accessible = usm__pool_host_may_touch(pool),
        .default_align   = usm_max_size(USM__POOL_ALIGN, desc->min_align),
        .area_size       = desc->area_size,
        .maximum_size    = pool->maximum_size,
        .memory_size     = (size_t)usm__pool_memory(pool),
        .retain          = desc->retain,
        .retain_ms       = desc->retain_ms,
        .options         = pool->options,
    };

    return pool->ops->create(&params, &pool->impl);
}

/* Fields that the descriptor leaves open are taken from USM_POOL.  If the caller named the pool,
 * only the descriptor counts. */
static void complete(usm_pool_desc *desc, usm__pool_choice *chosen, usm_kind kind)
{
    if (desc->name) {
        memset(chosen, 0, sizeof *chosen);
        return;
    }
    usm__pool_choose(kind, chosen);
    desc->name = chosen->name[0] ? chosen->name : DEFAULT_POOL;
    if (!desc->area_size)
        desc->area_size = (size_t)chosen->area_size;
    if (!desc->maximum_size)
        desc->maximum_size = (size_t)chosen->maximum_size;
    if (!desc->min_align)
        desc->min_align = (size_t)chosen->min_align;
    if (!desc->retain)
        desc->retain = (size_t)chosen->retain;
    if (!desc->retain_ms)
        desc->retain_ms = chosen->retain_ms;
    if (!desc->thread_cache)
        desc->thread_cache = (size_t)chosen->thread_cache;
    desc->zero_init |= chosen->zero_init;
}

/* No process has more addresses: rounding up a smaller size does not overflow. */
#define AREA_MAX ((size_t)1 << 47)

static usm_status check_area_size(size_t size)
{
    if (size <= AREA_MAX)
        return USM_OK;
    return usm__fail(USM_E_SIZE, "area_size: %zu bytes exceed the address space", size);
}

static usm_pool *new_pool(usm_context *ctx, size_t index, usm_kind kind, const usm_pool_desc *desc)
{
    usm_pool *pool = usm__meta_alloc(&pool_type);

    if (!pool) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a pool");
        return NULL;
    }
    pool->held         = &pool->own_held;
    pool->ctx          = ctx;
    pool->index        = index;
    pool->kind         = kind;
    pool->min_align    = desc->min_align;
    pool->maximum_size = desc->maximum_size;
    pool->thread_cache = desc->thread_cache;
    pool->zero_init    = desc->zero_init;
    pool->read_only    = desc->read_only;
    pool->tag          = usm__tagged ? usm__observer_get()->tag_name() : NULL;
    usm__pool_set_threshold(pool, (uint64_t)desc->threshold);
    usm_store_relaxed(&pool->reuse, (uint32_t)USM__REUSE_ALL);
    pool->export_mode = desc->export_mode;
    usm_list_init(&pool->link);
    usm_list_init(&pool->areas);
    usm_list_init(&pool->caches);
    usm__mutex_init(&pool->lock, USM__RANK_POOL, "pool");
    pool->moved = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    return pool;
}

static void drop_pool(usm_pool *pool)
{
    usm__parts_pool_freed(pool);
    usm__magazine_slot_give(pool);
    usm__mutex_fini(&pool->lock);
    usm__meta_free(&pool_type, pool);
}

static void open_pool(usm_pool *pool)
{
    /* Zeroing and a minimum alignment are left to the slow path. */
    if (!pool->zero_init && pool->min_align <= USM__POOL_ALIGN)
        usm_store_relaxed(&pool->alloc_slot, pool->slot);
    usm_store_release(&pool->magic, (uint32_t)USM__MAGIC_POOL);
}

/* Chooses the pool's functions.  Where the driver moves shared memory by whole allocations, two
 * blocks in one allocation would overwrite each other's data.  There `whole` replaces the pools
 * that cut, except a pool that was requested by name and has a reset, which `whole` has not.  NULL
 * with an error message. */
static const usm_pool_ops *choose_ops(const usm_pool *pool, const char *name, bool is_named)
{
    const usm_device   *dev = pool->ctx->devices[pool->index].dev;
    const usm_pool_ops *ops = usm__registry_pool(name);

    if (!ops || pool->kind != USM_SHARED || !dev->desc.shared_moves_whole ||
        (ops->caps & USM_POOL_CAP_WHOLE))
        return ops;
    if (is_named && (ops->caps & USM_POOL_CAP_RESET)) {
        (void)usm__fail(
            USM_E_NOT_SUPPORTED,
            "the driver of %s moves shared memory by whole allocations, so that blocks "
            "of the pool \"%s\", which lie in one, would overwrite each other: take the "
            "pool \"whole\" or \"direct\", or host or device memory",
            dev->term, name);
        return NULL;
    }
    usm__info("shared memory of %s migrates by whole allocations: it comes from the pool "
              "\"whole\", not \"%s\"",
              dev->term, name);
    return usm__registry_pool("whole");
}

static usm_status make_pool(usm_context *ctx, size_t index, usm_kind kind,
                            const usm_pool_desc *desc, usm_pool **out)
{
    usm_pool_desc    d = *desc;
    usm__pool_choice chosen;
    usm_pool        *pool;
    usm_status       st = check_kind(ctx->devices[index].dev, kind);

    if (st == USM_OK && d.export_mode != USM_POOL_PRIVATE && !usm__parts_exports())
        st =
            usm__fail(USM_E_NOT_SUPPORTED, "this libusm was built without IPC, so no pool exports");
    if (st == USM_OK && d.export_mode != USM_POOL_PRIVATE && usm__context_is_inert(ctx))
        st = usm__fail(USM_E_FORKED, "a pool that exports cannot be made in a context of before "
                                     "fork(); make a context in the child");
    if (st != USM_OK)
        return st;
    usm__parts_observe(); /* settings of the trace and of checks may change until the first pool */
    complete(&d, &chosen, kind);
    st = check_area_size(d.area_size);
    if (st != USM_OK)
        return st;
    pool = new_pool(ctx, index, kind, &d);
    if (!pool)
        return USM_E_NO_MEMORY;
    pool->ops = choose_ops(pool, d.name, desc->name != NULL);
    if (pool->ops && usm_load_relaxed(&usm__trace_on)) /* before the pool takes an area */
        pool->trace_id =
            usm__tracer_now->pool(pool->ops->name, kind, ctx->devices[index].dev->term);
    /* The free of a block that other processes may have open must be seen: no cache may take it. */
    if (pool->ops && slab_is(pool->ops) && pool->export_mode == USM_POOL_PRIVATE &&
        pool->thread_cache != NO_CACHES)
        pool->slot = usm__magazine_slot(pool);
    if (pool->ops)
        usm__parts_pool_made(pool);
    pool->options = chosen.options; /* only during creation */
    st            = pool->ops ? start_pool(pool, &d) : usm_last_status();
    pool->options = NULL;
    if (st != USM_OK) {
        drop_pool(pool);
        return st;
    }
    open_pool(pool);
    *out = pool;
    return USM_OK;
}

static void publish(usm_pool *pool)
{
    usm__mutex_lock(&pool->ctx->lock);
    usm_list_append(&pool->ctx->pools, &pool->link);
    usm__mutex_unlock(&pool->ctx->lock);
}

static void withdraw(usm_pool *pool)
{
    usm__mutex_lock(&pool->ctx->lock);
    usm_list_remove(&pool->link);
    usm__mutex_unlock(&pool->ctx->lock);
}

/* The part that programs built before `read_only` existed know. */
#define OLD_POOL_DESC offsetof(usm_pool_desc, export_mode)

/* *full gets the caller's fields, and the others from USM_POOL_DESC_INIT. */
static usm_status complete_desc(const usm_pool_desc *given, usm_pool_desc *full)
{
    *full = (usm_pool_desc)USM_POOL_DESC_INIT;
    if (!given)
        return USM_OK;
    if (given->struct_size < OLD_POOL_DESC)
        return usm__fail(USM_E_ABI, "usm_pool_create: struct_size is too small; start with "
                                    "USM_POOL_DESC_INIT");
    memcpy(full, given, usm_min_size(given->struct_size, sizeof *full));
    return USM_OK;
}

static usm_status check_desc(const usm_pool_desc *desc)
{
    if (desc->min_align && (!usm_is_pow2(desc->min_align) || desc->min_align > USM_MAX_ALIGNMENT))
        return usm__fail(USM_E_ALIGNMENT, "min_align %zu is not a power of two up to 2 MiB",
                         desc->min_align);
    if (desc->export_mode > USM_POOL_EXPORT_RO)
        return usm__fail(USM_E_INVALID, "export_mode %u is none of usm_pool_export",
                         desc->export_mode);
    return USM_OK;
}

usm_status usm_pool_create(usm_context *ctx, usm_device *dev, usm_kind kind,
                           const usm_pool_desc *desc, usm_pool **pool)
{
    usm_pool_desc full;
    size_t        index = 0;
    usm_status    st    = usm__context_resolve(&ctx);

    if (st == USM_OK)
        st = usm__context_device_index(ctx, dev, &index);
    if (st == USM_OK && !pool)
        st = usm__fail(USM_E_INVALID, "usm_pool_create: pool is NULL");
    if (st == USM_OK)
        st = complete_desc(desc, &full);
    if (st == USM_OK)
        st = check_desc(&full);
    if (st == USM_OK)
        st = make_pool(ctx, index, kind, &full, pool);
    if (st == USM_OK)
        publish(*pool);
    return st;
}

usm_pool *usm__pool_of(usm_context *ctx, size_t index, usm_kind kind)
{
    const usm_pool_desc  desc = USM_POOL_DESC_INIT;
    _Atomic(usm_pool *) *slot;
    usm_pool            *pool, *expected = NULL;

    if (usm__kind_check(kind) != USM_OK)
        return NULL;
    if (kind == USM_HOST)
        index = 0; /* one for the context: host memory belongs to no device */
    slot = &ctx->devices[index].pools[kind];
    pool = usm_load_acquire(slot);
    if (pool || make_pool(ctx, index, kind, &desc, &pool) != USM_OK)
        return pool;
    pool->is_default = true;
    publish(pool); /* before its first use: fork() goes through the list */
    if (usm_cas_acq_rel(slot, &expected, pool))
        return pool;
    withdraw(pool); /* another thread was faster */
    usm__pool_finish(pool);
    return expected;
}

usm_pool *usm_pool_default(usm_context *ctx, usm_device *dev, usm_kind kind)
{
    size_t index = 0;

    ctx = usm__context_or_default(ctx);
    if (!ctx || usm__context_device_index(ctx, dev, &index) != USM_OK)
        return NULL;
    return usm__pool_of(ctx, index, kind);
}

usm_status usm__pool_check(usm_pool *pool)
{
    if (!pool || !usm__handle_is(pool, USM__MAGIC_POOL)) {
        (void)usm__handle_refuse(pool, USM__MAGIC_POOL);
        return USM_E_INVALID_HANDLE;
    }
    if (usm__pool_is_inert(pool))
        return usm__fail(USM_E_FORKED, "the pool was made before fork(); make one in the child");
    return USM_OK;
}

/* ---- figures -------------------------------------------------------------------- */

/* A pool with caches counts the blocks it moved to caches: those that are still there are not
 * live. */
void usm__pool_stats(usm_pool *pool, usm_pool_stats *stats)
{
    const size_t      struct_size = stats->struct_size;
    usm__magazine_sum cached;

    *stats = (usm_pool_stats){.struct_size = struct_size};
    usm__magazine_sum_up(pool, &cached);
    stats->threads       = cached.threads;
    stats->thread_cached = cached.bytes;
    stats->blocks        = cached.blocks; /* input for the pool: the number to subtract */
    pool->ops->get_stats(pool->impl, stats);
    stats->asleep        = usm_load_relaxed(&pool->asleep);
    stats->reserved      = usm_load_relaxed(&pool->held->reserved);
    stats->reserved_peak = usm_load_relaxed(&pool->held->reserved_peak);
    stats->driver_allocs = usm_load_relaxed(&pool->held->driver_allocs);
    stats->driver_frees  = usm_load_relaxed(&pool->held->driver_frees);
}

uint64_t usm__pool_cache_limit(const usm_pool *pool)
{
    return slab_is(pool->ops) ? slab_cache_limit(pool->impl) : 0;
}

/* ---- end ------------------------------------------------------------------------ */

static void list_blocks_out(usm_pool *pool)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    usm__pool_stats(pool, &stats);
    if (stats.blocks && usm__setting_bool("validation"))
        usm__warn("a pool of %s was destroyed with %llu %s (%llu bytes) still out",
                  pool->ctx->devices[pool->index].dev->term, (unsigned long long)stats.blocks,
                  usm__plural(stats.blocks, "block", "blocks"), (unsigned long long)stats.live);
}

void usm__pool_finish(usm_pool *pool)
{
    usm__pool_await_guests(pool);
    if (usm_load_acquire(&pool->async))
        usm__parts_pool_ending(pool);
    list_blocks_out(pool);
    if (usm__observer_get())
        usm__observer_get()->pool_ended(pool);
    if (pool->export_mode != USM_POOL_PRIVATE)
        usm__parts_exports()->finish(pool);
    usm_store_release(&pool->magic, (uint32_t)USM__MAGIC_DEAD);
    usm__magazine_retire(pool);
    pool->ops->destroy(pool->impl);
    if (pool->sleeper)
        pool->sleeper->pool_ended(pool->sleeper);
    drop_pool(pool);
}

void usm_pool_destroy(usm_pool *pool)
{
    if (!pool || usm__handle_check(pool, USM__MAGIC_POOL) != USM_OK)
        return;
    if (pool->is_default) {
        usm__warn("usm_pool_destroy: a default pool is its context's");
        return;
    }
    if (usm__pool_check(pool) != USM_OK || !usm__handle_kill(pool, USM__MAGIC_POOL))
        return;
    withdraw(pool);
    usm__pool_finish(pool);
}
