/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pools: one for each context, device and sort of memory, made when it is first asked for.
 * Their areas are the driver's own allocations in that context, so that what it knows of its memory
 * stays true. */
#include "layer.h"

#include <search.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <usm/context.h>
#include <usm/memory.h>
#include <usm/pool.h>
#include <usm/source.h>
#include <usm/status.h>

#define MOST_SIZE  ((size_t)4 << 20)  /* of a block that is kept when it is freed */
#define MOST_ALIGN 128                /* OpenCL's own: that of its largest type */
#define AREA_ALIGN ((size_t)64 << 10) /* what drivers for GPUs align to; libusm checks */

struct inside_pool {
    inside_context *owner;
    cl_device_id    dev;
    inside_sort     sort;
    usm_area_source source;
    usm_context    *ctx;
    usm_pool       *pool, *direct; /* direct: for blocks beyond MOST_SIZE.  NULL: they could not be
                                      made, and the driver serves */
    inside_pool    *next;          /* guarded by inside.lock */
};

/* A piece of memory that the driver gave. */
typedef struct area {
    uintptr_t start;
    size_t    size;
} area;

/* What this thread met last, true while the generation is the same. */
static __thread struct {
    unsigned     generation;
    cl_context   handle;
    cl_device_id dev;
    inside_sort  sort;
    inside_pool *pool;
} last_asked;

static __thread struct {
    unsigned           generation;
    const usm_context *ctx;
    inside_pool       *pool;
} last_found;

/* ---- areas ----------------------------------------------------------------------------------- */

/* Areas that overlap are equal: an address is an area of one byte. */
static int compare(const void *a, const void *b)
{
    const area *x = a, *y = b;

    if (x->start + x->size <= y->start)
        return -1;
    return y->start + y->size <= x->start ? 1 : 0;
}

/* false: no memory, or an area there that the driver has not been seen to free. */
static bool remember(void *p, size_t size)
{
    area *a = malloc(sizeof *a);
    bool  is_new;
    void *found;

    if (!a)
        return false;
    *a = (area){(uintptr_t)p, size};
    pthread_mutex_lock(&inside.areas_lock);
    inside.is_tree_whole = false;
    found                = tsearch(a, &inside.areas, compare);
    is_new               = found && *(area **)found == a; /* nodes change with the tree */
    inside.is_tree_whole = true;
    pthread_mutex_unlock(&inside.areas_lock);
    if (!is_new)
        free(a);
    return is_new;
}

static void forget(void *p)
{
    area   key = {(uintptr_t)p, 1};
    void **found;
    area  *a = NULL;

    pthread_mutex_lock(&inside.areas_lock);
    found = tfind(&key, &inside.areas, compare);
    if (found) {
        a                    = *found;
        inside.is_tree_whole = false;
        (void)tdelete(&key, &inside.areas, compare);
        inside.is_tree_whole = true;
    }
    pthread_mutex_unlock(&inside.areas_lock);
    free(a);
}

void *inside_area_start(const void *p)
{
    area      key = {(uintptr_t)p, 1};
    void    **found;
    uintptr_t start;

    if (!atomic_load_explicit(&inside.has_pools, memory_order_acquire))
        return NULL;
    pthread_mutex_lock(&inside.areas_lock);
    found = tfind(&key, &inside.areas, compare);
    start = found ? (*(area **)found)->start : 0;
    pthread_mutex_unlock(&inside.areas_lock);
    return (void *)start;
}

/* The lock is not taken for a fork: libusm waits there for a thread that takes an area, which takes
 * this lock, and whose handlers come first depends on which library began first.  A tree that was
 * about to change is forgotten. */
void inside_areas_in_child(void)
{
    (void)pthread_mutex_init(&inside.areas_lock, NULL);
    if (!inside.is_tree_whole)
        inside.areas = NULL;
    inside.is_tree_whole = true;
}

/* ---- the source: areas from the driver ------------------------------------------------------- */

static void give_back(const inside_pool *pool, void *p)
{
    inside_context *owner = pool->owner;

    atomic_fetch_add(&owner->gives, 1);
    if (pool->sort >= INSIDE_SVM)
        inside.target->clSVMFree(owner->handle, p);
    else
        (void)owner->driver.free(owner->handle, p);
    atomic_fetch_sub(&owner->gives, 1);
}

static void *ask_driver(const inside_pool *pool, size_t size, cl_uint align)
{
    const inside_driver *d      = &pool->owner->driver;
    cl_context           handle = pool->owner->handle;
    cl_int               err    = CL_SUCCESS;
    void                *p      = NULL;

    switch (pool->sort) {
    case INSIDE_HOST:
        p = d->host_alloc(handle, NULL, size, align, &err);
        break;
    case INSIDE_DEVICE:
        p = d->device_alloc(handle, pool->dev, NULL, size, align, &err);
        break;
    case INSIDE_SHARED:
        p = d->shared_alloc(handle, pool->dev, NULL, size, align, &err);
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

/* A driver's code hides what it means.  Where it was not about memory, the driver is asked again
 * for the block, and its own code is the program's answer. */
static usm_status take_area(void *user, usm_kind kind, size_t size, size_t align, void **p)
{
    const inside_pool *pool = user;
    void              *given;

    (void)kind;
    given = ask_driver(pool, size, align <= MOST_ALIGN ? (cl_uint)align : 0);
    if (given && !remember(given, size)) {
        give_back(pool, given);
        given = NULL;
    }
    if (!given)
        return USM_E_NO_MEMORY;
    *p = given;
    return USM_OK;
}

static usm_status give_area(void *user, usm_kind kind, void *p, size_t size)
{
    const inside_pool *pool = user;

    (void)kind;
    (void)size;
    forget(p);
    if (!atomic_load(&pool->owner->is_destroyed))
        give_back(pool, p);
    return USM_OK;
}

/* ---- making and ending ----------------------------------------------------------------------- */

static usm_kind kind_of(inside_sort sort)
{
    if (sort == INSIDE_HOST)
        return USM_HOST;
    return sort == INSIDE_DEVICE || sort == INSIDE_SVM ? USM_DEVICE : USM_SHARED;
}

static bool driver_has(const inside_driver *d, inside_sort sort)
{
    if (sort >= INSIDE_SVM)
        return true; /* the program calls clSVMAlloc() */
    return d->free && (sort == INSIDE_HOST     ? d->host_alloc != NULL
                       : sort == INSIDE_DEVICE ? d->device_alloc != NULL
                                               : d->shared_alloc != NULL);
}

static void open_pool(inside_pool *pool)
{
    usm_native_desc native = USM_NATIVE_DESC_INIT;
    usm_pool_desc   desc = USM_POOL_DESC_INIT, direct = desc;
    usm_kind        kind = kind_of(pool->sort);

    pool->source           = (usm_area_source)USM_AREA_SOURCE_INIT;
    pool->source.user      = pool;
    pool->source.kinds     = kind == USM_HOST     ? USM_SOURCE_HOST
                             : kind == USM_DEVICE ? USM_SOURCE_DEVICE
                                                  : USM_SOURCE_SHARED;
    pool->source.max_align = AREA_ALIGN;
    pool->source.alloc     = take_area;
    pool->source.free      = give_area;
    native.backend         = "source";
    native.handle          = &pool->source;
    desc.min_align         = MOST_ALIGN;
    direct.min_align       = MOST_ALIGN;
    direct.name            = "direct";
    if ((pool->sort == INSIDE_SHARED || pool->sort == INSIDE_SVM) && !pool->owner->may_cut)
        desc.name = "whole";
    if (usm_context_from_native(&native, &pool->ctx) != USM_OK ||
        usm_pool_create(pool->ctx, NULL, kind, &direct, &pool->direct) != USM_OK ||
        usm_pool_create(pool->ctx, NULL, kind, &desc, &pool->pool) != USM_OK)
        (void)fprintf(stderr, "usm: the OpenCL driver serves memory itself: %s\n",
                      usm_last_error());
}

static void close_pool(inside_pool *pool)
{
    usm_pool_destroy(pool->direct);
    usm_pool_destroy(pool->pool);
    usm_context_destroy(pool->ctx);
    free(pool);
}

/* With the lock. */
static inside_pool *find_pool(const inside_context *owner, cl_device_id dev, inside_sort sort)
{
    inside_pool *pool = inside.pools;

    while (pool && !(pool->owner == owner && pool->dev == dev && pool->sort == sort))
        pool = pool->next;
    return pool;
}

/* libusm is not called with the lock: two threads may make a pool, of which one stays. */
static inside_pool *make_pool(inside_context *owner, cl_device_id dev, inside_sort sort)
{
    inside_pool *pool = calloc(1, sizeof *pool), *first;

    if (!pool)
        return NULL;
    pool->owner = owner;
    pool->dev   = dev;
    pool->sort  = sort;
    open_pool(pool);
    pthread_mutex_lock(&inside.lock);
    first = find_pool(owner, dev, sort);
    if (!first) {
        pool->next   = inside.pools;
        inside.pools = pool;
        atomic_store_explicit(&inside.has_pools, true, memory_order_release);
    }
    pthread_mutex_unlock(&inside.lock);
    if (first)
        close_pool(pool);
    return first ? first : pool;
}

void inside_pools_end(const inside_context *ctx)
{
    inside_pool *ended = NULL;

    pthread_mutex_lock(&inside.lock);
    for (inside_pool **at = &inside.pools; *at;) {
        inside_pool *pool = *at;

        if (pool->owner != ctx) {
            at = &pool->next;
            continue;
        }
        *at        = pool->next;
        pool->next = ended;
        ended      = pool;
    }
    atomic_fetch_add(&inside.generation, 1);
    pthread_mutex_unlock(&inside.lock);
    while (ended) {
        inside_pool *next = ended->next;

        close_pool(ended);
        ended = next;
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static inside_pool *pool_for_slow(cl_context handle, cl_device_id dev, inside_sort sort)
{
    inside_context *owner;
    inside_pool    *pool;

    pthread_mutex_lock(&inside.lock);
    owner = inside_context_find(handle);
    pool  = owner ? find_pool(owner, dev, sort) : NULL;
    pthread_mutex_unlock(&inside.lock);
    if (!pool && owner && driver_has(&owner->driver, sort))
        pool = make_pool(owner, dev, sort);
    return pool && pool->pool ? pool : NULL;
}

static inside_pool *pool_for(cl_context handle, cl_device_id dev, inside_sort sort)
{
    unsigned     generation = atomic_load(&inside.generation);
    inside_pool *pool;

    if (last_asked.pool && last_asked.generation == generation && last_asked.handle == handle &&
        last_asked.dev == dev && last_asked.sort == sort)
        return last_asked.pool;
    pool                  = pool_for_slow(handle, dev, sort);
    last_asked.generation = generation;
    last_asked.handle     = handle;
    last_asked.dev        = dev;
    last_asked.sort       = sort;
    last_asked.pool       = pool;
    return pool;
}

void *inside_alloc(cl_context ctx, cl_device_id dev, inside_sort sort, size_t size, size_t align,
                   bool *is_refused)
{
    inside_pool *pool;
    void        *p;

    *is_refused = false;
    if (size == 0 || align > MOST_ALIGN || (align & (align - 1)) != 0 ||
        atomic_load_explicit(&inside.stands_aside, memory_order_relaxed))
        return NULL;
    pool = pool_for(ctx, dev, sort);
    if (!pool)
        return NULL;
    atomic_fetch_add(&pool->owner->uses, 1);
    p = usm_pool_malloc(size <= MOST_SIZE ? pool->pool : pool->direct,
                        size); /* both align enough */
    if (!p) {
        *is_refused = usm_last_status() == USM_E_BUDGET;
        inside_context_unuse(pool->owner);
    }
    return p;
}

/* The pool whose live block p points into; NULL: none. */
static inside_pool *pool_around(const void *p)
{
    unsigned     generation = atomic_load(&inside.generation);
    usm_context *ctx        = NULL;
    inside_pool *pool;

    if (!atomic_load_explicit(&inside.has_pools, memory_order_acquire) ||
        usm_get_pointer_context(p, &ctx) != USM_OK)
        return NULL;
    if (last_found.pool && last_found.generation == generation && last_found.ctx == ctx)
        return last_found.pool;
    pthread_mutex_lock(&inside.lock);
    pool = inside.pools;
    while (pool && pool->ctx != ctx)
        pool = pool->next;
    pthread_mutex_unlock(&inside.lock);
    last_found.generation = generation;
    last_found.ctx        = ctx;
    last_found.pool       = pool;
    return pool;
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
    owner = pool->owner; /* which lives as long as the block */
    *err  = CL_SUCCESS;
    if (is_blocking)
        *err = free_behind_commands(owner, p);
    else
        free_block(owner, p);
    return true;
}
