/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fills: usm_memset and usm_fill, with patterns of any size.
 *
 * Drivers fill with patterns whose size is a power of two, up to a limit, at addresses aligned to
 * the pattern; some crash otherwise.  Every other fill consists of copies.  A seed of repeated
 * patterns is copied to the start of the range.  Then the filled part is copied behind itself, and
 * doubles each time:
 *
 *     seed -> |PPPP|            n = seed
 *             |PPPP|PPPP|       copy of n
 *             |PPPPPPPP|PPPPPPPP|  ...
 *
 * This takes log2(size / seed) copies, none of which overlap. */
#include "base/inline/bits.h"
#include "base/os.h"
#include "command/command.h"
#include "heap/pool.h"

#include <string.h>

#define SEED_SIZE ((size_t)64 << 10)

typedef struct fill_spec {
    char       *dst;
    const void *pattern;
    size_t      pattern_size, size;
} fill_spec;

static bool driver_can(const usm_queue *q, const fill_spec *f, const usm__pointer *pointer)
{
    size_t most = q->dev->desc.max_fill_pattern;

    if (most == SIZE_MAX)
        return true; /* any pattern, also in memory that the program allocated elsewhere */
    if (!pointer->pool || pointer->pool->ctx != q->ctx)
        return false; /* drivers crash on memory of other allocators */
    return usm_is_pow2(f->pattern_size) && f->pattern_size <= most &&
           usm_is_aligned(f->dst, f->pattern_size);
}

/* Returns a heap block of whole patterns, at most as large as the range. */
static void *make_seed(const fill_spec *f, size_t *n)
{
    size_t fit   = usm_max_size(SEED_SIZE / f->pattern_size, 1);
    size_t count = usm_min_size(fit, f->size / f->pattern_size);
    char  *seed  = usm__heap_alloc(count * f->pattern_size);

    for (size_t i = 0; seed && i < count; i++)
        memcpy(seed + i * f->pattern_size, f->pattern, f->pattern_size);
    *n = count * f->pattern_size;
    return seed;
}

static usm_status copy_doubling(usm__submit *s, const fill_spec *f, const void *seed, size_t n)
{
    usm_queue *q = s->q;
    usm_status st;

    usm__submit_want(s, n == f->size);
    st = usm__be_copy(q->be, q->native, f->dst, seed, n, USM__SUBMIT_ARGS(s));
    for (size_t done = n; st == USM_OK && done < f->size;) {
        size_t more = usm_min_size(done, f->size - done);

        usm__submit_chain(s);
        usm__submit_want(s, done + more == f->size);
        st = usm__be_copy(q->be, q->native, f->dst + done, f->dst, more, USM__SUBMIT_ARGS(s));
        done += more;
    }
    return st;
}

static usm_status fill_by_copies(usm_queue *q, const fill_spec *f, size_t ndeps,
                                 usm_event *const *deps, usm_event **ev)
{
    size_t      n    = 0;
    void       *seed = make_seed(f, &n);
    usm__submit s;
    usm_status  st;

    if (!seed)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the pattern of a fill");
    st = usm__submit_begin(&s, q, ndeps, deps, ev);
    if (st == USM_OK)
        return usm__submit_end_and_free(&s, copy_doubling(&s, f, seed, n), seed, true);
    usm__heap_free(seed);
    return st;
}

static usm_status fill_by_driver(usm_queue *q, const fill_spec *f, size_t ndeps,
                                 usm_event *const *deps, usm_event **ev)
{
    usm__submit s;
    usm_status  st = usm__submit_open(&s, q, ndeps, deps, ev);

    if (st != USM_OK)
        return st;
    st = usm__be_fill(q->be, q->native, f->dst, f->pattern, f->pattern_size, f->size,
                      USM__SUBMIT_ARGS(&s));
    return usm__submit_end(&s, st);
}

void usm__repeat_pattern(void *dst, const void *pattern, size_t pattern_size, size_t size)
{
    if (pattern_size == 1)
        memset(dst, *(const unsigned char *)pattern, size);
    else
        for (size_t at = 0; at < size; at += pattern_size)
            memcpy((char *)dst + at, pattern, pattern_size);
}

/* A fill of another context's memory: that context does it, in a task of this queue.  Of managed
 * memory, for a device that cannot reach it: the task does. */
typedef struct far_fill {
    fill_spec    f;
    usm_context *ctx; /* the memory's, held as a user; NULL: managed memory */
    size_t       index;
    char         pattern[]; /* a copy */
} far_fill;

static void far_free(void *user)
{
    far_fill *far = user;

    if (far->ctx)
        usm__context_unuse(far->ctx);
    usm__heap_free(far);
}

static usm_status host_task(void *user)
{
    far_fill *far = user;

    usm__repeat_pattern(far->f.dst, far->pattern, far->f.pattern_size, far->f.size);
    far_free(far);
    return USM_OK;
}

static usm_status far_task(void *user)
{
    far_fill  *far = user;
    usm_queue *q   = usm__queue_own(far->ctx, far->index, USM__QUEUE_STAGING);
    usm_event *ev  = NULL;
    usm_status st  = q ? usm_fill(q, far->f.dst, far->pattern, far->f.pattern_size,
                                  far->f.size / far->f.pattern_size, 0, NULL, &ev)
                       : usm_last_status();

    st = usm__event_await(st, ev);
    far_free(far);
    return st;
}

static usm_status fill_far(usm_queue *q, const fill_spec *f, const usm_pool *pool, size_t ndeps,
                           usm_event *const *deps, usm_event **ev)
{
    far_fill  *far = usm__heap_alloc(sizeof *far + f->pattern_size);
    usm_status st;

    if (!far)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the pattern of a fill");
    far->f     = *f;
    far->ctx   = pool ? pool->ctx : NULL;
    far->index = pool ? pool->index : 0;
    memcpy(far->pattern, f->pattern, f->pattern_size);
    if (pool)
        usm__context_use(far->ctx);
    st = usm__task_submit(q, &(usm__task_body){pool ? far_task : host_task, far_free, far}, ndeps,
                          deps, ev);
    if (st != USM_OK)
        far_free(far);
    return st;
}

static usm_status fill(usm_queue *q, const char *what, const fill_spec *f, size_t ndeps,
                       usm_event *const *deps, usm_event **ev)
{
    usm__pointer pointer;
    usm_status   st = usm__pointer_of(q, what, f->dst, f->size, &pointer);

    if (st == USM_OK && !pointer.pool && !pointer.is_far &&
        !usm_device_has(q->dev, USM_ASPECT_USM_SYSTEM_ALLOCATIONS))
        st = usm__fail(USM_E_INVALID_POINTER,
                       "%s: %p is not libusm memory and %s cannot use other memory; allocate it "
                       "with usm_alloc()",
                       what, (void *)f->dst, q->dev->term);
    if (st == USM_OK)
        st = usm__queue_probe(q);
    if (st != USM_OK)
        return st;
    if (pointer.is_far)
        return fill_far(q, f, pointer.pool, ndeps, deps, ev);
    if (driver_can(q, f, &pointer))
        return fill_by_driver(q, f, ndeps, deps, ev);
    return fill_by_copies(q, f, ndeps, deps, ev);
}

usm_status usm_memset(usm_queue *q, void *dst, int value, size_t n, size_t ndeps,
                      usm_event *const *deps, usm_event **ev)
{
    unsigned char   byte = (unsigned char)value;
    const fill_spec f    = {dst, &byte, 1, n};
    usm_status      st   = usm__queue_check(q);

    if (st != USM_OK)
        return st;
    if (n == 0)
        return usm__submit_nothing(q, ndeps, deps, ev);
    return fill(q, "usm_memset", &f, ndeps, deps, ev);
}

usm_status usm_fill(usm_queue *q, void *dst, const void *pattern, size_t pattern_size, size_t count,
                    size_t ndeps, usm_event *const *deps, usm_event **ev)
{
    fill_spec  f  = {dst, pattern, pattern_size, 0};
    usm_status st = usm__queue_check(q);

    if (st != USM_OK)
        return st;
    if (count == 0)
        return usm__submit_nothing(q, ndeps, deps, ev);
    if (!pattern || pattern_size == 0)
        return usm__fail(USM_E_INVALID, "usm_fill: %s",
                         pattern ? "pattern_size is 0" : "pattern is NULL");
    if (__builtin_mul_overflow(pattern_size, count, &f.size))
        return usm__fail(USM_E_SIZE, "usm_fill: %zu patterns of %zu bytes exceed the address space",
                         count, pattern_size);
    return fill(q, "usm_fill", &f, ndeps, deps, ev);
}
