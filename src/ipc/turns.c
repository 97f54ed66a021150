/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counting the records of an event slot, and waiting for them (cell.h).  Called by event.c and
 * event_queue.c. */
#include "base/os.h"
#include "ipc/cell.h"
#include "ipc/spin.h"

/* ---- counting -------------------------------------------------------------------------- */

void usm__cell_made(usm__cell *cell, usm__cell_record *r)
{
    usm__mutex_lock(&cell->lock);
    r->number  = usm_load_relaxed(&cell->recorder->made) + 1;
    r->after   = 0;
    r->is_done = false;
    usm_list_append(&cell->records, &r->link);
    usm_store_release(&cell->recorder->made, r->number);
    usm__mutex_unlock(&cell->lock);
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
static void advance(usm__cell *cell, usm_list *ended)
{
    uint64_t low = usm_load_relaxed(&cell->recorder->low);

    while (!usm_list_is_empty(&cell->records)) {
        usm__cell_record *first = usm_container_of(cell->records.next, usm__cell_record, link);

        if (!first->is_done)
            break;
        low += 1 + first->after;
        usm_list_remove(&first->link);
        usm_list_append(ended, &first->link);
    }
    usm_store_release(&cell->recorder->low, low);
}

void usm__cell_complete(usm__cell *cell, usm__cell_record *r, usm_status status)
{
    usm_list  ended;
    usm_list *it;

    usm_list_init(&ended);
    usm__mutex_lock(&cell->lock);
    r->is_done = true;
    if (status < 0)
        note_failure(cell->recorder, r->number, status);
    usm_add_release(&cell->recorder->complete, (uint64_t)1);
    advance(cell, &ended);
    usm__mutex_unlock(&cell->lock);
    usm__bell_ring(&cell->shared->bell);
    while ((it = usm_list_pop(&ended)) != NULL)
        usm__heap_free(usm_container_of(it, usm__cell_record, link));
}

void usm__cell_signal(usm__cell *cell)
{
    usm__recorder *own;

    usm__mutex_lock(&cell->lock);
    own = cell->recorder;
    usm_add_release(&own->made, (uint64_t)1);
    usm_add_release(&own->complete, (uint64_t)1);
    if (usm_list_is_empty(&cell->records))
        usm_add_release(&own->low, (uint64_t)1);
    else
        usm_container_of(cell->records.prev, usm__cell_record, link)->after++;
    usm__mutex_unlock(&cell->lock);
    usm__bell_ring(&cell->shared->bell);
}

/* How many recorders to look at; limited, because another process may have written anything. */
static uint32_t recorders_of(const usm__cell *cell)
{
    const uint32_t n = usm_load_acquire(&cell->shared->nrecorders);

    return n < USM__CELL_RECORDERS ? n : USM__CELL_RECORDERS;
}

void usm__cell_count(const usm__cell *cell, uint64_t *made, uint64_t *complete)
{
    uint64_t m = 0, c = 0;

    /* Complete ones first: so never more than were made. */
    for (uint32_t i = 0; i < recorders_of(cell); i++)
        c += usm_load_acquire(&cell->shared->recorders[i].complete);
    for (uint32_t i = 0; i < recorders_of(cell); i++)
        m += usm_load_acquire(&cell->shared->recorders[i].made);
    *made     = m;
    *complete = c;
}

void usm__cell_turns(const usm__cell *cell, usm__turns *turns)
{
    turns->count = 0;
    turns->n     = recorders_of(cell);
    for (uint32_t i = 0; i < turns->n; i++)
        turns->made[i] = usm_load_acquire(&cell->shared->recorders[i].made);
}

/* ---- the outcome of a wait ---------------------------------------------------------------- */

bool usm__cell_is_pending(const usm__cell *cell, const usm__turns *turns)
{
    uint64_t made, complete;

    if (turns->count > 0) {
        usm__cell_count(cell, &made, &complete);
        return complete < turns->count;
    }
    for (uint32_t i = 0; i < turns->n; i++)
        if (usm_load_acquire(&cell->shared->recorders[i].low) < turns->made[i])
            return true;
    return false;
}

static usm_status failure_of(const usm__cell *cell, const usm__turns *turns)
{
    const uint32_t n = turns->count > 0 ? recorders_of(cell) : turns->n;

    for (uint32_t i = 0; i < n; i++) {
        const usm__recorder *r  = &cell->shared->recorders[i];
        const uint64_t       at = usm_load_acquire(&r->failed_at);

        if (at != 0 && (turns->count > 0 || at <= turns->made[i]))
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
static usm_status judge_recorders(const usm__cell *cell, const usm__turns *turns)
{
    const uint32_t n = turns->count > 0 ? recorders_of(cell) : turns->n;

    for (uint32_t i = 0; i < n; i++) {
        const usm__recorder *r = &cell->shared->recorders[i];
        const uint64_t wanted  = turns->count > 0 ? usm_load_acquire(&r->made) : turns->made[i];
        const uint64_t key     = usm_load_acquire(&r->key);
        bool           ended   = false;
        usm_status     st;

        if (usm_load_acquire(&r->low) >= wanted)
            continue;
        st = usm__cell_has_ended(key, &ended);
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
    usm_status st        = key == 0 ? USM_OK : usm__cell_has_ended(key, &has_ended);

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
static usm_status judge_others(const usm__cell *cell)
{
    census     c  = {.living = 0};
    usm_status st = count_one(usm__cell_owner(cell), &c);

    for (uint32_t i = 0; i < recorders_of(cell) && st == USM_OK; i++)
        st = count_one(usm_load_acquire(&cell->shared->recorders[i].key), &c);
    if (st == USM_OK && c.living == 0 && !c.has_self)
        return nobody_left();
    for (uint32_t i = 0; i < USM__CELL_OPENERS && st == USM_OK; i++)
        st = count_one(usm_load_acquire(&cell->shared->openers[i]), &c);
    if (st == USM_OK && c.living == 0 && c.ended > 0)
        return nobody_left();
    return st == USM_OK ? USM_E_NOT_READY : st;
}

usm_status usm__cell_judge(const usm__cell *cell, const usm__turns *turns)
{
    usm_status st;

    if (!usm__cell_is_pending(cell, turns))
        return failure_of(cell, turns);
    st = judge_recorders(cell, turns);
    if (st == USM_E_NOT_READY && turns->count > 0)
        st = judge_others(cell);
    /* A process that ended may have completed them just before. */
    if (st == USM_E_OWNER_GONE && !usm__cell_is_pending(cell, turns))
        return failure_of(cell, turns);
    return st;
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void spin(const usm__cell *cell, const usm__turns *turns, uint64_t deadline)
{
    static usm__spin         how = USM__SPIN_INIT;
    static _Atomic(uint32_t) cpus;
    uint64_t                 until;
    bool                     has_come = false;

    if (usm_load_relaxed(&cpus) == 0)
        usm_store_relaxed(&cpus, usm__os_cpu_count());
    if (usm_load_relaxed(&cpus) < 2 || !usm__cell_is_pending(cell, turns))
        return;
    until = usm__os_now_ns() + usm__spin_ns(&how);
    until = until < deadline ? until : deadline;
    while (!has_come && usm__os_now_ns() < until)
        for (int i = 0; i < 8 && !has_come; i++) {
            usm_cpu_relax();
            has_come = !usm__cell_is_pending(cell, turns);
        }
    usm__spin_result(&how, has_come);
}

usm_status usm__cell_wait(usm__cell *cell, const usm__turns *turns, uint64_t deadline)
{
    usm__bell *bell    = &cell->shared->bell;
    bool       is_late = false;
    usm_status st;

    spin(cell, turns, deadline);
    if (!usm__cell_is_pending(cell, turns))
        return usm__cell_judge(cell, turns);
    usm__bell_enter(bell);
    for (;;) {
        const uint32_t word = usm__bell_word(bell);

        st = usm__cell_judge(cell, turns);
        if (st != USM_E_NOT_READY || is_late)
            break;
        is_late = usm__bell_wait(bell, word, deadline) != 0;
    }
    usm__bell_leave(bell);
    return st;
}
