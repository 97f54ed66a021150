/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands over buffers: their creation, the direct way into the queue, and their end
 * (buffer/command.h). enter.c finds what they come after, place.c gets their bytes, and defer.c
 * handles those that cannot go at once.  Called by work.c, on behalf of the public functions.
 *
 * A command is referred to by its completion (before that by the thread that submits or defers it),
 * and by those who wait for it.  It ends once: on the thread of its completion, or on the thread of
 * a host access that waited for its event, which then need not wait for a hand-over between
 * threads. */
#include "buffer/command.h"
#include "buffer/grant.h"
#include "command/command.h"
#include "command/outside.h"
#include "device/observer.h"

#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/inline/recycle.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

#define DEPS_INLINE  16
#define AT_ONCE_MOST ((size_t)16 << 10) /* bytes: a microsecond or two, as long as a submission */

/* ---- creation and freeing --------------------------------------------------------- */

static usm_recycler kept =
    USM_RECYCLER_INIT(sizeof(usm__command) + USM__COMMAND_USES * sizeof(usm__use), 1024);

static usm__command *take_memory(size_t nuses)
{
    size_t        size = sizeof(usm__command) + nuses * sizeof(usm__use);
    usm__command *c    = size <= kept.size ? usm_recycler_take(&kept, size) : NULL;

    return c ? c : usm__heap_alloc(usm_max_size(size, kept.size));
}

static void give_memory(usm__command *c)
{
    if (c->nuses > USM__COMMAND_USES || !usm_recycler_give(&kept, c))
        usm__heap_free(c);
}

void usm__commands_forget(void)
{
    usm_recycler_clear(&kept, usm__heap_free);
    usm__edges_forget();
}

static void release_deps(usm__command *c)
{
    for (size_t i = 0; i < c->ndeps; i++)
        usm_event_release(c->deps[i]);
    c->ndeps = 0;
}

static void free_command(usm__command *c)
{
    usm_context *ctx = c->ctx;

    release_deps(c);
    usm_event_release(c->event);
    for (size_t i = 0; i < c->nuses; i++)
        if (c->uses[i].root)
            usm__buffer_unref(c->uses[i].root);
    if (c->kept)
        c->ops->drop(c->kept);
    usm_event_release(c->end);
    usm_event_release(c->deferral);
    usm_event_release(c->start);
    if (c->deps != c->first_deps)
        usm__heap_free(c->deps);
    if (c->ptrs != c->first_ptrs)
        usm__heap_free(c->ptrs);
    give_memory(c);
    usm__context_unuse(ctx);
}

void usm__command_unref(usm__command *c)
{
    if (usm_ref_drop(&c->refs))
        free_command(c);
}

static usm_status check_accessor(const usm_accessor *a)
{
    usm_status st = usm__buffer_check(a->buffer);

    if (st == USM_OK)
        st = usm__buffer_check_mode(a->buffer, a->mode);
    if (st == USM_OK && (a->mode & USM_NO_WAIT))
        st = usm__fail(USM_E_INVALID, "a command never waits: USM_NO_WAIT is for host accesses");
    if (st == USM_OK)
        st = usm__buffer_check_range(a->buffer, a->offset, a->size);
    return st;
}

static void set_use(usm__command *c, usm__use *u, const usm_accessor *a)
{
    usm_buffer *root = a->buffer->root;

    u->command     = c;
    u->root        = root;
    u->is_empty    = a->size == 0;
    u->entry.begin = a->buffer->base + a->offset;
    u->entry.end   = u->entry.begin + a->size;
    u->entry.mode  = a->mode;
    u->entry.lane  = c->lane;
    usm__buffer_ref(root);
}

static usm__command *new_command(usm_queue *q, const usm__command_desc *d, bool wants_event)
{
    usm__command *c = take_memory(d->n);

    if (!c)
        goto err_memory;
    c->nuses = d->n;
    c->ptrs  = c->first_ptrs;
    if (d->n > USM__COMMAND_USES)
        c->ptrs = usm__heap_alloc(d->n * sizeof *c->ptrs);
    if (!c->ptrs)
        goto err_free;
    c->deps        = c->first_deps;
    c->cap         = USM__COMMAND_DEPS;
    c->ops         = d->ops;
    c->work        = d->task ? c : d->work;
    c->task        = d->task;
    c->user        = d->user;
    c->is_native   = d->task && usm__queue_has_tasks(q);
    c->ctx         = q->ctx;
    c->index       = q->index;
    c->queue       = q->serial;
    c->lane        = usm__queue_in_order(q) ? c->queue : 0;
    c->is_in_place = d->task || usm__locations_in_place(q);
    c->wants_event = wants_event;
    usm_store_relaxed(&c->refs, 1u);
    usm_list_init(&c->in_line);
    usm_list_init(&c->to_watch);
    usm_list_init(&c->waiter.link);
    c->waiter.ready = usm__grant_ready;
    usm__context_use(c->ctx);
    for (size_t i = 0; i < d->n; i++)
        set_use(c, &c->uses[i], &d->accessors[i]);
    return c;

err_free:
    give_memory(c);
err_memory:
    (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a command");
    return NULL;
}

/* ---- reporting the end -------------------------------------------------------------- */

void usm__command_set_under_way(bool is_under_way)
{
    if (is_under_way)
        usm__tracking.under_way++;
    else
        usm__tracking.under_way--;
}

#define UNWATCHED_MAX 4 /* commands of a buffer                                              */

/* Whether the command's completion must be armed.  Nobody waits for what a command over the
 * program's own memory releases, and threads that wait for its end wait for its event: a hand-over
 * to another thread would only take time.  Lock held. */
static bool needs_watch(const usm__command *c)
{
    if (c->task || c->kept || c->on_done || !c->is_in_place ||
        (!c->wants_event && c->ctx->on_error))
        return true;
    for (size_t i = 0; i < c->nuses; i++)
        if (!(usm_load_relaxed(&c->uses[i].root->flags) & USM__BUFFER_FOREIGN) ||
            usm__track_of(c->uses[i].root)->order.ncommands > UNWATCHED_MAX)
            return true;
    return false;
}

static void completed(usm__completion *completion)
{
    usm__command *c = usm_container_of(completion, usm__command, c);

    usm__command_finish(c, completion->status);
    usm__command_unref(c);
}

/* Its submitter, or the thread that has run it, is done with the task. */
void usm__command_meet(usm__command *c)
{
    if (usm_add_acq_rel(&c->met, 1u) == 1)
        usm__command_finish(c, c->outcome);
    usm__command_unref(c);
}

/* Consumes a reference.  No lock is held: a task may have ended, and then the program is
 * notified. */
static void watch(usm__command *c)
{
    if (c->task) {
        usm__command_meet(c);
        return;
    }
    if (usm__completion_arm(&c->c, c->ctx->be, c->event->native, completed) == USM_OK)
        return;
    usm__command_await(c); /* no thread is available */
    usm__command_unref(c);
}

void usm__command_want_watch(usm__command *c)
{
    if (usm__command_state_of(c) != USM__COMMAND_LAUNCHED)
        return;
    usm__command_become(c, USM__COMMAND_WATCHED);
    usm__tracking.under_way++;
    usm_ref_take(&c->refs);
    usm_list_append(&usm__tracking.to_watch, &c->to_watch);
    usm_store_relaxed(&usm__tracking.has_wanted, true);
}

void usm__commands_watch_wanted(void)
{
    usm_list *it;

    if (!usm_load_relaxed(&usm__tracking.has_wanted))
        return;
    do {
        usm__track_lock();
        it = usm_list_pop(&usm__tracking.to_watch);
        if (!it)
            usm_store_relaxed(&usm__tracking.has_wanted, false);
        usm__track_unlock();
        if (it)
            watch(usm_container_of(it, usm__command, to_watch));
    } while (it);
}

void usm__command_watch(usm__command *c)
{
    if (c->wants_watch)
        watch(c);
}

/* ---- launch and end -------------------------------------------------------------------- */

static void launched(usm__command *c, usm_event *ev)
{
    bool was_taking = usm__command_state_of(c) == USM__COMMAND_TAKING;

    usm__track_lock();
    c->event       = ev;
    c->wants_watch = needs_watch(c);
    usm__tracking.under_way += c->wants_watch;
    if (c->wants_watch)
        usm_ref_take(&c->refs); /* the completion's */
    usm__command_become(c, c->wants_watch ? USM__COMMAND_WATCHED : USM__COMMAND_LAUNCHED);
    if (was_taking)
        usm__command_arrived();
    usm__edges_fire(&c->on_launch, ev, USM_OK);
    usm__track_wake();
    usm__track_unlock();
    if (was_taking)
        usm__grant_placed();
}

static void leave_order(usm__use *u, usm_status status)
{
    usm__track *t = usm__track_of(u->root);

    if (!u->is_empty)
        usm__track_order_remove(&t->order, &u->entry, status == USM_OK);
    if (!u->is_empty && status < 0 && (u->entry.mode & USM_WRITE))
        usm__failures_add(&t->failures, u->entry.begin, u->entry.end, status);
    usm__track_stop(u->root);
}

/* Under the lock.  True: it was in its queue. */
static bool leave(usm__command *c, usm_status status)
{
    usm__command_state from        = usm__command_state_of(c);
    bool               was_posted  = usm__command_is_posted(c);
    bool               was_at_once = from == USM__COMMAND_TAKING;
    bool               was_run     = was_posted || was_at_once || c->event;

    for (size_t i = 0; i < c->nuses; i++)
        leave_order(&c->uses[i], status);
    usm__tracking.under_way -= was_posted || from == USM__COMMAND_WATCHED;
    if (was_posted)
        usm__posted_left();
    if (was_at_once)
        usm__command_arrived();
    usm__tracking.ended += was_run;
    usm__edges_fire(&c->on_launch, NULL, status);
    usm__edges_fire(&c->on_done, NULL, status);
    usm__command_become(c, USM__COMMAND_DONE);
    if (!was_posted || from == USM__COMMAND_EXPECTED || c->is_awaited || usm__tracking.awaited > 0)
        usm__track_wake();
    return was_run;
}

/* The result goes to whoever waits for the command, or else to the error callback. */
static void notify_user(usm__command *c, usm_status status, bool was_run)
{
    char message[256];

    if (c->end)
        (void)usm__event_end(c->end, status);
    else if (status < 0 && !c->wants_event) {
        (void)snprintf(message, sizeof message,
                       "a command over buffers failed after it was submitted%s%s",
                       was_run ? "" : ": ", was_run ? "" : usm_last_error());
        usm__context_error(c->ctx, status, message);
    }
    if (c->deferral)
        (void)usm__event_end(c->deferral, c->end ? USM_OK : status);
}

void usm__command_finish(usm__command *c, usm_status status)
{
    bool was_launched, was_run;

    if (atomic_exchange(&c->is_finishing, true))
        return;
    if (status > 0)
        status = USM_OK;
    usm__command_unplace(c);
    if (c->own)
        usm__queue_return(c->own);
    usm__track_lock();
    was_launched = c->event != NULL;
    was_run      = leave(c, status);
    usm__track_unlock();
    notify_user(c, status, was_run);
    if (was_launched)
        usm__command_unref(c); /* the order's; the caller has one of its own */
}

/* The command could not be submitted. */
static void withdraw(usm__command *c)
{
    usm__track_lock();
    usm__command_leave_orders(c);
    usm__command_give_up(c);
    usm__track_unlock();
}

/* ---- directly into the queue ------------------------------------------------------------- */

usm_status usm__command_launch(usm__command *c, usm_queue *q, const usm__locations_events *after,
                               size_t ndeps, usm_event *const *deps)
{
    usm_event  *first[DEPS_INLINE];
    size_t      n    = c->ndeps + after->n + ndeps;
    usm_event **list = n > DEPS_INLINE ? usm__heap_alloc(n * sizeof(usm_event *)) : first;
    usm_event  *ev   = NULL;
    usm_status  st;

    if (!list)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu dependencies", n);
    if (c->ndeps)
        memcpy(list, c->deps, c->ndeps * sizeof(usm_event *));
    if (after->n)
        memcpy(list + c->ndeps, after->list, after->n * sizeof(usm_event *));
    if (ndeps)
        memcpy(list + c->ndeps + after->n, deps, ndeps * sizeof(usm_event *));
    st = c->ops->submit(c->work, c->ptrs, q, n, list, &ev);
    if (list != first)
        usm__heap_free(list);
    if (st != USM_OK)
        return st;
    release_deps(c);
    usm_ref_take(&c->refs); /* the order's, until the command has ended */
    launched(c, ev);
    return USM_OK;
}

/* ---- submitting -------------------------------------------------------------------------- */

/* It goes without a place in its queue, or gets it later. */
static void stop_taking(usm__command *c)
{
    usm__track_lock();
    usm__command_become(c, USM__COMMAND_DEFERRING);
    usm__track_unlock();
    usm__grant_placed();
}

/* Whether the submitter may do the work itself instead of waking a thread of the device's: it is a
 * small fill or copy in host memory, and comes after nothing that may not have ended.  Its range
 * has nothing before it, or it would have dependencies.  An event would have to be made for it. */
static bool is_at_once(const usm__command *c, usm_queue *q, size_t ndeps)
{
    return c->ops->at_once && c->is_in_place && !c->wants_event && ndeps + c->ndeps == 0 &&
           c->uses[0].entry.end - c->uses[0].entry.begin <= AT_ONCE_MOST && usm__queue_is_idle(q) &&
           !usm__observer_order_on();
}

/* It never had a place in its queue.  Those that would come after it slept meanwhile, as they do
 * until a command has its place (enter.c). */
static void do_at_once(usm__command *c)
{
    c->ops->at_once(c->work, c->ptrs);
    usm__command_finish(c, USM_OK);
    usm__grant_placed();
}

static usm_status launch_now(usm__command *c, usm_queue *q, const usm__locations_events *after,
                             size_t ndeps, usm_event *const *deps, usm_event **ev)
{
    usm_status st = usm__command_launch(c, q, after, ndeps, deps);

    if (st != USM_OK)
        usm__command_unplace(c);
    else if (ev && usm_event_retain(c->event) == USM_OK)
        *ev = c->event;
    return st;
}

static usm_status try_now(usm__command *c, usm_queue *q, size_t ndeps, usm_event *const *deps,
                          usm_event **ev)
{
    usm__locations_events after = USM__EVENT_LIST_INIT;
    usm_status            st    = usm__command_place(c, q, false, &after);

    if (st == USM_OK && is_at_once(c, q, ndeps))
        do_at_once(c);
    else if (st == USM_OK)
        st = launch_now(c, q, &after, ndeps, deps, ev);
    usm__locations_events_fini(&after);
    if (st != USM_OK)
        stop_taking(c);
    return st;
}

static usm_status put(usm__command *c, usm_queue *q, size_t ndeps, usm_event *const *deps,
                      usm_event **ev)
{
    usm_status st = usm__command_enter(c);

    if (st != USM_OK)
        return st;
    st = usm__command_state_of(c) == USM__COMMAND_TAKING ? try_now(c, q, ndeps, deps, ev)
                                                         : USM_E_AGAIN;
    if (st == USM_E_AGAIN)
        st = usm__command_defer(c, q, ndeps, deps, ev);
    if (st != USM_OK)
        withdraw(c);
    return st;
}

static usm_status post_or_put(usm__command *c, usm_queue *q, size_t ndeps, usm_event *const *deps,
                              usm_event **ev)
{
    usm_status st = USM_E_AGAIN;

    if (c->is_native && c->lane != 0 && ndeps == 0 && !ev)
        st = usm__command_post(c, q);
    return st == USM_E_AGAIN ? put(c, q, ndeps, deps, ev) : st;
}

/* Notifications that are due once the command has its place, and may run code that calls us
 * again. */
static void see_off(usm__command *c)
{
    if (usm__command_state_of(c) == USM__COMMAND_BLOCKED) { /* until usm__command_go() */
        usm__command_go(c);
        return;
    }
    usm__command_watch(c);
    usm__command_unref(c);
}

/* Enters the orders and the queue; for an in-order queue one command at a time (enter.c). */
static usm_status submit(usm__command *c, usm_queue *q, size_t ndeps, usm_event *const *deps,
                         usm_event **ev)
{
    bool       is_alone = c->lane != 0;
    usm_status st;

    if (is_alone)
        usm__mutex_lock(&q->entering);
    st = post_or_put(c, q, ndeps, deps, ev);
    if (is_alone)
        usm__mutex_unlock(&q->entering);
    if (st == USM_OK)
        see_off(c);
    usm__commands_watch_wanted();
    return st;
}

usm_status usm__command_submit(usm_queue *q, const usm__command_desc *d, size_t ndeps,
                               usm_event *const *deps, usm_event **ev)
{
    usm__command *c;
    usm_status    st = usm__queue_check(q);

    for (size_t i = 0; st == USM_OK && i < d->n; i++)
        st = check_accessor(&d->accessors[i]);
    if (st == USM_OK && !d->task && !usm__locations_in_place(q))
        st = usm__queue_probe(q); /* tests the device before bytes are copied to it */
    if (st == USM_OK && ndeps && !deps)
        st = usm__fail(USM_E_INVALID, "%zu dependencies, but the array is NULL", ndeps);
    for (size_t i = 0; st == USM_OK && i < ndeps; i++)
        st = usm__event_check(deps[i]);
    if (st == USM_OK)
        st = usm__executor_reserve();
    if (st != USM_OK)
        return st;
    for (size_t i = 0; i < ndeps; i++)
        usm__outside_await(deps[i]);
    c = new_command(q, d, ev != NULL);
    if (!c)
        return USM_E_NO_MEMORY;
    st = usm__command_check_fits(c, q);
    if (st == USM_OK)
        return submit(c, q, ndeps, deps, ev);
    usm__command_unref(c);
    return st;
}

/* ---- waiting ---------------------------------------------------------------------------- */

void usm__command_await(usm__command *c)
{
    usm_event *ev = NULL;

    usm__track_lock();
    c->is_awaited = true;
    while (!c->event && !usm__command_is_over(c))
        usm__track_sleep();
    if (!usm__command_is_over(c) && usm_event_retain(c->event) == USM_OK)
        ev = c->event;
    usm__track_unlock();
    if (ev) {
        usm__command_finish(c, usm_event_wait(ev));
        usm_event_release(ev);
    }
    usm__track_lock();
    while (!usm__command_is_over(c))
        usm__track_sleep();
    usm__track_unlock();
}

bool usm__command_has_ended(usm__command *c)
{
    bool is_launched, is_done;

    usm__track_lock();
    is_done     = usm__command_is_over(c);
    is_launched = c->event != NULL;
    usm__track_unlock();
    if (is_done)
        return true;
    if (!is_launched || usm_event_query(c->event) == USM_E_NOT_READY)
        return false;
    usm__command_await(c);
    return true;
}

uint64_t usm__commands_ended(void)
{
    uint64_t n;

    usm__track_lock();
    n = usm__tracking.ended;
    usm__track_unlock();
    return n;
}

bool usm__commands_await_end(uint64_t ended)
{
    bool has_ended;

    usm__track_lock();
    usm__tracking.awaited++;
    while (usm__tracking.ended == ended && usm__tracking.under_way > 0)
        usm__track_sleep();
    usm__tracking.awaited--;
    has_ended = usm__tracking.ended != ended;
    usm__track_unlock();
    return has_ended;
}

void usm__commands_fork(usm_fork_phase phase)
{
    if (phase == USM_FORK_CHILD) {
        usm_list_init(&usm__tracking.to_watch);
        usm__tracking.under_way = 0;
        usm__tracking.awaited   = 0;
        usm_store_relaxed(&usm__tracking.has_wanted, false);
        usm__entering_in_child();
        usm_recycler_in_child(&kept);
    }
}
