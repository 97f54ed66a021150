/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A source of areas whose pages nobody can touch (a pool that did would die), and the pool at hand
 * over it.  For tests of the pools by usm/pool_ops.h. */
#ifndef POOL_FIXTURE_H
#define POOL_FIXTURE_H

#include "module_api.h"

#include "pools/arena/arena.h"
#include "pools/whole/whole.h"

#include <sys/mman.h>

#define KIB       ((size_t)1 << 10)
#define MIB       ((size_t)1 << 20)
#define MAX_AREAS 4096

/* --- a source -------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    usm_area        areas[MAX_AREAS]; /* never reused: a stale one stays readable, as in the core */
    size_t          count;            /* taken so far */
    size_t          held;             /* areas not given back */
    size_t          bytes, limit;
    usm_status      full; /* the answer beyond the limit */
    size_t          last_size, last_align;
    /* asked for its figures in each call: a pool that held its lock would hang */
    const usm_pool_ops *ops;
    void               *pool;
} source = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void poke_pool(void)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    if (source.pool)
        source.ops->get_stats(source.pool, &stats);
}

static inline void *reserve(size_t size, size_t align)
{
    size_t room = align > 4096 ? align : 0; /* what is not used of it goes at the process's end */
    uintptr_t base = (uintptr_t)mmap(NULL, size + room, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(base != (uintptr_t)MAP_FAILED);
    return (void *)(room ? (base + align - 1) & ~(uintptr_t)(align - 1) : base);
}

static inline usm_status source_take(void *arg, size_t size, size_t align, usm_area **area)
{
    usm_status full = USM_E_NO_MEMORY;
    void      *base;

    CHECK(arg == &source);
    poke_pool();
    if (usm__fault_hit("source.take", &full))
        return usm__fail(full, "the source is full for a test");
    base = reserve(size, align);
    pthread_mutex_lock(&source.lock);
    if (source.limit && source.bytes + size > source.limit) {
        pthread_mutex_unlock(&source.lock);
        CHECK(munmap(base, size) == 0);
        return usm__fail(source.full, "the source's limit");
    }
    CHECK(source.count < MAX_AREAS);
    *area             = &source.areas[source.count++];
    **area            = (usm_area){base, size, NULL};
    source.last_size  = size;
    source.last_align = align;
    source.held++;
    source.bytes += size;
    pthread_mutex_unlock(&source.lock);
    return USM_OK;
}

static inline void source_give(void *arg, usm_area *area)
{
    CHECK(arg == &source);
    poke_pool();
    CHECK(munmap(area->base, area->size) == 0);
    pthread_mutex_lock(&source.lock);
    source.held--;
    source.bytes -= area->size;
    pthread_mutex_unlock(&source.lock);
}

/* As the core's page map; areas that were given back do not count, unless nothing else fits. */
static inline usm_area *area_of(const void *p)
{
    usm_area *found = NULL;

    pthread_mutex_lock(&source.lock);
    for (size_t i = source.count; i-- > 0 && !found;)
        if ((uintptr_t)p - (uintptr_t)source.areas[i].base < source.areas[i].size)
            found = &source.areas[i];
    pthread_mutex_unlock(&source.lock);
    CHECK(found != NULL);
    return found;
}

/* --- the pool at hand ------------------------------------------------------------------------ */

static const usm_pool_ops *ops;
static void               *pool;

static inline usm_pool_params params_for(size_t area_size, const char *options)
{
    return (usm_pool_params){
        .struct_size   = sizeof(usm_pool_params),
        .api           = &module_api,
        .areas         = {.source = &source, .take = source_take, .give = source_give},
        .kind          = USM_DEVICE,
        .default_align = 64,
        .area_size     = area_size,
        .options       = options,
    };
}

static inline void open_pool(const usm_pool_ops *which, size_t area_size)
{
    usm_pool_params params = params_for(area_size, NULL);

    module_start();
    source.count = source.held = source.bytes = source.limit = 0;
    source.full                                              = USM_E_NO_MEMORY;
    ops                                                      = which;
    CHECK_INT(ops->create(&params, &pool), USM_OK);
    source.ops  = ops;
    source.pool = pool;
}

static inline void open_direct(void)
{
    open_pool(usm_direct_pool_entry(&module_api), 0);
}

static inline void open_arena(size_t area_size)
{
    open_pool(usm_arena_pool_entry(&module_api), area_size);
}

static inline void close_pool(void)
{
    usm__fault_disarm_all();
    source.pool = NULL;
    ops->destroy(pool);
    CHECK_INT(source.held, 0);
    CHECK_INT(source.bytes, 0);
    module_clean();
}

static inline char *get(size_t size, size_t align)
{
    void *p = NULL;

    CHECK_INT(ops->malloc(pool, size, align, &p), USM_OK);
    CHECK(p != NULL);
    CHECK_INT((uintptr_t)p % (align ? align : 64), 0);
    return p;
}

static inline usm_status put(void *p)
{
    return ops->free(pool, area_of(p), p);
}

static inline usm_pool_stats stats_now(void)
{
    usm_pool_stats s = USM_POOL_STATS_INIT;

    ops->get_stats(pool, &s);
    CHECK_INT(s.blocks, s.allocations - s.frees);
    CHECK(s.live_peak >= s.live);
    return s;
}

static inline usm_status block_of(const void *p, usm_block *b)
{
    return ops->block(pool, area_of(p), p, b);
}

#endif
