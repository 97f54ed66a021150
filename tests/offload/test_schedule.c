/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What each function of src/offload/schedule.h promises. */
#include "base/fault.h"
#include "offload/schedule.h"
#include "plain.h"

#define SECOND 1000000000u

static uint64_t ten(const usm_policy_state *s, uint32_t member)
{
    (void)s;
    (void)member;
    return 10;
}

/* 100 indices in chunks of 10 for three workers, two under way each. */
static usm__schedule_params params(void)
{
    return (usm__schedule_params){.total            = 100,
                                  .multiple         = 1,
                                  .nworkers         = 3,
                                  .depth            = 2,
                                  .policy           = ten,
                                  .may_repeat       = true,
                                  .least_silence_ns = SECOND};
}

static usm__schedule *make(const usm__schedule_params *p)
{
    usm__schedule *s = usm__schedule_create(p);

    CHECK(s != NULL);
    return s;
}

static usm__chunk take(usm__schedule *s, uint32_t worker, uint64_t now_ns)
{
    usm__chunk c = {0};

    CHECK(usm__schedule_take(s, worker, now_ns, &c));
    return c;
}

static bool takes(usm__schedule *s, uint32_t worker, uint64_t now_ns)
{
    usm__chunk c;

    return usm__schedule_take(s, worker, now_ns, &c);
}

static void done(usm__schedule *s, uint32_t worker, const usm__chunk *c, uint64_t now_ns)
{
    CHECK_INT(usm__schedule_done(s, worker, c->id, now_ns, 0), USM__CHUNK_COUNTS);
}

static usm__schedule_stats stats_of(const usm__schedule *s)
{
    usm__schedule_stats stats;

    usm__schedule_get_stats(s, &stats);
    return stats;
}

/* --- giving ---------------------------------------------------------------------------------- */

static void chunks_come_in_order_and_end_at_the_end(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    uint64_t             at = 0;

    p.total    = 95;
    p.nworkers = 1;
    s          = make(&p);
    CHECK_INT(usm__schedule_remaining(s), 95);
    while (!usm__schedule_is_over(s)) {
        usm__chunk c = take(s, 0, 0);

        CHECK_INT(c.first, at);
        CHECK_INT(c.id, at / 10);
        CHECK_INT(c.attempt, 0);
        at += c.count;
        done(s, 0, &c, 1);
    }
    CHECK_INT(at, 95);
    CHECK_INT(stats_of(s).chunks, 10);
    CHECK_INT(stats_of(s).done, 95);
    CHECK_INT(usm__schedule_remaining(s), 0);
    CHECK(!takes(s, 0, 1));
    usm__schedule_destroy(s);
    usm__schedule_destroy(NULL);
}

static void a_range_of_nothing_is_over(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;

    p.total = 0;
    s       = make(&p);
    CHECK(usm__schedule_is_over(s));
    CHECK(!takes(s, 0, 0));
    usm__schedule_destroy(s);
}

static void chunks_keep_to_multiple_least_and_most(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;

    p.multiple = 8;
    s          = make(&p);
    CHECK_INT(take(s, 0, 0).count, 16); /* rounded up */
    usm__schedule_destroy(s);
    p.max_chunk = 15;
    s           = make(&p);
    CHECK_INT(take(s, 0, 0).count, 8); /* not above the most */
    usm__schedule_destroy(s);
    p.max_chunk = 5;
    s           = make(&p);
    CHECK_INT(take(s, 0, 0).count, 8); /* but one multiple */
    usm__schedule_destroy(s);
    p.max_chunk = 0;
    p.min_chunk = 30;
    s           = make(&p);
    CHECK_INT(take(s, 0, 0).count, 32);
    usm__schedule_destroy(s);
}

static void a_worker_has_no_more_than_depth(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s = make(&p);
    usm__chunk           c = take(s, 1, 0);

    (void)take(s, 1, 0);
    CHECK(!takes(s, 1, 0));
    done(s, 1, &c, 1);
    CHECK(takes(s, 1, 1));
    CHECK(!takes(s, 3, 1)); /* there is no such worker */
    usm__schedule_destroy(s);
}

/* Of 100 indices by 10s, two workers of the same speed. */
static void short_chunks_are_given_several_at_a_time(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    usm__chunk           c[3], more;

    p.nworkers = 2;
    p.total    = 100;
    p.batch    = 8;
    s          = make(&p);
    c[0]       = take(s, 0, 0);
    CHECK(!usm__schedule_take_more(s, 0, 0, &more)); /* nobody knows how short they are */
    done(s, 0, &c[0], 10);
    c[0] = take(s, 0, 10);
    CHECK(usm__schedule_take_more(s, 0, 10, &c[1]));
    CHECK_INT(c[1].first, c[0].first + 10);
    CHECK(!usm__schedule_take_more(s, 0, 10, &more)); /* 20 under way, 70 are left for two */
    CHECK(!usm__schedule_take_more(s, 1, 10, &more)); /* it was never measured */
    CHECK(!usm__schedule_take_more(s, 2, 10, &more)); /* there is no such worker */
    done(s, 0, &c[1], 20);
    CHECK(usm__schedule_failed(s, 0, c[0].id));
    c[2] = take(s, 1, 20);
    CHECK_INT(c[2].id, c[0].id);
    usm__schedule_destroy(s);
}

static void a_train_is_one_of_depth(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    usm__chunk           c;

    p.total = 1000000;
    p.depth = 2;
    p.batch = 3;
    s       = make(&p);
    c       = take(s, 0, 0);
    done(s, 0, &c, 10);
    for (int i = 0; i < 6; i++)
        CHECK(i % 3 ? usm__schedule_take_more(s, 0, 10, &c) : takes(s, 0, 10));
    CHECK(!usm__schedule_take_more(s, 0, 10, &c));
    CHECK(!takes(s, 0, 10));
    usm__schedule_destroy(s);
}

/* The second worker is to have all. */
static uint64_t only_second(const usm_policy_state *s, uint32_t member)
{
    return member == 1 && s->members[1].is_well ? 10 : 0;
}

static void a_policy_may_hold_a_worker_back(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    usm__chunk           c;

    p.policy = only_second;
    s        = make(&p);
    CHECK(!takes(s, 0, 0)); /* nobody is at work, but the second would take */
    c = take(s, 1, 0);
    CHECK(!takes(s, 0, 0));
    done(s, 1, &c, 1);
    CHECK(usm__schedule_lose(s, 1));
    CHECK(takes(s, 0, 1)); /* nobody else does it */
    CHECK(!takes(s, 2, 1));
    usm__schedule_destroy(s);
}

static void seen_by_policies(void)
{
    const double         weights[] = {1, 2, 3}, watts[] = {0, 50, 60};
    usm__schedule_params p = params();
    usm__schedule       *s;

    p.weights = weights;
    p.watts   = watts;
    p.policy  = usm__chunk_policy_find("guided");
    p.total   = 600;
    s         = make(&p);
    CHECK_INT(take(s, 0, 0).count, 25); /* 600 * 1 / 6, by 2, by two under way */
    CHECK_INT(take(s, 2, 0).count, 72); /* 575 * 3 / 6 */
    usm__schedule_destroy(s);
}

/* --- results --------------------------------------------------------------------------------- */

static void results_are_known_by_their_id(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s = make(&p);
    usm__chunk           c = take(s, 0, 0);

    CHECK_INT(usm__schedule_done(s, 0, 77, 1, 0), USM__CHUNK_UNKNOWN);
    CHECK_INT(usm__schedule_done(s, 9, c.id, 1, 0), USM__CHUNK_UNKNOWN);
    done(s, 0, &c, 1);
    CHECK_INT(usm__schedule_done(s, 0, c.id, 1, 0), USM__CHUNK_DROPPED);
    CHECK_INT(stats_of(s).dropped, 1);
    CHECK_INT(stats_of(s).done, 10);
    usm__schedule_destroy(s);
}

static void speed_is_a_moving_mean_without_the_first(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s = make(&p);
    usm__chunk           a = take(s, 0, 0), b = take(s, 0, 0);

    CHECK(usm__schedule_speed(s, 0) == 0);
    CHECK(usm__schedule_speed(s, 9) == 0);
    (void)usm__schedule_done(s, 0, a.id, SECOND, SECOND); /* ten a second: it warms up */
    CHECK(usm__schedule_speed(s, 0) > 9.9 && usm__schedule_speed(s, 0) < 10.1);
    (void)usm__schedule_done(s, 0, b.id, 2 * (uint64_t)SECOND, SECOND / 10);
    CHECK(usm__schedule_speed(s, 0) > 99 && usm__schedule_speed(s, 0) < 101);
    a = take(s, 0, 2 * (uint64_t)SECOND);
    (void)usm__schedule_done(s, 0, a.id, 3 * (uint64_t)SECOND, SECOND / 20);
    CHECK(usm__schedule_speed(s, 0) > 149 && usm__schedule_speed(s, 0) < 151);
    usm__schedule_destroy(s);
}

static void waiting_for_its_turn_is_no_time_of_a_chunk(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s = make(&p);
    usm__chunk           a = take(s, 0, 0), b = take(s, 0, 0);

    done(s, 0, &a, SECOND);
    done(s, 0, &b, 2 * (uint64_t)SECOND);
    CHECK(usm__schedule_speed(s, 0) > 9.9 && usm__schedule_speed(s, 0) < 10.1);
    usm__schedule_destroy(s);
}

/* --- failures -------------------------------------------------------------------------------- */

static void what_failed_is_given_to_another(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s = make(&p);
    usm__chunk           a = take(s, 0, 0), b = take(s, 0, 0), c;

    CHECK(usm__schedule_failed(s, 0, a.id));
    CHECK(!takes(s, 0, 1)); /* it is set aside */
    done(s, 0, &b, 1);      /* what it had may end */
    c = take(s, 1, 1);
    CHECK_INT(c.id, a.id);
    CHECK_INT(c.first, a.first);
    CHECK_INT(c.attempt, 1);
    CHECK_INT(stats_of(s).rescheduled, 1);
    CHECK(usm__schedule_failed(s, 1, c.id));
    c = take(s, 2, 2);
    CHECK_INT(c.attempt, 2);
    CHECK(!usm__schedule_failed(s, 2, c.id)); /* nobody is left */
    usm__schedule_destroy(s);
}

static void what_may_not_be_repeated_ends_the_launch(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    usm__chunk           c;

    p.may_repeat = false;
    s            = make(&p);
    c            = take(s, 0, 0);
    CHECK(!usm__schedule_failed(s, 0, c.id));
    usm__schedule_destroy(s);
    s = make(&p);
    CHECK(usm__schedule_lose(s, 0)); /* it had nothing */
    (void)take(s, 1, 0);
    CHECK(!usm__schedule_lose(s, 1));
    usm__schedule_destroy(s);
}

static void all_that_a_lost_worker_had_is_free(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s = make(&p);
    usm__chunk           a = take(s, 0, 0), b = take(s, 1, 0), c = take(s, 0, 0);

    CHECK_INT(usm__schedule_remaining(s), 70);
    CHECK(usm__schedule_lose(s, 0));
    CHECK_INT(usm__schedule_remaining(s), 90);
    CHECK_INT(take(s, 1, 0).id, a.id); /* lowest first */
    CHECK_INT(take(s, 2, 0).id, c.id);
    CHECK_INT(usm__schedule_done(s, 0, a.id, 1, 0), USM__CHUNK_DROPPED);
    done(s, 1, &b, 1);
    CHECK(usm__schedule_lose(s, 1));
    CHECK(!usm__schedule_lose(s, 2));
    usm__schedule_destroy(s);
}

static void a_worker_set_aside_ends_what_it_has(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    usm__chunk           a, b;

    p.total    = 20;
    p.nworkers = 2;
    s          = make(&p);
    a          = take(s, 0, 0);
    b          = take(s, 1, 0);
    CHECK(usm__schedule_set_aside(s, 0));
    CHECK(usm__schedule_set_aside(s, 0)); /* twice is once */
    CHECK(!takes(s, 0, 1));
    CHECK(usm__schedule_set_aside(s, 1)); /* nothing is free, and all of it may yet end */
    done(s, 0, &a, 1);
    CHECK(!usm__schedule_failed(s, 1, b.id));
    usm__schedule_destroy(s);
}

static uint64_t all_then_ten(const usm_policy_state *s, uint32_t member)
{
    (void)member;
    return s->given == 0 ? s->remaining : 10;
}

static void a_large_chunk_that_comes_back_is_shared_out(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    usm__chunk           a, b, c;

    p.policy = all_then_ten;
    s        = make(&p);
    a        = take(s, 0, 0);
    CHECK_INT(a.count, 100);
    CHECK(usm__schedule_lose(s, 0));
    b = take(s, 1, 0);
    c = take(s, 2, 0);
    CHECK_INT(b.count, 10);
    CHECK_INT(c.first, 10);
    CHECK_INT(b.attempt, 1);
    CHECK(b.id != a.id && c.id != a.id && b.id != c.id);
    CHECK_INT(usm__schedule_remaining(s), 80);
    usm__schedule_cut(s, 23);
    a = take(s, 1, 0); /* what is left of it behind the cut is not wanted */
    CHECK_INT(a.first, 20);
    CHECK_INT(usm__schedule_remaining(s), 0);
    done(s, 1, &a, 1);
    done(s, 1, &b, 1);
    done(s, 2, &c, 1);
    CHECK(usm__schedule_is_over(s));
    usm__schedule_destroy(s);
}

/* --- silence --------------------------------------------------------------------------------- */

/* Two workers of ten indices a second each; the first has the chunks a and b. */
static usm__schedule *two_measured(usm__schedule_params p, uint64_t *now, usm__chunk *a,
                                   usm__chunk *b)
{
    usm__schedule *s;

    p.nworkers = 2;
    s          = make(&p);
    *now       = 0;
    for (int i = 0; i < 2; i++) {
        *a = take(s, 0, *now);
        *b = take(s, 1, *now);
        *now += SECOND;
        done(s, 0, a, *now);
        done(s, 1, b, *now);
    }
    *a = take(s, 0, *now);
    *b = take(s, 0, *now);
    return s;
}

static void silence_is_four_times_the_prediction(void)
{
    usm__chunk     a, b;
    uint64_t       now, next;
    usm__schedule *s = two_measured(params(), &now, &a, &b);

    CHECK_INT(usm__schedule_overdue(s, now, &next), 0);
    CHECK(next >= now + 4 * (uint64_t)SECOND && next < now + 4 * (uint64_t)SECOND + 1000);
    CHECK_INT(usm__schedule_overdue(s, next - 1, &next), 0);
    usm__schedule_touch(s, 0, a.id, next - 1); /* it and what waits behind it begin anew */
    CHECK_INT(usm__schedule_overdue(s, next, &next), 0);
    CHECK(next > now + 7 * (uint64_t)SECOND);
    CHECK_INT(usm__schedule_overdue(s, next, &next), 2);
    CHECK_INT(next, UINT64_MAX); /* nobody is at work */
    CHECK(!takes(s, 0, now));    /* it is silent */
    CHECK_INT(take(s, 1, now).id, a.id);
    CHECK_INT(take(s, 1, now).id, b.id);
    CHECK_INT(stats_of(s).rescheduled, 2);
    CHECK_INT(usm__schedule_done(s, 0, a.id, now, 0), USM__CHUNK_COUNTS); /* late, and the first */
    CHECK_INT(usm__schedule_done(s, 1, a.id, now, 0), USM__CHUNK_DROPPED);
    CHECK_INT(usm__schedule_done(s, 1, b.id, now, 0), USM__CHUNK_COUNTS);
    CHECK_INT(usm__schedule_done(s, 0, b.id, now, 0), USM__CHUNK_DROPPED);
    CHECK(takes(s, 0, now)); /* it lives */
    usm__schedule_destroy(s);
}

static void who_is_heard_of_in_time_keeps_what_it_has(void)
{
    usm__chunk     a, b;
    uint64_t       now, next;
    usm__schedule *s = two_measured(params(), &now, &a, &b);

    now += 5 * (uint64_t)SECOND;
    CHECK_INT(usm__schedule_overdue(s, now, &next), 2);
    CHECK_INT(usm__schedule_remaining(s), 60);
    usm__schedule_touch(s, 0, b.id, now);
    CHECK_INT(usm__schedule_remaining(s), 40);
    CHECK_INT(take(s, 1, now).first, 60);
    done(s, 0, &a, now);
    done(s, 0, &b, now);
    usm__schedule_destroy(s);
}

static void who_was_never_measured_has_longer(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s = make(&p);
    uint64_t             next;

    CHECK_INT(usm__schedule_overdue(s, 0, &next), 0);
    CHECK_INT(next, UINT64_MAX);
    (void)take(s, 0, 5);
    CHECK_INT(usm__schedule_overdue(s, 5, &next), 0);
    CHECK_INT(next, 5 + 4 * (uint64_t)SECOND);
    CHECK_INT(usm__schedule_overdue(s, next, &next), 1);
    usm__schedule_destroy(s);
}

static void nothing_becomes_free_that_may_not_be_repeated(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    usm__chunk           c;
    uint64_t             next;

    p.may_repeat = false;
    s            = make(&p);
    c            = take(s, 0, 0);
    CHECK_INT(usm__schedule_overdue(s, 100 * (uint64_t)SECOND, &next), 0);
    CHECK_INT(usm__schedule_remaining(s), 90);
    done(s, 0, &c, 100 * (uint64_t)SECOND);
    usm__schedule_destroy(s);
}

static void what_others_may_not_write_stays_with_who_is_silent(void)
{
    usm__schedule_params p = params();
    usm__chunk           a, b, held;
    uint64_t             now, next, since = 0;
    usm__schedule       *s;

    p.never_twice = true;
    s             = two_measured(p, &now, &a, &b);
    CHECK_INT(usm__schedule_overdue(s, now, &next), 0);
    CHECK(!usm__schedule_is_silent(s, 0, now, &held, &since));
    now += 5 * (uint64_t)SECOND;
    CHECK_INT(usm__schedule_overdue(s, now, &next), 0); /* nothing is free */
    CHECK(usm__schedule_is_silent(s, 0, now, &held, &since));
    CHECK_INT(held.first, a.first);
    CHECK_INT(held.count, a.count);
    CHECK_INT(since, 5 * (uint64_t)SECOND);
    CHECK(!takes(s, 0, now));
    CHECK(take(s, 1, now).first > b.first);
    done(s, 0, &a, now); /* it wakes */
    CHECK(!usm__schedule_is_silent(s, 0, now, &held, &since));
    done(s, 0, &b, now);
    CHECK_INT(stats_of(s).rescheduled, 0);
    usm__schedule_destroy(s);
}

/* --- the tail -------------------------------------------------------------------------------- */

static void a_chunk_is_done_twice_by_who_has_it_sooner(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    usm__chunk           a, b, c;
    uint64_t             now, next;

    p.total = 60; /* 40 are used up to measure both */
    s       = two_measured(p, &now, &a, &b);
    CHECK_INT(usm__schedule_overdue(s, now, &next), 1);
    c = take(s, 1, now); /* not a, which the first should have as soon */
    CHECK_INT(c.id, b.id);
    CHECK_INT(c.attempt, 1);
    CHECK_INT(stats_of(s).duplicated, 1);
    CHECK_INT(stats_of(s).rescheduled, 0);
    now += SECOND;
    done(s, 1, &c, now);
    CHECK(!takes(s, 1, now));
    CHECK_INT(usm__schedule_overdue(s, now, &next), 0);
    CHECK(next <= now + SECOND);
    now += SECOND;
    CHECK_INT(usm__schedule_overdue(s, now, &next), 1); /* a second late, which may become two */
    c = take(s, 1, now);
    CHECK_INT(c.id, a.id);
    CHECK(!takes(s, 1, now)); /* it is not idle, and twice is enough */
    CHECK_INT(usm__schedule_overdue(s, now + SECOND / 2, &next), 0);
    now += SECOND;
    done(s, 1, &c, now);
    CHECK(usm__schedule_is_over(s));
    CHECK_INT(usm__schedule_done(s, 0, a.id, now, 0), USM__CHUNK_DROPPED);
    CHECK_INT(usm__schedule_done(s, 0, b.id, now, 0), USM__CHUNK_DROPPED);
    usm__schedule_destroy(s);
}

/* Whether the second worker, idle 64 seconds after the beginning, does the first one's last chunk
 * as well, which takes itself a second and the first so much longer. */
static bool doubles_for(uint64_t longer_ns)
{
    usm__schedule_params p   = params();
    const uint64_t       now = 64 * (uint64_t)SECOND;
    usm__schedule       *s;
    usm__chunk           c;
    uint64_t             next;
    bool                 is_doubled;

    p.total = 30;
    s       = make(&p);
    c       = take(s, 0, 0);
    CHECK_INT(usm__schedule_done(s, 0, c.id, now, SECOND + longer_ns), USM__CHUNK_COUNTS);
    c = take(s, 1, 0);
    CHECK_INT(usm__schedule_done(s, 1, c.id, now, SECOND), USM__CHUNK_COUNTS);
    (void)take(s, 0, now);
    is_doubled = takes(s, 1, now);
    CHECK_INT(usm__schedule_overdue(s, now, &next), 0);
    CHECK_INT(stats_of(s).duplicated, is_doubled);
    usm__schedule_destroy(s);
    return is_doubled;
}

static void a_chunk_is_not_done_twice_for_little(void)
{
    CHECK(!doubles_for(SECOND / 10)); /* a tenth of a second, of 64 */
    CHECK(!doubles_for(SECOND - 1000));
    CHECK(doubles_for(SECOND + 1000));
}

static void nothing_is_done_twice_that_may_not_be_repeated(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    usm__chunk           a, b;
    uint64_t             now;

    p.total      = 60;
    p.may_repeat = false;
    s            = two_measured(p, &now, &a, &b);
    CHECK(!takes(s, 1, now + 100 * (uint64_t)SECOND));
    usm__schedule_destroy(s);
}

static void what_is_written_in_place_is_given_to_nobody_else(void)
{
    const uint64_t       now = 20 * (uint64_t)SECOND;
    usm__schedule_params p   = params();
    usm__schedule       *s;
    usm__chunk           a, b;
    uint64_t             next;

    p.total     = 20;
    p.nin_place = 1;
    s           = make(&p);
    a           = take(s, 0, 0);
    b           = take(s, 1, 0);
    done(s, 1, &b, SECOND);
    CHECK(!takes(s, 1, now));
    CHECK_INT(usm__schedule_overdue(s, now, &next), 0);
    CHECK(!takes(s, 1, now));
    done(s, 0, &a, now);
    CHECK(usm__schedule_is_over(s));
    usm__schedule_destroy(s);
}

/* It is done on a copy then. */
static void what_comes_back_is_not_written_in_place(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    uint64_t             next;

    p.total     = 10;
    p.nin_place = 1;
    s           = make(&p);
    CHECK_INT(take(s, 1, 0).attempt, 0);
    CHECK_INT(usm__schedule_overdue(s, 20 * (uint64_t)SECOND, &next), 1);
    CHECK_INT(take(s, 0, 20 * (uint64_t)SECOND).attempt, 1);
    CHECK_INT(take(s, 2, 40 * (uint64_t)SECOND).attempt, 2);
    usm__schedule_destroy(s);
}

/* --- parts of the range ---------------------------------------------------------------------- */

static void what_was_done_before_is_left_out(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;
    uint64_t             ranges[4][2];

    p.multiple = 5;
    s          = make(&p);
    CHECK(!usm__schedule_skip(s, 95, 10)); /* outside */
    CHECK(!usm__schedule_skip(s, UINT64_MAX - 4, 10));
    CHECK(!usm__schedule_skip(s, 0, 0));
    CHECK(!usm__schedule_skip(s, 1, 10)); /* not at the multiple */
    CHECK(usm__schedule_skip(s, 5, 20));
    CHECK(!usm__schedule_skip(s, 20, 10)); /* twice */
    CHECK(usm__schedule_skip(s, 30, 5));
    CHECK(usm__schedule_skip(s, 90, 10));
    CHECK_INT(usm__schedule_remaining(s), 65);
    CHECK_INT(stats_of(s).done, 35);
    CHECK_INT(usm__schedule_done_ranges(s, ranges, 4), 3);
    CHECK_INT(ranges[0][0], 5);
    CHECK_INT(ranges[0][1], 25);
    CHECK_INT(ranges[2][1], 100);
    CHECK_INT(take(s, 0, 0).count, 5); /* up to what is done */
    CHECK_INT(take(s, 1, 0).first, 25);
    CHECK_INT(take(s, 2, 0).first, 35);
    CHECK_INT(usm__schedule_done_ranges(s, NULL, 0), 3);
    usm__schedule_destroy(s);
}

static void ranges_that_meet_are_one(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s = make(&p);
    usm__chunk           a = take(s, 0, 0), b = take(s, 1, 0), c = take(s, 2, 0);
    uint64_t             ranges[2][2];

    CHECK_INT(usm__schedule_done_ranges(s, ranges, 2), 0);
    done(s, 0, &a, 1);
    done(s, 2, &c, 1);
    CHECK_INT(usm__schedule_done_ranges(s, ranges, 2), 2);
    CHECK_INT(ranges[1][0], 20);
    done(s, 1, &b, 1);
    CHECK_INT(usm__schedule_done_ranges(s, ranges, 2), 1);
    CHECK_INT(ranges[0][0], 0);
    CHECK_INT(ranges[0][1], 30);
    usm__schedule_destroy(s);
}

static void what_lies_behind_a_cut_is_not_wanted(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s = make(&p);
    usm__chunk           a = take(s, 0, 0), b = take(s, 1, 0), c = take(s, 2, 0);

    usm__schedule_cut(s, 45);
    usm__schedule_cut(s, 70); /* a higher one changes nothing */
    CHECK_INT(usm__schedule_remaining(s), 15);
    usm__schedule_cut(s, 15);
    CHECK_INT(usm__schedule_remaining(s), 0);
    CHECK(!takes(s, 2, 1));
    CHECK_INT(usm__schedule_done(s, 2, c.id, 1, 0), USM__CHUNK_DROPPED);
    CHECK(!usm__schedule_is_over(s));
    done(s, 0, &a, 1);
    CHECK(!usm__schedule_is_over(s)); /* 10 to 14 are wanted */
    done(s, 1, &b, 1);
    CHECK(usm__schedule_is_over(s));
    usm__schedule_destroy(s);
    s = make(&p);
    (void)take(s, 0, 0);
    usm__schedule_cut(s, 0);
    CHECK(usm__schedule_is_over(s));
    usm__schedule_destroy(s);
}

static void no_memory_is_told(void)
{
    usm__schedule_params p = params();
    usm__schedule       *s;

    for (uint64_t n = 1;; n++) {
        (void)usm__fault_arm("heap.alloc", n, false, USM_OK);
        s = usm__schedule_create(&p);
        usm__fault_disarm_all();
        if (s != NULL)
            break;
        CHECK(n < 100);
    }
    for (uint64_t i = 0; i < 3; i++)
        CHECK(usm__schedule_skip(s, 1 + 10 * i, 1));
    (void)usm__fault_arm("heap.alloc", 1, false, USM_OK);
    CHECK(!usm__schedule_skip(s, 51, 1)); /* one range more than there is room for */
    usm__fault_disarm_all();
    CHECK(usm__schedule_skip(s, 51, 1));
    usm__schedule_destroy(s);
}

static const plain_case cases[] = {
    CASE(chunks_come_in_order_and_end_at_the_end),
    CASE(a_range_of_nothing_is_over),
    CASE(chunks_keep_to_multiple_least_and_most),
    CASE(a_worker_has_no_more_than_depth),
    CASE(short_chunks_are_given_several_at_a_time),
    CASE(a_train_is_one_of_depth),
    CASE(a_policy_may_hold_a_worker_back),
    CASE(seen_by_policies),
    CASE(results_are_known_by_their_id),
    CASE(speed_is_a_moving_mean_without_the_first),
    CASE(waiting_for_its_turn_is_no_time_of_a_chunk),
    CASE(what_failed_is_given_to_another),
    CASE(what_may_not_be_repeated_ends_the_launch),
    CASE(all_that_a_lost_worker_had_is_free),
    CASE(a_worker_set_aside_ends_what_it_has),
    CASE(a_large_chunk_that_comes_back_is_shared_out),
    CASE(silence_is_four_times_the_prediction),
    CASE(who_is_heard_of_in_time_keeps_what_it_has),
    CASE(who_was_never_measured_has_longer),
    CASE(nothing_becomes_free_that_may_not_be_repeated),
    CASE(what_others_may_not_write_stays_with_who_is_silent),
    CASE(a_chunk_is_done_twice_by_who_has_it_sooner),
    CASE(a_chunk_is_not_done_twice_for_little),
    CASE(nothing_is_done_twice_that_may_not_be_repeated),
    CASE(what_is_written_in_place_is_given_to_nobody_else),
    CASE(what_comes_back_is_not_written_in_place),
    CASE(what_was_done_before_is_left_out),
    CASE(ranges_that_meet_are_one),
    CASE(what_lies_behind_a_cut_is_not_wanted),
    CASE(no_memory_is_told),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
