/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Translates the pool variables of Intel's Unified Runtime (SYCL over Level Zero) to USM_POOL.
 *
 *     UR_L0_DISABLE_USM_ALLOCATOR=anything             no pools
 *     UR_L0_USM_ALLOCATOR=[buffers][;[total][;[[kind:][largest][,[capacity][,slab]]]]...]
 *
 * buffers: 1 or 0, whether SYCL's buffers come from the pool.  total: free bytes kept, over all
 * pools.  kind: host, device, shared, read_only_shared; none: all.  largest: the largest request
 * that is pooled, 0: none.  capacity: free slabs kept of a size.  slab: the minimum number of bytes
 * taken from the driver at a time.  An empty field has the value it has without the variable.
 *
 * Called by the table of settings, if USM_POOL is unset. */
#include "heap/pool_setting.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define GRAMMAR                                                                                    \
    "[1|0][;[TOTAL][;[host:|device:|shared:|read_only_shared:][LARGEST][,[CAPACITY][,SLAB]]]...]," \
    " "                                                                                            \
    "sizes in bytes, with K, M or G"

#define KINDS 3

/* The pool slab takes at least this much at a time anyway (src/heap/page_heap_growth.c).  A smaller
 * minimum for slabs is therefore met without an option, which would only cause driver calls. */
#define MET_ANYWAY ((uint64_t)2 << 20)

typedef struct wish {
    bool     is_direct;
    uint64_t area_size; /* 0: not set */
} wish;

typedef struct wishes {
    wish     of[KINDS]; /* host, device, shared */
    uint64_t total;
    bool     has_total, no_buffers, has_largest, has_capacity, has_read_only;
    bool     has_slab, has_small_slab;
} wishes;

static const char *const kind_names[KINDS] = {"host", "device", "shared"};

/* ---- reading ------------------------------------------------------------------- */

/* Parses one of the numbers between commas: *is_set is false if it is empty or missing. */
static bool parse_number(usm__span *rest, uint64_t *n, bool *is_set)
{
    usm__span field;

    *is_set = usm__span_next(rest, ',', &field) && field.len > 0;
    return !*is_set || usm__span_size(field, n);
}

/* Parses the kind of `[kind:]largest,capacity,slab`: *first to *last are the kinds it applies to;
 * empty for a kind that libusm does not have. */
static bool parse_kind(usm__span *segment, wishes *w, size_t *first, size_t *last)
{
    usm__span name;

    *first = 0;
    *last  = KINDS;
    if (!memchr(segment->at, ':', segment->len))
        return true;
    if (!usm__span_next(segment, ':', &name))
        return false;
    for (size_t i = 0; i < KINDS; i++)
        if (usm__span_is(name, kind_names[i])) {
            *first = i;
            *last  = i + 1;
            return true;
        }
    w->has_read_only = true;
    *last            = 0;
    return usm__span_is(name, "read_only_shared");
}

static bool parse_kinds_wish(usm__span segment, wishes *w)
{
    bool     is_largest, is_capacity, is_slab;
    uint64_t largest, capacity, slab;
    size_t   first, last;

    if (!parse_kind(&segment, w, &first, &last) || !parse_number(&segment, &largest, &is_largest) ||
        !parse_number(&segment, &capacity, &is_capacity) ||
        !parse_number(&segment, &slab, &is_slab) || segment.len > 0)
        return false;
    for (size_t i = first; i < last; i++) {
        if (is_largest)
            w->of[i].is_direct = largest == 0;
        if (is_slab)
            w->of[i].area_size = slab > MET_ANYWAY ? slab : 0;
        w->has_largest |= is_largest && largest > 0;
        w->has_capacity |= is_capacity && !w->of[i].is_direct;
        w->has_slab |= is_slab && slab > MET_ANYWAY && !w->of[i].is_direct;
        w->has_small_slab |= is_slab && slab <= MET_ANYWAY && !w->of[i].is_direct;
    }
    return true;
}

static bool parse_buffers(usm__span field, wishes *w)
{
    bool on = true;

    if (field.len > 0 && (field.len > 1 || !usm__span_bool(field, &on)))
        return false;
    w->no_buffers = !on;
    return true;
}

static bool parse_total(usm__span field, wishes *w)
{
    w->has_total = field.len > 0;
    return !w->has_total || usm__span_size(field, &w->total);
}

static bool is_of_a_kind(usm__span field)
{
    return memchr(field.at, ':', field.len) || memchr(field.at, ',', field.len);
}

/* Newer versions of Unified Runtime allow that the first two fields are left out. */
static bool parse(const char *text, wishes *w)
{
    usm__span rest = usm__span_of(text), field;
    bool      ok   = true;

    for (size_t i = 0; ok && usm__span_next(&rest, ';', &field); i++) {
        if (i < 2 && is_of_a_kind(field))
            i = 2;
        if (i == 0)
            ok = parse_buffers(field, w);
        else if (i == 1)
            ok = parse_total(field, w);
        else
            ok = parse_kinds_wish(field, w);
    }
    return ok;
}

/* ---- writing ------------------------------------------------------------------- */

typedef struct out {
    char  *text;
    size_t size, used;
} out;

USM_PRINTF(2, 3) static void put(out *o, const char *format, ...)
{
    __builtin_va_list args;
    int               n;

    __builtin_va_start(args, format);
    n = vsnprintf(o->text + o->used, o->size - o->used, format, args);
    __builtin_va_end(args);
    if (n > 0)
        o->used += (size_t)n < o->size - o->used ? (size_t)n : o->size - o->used - 1;
}

/* Writes the exact size, in short form: 64K, 4097. */
static void put_size(out *o, const char *name, uint64_t bytes)
{
    static const char units[] = {0, 'K', 'M', 'G'};
    size_t            i       = 0;

    for (; i < 3 && bytes > 0 && bytes % 1024 == 0; i++)
        bytes /= 1024;
    put(o, ",%s=%llu%.1s", name, (unsigned long long)bytes, &units[i]);
}

static void put_wish(out *o, const wishes *w, size_t i)
{
    if (w->of[i].is_direct) {
        put(o, "direct");
        return;
    }
    put(o, "slab");
    if (w->of[i].area_size)
        put_size(o, "area_size", w->of[i].area_size);
    if (w->has_total)
        put_size(o, "retain", w->total);
}

static bool is_same(const wish *a, const wish *b)
{
    return a->is_direct == b->is_direct && (a->is_direct || a->area_size == b->area_size);
}

static void put_value(out *o, const wishes *w)
{
    bool one = is_same(&w->of[0], &w->of[1]) && is_same(&w->of[0], &w->of[2]);

    if (one && !w->of[0].is_direct && !w->of[0].area_size && !w->has_total)
        return; /* no setting of libusm corresponds to it */
    for (size_t i = 0; i < (one ? 1 : KINDS); i++) {
        if (!one)
            put(o, "%s%s:", i ? ";" : "", kind_names[i]);
        put_wish(o, w, i);
    }
}

/* Appends an item to a list: "a; b; c". */
static void put_item(out *o, bool wanted, const char *text)
{
    if (wanted)
        put(o, "%s%s", o->used ? "; " : "", text);
}

static void put_remarks(const wishes *w, usm__translation *t)
{
    out  made = {t->made, sizeof t->made, 0}, lost = {t->lost, sizeof t->lost, 0};
    bool direct = w->of[0].is_direct || w->of[1].is_direct || w->of[2].is_direct;

    put_item(&made, w->has_total, "what is kept in total is retain, for each pool by itself");
    put_item(&made, w->has_slab, "the least size of a slab is area_size");
    put_item(&made, w->has_small_slab, "a least size of a slab up to 2M is met anyway");
    put_item(&made, direct, "a largest pooled size of 0 is the pool direct");
    put_item(&made, made.used == 0, "nothing in it changes a pool");
    put_item(&lost, w->no_buffers, "EnableBuffers=0 (there is no pool for buffers alone)");
    put_item(&lost, w->has_largest, "MaxPoolableSize (the pools take any size)");
    put_item(&lost, w->has_capacity, "Capacity (what is kept is set in bytes and time)");
    put_item(&lost, w->has_read_only, "read_only_shared (is shared)");
}

/* The variables of SYCL programs are read as their runtime reads them: any value disables the
 * pools, also "0". */
static bool translate_disable(usm__translation *t)
{
    (void)snprintf(t->value, sizeof t->value, "direct");
    (void)snprintf(t->made, sizeof t->made, "no pools, whatever its value");
    return true;
}

bool usm__pool_setting_translate(const char *variable, const char *text, usm__translation *t)
{
    wishes w     = {.total = 0};
    out    value = {t->value, sizeof t->value, 0};

    if (strcmp(variable, "UR_L0_DISABLE_USM_ALLOCATOR") == 0)
        return translate_disable(t);
    if (!parse(text, &w)) {
        (void)snprintf(t->why, sizeof t->why, GRAMMAR);
        return false;
    }
    put_value(&value, &w);
    put_remarks(&w, t);
    return true;
}
