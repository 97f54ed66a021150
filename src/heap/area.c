/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Areas: the only place that takes memory from a driver and returns it.
 *
 * This file also works around errors of drivers.  It checks the alignment after every allocation,
 * and pads the request where the driver does not honour it.  An area whose addresses another
 * context has already is set aside, and another is requested.  Memory is counted, and limits are
 * kept.  Pools call these functions through usm_area_source.
 *
 * There are two sorts of area.  A taken area has memory from its start to its end.  A reserved area
 * is a range of addresses, behind which memory is mapped and unmapped in pieces; only the mapped
 * memory counts. */
#include "heap/area.h"

#include "base/inline/bits.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "base/part.h"
#include "base/trace.h"
#include "device/observer.h"
#include "heap/export.h"
#include "heap/pages.h"
#include "heap/pool.h"
#include "heap/sleep.h"

#define ASIDE_MAX       8
#define RESERVE_ALIGN   ((size_t)2 << 20)
#define GRANULARITY_MIN ((size_t)4096)
#define GRANULARITY_MAX ((size_t)1 << 30)
/* Drivers report larger granules for larger ranges (NEO: 1 GiB), but memory is mapped in pieces. */
#define PIECE_USUAL ((size_t)2 << 20)

/* The fixed fields outlive the free: a thread that frees a block for the second time at the same
 * moment may still be reading them. */
static usm__meta_type area_type =
    USM__META_TYPE(usm__area, offsetof(usm__area, driver_base), "areas");

USM__THREAD_LOCAL bool usm__area_is_held;

/* ---- driver calls, with their trace ---------------------------------------------- */

static uint64_t trace_start(void)
{
    return usm_load_relaxed(&usm__trace_on) ? usm__os_now_ns() : 0;
}

/* p is NULL if the call failed. */
static void trace_end(usm__trace_call call, const usm__area *a, const void *p, size_t size,
                      uint64_t start)
{
    if (start)
        usm__tracer_now->driver(call, a->pool->trace_id, p, size, start,
                                p ? USM_OK : usm_last_status());
}

static void *device_of(const usm__area *a)
{
    return a->kind == USM_HOST ? NULL : a->dev->desc.handle;
}

/* Allocates memory, or reserves addresses if the area is to be a reserved one. */
static usm_status driver_alloc(const usm__area *a, size_t size, size_t align, void **p)
{
    const usm_context *ctx   = a->ctx;
    uint64_t           start = trace_start();
    usm_status         st;

    if (a->granularity)
        return usm__be_vmem_reserve(ctx->be, ctx->native, a->kind, size, p);
    align = usm_min_size(align, a->dev->desc.max_align);
    if (a->pool->export_mode != USM_POOL_PRIVATE && usm__backend_can(ctx->be, USM_CAP_IPC))
        st = usm__be_ipc_alloc(ctx->be, ctx->native, device_of(a), a->kind,
                               a->pool->export_mode == USM_POOL_EXPORT_RW, size, align, p);
    else
        st = usm__be_mem_alloc(ctx->be, ctx->native, device_of(a), a->kind, size, align, p);
    trace_end(USM__TRACE_TAKE, a, st == USM_OK ? *p : NULL, size, start);
    return st;
}

/* Reports memory that returns to its driver, or is unmapped, to valgrind and AddressSanitizer. */
static void notify_checker(const usm__area *a, void *p, size_t size)
{
    if (a->kind != USM_DEVICE && usm_load_relaxed(&usm__observers.flags) & USM__OBSERVE_CHECKER)
        usm__observer_get()->memory_gone(p, size);
}

static void driver_free(const usm__area *a, void *p, size_t size)
{
    const usm_context *ctx   = a->ctx;
    uint64_t           start = trace_start();
    usm_status         st;

    if (a->granularity) {
        st = usm__be_vmem_release(ctx->be, ctx->native, p, size);
    } else {
        notify_checker(a, p, size);
        st = usm__be_mem_free(ctx->be, ctx->native, a->kind, p, size);
        trace_end(USM__TRACE_GIVE, a, p, size, start);
    }
    if (st != USM_OK)
        usm__warn("%p was not freed by the driver: %s", p, usm_last_error());
}

/* Maps new memory behind [p, p + size) of a reserved area. */
static usm_status driver_map(const usm__area *a, void *p, size_t size, void **phys)
{
    const usm_context *ctx   = a->ctx;
    uint64_t           start = trace_start();
    void              *made  = NULL;
    usm__message       message;
    usm_status st = usm__be_phys_create(ctx->be, ctx->native, device_of(a), a->kind, size, &made);

    if (st == USM_OK) {
        st = usm__be_vmem_map(ctx->be, ctx->native, p, size, made, 0);
        if (st == USM_OK) {
            *phys = made;
        } else {
            usm__message_save(&message);
            if (usm__be_phys_destroy(ctx->be, ctx->native, made) != USM_OK)
                usm__warn("memory for %p was not freed by the driver: %s", p, usm_last_error());
            usm__message_restore(&message);
        }
    }
    trace_end(USM__TRACE_MAP, a, st == USM_OK ? p : NULL, size, start);
    return st;
}

/* Fails if the memory is still mapped; the driver then keeps it. */
static usm_status driver_unmap(const usm__area *a, void *p, size_t size, void *phys)
{
    const usm_context *ctx   = a->ctx;
    uint64_t           start = trace_start();
    usm_status         st;

    st = usm__be_vmem_unmap(ctx->be, ctx->native, p, size);

    if (st == USM_OK && usm__be_phys_destroy(ctx->be, ctx->native, phys) != USM_OK)
        usm__warn("the memory of %p was not freed by the driver: %s", p, usm_last_error());
    trace_end(USM__TRACE_UNMAP, a, st == USM_OK ? p : NULL, size, start);
    return st;
}

/* ---- quotas ------------------------------------------------------------------------ */

static usm_status count_in_pool(usm_pool *pool, size_t size)
{
    uint64_t held = 0;

    if (usm__quota_count(&pool->held->reserved, pool->maximum_size, size, &held))
        return USM_OK;
    return usm__fail(USM_E_BUDGET,
                     "%zu bytes more would cross the pool's maximum_size of %zu (it holds %llu)",
                     size, pool->maximum_size, (unsigned long long)held);
}

/* Counts in the pool's quota and in the device's, within the limits of both. */
static usm_status count(const usm__area *a, size_t size)
{
    usm_status st = count_in_pool(a->pool, size);

    if (st != USM_OK)
        return st;
    st = usm__quota_add(a->ctx, a->pool->index, a->kind, size);
    if (st != USM_OK)
        usm_sub_relaxed(&a->pool->held->reserved, (uint64_t)size);
    return st;
}

static void uncount(const usm__area *a, size_t size)
{
    usm__quota_sub(a->ctx, a->pool->index, a->kind, size);
    usm_sub_relaxed(&a->pool->held->reserved, (uint64_t)size);
}

/* The padding requested from a driver that does not align by itself counts like the area itself: it
 * is taken within the limits, or not at all. */
static usm_status count_padding(usm__area *a, size_t padding)
{
    usm_status st;

    if (a->granularity || a->padding) /* addresses only; or counted by an earlier try */
        return USM_OK;
    st = count(a, padding);
    if (st == USM_OK)
        a->padding = padding;
    return st;
}

static void count_driver_alloc(const usm__area *a)
{
    usm_pool *pool = a->pool;
    uint64_t  now  = usm_load_relaxed(&pool->held->reserved);
    uint64_t  peak = usm_load_relaxed(&pool->held->reserved_peak);

    while (now > peak && !usm_cas_acq_rel(&pool->held->reserved_peak, &peak, now))
        ;
    usm_add_relaxed(&pool->held->driver_allocs, (uint64_t)1);
}

/* ---- addresses that are right ------------------------------------------------------ */

/* Fills driver_* and view.  The address has the requested alignment, whatever the driver does. */
static usm_status obtain(usm__area *a, size_t size, size_t align)
{
    size_t     padded = size;
    void      *p      = NULL;
    usm_status st     = USM_OK;

    if (a->granularity || align <= a->dev->desc.max_align)
        st = driver_alloc(a, size, align, &p);
    if (st == USM_OK && p && !usm_is_aligned(p, align)) {
        driver_free(a, p, size);
        p = NULL;
    }
    if (st == USM_OK && !p) {
        if (__builtin_add_overflow(size, align, &padded))
            return usm__fail(USM_E_SIZE, "%zu bytes aligned to %zu exceed the address space", size,
                             align);
        st = count_padding(a, align);
        if (st == USM_OK)
            st = driver_alloc(a, padded, 1, &p);
    }
    if (st != USM_OK)
        return st;
    a->driver_base = p;
    a->driver_size = padded;
    a->view.base   = (void *)usm_align_up_ptr((uintptr_t)p, align);
    a->view.size   = size;
    return USM_OK;
}

/* Repeats until no other area has the addresses.  The ranges that were refused are held until then,
 * because the driver would return the same addresses otherwise. */
static usm_status obtain_unique(usm__area *a, size_t size, size_t align)
{
    struct {
        void  *p;
        size_t size;
    } aside[ASIDE_MAX];
    size_t           n     = 0;
    const usm__area *other = NULL;
    usm_status       st;

    for (;;) {
        st = obtain(a, size, align);
        if (st != USM_OK)
            break;
        st = usm__map_insert(a, &other);
        if (st == USM_OK)
            break;
        if (st == USM_E_ADDRESS_TAKEN && other->ctx == a->ctx) {
            /* Freeing it might free the other area: the driver keeps it. */
            st = usm__fail(USM_E_DEVICE, "%s returned %p, which it has given out before",
                           a->dev->term, a->view.base);
            break;
        }
        if (st != USM_E_ADDRESS_TAKEN || n == ASIDE_MAX) {
            driver_free(a, a->driver_base, a->driver_size);
            break;
        }
        aside[n].p      = a->driver_base;
        aside[n++].size = a->driver_size;
    }
    while (n > 0) {
        n--;
        driver_free(a, aside[n].p, aside[n].size);
    }
    return st;
}

/* ---- areas --------------------------------------------------------------------------- */

static usm__area *make_area(usm_pool *pool)
{
    usm__area *a = usm__meta_alloc(&area_type);

    if (!a) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for an area");
        return NULL;
    }
    a->view = (usm_area){NULL, 0, NULL};
    a->ctx  = pool->ctx;
    a->pool = pool;
    a->dev  = pool->ctx->devices[pool->index].dev;
    a->kind = pool->kind;
    usm_list_init(&a->link);
    return a;
}

static void enter_list(usm__area *a)
{
    usm__mutex_lock(&a->pool->lock);
    usm_list_append(&a->pool->areas, &a->link);
    usm__mutex_unlock(&a->pool->lock);
}

static usm_status take(usm_pool *pool, size_t size, size_t align, usm_area **area)
{
    usm__area *a = make_area(pool);
    usm_status st;

    if (!a)
        return USM_E_NO_MEMORY;
    st = count(a, size);
    if (st != USM_OK)
        goto err_area;
    st = obtain_unique(a, size, align ? align : 1);
    if (st != USM_OK)
        goto err_count;
    uncount(a, size + a->padding - a->driver_size); /* padding that an earlier try needed, and this
                                                       one did not */
    count_driver_alloc(a);
    enter_list(a);
    *area = &a->view;
    return USM_OK;

err_count:
    uncount(a, size + a->padding);
err_area:
    usm__meta_free(&area_type, a);
    return st;
}

usm_status usm__area_take(void *source, size_t size, size_t align, usm_area **area)
{
    usm_status st;

    if (usm__area_is_held)
        return USM_E_AGAIN;
    if (!usm__pool_enter(source))
        return USM_E_BUSY;
    st = take(source, size, align, area);
    usm__pool_leave(source);
    return st;
}

size_t usm__area_granularity(usm_pool *pool)
{
    const usm_context *ctx    = pool->ctx;
    const usm_device  *dev    = ctx->devices[pool->index].dev;
    void              *handle = pool->kind == USM_HOST ? NULL : dev->desc.handle;
    size_t             g      = 0;

    if (pool->export_mode != USM_POOL_PRIVATE || !usm__backend_can(ctx->be, USM_CAP_VMEM) ||
        usm__be_vmem_granularity(ctx->be, ctx->native, handle, pool->kind, PIECE_USUAL, &g) !=
            USM_OK)
        return 0;
    return usm_is_pow2(g) && g >= GRANULARITY_MIN && g <= GRANULARITY_MAX ? g : 0;
}

/* One entry for each granule: half a MiB for 64 GiB in granules of 2 MiB.  Only the pages in use
 * cost memory. */
static size_t pieces_size(const usm__area *a, size_t size)
{
    return size / a->granularity * sizeof(usm__area_piece);
}

static usm_status reserve(usm_pool *pool, size_t size, usm_area **area)
{
    usm__area *a  = make_area(pool);
    usm_status st = USM_OK;

    if (!a)
        return USM_E_NO_MEMORY;
    a->granularity = usm__area_granularity(a->pool);
    if (a->granularity == 0 || size == 0 || size % a->granularity != 0) {
        st = usm__fail(USM_E_NOT_SUPPORTED, "%s cannot reserve %zu bytes of addresses in pieces",
                       a->dev->term, size);
        goto err_area;
    }
    a->pieces = usm__os_map_noreserve(pieces_size(a, size));
    if (!a->pieces) {
        st = usm__fail(USM_E_NO_MEMORY, "no host memory for a reserved area");
        goto err_area;
    }
    st = obtain_unique(a, size, usm_max_size(RESERVE_ALIGN, a->granularity));
    if (st != USM_OK)
        goto err_pieces;
    enter_list(a);
    *area = &a->view;
    return USM_OK;

err_pieces:
    (void)usm__os_unmap(a->pieces, pieces_size(a, size));
err_area:
    usm__meta_free(&area_type, a);
    return st;
}

usm_status usm__area_reserve(void *source, size_t size, usm_area **area)
{
    usm_status st;

    if (!usm__pool_enter(source))
        return USM_E_BUSY;
    st = reserve(source, size, area);
    usm__pool_leave(source);
    return st;
}

static usm__area_piece *piece_of(const usm__area *a, size_t offset)
{
    return &a->pieces[offset / a->granularity];
}

/* Unmaps a piece that has memory, which then counts no more. */
static usm_status drop_memory(usm__area *a, size_t offset)
{
    const usm__area_piece *piece = piece_of(a, offset);
    usm_status st = driver_unmap(a, (char *)a->view.base + offset, piece->size, piece->phys);

    if (st != USM_OK)
        return st;
    uncount(a, piece->size);
    usm_add_relaxed(&a->pool->held->driver_frees, (uint64_t)1);
    return USM_OK;
}

/* The piece is the pool's no more, and neither is what was kept of it while the pool slept. */
static void forget_piece(usm__area *a, size_t offset)
{
    const usm__area_piece *piece = piece_of(a, offset);

    if (piece->is_resting)
        usm_sub_relaxed(&a->pool->asleep, (uint64_t)piece->size);
    if (a->pool->sleeper)
        a->pool->sleeper->piece_gone(a->pool->sleeper, (char *)a->view.base + offset);
}

/* A piece that the driver fails to unmap stays in the table and in the quotas.  The library tries
 * again when the pool maps there, or returns the area. */
static bool unmap_piece(usm__area *a, size_t offset)
{
    usm__area_piece *piece = piece_of(a, offset);
    void            *p     = (char *)a->view.base + offset;

    notify_checker(a, p, piece->size);
    if (!piece->is_resting && drop_memory(a, offset) != USM_OK) {
        usm__warn("%p was not unmapped by the driver: %s", p, usm_last_error());
        return false;
    }
    forget_piece(a, offset);
    usm__pages_discard((uintptr_t)p, piece->size);
    *piece = (usm__area_piece){NULL, 0, false};
    usm_sub_relaxed(&a->npieces, (size_t)1);
    return true;
}

/* Within the limits, or not at all. */
static usm_status map_memory(usm__area *a, size_t offset, size_t size)
{
    void      *phys = NULL;
    usm_status st   = count(a, size);

    if (st != USM_OK)
        return st;
    st = driver_map(a, (char *)a->view.base + offset, size, &phys);
    if (st != USM_OK) {
        uncount(a, size);
        return st;
    }
    *piece_of(a, offset) = (usm__area_piece){phys, size, false};
    count_driver_alloc(a);
    return USM_OK;
}

static usm_status map(usm__area *a, size_t offset, size_t size)
{
    usm_status st;

    if (piece_of(a, offset)->size && !unmap_piece(a, offset))
        return usm__fail(USM_E_DEVICE, "%s has not unmapped %p: what it held stays taken",
                         a->dev->term, (void *)((char *)a->view.base + offset));
    st = map_memory(a, offset, size);
    if (st == USM_OK)
        usm_add_relaxed(&a->npieces, (size_t)1);
    return st;
}

usm_status usm__area_map(void *source, usm_area *area, size_t offset, size_t size)
{
    usm_status st;

    if (usm__area_is_held)
        return USM_E_AGAIN;
    if (!usm__pool_enter(source))
        return USM_E_BUSY;
    st = map(usm_container_of(area, usm__area, view), offset, size);
    usm__pool_leave(source);
    return st;
}

void usm__area_unmap(void *source, usm_area *area, size_t offset, size_t size)
{
    (void)size; /* the entry of the piece has it */
    usm__pool_enter_to_give(source);
    (void)unmap_piece(usm_container_of(area, usm__area, view), offset);
    usm__pool_leave(source);
}

/* Addresses behind which the driver still has memory are not released, because another area would
 * get them. */
static void give_reserved(usm__area *a)
{
    size_t kept = 0;

    /* Stops at the last used entry: reading entries that were never used would allocate their
     * pages. */
    for (size_t i = 0; usm_load_relaxed(&a->npieces) > kept; i++) {
        size_t size = a->pieces[i].size;

        if (size && !unmap_piece(a, i * a->granularity)) {
            forget_piece(a, i * a->granularity);
            uncount(a, size);
            kept++;
        }
    }
    if (kept == 0)
        driver_free(a, a->driver_base, a->driver_size);
    (void)usm__os_unmap(a->pieces, pieces_size(a, a->view.size));
}

static void give(usm_pool *pool, usm__area *a)
{
    usm__mutex_lock(&pool->lock);
    usm_list_remove(&a->link);
    usm__mutex_unlock(&pool->lock);
    if (pool->export_mode != USM_POOL_PRIVATE)
        usm__parts_exports()->area_gone(a);
    usm__gone_note(a->view.base);
    usm__map_remove(a);
    if (usm__observer_order_on())
        usm__observer_get()->range_gone(a->view.base, a->view.size);
    if (a->granularity) {
        give_reserved(a);
    } else {
        usm__pages_discard((uintptr_t)a->view.base, a->view.size);
        driver_free(a, a->driver_base, a->driver_size);
        uncount(a, a->driver_size);
        usm_add_relaxed(&pool->held->driver_frees, (uint64_t)1);
    }
    usm__meta_free(&area_type, a);
}

void usm__area_give(void *source, usm_area *area)
{
    usm__pool_enter_to_give(source);
    give(source, usm_container_of(area, usm__area, view));
    usm__pool_leave(source);
}

/* ---- memory that leaves while its addresses stay ------------------------------------- */

size_t usm__area_pieces(usm_pool *pool, usm__area_piece_at *list, size_t cap)
{
    size_t n = 0, seen;

    usm__mutex_lock(&pool->lock);
    USM_LIST_FOREACH (it, &pool->areas) {
        usm__area *a = usm_container_of(it, usm__area, link);

        if (!a->granularity) {
            n = SIZE_MAX;
            break;
        }
        seen = 0;
        for (size_t i = 0; seen < usm_load_relaxed(&a->npieces); i++) {
            if (a->pieces[i].size == 0)
                continue;
            if (n < cap)
                list[n] = (usm__area_piece_at){a, i * a->granularity, a->pieces[i].size};
            n++;
            seen++;
        }
    }
    usm__mutex_unlock(&pool->lock);
    return n;
}

usm_status usm__area_rest(const usm__area_piece_at *at)
{
    usm__area_piece *piece = piece_of(at->area, at->offset);
    usm_status       st    = drop_memory(at->area, at->offset);

    if (st != USM_OK)
        return st;
    piece->phys       = NULL;
    piece->is_resting = true;
    usm_add_relaxed(&at->area->pool->asleep, (uint64_t)piece->size);
    return USM_OK;
}

usm_status usm__area_rouse(const usm__area_piece_at *at)
{
    usm_status st;

    if (!piece_of(at->area, at->offset)->is_resting)
        return USM_OK; /* its memory could not be taken after a wake-up that failed */
    st = map_memory(at->area, at->offset, at->size);
    if (st == USM_OK)
        usm_sub_relaxed(&at->area->pool->asleep, (uint64_t)at->size);
    return st;
}
