/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks of the pools, and what the driver is asked for. */
#include "areas.h"
#include "layer.h"
#include "pools.h"

#include <stdlib.h>
#include <usm/context.h>
#include <usm/memory.h>
#include <usm/status.h>

/* ---- the driver ------------------------------------------------------------------------------ */

static void give_back(const inside_key *key, void *p)
{
    inside_context *owner = key->owner;

    atomic_fetch_add(&owner->gives, 1);
    if (key->sort >= INSIDE_SVM)
        inside.target->clSVMFree(owner->handle, p);
    else
        (void)owner->driver.free(owner->handle, p);
    atomic_fetch_sub(&owner->gives, 1);
}

static usm_status give_area(const inside_key *key, void *p)
{
    const inside_context *owner = key->owner;

    if (!atomic_load(&owner->is_destroyed))
        give_back(key, p);
    return USM_OK;
}

static void *ask_driver(const inside_key *key, size_t size, size_t alignment)
{
    const inside_context *owner  = key->owner;
    const inside_driver  *d      = &owner->driver;
    cl_context            handle = owner->handle;
    cl_uint               align  = alignment <= INSIDE_MOST_ALIGN ? (cl_uint)alignment : 0;
    cl_int                err    = CL_SUCCESS;
    void                 *p      = NULL;

    switch ((inside_sort)key->sort) {
    case INSIDE_HOST:
        p = d->host_alloc(handle, NULL, size, align, &err);
        break;
    case INSIDE_DEVICE:
        p = d->device_alloc(handle, key->dev, NULL, size, align, &err);
        break;
    case INSIDE_SHARED:
        p = d->shared_alloc(handle, key->dev, NULL, size, align, &err);
        break;
    case INSIDE_SVM:
        p = inside.target->clSVMAlloc(handle, CL_MEM_READ_WRITE, size, align);
        break;
    case INSIDE_SVM_FINE:
        p = inside.target->clSVMAlloc(handle, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER,
                                      size, align);
        break;
    }
    return err ? NULL : p;
}

static usm_kind kind_of(int sort)
{
    if (sort == INSIDE_HOST)
        return USM_HOST;
    return sort == INSIDE_DEVICE || sort == INSIDE_SVM ? USM_DEVICE : USM_SHARED;
}

static bool may_cut(const inside_key *key)
{
    const inside_context *owner = key->owner;

    return owner->may_cut || !(key->sort == INSIDE_SHARED || key->sort == INSIDE_SVM);
}

static bool driver_has(const inside_driver *d, inside_sort sort)
{
    if (sort >= INSIDE_SVM)
        return true; /* the program calls clSVMAlloc() */
    return d->free && (sort == INSIDE_HOST     ? d->host_alloc != NULL
                       : sort == INSIDE_DEVICE ? d->device_alloc != NULL
                                               : d->shared_alloc != NULL);
}

static const inside_source source = {.name    = "OpenCL",
                                     .kind_of = kind_of,
                                     .may_cut = may_cut,
                                     .alloc   = ask_driver,
                                     .free    = give_area};

/* ---- blocks ---------------------------------------------------------------------------------- */

static inside_pool *pool_for(cl_context handle, cl_device_id dev, inside_sort sort)
{
    inside_key      asked = {handle, dev, (int)sort}, key = asked;
    inside_pool    *pool = inside_pool_last(&asked);
    inside_context *owner;

    if (pool)
        return pool;
    pthread_mutex_lock(&inside.lock);
    owner = inside_context_find(handle);
    pthread_mutex_unlock(&inside.lock);
    if (!owner || !driver_has(&owner->driver, sort))
        return NULL;
    key.owner = owner;
    pool      = inside_pool_get(&source, &key);
    inside_pool_note(&asked, pool);
    return pool;
}

void *inside_alloc(cl_context ctx, cl_device_id dev, inside_sort sort, size_t size, size_t align,
                   bool *is_refused)
{
    inside_context *owner;
    inside_pool    *pool;
    void           *p;

    *is_refused = false;
    if (size == 0 || align > INSIDE_MOST_ALIGN || (align & (align - 1)) != 0 ||
        atomic_load_explicit(&inside.stands_aside, memory_order_relaxed))
        return NULL;
    pool = pool_for(ctx, dev, sort);
    if (!pool)
        return NULL;
    owner = pool->key.owner;
    atomic_fetch_add(&owner->uses, 1);
    p = inside_pool_alloc(pool, size, is_refused);
    if (!p)
        inside_context_unuse(owner);
    return p;
}

/* The pool whose live block p points into; NULL: none. */
static inside_pool *pool_around(const void *p)
{
    usm_context *ctx = NULL;

    if (!inside_pools_exist() || usm_get_pointer_context(p, &ctx) != USM_OK)
        return NULL;
    return inside_pool_of(ctx);
}

bool inside_block(const void *p, void **base, size_t *size)
{
    const inside_pool *pool = pool_around(p);

    *base = NULL;
    *size = 0;
    if (pool && usm_get_address_range(p, pool->ctx, base, size) == USM_OK)
        return true;
    return inside_area_start(p) != NULL;
}

/* pre: p is a block of owner. */
static void free_block(inside_context *owner, void *p)
{
    usm_free(p);
    inside_context_unuse(owner);
}

typedef struct later {
    inside_context *owner;
    void           *p;
} later;

static void free_now(void *user)
{
    later *l = user;

    free_block(l->owner, l->p);
    free(l);
}

/* A driver waits for commands that use the block; the layer, which does not know these, for all.
 * One may wait for an event that this thread is to set, or for the end of the callback that it runs
 * (SYCL frees like this): then the block is freed behind it, and nobody waits. */
static cl_int free_behind_commands(inside_context *owner, void *p)
{
    cl_int err;
    later *l;

    if (atomic_load(&owner->user_events) <= 0 && inside_callbacks == 0) {
        err = inside_context_wait(owner);
        if (!err)
            free_block(owner, p);
        return err;
    }
    l = malloc(sizeof *l);
    if (!l)
        return CL_OUT_OF_HOST_MEMORY;
    *l  = (later){owner, p};
    err = inside_context_after(owner, free_now, l);
    if (err)
        free(l);
    return err;
}

bool inside_free(void *p, bool is_blocking, cl_int *err)
{
    const inside_pool *pool = pool_around(p);
    inside_context    *owner;
    void              *base = NULL;
    size_t             size;

    *err = CL_INVALID_VALUE;
    if (!pool || usm_get_address_range(p, pool->ctx, &base, &size) != USM_OK)
        return inside_area_start(p) != NULL;
    if (base != p)
        return true;
    owner = pool->key.owner; /* which lives as long as the block */
    *err  = CL_SUCCESS;
    if (is_blocking)
        *err = free_behind_commands(owner, p);
    else
        free_block(owner, p);
    return true;
}
