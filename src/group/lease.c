/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Silence, and signs of life against it: lease.h.  Who sends them, and what follows from a loss, is
 * the owner's business (transports/far, transports/socket). */
#include "group/lease.h"

uint64_t usm__group_look(usm__group_clock *c, uint64_t now)
{
    const uint64_t gap = now - c->looked;

    c->looked = now;
    return gap > c->pause_ns ? gap - c->pause_ns : 0;
}

void usm__group_lease_heard(usm__group_lease *l, uint64_t now)
{
    /* Relaxed: a number that other threads show, on which nothing else depends. */
    usm_store_relaxed(&l->heard, now);
}

void usm__group_lease_forgive(usm__group_lease *l, uint64_t absent, uint64_t now)
{
    const uint64_t silent = usm__group_lease_silence(l, now);

    usm__group_lease_heard(l, now - (silent > absent ? silent - absent : 0));
}

/* Another thread may have an older `now` than the one at which the peer was heard. */
uint64_t usm__group_lease_silence(const usm__group_lease *l, uint64_t now)
{
    const uint64_t heard = usm_load_relaxed(&l->heard);

    return now > heard ? now - heard : 0;
}

usm_place_state usm__group_lease_state(const usm__group_lease *l, const usm__group_clock *c,
                                       uint64_t now)
{
    const uint64_t silent = usm__group_lease_silence(l, now);

    if (silent >= c->lease_ns)
        return USM_PLACE_LOST;
    return silent >= c->lease_ns / 2 ? USM_PLACE_SLOW : USM_PLACE_UP;
}

bool usm__group_lease_owes(const usm__group_lease *l, const usm__group_clock *c, uint64_t when)
{
    return when >= l->sent + c->sign_ns;
}

uint64_t usm__group_lease_next(const usm__group_lease *l, const usm__group_clock *c, uint64_t now,
                               bool may_sign)
{
    const bool     is_up = usm__group_lease_state(l, c, now) == USM_PLACE_UP;
    const uint64_t left  = is_up ? c->lease_ns / 2 : c->lease_ns;
    const uint64_t judge = usm_load_relaxed(&l->heard) + left;
    const uint64_t sign  = may_sign ? l->sent + c->sign_ns : UINT64_MAX;
    const uint64_t least = judge < sign ? judge : sign;

    return least < now + c->sign_ns ? least : now + c->sign_ns;
}
