/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands over buffers: how they enter the orders of their buffers, go straight into the queue if
 * they can, and end (buffer/command.h).  Where their bytes come from is place.c's; what happens to
 * those that cannot go at once is defer.c's.  Called by work.c, on behalf of the public functions.
 *
 * A command is referred to by its completion (or, before, by who submits or defers it) and by those
 * who wait for it.  It ends once: on the thread of its completion, or on that of a host access that
 * waited for its event and would otherwise wait for a hand-over between threads. */
#include "buffer/command.h"

#include "base/fork.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

#define DEPS_INLINE 16

/* Guarded by the lock of track.c. */
static struct {
    usm_list unlaunched;
    usm_list to_watch; /* each with a reference                                                 */
    uint64_t under_way, ended; /* of those launched and watched                                  */
} commands = {
    {&commands.unlaunched, &commands.unlaunched}, {&commands.to_watch, &commands.to_watch}, 0, 0};

/* ---- making and giving back ------------------------------------------------------- */

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
    if (c->is_kept)
        c->ops->drop((void *)(uintptr_t)c->work);
    usm_event_release(c->end);
    usm_event_release(c->gate);
    usm_event_release(c->start);
    usm__heap_free(c->deps);
    usm__heap_free(c->ptrs);
    usm__heap_free(c);
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
    usm__command *c = usm__heap_alloc(sizeof *c + d->n * sizeof *c->uses);

    if (!c)
        goto err_memory;
    c->ptrs = usm__heap_alloc(d->n * sizeof *c->ptrs);
    if (!c->ptrs)
        goto err_free;
    c->ops         = d->ops;
    c->work        = d->work;
    c->ctx         = q->ctx;
    c->index       = q->index;
    c->lane        = usm__queue_in_order(q) ? q->serial : 0;
    c->is_in_place = usm__places_in_place(q);
    c->wants_event = wants_event;
    usm_store_relaxed(&c->refs, 1u);
    usm_list_init(&c->link);
    usm_list_init(&c->in_line);
    usm_list_init(&c->to_watch);
    usm_list_init(&c->waiter.link);
    c->waiter.ready = usm__command_ready;
    usm__context_use(c->ctx);
    c->nuses = d->n;
    for (size_t i = 0; i < d->n; i++)
        set_use(c, &c->uses[i], &d->accessors[i]);
    return c;

err_free:
    usm__heap_free(c);
err_memory:
    (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a command");
    return NULL;
}

/* ---- entering ------------------------------------------------------------------------ */

/* Room for one event more, which is to come. */
static bool expect_dep(usm__command *c)
{
    size_t      cap = c->cap ? 2 * c->cap : 4;
    usm_event **more;

    if (c->ndeps + c->nexpected == c->cap) {
        more = usm__heap_realloc(c->deps, cap * sizeof(usm_event *));
        if (!more)
            return false;
        c->deps = more;
        c->cap  = cap;
    }
    c->nexpected++;
    return true;
}

void usm__command_preceded(usm__command *c, usm_event *dep, usm_status status)
{
    c->nexpected--;
    if (dep && usm_event_retain(dep) == USM_OK)
        c->deps[c->ndeps++] = dep;
    else if (status < 0)
        c->preceded = USM_E_DEPENDENCY;
}

static bool has_dep(const usm__command *c, const usm_event *ev)
{
    for (size_t i = 0; i < c->ndeps; i++)
        if (c->deps[i] == ev)
            return true;
    return false;
}

static bool put_behind(usm__command *c, usm__order_entry *e)
{
    usm__command *before;

    if (e->is_host)
        return usm__edge_add(&usm_container_of(e, usm__host_entry, entry)->waiters, &c->waiter,
                             NULL);
    before = usm__use_of(e)->command;
    /* Between a device's memory and the host's bytes are copied only when nothing works on them. */
    if (c->is_in_place != before->is_in_place) {
        usm__command_want_watch(before);
        return usm__edge_add(&before->on_done, &c->waiter, NULL);
    }
    if (before->event && has_dep(c, before->event))
        return true;
    if (!expect_dep(c))
        return false;
    if (!before->event)
        return usm__edge_add(&before->on_launch, &c->waiter, c);
    usm__command_preceded(c, before->event, USM_OK);
    return true;
}

static usm_status find_order(usm__command *c, usm__use *u)
{
    usm__order *o = &usm__track_of(u->root)->order;

    for (usm__order_entry *e = usm__order_next(o, &u->entry, false, NULL); e;
         e                   = usm__order_next(o, &u->entry, false, e))
        if (!put_behind(c, e))
            return usm__fail(USM_E_NO_MEMORY, "no host memory for the order of commands");
    return USM_OK;
}

static bool depends_on(const usm__command *before, size_t ndeps, usm_event *const *deps)
{
    for (size_t i = 0; before->end && i < ndeps; i++)
        if (deps[i] == before->end)
            return true;
    return false;
}

/* Commands that were deferred, and that this one comes after for another reason than bytes: it must
 * not take memory that they need. */
static usm_status find_deferred(usm__command *c, size_t ndeps, usm_event *const *deps)
{
    USM_LIST_FOREACH (it, &commands.unlaunched) {
        usm__command *before = usm_container_of(it, usm__command, link);

        if (before->is_deferred &&
            ((c->lane && before->lane == c->lane) || depends_on(before, ndeps, deps)) &&
            !usm__edge_add(&before->on_launch, &c->waiter, NULL))
            return usm__fail(USM_E_NO_MEMORY, "no host memory for the order of commands");
    }
    return USM_OK;
}

static usm_status told_failure(usm_status status)
{
    return usm__fail(USM_E_DEPENDENCY,
                     "a command that should have written these bytes failed (%s); write them anew",
                     usm_status_name(status));
}

static usm_status take_failures(usm__command *c)
{
    for (size_t i = 0; i < c->nuses; i++) {
        usm__use  *u  = &c->uses[i];
        usm_status st = u->is_empty
                            ? USM_OK
                            : usm__failures_take(&usm__track_of(u->root)->failures, u->entry.begin,
                                                 u->entry.end, u->entry.mode);

        if (st != USM_OK)
            return told_failure(st);
    }
    return USM_OK;
}

/* Under the lock. */
static usm_status find_all(usm__command *c, size_t ndeps, usm_event *const *deps)
{
    usm_status st = USM_OK;

    for (size_t i = 0; st == USM_OK && i < c->nuses; i++)
        st = usm__track_start(c->uses[i].root);
    if (st == USM_OK)
        st = take_failures(c);
    for (size_t i = 0; st == USM_OK && i < c->nuses; i++)
        if (!c->uses[i].is_empty)
            st = find_order(c, &c->uses[i]);
    return st == USM_OK ? find_deferred(c, ndeps, deps) : st;
}

/* Nobody but those it waits for knows it any more; under the lock. */
static void give_up(usm__command *c)
{
    c->is_given_up = true;
    usm__waiter_tell(&c->waiter);
}

/* *may_go: nothing is in its way but memory, perhaps. */
static usm_status enter(usm__command *c, size_t ndeps, usm_event *const *deps, bool *may_go)
{
    usm_status st;

    usm__track_lock();
    c->waiter.waits = 1; /* for whoever submits it */
    st              = find_all(c, ndeps, deps);
    if (st == USM_OK) {
        for (size_t i = 0; i < c->nuses; i++)
            if (!c->uses[i].is_empty)
                usm__order_add(&usm__track_of(c->uses[i].root)->order, &c->uses[i].entry);
        usm_list_append(&commands.unlaunched, &c->link);
        *may_go = c->waiter.waits == 1 && !usm__line_is_busy();
    } else {
        give_up(c);
    }
    usm__track_unlock();
    usm__commands_watch_wanted();
    return st;
}

/* ---- watched ------------------------------------------------------------------------ */

#define UNWATCHED_MAX 4 /* commands of a buffer                                              */

/* Of a command over the program's memory alone nobody waits for what it gives back, and whoever
 * waits for its end waits for its event: a hand-over to another thread would only take time.  Lock
 * held. */
static bool needs_watch(const usm__command *c)
{
    if (c->is_deferred || c->on_done || !c->is_in_place || (!c->wants_event && c->ctx->on_error))
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

/* Takes a reference over. */
static void watch(usm__command *c)
{
    if (usm__completion_arm(&c->c, c->ctx->be, c->event->native, completed) == USM_OK)
        return;
    usm__command_await(c); /* no thread to be had */
    usm__command_unref(c);
}

void usm__command_want_watch(usm__command *c)
{
    if (!c->event || c->is_watched || c->is_done)
        return;
    c->is_watched = true;
    commands.under_way++;
    usm_ref_take(&c->refs);
    usm_list_append(&commands.to_watch, &c->to_watch);
}

void usm__commands_watch_wanted(void)
{
    usm_list *it;

    do {
        usm__track_lock();
        it = usm_list_pop(&commands.to_watch);
        usm__track_unlock();
        if (it)
            watch(usm_container_of(it, usm__command, to_watch));
    } while (it);
}

/* ---- launched, ended ------------------------------------------------------------------- */

/* Whether its completion is to be watched. */
static bool launched(usm__command *c, usm_event *ev)
{
    bool is_watched;

    usm__track_lock();
    c->event      = ev;
    c->is_watched = needs_watch(c);
    usm_list_remove(&c->link);
    commands.under_way += c->is_watched;
    is_watched = c->is_watched;
    usm__edges_fire(&c->on_launch, ev, USM_OK);
    usm__track_wake();
    usm__track_unlock();
    return is_watched;
}

static void leave_order(usm__use *u, usm_status status)
{
    usm__track *t = usm__track_of(u->root);

    if (u->is_empty)
        return;
    usm__order_remove(&t->order, &u->entry, status == USM_OK);
    if (status < 0 && (u->entry.mode & USM_WRITE))
        usm__failures_add(&t->failures, u->entry.begin, u->entry.end, status);
    usm__track_stop(u->root);
}

/* Under the lock. */
static void leave(usm__command *c, usm_status status)
{
    for (size_t i = 0; i < c->nuses; i++)
        leave_order(&c->uses[i], status);
    if (!c->event)
        usm_list_remove(&c->link);
    else if (c->is_watched)
        commands.under_way--;
    commands.ended += c->event != NULL;
    c->is_done = true;
    usm__edges_fire(&c->on_launch, NULL, status);
    usm__edges_fire(&c->on_done, NULL, status);
    usm__track_wake();
}

/* Whoever waits for the command, and nobody else, hears how it ended. */
static void tell_user(usm__command *c, usm_status status)
{
    char story[256];

    if (c->end)
        (void)usm__event_end(c->end, status);
    else if (status < 0 && !c->wants_event) {
        (void)snprintf(story, sizeof story,
                       "a command over buffers failed after it was submitted%s%s",
                       c->event ? "" : ": ", c->event ? "" : usm_last_error());
        usm__context_error(c->ctx, status, story);
    }
    if (c->gate)
        (void)usm__event_end(c->gate, c->end ? USM_OK : status);
}

void usm__command_finish(usm__command *c, usm_status status)
{
    bool was_launched;

    if (atomic_exchange(&c->is_finishing, true))
        return;
    if (status > 0)
        status = USM_OK;
    usm__command_unplace(c);
    if (c->own)
        usm__context_return_queue(c->own);
    usm__track_lock();
    was_launched = c->event != NULL;
    leave(c, status);
    usm__track_unlock();
    tell_user(c, status);
    if (was_launched)
        usm__command_unref(c); /* the order's; the caller has one of its own */
}

/* Submitted in vain: as if it had never been. */
static void withdraw(usm__command *c)
{
    usm__track_lock();
    for (size_t i = 0; i < c->nuses; i++)
        if (!c->uses[i].is_empty)
            usm__order_remove(&usm__track_of(c->uses[i].root)->order, &c->uses[i].entry, false);
    usm_list_remove(&c->link);
    c->is_done = true;
    usm__edges_fire(&c->on_launch, NULL, USM_OK);
    usm__edges_fire(&c->on_done, NULL, USM_OK);
    for (size_t i = 0; i < c->nuses; i++)
        usm__track_stop(c->uses[i].root);
    usm__track_wake();
    give_up(c);
    usm__track_unlock();
}

/* ---- into the queue ---------------------------------------------------------------------- */

usm_status usm__command_launch(usm__command *c, usm_queue *q, const usm__event_list *after,
                               size_t ndeps, usm_event *const *deps)
{
    usm_event  *first[DEPS_INLINE];
    size_t      n    = c->ndeps + after->n + ndeps;
    usm_event **list = n > DEPS_INLINE ? usm__heap_alloc(n * sizeof(usm_event *)) : first;
    usm_event  *ev   = NULL;
    bool        is_watched;
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
    usm_ref_take(&c->refs); /* the completion's */
    is_watched = launched(c, ev);
    if (is_watched)
        watch(c);
    else
        usm__command_unref(c);
    return USM_OK;
}

static usm_status try_now(usm__command *c, usm_queue *q, size_t ndeps, usm_event *const *deps,
                          usm_event **ev)
{
    usm__event_list after = USM__EVENT_LIST_INIT;
    usm_status      st    = usm__command_place(c, q, false, &after);

    if (st == USM_OK) {
        st = usm__command_launch(c, q, &after, ndeps, deps);
        if (st != USM_OK)
            usm__command_unplace(c);
        else if (ev && usm_event_retain(c->event) == USM_OK)
            *ev = c->event;
    }
    usm__event_list_fini(&after);
    return st;
}

static usm_status submit(usm__command *c, usm_queue *q, size_t ndeps, usm_event *const *deps,
                         usm_event **ev)
{
    bool       may_go = false;
    usm_status st     = enter(c, ndeps, deps, &may_go);

    if (st != USM_OK)
        return st;
    st = may_go ? try_now(c, q, ndeps, deps, ev) : USM_E_AGAIN;
    if (st == USM_OK)
        usm__command_unref(c);
    else if (st == USM_E_AGAIN)
        st = usm__command_defer(c, q, ndeps, deps, ev);
    if (st != USM_OK)
        withdraw(c);
    return st;
}

usm_status usm__command_submit(usm_queue *q, const usm__command_desc *d, size_t ndeps,
                               usm_event *const *deps, usm_event **ev)
{
    usm__command *c;
    usm_status    st = usm__queue_check(q);

    for (size_t i = 0; st == USM_OK && i < d->n; i++)
        st = check_accessor(&d->accessors[i]);
    if (st == USM_OK && ndeps && !deps)
        st = usm__fail(USM_E_INVALID, "%zu dependencies, but the array is NULL", ndeps);
    for (size_t i = 0; st == USM_OK && i < ndeps; i++)
        st = usm__event_check(deps[i]);
    if (st == USM_OK)
        st = usm__executor_reserve();
    if (st != USM_OK)
        return st;
    c = new_command(q, d, ev != NULL);
    return c ? submit(c, q, ndeps, deps, ev) : USM_E_NO_MEMORY;
}

/* ---- waiting ---------------------------------------------------------------------------- */

void usm__command_await(usm__command *c)
{
    usm_event *ev = NULL;

    usm__track_lock();
    while (!c->event && !c->is_done)
        usm__track_sleep();
    if (!c->is_done && usm_event_retain(c->event) == USM_OK)
        ev = c->event;
    usm__track_unlock();
    if (ev) {
        usm__command_finish(c, usm_event_wait(ev));
        usm_event_release(ev);
    }
    usm__track_lock();
    while (!c->is_done)
        usm__track_sleep();
    usm__track_unlock();
}

bool usm__command_has_ended(usm__command *c)
{
    bool is_launched, is_done;

    usm__track_lock();
    is_done     = c->is_done;
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
    n = commands.ended;
    usm__track_unlock();
    return n;
}

bool usm__commands_await_end(uint64_t ended)
{
    bool has_ended;

    usm__track_lock();
    while (commands.ended == ended && commands.under_way > 0)
        usm__track_sleep();
    has_ended = commands.ended != ended;
    usm__track_unlock();
    return has_ended;
}

void usm__commands_fork(usm_fork_phase phase)
{
    if (phase == USM_FORK_CHILD) {
        usm_list_init(&commands.unlaunched);
        usm_list_init(&commands.to_watch);
        commands.under_way = 0;
    }
}
