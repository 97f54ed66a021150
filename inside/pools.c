/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools over a driver's memory; see pools.h. */
#include "pools.h"

#include "areas.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <usm/context.h>
#include <usm/memory.h>
#include <usm/status.h>

#define AREA_ALIGN ((size_t)64 << 10) /* what drivers for GPUs align to; libusm checks */

static pthread_mutex_t   lock = PTHREAD_MUTEX_INITIALIZER; /* its holders never call libusm */
static inside_pool      *pools;                            /* guarded by lock */
static _Atomic(bool)     exist;
static _Atomic(unsigned) generation; /* changes when a pool ends: threads remember one each */

static __thread struct {
    unsigned     generation;
    inside_key   key;
    inside_pool *pool;
} last_asked;

static __thread struct {
    unsigned           generation;
    const usm_context *ctx;
    inside_pool       *pool;
} last_found;

/* ---- the source: areas from the driver ------------------------------------------------------- */

/* A driver's code hides what it means.  Where it was not about memory, the driver is asked again
 * for the block, and its own code is the program's answer. */
static usm_status take_area(void *user, usm_kind kind, size_t size, size_t align, void **p)
{
    const inside_pool *pool = user;
    void              *given;

    (void)kind;
    given = pool->from->alloc(&pool->key, size, align);
    if (given && !inside_area_add(given, size)) {
        (void)pool->from->free(&pool->key, given);
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
    void              *data = inside_area_remove(p);

    (void)kind;
    (void)size;
    if (data)
        pool->from->drop(data);
    return pool->from->free(&pool->key, p);
}

/* ---- making and ending ----------------------------------------------------------------------- */

static void open_pool(inside_pool *pool)
{
    usm_native_desc native = USM_NATIVE_DESC_INIT;
    usm_pool_desc   desc = USM_POOL_DESC_INIT, direct = desc;
    usm_kind        kind = pool->from->kind_of(pool->key.sort);

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
    desc.min_align         = INSIDE_MOST_ALIGN;
    direct.min_align       = INSIDE_MOST_ALIGN;
    direct.name            = "direct";
    if (!pool->from->may_cut(&pool->key))
        desc.name = "whole";
    if (usm_context_from_native(&native, &pool->ctx) != USM_OK ||
        usm_pool_create(pool->ctx, NULL, kind, &direct, &pool->direct) != USM_OK ||
        usm_pool_create(pool->ctx, NULL, kind, &desc, &pool->pool) != USM_OK)
        (void)fprintf(stderr, "usm: the %s driver serves memory itself: %s\n", pool->from->name,
                      usm_last_error());
}

static void close_pool(inside_pool *pool)
{
    usm_pool_destroy(pool->direct);
    usm_pool_destroy(pool->pool);
    usm_context_destroy(pool->ctx);
    free(pool);
}

static bool is_equal(const inside_key *a, const inside_key *b)
{
    return a->owner == b->owner && a->dev == b->dev && a->sort == b->sort;
}

/* With the lock. */
static inside_pool *find(const inside_key *key)
{
    inside_pool *pool = pools;

    while (pool && !is_equal(&pool->key, key))
        pool = pool->next;
    return pool;
}

/* libusm is not called with the lock: two threads may make a pool, of which one stays. */
static inside_pool *make(const inside_source *from, const inside_key *key)
{
    inside_pool *pool = calloc(1, sizeof *pool), *first;

    if (!pool)
        return NULL;
    pool->key  = *key;
    pool->from = from;
    open_pool(pool);
    pthread_mutex_lock(&lock);
    first = find(key);
    if (!first) {
        pool->next = pools;
        pools      = pool;
        atomic_store_explicit(&exist, true, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    if (first)
        close_pool(pool);
    return first ? first : pool;
}

inside_pool *inside_pool_get(const inside_source *from, const inside_key *key)
{
    inside_pool *pool;

    pthread_mutex_lock(&lock);
    pool = find(key);
    pthread_mutex_unlock(&lock);
    if (!pool)
        pool = make(from, key);
    return pool && pool->pool ? pool : NULL;
}

void inside_pools_end(const void *owner)
{
    inside_pool *ended = NULL;

    pthread_mutex_lock(&lock);
    for (inside_pool **at = &pools; *at;) {
        inside_pool *pool = *at;

        if (pool->key.owner != owner) {
            at = &pool->next;
            continue;
        }
        *at        = pool->next;
        pool->next = ended;
        ended      = pool;
    }
    inside_pools_forget();
    pthread_mutex_unlock(&lock);
    while (ended) {
        inside_pool *next = ended->next;

        close_pool(ended);
        ended = next;
    }
}

/* ---- finding --------------------------------------------------------------------------------- */

inside_pool *inside_pool_last(const inside_key *key)
{
    unsigned now = atomic_load(&generation);

    if (last_asked.generation != now || !is_equal(&last_asked.key, key)) {
        last_asked.generation = now;
        last_asked.key        = *key;
        last_asked.pool       = NULL;
    }
    return last_asked.pool;
}

/* The generation is that of the question: a pool that has ended since is not found again. */
void inside_pool_note(const inside_key *key, inside_pool *pool)
{
    if (is_equal(&last_asked.key, key))
        last_asked.pool = pool;
}

void inside_pools_forget(void)
{
    atomic_fetch_add(&generation, 1);
}

bool inside_pools_exist(void)
{
    return atomic_load_explicit(&exist, memory_order_acquire);
}

inside_pool *inside_pool_of(const usm_context *ctx)
{
    unsigned     now = atomic_load(&generation);
    inside_pool *pool;

    if (last_found.pool && last_found.generation == now && last_found.ctx == ctx)
        return last_found.pool;
    pthread_mutex_lock(&lock);
    pool = pools;
    while (pool && pool->ctx != ctx)
        pool = pool->next;
    pthread_mutex_unlock(&lock);
    last_found.generation = now;
    last_found.ctx        = ctx;
    last_found.pool       = pool;
    return pool;
}

void *inside_pool_alloc(const inside_pool *pool, size_t size, bool *is_refused)
{
    void *p = usm_pool_malloc(size <= INSIDE_MOST_SIZE ? pool->pool : pool->direct, size);

    *is_refused = !p && usm_last_status() == USM_E_BUDGET;
    return p;
}

/* ---- fork ------------------------------------------------------------------------------------ */

void inside_pools_lock(void)
{
    pthread_mutex_lock(&lock);
}

void inside_pools_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
