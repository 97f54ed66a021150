/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools' statistics as text and as JSON: usm_pool_describe(), and the classes as the program sees
 * them.  Written straight into the caller's memory: nothing is allocated, so that it works when
 * there is no memory.  Numbers are integers, which no locale spells otherwise.  The report of a
 * failed allocation is core/pool_report.c's. */
#include "base/inline/bits.h"
#include "base/text.h"
#include "core/magazine.h"
#include "core/pool.h"
#include "core/tag.h"

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

    if (!(pool->ops->caps & USM_POOL_CAP_CLASS))
        return 0;
    if (pool->slot)
        usm__magazine_count(pool, cached);
    pool->ops->get_classes(pool->impl, list, cap, &n);
    n = usm_min_size(n, cap);
    for (size_t i = 0; i < n; i++) {
        usm_pool_class *c = &list[i];
        unsigned        k = usm_class_of(c->size); /* size 0: beyond all */
        uint64_t        m = k < USM_BINS && usm_class_size(k) == c->size ? cached[k] : 0;

        /* Blocks may have moved between the two looks. */
        m = m < c->live ? m : c->live;
        c->live -= m;
        c->live_bytes -= m * c->size < c->live_bytes ? m * c->size : c->live_bytes;
        c->cached += m;
    }
    return n;
}

/* ---- writing ------------------------------------------------------------------- */

/* Counts all and writes what fits, as snprintf() does. */
typedef struct out {
    char  *text;
    size_t cap, used;
} out;

USM_PRINTF(2, 3) static void put(out *o, const char *format, ...)
{
    __builtin_va_list args;
    size_t            room = o->used < o->cap ? o->cap - o->used : 0;
    int               n;

    __builtin_va_start(args, format);
    n = vsnprintf(room ? o->text + o->used : NULL, room, format, args);
    __builtin_va_end(args);
    if (n > 0)
        o->used += (size_t)n;
}

/* The bytes of the UTF-8 character at s; 0 when it is none. */
static size_t utf8_length(const unsigned char *s)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    unsigned code = n > 1 ? s[0] & (0x7fu >> n) : s[0];

    for (size_t i = 1; i < n; i++) { /* stops at the end of the text: 0 is no continuation */
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    if (n > 1 && (code < least[n] || code > 0x10ffff || code >> 11 == 0xd800 >> 11))
        return 0;
    return n;
}

/* A JSON string; what is no UTF-8 becomes U+FFFD. */
static void put_string(out *o, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    put(o, "\"");
    while (*s) {
        size_t n = utf8_length(s);

        if (n == 0)
            put(o, "\\ufffd");
        else if (*s == '"' || *s == '\\')
            put(o, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f)
            put(o, "\\u%04x", *s);
        else
            put(o, "%.*s", (int)n, (const char *)s);
        s += n ? n : 1;
    }
    put(o, "\"");
}

static void put_number(out *o, const char *name, uint64_t value)
{
    put(o, ",\"%s\":%llu", name, (unsigned long long)value);
}

/* ---- rates, in millionths ------------------------------------------------------- */

#define MILLION 1000000u

static uint32_t part_of(uint64_t part, uint64_t whole)
{
    if (part >= whole)
        return whole ? MILLION : 0;
    return (uint32_t)((double)part / (double)whole * MILLION);
}

/* Of the allocations, those that needed no driver call. */
static uint32_t reuse_of(const usm_pool_stats *s)
{
    return s->driver_allocs < s->allocations
               ? part_of(s->allocations - s->driver_allocs, s->allocations)
               : 0;
}

/* Of the free bytes, those that are not in the largest free block. */
static uint32_t fragmentation_of(const usm_pool_stats *s)
{
    uint64_t unused = s->reserved > s->live ? s->reserved - s->live : 0;

    return s->largest_free < unused ? part_of(unused - s->largest_free, unused) : 0;
}

/* ---- JSON ----------------------------------------------------------------------- */

static void put_rate(out *o, const char *name, uint32_t millionths)
{
    put(o, ",\"%s\":%u.%06u", name, millionths / MILLION, millionths % MILLION);
}

static void put_json_stats(out *o, const usm_pool_stats *s)
{
    put_number(o, "live", s->live);
    put_number(o, "live_peak", s->live_peak);
    put_number(o, "live_peak_error", s->live_peak_error);
    put_number(o, "reserved", s->reserved);
    put_number(o, "reserved_peak", s->reserved_peak);
    put_number(o, "blocks", s->blocks);
    put_number(o, "allocations", s->allocations);
    put_number(o, "frees", s->frees);
    put_number(o, "driver_allocs", s->driver_allocs);
    put_number(o, "driver_frees", s->driver_frees);
    put_number(o, "largest_free", s->largest_free);
    put_number(o, "thread_cached", s->thread_cached);
    put_number(o, "depot_cached", s->depot_cached);
    put_number(o, "threads", s->threads);
    put_number(o, "depot_hits", s->depot_hits);
    put_number(o, "depot_misses", s->depot_misses);
    if (s->allocations)
        put_rate(o, "reuse", reuse_of(s));
    else
        put(o, ",\"reuse\":null");
    put_rate(o, "fragmentation", fragmentation_of(s));
}

static void put_json_classes(out *o, const usm_pool_class *list, size_t n)
{
    put(o, ",\"classes\":[");
    for (size_t i = 0; i < n; i++) {
        const usm_pool_class *c = &list[i];

        put(o, "%s{\"size\":%zu", i ? "," : "", c->size);
        put_number(o, "live", c->live);
        put_number(o, "live_bytes", c->live_bytes);
        put_number(o, "cached", c->cached);
        put_number(o, "held", c->held);
        put_number(o, "allocations", c->allocations);
        put_number(o, "depot_hits", c->depot_hits);
        put_number(o, "depot_misses", c->depot_misses);
        put(o, "}");
    }
    put(o, "]");
}

static void put_json_pool(out *o, usm_pool *pool)
{
    usm_pool_stats    stats = USM_POOL_STATS_INIT;
    usm_pool_class    list[USM__POOL_CLASSES];
    size_t            n   = usm__pool_classes(pool, list, USM__POOL_CLASSES);
    const usm_device *dev = pool->ctx->devices[pool->index].dev;

    usm__pool_stats(pool, &stats);
    put(o, "{\"pool\":");
    put_string(o, pool->ops->name);
    put(o, ",\"kind\":\"%s\",\"device\":", usm__kind_name(pool->kind));
    put_string(o, dev->term);
    put(o, ",\"device_name\":");
    put_string(o, dev->desc.name);
    put(o, ",\"default\":%s", pool->is_default ? "true" : "false");
    put_json_stats(o, &stats);
    put_json_classes(o, list, n);
    put(o, "}");
}

/* ---- text ----------------------------------------------------------------------- */

/* The room of one size: "1023.9 MiB". */
typedef char size_text[16];

#define TEXT_OF(bytes) usm__format_bytes((bytes), (size_text){0}, sizeof(size_text))

static void put_percent(out *o, const char *before, uint32_t millionths)
{
    put(o, "%s%u.%02u %%", before, millionths / 10000, millionths / 100 % 100);
}

static void put_text_stats(out *o, const usm_pool_stats *s)
{
    unsigned long long calls = s->allocations, driver = s->driver_allocs;

    put(o, "  live           %-11s in %llu blocks; peak %s", TEXT_OF(s->live),
        (unsigned long long)s->blocks, TEXT_OF(s->live_peak));
    if (s->live_peak_error)
        put(o, ", or up to %s more", TEXT_OF(s->live_peak_error));
    put(o, "\n  reserved       %-11s peak %s\n", TEXT_OF(s->reserved), TEXT_OF(s->reserved_peak));
    put(o, "  largest free   %-11s", TEXT_OF(s->largest_free));
    put_percent(o, " fragmentation ", fragmentation_of(s));
    put(o, "\n  allocations    %-11llu frees %llu\n", calls, (unsigned long long)s->frees);
    put(o, "  driver calls   %-11llu to take, %llu to give back", driver,
        (unsigned long long)s->driver_frees);
    if (calls)
        put_percent(o, "; reuse ", reuse_of(s));
    put(o, "\n");
    if (s->threads || s->depot_cached)
        put(o, "  cached         %-11s by %llu threads, %s between threads\n",
            TEXT_OF(s->thread_cached), (unsigned long long)s->threads, TEXT_OF(s->depot_cached));
    if (s->depot_hits + s->depot_misses)
        put(o, "  magazines      %-11llu from other threads, %llu filled anew\n",
            (unsigned long long)s->depot_hits, (unsigned long long)s->depot_misses);
}

static void put_text_classes(out *o, const usm_pool_class *list, size_t n)
{
    if (n)
        put(o, "  %11s %10s %11s %10s %11s %12s %10s %10s\n", "class", "live", "bytes", "cached",
            "held", "allocations", "depot hits", "misses");
    for (size_t i = 0; i < n; i++) {
        const usm_pool_class *c = &list[i];

        put(o, "  %11s %10llu %11s %10llu %11s %12llu %10llu %10llu\n",
            c->size ? TEXT_OF(c->size) : "large", (unsigned long long)c->live,
            TEXT_OF(c->live_bytes), (unsigned long long)c->cached, TEXT_OF(c->held),
            (unsigned long long)c->allocations, (unsigned long long)c->depot_hits,
            (unsigned long long)c->depot_misses);
    }
}

static void put_text_pool(out *o, usm_pool *pool)
{
    usm_pool_stats    stats = USM_POOL_STATS_INIT;
    usm_pool_class    list[USM__POOL_CLASSES];
    size_t            n   = usm__pool_classes(pool, list, USM__POOL_CLASSES);
    const usm_device *dev = pool->ctx->devices[pool->index].dev;

    usm__pool_stats(pool, &stats);
    put(o, "pool %s, %s memory, %s (%s)%s\n", pool->ops->name, usm__kind_name(pool->kind),
        dev->term, dev->desc.name, pool->is_default ? ", default" : "");
    put_text_stats(o, &stats);
    put_text_classes(o, list, n);
}

/* ---- all pools ------------------------------------------------------------------- */

typedef struct listing {
    out   *o;
    size_t n;
} listing;

static void list_json_pool(usm_pool *pool, void *arg)
{
    listing *l = arg;

    put(l->o, "%s", l->n++ ? "," : "");
    put_json_pool(l->o, pool);
}

static void list_text_pool(usm_pool *pool, void *arg)
{
    listing *l = arg;

    put(l->o, "%s", l->n++ ? "\n" : "");
    put_text_pool(l->o, pool);
}

static void list_json_tag(const usm_tag_stats *tag, void *arg)
{
    listing *l = arg;

    put(l->o, "%s{\"name\":", l->n++ ? "," : "");
    put_string(l->o, tag->name);
    put_number(l->o, "live", tag->live);
    put_number(l->o, "live_peak", tag->live_peak);
    put_number(l->o, "blocks", tag->blocks);
    put_number(l->o, "allocations", tag->allocations);
    put(l->o, "}");
}

static void list_text_tag(const usm_tag_stats *tag, void *arg)
{
    listing *l = arg;

    if (l->n++ == 0)
        put(l->o, "\n  %11s %11s %10s %12s  tag\n", "live", "peak", "blocks", "allocations");
    put(l->o, "  %11s %11s %10llu %12llu  %s\n", TEXT_OF(tag->live), TEXT_OF(tag->live_peak),
        (unsigned long long)tag->blocks, (unsigned long long)tag->allocations, tag->name);
}

static void put_all(out *o, bool json)
{
    listing pools = {o, 0}, tags = {o, 0};

    put(o, "%s", json ? "{\"pools\":[" : "");
    usm__contexts_each_pool(json ? list_json_pool : list_text_pool, &pools);
    if (!json && pools.n == 0)
        put(o, "there are no pools yet\n");
    put(o, "%s", json ? "],\"tags\":[" : "");
    usm__tags_each(json ? list_json_tag : list_text_tag, &tags);
    put(o, "%s", json ? "]}" : "");
}

usm_status usm_pool_describe(usm_pool *pool, usm_text_format format, char *text, size_t cap,
                             size_t *size)
{
    out        o  = {text, cap, 0};
    usm_status st = pool ? usm__pool_check(pool) : USM_OK;

    if (st != USM_OK)
        return st;
    if ((format != USM_TEXT && format != USM_JSON) || (!text && cap))
        return usm__fail(USM_E_INVALID, "usm_pool_describe: %s",
                         !text && cap ? "text is NULL and cap is not 0"
                                      : "format is neither USM_TEXT nor USM_JSON");
    if (!pool)
        put_all(&o, format == USM_JSON);
    else if (format == USM_JSON)
        put_json_pool(&o, pool);
    else
        put_text_pool(&o, pool);
    if (size)
        *size = o.used;
    return USM_OK;
}
