/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes pools return their free memory to the driver when an allocation elsewhere fails: in another
 * pool, of any kind and context, or for buffers.  A pool keeps free memory because driver calls are
 * slow, not because the memory is in use.
 *
 * The thread that does so finds the pools under the locks of the lists and increments a counter in
 * each (`guests`).  It then calls them with no lock held.  Those who look for pools for another
 * reason do the same, by usm__pools_find().  The destruction of a pool waits until
 * this counter is 0; the thread itself waits for nothing but the driver.
 *
 * Called by heap/recover.c before an allocation fails, and by src/buffer for extents and frames. */
#include "heap/pool.h"

#include "base/fork.h"
#include "base/os.h"
#include "heap/export.h"

/* Guards only the wait: the counters themselves are atomic. */
static struct {
    usm__mutex     lock;
    pthread_cond_t changed;
} guests = {USM__MUTEX_INIT(USM__RANK_POOL, "guests of pools"), PTHREAD_COND_INITIALIZER};

typedef struct search {
    usm__pools_filter *is_wanted;
    const void        *arg;
    usm__pools_found  *found;
    size_t             cap; /* 0: pools are only counted */
} search;

/* Pools that may return memory. */
typedef struct givers {
    const usm__pools_memory *memory;
    const usm_pool          *but;
} givers;

static bool is_of_memory(const usm_pool *pool, const usm__pools_memory *m)
{
    const usm_device *dev = pool->ctx->devices[pool->index].dev;

    if (m->ctx && pool->ctx != m->ctx)
        return false;
    if (m->dev == dev && pool->kind != USM_HOST)
        return true;
    return m->is_host && (pool->kind == USM_HOST || usm__quota_is_host_memory(dev));
}

static bool has_free(usm_pool *pool)
{
    return usm_load_relaxed(&pool->held->reserved) > 0 &&
           usm_load_relaxed(&pool->held->reserved) > usm__pool_live(pool);
}

static bool may_give(usm_pool *pool, const void *arg)
{
    const givers *g = arg;

    return pool != g->but && is_of_memory(pool, g->memory) && !usm__pool_is_inert(pool) &&
           usm__pool_is_awake(pool) && has_free(pool);
}

/* The locks of the lists are held. */
static void invite(usm_pool *pool, void *arg)
{
    search *s = arg;

    if (!s->is_wanted(pool, s->arg))
        return;
    if (!s->cap) {
        s->found->n++;
    } else if (s->found->n < s->cap) {
        usm_add_relaxed(&pool->guests, 1u);
        s->found->list[s->found->n++] = pool;
    }
}

usm_status usm__pools_find(usm__pools_filter *is_wanted, const void *arg, usm__pools_found *found)
{
    search s = {is_wanted, arg, found, 0};

    *found = (usm__pools_found){NULL, 0};
    usm__pools_each(invite, &s);
    s.cap    = found->n;
    found->n = 0;
    if (s.cap == 0)
        return USM_OK;
    found->list = usm__heap_alloc(s.cap * sizeof *found->list);
    if (!found->list)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a list of %zu pools", s.cap);
    usm__pools_each(invite, &s);
    return USM_OK;
}

static void leave(usm_pool *pool)
{
    usm__mutex_lock(&guests.lock);
    if (atomic_fetch_sub_explicit(&pool->guests, 1u, memory_order_acq_rel) == 1)
        pthread_cond_broadcast(&guests.changed);
    usm__mutex_unlock(&guests.lock);
}

void usm__pools_dismiss(usm__pools_found *found)
{
    for (size_t i = 0; i < found->n; i++)
        leave(found->list[i]);
    usm__heap_free(found->list);
}

void usm__pool_await_guests(usm_pool *pool)
{
    if (usm_load_acquire(&pool->guests) == 0)
        return;
    usm__mutex_lock(&guests.lock);
    while (usm_load_acquire(&pool->guests) != 0)
        (void)usm__mutex_wait(&guests.lock, &guests.changed, NULL);
    usm__mutex_unlock(&guests.lock);
}

/* Caches of threads are emptied only if `deep`, because that slows their owners down. */
static size_t trim(usm_pool *pool, size_t size, bool deep)
{
    uint64_t before = usm_load_relaxed(&pool->held->reserved), after;
    size_t   keep   = before > size ? (size_t)before - size : 0;

    (void)(deep ? usm_pool_trim_to(pool, keep) : pool->ops->trim_to(pool->impl, keep));
    after = usm_load_relaxed(&pool->held->reserved);
    return before > after ? (size_t)(before - after) : 0;
}

static size_t trim_all(const usm__pools_found *found, size_t size, bool deep)
{
    size_t given = 0;

    for (size_t i = 0; i < found->n && given < size; i++)
        given += trim(found->list[i], size - given, deep);
    return given;
}

size_t usm__pools_give_back(const usm__pools_memory *memory, const usm_pool *but, size_t size,
                            bool may_flush)
{
    const givers     g     = {memory, but};
    size_t           given = 0;
    usm__pools_found found;
    usm__message     message;

    usm__message_save(&message);
    if (usm__pools_find(may_give, &g, &found) == USM_OK) {
        given = trim_all(&found, size, false);
        if (given < size && may_flush)
            given += trim_all(&found, size - given, true);
        usm__pools_dismiss(&found);
    }
    usm__message_restore(&message);
    return given;
}

void usm__pools_give_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&guests.lock, phase);
    if (phase == USM_FORK_CHILD)
        guests.changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}
