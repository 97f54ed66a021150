/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The observed path: see observe.h.
 *
 * An allocation is made first and reported afterwards.  A free is reported first and made
 * afterwards, because another thread may get the address as soon as it is free.  Therefore a free
 * is checked before anything is reported, and the report is undone if the pool refuses the free
 * nevertheless (when two frees race).
 *
 *     alloc:  pool | zones and poison | checker | record, state WATCHED | tag | trace | hook
 *     free:   record | hook | trace | tag | zones and poison | checker | state LIVE | pool
 *
 * If there is no memory for a record, the block is not tracked, and one warning is logged.
 *
 * Not here: blocks of thread caches while nothing but a trace observes the thread (traced.c). */
#include "observe/observe.h"

#include "base/inline/bits.h"
#include "base/inline/plural.h"
#include "base/log.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/trace.h"
#include "command/command.h"
#include "device/init.h"
#include "heap/magazine.h"
#include "observe/checker.h"
#include "observe/debug.h"
#include "observe/hooks.h"
#include "observe/order_check.h"
#include "observe/tag.h"
#include "observe/traced.h"
#include "observe/tracked.h"

#include <pthread.h>
#include <stdlib.h>

static unsigned observing(void)
{
    return usm_load_relaxed(&usm__observers.flags);
}

/* ---- start and end ------------------------------------------------------------------ */

/* Calls no driver.  In a child of fork() it lists only what the child allocated. */
static void list_at_exit(void)
{
    (void)usm__debug_list(NULL);
}

static void start(void)
{
    unsigned flags = 0;

    usm__hooks_start();
    usm__trace_start();
    if (usm__hooks_trace())
        flags |= USM__OBSERVE_HOOKS;
    if (atomic_load(&usm__trace_on))
        flags |= USM__OBSERVE_TRACE;
    if (usm__debug_checks())
        flags |= USM__OBSERVE_DEBUG;
    if (usm__setting_bool("validation"))
        flags |= USM__OBSERVE_VALIDATE;
    if (usm__checker_present())
        flags |= USM__OBSERVE_CHECKER;
    if (usm__debug_checks() & USM__DEBUG_LEAKS)
        (void)atexit(list_at_exit);
    if (flags)
        usm__observe_install();
    (void)atomic_fetch_or(&usm__observers.flags, flags);
}

void usm__observe_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, start);
}

/* ---- records -------------------------------------------------------------------------- */

static bool wants_record(const usm__tag *tag)
{
    return tag || observing() & USM__OBSERVE_RECORDED;
}

/* NULL: the block is not tracked. */
static usm__record *new_record(const usm__tag *tag)
{
    return wants_record(tag) ? usm__record_new() : NULL;
}

static usm_status fill_record(usm__record *r, usm_pool *pool, usm__tag *tag, void *p)
{
    usm__area *area = usm__map_find(p);

    r->pool       = pool;
    r->tag        = tag;
    r->kind       = pool->kind;
    r->on_host    = usm__pool_host_may_touch(pool);
    r->dev        = pool->ctx->devices[pool->index].dev;
    r->generation = usm__fork_generation();
    return area ? usm__pool_block_plain(area, p, &r->block) : USM_E_INVALID_POINTER;
}

/* For pools with spans: the state decides which frees the fast path accepts. */
static void set_state(const void *base, usm_block_state from, usm_block_state to)
{
    const usm_span   *span     = usm__page_find(base);
    _Atomic(uint8_t) *state    = span ? usm__magazine_state(span, base) : NULL;
    uint8_t           expected = (uint8_t)from;

    if (state)
        (void)usm_cas_acq_rel(state, &expected, (uint8_t)to);
}

/* For blocks that ended without a free: drops their records and the counts of their tags. */
static void drop_records(usm__record *list)
{
    while (list) {
        usm__record *next = list->next;

        usm__tag_sub(list->tag, list->asked);
        usm__record_free(list);
        list = next;
    }
}

/* Memory that a device or another process may have written counts as initialised: valgrind does not
 * see those writes. */
static bool counts_as_written(const usm__record *r)
{
    return r->pool->zero_init || !usm__backend_can(r->pool->ctx->be, USM_CAP_FORK_MEMORY);
}

/* From here on the block belongs to the program. */
static void serve(usm__record *r)
{
    usm__record *stale;

    usm__checker_open(r);
    usm__debug_paint(r);
    usm__checker_serve(r, counts_as_written(r));
    stale = usm__tracked_enter(r);
    if (stale) {
        stale->next = NULL;
        drop_records(stale);
    }
    set_state(r->block.base, USM_BLOCK_LIVE, USM_BLOCK_WATCHED);
}

/* ---- allocation --------------------------------------------------------------------------- */

static void observe_failed(usm_pool *pool, size_t size)
{
    if (atomic_load(&usm__trace_on))
        usm__trace_failed(pool->trace_id, usm__tag_trace_id(usm__tag_current()), size);
}

static void notify_alloc(usm_pool *pool, usm__tag *tag, const void *p, size_t size, size_t usable)
{
    usm__freed_forget(p);
    if (atomic_load(&usm__trace_on))
        usm__trace_alloc(pool->trace_id, usm__tag_trace_id(tag), p, size, usable);
    usm__hook_block("block_alloc", p, size);
}

/* Reports a block without a record that begins at p, which the caller has just got. */
static void notify_served(usm_pool *pool, usm__tag *tag, const void *p, size_t size)
{
    const usm_span *span  = usm__page_find(p);
    usm_block       block = {NULL, span ? span->size : size};
    usm__area      *area  = span ? NULL : usm__map_find(p);

    if (area)
        (void)usm__pool_block_plain(area, p, &block);
    notify_alloc(pool, tag, p, size, block.size);
}

/* Allocates without a record. */
static void *alloc_unwatched(usm_pool *pool, usm__tag *tag, size_t align, size_t size)
{
    void *p = NULL;

    if (usm__pool_serve(pool, align, size, &p) != USM_OK)
        return NULL;
    notify_served(pool, tag, p, size);
    return p;
}

/* pre: the record's block is known. */
static void cut_block(usm__record *r, size_t front, size_t size)
{
    r->is_exact = front > 0 || (usm__record_on_host(r) && observing() & USM__OBSERVE_CHECKER);
    r->user     = (char *)r->block.base + front;
    r->asked    = size;
    r->usable   = r->is_exact ? usm_max_size(size, 1) : r->block.size;
}

static void *observe_alloc(usm_pool *pool, size_t align, size_t size)
{
    usm__tag       *tag = usm__tag_current();
    usm__record    *r   = new_record(tag);
    usm__debug_plan plan;
    size_t          usable;
    void           *p = NULL;
    usm_status      st;

    if (!r)
        return alloc_unwatched(pool, tag, align, size);
    usm__debug_plan_for(pool, align, size, &plan);
    st = usm__pool_serve(pool, plan.align, plan.size, &p);
    if (st == USM_OK)
        st = fill_record(r, pool, tag, p);
    if (st != USM_OK) {
        usm__record_free(r);
        return NULL;
    }
    cut_block(r, plan.front, size);
    p      = r->user;
    usable = r->usable;
    serve(r);
    usm__tag_add(tag, size);
    notify_alloc(pool, tag, p, size, usable);
    return p;
}

/* ---- free --------------------------------------------------------------------------------- */

static void notify_free(usm_pool *pool, const void *p)
{
    usm__freed_note(p);
    usm__hook_block("block_free", p, 0);
    if (atomic_load(&usm__trace_on))
        usm__trace_free(pool->trace_id, p);
}

/* The pool refused a free that had passed the checks: another thread freed the same block, or reset
 * its pool, at the same moment.  The trace receives the block as live again. */
static void untell_free(usm_pool *pool, usm__tag *tag, const void *p, size_t size)
{
    usm__freed_forget(p);
    if (atomic_load(&usm__trace_on))
        usm__trace_alloc(pool->trace_id, usm__tag_trace_id(tag), p, size, size);
}

static usm_status free_unwatched(usm__area *area, void *p, const usm_block *block)
{
    usm_pool  *pool = area->pool;
    usm_status st;

    notify_free(pool, p);
    st = usm__pool_free_plain(area, p);
    if (st != USM_OK && st != USM_E_DOUBLE_FREE)
        untell_free(pool, NULL, p, block->size);
    return st;
}

static void observe_served(usm_pool *pool, const void *p, size_t size)
{
    notify_served(pool, usm__tag_current(), p, size);
}

static void observe_freed(usm_pool *pool, const void *p)
{
    notify_free(pool, p);
}

/* The caller owns r, which it took out of the table. */
static usm_status free_tracked(usm__area *area, usm__record *r)
{
    usm_pool  *pool = area->pool;
    usm_status st;

    usm__checker_open(r);
    usm__debug_inspect(r);
    usm__debug_wipe(r);
    usm__checker_close(r);
    notify_free(pool, r->user);
    usm__tag_sub(r->tag, r->asked);
    set_state(r->block.base, USM_BLOCK_WATCHED, USM_BLOCK_LIVE);
    st = usm__pool_free_plain(area, r->block.base);
    if (st == USM_OK || st == USM_E_DOUBLE_FREE) {
        usm__record_free(r);
        return st;
    }
    untell_free(pool, r->tag, r->user, r->asked);
    usm__tag_restore(r->tag, r->asked);
    serve(r);
    return st;
}

/* No live block of the program starts at p.  Where no record changes the block's bounds, the pool
 * itself writes the message. */
static usm_status refuse(usm__area *area, void *p, const usm__record *around)
{
    if (around && (char *)p - around->user >= 0 &&
        (size_t)((char *)p - around->user) < around->usable)
        return usm__fail(USM_E_INTERIOR_POINTER,
                         "%p lies %td bytes inside the block at %p; free that", p,
                         (char *)p - around->user, (void *)around->user);
    if (around)
        return usm__fail(USM_E_INTERIOR_POINTER, "%p lies %s the block at %p; free that", p,
                         (char *)p < around->user ? "before" : "past the end of",
                         (void *)around->user);
    return usm__pool_free_plain(area, p);
}

/* Finds a queue of the context by its native handle; returns it with a reference. */
static usm_queue *find_queue(usm_context *ctx, const void *native)
{
    usm_queue *q = usm__queue_next(ctx, NULL);

    while (q && q->native != native)
        q = usm__queue_next(ctx, q);
    return q;
}

/* True if a marker behind all queued commands completes at once, or nearly: the program may have
 * observed their end in a way that libusm did not see.  Otherwise *done is the marker's event. */
static bool has_ended(usm_queue *q, void **done)
{
    uint64_t position;

    *done = NULL;
    if (usm__queue_mark(q, done, &position) != USM_OK)
        return true; /* it cannot be determined: the free is accepted */
    for (int i = 0; i < 10; i++) {
        if (usm__be_event_query(q->be, *done) != USM_E_NOT_READY) {
            usm__be_event_release(q->be, *done);
            return true;
        }
        usm__os_sleep_ns(100000);
    }
    return false;
}

/* USM_VALIDATION: reports the free of a block that queued commands use, and defers it until they
 * have ended.  usm_free() cannot refuse, and the next owner of the block must not be harmed. */
static bool is_put_off(usm__area *area, void *p)
{
    char       message[512];
    void      *native = NULL, *done;
    usm_queue *q;
    bool       has;

    for (int i = 0; i < 8 && usm__order_in_use(p, &native, message, sizeof message); i++) {
        q = find_queue(area->ctx, native);
        if (!q)
            return false; /* the queue belongs to another context */
        has = has_ended(q, &done);
        usm__queue_unref(q);
        if (has)
            continue;
        if (usm__order_name(p)) {
            (void)usm__fail(USM_E_BUSY, "%s", message);
            usm__log(USM_LOG_ERROR, "USM_VALIDATION: %s", message);
        }
        usm__free_after(area->ctx, done, p, false);
        return true;
    }
    return false;
}

static usm_status observe_free(usm__area *area, void *p)
{
    usm__record  around;
    usm_block    block;
    usm__record *r;

    if (usm__observer_order_on() && is_put_off(area, p))
        return USM_OK;
    if (usm__pool_block_plain(area, p, &block) != USM_OK)
        return usm__freed_recently(p)
                   ? usm__fail(USM_E_DOUBLE_FREE, "%p was freed before; free a block once", p)
                   : refuse(area, p, NULL);
    r = usm__tracked_take(block.base, p);
    if (r)
        return free_tracked(area, r);
    if (usm__tracked_find(block.base, &around))
        return refuse(area, p, &around);
    if (block.base != p)
        return refuse(area, p, NULL);
    return free_unwatched(area, p, &block);
}

/* ---- queries ------------------------------------------------------------------------------ */

static usm_status observe_block(usm__area *area, const void *p, usm_block *block)
{
    usm__record r;
    usm_block   whole;
    usm_status  st = usm__pool_block_plain(area, p, &whole);

    if (st != USM_OK)
        return st;
    if (!usm__tracked_any() || !usm__tracked_find(whole.base, &r) || !r.is_exact) {
        *block = whole;
        return USM_OK;
    }
    if ((uintptr_t)p - (uintptr_t)r.user >= r.usable)
        return usm__fail(USM_E_INVALID_POINTER, "%p lies %s the block at %p of %zu %s", p,
                         (const char *)p < r.user ? "before" : "past the end of", (void *)r.user,
                         r.asked, usm__plural(r.asked, "byte", "bytes"));
    *block = (usm_block){r.user, r.usable};
    return USM_OK;
}

/* ---- pools that free all their blocks ------------------------------------------------------- */

static bool is_of_pool(const usm__record *r, void *pool)
{
    return r->pool == pool;
}

/* True if the record belongs to this pool and its block does not exist any more. */
static bool is_gone(const usm__record *r, void *pool)
{
    usm__area *area = r->pool == pool ? usm__map_find(r->block.base) : NULL;
    usm_block  block;

    if (r->pool != pool)
        return false;
    return !area || area->pool != pool ||
           usm__pool_block_plain(area, r->block.base, &block) != USM_OK ||
           block.base != r->block.base || block.size != r->block.size;
}

static void forget(usm__record *list)
{
    for (usm__record *r = list; r; r = r->next)
        usm__checker_close(r);
    drop_records(list);
}

static void observe_reset(usm_pool *pool)
{
    usm__message message;

    if (!usm__tracked_any())
        return;
    usm__message_save(&message);
    forget(usm__tracked_sweep(is_gone, pool));
    usm__message_restore(&message);
}

static void observe_pool_end(usm_pool *pool)
{
    usm__record *out;

    if (!usm__tracked_any())
        return;
    if (usm__debug_checks() & USM__DEBUG_LEAKS || usm__setting_bool("validation"))
        (void)usm__debug_list(pool);
    out = usm__tracked_sweep(is_of_pool, pool);
    for (const usm__record *r = out; r; r = r->next)
        usm__gone_note(r->user); /* a later use is then recognised as that of a freed block */
    forget(out);
}

/* ---- the table ------------------------------------------------------------------------------- */

void usm__observe_install(void)
{
    static const usm__observer table = {.alloc          = observe_alloc,
                                        .failed         = observe_failed,
                                        .free           = observe_free,
                                        .pool_malloc    = usm__observe_pool_malloc,
                                        .alloc_kind     = usm__observe_alloc_kind,
                                        .pool_free      = usm__observe_pool_free,
                                        .free_any       = usm__observe_free_any,
                                        .block          = observe_block,
                                        .served         = observe_served,
                                        .freed          = observe_freed,
                                        .pool_reset     = observe_reset,
                                        .pool_ended     = observe_pool_end,
                                        .memory_gone    = usm__checker_forget,
                                        .tag_name       = usm__tag_name,
                                        .each_tag       = usm__tags_each,
                                        .block_served   = usm__order_block_served,
                                        .block_back     = usm__order_block_back,
                                        .range_gone     = usm__order_range_gone,
                                        .queue_named    = usm__order_queue_named,
                                        .queue_ended    = usm__order_queue_ended,
                                        .event_seen     = usm__order_event_seen,
                                        .async_alloc    = usm__order_async_alloc,
                                        .async_free     = usm__order_async_free,
                                        .claim_complete = usm__order_claim_complete};

    usm_store_release(&usm__observers.table, &table);
}
