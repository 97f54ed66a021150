/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* When a command over buffers gets its memory (buffer/grant.h), and why no command waits forever.
 *
 * The problem.  Commands need memory for the buffers they use, memory is limited, and commands wait
 * for each other: by the order of a buffer's accesses, of a queue, by events, barriers and tasks.
 * If command A held memory and waited for B, and B waited for memory, neither would ever run.
 *
 * The rule.  A command is granted its memory, all of it or none, only when
 *     - everything that it waits for has been granted its memory or needs none, and
 *     - nothing that it waits for, directly or not, is completed from outside: by the end of an
 *       open access of the host, or by an event that only the program signals (command/outside.h).
 *
 * How the rule is checked.  The library does not record which command waits for which: barriers,
 * events and tasks can pass a wait on.  It knows the order in which commands were queued.  A
 * command is queued at one moment: either at once, together with its memory, or deferred (defer.c).
 * Everything it waits for was queued earlier, or has been completed (enter.c).  The line below has
 * the commands without memory in the order in which they were queued.  One of them is granted its
 * memory if everything before it in the orders of its buffers has been granted, and
 *
 *     1. it is the first in the line, and nothing awaits an event from outside; or
 *     2. everything before it in its queue, and all its events, have ended.
 *
 * A new command takes its memory at once if the line is empty and nothing awaits an event from
 * outside.
 *
 * The check implies the rule.  Case 1: a command that it waits for and that has no memory would be
 * before it in the line.  Case 2: it can still wait only for commands in the orders of its buffers,
 * and those have been granted.  A command that takes memory at once: as case 1.  This requires that
 * the line and the queues agree, whatever other threads submit at the same moment:
 *
 *     - A command that is deferred joins the line and is queued under one lock, `placing`: a
 *       command that is queued behind it is behind it in the line.
 *     - A command that takes memory at once is `taking` until it is queued.  During that time no
 *       command is deferred, and no wait for an event from outside begins (command/outside.c): what
 * it
 *       found when it took memory still holds when it is queued.
 *
 * No deadlock.  A command that holds memory waits only for commands that hold theirs or need none,
 * and that were queued earlier.  The earliest of them waits for nothing, and ends.  The memory it
 * releases goes to the first command in the line that does not depend on the outside.  A command
 * that depends on the outside holds no memory, and by case 2 delays only commands that wait for it.
 * A thread that evicts data to get memory, be it a task that allocates, waits only for the
 * context's own queue, in which nothing waits for a command (locations_copy.c).
 *
 * Not covered: a task of the program that waits, inside, for a command submitted after it; and
 * commands that the owner of a native queue puts into it. */
#include "buffer/grant.h"

#include "base/fork.h"
#include "base/log.h"
#include "base/os.h"
#include "buffer/command.h"
#include "buffer/stall.h"
#include "command/outside.h"

#include <stdio.h>

static void run_line(usm__executor_job *job);

static struct {
    usm__mutex placing;
    /* guarded by the lock of track.c */
    usm_list commands;   /* deferred, without memory, in the order in which they were queued   */
    bool     is_running; /* a thread runs run_line(), or its job is posted                     */
    bool     granting;   /* it is getting a command its memory                                 */
    usm__executor_job job;
    /* Changed under that lock, read without it.  Commands that are neither launched nor failed: in
     * the line, or about to enter it. */
    _Atomic(size_t) deferred;
    /* Commands that take memory at once and have no place in their queue yet; the number of threads
     * that sleep until there are none. */
    _Atomic(size_t)   taking, awaiting;
    _Atomic(uint64_t) granted; /* commands of the line granted so far                         */
} line = {.placing  = USM__MUTEX_INIT(USM__RANK_PLACING, "held places"),
          .commands = {&line.commands, &line.commands},
          .job      = {{&line.job.link, &line.job.link}, run_line}};

/* ---- at once ------------------------------------------------------------------------------ */

bool usm__grant_at_once(void)
{
    if (usm_load_relaxed(&line.deferred) > 0)
        return false;
    (void)atomic_fetch_add(&line.taking, 1); /* before the check below: command/outside.c */
    if (!usm__outside_awaited())
        return true;
    (void)atomic_fetch_sub(&line.taking, 1);
    usm__track_wake();
    return false;
}

void usm__grant_placed(void)
{
    if (atomic_fetch_sub(&line.taking, 1) != 1 || atomic_load(&line.awaiting) == 0)
        return;
    usm__track_lock();
    usm__track_wake();
    usm__track_unlock();
}

/* Under the lock. */
static void await_placed(void)
{
    (void)atomic_fetch_add(&line.awaiting, 1);
    while (atomic_load(&line.taking) > 0)
        usm__track_sleep();
    (void)atomic_fetch_sub(&line.awaiting, 1);
}

void usm__grant_drain(void)
{
    if (atomic_load(&line.taking) == 0)
        return;
    usm__track_lock();
    await_placed();
    usm__track_unlock();
}

/* ---- the line ------------------------------------------------------------------------------ */

void usm__grant_hold_begin(void)
{
    usm__mutex_lock(&line.placing);
    usm__track_lock();
    (void)usm_add_relaxed(&line.deferred,
                          (size_t)1); /* from now on no command takes memory at once */
    await_placed();
    usm__track_unlock();
}

void usm__grant_hold_end(usm__command *c, bool is_held)
{
    usm__track_lock();
    if (is_held) {
        usm_list_append(&line.commands, &c->in_line);
        usm__command_become(c, USM__COMMAND_BLOCKED);
        usm__command_arrived();
    } else {
        (void)usm_sub_relaxed(&line.deferred, (size_t)1);
    }
    usm__track_unlock();
    usm__mutex_unlock(&line.placing);
    usm__stall_watch();
}

/* Under the lock: asks for another look at the line; true: the caller must start it. */
static bool wants_look(void)
{
    bool starts = !line.is_running;

    line.is_running = true;
    return starts;
}

void usm__grant_ready(usm__waiter *w)
{
    usm__command *c = usm_container_of(w, usm__command, waiter);
    bool          starts;

    if (usm__command_state_of(c) == USM__COMMAND_WITHDRAWN) {
        usm__command_unref(c);
        return;
    }
    usm__track_lock();
    usm__command_become(c, USM__COMMAND_READY);
    starts = wants_look();
    usm__track_unlock();
    if (starts)
        usm__executor_post(&line.job);
}

static void place_came(usm__completion *completion)
{
    usm__command *c = usm_container_of(completion, usm__command, came);
    bool          starts;

    usm__track_lock();
    starts = usm__command_state_of(c) == USM__COMMAND_ARMED; /* else it was granted before */
    if (starts) {
        usm__command_become(c, USM__COMMAND_REACHED);
        starts = wants_look();
    }
    usm__track_unlock();
    usm__command_unref(c);
    if (starts)
        usm__executor_post(&line.job);
}

/* ---- the next command ----------------------------------------------------------------------- */

/* The first command in the line that may be granted, or whose place in its queue must be waited
 * for.  Under the lock. */
static usm__command *next_in_line(bool *may_go)
{
    bool is_first = true;

    USM_LIST_FOREACH (it, &line.commands) {
        usm__command      *c = usm_container_of(it, usm__command, in_line);
        usm__command_state s = usm__command_state_of(c);

        *may_go = s == USM__COMMAND_REACHED ||
                  (s != USM__COMMAND_BLOCKED && is_first && !usm__outside_awaited());
        if (*may_go || s == USM__COMMAND_READY)
            return c;
        is_first = false;
    }
    return NULL;
}

static void ask(usm__command *c)
{
    usm_ref_take(&c->refs);
    (void)usm__completion_arm(&c->came, c->ctx->be, c->start->native, place_came); /* reserved */
}

static void grant(usm__command *c)
{
    usm_status st = usm__command_launch_deferred(c);

    usm__track_lock();
    (void)usm_sub_relaxed(&line.deferred, (size_t)1);
    line.granting = false;
    usm__track_unlock();
    (void)usm_add_relaxed(&line.granted, (uint64_t)1);
    if (st == USM_OK)
        usm__command_watch(c);
    else
        usm__command_finish(c, st);
    usm__command_unref(c);
}

static void run_line(usm__executor_job *job)
{
    usm__command *c;
    bool          may_go = false;

    (void)job;
    do {
        usm__track_lock();
        c               = next_in_line(&may_go);
        line.is_running = c != NULL;
        line.granting   = c && may_go;
        if (c && may_go)
            usm_list_remove(&c->in_line);
        if (c)
            usm__command_become(c, may_go ? USM__COMMAND_GRANTED : USM__COMMAND_ARMED);
        usm__track_unlock();
        if (c && may_go)
            grant(c);
        else if (c)
            ask(c);
    } while (c);
}

/* ---- state for other files ------------------------------------------------------------------- */

const usm_list *usm__grant_line(void)
{
    return &line.commands;
}

bool usm__grant_under_way(void)
{
    return line.granting;
}

bool usm__grant_is_idle(void)
{
    return usm_load_relaxed(&line.deferred) == 0;
}

uint64_t usm__grant_moves(void)
{
    return usm_load_relaxed(&line.granted) + usm__commands_ended();
}

/* ---- a thread that waits for itself --------------------------------------------------------- */

static bool is_own(const usm__access_entry *h)
{
    return h->slot ? usm__slot_is_own(h->slot) : h->opener && h->opener == usm__self.block;
}

const usm__access_entry *usm__grant_access_before(const usm__command *c, const usm__use *u,
                                                  bool (*is_meant)(const usm__access_entry *h))
{
    usm__track_order *o = &usm__track_of(u->root)->order;

    for (usm__track_order_entry *e = usm__track_order_next(o, &u->entry, true, NULL); e;
         e                         = usm__track_order_next(o, &u->entry, true, e)) {
        const usm__access_entry *h;

        if (!e->is_host)
            continue;
        h = usm_container_of(e, usm__access_entry, entry);
        for (const usm__edge *w = !is_meant || is_meant(h) ? h->waiters : NULL; w; w = w->next)
            if (w->who == &c->waiter)
                return h;
    }
    return NULL;
}

/* Only a warning: another thread may be going to end the access. */
void usm__grant_warn_of_own_access(usm_queue *q)
{
    const usm__access_entry *h = NULL;
    char                     title[USM__SPACE_TITLE];

    if (usm_load_relaxed(&line.deferred) == 0)
        return;
    usm__track_lock();
    USM_LIST_FOREACH (it, &line.commands) {
        const usm__command *c          = usm_container_of(it, usm__command, in_line);
        bool                is_blocked = usm__command_state_of(c) == USM__COMMAND_BLOCKED;

        for (size_t i = 0; !h && c->queue == q->serial && is_blocked && i < c->nuses; i++)
            if (!c->uses[i].is_empty)
                h = usm__grant_access_before(c, &c->uses[i], is_own);
    }
    if (h)
        (void)usm__space_title(h->root->space, title);
    usm__track_unlock();
    if (h)
        usm__warn("the calling thread waits for a queue in which a command waits for an access to "
                  "%s that this thread has open: end the access first",
                  title);
}

void usm__grant_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&line.placing, phase);
    if (phase != USM_FORK_CHILD)
        return;
    usm_list_init(&line.commands);
    usm_list_init(&line.job.link);
    line.is_running = line.granting = false;
    usm__stall_in_child();
    usm_store_relaxed(&line.deferred, (size_t)0);
    atomic_store(&line.taking, (size_t)0);
    atomic_store(&line.awaiting, (size_t)0);
}
