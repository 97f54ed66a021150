/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pools: one for each context, device and kind of memory, made when it is first asked for.
 * Their areas are the driver's own allocations in that context, so that what it knows of its memory
 * stays true. */
#include "driver.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <usm/context.h>
#include <usm/memory.h>
#include <usm/pool.h>
#include <usm/source.h>
#include <usm/status.h>

#define MOST_SIZE  ((size_t)4 << 20)  /* of a block that is kept when it is freed */
#define MOST_ALIGN 128                /* of a block */
#define AREA_ALIGN ((size_t)64 << 10) /* what drivers for GPUs align to; libusm checks */

typedef struct inside_pool {
    ze_context_handle_t owner;
    ze_device_handle_t  dev;
    usm_kind            kind;
    usm_area_source     source;
    usm_context        *ctx;
    usm_pool           *pool, *direct; /* direct: for blocks beyond MOST_SIZE.  NULL: they could not
                                          be made, and the driver serves */
    struct inside_pool *next;          /* guarded by lock */
} inside_pool;

static pthread_mutex_t   lock = PTHREAD_MUTEX_INITIALIZER;
static inside_pool      *pools; /* guarded by lock */
static _Atomic(bool)     stands_aside;
static _Atomic(unsigned) generation; /* changes when a pool ends: threads remember one */

/* What this thread asked for last, true while the generation is the same. */
static __thread struct {
    unsigned            generation;
    ze_context_handle_t owner;
    ze_device_handle_t  dev;
    usm_kind            kind;
    inside_pool        *pool;
} last;

void inside_stand_aside(void)
{
    atomic_store(&stands_aside, true);
}

/* ---- others who pool ------------------------------------------------------------------------- */

/* libusm's own backend: pools of pools would be two owners of one address in its page map.  UMF,
 * and Unified Runtime's adapters that have it linked in: SYCL's pools, which inside/umf serves. */
static int pools_itself(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    if (!strstr(info->dlpi_name, "libusm_backend_level_zero.") &&
        !strstr(info->dlpi_name, "libumf.so") &&
        !strstr(info->dlpi_name, "libur_adapter_level_zero"))
        return 0;
    *(bool *)found = true;
    return 1;
}

static void look_for_pools(void)
{
    bool found = false;

    (void)dl_iterate_phdr(pools_itself, &found);
    if (found)
        inside_stand_aside();
}

/* ---- the source: areas from the driver ------------------------------------------------------- */

static ze_result_t ask_driver(const inside_pool *pool, size_t size, size_t align, void **p)
{
    const ze_mem_dditable_t   *mem       = &inside_real_driver.mem;
    ze_device_mem_alloc_desc_t of_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t   of_host   = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};

    if (pool->kind == USM_HOST)
        return mem->pfnAllocHost(pool->owner, &of_host, size, align, p);
    if (pool->kind == USM_DEVICE)
        return mem->pfnAllocDevice(pool->owner, &of_device, size, align, pool->dev, p);
    return mem->pfnAllocShared(pool->owner, &of_device, &of_host, size, align, pool->dev, p);
}

/* A driver's code hides what it means.  Where it was not about memory, the driver is asked again
 * for the block, and its own code is the program's answer. */
static usm_status take_area(void *user, usm_kind kind, size_t size, size_t align, void **p)
{
    const inside_pool *pool  = user;
    void              *given = NULL;

    (void)kind;
    if (ask_driver(pool, size, align, &given) || !given)
        return USM_E_NO_MEMORY;
    if (!inside_area_add(given, size)) {
        (void)inside_real_driver.mem.pfnFree(pool->owner, given);
        return USM_E_NO_MEMORY;
    }
    *p = given;
    return USM_OK;
}

static usm_status give_area(void *user, usm_kind kind, void *p, size_t size)
{
    const inside_pool *pool = user;

    (void)kind;
    (void)size;
    inside_area_remove(p);
    return inside_real_driver.mem.pfnFree(pool->owner, p) ? USM_E_DEVICE : USM_OK;
}

/* ---- making and ending ----------------------------------------------------------------------- */

/* A device with memory of its own may move shared memory by whole allocations: two blocks in one
 * would overwrite each other's data. */
static bool may_cut_shared(ze_device_handle_t dev)
{
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};

    return dev && inside_real_driver.device.pfnGetProperties &&
           !inside_real_driver.device.pfnGetProperties(dev, &properties) &&
           (properties.flags & (uint32_t)ZE_DEVICE_PROPERTY_FLAG_INTEGRATED) != 0;
}

static void open_pool(inside_pool *pool)
{
    usm_native_desc native = USM_NATIVE_DESC_INIT;
    usm_pool_desc   desc = USM_POOL_DESC_INIT, direct = desc;

    pool->source           = (usm_area_source)USM_AREA_SOURCE_INIT;
    pool->source.user      = pool;
    pool->source.kinds     = pool->kind == USM_HOST     ? USM_SOURCE_HOST
                             : pool->kind == USM_DEVICE ? USM_SOURCE_DEVICE
                                                        : USM_SOURCE_SHARED;
    pool->source.max_align = AREA_ALIGN;
    pool->source.alloc     = take_area;
    pool->source.free      = give_area;
    native.backend         = "source";
    native.handle          = &pool->source;
    desc.min_align         = MOST_ALIGN;
    direct.min_align       = MOST_ALIGN;
    direct.name            = "direct";
    if (pool->kind == USM_SHARED && !may_cut_shared(pool->dev))
        desc.name = "whole";
    if (usm_context_from_native(&native, &pool->ctx) != USM_OK ||
        usm_pool_create(pool->ctx, NULL, pool->kind, &direct, &pool->direct) != USM_OK ||
        usm_pool_create(pool->ctx, NULL, pool->kind, &desc, &pool->pool) != USM_OK)
        (void)fprintf(stderr, "usm: the Level Zero driver serves memory itself: %s\n",
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
static inside_pool *find_pool(const inside_request *r)
{
    inside_pool *pool = pools;

    while (pool && !(pool->owner == r->ctx && pool->dev == r->dev && pool->kind == r->kind))
        pool = pool->next;
    return pool;
}

/* libusm is not called with the lock: two threads may make a pool, of which one stays. */
static inside_pool *make_pool(const inside_request *r)
{
    inside_pool *pool = calloc(1, sizeof *pool), *first;

    if (!pool)
        return NULL;
    pool->owner = r->ctx;
    pool->dev   = r->dev;
    pool->kind  = r->kind;
    open_pool(pool);
    pthread_mutex_lock(&lock);
    first = find_pool(r);
    if (!first) {
        pool->next = pools;
        pools      = pool;
    }
    pthread_mutex_unlock(&lock);
    if (first)
        close_pool(pool);
    return first ? first : pool;
}

void inside_pools_end(ze_context_handle_t ctx)
{
    inside_pool *ended = NULL;

    pthread_mutex_lock(&lock);
    for (inside_pool **at = &pools; *at;) {
        inside_pool *pool = *at;

        if (pool->owner != ctx) {
            at = &pool->next;
            continue;
        }
        *at        = pool->next;
        pool->next = ended;
        ended      = pool;
    }
    atomic_fetch_add(&generation, 1);
    pthread_mutex_unlock(&lock);
    while (ended) {
        inside_pool *next = ended->next;

        close_pool(ended);
        ended = next;
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static inside_pool *pool_for(const inside_request *r)
{
    unsigned     now = atomic_load(&generation);
    inside_pool *pool;

    if (last.pool && last.generation == now && last.owner == r->ctx && last.dev == r->dev &&
        last.kind == r->kind)
        return last.pool;
    look_for_pools();
    if (atomic_load(&stands_aside))
        return NULL;
    pthread_mutex_lock(&lock);
    pool = find_pool(r);
    pthread_mutex_unlock(&lock);
    if (!pool)
        pool = make_pool(r);
    if (!pool || !pool->pool)
        return NULL;
    last.generation = now;
    last.owner      = r->ctx;
    last.dev        = r->dev;
    last.kind       = r->kind;
    last.pool       = pool;
    return pool;
}

bool inside_alloc(const inside_request *r, void **p, bool *is_refused)
{
    inside_pool *pool;
    void        *block;

    *is_refused = false;
    if (r->size == 0 || r->align > MOST_ALIGN || (r->align & (r->align - 1)) != 0 || !r->ctx ||
        (r->kind == USM_DEVICE && !r->dev) ||
        atomic_load_explicit(&stands_aside, memory_order_relaxed)) /* set once, and for good */
        return false;
    pool = pool_for(r);
    if (!pool)
        return false;
    block       = usm_pool_malloc(r->size <= MOST_SIZE ? pool->pool : pool->direct, r->size);
    *is_refused = !block && usm_last_status() == USM_E_BUDGET;
    if (block)
        *p = block;
    return block != NULL;
}

bool inside_owns(const void *p, bool *is_block)
{
    usm_context *ctx  = NULL;
    void        *base = NULL;
    size_t       size;

    *is_block = false;
    if (!inside_area_start(p))
        return false;
    *is_block = usm_get_pointer_context(p, &ctx) == USM_OK &&
                usm_get_address_range(p, ctx, &base, &size) == USM_OK && base == p;
    return true;
}

void inside_free(void *p)
{
    usm_free(p);
}
