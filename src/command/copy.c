/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Copies: usm_memcpy, usm_memcpy_2d and the blocking usm_copy.
 *
 * The driver copies where it can: both ranges belong to the queue's context or to the host, and
 * they do not overlap.  Overlapping ranges are copied through a temporary block (the semantics of
 * memmove, which drivers refuse).  Memory of another context is copied through the host, in pieces,
 * by a thread of the executor; so is managed memory for devices whose driver cannot reach it. */
#include "base/inline/bits.h"
#include "base/os.h"
#include "command/command.h"
#include "device/init.h"
#include "heap/pool.h"

#include <string.h>

#define STAGE_SIZE ((size_t)4 << 20)

static bool overlap(const void *a, const void *b, size_t n)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return (x > y ? x - y : y - x) < n;
}

/* ---- through the host: other contexts -------------------------------------------- */

typedef struct far_copy {
    usm_context *ctx;   /* the queue's, held as a user                       */
    usm_context *of[2]; /* of dst and src, held as a user; NULL: host memory */
    size_t       index;
    char        *dst;
    const char  *src;
    size_t       dst_pitch, src_pitch, width, height;
} far_copy;

/* Copies one side of a staged copy: the driver of the area's context does it, or memmove(). */
static bool is_on_host(const usm__area *area)
{
    return !area || area->kind == USM_HOST;
}

static usm_status move(const far_copy *f, void *dst, const void *src, size_t n,
                       const usm__area *area)
{
    usm_event  *ev = NULL; /* a wait for the queue would also report failures of other copies */
    usm_queue  *q;
    size_t      index;
    usm__submit s;
    usm_status  st;

    if (is_on_host(area)) {
        memmove(dst, src, n);
        return USM_OK;
    }
    index = area->ctx == f->ctx ? f->index : area->pool->index;
    st    = usm__queue_probe_device(area->ctx, index);
    if (st != USM_OK)
        return st;
    q = usm__queue_own(area->ctx, index, USM__QUEUE_STAGING);
    if (!q)
        return usm_last_status();
    st = usm__submit_begin(&s, q, 0, NULL, &ev);
    if (st == USM_OK)
        st = usm__submit_end(&s, usm__be_copy(q->be, q->native, dst, src, n, USM__SUBMIT_ARGS(&s)));
    return usm__event_await(st, ev);
}

/* No stage is needed, and the ranges may overlap. */
static void host_rows(const far_copy *f)
{
    for (size_t y = 0; y < f->height; y++)
        memmove(f->dst + y * f->dst_pitch, f->src + y * f->src_pitch, f->width);
}

static usm_status staged_rows(const far_copy *f, const usm__area *to, const usm__area *from)
{
    char      *stage = usm__heap_alloc(usm_min_size(STAGE_SIZE, f->width));
    usm_status st = stage ? USM_OK : usm__fail(USM_E_NO_MEMORY, "no host memory to stage a copy");

    for (size_t y = 0; st == USM_OK && y < f->height; y++)
        for (size_t x = 0; st == USM_OK && x < f->width; x += STAGE_SIZE) {
            size_t n = usm_min_size(STAGE_SIZE, f->width - x);

            st = move(f, stage, f->src + y * f->src_pitch + x, n, from);
            if (st == USM_OK)
                st = move(f, f->dst + y * f->dst_pitch + x, stage, n, to);
        }
    usm__heap_free(stage);
    return st;
}

static void far_free(void *user)
{
    far_copy *f = user;

    for (int i = 0; i < 2; i++)
        if (f->of[i])
            usm__context_unuse(f->of[i]);
    usm__context_unuse(f->ctx);
    usm__heap_free(f);
}

static usm_status far_task(void *user)
{
    far_copy        *f    = user;
    const usm__area *from = usm__map_find(f->src), *to = usm__map_find(f->dst);
    usm_status       st = USM_OK;

    if (is_on_host(from) && is_on_host(to))
        host_rows(f);
    else
        st = staged_rows(f, to, from);
    far_free(f);
    return st;
}

static usm_context *context_of(const usm__pointer *pointer)
{
    return pointer->pool ? pointer->pool->ctx : NULL;
}

static usm_status submit_far(usm_queue *q, const far_copy *what, size_t ndeps,
                             usm_event *const *deps, usm_event **ev)
{
    far_copy            *f    = usm__heap_alloc(sizeof *f);
    const usm__task_body body = {far_task, far_free, f};
    usm_status           st;

    if (!f)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to stage a copy");
    *f       = *what;
    f->ctx   = q->ctx;
    f->index = q->index;
    usm__context_use(f->ctx);
    for (int i = 0; i < 2; i++)
        if (f->of[i])
            usm__context_use(f->of[i]);
    st = usm__task_submit(q, &body, ndeps, deps, ev);
    if (st != USM_OK)
        far_free(f);
    return st;
}

/* ---- overlapping ------------------------------------------------------------------- */

/* src -> temporary -> dst, in order; the temporary is freed after the second copy. */
static usm_status copy_twice(usm__submit *s, void *dst, const void *src, void *stage, size_t n)
{
    usm_queue *q = s->q;
    usm_status st;

    usm__submit_want(s, false);
    st = usm__be_copy(q->be, q->native, stage, src, n, USM__SUBMIT_ARGS(s));
    if (st != USM_OK)
        return st;
    usm__submit_chain(s);
    usm__submit_want(s, true);
    return usm__be_copy(q->be, q->native, dst, stage, n, USM__SUBMIT_ARGS(s));
}

static void *alloc_stage(usm_queue *q, usm_kind kind, size_t n)
{
    usm_pool *pool = usm__pool_of(q->ctx, q->index, kind);

    return pool ? usm__pool_alloc(pool, 0, n, USM__ZERO_AS_POOL) : NULL;
}

static usm_status submit_overlapping(usm_queue *q, void *dst, const void *src, size_t n,
                                     const usm_pool *pool, size_t ndeps, usm_event *const *deps,
                                     usm_event **ev)
{
    /* Host memory may belong to another context, or to none: heap memory works for all of it. */
    bool        by_heap = !pool || pool->kind == USM_HOST;
    void       *stage   = by_heap ? usm__heap_alloc(n) : alloc_stage(q, pool->kind, n);
    usm__submit s;
    usm_status  st;

    if (!stage)
        return by_heap ? usm__fail(USM_E_NO_MEMORY,
                                   "no host memory for the %zu bytes of an "
                                   "overlapping copy",
                                   n)
                       : usm_last_status();
    st = usm__submit_begin(&s, q, ndeps, deps, ev);
    if (st == USM_OK)
        return usm__submit_end_and_free(&s, copy_twice(&s, dst, src, stage, n), stage, by_heap);
    if (by_heap)
        usm__heap_free(stage);
    else
        usm_free(stage);
    return st;
}

/* ---- public -------------------------------------------------------------------------- */

static usm_status copy_near(usm_queue *q, void *dst, const void *src, size_t n, size_t ndeps,
                            usm_event *const *deps, usm_event **ev)
{
    usm__submit s;
    usm_status  st = usm__submit_open(&s, q, ndeps, deps, ev);

    if (st != USM_OK)
        return st;
    return usm__submit_end(&s, usm__be_copy(q->be, q->native, dst, src, n, USM__SUBMIT_ARGS(&s)));
}

usm_status usm_memcpy(usm_queue *q, void *dst, const void *src, size_t n, size_t ndeps,
                      usm_event *const *deps, usm_event **ev)
{
    usm__pointer to, from;
    usm_status   st = usm__queue_check(q);

    if (st != USM_OK)
        return st;
    if (n == 0 || (dst == src && dst))
        return usm__submit_nothing(q, ndeps, deps, ev);
    st = usm__pointer_of(q, "usm_memcpy", dst, n, &to);
    if (st == USM_OK)
        st = usm__pointer_of(q, "usm_memcpy", src, n, &from);
    if (st == USM_OK)
        st = usm__queue_probe(q);
    if (st != USM_OK)
        return st;
    if (to.is_far || from.is_far) {
        const far_copy f = {NULL, {context_of(&to), context_of(&from)}, 0, dst, src, n, n, n, 1};

        return submit_far(q, &f, ndeps, deps, ev);
    }
    if (overlap(dst, src, n))
        return submit_overlapping(q, dst, src, n, to.pool, ndeps, deps, ev);
    return copy_near(q, dst, src, n, ndeps, deps, ev);
}

typedef struct rectangle {
    void       *dst;
    const void *src;
    size_t      dst_pitch, src_pitch, width, height;
} rectangle;

/* The bytes from the first of a rectangle to its last, on both sides. */
static usm_status spans_2d(const rectangle *r, size_t *n_dst, size_t *n_src)
{
    size_t last = r->height - 1;

    if (r->dst_pitch < r->width || r->src_pitch < r->width)
        return usm__fail(USM_E_INVALID, "usm_memcpy_2d: a pitch (%zu, %zu) is below the width %zu",
                         r->dst_pitch, r->src_pitch, r->width);
    if (__builtin_mul_overflow(last, r->dst_pitch, n_dst) ||
        __builtin_mul_overflow(last, r->src_pitch, n_src) ||
        __builtin_add_overflow(*n_dst, r->width, n_dst) ||
        __builtin_add_overflow(*n_src, r->width, n_src))
        return usm__fail(USM_E_SIZE,
                         "usm_memcpy_2d: %zu rows of that pitch exceed the address "
                         "space",
                         r->height);
    return USM_OK;
}

static usm_status check_2d(usm_queue *q, const rectangle *r, usm__pointer *to, usm__pointer *from)
{
    size_t     n_dst, n_src;
    usm_status st = spans_2d(r, &n_dst, &n_src);

    if (st == USM_OK)
        st = usm__pointer_of(q, "usm_memcpy_2d", r->dst, n_dst, to);
    if (st == USM_OK)
        st = usm__pointer_of(q, "usm_memcpy_2d", r->src, n_src, from);
    return st;
}

usm_status usm_memcpy_2d(usm_queue *q, void *dst, size_t dst_pitch, const void *src,
                         size_t src_pitch, size_t width, size_t height, size_t ndeps,
                         usm_event *const *deps, usm_event **ev)
{
    const rectangle r = {dst, src, dst_pitch, src_pitch, width, height};
    usm__pointer    to, from;
    usm__submit     s;
    usm_status      st = usm__queue_check(q);

    if (st != USM_OK)
        return st;
    if (width == 0 || height == 0)
        return usm__submit_nothing(q, ndeps, deps, ev);
    st = check_2d(q, &r, &to, &from);
    if (st == USM_OK)
        st = usm__queue_probe(q);
    if (st != USM_OK)
        return st;
    if (to.is_far || from.is_far) {
        const far_copy f = {
            NULL,  {context_of(&to), context_of(&from)}, 0, dst, src, dst_pitch, src_pitch, width,
            height};

        return submit_far(q, &f, ndeps, deps, ev);
    }
    st = usm__submit_begin(&s, q, ndeps, deps, ev);
    if (st != USM_OK)
        return st;
    st = usm__be_copy_2d(q->be, q->native, dst, dst_pitch, src, src_pitch, width, height,
                         USM__SUBMIT_ARGS(&s));
    return usm__submit_end(&s, st);
}

/* ---- blocking -------------------------------------------------------------------------- */

/* Memory that an area source has from the host (usm/source.h) has no queue and needs none. */
static bool is_plain(const usm__area *a)
{
    return !usm__backend_can(a->ctx->be, USM_CAP_QUEUES) && usm__pool_host_may_touch(a->pool);
}

/* The queue for work on these pointers; NULL with USM_OK: the host does it. */
static usm_status queue_for(const void *a, const void *b, usm_queue **q)
{
    usm__area *areas[2] = {usm__map_find(a), b ? usm__map_find(b) : NULL};
    usm__area *best     = NULL;

    *q = NULL;
    for (int i = 0; i < 2; i++)
        if (areas[i] && !is_plain(areas[i]) &&
            (!best || (best->kind != USM_DEVICE && areas[i]->kind == USM_DEVICE)))
            best = areas[i];
    if (!best)
        return USM_OK;
    if (usm__context_is_inert(best->ctx)) {
        if (usm__backend_can(best->ctx->be, USM_CAP_FORK_MEMORY) &&
            !usm__backend_can(best->ctx->be, USM_CAP_NO_ACCESS))
            return USM_OK; /* the child has its own copy now, which the host can access whatever its
                              kind */
        return usm__fail(USM_E_FORKED, "the memory was allocated before fork()");
    }
    *q = best->ctx->is_default && best->pool->index == 0
             ? usm_default_queue()
             : usm__queue_own(best->ctx, best->pool->index, USM__QUEUE_BLOCKING);
    return *q ? USM_OK : usm_last_status();
}

usm_status usm_copy(void *dst, const void *src, size_t n)
{
    usm_event *ev = NULL;
    usm_queue *q;
    usm_status st;

    if (n == 0)
        return USM_OK;
    if (!dst || !src)
        return usm__fail(USM_E_INVALID_POINTER, "usm_copy: %s is NULL", dst ? "src" : "dst");
    st = queue_for(dst, src, &q);
    if (st != USM_OK)
        return st;
    if (!q) { /* host memory on both sides */
        st = usm__pointer_host("usm_copy", dst, n);
        if (st == USM_OK)
            st = usm__pointer_host("usm_copy", src, n);
        if (st == USM_OK)
            memmove(dst, src, n);
        return st;
    }
    st = usm_memcpy(q, dst, src, n, 0, NULL, &ev);
    return usm__event_await(st, ev);
}

static usm_status copy_2d_on_host(const rectangle *r)
{
    size_t     n_dst, n_src;
    usm_status st = spans_2d(r, &n_dst, &n_src);

    if (st == USM_OK)
        st = usm__pointer_host("usm_copy_2d", r->dst, n_dst);
    if (st == USM_OK)
        st = usm__pointer_host("usm_copy_2d", r->src, n_src);
    for (size_t y = 0; st == USM_OK && y < r->height; y++)
        memcpy((char *)r->dst + y * r->dst_pitch, (const char *)r->src + y * r->src_pitch,
               r->width);
    return st;
}

usm_status usm_copy_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                       size_t height)
{
    usm_event *ev = NULL;
    usm_queue *q;
    usm_status st;

    if (width == 0 || height == 0)
        return USM_OK;
    if (!dst || !src)
        return usm__fail(USM_E_INVALID_POINTER, "usm_copy_2d: %s is NULL", dst ? "src" : "dst");
    if (dst_pitch < width || src_pitch < width)
        return usm__fail(USM_E_INVALID, "usm_copy_2d: a pitch (%zu, %zu) is below the width %zu",
                         dst_pitch, src_pitch, width);
    st = queue_for(dst, src, &q);
    if (st != USM_OK)
        return st;
    if (!q)
        return copy_2d_on_host(&(rectangle){dst, src, dst_pitch, src_pitch, width, height});
    st = usm_memcpy_2d(q, dst, dst_pitch, src, src_pitch, width, height, 0, NULL, &ev);
    return usm__event_await(st, ev);
}

usm_status usm_set(void *dst, int value, size_t n)
{
    usm_event *ev = NULL;
    usm_queue *q;
    usm_status st;

    if (n == 0)
        return USM_OK;
    if (!dst)
        return usm__fail(USM_E_INVALID_POINTER, "usm_set: dst is NULL");
    st = queue_for(dst, NULL, &q);
    if (st != USM_OK)
        return st;
    if (!q) {
        st = usm__pointer_host("usm_set", dst, n);
        if (st == USM_OK)
            memset(dst, value, n);
        return st;
    }
    st = usm_memset(q, dst, value, n, 0, NULL, &ev);
    return usm__event_await(st, ev);
}
