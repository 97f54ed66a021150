/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands that cannot go at once (buffer/command.h).
 *
 *     user's queue:  ... earlier | start (deps) | held until the gate opens | later ...
 *     command:       waits for those before it  ->  line  ->  memory  ->  own queue  ->  ended
 *
 * A command waits, without a thread, until every command before it has its memory and no access of
 * the host is in its way.  Then it joins one line, whose head gets its bytes on a thread of the
 * executor: one at a time, so that what they hold and want cannot cross.  It is launched on a queue
 * of the core's own, behind "start"; when it ends, the user's event does, and the gate opens.
 *
 * Called by command.c. */
#include "buffer/command.h"

#include "base/os.h"

static void run_line(usm__job *job);

/* Guarded by the lock of track.c. */
static struct {
    usm_list commands;
    bool     is_running; /* a thread is at it, or the job is posted                             */
    usm__job job;
} line = {{&line.commands, &line.commands}, false, {{&line.job.link, &line.job.link}, run_line}};

bool usm__line_is_busy(void)
{
    return line.is_running;
}

static usm_status launch_from_line(usm__command *c)
{
    usm__event_list after = USM__EVENT_LIST_INIT;
    usm_status      st    = USM_OK;

    if (c->preceded != USM_OK)
        return usm__fail(USM_E_DEPENDENCY, "a command that it depends on failed");
    c->own = usm__context_borrow_queue(c->ctx, c->index);
    if (!c->own)
        return usm_last_status();
    st = usm__command_place_waiting(c, c->own, &after);
    if (st == USM_OK)
        st = usm__command_launch(c, c->own, &after, 1, &c->start);
    usm__event_list_fini(&after);
    return st;
}

static void run_line(usm__job *job)
{
    usm__command *c;
    usm_list     *it;
    usm_status    st;

    (void)job;
    for (;;) {
        usm__track_lock();
        it              = usm_list_pop(&line.commands);
        line.is_running = it != NULL;
        usm__track_unlock();
        if (!it)
            return;
        c  = usm_container_of(it, usm__command, in_line);
        st = launch_from_line(c);
        if (st == USM_OK)
            usm__command_watch(c);
        else
            usm__command_finish(c, st);
        usm__command_unref(c);
    }
}

/* Nothing is before it any more. */
void usm__command_ready(usm__waiter *w)
{
    usm__command *c      = usm_container_of(w, usm__command, waiter);
    bool          starts = false;

    if (c->is_given_up) {
        usm__command_unref(c);
        return;
    }
    usm__track_lock();
    usm_list_append(&line.commands, &c->in_line);
    starts          = !line.is_running;
    line.is_running = true;
    usm__track_unlock();
    if (starts)
        usm__executor_post(&line.job);
}

/* The next ones in line find their blocks in memory, or on the way. */
static void bring_ahead(const usm__command *c)
{
    for (size_t i = 0; c->is_in_place && i < c->nuses; i++) {
        const usm__use *u = &c->uses[i];

        if (!u->is_empty && !(u->entry.mode & USM_NO_INIT))
            (void)usm__space_advise(u->root->space, u->entry.begin, u->entry.end - u->entry.begin,
                                    USM_BUFFER_WILL_NEED);
    }
}

/* The events of a deferred command: the user's, the gate. */
static usm_status make_events(usm__command *c)
{
    usm_status st = usm_event_create(c->ctx, &c->gate);

    if (st == USM_OK && c->wants_event)
        st = usm_event_create(c->ctx, &c->end);
    if (st == USM_OK)
        c->gate->is_task = true;
    if (c->end)
        c->end->is_task = true;
    return st;
}

static usm_status hold(usm__command *c, usm_queue *q, size_t ndeps, usm_event *const *deps)
{
    usm_event *start  = usm__event_new(c->ctx);
    void      *native = NULL;
    usm_status st;

    if (!start)
        return USM_E_NO_MEMORY;
    st = usm__queue_hold(q, c->gate->native, ndeps, deps, &native);
    if (st != USM_OK) {
        usm__event_discard(start);
        return st;
    }
    usm__event_publish(start, native, false);
    c->start = start;
    return USM_OK;
}

static usm_status keep(usm__command *c)
{
    const void *kept = c->ops->keep(c->work);

    if (!kept)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to keep a command");
    c->work    = kept;
    c->is_kept = true;
    return USM_OK;
}

usm_status usm__command_defer(usm__command *c, usm_queue *q, size_t ndeps, usm_event *const *deps,
                              usm_event **ev)
{
    usm_status st = keep(c);

    if (st == USM_OK)
        st = make_events(c);
    if (st != USM_OK)
        return st;
    usm__track_lock();
    c->is_deferred = true;
    usm__track_unlock();
    st = hold(c, q, ndeps, deps);
    if (st != USM_OK)
        return st;
    if (ev) {
        usm_ref_take(&c->end->refs);
        *ev = c->end;
    }
    usm__track_lock();
    usm__command_arrived(c);
    usm__track_unlock();
    return USM_OK;
}

void usm__command_go(usm__command *c)
{
    bring_ahead(c);
    usm__track_lock();
    usm__waiter_tell(&c->waiter);
    usm__track_unlock();
}

void usm__line_fork(usm_fork_phase phase)
{
    if (phase == USM_FORK_CHILD) {
        usm_list_init(&line.commands);
        usm_list_init(&line.job.link);
        line.is_running = false;
    }
}
