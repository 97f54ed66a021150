/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands that cannot go at once (buffer/command.h).
 *
 *     user's queue:  ... earlier | start (deps) | kept back until the gate completes | later ...
 *     command:                  line  ->  memory  ->  own queue  ->  ended
 *
 * A command waits in the line, without a thread, until it is granted its memory (grant.c).  Then a
 * thread of the executor gets its bytes, for one command at a time, and launches it on a queue of
 * the core's own, behind "start".  When it ends, the user's event completes, and so does the
 * "gate": an event on which the user's queue keeps back what was submitted later.
 *
 * Called by command.c and grant.c. */
#include "buffer/command.h"
#include "buffer/grant.h"

#include "base/os.h"

usm_status usm__command_launch_deferred(usm__command *c)
{
    usm__locations_events after = USM__EVENT_LIST_INIT;
    usm_status            st    = USM_OK;

    if (c->preceded != USM_OK)
        return usm__fail(USM_E_DEPENDENCY, "a command that it depends on failed");
    c->own = usm__queue_borrow(c->ctx, c->index);
    if (!c->own)
        return usm_last_status();
    st = usm__command_place_waiting(c, c->own, &after);
    if (st == USM_OK)
        st = usm__command_launch(c, c->own, &after, 1, &c->start);
    usm__locations_events_fini(&after);
    return st;
}

/* Starts loading, so that the next commands in line find their blocks in memory, or on the way. */
static void bring_ahead(const usm__command *c)
{
    for (size_t i = 0; c->is_in_place && i < c->nuses; i++) {
        const usm__use *u = &c->uses[i];

        if (!u->is_empty && !(u->entry.mode & USM_NO_INIT))
            (void)usm__space_advise(u->root->space, u->entry.begin, u->entry.end - u->entry.begin,
                                    USM_BUFFER_WILL_NEED);
    }
}

/* Commands that wait for this event are later in the line. */
static void set_own(usm_event *ev)
{
    ev->is_task    = true;
    ev->is_outside = false;
}

/* The events of a deferred command: the user's, and the gate. */
static usm_status make_events(usm__command *c)
{
    usm_status st = usm_event_create(c->ctx, &c->deferral);

    if (st == USM_OK && c->wants_event)
        st = usm_event_create(c->ctx, &c->end);
    if (st == USM_OK)
        set_own(c->deferral);
    if (c->end)
        set_own(c->end);
    return st;
}

static usm_status hold(usm__command *c, usm_queue *q, size_t ndeps, usm_event *const *deps)
{
    usm_event *start  = usm__event_new(c->ctx);
    void      *native = NULL;
    usm_status st;

    if (!start)
        return USM_E_NO_MEMORY;
    st = usm__queue_hold(q, c->deferral->native, ndeps, deps, &native);
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
    c->kept = c->ops->keep(c->work);
    if (!c->kept)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to keep a command");
    c->work = c->kept;
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
    usm__grant_hold_begin();
    st = hold(c, q, ndeps, deps);
    usm__grant_hold_end(c, st == USM_OK);
    if (st != USM_OK)
        return st;
    if (ev) {
        usm_ref_take(&c->end->refs);
        *ev = c->end;
    }
    return USM_OK;
}

void usm__command_go(usm__command *c)
{
    bring_ahead(c);
    usm__track_lock();
    usm__waiter_notify(&c->waiter);
    usm__track_unlock();
}
