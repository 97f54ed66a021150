/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Whose silence is too long, and what a process that did not run makes of it (src/group/lease.h).
 * */
#include "plain.h"

#include "group/lease.h"

enum { LEASE = 1600, SIGN = LEASE / 4, PAUSE = LEASE / 2, START = 1000000 };

static usm__group_clock clock_of(uint64_t now)
{
    return (usm__group_clock){.lease_ns = LEASE, .sign_ns = SIGN, .pause_ns = PAUSE, .looked = now};
}

static usm__group_lease heard_at(uint64_t now)
{
    usm__group_lease l = {.sent = now};

    usm__group_lease_heard(&l, now);
    return l;
}

static void check_state(const usm__group_lease *l, uint64_t now, usm_place_state state)
{
    const usm__group_clock c = clock_of(now);

    CHECK_INT(usm__group_lease_state(l, &c, now), state);
}

static void silence_makes_slow_then_lost(void)
{
    usm__group_lease l = heard_at(START);

    check_state(&l, START, USM_PLACE_UP);
    check_state(&l, START - 1, USM_PLACE_UP); /* a clock that another thread has read before */
    check_state(&l, START + LEASE / 2 - 1, USM_PLACE_UP);
    check_state(&l, START + LEASE / 2, USM_PLACE_SLOW);
    check_state(&l, START + LEASE - 1, USM_PLACE_SLOW);
    check_state(&l, START + LEASE, USM_PLACE_LOST);
    usm__group_lease_heard(&l, START + LEASE - 1);
    check_state(&l, START + LEASE, USM_PLACE_UP);
}

static void a_process_that_was_stopped_forgives_its_peers(void)
{
    usm__group_clock c      = clock_of(START);
    usm__group_lease l      = heard_at(START - SIGN);
    const uint64_t   now    = START + 100 * (uint64_t)LEASE;
    const uint64_t   absent = usm__group_look(&c, now);

    usm__group_lease_forgive(&l, absent, now);
    CHECK_INT(usm__group_lease_silence(&l, now), SIGN + PAUSE);
    check_state(&l, now, USM_PLACE_SLOW);
    check_state(&l, now + LEASE - SIGN - PAUSE, USM_PLACE_LOST); /* what follows does count */
    usm__group_lease_heard(&l, now);
    usm__group_lease_forgive(&l, absent, now);
    CHECK_INT(usm__group_lease_silence(&l, now), 0); /* it is never heard in the future */
}

static void gaps_up_to_a_pause_count(void)
{
    usm__group_clock c   = clock_of(START);
    usm__group_lease l   = heard_at(START);
    uint64_t         now = START;

    for (int i = 0; i < 2; i++) {
        now += PAUSE;
        CHECK_INT(usm__group_look(&c, now), 0);
    }
    check_state(&l, now, USM_PLACE_LOST);
}

/* However badly it is scheduled. */
static void a_dead_peer_is_lost_at_last(void)
{
    usm__group_clock c    = clock_of(START);
    usm__group_lease l    = heard_at(START);
    uint64_t         now  = START;
    int              gaps = 0;

    while (usm__group_lease_state(&l, &c, now) != USM_PLACE_LOST) {
        now += 10 * (uint64_t)LEASE;
        usm__group_lease_forgive(&l, usm__group_look(&c, now), now);
        gaps++;
    }
    CHECK_INT(gaps, LEASE / PAUSE);
}

static void signs_of_life_are_due_after_their_interval(void)
{
    const usm__group_clock c = clock_of(START);
    const usm__group_lease l = heard_at(START);

    CHECK(!usm__group_lease_owes(&l, &c, START - 1));
    CHECK(!usm__group_lease_owes(&l, &c, START + SIGN - 1));
    CHECK(usm__group_lease_owes(&l, &c, START + SIGN));
}

static void the_next_look_is_when_something_may_change(void)
{
    const usm__group_clock c = clock_of(START);
    usm__group_lease       l = heard_at(START);

    CHECK_INT(usm__group_lease_next(&l, &c, START, true), START + SIGN);
    CHECK_INT(usm__group_lease_next(&l, &c, START + 100, true), START + SIGN);
    CHECK_INT(usm__group_lease_next(&l, &c, START + 100, false), START + 100 + SIGN);
    CHECK_INT(usm__group_lease_next(&l, &c, START + PAUSE - 100, false), START + LEASE / 2);
    l.sent = START + LEASE;
    CHECK_INT(usm__group_lease_next(&l, &c, START + LEASE - 100, true), START + LEASE);
}

static const plain_case cases[] = {
    CASE(silence_makes_slow_then_lost),
    CASE(a_process_that_was_stopped_forgives_its_peers),
    CASE(gaps_up_to_a_pause_count),
    CASE(a_dead_peer_is_lost_at_last),
    CASE(signs_of_life_are_due_after_their_interval),
    CASE(the_next_look_is_when_something_may_change),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
