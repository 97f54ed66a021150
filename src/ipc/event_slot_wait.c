/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counting the records of an event slot, and waiting for them (event_slot.h).  Called by event.c
 * and event_queue.c. */
#include "base/os.h"
#include "ipc/event_slot.h"

/* ---- counting -------------------------------------------------------------------------- */

void usm__ipc_event_slot_made(usm__ipc_event_slot *slot, usm__ipc_event_slot_record *r)
{
    usm__mutex_lock(&slot->lock);
    r->number  = usm_load_relaxed(&slot->recorder->made) + 1;
    r->after   = 0;
    r->is_done = false;
    usm_list_append(&slot->records, &r->link);
    usm_store_release(&slot->recorder->made, r->number);
    usm__mutex_unlock(&slot->lock);
}

/* Lock held. */
static void note_failure(usm__recorder *own, uint64_t number, usm_status status)
{
    const uint64_t before = usm_load_relaxed(&own->failed_at);

    if (before != 0 && before < number)
        return;
    usm_store_relaxed(&own->failure, (int32_t)status);
    usm_store_release(&own->failed_at, number);
}

/* Lock held: takes the complete ones off the front. */
static void advance(usm__ipc_event_slot *slot, usm_list *ended)
{
    uint64_t low = usm_load_relaxed(&slot->recorder->low);

    while (!usm_list_is_empty(&slot->records)) {
        usm__ipc_event_slot_record *first =
            usm_container_of(slot->records.next, usm__ipc_event_slot_record, link);

        if (!first->is_done)
            break;
        low += 1 + first->after;
        usm_list_remove(&first->link);
        usm_list_append(ended, &first->link);
    }
    usm_store_release(&slot->recorder->low, low);
}

void usm__ipc_event_slot_complete(usm__ipc_event_slot *slot, usm__ipc_event_slot_record *r,
                                  usm_status status)
{
    usm_list  ended;
    usm_list *it;

    usm_list_init(&ended);
    usm__mutex_lock(&slot->lock);
    r->is_done = true;
    if (status < 0)
        note_failure(slot->recorder, r->number, status);
    usm_add_release(&slot->recorder->complete, (uint64_t)1);
    advance(slot, &ended);
    usm__mutex_unlock(&slot->lock);
    usm__bell_ring(&slot->shared->bell);
    while ((it = usm_list_pop(&ended)) != NULL)
        usm__heap_free(usm_container_of(it, usm__ipc_event_slot_record, link));
}

void usm__ipc_event_slot_signal(usm__ipc_event_slot *slot)
{
    usm__recorder *own;

    usm__mutex_lock(&slot->lock);
    own = slot->recorder;
    usm_add_release(&own->made, (uint64_t)1);
    usm_add_release(&own->complete, (uint64_t)1);
    if (usm_list_is_empty(&slot->records))
        usm_add_release(&own->low, (uint64_t)1);
    else
        usm_container_of(slot->records.prev, usm__ipc_event_slot_record, link)->after++;
    usm__mutex_unlock(&slot->lock);
    usm__bell_ring(&slot->shared->bell);
}

/* How many recorders to look at; limited, because another process may have written anything. */
static uint32_t recorders_of(const usm__ipc_event_slot *slot)
{
    const uint32_t n = usm_load_acquire(&slot->shared->nrecorders);

    return n < USM__IPC_EVENT_SLOT_RECORDERS ? n : USM__IPC_EVENT_SLOT_RECORDERS;
}

void usm__ipc_event_slot_count(const usm__ipc_event_slot *slot, uint64_t *made, uint64_t *complete)
{
    uint64_t m = 0, c = 0;

    /* Complete ones first: so never more than were made. */
    for (uint32_t i = 0; i < recorders_of(slot); i++)
        c += usm_load_acquire(&slot->shared->recorders[i].complete);
    for (uint32_t i = 0; i < recorders_of(slot); i++)
        m += usm_load_acquire(&slot->shared->recorders[i].made);
    *made     = m;
    *complete = c;
}

void usm__ipc_event_slot_awaited(const usm__ipc_event_slot *slot, usm__awaited *awaited)
{
    awaited->count = 0;
    awaited->n     = recorders_of(slot);
    for (uint32_t i = 0; i < awaited->n; i++)
        awaited->made[i] = usm_load_acquire(&slot->shared->recorders[i].made);
}

/* ---- the outcome of a wait ---------------------------------------------------------------- */

bool usm__ipc_event_slot_is_pending(const usm__ipc_event_slot *slot, const usm__awaited *awaited)
{
    uint64_t made, complete;

    if (awaited->count > 0) {
        usm__ipc_event_slot_count(slot, &made, &complete);
        return complete < awaited->count;
    }
    for (uint32_t i = 0; i < awaited->n; i++)
        if (usm_load_acquire(&slot->shared->recorders[i].low) < awaited->made[i])
            return true;
    return false;
}

static usm_status failure_of(const usm__ipc_event_slot *slot, const usm__awaited *awaited)
{
    const uint32_t n = awaited->count > 0 ? recorders_of(slot) : awaited->n;

    for (uint32_t i = 0; i < n; i++) {
        const usm__recorder *r  = &slot->shared->recorders[i];
        const uint64_t       at = usm_load_acquire(&r->failed_at);

        if (at != 0 && (awaited->count > 0 || at <= awaited->made[i]))
            return usm__fail(USM_E_DEPENDENCY, "a command that was recorded failed with %s",
                             usm_status_name((usm_status)usm_load_relaxed(&r->failure)));
    }
    return USM_OK;
}

static usm_status is_gone(usm__process_key key)
{
    return usm__fail(USM_E_OWNER_GONE, "process %u has ended, with records that will not complete",
                     (unsigned)(key & 0x3fffff));
}

/* Whether a process whose records are waited for has ended. */
static usm_status judge_recorders(const usm__ipc_event_slot *slot, const usm__awaited *awaited)
{
    const uint32_t n = awaited->count > 0 ? recorders_of(slot) : awaited->n;

    for (uint32_t i = 0; i < n; i++) {
        const usm__recorder *r = &slot->shared->recorders[i];
        const uint64_t wanted  = awaited->count > 0 ? usm_load_acquire(&r->made) : awaited->made[i];
        const uint64_t key     = usm_load_acquire(&r->key);
        bool           ended   = false;
        usm_status     st;

        if (usm_load_acquire(&r->low) >= wanted)
            continue;
        st = usm__ipc_event_slot_has_ended(key, &ended);
        if (st != USM_OK)
            return st;
        if (ended && usm_load_acquire(&r->low) < wanted) /* it may have completed them before */
            return is_gone(key);
    }
    return USM_E_NOT_READY;
}

/* Counts the processes that could still record. */
typedef struct census {
    unsigned living, ended; /* other processes                                            */
    bool     has_self;
} census;

static usm_status count_one(usm__process_key key, census *c)
{
    bool       has_ended = false;
    usm_status st        = key == 0 ? USM_OK : usm__ipc_event_slot_has_ended(key, &has_ended);

    if (key == 0 || st != USM_OK)
        return st;
    if (key == usm__process_self())
        c->has_self = true;
    else if (has_ended)
        c->ended++;
    else
        c->living++;
    return USM_OK;
}

static usm_status nobody_left(void)
{
    return usm__fail(USM_E_OWNER_GONE,
                     "no process is left that could make the records that are waited for");
}

/* Fails if no process is left that could make the awaited records: its creator and all recorders
 * have ended, and this process is none of them; or all other processes that have the event open
 * have ended, and there were some. */
static usm_status judge_others(const usm__ipc_event_slot *slot)
{
    census     c  = {.living = 0};
    usm_status st = count_one(usm__ipc_event_slot_owner(slot), &c);

    for (uint32_t i = 0; i < recorders_of(slot) && st == USM_OK; i++)
        st = count_one(usm_load_acquire(&slot->shared->recorders[i].key), &c);
    if (st == USM_OK && c.living == 0 && !c.has_self)
        return nobody_left();
    for (uint32_t i = 0; i < USM__IPC_EVENT_SLOT_OPENERS && st == USM_OK; i++)
        st = count_one(usm_load_acquire(&slot->shared->openers[i]), &c);
    if (st == USM_OK && c.living == 0 && c.ended > 0)
        return nobody_left();
    return st == USM_OK ? USM_E_NOT_READY : st;
}

usm_status usm__ipc_event_slot_judge(const usm__ipc_event_slot *slot, const usm__awaited *awaited)
{
    usm_status st;

    if (!usm__ipc_event_slot_is_pending(slot, awaited))
        return failure_of(slot, awaited);
    st = judge_recorders(slot, awaited);
    if (st == USM_E_NOT_READY && awaited->count > 0)
        st = judge_others(slot);
    /* A process that ended may have completed them just before. */
    if (st == USM_E_OWNER_GONE && !usm__ipc_event_slot_is_pending(slot, awaited))
        return failure_of(slot, awaited);
    return st;
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void spin(const usm__ipc_event_slot *slot, const usm__awaited *awaited, uint64_t deadline)
{
    usm__spin *how = &slot->page->spin;
    uint64_t   until;
    bool       has_come = false;

    if (!slot->page->may_spin || !usm__ipc_event_slot_is_pending(slot, awaited))
        return;
    until = usm__os_now_ns() + usm__spin_ns(how);
    until = until < deadline ? until : deadline;
    while (!has_come && usm__os_now_ns() < until)
        for (int i = 0; i < 8 && !has_come; i++) {
            usm_cpu_relax();
            has_come = !usm__ipc_event_slot_is_pending(slot, awaited);
        }
    usm__spin_result(how, has_come);
}

usm_status usm__ipc_event_slot_wait(usm__ipc_event_slot *slot, const usm__awaited *awaited,
                                    uint64_t deadline)
{
    usm__bell *bell    = &slot->shared->bell;
    bool       is_late = false;
    usm_status st;

    spin(slot, awaited, deadline);
    if (!usm__ipc_event_slot_is_pending(slot, awaited))
        return usm__ipc_event_slot_judge(slot, awaited);
    usm__bell_enter(bell);
    for (;;) {
        const uint32_t word = usm__bell_word(bell);

        st = usm__ipc_event_slot_judge(slot, awaited);
        if (st != USM_E_NOT_READY || is_late)
            break;
        is_late = usm__bell_wait(bell, word, deadline) != 0;
    }
    usm__bell_leave(bell);
    return st;
}
