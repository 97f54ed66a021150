/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools: public functions, default pools, USM_POOL, finding a block's pool.
 * The cutting itself is the module's (include/usm/pool_ops.h); areas and
 * accounts are core/area.c's. */
#include "core/pool.h"

#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/text.h"
#include "core/init.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_ALIGN ((size_t)64)
#define DEFAULT_POOL  "direct"

static usm__meta_type pool_type = USM__META_TYPE(struct usm_pool, sizeof(usm__magic_word), "pools");

/* ---- USM_POOL ---------------------------------------------------------------- */

/* One segment of USM_POOL: `[kind:]pool[,option=value]...` */
typedef struct choice {
    char     name[32];
    char     options[128];
    uint64_t area_size, maximum_size;
} choice;

static int kind_of(usm__span s)
{
    return usm__span_is(s, "host")     ? USM_HOST
           : usm__span_is(s, "device") ? USM_DEVICE
           : usm__span_is(s, "shared") ? USM_SHARED
                                       : -1;
}

static bool parse_option(usm__span option, choice *c)
{
    usm__span name;

    if (!usm__span_next(&option, '=', &name))
        return false;
    if (usm__span_is(name, "area_size"))
        return usm__span_size(option, &c->area_size);
    if (usm__span_is(name, "maximum_size"))
        return usm__span_size(option, &c->maximum_size);
    return false;
}

/* *kind: the segment's, 0 for all. */
static bool parse_segment(usm__span segment, int *kind, choice *c)
{
    usm__span head, name, option;

    memset(c, 0, sizeof *c);
    *kind = 0;
    if (!usm__span_next(&segment, ',', &head))
        return true;
    if (memchr(head.at, ':', head.len)) {
        if (!usm__span_next(&head, ':', &name) || (*kind = kind_of(name)) < 0)
            return false;
    }
    head = (usm__span){head.at, head.len};
    if (!usm__span_next(&head, ':', &name) || name.len == 0 || name.len >= sizeof c->name ||
        head.len)
        return false;
    memcpy(c->name, name.at, name.len);
    while (usm__span_next(&segment, ',', &option))
        if (!parse_option(option, c))
            return false;
    return true;
}

/* The last segment that speaks of `kind` wins. */
static bool choose(const char *text, usm_kind kind, choice *chosen)
{
    usm__span rest = usm__span_of(text), segment;
    choice    c;
    int       k;

    memset(chosen, 0, sizeof *chosen);
    while (usm__span_next(&rest, ';', &segment)) {
        if (segment.len == 0)
            continue;
        if (!parse_segment(segment, &k, &c))
            return false;
        if (k == 0 || k == (int)kind)
            *chosen = c;
    }
    return true;
}

bool usm__pool_setting_check(const char *text, char *why, size_t why_size)
{
    usm__span rest = usm__span_of(text), segment;
    choice    c;
    int       k;

    while (usm__span_next(&rest, ';', &segment))
        if (segment.len && (!parse_segment(segment, &k, &c) || !usm__registry_has_pool(c.name))) {
            snprintf(why, why_size,
                     "[host:|device:|shared:]POOL[,area_size=SIZE][,maximum_size=SIZE] separated "
                     "by ';', POOL one of direct, arena");
            return false;
        }
    return true;
}

/* ---- creation ------------------------------------------------------------------ */

static usm_aspect aspect_of(usm_kind kind)
{
    return kind == USM_HOST     ? USM_ASPECT_USM_HOST_ALLOCATIONS
           : kind == USM_DEVICE ? USM_ASPECT_USM_DEVICE_ALLOCATIONS
                                : USM_ASPECT_USM_SHARED_ALLOCATIONS;
}

static usm_status check_kind(const usm_device *dev, usm_kind kind)
{
    static const char *const names[] = {"", "host", "device", "shared"};

    if ((int)kind < USM_HOST || (int)kind > USM_SHARED)
        return usm__fail(USM_E_KIND,
                         "%lld is no kind of memory (USM_HOST 1, USM_DEVICE 2, USM_SHARED 3): were "
                         "size and kind swapped?",
                         (long long)(int)kind);
    if (!usm_device_has(dev, aspect_of(kind)))
        return usm__fail(USM_E_NOT_SUPPORTED, "%s (%s) has no %s memory; see usm-info", dev->term,
                         dev->desc.name, names[kind]);
    return USM_OK;
}

static usm_status start_pool(usm_pool *pool, const usm_pool_desc *desc, const choice *chosen)
{
    usm_pool_params params = {
        .struct_size     = sizeof params,
        .api             = &usm__host_api,
        .areas           = {pool, usm__area_take, usm__area_give},
        .kind            = pool->kind,
        .host_accessible = pool->kind != USM_DEVICE,
        .default_align   = usm_max_size(DEFAULT_ALIGN, desc->min_align),
        .area_size       = desc->area_size ? desc->area_size : (size_t)chosen->area_size,
        .maximum_size    = pool->maximum_size,
        .options         = chosen->options,
    };

    return pool->ops->create(&params, &pool->impl);
}

static usm_status make_pool(usm_context *ctx, size_t index, usm_kind kind,
                            const usm_pool_desc *desc, usm_pool **out)
{
    choice      chosen;
    const char *name;
    usm_pool   *pool;
    usm_status  st = check_kind(ctx->devices[index].dev, kind);

    if (st != USM_OK)
        return st;
    (void)choose(usm__setting_text("pool"), kind, &chosen);
    if (desc->name) /* what USM_POOL says is not for a pool that was named */
        memset(&chosen, 0, sizeof chosen);
    name = desc->name ? desc->name : chosen.name[0] ? chosen.name : DEFAULT_POOL;
    pool = usm__meta_alloc(&pool_type);
    if (!pool)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a pool");
    pool->ctx          = ctx;
    pool->index        = index;
    pool->kind         = kind;
    pool->min_align    = desc->min_align;
    pool->maximum_size = desc->maximum_size ? desc->maximum_size : (size_t)chosen.maximum_size;
    usm_list_init(&pool->link);
    usm_list_init(&pool->areas);
    usm__mutex_init(&pool->lock, USM__RANK_POOL, "pool");
    pool->ops = usm__registry_pool(name);
    st        = pool->ops ? start_pool(pool, desc, &chosen) : usm_last_status();
    if (st != USM_OK) {
        usm__mutex_fini(&pool->lock);
        usm__meta_free(&pool_type, pool);
        return st;
    }
    usm_store_release(&pool->magic, (uint32_t)USM__MAGIC_POOL);
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

usm_status usm_pool_create(usm_context *ctx, usm_device *dev, usm_kind kind,
                           const usm_pool_desc *desc, usm_pool **pool)
{
    const usm_pool_desc defaults = USM_POOL_DESC_INIT;
    size_t              index    = 0;
    usm_status          st       = usm__context_check(ctx);

    if (st == USM_OK)
        st = usm__context_device_index(ctx, dev, &index);
    if (st != USM_OK)
        return st;
    if (!desc)
        desc = &defaults;
    if (!pool || desc->struct_size < sizeof *desc)
        return usm__fail(pool ? USM_E_ABI : USM_E_INVALID, "usm_pool_create: %s",
                         pool ? "struct_size is too small; start with USM_POOL_DESC_INIT"
                              : "pool is NULL");
    if (desc->min_align && (!usm_is_pow2(desc->min_align) || desc->min_align > USM_MAX_ALIGNMENT))
        return usm__fail(USM_E_ALIGNMENT, "min_align %zu is no power of two up to 2 MiB",
                         desc->min_align);
    st = make_pool(ctx, index, kind, desc, pool);
    if (st == USM_OK)
        publish(*pool);
    return st;
}

usm_pool *usm__pool_of(usm_context *ctx, size_t index, usm_kind kind)
{
    const usm_pool_desc  desc = USM_POOL_DESC_INIT;
    _Atomic(usm_pool *) *slot;
    usm_pool            *pool, *expected = NULL;

    if ((unsigned)kind > USM_SHARED || kind == USM_UNKNOWN) {
        (void)check_kind(ctx->devices[index].dev, kind);
        return NULL;
    }
    if (kind == USM_HOST)
        index = 0; /* one for the context: host memory belongs to no device */
    slot = &ctx->devices[index].pools[kind];
    pool = usm_load_acquire(slot);
    if (pool || make_pool(ctx, index, kind, &desc, &pool) != USM_OK)
        return pool;
    pool->is_default = true;
    publish(pool); /* before anybody uses it: fork() goes by the list */
    if (usm_cas_acq_rel(slot, &expected, pool))
        return pool;
    withdraw(pool); /* somebody was faster */
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
    usm_status st = usm__handle_check(pool, USM__MAGIC_POOL);

    if (st == USM_OK && usm__context_is_inert(pool->ctx) &&
        !usm__backend_can(pool->ctx->be, USM_CAP_FORK_MEMORY))
        st = usm__fail(USM_E_FORKED, "the pool was made before fork(); make one in the child");
    return st;
}

/* ---- end ------------------------------------------------------------------------ */

static void list_blocks_out(usm_pool *pool)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    pool->ops->get_stats(pool->impl, &stats);
    if (stats.blocks && usm__setting_bool("validation"))
        usm__warn("a pool of %s was destroyed with %llu blocks (%llu bytes) still out",
                  pool->ctx->devices[pool->index].dev->term, (unsigned long long)stats.blocks,
                  (unsigned long long)stats.live);
}

void usm__pool_finish(usm_pool *pool)
{
    list_blocks_out(pool);
    usm_store_release(&pool->magic, (uint32_t)USM__MAGIC_DEAD);
    pool->ops->destroy(pool->impl);
    usm__mutex_fini(&pool->lock);
    usm__meta_free(&pool_type, pool);
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

/* ---- use ------------------------------------------------------------------------- */

static usm_status check_request(const usm_pool *pool, size_t align, size_t size)
{
    const usm_backend_device *d = &pool->ctx->devices[pool->index].dev->desc;

    if (align && (!usm_is_pow2(align) || align > USM_MAX_ALIGNMENT))
        return usm__fail(USM_E_ALIGNMENT, "alignment %zu is no power of two up to 2 MiB (2097152)",
                         align);
    if (size > (size_t)PTRDIFF_MAX)
        return usm__fail(USM_E_SIZE, "%zu bytes exceed the address space; was it negative?", size);
    if (pool->kind != USM_HOST && d->memory_size && size > d->memory_size)
        return usm__fail(USM_E_SIZE, "%zu bytes are more than the %llu that %s has", size,
                         (unsigned long long)d->memory_size, d->name);
    return USM_OK;
}

void *usm__pool_alloc(usm_pool *pool, size_t align, size_t size)
{
    void      *p  = NULL;
    usm_status st = check_request(pool, align, size);

    if (st == USM_OK)
        st = pool->ops->malloc(pool->impl, size ? size : 1, usm_max_size(align, pool->min_align),
                               &p);
    if (st != USM_OK) {
        errno = ENOMEM;
        return NULL;
    }
    usm__freed_forget(p);
    usm__hook_block("block_alloc", p, size);
    return p;
}

void *usm_pool_malloc(usm_pool *pool, size_t size)
{
    return usm_pool_aligned_alloc(pool, 0, size);
}

void *usm_pool_aligned_alloc(usm_pool *pool, size_t align, size_t size)
{
    if (usm__pool_check(pool) == USM_OK)
        return usm__pool_alloc(pool, align, size);
    errno = ENOMEM;
    return NULL;
}

usm_status usm__pool_block(usm__area *area, const void *p, usm_block *block)
{
    return area->pool->ops->block(area->pool->impl, &area->view, p, block);
}

usm_status usm__pool_free(usm__area *area, void *p)
{
    usm_pool  *pool = area->pool;
    usm_status st;

    /* Noted before: once it is free, somebody may get the address again. */
    usm__freed_note(p);
    usm__hook_block("block_free", p, 0);
    st = pool->ops->free(pool->impl, &area->view, p);
    if (st != USM_OK && st != USM_E_DOUBLE_FREE)
        usm__freed_forget(p);
    return st;
}

static void free_of_pool(usm_pool *pool, void *p, const size_t *size)
{
    usm__area *area = p ? usm__map_find(p) : NULL;
    usm_status st;

    if (!p || usm__pool_check(pool) != USM_OK)
        return;
    if (!area || area->pool != pool) {
        (void)usm__fail(usm__freed_lately(p) ? USM_E_DOUBLE_FREE : USM_E_INVALID_POINTER,
                        "usm_pool_free: %p is no block of this pool%s", p,
                        usm__freed_lately(p) ? " any more: it was freed before" : "");
        usm__log(USM_LOG_ERROR, "%s", usm_last_error());
        return;
    }
    if (size && (pool->ops->caps & USM_POOL_CAP_SIZED)) {
        usm__freed_note(p);
        usm__hook_block("block_free", p, *size);
        st = pool->ops->free_sized(pool->impl, &area->view, p, *size);
        if (st != USM_OK && st != USM_E_DOUBLE_FREE)
            usm__freed_forget(p);
    } else {
        st = usm__pool_free(area, p);
    }
    if (st != USM_OK)
        usm__log(USM_LOG_ERROR, "%s", usm_last_error());
}

void usm_pool_free(usm_pool *pool, void *p)
{
    free_of_pool(pool, p, NULL);
}

void usm_pool_free_sized(usm_pool *pool, void *p, size_t size)
{
    free_of_pool(pool, p, &size);
}

usm_status usm_pool_trim_to(usm_pool *pool, size_t keep)
{
    usm_status st = usm__pool_check(pool);

    return st == USM_OK ? pool->ops->trim_to(pool->impl, keep) : st;
}

uint64_t usm__pool_live(usm_pool *pool)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    pool->ops->get_stats(pool->impl, &stats);
    return stats.live;
}

usm_status usm_pool_get_stats(usm_pool *pool, usm_pool_stats *stats)
{
    usm_status st = usm__pool_check(pool);

    if (st != USM_OK)
        return st;
    if (!stats || stats->struct_size < sizeof *stats)
        return usm__fail(stats ? USM_E_ABI : USM_E_INVALID,
                         "usm_pool_get_stats: stats %s; start with USM_POOL_STATS_INIT",
                         stats ? "has a wrong struct_size" : "is NULL");
    pool->ops->get_stats(pool->impl, stats);
    stats->reserved      = usm_load_relaxed(&pool->reserved);
    stats->reserved_peak = usm_load_relaxed(&pool->reserved_peak);
    stats->driver_allocs = usm_load_relaxed(&pool->driver_allocs);
    stats->driver_frees  = usm_load_relaxed(&pool->driver_frees);
    return USM_OK;
}

usm_status usm_pool_reset_peaks(usm_pool *pool)
{
    usm_status st = usm__pool_check(pool);

    if (st != USM_OK)
        return st;
    pool->ops->reset_peaks(pool->impl);
    usm_store_relaxed(&pool->reserved_peak, usm_load_relaxed(&pool->reserved));
    return USM_OK;
}

usm_status usm_pool_reset(usm_pool *pool)
{
    usm_status st = usm__pool_check(pool);

    if (st != USM_OK)
        return st;
    if (!(pool->ops->caps & USM_POOL_CAP_RESET))
        return usm__fail(USM_E_NOT_SUPPORTED, "a %s pool has no reset; an arena has",
                         pool->ops->name);
    return pool->ops->reset(pool->impl);
}

void usm__pool_fork(usm_pool *pool, usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE) {
        pool->ops->fork(pool->impl, phase);
        usm__mutex_fork(&pool->lock, (int)phase);
    } else {
        usm__mutex_fork(&pool->lock, (int)phase);
        pool->ops->fork(pool->impl, phase);
    }
}

/* ---- frees seen lately ------------------------------------------------------------ */

/* A hash of addresses without chains: the last free of each bucket.  It only
 * makes messages better and never decides whether something is freed. */
#define FREED_SLOTS 4096
static _Atomic(uintptr_t) freed[FREED_SLOTS];

static _Atomic(uintptr_t) *freed_slot(const void *p)
{
    return &freed[((uintptr_t)p * 0x9e3779b97f4a7c15ull) >> 52];
}

void usm__freed_note(const void *p)
{
    usm_store_relaxed(freed_slot(p), (uintptr_t)p);
}

void usm__freed_forget(const void *p)
{
    if (usm__gone_lately(p))
        usm_store_relaxed(freed_slot(p), (uintptr_t)0);
}

bool usm__freed_lately(const void *p)
{
    return p && usm_load_relaxed(freed_slot(p)) == (uintptr_t)p;
}

/* Areas are aligned: an odd entry is one that went with its pool or context. */
void usm__gone_note(const void *base)
{
    if (!usm__freed_lately(base))
        usm_store_relaxed(freed_slot(base), (uintptr_t)base | 1);
}

bool usm__gone_lately(const void *p)
{
    return p && (usm_load_relaxed(freed_slot(p)) | 1) == ((uintptr_t)p | 1);
}
