/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The list of parts, and the calls of their hooks: see part.h. */
#include "base/part.h"

#include <pthread.h>
#include <stdlib.h>

#define FORKS_MAX (USM__PARTS_MAX * USM__PART_FORKS_MAX)

typedef struct fork_handler {
    int rank;
    void (*fn)(usm_fork_phase phase);
} fork_handler;

/* Fixed after the start of the library, where usm__part_add() writes it. */
static struct {
    const usm_part *list[USM__PARTS_MAX];
    size_t          n;
    fork_handler    forks[FORKS_MAX]; /* by rank */
    size_t          nforks;
} parts;

static void insert_fork(int rank, void (*fn)(usm_fork_phase phase))
{
    size_t at = parts.nforks++;

    for (; at > 0 && parts.forks[at - 1].rank > rank; at--)
        parts.forks[at] = parts.forks[at - 1];
    parts.forks[at] = (fork_handler){rank, fn};
}

void usm__part_add(const usm_part *part)
{
    if (parts.n == USM__PARTS_MAX)
        abort(); /* USM__PARTS_MAX is too small for src/usm.c */
    parts.list[parts.n++] = part;
    for (size_t i = 0; i < USM__PART_FORKS_MAX && part->fork[i].fn; i++)
        insert_fork(part->fork[i].rank, part->fork[i].fn);
}

/* Locks are taken in the order of their ranks, so that no structure is half changed in the child,
 * and released in the reverse order. */
void usm__parts_fork(usm_fork_phase phase)
{
    for (size_t i = 0; i < parts.nforks; i++)
        parts.forks[phase == USM_FORK_PREPARE ? i : parts.nforks - 1 - i].fn(phase);
}

/* A hook that each part may have, in the order of the parts ... */
#define UPWARDS(hook, params, args)                                                                \
    void usm__parts_##hook params                                                                  \
    {                                                                                              \
        for (size_t i = 0; i < parts.n; i++)                                                       \
            if (parts.list[i]->hook)                                                               \
                parts.list[i]->hook args;                                                          \
    }
/* ... in reverse order ... */
#define DOWNWARDS(hook, params, args)                                                              \
    void usm__parts_##hook params                                                                  \
    {                                                                                              \
        for (size_t i = parts.n; i-- > 0;)                                                         \
            if (parts.list[i]->hook)                                                               \
                parts.list[i]->hook args;                                                          \
    }
/* ... and one that returns a number, of which the sum is returned. */
#define SUM(hook, params, args)                                                                    \
    size_t usm__parts_##hook params                                                                \
    {                                                                                              \
        size_t sum = 0;                                                                            \
                                                                                                   \
        for (size_t i = 0; i < parts.n; i++)                                                       \
            sum += parts.list[i]->hook ? parts.list[i]->hook args : 0;                             \
        return sum;                                                                                \
    }

UPWARDS(start, (void), ())
UPWARDS(shutdown, (void), ())
UPWARDS(watched, (void), ())
DOWNWARDS(thread_ended, (void), ())
DOWNWARDS(context_ended, (usm_context * ctx), (ctx))
DOWNWARDS(context_unused, (usm_context * ctx), (ctx))
DOWNWARDS(context_freed, (usm_context * ctx), (ctx))
UPWARDS(queue_waiting, (usm_queue * q), (q))
UPWARDS(queue_waited, (usm_queue * q, uint64_t position), (q, position))
UPWARDS(queue_retired, (usm_queue * q), (q))
UPWARDS(outside_drain, (void), ())
SUM(out_of_memory, (usm_context * ctx, usm_device *dev, usm_kind kind, size_t size),
    (ctx, dev, kind, size))
SUM(memory_starved, (usm_context * owner, size_t bytes), (owner, bytes))
SUM(pool_collect, (usm_pool * pool, bool wait), (pool, wait))
UPWARDS(pool_made, (usm_pool * pool), (pool))
UPWARDS(pool_freed, (usm_pool * pool), (pool))
UPWARDS(pool_ending, (usm_pool * pool), (pool))
UPWARDS(pool_figures, (usm_pool * pool, struct usm__pool_queued *figures), (pool, figures))

static void observe_all(void)
{
    for (size_t i = 0; i < parts.n; i++)
        if (parts.list[i]->observe)
            parts.list[i]->observe();
}

void usm__parts_observe(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, observe_all);
}

/* The parts that accepted the context are asked to free what they have of it. */
usm_status usm__parts_context_made(usm_context *ctx)
{
    usm_status st = USM_OK;

    for (size_t i = 0; i < parts.n && st == USM_OK; i++)
        if (parts.list[i]->context_made)
            st = parts.list[i]->context_made(ctx);
    if (st != USM_OK)
        usm__parts_context_freed(ctx);
    return st;
}

usm_status usm__parts_unpooled_free(void *p)
{
    usm_status st = USM_E_INVALID_POINTER;

    for (size_t i = 0; i < parts.n && st == USM_E_INVALID_POINTER; i++)
        if (parts.list[i]->unpooled_free)
            st = parts.list[i]->unpooled_free(p);
    return st;
}

usm_status usm__parts_unpooled_advise(const void *p, size_t n, usm_advice advice)
{
    usm_status st = USM_E_INVALID_POINTER;

    for (size_t i = 0; i < parts.n && st == USM_E_INVALID_POINTER; i++)
        if (parts.list[i]->unpooled_advise)
            st = parts.list[i]->unpooled_advise(p, n, advice);
    return st;
}

bool usm__parts_unpooled_find(const void *p, usm_block *block)
{
    for (size_t i = 0; i < parts.n; i++)
        if (parts.list[i]->unpooled_find && parts.list[i]->unpooled_find(p, block))
            return true;
    return false;
}

const struct usm__pool_export_hooks *usm__parts_exports(void)
{
    for (size_t i = 0; i < parts.n; i++)
        if (parts.list[i]->exports)
            return parts.list[i]->exports;
    return NULL;
}

const usm_part *usm__parts_launcher(void)
{
    for (size_t i = 0; i < parts.n; i++)
        if (parts.list[i]->launch_over_buffers)
            return parts.list[i];
    return NULL;
}
