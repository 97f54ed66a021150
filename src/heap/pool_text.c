/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Statistics of pools as text and as JSON: usm_pool_describe(), and the size classes as the program
 * sees them.  The text is written directly into the caller's memory, and nothing is allocated, so
 * that this also works without memory.  Numbers are integers, which are the same in every locale.
 * heap/pool_report.c has the report of a failed allocation. */
#include "base/inline/bits.h"
#include "base/inline/plural.h"
#include "base/json.h"
#include "base/part.h"
#include "device/observer.h"
#include "heap/magazine.h"
#include "heap/pool.h"
#include "heap/slab.h"

#include <stdio.h>
#include <string.h>

const char *usm__kind_name(usm_kind kind)
{
    static const char *const names[] = {"unknown", "host", "device", "shared"};

    return names[(unsigned)kind <= USM_SHARED ? kind : 0];
}

/* ---- classes ------------------------------------------------------------------- */

size_t usm__pool_classes(usm_pool *pool, usm_pool_class *list, size_t cap)
{
    uint64_t cached[USM_BINS] = {0};
    size_t   n                = 0;

    if (!slab_is(pool->ops))
        return 0;
    if (pool->slot)
        usm__magazine_count(pool, cached);
    slab_get_classes(pool->impl, list, cap, &n);
    n = usm_min_size(n, cap);
    for (size_t i = 0; i < n; i++) {
        usm_pool_class *c = &list[i];
        unsigned        k = usm_class_of(c->size); /* size 0: larger than all classes */
        uint64_t        m = k < USM_BINS && usm_class_size(k) == c->size ? cached[k] : 0;

        /* Blocks may have moved between the two reads. */
        m = m < c->live ? m : c->live;
        c->live -= m;
        c->live_bytes -= m * c->size < c->live_bytes ? m * c->size : c->live_bytes;
        c->cached += m;
    }
    return n;
}

/* ---- rates, in millionths ------------------------------------------------------- */

#define MILLION    1000000u
#define MILLIONTHS 6 /* digits behind the point */

static uint32_t part_of(uint64_t part, uint64_t whole)
{
    if (part >= whole)
        return whole ? MILLION : 0;
    return (uint32_t)((double)part / (double)whole * MILLION);
}

/* The part of the allocations that needed no driver call. */
static uint32_t reuse_of(const usm_pool_stats *s)
{
    return s->driver_allocs < s->allocations
               ? part_of(s->allocations - s->driver_allocs, s->allocations)
               : 0;
}

/* The part of the free bytes that is outside the largest free block. */
static uint32_t fragmentation_of(const usm_pool_stats *s)
{
    uint64_t unused = s->reserved > s->live ? s->reserved - s->live : 0;

    return s->largest_free < unused ? part_of(unused - s->largest_free, unused) : 0;
}

/* ---- JSON ----------------------------------------------------------------------- */

static void put_json_stats(usm__json *j, const usm_pool_stats *s)
{
    usm__json_number(j, "live", s->live);
    usm__json_number(j, "live_peak", s->live_peak);
    usm__json_number(j, "live_peak_error", s->live_peak_error);
    usm__json_number(j, "reserved", s->reserved);
    usm__json_number(j, "reserved_peak", s->reserved_peak);
    usm__json_number(j, "asleep", s->asleep);
    usm__json_number(j, "blocks", s->blocks);
    usm__json_number(j, "allocations", s->allocations);
    usm__json_number(j, "frees", s->frees);
    usm__json_number(j, "driver_allocs", s->driver_allocs);
    usm__json_number(j, "driver_frees", s->driver_frees);
    usm__json_number(j, "largest_free", s->largest_free);
    usm__json_number(j, "thread_cached", s->thread_cached);
    usm__json_number(j, "depot_cached", s->depot_cached);
    usm__json_number(j, "threads", s->threads);
    usm__json_number(j, "depot_hits", s->depot_hits);
    usm__json_number(j, "depot_misses", s->depot_misses);
    if (s->allocations)
        usm__json_parts(j, "reuse", reuse_of(s), MILLIONTHS);
    else
        usm__json_null(j, "reuse");
    usm__json_parts(j, "fragmentation", fragmentation_of(s), MILLIONTHS);
}

/* The blocks that queues have freed in their order (usm/async.h). */
static usm__pool_queued queued_of(usm_pool *pool)
{
    usm__pool_queued f = {0};

    usm__parts_pool_figures(pool, &f);
    return f;
}

static void put_json_queued(usm__json *j, usm_pool *pool)
{
    const usm__pool_queued f = queued_of(pool);

    usm__json_number(j, "queued", f.bytes);
    usm__json_number(j, "queued_reuses", f.reuses);
    usm__json_number(j, "queued_events", f.events);
    usm__json_number(j, "queued_waits", f.waits);
    usm__json_number(j, "host_waits", f.host_waits);
}

static void put_json_classes(usm__json *j, const usm_pool_class *list, size_t n)
{
    usm__json_array_begin(j, "classes");
    for (size_t i = 0; i < n; i++) {
        const usm_pool_class *c = &list[i];

        usm__json_object_begin(j, NULL);
        usm__json_number(j, "size", c->size);
        usm__json_number(j, "live", c->live);
        usm__json_number(j, "live_bytes", c->live_bytes);
        usm__json_number(j, "cached", c->cached);
        usm__json_number(j, "held", c->held);
        usm__json_number(j, "allocations", c->allocations);
        usm__json_number(j, "depot_hits", c->depot_hits);
        usm__json_number(j, "depot_misses", c->depot_misses);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
}

static void put_json_pool(usm__json *j, usm_pool *pool)
{
    usm_pool_stats    stats = USM_POOL_STATS_INIT;
    usm_pool_class    list[USM__POOL_CLASSES];
    size_t            n   = usm__pool_classes(pool, list, USM__POOL_CLASSES);
    const usm_device *dev = pool->ctx->devices[pool->index].dev;

    usm__pool_stats(pool, &stats);
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "pool", pool->ops->name);
    usm__json_text(j, "kind", usm__kind_name(pool->kind));
    usm__json_text(j, "device", dev->term);
    usm__json_text(j, "device_name", dev->desc.name);
    usm__json_bool(j, "default", pool->is_default);
    put_json_stats(j, &stats);
    usm__json_number(j, "cache_limit", usm__pool_cache_limit(pool));
    put_json_queued(j, pool);
    put_json_classes(j, list, n);
    usm__json_object_end(j);
}

/* ---- text ----------------------------------------------------------------------- */

static void put_percent(usm__out *o, const char *before, uint32_t millionths)
{
    usm__out_put(o, "%s%u.%02u %%", before, millionths / 10000, millionths / 100 % 100);
}

static void put_text_stats(usm__out *o, const usm_pool_stats *s, uint64_t cache_limit)
{
    unsigned long long calls = s->allocations, driver = s->driver_allocs;

    usm__out_put(o, "  live           %-11s in %llu %s; peak %s", USM__SIZE_TEXT(s->live),
                 (unsigned long long)s->blocks, usm__plural(s->blocks, "block", "blocks"),
                 USM__SIZE_TEXT(s->live_peak));
    if (s->live_peak_error)
        usm__out_put(o, ", or up to %s more", USM__SIZE_TEXT(s->live_peak_error));
    usm__out_put(o, "\n  reserved       %-11s peak %s\n", USM__SIZE_TEXT(s->reserved),
                 USM__SIZE_TEXT(s->reserved_peak));
    if (s->asleep)
        usm__out_put(o, "  asleep         %-11s has addresses and no memory\n",
                     USM__SIZE_TEXT(s->asleep));
    usm__out_put(o, "  largest free   %-11s", USM__SIZE_TEXT(s->largest_free));
    put_percent(o, " fragmentation ", fragmentation_of(s));
    usm__out_put(o, "\n  allocations    %-11llu frees %llu\n", calls, (unsigned long long)s->frees);
    usm__out_put(o, "  driver calls   %-11llu to take, %llu to give back", driver,
                 (unsigned long long)s->driver_frees);
    if (calls)
        put_percent(o, "; reuse ", reuse_of(s));
    usm__out_put(o, "\n");
    if (s->threads || s->depot_cached)
        usm__out_put(o, "  cached         %-11s by %llu %s, %s between threads; at most %s\n",
                     USM__SIZE_TEXT(s->thread_cached), (unsigned long long)s->threads,
                     usm__plural(s->threads, "thread", "threads"), USM__SIZE_TEXT(s->depot_cached),
                     USM__SIZE_TEXT(cache_limit));
    if (s->depot_hits + s->depot_misses)
        usm__out_put(o, "  magazines      %-11llu filled from other threads, %llu from slabs\n",
                     (unsigned long long)s->depot_hits, (unsigned long long)s->depot_misses);
}

static void put_text_queued(usm__out *o, usm_pool *pool)
{
    const usm__pool_queued f = queued_of(pool);

    if (f.bytes || f.reuses || f.events)
        usm__out_put(o,
                     "  in queues      %-11s freed there; %llu %s taken again, %llu %s, "
                     "%llu waits in queues, %llu of the host\n",
                     USM__SIZE_TEXT(f.bytes), (unsigned long long)f.reuses,
                     usm__plural(f.reuses, "block", "blocks"), (unsigned long long)f.events,
                     usm__plural(f.events, "event", "events"), (unsigned long long)f.waits,
                     (unsigned long long)f.host_waits);
}

static void put_text_classes(usm__out *o, const usm_pool_class *list, size_t n)
{
    if (n)
        usm__out_put(o, "  %11s %10s %11s %10s %11s %12s %10s %10s\n", "class", "live", "bytes",
                     "cached", "held", "allocations", "depot hits", "misses");
    for (size_t i = 0; i < n; i++) {
        const usm_pool_class *c = &list[i];

        usm__out_put(o, "  %11s %10llu %11s %10llu %11s %12llu %10llu %10llu\n",
                     c->size ? USM__SIZE_TEXT(c->size) : "large", (unsigned long long)c->live,
                     USM__SIZE_TEXT(c->live_bytes), (unsigned long long)c->cached,
                     USM__SIZE_TEXT(c->held), (unsigned long long)c->allocations,
                     (unsigned long long)c->depot_hits, (unsigned long long)c->depot_misses);
    }
}

static void put_text_pool(usm__out *o, usm_pool *pool)
{
    usm_pool_stats    stats = USM_POOL_STATS_INIT;
    usm_pool_class    list[USM__POOL_CLASSES];
    size_t            n   = usm__pool_classes(pool, list, USM__POOL_CLASSES);
    const usm_device *dev = pool->ctx->devices[pool->index].dev;

    usm__pool_stats(pool, &stats);
    usm__out_put(o, "pool %s, %s memory, %s (%s)%s\n", pool->ops->name, usm__kind_name(pool->kind),
                 dev->term, dev->desc.name, pool->is_default ? ", default" : "");
    put_text_stats(o, &stats, usm__pool_cache_limit(pool));
    put_text_queued(o, pool);
    put_text_classes(o, list, n);
}

/* ---- all pools ------------------------------------------------------------------- */

static void list_json_pool(usm_pool *pool, void *arg)
{
    put_json_pool(arg, pool);
}

static void list_json_tag(const usm_tag_stats *tag, void *arg)
{
    usm__json *j = arg;

    usm__json_object_begin(j, NULL);
    usm__json_text(j, "name", tag->name);
    usm__json_number(j, "live", tag->live);
    usm__json_number(j, "live_peak", tag->live_peak);
    usm__json_number(j, "blocks", tag->blocks);
    usm__json_number(j, "allocations", tag->allocations);
    usm__json_object_end(j);
}

static void put_json_all(usm__json *j)
{
    usm__json_object_begin(j, NULL);
    usm__json_array_begin(j, "pools");
    usm__pools_each(list_json_pool, j);
    usm__json_array_end(j);
    usm__json_array_begin(j, "tags");
    usm__observer_each_tag(list_json_tag, j);
    usm__json_array_end(j);
    usm__json_object_end(j);
}

typedef struct listing {
    usm__out *o;
    size_t    n;
} listing;

static void list_text_pool(usm_pool *pool, void *arg)
{
    listing *l = arg;

    usm__out_put(l->o, "%s", l->n++ ? "\n" : "");
    put_text_pool(l->o, pool);
}

static void list_text_tag(const usm_tag_stats *tag, void *arg)
{
    listing *l = arg;

    if (l->n++ == 0)
        usm__out_put(l->o, "\n  %11s %11s %10s %12s  tag\n", "live", "peak", "blocks",
                     "allocations");
    usm__out_put(l->o, "  %11s %11s %10llu %12llu  %s\n", USM__SIZE_TEXT(tag->live),
                 USM__SIZE_TEXT(tag->live_peak), (unsigned long long)tag->blocks,
                 (unsigned long long)tag->allocations, tag->name);
}

static void put_text_all(usm__out *o)
{
    listing pools = {o, 0}, tags = {o, 0};

    usm__pools_each(list_text_pool, &pools);
    if (pools.n == 0)
        usm__out_put(o, "there are no pools yet\n");
    usm__observer_each_tag(list_text_tag, &tags);
}

usm_status usm_pool_describe(usm_pool *pool, usm_text_format format, char *text, size_t cap,
                             size_t *size)
{
    usm__json  j  = {.out = {.text = text, .cap = cap}};
    usm_status st = pool ? usm__pool_check(pool) : USM_OK;

    if (st != USM_OK)
        return st;
    if ((format != USM_TEXT && format != USM_JSON) || (!text && cap))
        return usm__fail(USM_E_INVALID, "usm_pool_describe: %s",
                         !text && cap ? "text is NULL and cap is not 0"
                                      : "format is neither USM_TEXT nor USM_JSON");
    if (format == USM_JSON && !pool)
        put_json_all(&j);
    else if (format == USM_JSON)
        put_json_pool(&j, pool);
    else if (!pool)
        put_text_all(&j.out);
    else
        put_text_pool(&j.out, pool);
    if (size)
        *size = j.out.used;
    return USM_OK;
}
