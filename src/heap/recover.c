/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The second of the three layers of an allocation: what happens when memory is short.
 *
 *     request    finds the pool, checks the caller's handles    memory.c, command/malloc.c
 *     recover    asks the pool, frees memory, asks again        this file
 *     serve      takes a block from a cache or from the pool    serve.c
 *
 * Memory that libusm itself keeps is freed in the order of what that costs: blocks in threads'
 * caches, blocks that queues have freed, free areas of other pools, buffers.  After each of these
 * steps the pool is asked again.  When none has helped the failure is reported.
 *
 * No lock is held here: the steps take those of other pools, of queues and of src/buffer. */
#include "heap/pool.h"

#include "base/inline/bits.h"
#include "base/part.h"
#include "device/observer.h"
#include "heap/magazine.h"
#include "heap/pool_report.h"
#include "heap/sleep.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/* Other pools are requested to return at least this much: a pool takes no less from the driver. */
#define GIVEN_AT_LEAST ((size_t)2 << 20)

/* This thread is inside the parts' hook out_of_memory, which is not called for its own allocations.
 * */
static __thread bool is_giving __attribute__((tls_model("initial-exec")));

typedef struct request {
    usm_pool *pool;
    size_t    align, size;
    bool      is_zeroed;
    bool      queues_are_done; /* the last round found nothing that a queue had freed */
} request;

void *usm__no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

static usm_status check_request(const usm_pool *pool, size_t align, size_t size)
{
    uint64_t memory = usm__pool_memory(pool);

    if (align && (!usm_is_pow2(align) || align > USM_MAX_ALIGNMENT))
        return usm__fail(USM_E_ALIGNMENT,
                         "alignment %zu is not a power of two up to 2 MiB (2097152)", align);
    if (size > (size_t)PTRDIFF_MAX)
        return usm__fail(USM_E_SIZE, "%zu bytes exceed the address space; was it negative?", size);
    if (memory && size > memory)
        return usm__fail(USM_E_SIZE, "%zu bytes are more than the %llu that %s has", size,
                         (unsigned long long)memory,
                         pool->kind == USM_HOST
                             ? "this machine (or the control group of this process)"
                             : pool->ctx->devices[pool->index].dev->desc.name);
    return USM_OK;
}

/* For pools with zero_init; a block that cannot be zeroed is freed. */
static void *zeroed(usm_pool *pool, void *p, size_t size)
{
    usm_status st = USM_OK;
    usm__area *area;

    if (usm__pool_host_may_touch(pool))
        memset(p, 0, size);
    else
        st = usm_set(p, 0, size);
    if (st == USM_OK)
        return p;
    area = usm__map_find(p);
    if (area)
        (void)usm__pool_free(area, p);
    return NULL;
}

static void *serve(const request *r)
{
    size_t size  = r->size ? r->size : 1;
    size_t align = usm_max_size(r->align, r->pool->min_align);
    void  *p     = NULL;

    if (usm__observed())
        p = usm__observer_get()->alloc(r->pool, align, size);
    else
        (void)usm__pool_serve(r->pool, align, size, &p);
    return p && r->is_zeroed ? zeroed(r->pool, p, size) : p;
}

/* One attempt; NULL with an error message.  The pool must not fall asleep before the block is
 * written: zeros, red zones, poison. */
static void *attempt(const request *r)
{
    bool  is_written = r->is_zeroed || usm_load_relaxed(&usm__observers.flags) & USM__OBSERVE_DEBUG;
    void *p;

    if (check_request(r->pool, r->align, r->size) != USM_OK ||
        (is_written && !usm__pool_enter(r->pool)))
        return NULL;
    p = serve(r);
    if (is_written)
        usm__pool_leave(r->pool);
    return p;
}

/* ---- ways to get memory: true if another attempt makes sense ---------------------------- */

static bool is_full(void)
{
    return usm_last_status() == USM_E_NO_MEMORY || usm_last_status() == USM_E_BUDGET;
}

/* Blocks of this pool that lie unused in the caches of threads. */
static bool caches_gave(request *r)
{
    return usm__magazine_reclaim(r->pool);
}

/* Blocks of this pool that queues have freed, which any thread can have afterwards.  For the last
 * of them the host waits.  When a round finds none there is one more attempt, because another
 * thread may have collected them: the blocks are in the pool then. */
static bool queues_gave(request *r)
{
    usm__message message;

    if (r->queues_are_done || !usm_load_acquire(&r->pool->async))
        return false;
    usm__message_save(&message);
    r->queues_are_done =
        usm__parts_pool_collect(r->pool, false) == 0 && usm__parts_pool_collect(r->pool, true) == 0;
    usm__message_restore(&message);
    return true;
}

/* True if the pool's own maximum_size leaves the least room: no other pool can help then. */
static bool is_at_maximum(usm_pool *pool)
{
    uint64_t        reserved = usm_load_relaxed(&pool->held->reserved);
    usm__quota_view quota;

    if (!pool->maximum_size || usm_last_status() != USM_E_BUDGET)
        return false;
    usm__quota_get(pool->ctx, pool->index, pool->kind, &quota);
    if (quota.limit == 0)
        return true;
    return pool->maximum_size - usm_min_size(reserved, pool->maximum_size) <=
           quota.limit - usm_min_size(quota.reserved, quota.limit);
}

/* Free areas of other pools of the memory. */
static bool pools_gave(request *r)
{
    usm_pool         *pool   = r->pool;
    const usm_device *dev    = pool->ctx->devices[pool->index].dev;
    usm__pools_memory memory = {.dev = pool->kind == USM_HOST ? NULL : dev,
                                .is_host =
                                    pool->kind == USM_HOST || usm__quota_is_host_memory(dev)};
    usm__quota_view   quota;
    size_t            wanted;

    if (is_at_maximum(pool) ||
        __builtin_add_overflow(usm_align_up_ptr(r->size, GIVEN_AT_LEAST), r->align, &wanted))
        return false;
    usm__quota_get(pool->ctx, pool->index, pool->kind, &quota);
    if (quota.limit && quota.is_own && usm_last_status() == USM_E_BUDGET)
        memory.ctx = pool->ctx;
    return usm__pools_give_back(&memory, pool, wanted, true) > 0;
}

/* Memory of buffers.  The memory they may keep is in other pools, or in this one. */
static bool buffers_gave(request *r)
{
    usm_pool    *pool = r->pool;
    usm__message message;
    size_t       given;

    if (is_giving || is_at_maximum(pool))
        return false;
    usm__message_save(&message);
    is_giving = true;
    given     = usm__parts_out_of_memory(pool->ctx, pool->ctx->devices[pool->index].dev, pool->kind,
                                         usm_align_up_ptr(r->size, GIVEN_AT_LEAST));
    is_giving = false;
    usm__message_restore(&message);
    return given > 0;
}

bool usm__pool_make_room(usm_pool *pool, size_t size)
{
    request r = {pool, 0, size, false, true};

    return is_full() && (pools_gave(&r) || buffers_gave(&r));
}

/* `most`: number of attempts.  After most steps another thread may take what was freed. */
static const struct {
    bool (*gave)(request *r);
    int most;
} steps[] = {{caches_gave, 1}, {queues_gave, INT_MAX}, {pools_gave, 4}, {buffers_gave, 1}};

#define STEPS (sizeof steps / sizeof *steps)

/* ---- the layer --------------------------------------------------------------------------- */

static __attribute__((noinline)) void *alloc(usm_pool *pool, size_t align, size_t size,
                                             bool is_zeroed)
{
    request r = {pool, align, size, is_zeroed, false};
    void   *p = attempt(&r);
    int     n = 0;

    for (size_t i = 0; !p && is_full() && i < STEPS;)
        if (n++ < steps[i].most && steps[i].gave(&r)) {
            p = attempt(&r);
        } else {
            i++;
            n = 0;
        }
    if (p)
        return p;
    if (is_full() && usm__observed())
        usm__observer_get()->failed(pool, size);
    usm__pool_report_full(pool, size, align, usm_last_status());
    return usm__no_memory();
}

void *usm__pool_alloc(usm_pool *pool, size_t align, size_t size, usm__zeroing zeroing)
{
    void *p = align ? NULL : usm__pool_take_large(pool, size);

    return p ? p : alloc(pool, align, size, zeroing == USM__ZERO_AS_POOL && pool->zero_init);
}

usm_status usm__pool_try(usm_pool *pool, size_t size, void **p)
{
    request r   = {pool, 0, size, pool->zero_init, false};
    void   *got = attempt(&r);

    if (!got && is_full() && caches_gave(&r))
        got = attempt(&r);
    if (!got)
        return usm_last_status();
    *p = got;
    return USM_OK;
}

void *usm__pool_alloc_held(usm_pool *pool, size_t size)
{
    void *p = NULL;

    if (usm__observed_with_record() || check_request(pool, 0, size) != USM_OK)
        return NULL;
    usm__area_is_held = true;
    if (usm__pool_serve(pool, pool->min_align, size ? size : 1, &p) != USM_OK)
        p = NULL;
    usm__area_is_held = false;
    return p;
}
