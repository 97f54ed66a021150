/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The memory functions: usm_alloc and its family, free, queries.  An allocation finds a pool, the
 * first of the three layers (recover.c has the picture); free and queries start from the address
 * map.  command/malloc.c has the forms with a queue. */
#include "base/inline/bits.h"
#include "base/log.h"
#include "base/part.h"
#include "device/init.h"
#include "device/observer.h"
#include "heap/export.h"
#include "heap/magazine.h"
#include "heap/pool.h"

#include <errno.h>
#include <string.h>

/* ---- allocation ------------------------------------------------------------------- */

void *usm_aligned_alloc(size_t align, size_t size, usm_kind kind)
{
    usm_context *ctx;
    usm_pool    *pool;
    void        *p;

    usm__default_enter(); /* usm_shutdown() waits until _leave */
    ctx  = usm__kind_check(kind) == USM_OK ? usm_default_context() : NULL;
    pool = ctx ? usm__pool_of(ctx, 0, kind) : NULL;
    p    = pool ? usm__pool_alloc(pool, align, size, USM__ZERO_AS_POOL) : usm__no_memory();
    if (p && !usm_load_relaxed(&usm__pools_default[kind]))
        usm__pools_set_default(pool);
    usm__default_leave();
    return p;
}

/* The fast path only needs the slot of the default pool, which is known after its first miss.
 * NULL: a miss. */
static inline void *hit(size_t size, usm_kind kind)
{
    return usm__magazine_pop(usm_load_relaxed(&usm__pools_default[kind]), size);
}

/* Separate from those below, which therefore save no registers on their fast path. */
static __attribute__((noinline)) void *alloc_missed(size_t size, usm_kind kind)
{
    if (usm__magazine_self.traced)
        return usm__observer_get()->alloc_kind(size, kind);
    return usm_aligned_alloc(0, size, kind);
}

void *usm_alloc(size_t size, usm_kind kind)
{
    void *p = usm__is_kind(kind) ? hit(size, kind) : NULL;

    return p ? p : alloc_missed(size, kind);
}

void *usm_alloc_host(size_t size)
{
    void *p = hit(size, USM_HOST);

    return p ? p : alloc_missed(size, USM_HOST);
}

void *usm_alloc_device(size_t size)
{
    void *p = hit(size, USM_DEVICE);

    return p ? p : alloc_missed(size, USM_DEVICE);
}

void *usm_alloc_shared(size_t size)
{
    void *p = hit(size, USM_SHARED);

    return p ? p : alloc_missed(size, USM_SHARED);
}

void *usm_calloc(size_t n, size_t size, usm_kind kind)
{
    usm__area *area;
    size_t     total;
    void      *p;

    if (__builtin_mul_overflow(n, size, &total)) {
        (void)usm__fail(USM_E_SIZE, "usm_calloc: %zu times %zu bytes exceed the address space", n,
                        size);
        return usm__no_memory();
    }
    p = usm_alloc(total, kind);
    if (!p)
        return NULL;
    area = kind != USM_DEVICE ? usm__map_find(p) : NULL;
    if (area && usm__pool_host_may_touch(area->pool)) {
        memset(p, 0, total);
    } else if (usm_set(p, 0, total) != USM_OK) {
        usm__message message;

        usm__message_save(&message);
        usm_free(p);
        usm__message_restore(&message);
        return usm__no_memory();
    }
    return p;
}

/* NULL with an error message. */
static usm_pool *pool_for(usm_device *dev, usm_context *ctx, usm_kind kind)
{
    size_t index = 0;

    if (usm__kind_check(kind) != USM_OK || usm__context_resolve(&ctx) != USM_OK)
        return NULL;
    if (kind != USM_HOST && usm__context_device_index(ctx, dev, &index) != USM_OK)
        return NULL;
    return usm__pool_of(ctx, index, kind);
}

void *usm_aligned_alloc_ctx(size_t align, size_t size, usm_device *dev, usm_context *ctx,
                            usm_kind kind)
{
    usm_pool *pool;
    void     *p;

    if (!ctx)
        usm__default_enter();
    pool = pool_for(dev, ctx, kind);
    p    = pool ? usm__pool_alloc(pool, align, size, USM__ZERO_AS_POOL) : usm__no_memory();
    if (!ctx)
        usm__default_leave();
    return p;
}

void *usm_malloc_ctx(size_t size, usm_device *dev, usm_context *ctx, usm_kind kind)
{
    return usm_aligned_alloc_ctx(0, size, dev, ctx, kind);
}

/* ---- free ---------------------------------------------------------------------------- */

/* No pool has p. */
static usm_status refuse(const void *p)
{
    if (usm__freed_recently(p))
        return usm__fail(USM_E_DOUBLE_FREE, "%p was freed before; free a block once", p);
    return usm__fail(USM_E_INVALID_POINTER,
                     "%p is not libusm memory; free it with what allocated it", p);
}

static usm_status free_found(void *p, const usm_context *ctx)
{
    usm__area *area = usm__map_find(p);

    if (!area) {
        usm_status st = usm__parts_unpooled_free(p);

        return st == USM_E_INVALID_POINTER ? refuse(p) : st;
    }
    if (ctx && area->ctx != ctx)
        return usm__fail(USM_E_WRONG_CONTEXT, "%p belongs to another context", p);
    if (usm__pool_is_inert(area->pool))
        return USM_OK; /* inherited: the parent frees it */
    if (usm__context_is_ended(area->ctx))
        return USM_OK; /* another thread may be destroying its pools at this moment */
    return usm__pool_free(area, p);
}

static usm_status free_checked(void *p, const usm_context *ctx)
{
    usm_status st;

    usm__default_enter();
    st = free_found(p, ctx);
    usm__default_leave();
    return st;
}

usm_status usm_free_ctx(void *p, usm_context *ctx)
{
    if (!p)
        return USM_OK;
    if (ctx && usm__handle_check(ctx, USM__MAGIC_CONTEXT) != USM_OK)
        return USM_E_INVALID_HANDLE;
    return free_checked(p, ctx);
}

void usm__pool_free_any_slowly(void *p)
{
    int        saved = errno;
    usm_status st;

    if (!p)
        return;
    st = free_checked(p, NULL);
    if (st != USM_OK && !usm__is_down()) /* late frees are harmless */
        usm__log(USM_LOG_ERROR, "usm_free: %s", usm_last_error());
    errno = saved; /* free() preserves errno since POSIX 2024 */
}

/* Separate from usm_free(), which therefore saves no registers on its fast path. */
static __attribute__((noinline)) void free_missed(void *p)
{
    if (usm__magazine_self.traced)
        usm__observer_get()->free_any(p);
    else
        usm__pool_free_any_slowly(p);
}

void usm_free(void *p)
{
    if (__builtin_expect(!usm__magazine_push(usm__page_find_low(p), p), 0))
        free_missed(p);
}

usm_status usm_free_blocking(void *p, usm_context *ctx)
{
    usm__area *area = p ? usm__map_find(p) : NULL;
    usm_status st;

    if (!p)
        return USM_OK;
    if (!area)
        return free_checked(p, ctx);
    if (ctx && area->ctx != ctx)
        return usm__fail(USM_E_WRONG_CONTEXT, "%p belongs to another context", p);
    if (!usm__context_is_inert(area->ctx)) {
        st = usm_context_wait(area->ctx); /* a failed command does not fail the free */
        if (st == USM_E_INVALID_HANDLE)
            return st;
    }
    return free_checked(p, ctx);
}

/* ---- queries ---------------------------------------------------------------------------- */

/* Asks the pool, or tells why not. */
static __attribute__((noinline)) usm_status find_missed(const void *p, usm_context *ctx,
                                                        usm__area **area, usm_block *block)
{
    if (ctx && usm__handle_check(ctx, USM__MAGIC_CONTEXT) != USM_OK)
        return USM_E_INVALID_HANDLE;
    *area = p ? usm__map_find(p) : NULL;
    if (!*area)
        return usm__fail(USM_E_INVALID_POINTER, "%p is not libusm memory%s", p,
                         usm__freed_recently(p) ? " any more: it was freed" : "");
    if (ctx && (*area)->ctx != ctx)
        return usm__fail(USM_E_INVALID_POINTER, "%p belongs to another context", p);
    if (usm__context_is_ended((*area)->ctx))
        return usm__fail(USM_E_INVALID_POINTER,
                         "%p is not libusm memory any more: its context ended", p);
    return usm__pool_block(*area, p, block);
}

/* Finds the live block around p, in ctx if given.  For most pointers the page map has the answer.
 * Where the pool exports, blocks that were freed may be in use elsewhere. */
static inline usm_status find_block(const void *p, usm_context *ctx, usm__area **area,
                                    usm_block *block)
{
    const usm_span *span = usm__page_find_live(p, block);

    if (__builtin_expect(span == NULL, 0))
        return find_missed(p, ctx, area, block);
    *area = usm__page_area(span);
    if ((ctx && ctx != (*area)->ctx) || usm__context_is_ended((*area)->ctx) ||
        (*area)->pool->export_mode != USM_POOL_PRIVATE)
        return find_missed(p, ctx, area, block);
    return USM_OK;
}

usm_kind usm_get_pointer_type(const void *p, usm_context *ctx)
{
    usm_block       block;
    const usm_span *span = usm__page_find_live(p, &block);
    const usm_pool *pool = span ? span->source : NULL;
    usm__area      *area;

    if (pool && (!ctx || ctx == pool->ctx) && pool->export_mode == USM_POOL_PRIVATE)
        return (usm_kind)span->kind;
    return find_block(p, ctx, &area, &block) == USM_OK ? area->kind : USM_UNKNOWN;
}

usm_status usm_get_pointer_device(const void *p, usm_context *ctx, usm_device **dev)
{
    usm__area *area;
    usm_block  block;
    usm_status st = find_block(p, ctx, &area, &block);

    if (st != USM_OK)
        return st;
    if (!dev)
        return usm__fail(USM_E_INVALID, "usm_get_pointer_device: dev is NULL");
    *dev = area->kind == USM_HOST ? area->ctx->devices[0].dev : area->dev;
    return USM_OK;
}

usm_status usm_get_pointer_context(const void *p, usm_context **ctx)
{
    usm__area *area;
    usm_block  block;
    usm_status st = find_block(p, NULL, &area, &block);

    if (st != USM_OK)
        return st;
    if (!ctx)
        return usm__fail(USM_E_INVALID, "usm_get_pointer_context: ctx is NULL");
    *ctx = area->ctx;
    return USM_OK;
}

usm_status usm_get_address_range(const void *p, usm_context *ctx, void **base, size_t *size)
{
    usm__area *area;
    usm_block  block;
    usm_status st = find_block(p, ctx, &area, &block);

    if (st == USM_E_INVALID_POINTER && usm__parts_unpooled_find(p, &block))
        st = USM_OK;
    if (st != USM_OK)
        return st;
    if (base)
        *base = block.base;
    if (size)
        *size = block.size;
    return USM_OK;
}

size_t usm_usable_size(const void *p)
{
    usm__area *area;
    usm_block  block;

    if (!p ||
        (find_block(p, NULL, &area, &block) != USM_OK && !usm__parts_unpooled_find(p, &block)))
        return 0;
    return block.size - (size_t)((const char *)p - (const char *)block.base);
}

/* ---- realloc ---------------------------------------------------------------------------- */

void *usm_realloc(void *p, size_t size, usm_kind kind)
{
    usm__area *area;
    usm_block  block;
    usm_pool  *pool;
    void      *fresh;

    if (!p)
        return usm_alloc(size, kind);
    if (kind != USM_UNKNOWN && usm__kind_check(kind) != USM_OK)
        return usm__no_memory();
    if (find_block(p, NULL, &area, &block) != USM_OK)
        return usm__no_memory();
    if (block.base != p) {
        (void)usm__fail(USM_E_INTERIOR_POINTER, "usm_realloc: %p lies inside the block at %p", p,
                        block.base);
        return usm__no_memory();
    }
    if (area->pool->is_imported) {
        (void)usm__fail(USM_E_IMPORTED, "usm_realloc: %p was opened from another process", p);
        return usm__no_memory();
    }
    if (usm__context_check(area->ctx) != USM_OK)
        return usm__no_memory();
    pool  = usm__pool_of(area->ctx, area->pool->index, kind == USM_UNKNOWN ? area->kind : kind);
    fresh = pool ? usm__pool_alloc(pool, 0, size, USM__ZERO_AS_POOL) : usm__no_memory();
    if (!fresh)
        return NULL;
    if (usm_copy(fresh, p, usm_min_size(size, block.size)) != USM_OK) {
        usm__message message;

        usm__message_save(&message);
        usm_free(fresh);
        usm__message_restore(&message);
        return usm__no_memory();
    }
    usm_free(p);
    return fresh;
}
