/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Slots with their room at the transport: what tier_slots.c says is to be reserved or forgotten is
 * done here, outside the lock, while the slots in question are marked as busy.  Called by
 * tier_io.c. */
#include "spill/tier_private.h"

/* Reserves the run for `key`, the lock held, which is let go meanwhile.  USM_E_AGAIN: ask anew. */
static usm_status reserve(usm__tier *tier, usm__slot_run run, uint64_t key, uint64_t *slot)
{
    usm__tiers *t = tier->tiers;
    usm_status  st;
    bool        more;

    usm__mutex_unlock(&t->lock);
    st = tier->ops->reserve(tier->store, run.first, run.n);
    usm__mutex_lock(&t->lock);
    more = usm__slots_reserved(&tier->slots, run, st == USM_OK, key, slot);
    pthread_cond_broadcast(&t->changed);
    return st == USM_E_SPILL_FULL && more ? USM_E_AGAIN : st;
}

/* What is free of what is reserved, when nothing more can be. */
static usm_status take_last(usm__tier *tier, uint64_t key, uint64_t *slot)
{
    usm__slot_run run;

    while (usm__slots_take(&tier->slots, key, false, slot, &run) != USM__SLOT_TAKEN) {
        if (tier->slots.nbusy == 0)
            return USM_E_SPILL_FULL;
        (void)usm__mutex_wait(&tier->tiers->lock, &tier->tiers->changed, NULL);
    }
    return USM_OK;
}

static usm_status take(usm__tier *tier, uint64_t key, uint64_t *slot)
{
    usm_status    st = USM_E_AGAIN;
    usm__slot_run run;

    while (st == USM_E_AGAIN)
        switch (usm__slots_take(&tier->slots, key, true, slot, &run)) {
        case USM__SLOT_TAKEN:
            st = USM_OK;
            break;
        case USM__SLOT_RESERVE:
            st = reserve(tier, run, key, slot);
            break;
        case USM__SLOT_WAIT:
            (void)usm__mutex_wait(&tier->tiers->lock, &tier->tiers->changed, NULL);
            break;
        case USM__SLOT_MEMORY:
            st = usm__fail(USM_E_NO_MEMORY, "no host memory for the table of tier %s", tier->name);
            break;
        }
    return st == USM_E_SPILL_FULL ? take_last(tier, key, slot) : st;
}

usm_status usm__tier_take(usm__tier *tier, uint64_t key, uint64_t *slot)
{
    usm_status st;

    usm__mutex_lock(&tier->tiers->lock);
    st = take(tier, key, slot);
    usm__mutex_unlock(&tier->tiers->lock);
    return st;
}

void usm__tier_give(usm__tier *tier, uint64_t slot)
{
    usm__tiers   *t = tier->tiers;
    usm__slot_run run;

    usm__mutex_lock(&t->lock);
    usm__slots_free(&tier->slots, slot, &run);
    usm__mutex_unlock(&t->lock);
    if (run.n == 0)
        return;
    tier->ops->forget(tier->store, run.first, run.n);
    usm__mutex_lock(&t->lock);
    usm__slots_forgotten(&tier->slots, run);
    pthread_cond_broadcast(&t->changed);
    usm__mutex_unlock(&t->lock);
}
