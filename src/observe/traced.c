/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The hit path of a thread that only a trace observes.  An event needs an address, a size and a
 * time, which a hit has at hand, so the block comes from the thread's cache and returns there; all
 * else takes the observed path (observe.c).  heap/ comes here when the usual hit path has missed,
 * as it always does for such a thread, whose bins are closed.
 *
 * Order of events.  A block gets from one thread's magazine to another thread by the pool alone, or
 * by its free on that thread.  An allocation reads the clock after it has the block, a free before
 * it gives the block away.  So an address is freed at an earlier time than it is allocated again,
 * on whatever thread.  And it is freed later than it was allocated, on another thread: so a free
 * does not read the clock before it has the address (a processor would, ahead of the atomic exchange
 * by which a program passed it on).  The event of a free is written first, where nobody sees it, and published
 * when the magazine has taken the block: a free that misses leaves none, and the slow path records
 * it.
 *
 * What an event costs beyond an untraced hit, 14 ns (3.5 GHz): 8 for the time stamp counter, 2
 * for the hit path that misses; a free some 10 more, as it waits for what comes before.  Neither path calls or saves a register, but where trace.c must
 * help: it makes the ring, wakes the writer, samples stacks, counts what is lost. */
#include "observe/traced.h"

#include "base/trace_ring.h"
#include "heap/magazine.h"
#include "heap/pool.h"

#define SLACK_MAX 2047 /* that usm__slack_pack() leaves as it is */

/* The calling thread's ring, if there is room for an event and a time stamp counter.  NULL: trace.c
 * must help.  A thread that has caches has its block. */
static inline usm__ring *ring_at_hand(uint64_t *head)
{
    usm__ring *ring = usm__self.block->trace;

    if (__builtin_expect(!ring || !usm__traced.config.use_tsc, 0))
        return NULL;
    *head = usm_load_relaxed(&ring->head);
    return __builtin_expect(*head < ring->limit, 1) ? ring : NULL;
}

/* ---- allocation ------------------------------------------------------------------------ */

static __attribute__((noinline)) void *alloc_by_call(const usm_pool *pool, void *p, size_t size)
{
    usm__trace_alloc(pool->trace_id, 0, p, size, usm_class_size(usm_class_of(size)));
    return p;
}

/* Records that the pool has served p, and returns it.  Inline in both callers: a call would save
 * registers. */
static inline __attribute__((always_inline)) void *served(const usm_pool *pool, void *p,
                                                          size_t size)
{
    size_t             slack = usm_class_size(usm_class_of(size)) - size;
    uint64_t           head;
    usm__ring         *ring = ring_at_hand(&head);
    usm__trace_packed *e;

    if (__builtin_expect(!ring || (int64_t)size >= ring->until_sample || slack > SLACK_MAX, 0))
        return alloc_by_call(pool, p, size);
    ring->until_sample -= (int64_t)size;
    e  = usm__ring_at(ring, head);
    *e = (usm__trace_packed){.time    = usm__trace_counter(),
                             .address = (uint64_t)(uintptr_t)p,
                             .size    = size,
                             .extra   = (uint32_t)slack << 16,
                             .pool    = (uint8_t)pool->trace_id,
                             .type    = USM__EVENT_ALLOC};
    usm__ring_put(ring, head);
    return p;
}

static inline void *pop(unsigned slot, size_t size)
{
    return usm__magazine_pop_of(&usm__magazine_self.traced, slot, size);
}

void *usm__observe_pool_malloc(usm_pool *pool, size_t size)
{
    void *p = pool ? pop(usm_load_relaxed(&pool->alloc_slot), size) : NULL;

    return p ? served(pool, p, size) : usm_pool_aligned_alloc(pool, 0, size);
}

void *usm__observe_alloc_kind(size_t size, usm_kind kind)
{
    void *p = usm__is_kind(kind) ? pop(usm_load_relaxed(&usm__pools_default[kind]), size) : NULL;

    return p ? served(usm__page_find(p)->source, p, size) : usm_aligned_alloc(0, size, kind);
}

/* ---- free -------------------------------------------------------------------------------- */

/* Frees p with an event at that head. */
static inline bool free_into(usm__ring *ring, uint64_t head, uint64_t ticks, const usm_span *span,
                             void *p)
{
    usm__trace_packed *e    = usm__ring_at(ring, head);
    const usm_pool    *pool = span->source;

    *e = (usm__trace_packed){.time    = ticks,
                             .address = (uint64_t)(uintptr_t)p,
                             .pool    = (uint8_t)pool->trace_id,
                             .type    = USM__EVENT_FREE};
    if (!usm__magazine_push_of(&usm__magazine_self.traced, span, p))
        return false;
    usm__ring_put(ring, head);
    return true;
}

/* pool: NULL for usm_free(). */
static void free_slowly(usm_pool *pool, void *p, const size_t *size)
{
    if (pool)
        usm__pool_free_slowly(pool, p, size);
    else
        usm__pool_free_any_slowly(p);
}

static __attribute__((noinline)) void free_by_call(usm_pool *pool, void *p, const size_t *size,
                                                   const usm_span *span)
{
    bool       is_on = usm__trace_is_on();
    usm__ring *ring  = is_on ? usm__ring_with_room() : NULL;

    if (ring ? !free_into(ring, usm_load_relaxed(&ring->head), usm__trace_ticks(), span, p)
             : !usm__magazine_push_of(&usm__magazine_self.traced, span, p))
        free_slowly(pool, p, size);
    else if (is_on && !ring)
        usm__ring_lose();
}

static inline void free_hit(usm_pool *pool, void *p, const size_t *size, const usm_span *span)
{
    uint64_t   head;
    usm__ring *ring = ring_at_hand(&head);

    if (__builtin_expect(!ring, 0))
        free_by_call(pool, p, size, span);
    else if (!free_into(ring, head, usm__trace_counter_after(), span, p))
        free_slowly(pool, p, size);
}

void usm__observe_pool_free(usm_pool *pool, void *p, const size_t *size)
{
    const usm_span *span = usm__page_find_low(p);

    if (span && span->source == pool && (!size || *size <= span->size))
        free_hit(pool, p, size, span);
    else
        usm__pool_free_slowly(pool, p, size);
}

void usm__observe_free_any(void *p)
{
    const usm_span *span = usm__page_find_low(p);

    if (span)
        free_hit(NULL, p, NULL, span);
    else
        usm__pool_free_any_slowly(p);
}
