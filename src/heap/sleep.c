/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The gate of a pool that may sleep; sleep.h has the picture.  Called by heap/area.c for each call
 * of the driver, by heap/recover.c for allocations that write to their block, and by the mover. */
#include "heap/sleep.h"

#include "heap/magazine.h"

static usm_status refuse(const usm_pool *pool)
{
    return usm__fail(USM_E_BUSY, "the pool %s: %s",
                     usm_load_relaxed(&pool->rest) == USM__POOL_ASLEEP
                         ? "is asleep"
                         : "is falling asleep or waking up",
                     "usm_pool_wake() brings its memory back");
}

usm_status usm__pool_check_awake(const usm_pool *pool)
{
    return usm__pool_is_awake(pool) ? USM_OK : refuse(pool);
}

bool usm__pool_enter(usm_pool *pool)
{
    bool is_awake;

    usm__mutex_lock(&pool->lock);
    is_awake = usm__pool_is_awake(pool);
    pool->inside += is_awake;
    usm__mutex_unlock(&pool->lock);
    if (!is_awake)
        (void)refuse(pool);
    return is_awake;
}

void usm__pool_enter_to_give(usm_pool *pool)
{
    usm__mutex_lock(&pool->lock);
    while (pool->is_settled)
        (void)usm__mutex_wait(&pool->lock, &pool->moved, NULL);
    pool->inside++;
    usm__mutex_unlock(&pool->lock);
}

void usm__pool_leave(usm_pool *pool)
{
    usm__mutex_lock(&pool->lock);
    if (--pool->inside == 0 && !usm__pool_is_awake(pool))
        pthread_cond_broadcast(&pool->moved);
    usm__mutex_unlock(&pool->lock);
}

static usm_status start(usm_pool *pool, usm__pool_rest from)
{
    usm__pool_rest now;

    usm__mutex_lock(&pool->lock);
    now = (usm__pool_rest)usm_load_relaxed(&pool->rest);
    if (now == from)
        usm_store_relaxed(&pool->rest, (uint8_t)USM__POOL_MOVING);
    usm__mutex_unlock(&pool->lock);
    if (now == from)
        return USM_OK;
    return now == USM__POOL_MOVING ? refuse(pool) : USM_E_AGAIN;
}

/* The caches are emptied while threads inside may still return memory: one of them may be what a
 * cache waits for. */
static usm_status quiet_down(usm_pool *pool)
{
    if (!usm__magazine_pause(pool))
        return usm__fail(USM_E_BUSY, "another thread is in the middle of an allocation from the "
                                     "pool, or of a free, and does not end it");
    (void)pool->ops->trim_to(pool->impl, 0);
    return USM_OK;
}

usm_status usm__pool_move_begin(usm_pool *pool, usm__pool_rest from)
{
    usm_status st = start(pool, from);

    if (st != USM_OK)
        return st;
    if (from == USM__POOL_AWAKE)
        st = quiet_down(pool);
    if (st != USM_OK) {
        usm__pool_move_end(pool, from);
        return st;
    }
    usm__mutex_lock(&pool->lock);
    while (pool->inside > 0)
        (void)usm__mutex_wait(&pool->lock, &pool->moved, NULL);
    pool->is_settled = true;
    usm__mutex_unlock(&pool->lock);
    return USM_OK;
}

void usm__pool_move_end(usm_pool *pool, usm__pool_rest to)
{
    usm__mutex_lock(&pool->lock);
    pool->is_settled = false;
    usm_store_relaxed(&pool->rest, (uint8_t)to);
    pthread_cond_broadcast(&pool->moved);
    usm__mutex_unlock(&pool->lock);
    if (to == USM__POOL_AWAKE)
        usm__magazine_resume(pool);
}

/* The threads inside are the parent's.  A move that the parent's thread goes on with has no end
 * here: the pool stays as if asleep, and nothing wakes it (spill/sleep.c refuses it in a child). */
void usm__pool_sleep_fork_child(usm_pool *pool)
{
    pool->inside     = 0;
    pool->is_settled = false;
    pool->moved      = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    if (!usm__pool_is_awake(pool))
        usm_store_relaxed(&pool->rest, (uint8_t)USM__POOL_ASLEEP);
}
