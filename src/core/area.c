/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Areas: the only place that takes memory from a driver and gives it back.
 *
 * What drivers get wrong is put right here: alignment is checked after every
 * allocation and reached by padding where the driver does not honour it; an
 * area whose addresses another context has is set aside and asked for again;
 * accounts and limits are kept.  Pools call through usm_area_source. */
#include "core/area.h"

#include "base/inline/bits.h"
#include "base/log.h"
#include "base/meta.h"
#include "core/pool.h"

#define ASIDE_MAX 8

/* What is fixed outlives the free: who frees a block a second time, at the same
 * moment, may still be looking at it. */
static usm__meta_type area_type =
    USM__META_TYPE(usm__area, offsetof(usm__area, driver_base), "areas");

static usm_status driver_alloc(usm__area *a, size_t size, size_t align, void **p)
{
    const usm_context *ctx = a->ctx;

    return usm__be_mem_alloc(ctx->be, ctx->native, a->kind == USM_HOST ? NULL : a->dev->desc.handle,
                             a->kind, size, usm_min_size(align, a->dev->desc.max_align), p);
}

static void driver_free(const usm__area *a, void *p, size_t size)
{
    usm_status st = usm__be_mem_free(a->ctx->be, a->ctx->native, a->kind, p, size);

    if (st != USM_OK)
        usm__warn("%p was not freed by the driver: %s", p, usm_last_error());
}

/* Fills driver_* and view; the address is aligned as asked whatever the driver does. */
static usm_status obtain(usm__area *a, size_t size, size_t align)
{
    size_t     padded = size;
    void      *p      = NULL;
    usm_status st     = USM_OK;

    if (align <= a->dev->desc.max_align)
        st = driver_alloc(a, size, align, &p);
    if (st == USM_OK && p && !usm_is_aligned(p, align)) {
        driver_free(a, p, size);
        p = NULL;
    }
    if (st == USM_OK && !p) {
        if (__builtin_add_overflow(size, align, &padded))
            return usm__fail(USM_E_SIZE, "%zu bytes aligned to %zu exceed the address space", size,
                             align);
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

/* Until its addresses are nobody else's; those refused are held meanwhile, or the
 * driver would return them again. */
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
            /* Freeing it might free the other: it stays with the driver. */
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

static usm_status reserve(usm_pool *pool, size_t size)
{
    uint64_t held = 0;

    if (usm__account_count(&pool->reserved, pool->maximum_size, size, &held))
        return USM_OK;
    return usm__fail(USM_E_BUDGET,
                     "%zu bytes more would cross the pool's maximum_size of %zu (it holds %llu)",
                     size, pool->maximum_size, (unsigned long long)held);
}

/* The padding counts too, but breaks no limit. */
static void enter_books(usm_pool *pool, usm__area *a)
{
    uint64_t padding = a->driver_size - a->view.size;
    uint64_t now     = usm_add_relaxed(&pool->reserved, padding) + padding;
    uint64_t peak    = usm_load_relaxed(&pool->reserved_peak);

    if (padding)
        usm__account_pad(a->dev, a->kind, padding);

    while (now > peak && !usm_cas_acq_rel(&pool->reserved_peak, &peak, now))
        ;
    usm_add_relaxed(&pool->driver_allocs, (uint64_t)1);
    usm__mutex_lock(&pool->lock);
    usm_list_append(&pool->areas, &a->link);
    usm__mutex_unlock(&pool->lock);
}

usm_status usm__area_take(void *source, size_t size, size_t align, usm_area **area)
{
    usm_pool  *pool = source;
    usm__area *a;
    usm_status st = reserve(pool, size);

    if (st != USM_OK)
        return st;
    a = usm__meta_alloc(&area_type);
    if (!a) {
        st = usm__fail(USM_E_NO_MEMORY, "no host memory for an area");
        goto err_reserved;
    }
    a->view = (usm_area){NULL, 0, NULL};
    a->ctx  = pool->ctx;
    a->pool = pool;
    a->dev  = pool->ctx->devices[pool->index].dev;
    a->kind = pool->kind;
    usm_list_init(&a->link);
    st = usm__account_add(a->dev, a->kind, size);
    if (st != USM_OK)
        goto err_free;
    st = obtain_unique(a, size, align ? align : 1);
    if (st != USM_OK)
        goto err_account;
    enter_books(pool, a);
    *area = &a->view;
    return USM_OK;

err_account:
    usm__account_sub(a->dev, a->kind, size);
err_free:
    usm__meta_free(&area_type, a);
err_reserved:
    usm_sub_relaxed(&pool->reserved, (uint64_t)size);
    return st;
}

void usm__area_give(void *source, usm_area *area)
{
    usm_pool  *pool = source;
    usm__area *a    = usm_container_of(area, usm__area, view);

    usm__mutex_lock(&pool->lock);
    usm_list_remove(&a->link);
    usm__mutex_unlock(&pool->lock);
    usm__gone_note(a->view.base);
    usm__map_remove(a);
    driver_free(a, a->driver_base, a->driver_size);
    usm__account_sub(a->dev, a->kind, a->driver_size);
    usm_sub_relaxed(&pool->reserved, (uint64_t)a->driver_size);
    usm_add_relaxed(&pool->driver_frees, (uint64_t)1);
    usm__meta_free(&area_type, a);
}
