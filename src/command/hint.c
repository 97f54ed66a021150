/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Hints and barriers: usm_prefetch, usm_mem_advise, usm_queue_barrier.  A hint for memory that the
 * device cannot migrate is reduced to its dependencies; so is advice that the driver would apply to
 * other blocks as well.  A hint for memory that no pool has goes to the part that has it. */
#include "base/log.h"
#include "base/part.h"
#include "command/command.h"
#include "heap/pool.h"

/* Memory of the program's is the driver's to reach, or no device's. */
static usm_status hint_unpooled(const usm_queue *q, const char *what, const void *p, size_t n,
                                usm_advice advice)
{
    usm_status st = usm__parts_unpooled_advise(p, n, advice);

    if (st != USM_E_INVALID_POINTER || usm_device_has(q->dev, USM_ASPECT_USM_SYSTEM_ALLOCATIONS))
        return st == USM_E_INVALID_POINTER ? USM_OK : st;
    return usm__fail(USM_E_INVALID_POINTER, "%s: %p is not libusm memory", what, p);
}

static usm_status check_hint(usm_queue *q, const char *what, const void *p, size_t n,
                             usm_advice advice, usm__pointer *pointer)
{
    usm_status st = usm__queue_check(q);

    if (st == USM_OK && n == 0)
        return USM_OK; /* only its dependencies matter, wherever p points */
    if (st == USM_OK)
        st = usm__pointer_of(q, what, p, n, pointer);
    if (st == USM_OK && !pointer->pool)
        st = hint_unpooled(q, what, p, n, advice);
    return st;
}

usm_status usm_prefetch(usm_queue *q, const void *p, size_t n, size_t ndeps, usm_event *const *deps,
                        usm_event **ev)
{
    usm__pointer pointer;
    usm__submit  s;
    usm_status   st = check_hint(q, "usm_prefetch", p, n, USM_ADVICE_WILL_NEED, &pointer);

    if (st != USM_OK)
        return st;
    if (n == 0 || !pointer.pool || pointer.pool->ctx != q->ctx || pointer.pool->kind != USM_SHARED)
        return usm__submit_nothing(q, ndeps, deps, ev);
    st = usm__submit_begin(&s, q, ndeps, deps, ev);
    if (st != USM_OK)
        return st;
    return usm__submit_end(&s, usm__be_prefetch(q->be, q->native, p, n, USM__SUBMIT_ARGS(&s)));
}

/* True if the driver would apply the advice to other blocks too: it applies it to a whole
 * allocation of its own, in which a pool that cuts blocks has several, now or after this block is
 * freed. */
static bool reaches_others(const usm_queue *q, const void *p, const usm_pool *pool)
{
    if (!q->dev->desc.advises_whole || (pool->ops->caps & USM_POOL_CAP_WHOLE))
        return false;
    usm__info(
        "usm_mem_advise: the advice for %p is dropped: the driver of %s would give it to all "
        "of an allocation, in which the pool \"%s\" has other blocks: take the pool \"whole\" "
        "or \"direct\"",
        p, q->dev->term, pool->ops->name);
    return true;
}

usm_status usm_mem_advise(usm_queue *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                          usm_event *const *deps, usm_event **ev)
{
    usm__pointer pointer;
    usm__submit  s;
    usm_status   st;

    if ((int)advice < 0 || advice > USM_ADVICE_WILL_NEED)
        return usm__fail(USM_E_INVALID, "usm_mem_advise: there is no advice %d", (int)advice);
    st = check_hint(q, "usm_mem_advise", p, n, advice, &pointer);
    if (st != USM_OK)
        return st;
    if (n == 0 || !pointer.pool || pointer.pool->ctx != q->ctx ||
        advice > USM_ADVICE_NO_PREFERRED_LOCATION || /* managed memory's */
        reaches_others(q, p, pointer.pool))
        return usm__submit_nothing(q, ndeps, deps, ev);
    st = usm__submit_begin(&s, q, ndeps, deps, ev);
    if (st != USM_OK)
        return st;
    return usm__submit_end(&s,
                           usm__be_advise(q->be, q->native, p, n, advice, USM__SUBMIT_ARGS(&s)));
}

usm_status usm_queue_barrier(usm_queue *q, size_t ndeps, usm_event *const *deps, usm_event **ev)
{
    usm__submit s;
    usm_status  st = usm__submit_begin(&s, q, ndeps, deps, ev);

    if (st != USM_OK)
        return st;
    return usm__submit_end(&s, usm__be_barrier(q->be, q->native, USM__SUBMIT_ARGS(&s)));
}
