/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Attributes of pools: usm_pool_get_attribute(), usm_pool_set_attribute(), and the effect of the
 * threshold. */
#include "base/part.h"
#include "device/init.h"
#include "heap/pool.h"

/* ---- memory held beyond the threshold ----------------------------------------------------- */

#define AT_ONCE 32

/* True if the pool has a threshold and holds more than that. */
static bool is_excessive(const usm_pool *pool)
{
    uint64_t threshold = usm_load_relaxed(&pool->threshold);

    return threshold != 0 && usm_load_relaxed(&pool->held->reserved) > threshold;
}

void usm__pools_release_excess(usm_context *ctx)
{
    usm_pool *found[AT_ONCE];
    size_t    n = 0;

    if (!usm_load_relaxed(&ctx->has_thresholds))
        return;
    usm__mutex_lock(&ctx->lock);
    USM_LIST_FOREACH (it, &ctx->pools) {
        usm_pool *pool = usm_container_of(it, usm_pool, link);

        if (n < AT_ONCE && is_excessive(pool))
            found[n++] = pool;
    }
    usm__mutex_unlock(&ctx->lock);
    for (size_t i = 0; i < n; i++) /* a pool that commands of its context may use is not
                                      destroyed */
        (void)usm_pool_trim_to(found[i], (size_t)usm_load_relaxed(&found[i]->threshold));
}

void usm__pool_set_threshold(usm_pool *pool, uint64_t bytes)
{
    usm_store_relaxed(&pool->threshold, bytes);
    if (bytes)
        usm_store_relaxed(&pool->ctx->has_thresholds, true);
}

/* ---- the attributes ---------------------------------------------------------- */

/* The count since the pool was created. */
static uint64_t queued(usm_pool *pool, usm_pool_attribute which)
{
    usm__pool_queued f = {0};

    usm__parts_pool_figures(pool, &f);
    return which == USM_POOL_QUEUED_CURRENT  ? f.bytes
           : which == USM_POOL_QUEUED_REUSES ? f.reuses
           : which == USM_POOL_QUEUED_EVENTS ? f.events
           : which == USM_POOL_QUEUED_WAITS  ? f.waits
                                             : f.host_waits;
}

static _Atomic(uint64_t) *count_from(usm_pool *pool, usm_pool_attribute which)
{
    return &pool->counts_from[which - USM_POOL_QUEUED_REUSES];
}

static uint64_t used(usm_pool *pool, bool peak)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;
    uint64_t       away  = peak ? 0 : queued(pool, USM_POOL_QUEUED_CURRENT);

    usm__pool_stats(pool, &stats);
    if (peak)
        return stats.live_peak;
    return stats.live > away ? stats.live - away : 0;
}

static uint64_t cached(usm_pool *pool)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    usm__pool_stats(pool, &stats);
    return stats.thread_cached + stats.depot_cached;
}

static uint32_t reuse_of(usm_pool_attribute which)
{
    return which == USM_POOL_REUSE_FOLLOW_EVENTS   ? USM__REUSE_FOLLOW_EVENTS
           : which == USM_POOL_REUSE_OPPORTUNISTIC ? USM__REUSE_OPPORTUNISTIC
                                                   : USM__REUSE_INSERT_WAITS;
}

static usm_status get(usm_pool *pool, usm_pool_attribute which, uint64_t *value)
{
    switch (which) {
    case USM_POOL_THRESHOLD:
        *value = usm_load_relaxed(&pool->threshold);
        break;
    case USM_POOL_MAXIMUM_SIZE:
        *value = pool->maximum_size;
        break;
    case USM_POOL_ZERO_INIT:
        *value = pool->zero_init;
        break;
    case USM_POOL_READ_ONLY:
        *value = pool->read_only;
        break;
    case USM_POOL_EXPORT_MODE:
        *value = pool->export_mode;
        break;
    case USM_POOL_RESERVED_CURRENT:
        *value = usm_load_relaxed(&pool->held->reserved);
        break;
    case USM_POOL_RESERVED_HIGH:
        *value = usm_load_relaxed(&pool->held->reserved_peak);
        break;
    case USM_POOL_USED_CURRENT:
    case USM_POOL_USED_HIGH:
        *value = used(pool, which == USM_POOL_USED_HIGH);
        break;
    case USM_POOL_REUSE_FOLLOW_EVENTS:
    case USM_POOL_REUSE_OPPORTUNISTIC:
    case USM_POOL_REUSE_INSERT_WAITS:
        *value = (usm_load_relaxed(&pool->reuse) & reuse_of(which)) != 0;
        break;
    case USM_POOL_QUEUED_CURRENT:
        *value = queued(pool, which);
        break;
    case USM_POOL_QUEUED_REUSES:
    case USM_POOL_QUEUED_EVENTS:
    case USM_POOL_QUEUED_WAITS:
    case USM_POOL_HOST_WAITS:
        *value = queued(pool, which) - usm_load_relaxed(count_from(pool, which));
        break;
    case USM_POOL_CACHED_CURRENT:
        *value = cached(pool);
        break;
    case USM_POOL_CACHED_LIMIT:
        *value = usm__pool_cache_limit(pool);
        break;
    default:
        return usm__fail(USM_E_INVALID, "%d is not an attribute of pools", (int)which);
    }
    return USM_OK;
}

usm_status usm_pool_get_attribute(usm_pool *pool, usm_pool_attribute which, uint64_t *value)
{
    usm_status st = usm__pool_check(pool);

    if (st == USM_OK && !value)
        st = usm__fail(USM_E_INVALID, "usm_pool_get_attribute: value is NULL");
    return st == USM_OK ? get(pool, which, value) : st;
}

static usm_status set_reuse(usm_pool *pool, usm_pool_attribute which, uint64_t value)
{
    if (value > 1)
        return usm__fail(USM_E_INVALID, "attribute %d is 0 or 1, not %llu", (int)which,
                         (unsigned long long)value);
    if (value)
        (void)atomic_fetch_or_explicit(&pool->reuse, reuse_of(which), memory_order_relaxed);
    else
        (void)atomic_fetch_and_explicit(&pool->reuse, ~reuse_of(which), memory_order_relaxed);
    return USM_OK;
}

static usm_status reset(usm_pool *pool, usm_pool_attribute which, uint64_t value)
{
    if (value != 0)
        return usm__fail(USM_E_INVALID, "attribute %d can be set to 0 only, not to %llu",
                         (int)which, (unsigned long long)value);
    if (which >= USM_POOL_QUEUED_REUSES)
        usm_store_relaxed(count_from(pool, which), queued(pool, which));
    else if (which == USM_POOL_USED_HIGH)
        pool->ops->reset_peaks(pool->impl);
    else
        usm_store_relaxed(&pool->held->reserved_peak, usm_load_relaxed(&pool->held->reserved));
    return USM_OK;
}

usm_status usm_pool_set_attribute(usm_pool *pool, usm_pool_attribute which, uint64_t value)
{
    uint64_t   now;
    usm_status st = usm_pool_get_attribute(pool, which, &now);

    if (st != USM_OK)
        return st;
    if (which == USM_POOL_THRESHOLD)
        usm__pool_set_threshold(pool, value);
    else if (which >= USM_POOL_REUSE_FOLLOW_EVENTS && which <= USM_POOL_REUSE_INSERT_WAITS)
        st = set_reuse(pool, which, value);
    else if (which == USM_POOL_RESERVED_HIGH || which == USM_POOL_USED_HIGH ||
             (which >= USM_POOL_QUEUED_REUSES && which <= USM_POOL_HOST_WAITS))
        st = reset(pool, which, value);
    else
        st = usm__fail(USM_E_INVALID, "attribute %d of a pool cannot be set", (int)which);
    return st;
}

usm_context *usm_pool_get_context(usm_pool *pool)
{
    return usm__pool_check(pool) == USM_OK ? pool->ctx : NULL;
}

usm_device *usm_pool_get_device(usm_pool *pool)
{
    return usm__pool_check(pool) == USM_OK ? pool->ctx->devices[pool->index].dev : NULL;
}

usm_kind usm_pool_get_kind(usm_pool *pool)
{
    return usm__pool_check(pool) == USM_OK ? pool->kind : USM_UNKNOWN;
}
