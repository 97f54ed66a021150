/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by pools that have one lock (pools/arena, whole): the counts of their blocks, and
 * the functions of their table that need only the lock and the counts.
 *
 *   blocks = allocations - frees;  live = the sizes of allocated blocks;  live <= live_peak
 *
 * usm_pool_counts is the first member of such a pool, so the functions of the table, which get the
 * pool as a void *, need not know more about it.  Modules may include this header. */
#ifndef USM_BASE_INLINE_POOL_COUNTS_H
#define USM_BASE_INLINE_POOL_COUNTS_H

#include <usm/pool_ops.h>

#include <pthread.h>

typedef struct usm_pool_counts {
    pthread_mutex_t lock; /* guards the counts, and other data as the pool defines */
    uint64_t        live, live_peak, blocks, allocations, frees;
} usm_pool_counts;

/* The answer to a free, or a query, of `ptr`, of which a pool says `why`. */
static inline usm_status usm_pool_refuse(const usm_host_api *api, usm_status why, const void *ptr)
{
    if (why == USM_E_DOUBLE_FREE)
        return api->report(why, "the block at %p was freed before", ptr);
    if (why == USM_E_INTERIOR_POINTER)
        return api->report(why, "%p lies inside a block: free the block's start", ptr);
    return api->report(why, "%p is in no live block", ptr);
}

/* --- with the lock ---------------------------------------------------------------------------- */

static inline void usm_pool_counts_out(usm_pool_counts *c, size_t size)
{
    c->allocations++;
    c->blocks++;
    c->live += size;
    if (c->live_peak < c->live)
        c->live_peak = c->live;
}

static inline void usm_pool_counts_in(usm_pool_counts *c, size_t size)
{
    c->frees++;
    c->blocks--;
    c->live -= size;
}

static inline void usm_pool_counts_get(const usm_pool_counts *c, size_t largest_free,
                                       usm_pool_stats *stats)
{
    stats->live         = c->live;
    stats->live_peak    = c->live_peak;
    stats->blocks       = c->blocks;
    stats->allocations  = c->allocations;
    stats->frees        = c->frees;
    stats->largest_free = largest_free;
}

/* --- for the table ---------------------------------------------------------------------------- */

static inline void usm_pool_counts_reset_peaks(void *pool)
{
    usm_pool_counts *c = pool;

    pthread_mutex_lock(&c->lock);
    c->live_peak = c->live;
    pthread_mutex_unlock(&c->lock);
}

/* The forking thread is the only thread of the child, and holds the lock there too. */
static inline void usm_pool_counts_fork(void *pool, usm_fork_phase phase)
{
    usm_pool_counts *c = pool;

    if (phase == USM_FORK_PREPARE)
        pthread_mutex_lock(&c->lock);
    else
        pthread_mutex_unlock(&c->lock);
}

#endif
