/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands enter the orders of their buffers (buffer/command.h): what each command comes after, and
 * why nothing ever waits in a circle.
 *
 * A command enters the orders of all its buffers in one step.  A moment later it gets its place in
 * its queue, be it launched there or deferred (defer.c).  Between the two it is "coming".  It waits
 * for what is before it in the orders, and for what is before it in the queue.  If a second command
 * were before it in one of them and behind it in the other, both would wait forever.  So
 *
 *     1. no command and no access of the host enters while a command that it would wait for is
 *        coming: its thread sleeps until that command has its place;
 *     2. commands over buffers of one in-order queue come one at a time: the queue's lock
 *        `entering` is held from before a command enters until it has its place.
 *
 * There is no circle.  Let the time of a command be when it gets its place, and that of an access
 * of the host when it enters.  Then each waits only for earlier ones.  Those before it in an order
 * have their places, or have entered, when it enters (1).  Those before it in its queue, or before
 * a barrier there, have their places when it gets its own.  An event that it was given was returned
 * by an earlier call.  This also holds for commands without buffers, which are in the same queues
 * and wait for events of these, and for queues without an order, which need no lock.
 *
 * The second rule is needed for waits that no edge expresses: those who wait for reads of a queue
 * wait for the last of them only (order.c), and its tasks wait for no event (task.c).  In both
 * cases the order of entering must be that of the queue.  Which command has memory is grant.c's
 * subject.
 *
 * A thread that sleeps here is in no order yet and may hold its queue's lock.  A command that is
 * coming needs no such lock, and waits for nothing that enters later.  Called by command.c, task.c,
 * host.c. */
#include "base/os.h"
#include "buffer/command.h"
#include "buffer/grant.h"

#include <string.h>

/* ---- what a command comes after ---------------------------------------------------------- */

/* Reserves room for one more event that is still to come. */
static bool expect_dep(usm__command *c)
{
    usm_event **more;

    if (c->ndeps + c->nexpected == c->cap) {
        more = usm__heap_alloc(2 * c->cap * sizeof(usm_event *));
        if (!more)
            return false;
        memcpy(more, c->deps, c->ndeps * sizeof(usm_event *));
        if (c->deps != c->first_deps)
            usm__heap_free(c->deps);
        c->deps = more;
        c->cap *= 2;
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

static bool put_behind(usm__command *c, usm__track_order_entry *e)
{
    usm__command *before;

    if (e->is_host)
        return usm__edge_add(&usm_container_of(e, usm__access_entry, entry)->waiters, &c->waiter,
                             NULL);
    before = usm__use_of(e)->command;
    /* Bytes are copied between a device's memory and the host's only when no command works on
     * them. */
    if (c->is_in_place != before->is_in_place) {
        usm__command_want_watch(before);
        return usm__edge_add(&before->on_done, &c->waiter, NULL);
    }
    if (usm__buffer_task_orders(before, c) || (before->event && has_dep(c, before->event)))
        return true;
    if (!expect_dep(c))
        return false;
    if (usm__command_is_posted(before)) {
        usm__track_of(usm__use_of(e)->root)->is_mixed = true;
        return usm__edge_add(&before->on_done, &c->waiter, c);
    }
    if (!before->event)
        return usm__edge_add(&before->on_launch, &c->waiter, c);
    usm__command_preceded(c, before->event, USM_OK);
    return true;
}

static usm_status find_order(usm__command *c, usm__use *u)
{
    usm__track_order *o = &usm__track_of(u->root)->order;

    for (usm__track_order_entry *e = usm__track_order_next(o, &u->entry, false, NULL); e;
         e                         = usm__track_order_next(o, &u->entry, false, e))
        if (!put_behind(c, e))
            return usm__fail(USM_E_NO_MEMORY, "no host memory to order commands");
    return USM_OK;
}

static usm_status notified_failure(usm_status status)
{
    return usm__fail(USM_E_DEPENDENCY,
                     "a command that should have written these bytes failed (%s); write them again",
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
            return notified_failure(st);
    }
    return USM_OK;
}

/* Under the lock. */
static usm_status find_all(usm__command *c)
{
    usm_status st = USM_OK;

    for (size_t i = 0; st == USM_OK && i < c->nuses; i++)
        st = usm__track_start(c->uses[i].root);
    if (st == USM_OK)
        st = take_failures(c);
    for (size_t i = 0; st == USM_OK && i < c->nuses; i++)
        if (!c->uses[i].is_empty)
            st = find_order(c, &c->uses[i]);
    return st;
}

/* ---- commands without a place ------------------------------------------------------------ */

static void settled(void)
{
    usm__tracking.ncoming--;
}

void usm__posted_left(void)
{
    settled();
}

void usm__command_arrived(void)
{
    settled();
    usm__track_wake();
}

/* Without the lock, unless a thread sleeps: await() sets EXPECTED by a compare-and-swap, so one of
 * the two sees what the other did.  The task may be DONE already. */
void usm__command_posted(usm__command *c)
{
    uint32_t was = USM__COMMAND_POSTING;

    if (usm_cas_acq_rel(&c->state, &was, (uint32_t)USM__COMMAND_POSTED) ||
        was != USM__COMMAND_EXPECTED)
        return;
    usm__track_lock();
    if (usm__command_state_of(c) == USM__COMMAND_EXPECTED) {
        usm__command_become(c, USM__COMMAND_POSTED);
        usm__track_wake();
    }
    usm__track_unlock();
}

/* Sleeps if the command has no place in its queue yet. */
static bool await(usm__command *c)
{
    uint32_t was = USM__COMMAND_POSTING;

    if (!usm_cas_acq_rel(&c->state, &was, (uint32_t)USM__COMMAND_EXPECTED) &&
        was != USM__COMMAND_EXPECTED && was != USM__COMMAND_TAKING && was != USM__COMMAND_DEFERRING)
        return false;
    usm__track_sleep();
    return true;
}

bool usm__enter_later(usm__track_order *o, const usm__track_order_entry *e)
{
    if (usm__tracking.ncoming == 0)
        return false;
    for (usm__track_order_entry *x = usm__track_order_next(o, e, false, NULL); x;
         x                         = usm__track_order_next(o, e, false, x))
        if (!x->is_host && await(usm__use_of(x)->command))
            return true;
    return false;
}

static bool enter_later(usm__command *c)
{
    for (size_t i = 0; i < c->nuses; i++) {
        usm__use   *u = &c->uses[i];
        usm__track *t = usm__track_of(u->root);

        if (t && !u->is_empty && usm__enter_later(&t->order, &u->entry))
            return true;
    }
    return false;
}

/* ---- entering and leaving ---------------------------------------------------------------- */

void usm__command_join_orders(usm__command *c)
{
    for (size_t i = 0; i < c->nuses; i++)
        if (!c->uses[i].is_empty)
            usm__track_order_add(&usm__track_of(c->uses[i].root)->order, &c->uses[i].entry);
    usm__tracking.ncoming++;
}

void usm__command_leave_orders(usm__command *c)
{
    settled();
    for (size_t i = 0; i < c->nuses; i++)
        if (!c->uses[i].is_empty)
            usm__track_order_remove(&usm__track_of(c->uses[i].root)->order, &c->uses[i].entry,
                                    false);
    usm__edges_fire(&c->on_launch, NULL, USM_OK);
    usm__edges_fire(&c->on_done, NULL, USM_OK);
    for (size_t i = 0; i < c->nuses; i++)
        usm__track_stop(c->uses[i].root);
    usm__track_wake();
}

void usm__command_give_up(usm__command *c)
{
    usm__command_become(c, USM__COMMAND_WITHDRAWN);
    usm__waiter_notify(&c->waiter);
}

usm_status usm__command_enter(usm__command *c)
{
    usm_status st;

    usm__track_lock();
    while (enter_later(c))
        ;
    c->waiter.waits = 1; /* for the thread that submits it */
    st              = find_all(c);
    if (st == USM_OK) {
        usm__command_join_orders(c);
        usm__command_become(c, c->waiter.waits == 1 && usm__grant_at_once()
                                   ? USM__COMMAND_TAKING
                                   : USM__COMMAND_DEFERRING);
    } else {
        usm__command_give_up(c);
    }
    usm__track_unlock();
    return st;
}

void usm__entering_in_child(void)
{
    usm__tracking.ncoming = 0;
}
