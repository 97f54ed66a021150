/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Slots and their room at the transport: this file reserves and forgets the runs that tier_slots.c
 * selects, outside the lock, while the slots concerned are marked as busy.  Called by tier_io.c and
 * replica_place.c. */
#include "spill/tier_private.h"

#include "base/os.h"

#include <stdio.h>

/* A full transport is not asked again for this many times the duration of its answer: a full disk
 * takes tens of milliseconds to answer, which every access would have to wait for. */
#define FULL_WAIT UINT64_C(8)

/* Lock held; the error message is the transport's, which has taken since began_ns to answer. */
static void note_full(usm__room room, uint64_t began_ns)
{
    uint64_t now = usm__os_now_ns();

    room.slots->full_until = now + FULL_WAIT * (now - began_ns);
    (void)snprintf(room.tier->reason, sizeof room.tier->reason, "%.*s",
                   (int)sizeof room.tier->reason - 1, usm__words_of(USM_E_SPILL_FULL));
}

/* Lock held.  There was room, or some was freed. */
static void note_room(usm__slots *s)
{
    s->full_until = 0;
}

/* Lock held.  After a refusal a single slot is requested first; longer runs are tried once that
 * succeeds. */
static bool may_ask(usm__slots *s)
{
    if (s->full_until == 0)
        return true;
    s->step = 1;
    return usm__os_now_ns() >= s->full_until;
}

/* Takes a free one of the reserved slots, when no more can be reserved. */
static usm_status take_last(usm__room room, uint64_t key, uint64_t *slot)
{
    usm__tiers    *t = room.tier->tiers;
    usm__slots_run run;

    while (usm__slots_take(room.slots, key, false, slot, &run) != USM__SLOT_TAKEN) {
        if (room.slots->nbusy == 0)
            return USM_E_SPILL_FULL;
        (void)usm__mutex_wait(&t->lock, &t->changed, NULL);
    }
    return USM_OK;
}

/* Lock held.  USM_E_AGAIN: the caller reserves the run without the lock, then calls reserved(). */
static usm_status take(usm__room room, uint64_t key, uint64_t *slot, usm__slots_run *run)
{
    usm__tiers *t = room.tier->tiers;

    for (;;)
        switch (usm__slots_take(room.slots, key, true, slot, run)) {
        case USM__SLOT_TAKEN:
            return USM_OK;
        case USM__SLOT_RESERVE:
            return USM_E_AGAIN;
        case USM__SLOT_WAIT:
            (void)usm__mutex_wait(&t->lock, &t->changed, NULL);
            break;
        case USM__SLOT_MEMORY:
            return usm__fail(USM_E_NO_MEMORY, "no host memory for the table of tier %s",
                             room.tier->name);
        }
}

/* Lock held.  The transport, asked at began_ns, has answered `st`.  USM_E_AGAIN: as take(), for
 * another run. */
static usm_status reserved(usm__room room, uint64_t key, uint64_t *slot, usm__slots_run *run,
                           usm_status st, uint64_t began_ns)
{
    bool more = usm__slots_reserved(room.slots, *run, st == USM_OK, key, slot);

    if (st == USM_OK)
        note_room(room.slots);
    else if (st == USM_E_SPILL_FULL && !more)
        note_full(room, began_ns);
    pthread_cond_broadcast(&room.tier->tiers->changed);
    if (st == USM_E_SPILL_FULL && !more)
        return take_last(room, key, slot);
    return st == USM_E_SPILL_FULL || st == USM_E_AGAIN ? take(room, key, slot, run) : st;
}

usm_status usm__room_take(usm__room room, uint64_t key, uint64_t *slot)
{
    usm__tier     *tier = room.tier;
    usm__tiers    *t    = tier->tiers;
    usm__slots_run run  = {0};
    usm_status     st;

    usm__mutex_lock(&t->lock);
    if (may_ask(room.slots)) {
        st = take(room, key, slot, &run);
    } else {
        (void)usm__fail(USM_E_SPILL_FULL, "%s", tier->reason);
        st = take_last(room, key, slot);
    }
    while (st == USM_E_AGAIN) {
        uint64_t   began_ns = usm__os_now_ns();
        usm_status answer;

        usm__mutex_unlock(&t->lock);
        answer = tier->ops->reserve(tier->store, room.base + run.first, run.n);
        usm__mutex_lock(&t->lock);
        st = reserved(room, key, slot, &run, answer, began_ns);
    }
    usm__mutex_unlock(&t->lock);
    return st;
}

void usm__room_give(usm__room room, uint64_t slot)
{
    usm__tier     *tier = room.tier;
    usm__tiers    *t    = tier->tiers;
    usm__slots_run run;

    usm__mutex_lock(&t->lock);
    usm__slots_free(room.slots, slot, &run);
    usm__mutex_unlock(&t->lock);
    if (run.n == 0)
        return;
    tier->ops->forget(tier->store, room.base + run.first, run.n);
    usm__mutex_lock(&t->lock);
    usm__slots_forgotten(room.slots, run);
    note_room(room.slots);
    pthread_cond_broadcast(&t->changed);
    usm__mutex_unlock(&t->lock);
}

usm_status usm__tier_take(usm__tier *tier, uint64_t key, uint64_t *slot)
{
    return usm__room_take((usm__room){tier, &tier->slots, 0}, key, slot);
}

void usm__tier_give(usm__tier *tier, uint64_t slot)
{
    usm__room_give((usm__room){tier, &tier->slots, 0}, slot);
}
