/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Who gets the next node of a graph when units take part: links and routes (src/offload/graph_where.c)
 * together with the choice (graph_choose.c), all pure functions. */
#include "plain.h"

#include "offload/graph.h"
#include "offload/graph_where.h"

#define MB UINT64_C(1000000)

/* ---- links ----------------------------------------------------------------------------------- */

static void short_transfers_measure_the_latency_and_long_ones_the_rate(void)
{
    usm__link l = {0, 0};

    usm__link_measure(&l, 0, 0.02);
    CHECK(l.latency == 0.02);
    CHECK(l.bytes_per_s == 0);
    usm__link_measure(&l, 10 * MB, 1.02); /* the answer took 20 ms of it */
    CHECK(l.bytes_per_s > 9.99e6 && l.bytes_per_s < 10.01e6);
    usm__link_measure(&l, 10 * MB, 0.52);
    CHECK(l.bytes_per_s > 14.9e6 && l.bytes_per_s < 15.1e6);
    usm__link_measure(&l, 0, 0.06);
    CHECK(l.latency > 0.0299 && l.latency < 0.0301);
    usm__link_measure(&l, 10 * MB, 0); /* no time: nothing is learnt */
    CHECK(l.bytes_per_s < 15.1e6);
}

static void a_link_that_carried_nothing_is_taken_for_a_common_one(void)
{
    const usm__link l = {0.01, 0};

    CHECK(usm__link_seconds(&l, 100 * MB) > 1.009 && usm__link_seconds(&l, 100 * MB) < 1.011);
}

/* ---- routes ---------------------------------------------------------------------------------- */

static const usm__link links[3] = {{0.001, 100e6}, {0.05, 10e6}, {0.001, 50e6}};

static double seconds(uint64_t from, uint64_t bytes, uint32_t to)
{
    usm__route r = {{0}};

    usm__route_add(&r, links, 3, from, bytes, to);
    return usm__route_seconds(&r, links, 3);
}

static void what_is_there_costs_nothing(void)
{
    CHECK(seconds(USM__PLACE_HOME, 50 * MB, 0) == 0);
    CHECK(seconds(usm__place_bit(2), 50 * MB, 2) == 0);
}

static void from_unit_to_unit_bytes_go_over_both_links(void)
{
    CHECK(seconds(USM__PLACE_HOME, 100 * MB, 1) == 1.001);
    CHECK(seconds(usm__place_bit(2), 100 * MB, 0) == 10.05);
    CHECK(seconds(usm__place_bit(2), 100 * MB, 1) == 1.001 + 10.05);
    CHECK(seconds(usm__place_bit(2) | USM__PLACE_HOME, 100 * MB, 1) == 1.001);
}

static void of_two_that_have_a_block_the_nearer_one_is_asked(void)
{
    CHECK_INT(usm__place_nearest(links, 3, usm__place_bit(2) | usm__place_bit(3)), 3);
    CHECK_INT(usm__place_nearest(links, 3, usm__place_bit(2)), 2);
    CHECK_INT(usm__place_nearest(links, 3, USM__PLACE_HOME), 0);
    CHECK(seconds(usm__place_bit(2) | usm__place_bit(3), 50 * MB, 0) == 1.001);
}

static void one_latency_is_paid_for_all_blocks_over_a_link(void)
{
    usm__route r = {{0}};

    for (unsigned i = 0; i < 10; i++)
        usm__route_add(&r, links, 3, USM__PLACE_HOME, MB, 2);
    CHECK(usm__route_seconds(&r, links, 3) == 1.05);
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Home, a unit with a fast link, and one with a slow link; a task of 10 that reads `bytes` at `from`.
 */
static uint32_t choose(const double *speeds, const double *flying, uint64_t from, uint64_t bytes)
{
    usm__graph_member m[3];
    usm_policy        p = {.name = NULL};

    for (uint32_t i = 0; i < 3; i++)
        m[i] = (usm__graph_member){.speed   = speeds[i],
                                   .flying  = flying[i],
                                   .weight  = 1,
                                   .bring   = seconds(from, bytes, i),
                                   .room    = 1,
                                   .may     = true,
                                   .is_well = true};
    return usm__graph_choose(USM__GRAPH_ADAPTIVE, &p, m, 3, 10, 1);
}

static const double equal[3] = {1, 1, 1}, idle[3] = {0, 0, 0};

static void among_equals_a_node_goes_where_its_data_lie(void)
{
    CHECK_INT(choose(equal, idle, USM__PLACE_HOME, MB), 0);
    CHECK_INT(choose(equal, idle, usm__place_bit(1), MB), 1);
    CHECK_INT(choose(equal, idle, usm__place_bit(2), MB), 2);
}

static void speed_outweighs_a_short_way_and_not_a_long_one(void)
{
    const double fast[3] = {1, 1, 4}; /* 2.5 s instead of 10 */

    CHECK_INT(choose(fast, idle, USM__PLACE_HOME, 10 * MB), 2); /* and 1.05 s for the bytes */
    CHECK_INT(choose(fast, idle, USM__PLACE_HOME, 100 * MB), 0);
}

static void bytes_travel_while_other_work_goes_on(void)
{
    const double busy[3] = {2, 2, 0};
    const double also[3] = {2, 1.5, 2};

    /* home ends after 2 + 10; unit 1 after 1.5 + 10: its bytes are there by then */
    CHECK_INT(choose(equal, also, USM__PLACE_HOME, 100 * MB), 1);
    CHECK_INT(choose(equal, busy, USM__PLACE_HOME, 100 * MB), 0); /* unit 2 would wait for them */
}

static const plain_case cases[] = {
    CASE(short_transfers_measure_the_latency_and_long_ones_the_rate),
    CASE(a_link_that_carried_nothing_is_taken_for_a_common_one),
    CASE(what_is_there_costs_nothing),
    CASE(from_unit_to_unit_bytes_go_over_both_links),
    CASE(of_two_that_have_a_block_the_nearer_one_is_asked),
    CASE(one_latency_is_paid_for_all_blocks_over_a_link),
    CASE(among_equals_a_node_goes_where_its_data_lie),
    CASE(speed_outweighs_a_short_way_and_not_a_long_one),
    CASE(bytes_travel_while_other_work_goes_on),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
