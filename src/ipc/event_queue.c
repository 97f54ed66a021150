/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events across processes in queues: usm_ipc_event_record() and usm_ipc_event_wait().
 *
 * A record is a marker in the queue, whose completion (command/event.h) is counted in the slot.
 *
 * A wait is a barrier that depends on a user event, the gate.  While any queue waits for a slot,
 * one job of the executor sleeps at its bell, checks all its waits when it rings, and signals the
 * gates of those that are over.  So there is no polling, and an event takes one thread however many
 * queues wait for it. */
#include "base/os.h"
#include "command/command.h"
#include "command/executor.h"
#include "ipc/event.h"

/* ---- records -------------------------------------------------------------------------------- */

typedef struct command {
    usm__completion             c;
    usm__ipc_event_slot        *slot; /* counted                               */
    usm_context                *ctx;  /* counted by refs: keeps c.native valid */
    usm__ipc_event_slot_record *record;
} command;

static void command_ended(usm__completion *c)
{
    command             *cmd  = usm_container_of(c, command, c);
    usm__ipc_event_slot *slot = cmd->slot;
    usm_context         *ctx  = cmd->ctx;

    usm__be_event_release(c->be, c->native);
    usm__ipc_event_slot_complete(slot, cmd->record, c->status);
    usm__heap_free(cmd);
    usm__ipc_event_slot_unref(slot);
    usm__context_unref(ctx);
}

/* A marker behind `deps`, or behind all commands of the queue so far. */
static usm_status queue_marker(usm_queue *q, size_t ndeps, usm_event *const *deps, void **native)
{
    usm__submit s;
    usm_status  st = usm__submit_begin(&s, q, ndeps, deps, NULL);

    if (st != USM_OK)
        return st;
    return usm__submit_end(&s, usm__be_marker(q->be, q->native, s.deps.n, s.deps.native, native));
}

static command *new_command(usm_ipc_event *ev, usm_queue *q)
{
    command                    *cmd = usm__heap_alloc(sizeof *cmd);
    usm__ipc_event_slot_record *r   = usm__heap_alloc(sizeof *r);

    if (!cmd || !r) {
        usm__heap_free(cmd);
        usm__heap_free(r);
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory to record an event");
        return NULL;
    }
    cmd->slot   = ev->slot;
    cmd->ctx    = q->ctx;
    cmd->record = r;
    return cmd;
}

usm_status usm_ipc_event_record(usm_ipc_event *ev, usm_queue *q, size_t ndeps,
                                usm_event *const *deps)
{
    command   *cmd    = NULL;
    void      *native = NULL;
    usm_status st     = usm__ipc_event_check(ev);

    if (st == USM_OK)
        st = usm__queue_check(q);
    if (st == USM_OK)
        st = usm__ipc_event_slot_claim(ev->slot);
    if (st == USM_OK)
        st = usm__executor_reserve();
    if (st != USM_OK)
        return st;
    cmd = new_command(ev, q);
    if (!cmd)
        return USM_E_NO_MEMORY;
    st = queue_marker(q, ndeps, deps, &native);
    if (st != USM_OK) {
        usm__heap_free(cmd->record);
        usm__heap_free(cmd);
        return st;
    }
    /* From here on nothing fails: a record that is counted as made completes. */
    usm__ipc_event_slot_ref(cmd->slot);
    usm__context_ref(cmd->ctx);
    usm__ipc_event_slot_made(cmd->slot, cmd->record);
    if (usm__completion_arm(&cmd->c, q->be, native, command_ended) != USM_OK) {
        cmd->c.be     = q->be; /* no thread is available: wait here */
        cmd->c.native = native;
        cmd->c.status = usm__be_event_wait(q->be, native);
        command_ended(&cmd->c);
    }
    return USM_OK;
}

/* ---- waits ----------------------------------------------------------------------------------- */

typedef struct deferral {
    usm_list     link;
    usm_event   *event; /* one reference                                                     */
    usm__awaited awaited;
} deferral;

typedef struct waiter {
    usm__executor_job job;
    usm__ipc_event_slot
            *slot; /* counted                                                          */
    usm_list gates;
} waiter;

static void open_gate(deferral *g, usm_status st)
{
    (void)usm__event_end(g->event, st);
    usm_event_release(g->event);
    usm__heap_free(g);
}

/* Takes the waits that were added since; false, for good, if there is nothing to wait for. */
static bool take_gates(waiter *w)
{
    usm__ipc_event_slot *slot = w->slot;
    usm_list            *it;
    bool                 is_any;

    usm__mutex_lock(&slot->lock);
    while ((it = usm_list_pop(&slot->waits)) != NULL)
        usm_list_append(&w->gates, it);
    is_any           = !usm_list_is_empty(&w->gates);
    slot->has_waiter = is_any;
    usm__mutex_unlock(&slot->lock);
    return is_any;
}

/* Whether any wait was over. */
static bool open_gates(waiter *w)
{
    bool opened = false;

    USM_LIST_FOREACH_SAFE (it, next, &w->gates) {
        deferral        *g  = usm_container_of(it, deferral, link);
        const usm_status st = usm__ipc_event_slot_judge(w->slot, &g->awaited);

        if (st == USM_E_NOT_READY)
            continue;
        usm_list_remove(it);
        open_gate(g, st);
        opened = true;
    }
    return opened;
}

static void waiter_run(usm__executor_job *job)
{
    waiter              *w    = usm_container_of(job, waiter, job);
    usm__ipc_event_slot *slot = w->slot;
    usm__bell           *bell = &slot->shared->bell;

    usm__bell_enter(bell);
    for (;;) {
        const uint32_t word = usm__bell_word(bell);

        if (!take_gates(w))
            break;
        if (!open_gates(w))
            (void)usm__bell_wait(bell, word, USM__OS_NO_DEADLINE);
    }
    usm__bell_leave(bell);
    usm__heap_free(w);
    usm__ipc_event_slot_unref(slot);
    usm__executor_unhold();
}

/* pre: a thread of the executor is reserved.  `spare` is used if no job waits there yet. */
static void add_gate(usm__ipc_event_slot *slot, deferral *g, waiter *spare)
{
    bool is_first;

    usm__mutex_lock(&slot->lock);
    usm_list_append(&slot->waits, &g->link);
    is_first         = !slot->has_waiter;
    slot->has_waiter = true;
    usm__mutex_unlock(&slot->lock);
    if (!is_first) {
        usm__executor_unhold();
        usm__heap_free(spare);
        usm__bell_ring(&slot->shared->bell); /* the waiting job looks at the new wait, too */
        return;
    }
    spare->slot    = slot;
    spare->job.run = waiter_run;
    usm_list_init(&spare->gates);
    usm_list_init(&spare->job.link);
    usm__ipc_event_slot_ref(slot);
    usm__executor_post(&spare->job);
}

/* Queues the barrier, in the caller's name only if nobody gets the gate, from which to learn of a
 * failure. */
static usm_status queue_gate(usm_queue *q, usm_event *event, bool is_known)
{
    usm_event *barrier = NULL;
    usm_status st      = usm_queue_barrier(q, 1, &event, is_known ? &barrier : NULL);

    usm_event_release(barrier);
    return st;
}

static usm_status wait_in_queue(usm_ipc_event *ev, const usm__awaited *awaited, usm_queue *q,
                                usm_event **out)
{
    deferral  *g  = usm__heap_alloc(sizeof *g);
    waiter    *w  = usm__heap_alloc(sizeof *w);
    usm_status st = USM_OK;

    if (!g || !w) {
        st = usm__fail(USM_E_NO_MEMORY, "no host memory for a queue to wait for an event");
        goto err_memory;
    }
    g->awaited = *awaited;
    st         = usm__executor_hold(); /* the records it waits for are completed by other jobs */
    if (st != USM_OK)
        goto err_memory;
    st = usm_event_create(q->ctx, &g->event);
    if (st != USM_OK)
        goto err_held;
    g->event->is_task = true; /* the caller must not signal it */
    st                = queue_gate(q, g->event, out != NULL);
    if (st != USM_OK)
        goto err_event;
    if (out) {
        usm_ref_take(&g->event->refs);
        *out = g->event;
    }
    add_gate(ev->slot, g, w);
    return USM_OK;

err_event:
    usm_event_release(g->event);
err_held:
    usm__executor_unhold();
err_memory:
    usm__heap_free(g);
    usm__heap_free(w);
    return st;
}

static usm_status check_wait(usm_ipc_event *ev, usm_queue *q)
{
    usm_status st = usm__ipc_event_check(ev);

    return st == USM_OK ? usm__queue_check(q) : st;
}

usm_status usm_ipc_event_wait(usm_ipc_event *ev, usm_queue *q, usm_event **out)
{
    usm__awaited awaited;
    usm_status   st = check_wait(ev, q);

    if (st != USM_OK)
        return st;
    usm__ipc_event_slot_awaited(ev->slot, &awaited);
    return wait_in_queue(ev, &awaited, q, out);
}

usm_status usm_ipc_event_wait_count(usm_ipc_event *ev, uint64_t complete, usm_queue *q,
                                    usm_event **out)
{
    usm__awaited awaited = {.count = complete};
    usm_status   st      = check_wait(ev, q);

    return st == USM_OK ? wait_in_queue(ev, &awaited, q, out) : st;
}
