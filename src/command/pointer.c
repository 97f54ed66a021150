/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pointer resolution for commands, and other functions that all commands need.  Called by
 * command/copy.c, command/fill.c, command/task.c. */
#include "base/inline/plural.h"
#include "base/os.h"
#include "base/part.h"
#include "base/settings.h"
#include "command/command.h"
#include "device/init.h"
#include "heap/pages.h"
#include "heap/pool.h"

#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

/* True if every page of [p, p + n) is mapped: otherwise mincore() returns ENOMEM.  Called for
 * suspect pointers (recently freed), after usm_shutdown(), which returned memory, and with
 * USM_VALIDATION for all host memory. */
static bool is_mapped(const void *p, size_t n)
{
    uintptr_t     page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t     at = (uintptr_t)p & ~(page - 1), end = (uintptr_t)p + n;
    unsigned char resident[256];

    while (at < end) {
        size_t span = end - at;

        if (span > sizeof resident * page)
            span = sizeof resident * page;
        if (mincore((void *)at, span, resident) != 0)
            return false;
        at += span;
    }
    return true;
}

/* The value of the setting.  Every copy needs it, so it is looked up again only after a change of
 * settings. */
static bool is_validating(void)
{
    unsigned now  = usm_load_acquire(&usm__settings_changes);
    unsigned last = usm_load_relaxed(&usm__queues.validation); /* twice `now`, plus the value */

    if (last >> 1 != (now & (UINT_MAX >> 1))) {
        last = now << 1 | (usm__setting_bool("validation") ? 1u : 0u);
        usm_store_relaxed(&usm__queues.validation, last);
    }
    return (last & 1) != 0;
}

usm_status usm__pointer_host(const char *what, const void *p, size_t n)
{
    bool suspect = usm__gone_recently(p), down = usm__is_down();

    if (suspect && down)
        return usm__fail(USM_E_SHUTDOWN,
                         "%s: %p was freed or went with usm_shutdown(); use memory before that",
                         what, p);
    if ((suspect || down || is_validating()) && !is_mapped(p, n))
        return usm__fail(USM_E_INVALID_POINTER, "%s: %p %s", what, p,
                         suspect
                             ? "was freed, by usm_free() or with its context; use it before that"
                             : "is no memory of this process any more, or never was");
    return USM_OK;
}

/* Returns the pool whose live block contains [p, p + n), from the page map alone: two loads for
 * nearly all pointers of nearly all commands.  NULL: unknown.  A tracked block, which may be
 * smaller than its pool's block, has another state, so it is not found here. */
static usm_pool *pool_around(const void *p, size_t n)
{
    usm_block       block;
    const usm_span *span = usm__page_find_live(p, &block);

    return span && n <= block.size - (size_t)((const char *)p - (const char *)block.base)
               ? span->source
               : NULL;
}

static usm_status check_block(const char *what, usm__area *area, const void *p, size_t n)
{
    usm_block  block;
    usm_status st = usm__pool_block(area, p, &block);
    size_t     room;

    if (st != USM_OK)
        return usm__fail(USM_E_INVALID_POINTER, "%s: %p was freed; use it before usm_free()", what,
                         p);
    room = block.size - (size_t)((const char *)p - (const char *)block.base);
    if (n > room)
        return usm__fail(USM_E_SIZE,
                         "%s: %zu %s at %p would cross the end of the block, which has %zu left",
                         what, n, usm__plural(n, "byte", "bytes"), p, room);
    return USM_OK;
}

/* Memory of an area source (usm/source.h) belongs to another runtime.  libusm has no queue for it,
 * so whether a driver can reach it only the driver knows, as for memory that libusm does not know. */
static void fill_in(const usm_queue *q, usm_pool *pool, usm__pointer *pointer)
{
    pointer->pool   = pool;
    pointer->is_far = pool && pool->ctx != q->ctx && pool->kind != USM_HOST &&
                      usm__backend_can(pool->ctx->be, USM_CAP_QUEUES);
    pointer->is_ours = !pointer->is_far;
}

/* Memory that no pool has.  Managed memory comes when it is touched, by the program's threads or by
 * a driver that reaches all of their memory.  Another driver would take hold of pages that leave:
 * for such a device the host touches the memory, in a task. */
static usm_status fill_in_unpooled(const usm_queue *q, const char *what, const void *p, size_t n,
                                   usm__pointer *pointer)
{
    usm_block block;

    if (usm_device_has(q->dev, USM_ASPECT_USM_SYSTEM_ALLOCATIONS) ||
        !usm__parts_unpooled_find(p, &block))
        return usm__pointer_host(what, p, n);
    pointer->is_far  = true;
    pointer->is_ours = false;
    return n <= block.size - (size_t)((const char *)p - (const char *)block.base)
               ? USM_OK
               : usm__fail(USM_E_SIZE,
                           "%s: %zu bytes at %p would cross the end of the managed block", what, n,
                           p);
}

usm_status usm__pointer_of(usm_queue *q, const char *what, const void *p, size_t n,
                           usm__pointer *pointer)
{
    usm_pool  *pool = pool_around(p, n);
    usm__area *area;

    if (pool) {
        fill_in(q, pool, pointer);
        return USM_OK;
    }
    if (!p)
        return usm__fail(USM_E_INVALID_POINTER, "%s: a pointer is NULL", what);
    area = usm__map_find(p);
    fill_in(q, area ? area->pool : NULL, pointer);
    return area ? check_block(what, area, p, n) : fill_in_unpooled(q, what, p, n, pointer);
}

usm_status usm__marker(usm_queue *q, size_t ndeps, void *const *deps, void **ev)
{
    void      *done = NULL;
    usm_status st;

    if (ndeps > 0 || usm__queue_in_order(q))
        return usm__be_marker(q->be, q->native, ndeps, deps, ev);
    /* Without dependencies it would wait for the whole queue, so it gets a completed one. */
    st = usm__be_event_create_user(q->be, q->ctx->native, &done);
    if (st != USM_OK)
        return st;
    st = usm__be_event_signal(q->be, done, USM_OK);
    if (st == USM_OK)
        st = usm__be_marker(q->be, q->native, 1, &done, ev);
    usm__be_event_release(q->be, done);
    return st;
}

usm_status usm__submit_nothing(usm_queue *q, size_t ndeps, usm_event *const *deps, usm_event **ev)
{
    usm__submit s;
    usm_status  st = usm__submit_begin(&s, q, ndeps, deps, ev);

    if (st != USM_OK)
        return st;
    return usm__submit_end(&s, usm__marker(q, USM__SUBMIT_ARGS(&s)));
}

typedef struct late_free {
    usm__completion c;
    usm_context    *ctx; /* held as a user: its pools must outlive p */
    void           *p;
    bool            is_heap;
} late_free;

static void free_now(void *p, bool is_heap)
{
    if (is_heap)
        usm__heap_free(p);
    else
        usm_free(p);
}

static void late_free_run(usm__completion *c)
{
    late_free *f = usm_container_of(c, late_free, c);

    free_now(f->p, f->is_heap);
    usm__be_event_release(c->be, c->native);
    usm__context_unuse(f->ctx);
    usm__heap_free(f);
}

usm_status usm__submit_end_and_free(usm__submit *s, usm_status st, void *p, bool is_heap)
{
    const usm_queue *q    = s->q;
    void            *done = st == USM_OK ? usm__submit_last(s) : NULL;

    st = usm__submit_end(s, st);
    if (done) {
        usm__free_after(q->ctx, done, p, is_heap);
        return st;
    }
    (void)usm__be_queue_wait(q->be, q->native); /* the commands that were queued use the memory */
    free_now(p, is_heap);
    return st;
}

void usm__free_after(usm_context *ctx, void *native, void *p, bool is_heap)
{
    late_free *f = usm__heap_alloc(sizeof *f);

    if (f) {
        f->ctx     = ctx;
        f->p       = p;
        f->is_heap = is_heap;
        usm__context_use(ctx);
        if (usm__completion_arm(&f->c, ctx->be, native, late_free_run) == USM_OK)
            return;
        usm__context_unuse(ctx);
        usm__heap_free(f);
    }
    (void)usm__be_event_wait(ctx->be, native);
    usm__be_event_release(ctx->be, native);
    free_now(p, is_heap);
}
