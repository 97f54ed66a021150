/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Host tasks over buffers: a command (command.c) that runs a function of the program on the host.
 *
 * A task needs its bytes in host memory, whatever the queue's device.  The thread that runs the
 * function also ends the command, so that no other thread has to be notified.  It may be done
 * before the submitter is: the second of the two ends the command.
 *
 * Tasks without an event ("posted").  If the caller wants no event of a task, its queue is in order
 * and has a backend that runs tasks, and nothing is before it but tasks of the same queue, then the
 * queue alone orders it.  Such a task needs no event, no dependency and no second look at the
 * orders, and tasks that follow each other reach the worker in one go (backends/host/task.c).
 * Others that must wait for it are notified when it ends.  Since that takes the slow way (defer.c),
 * the buffer then has no such tasks any more.  For other commands the dependencies pass a failure
 * on to later ones; a task of an in-order queue that fails marks the later ones before they run.
 *
 * Called by work.c and command.c. */
#include "buffer/command.h"
#include "buffer/grant.h"

/* Under the lock: drops the tasks behind c in its queue that use the same bytes. */
static void drop_behind(const usm__command *c, const usm__use *u)
{
    usm__track_order *o = &usm__track_of(u->root)->order;

    for (usm__track_order_entry *e = usm__track_order_next(o, &u->entry, true, NULL); e;
         e                         = usm__track_order_next(o, &u->entry, true, e)) {
        usm__command *behind = e->is_host ? NULL : usm__use_of(e)->command;

        if (behind && behind != c && behind->is_native && behind->lane == c->lane)
            behind->is_dropped = true;
    }
}

/* A task of an in-order queue failed or was dropped: called before later ones in it run. */
static void failed(usm__command *c)
{
    if (!c->is_native || c->lane == 0)
        return;
    usm__track_lock();
    c->has_failed = true;
    for (size_t i = 0; i < c->nuses; i++)
        if (!c->uses[i].is_empty)
            drop_behind(c, &c->uses[i]);
    usm__track_unlock();
}

static usm_status run(usm__command *c)
{
    usm_status status = c->is_dropped ? USM_E_DEPENDENCY : c->task(c->user, c->ptrs);

    if (status < 0)
        failed(c);
    return status;
}

/* The thread that has run it knows its end first: no other is notified. */
static usm_status run_task(void *command)
{
    usm__command *c      = command;
    usm_status    status = run(c);

    c->outcome = status;
    usm__command_meet(c);
    return status;
}

static void drop_task(void *command)
{
    usm__command *c = command;

    failed(c);
    c->outcome = USM_E_DEPENDENCY;
    usm__command_meet(c);
}

static usm_status task_submit(const void *work, void *const *ptrs, usm_queue *q, size_t ndeps,
                              usm_event *const *deps, usm_event **ev)
{
    usm__command        *c    = (usm__command *)(uintptr_t)work;
    const usm__task_body body = {run_task, drop_task, c};
    usm_status           st;

    (void)ptrs; /* c's own */
    usm_ref_take(&c->refs);
    st = usm__task_submit(q, &body, ndeps, deps, ev);
    if (st != USM_OK)
        usm__command_unref(c);
    return st;
}

/* The command itself is the work. */
static void *task_keep(const void *work)
{
    return (void *)(uintptr_t)work;
}

static void task_drop(void *work)
{
    (void)work;
}

const usm__work_ops usm__command_task_ops = {task_submit, task_keep, task_drop, NULL};

/* ---- tasks without an event -------------------------------------------------------------- */

/* `before` is of the same in-order queue, so it already has its place there (enter.c), in which a
 * deferred command has its gate. */
bool usm__buffer_task_orders(const usm__command *before, const usm__command *c)
{
    return c->is_native && before->is_native && c->lane != 0 && before->lane == c->lane &&
           !before->deferral && !before->has_failed;
}

static bool may_ride_over(const usm__command *c, const usm__use *u)
{
    usm__track *t = usm__track_of(u->root);

    if (t->is_mixed || t->failures.n > 0)
        return false;
    for (usm__track_order_entry *e = usm__track_order_next(&t->order, &u->entry, false, NULL); e;
         e                         = usm__track_order_next(&t->order, &u->entry, false, e))
        if (e->is_host || !usm__buffer_task_orders(usm__use_of(e)->command, c))
            return false;
    return true;
}

/* False: the short way is not possible, and c is in no order. */
static bool enter(usm__command *c)
{
    bool may;

    usm__track_lock();
    may = true;
    for (size_t i = 0; may && i < c->nuses; i++)
        may = usm__track_start(c->uses[i].root) == USM_OK && may_ride_over(c, &c->uses[i]);
    may = may && usm__grant_at_once();
    if (may) {
        usm__command_become(c, USM__COMMAND_POSTING);
        usm__command_join_orders(c);
        usm__command_set_under_way(true);
    }
    usm__track_unlock();
    return may;
}

static void withdraw(usm__command *c)
{
    usm__track_lock();
    usm__command_leave_orders(c);
    usm__command_become(c, USM__COMMAND_NEW);
    usm__command_set_under_way(false);
    usm__track_unlock();
    usm__grant_placed();
}

/* The user is notified of a failure here; the queue is not. */
static usm_status run_posted(void *command)
{
    usm__command *c = command;

    usm__command_finish(c, run(c));
    usm__command_unref(c);
    return USM_OK;
}

static usm_status put_into_queue(usm__command *c, usm_queue *q)
{
    const usm__task_body body = {run_posted, NULL, c};
    usm_status           st;

    usm_ref_take(&c->refs); /* for the thread that runs it */
    st = usm__task_post(q, &body);
    if (st == USM_OK) {
        usm__command_posted(c);
        usm__grant_placed();
    } else {
        usm__command_unref(c);
    }
    return st;
}

usm_status usm__command_post(usm__command *c, usm_queue *q)
{
    usm__locations_events after = USM__EVENT_LIST_INIT; /* stays empty: in place */
    usm_status            st;

    if (!enter(c))
        return USM_E_AGAIN;
    st = usm__command_place(c, q, false, &after);
    if (st == USM_OK) {
        st = put_into_queue(c, q);
        if (st == USM_OK)
            return USM_OK;
        usm__command_unplace(c);
    }
    withdraw(c);
    if (st != USM_E_AGAIN)
        usm__command_unref(c);
    return st;
}
