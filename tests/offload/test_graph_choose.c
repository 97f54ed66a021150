/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which member takes a task of a graph (src/offload/graph_choose.c): a pure function. */
#include "plain.h"

#include "offload/graph.h"

static usm__graph_member member(double speed, double flying, uint32_t room)
{
    return (usm__graph_member){.speed   = speed,
                               .flying  = flying,
                               .weight  = 1,
                               .watts   = 100,
                               .room    = room,
                               .may     = true,
                               .is_well = true};
}

static uint32_t choose(usm__graph_policy which, const usm__graph_member *m, uint32_t n)
{
    const double cap = 250;
    usm_policy   p   = {.nnumbers = 1, .numbers = &cap};

    return usm__graph_choose(which, &p, m, n, 10, 5);
}

static void adaptive_gives_to_who_is_done_first_and_waits_for_it(void)
{
    usm__graph_member m[2] = {member(1, 0, 2), member(4, 20, 1)};

    CHECK_INT(choose(USM__GRAPH_ADAPTIVE, m, 2), 1); /* 10 s against 30 / 4 */
    m[1].room = 0;
    CHECK_INT(choose(USM__GRAPH_ADAPTIVE, m, 2), USM__NOBODY);
    m[1].flying = 40;
    CHECK_INT(choose(USM__GRAPH_ADAPTIVE, m, 2), 0); /* 10 s against 50 / 4 */
    m[0].may = false;
    CHECK_INT(choose(USM__GRAPH_ADAPTIVE, m, 2), USM__NOBODY);
    m[1].room = 1;
    CHECK_INT(choose(USM__GRAPH_ADAPTIVE, m, 2), 1);
}

static void one_that_was_not_measured_is_tried(void)
{
    usm__graph_member m[2] = {member(8, 5, 1), member(0, 0, 1)};

    CHECK_INT(choose(USM__GRAPH_ADAPTIVE, m, 2), 1);
    CHECK_INT(choose(USM__GRAPH_FASTEST, m, 2), 1);
    m[1].speed = 2;
    CHECK_INT(choose(USM__GRAPH_FASTEST, m, 2), 0);
    m[0].room = 0;
    CHECK_INT(choose(USM__GRAPH_FASTEST, m, 2), USM__NOBODY);
}

static void shares_are_kept(void)
{
    usm__graph_member m[2]  = {member(1, 0, 1), member(1, 0, 1)};
    unsigned          of[2] = {0, 0};

    m[0].weight = 3;
    for (int i = 0; i < 40; i++) {
        uint32_t at = choose(USM__GRAPH_STATIC, m, 2);

        CHECK(at < 2);
        of[at]++;
        m[at].given += 10;
    }
    CHECK_INT(of[0], 30);
    m[0].weight = m[1].weight = 0;
    CHECK(choose(USM__GRAPH_STATIC, m, 2) < 2);
}

static void energy_keeps_to_the_fastest_set_under_the_cap(void)
{
    /* 250 W: the first alone draws too much beside another; the other two together are faster. */
    usm__graph_member m[3] = {member(5, 0, 1), member(3, 0, 1), member(4, 0, 1)};

    m[0].watts = 200;
    CHECK_INT(choose(USM__GRAPH_ENERGY, m, 3), 2);
    m[2].flying = 50;
    CHECK_INT(choose(USM__GRAPH_ENERGY, m, 3), 1);
    m[1].is_well = m[1].may = false;
    CHECK_INT(choose(USM__GRAPH_ENERGY, m, 3), USM__NOBODY); /* 200 W, once 100 W have ended */
    m[2].flying = 0;
    CHECK_INT(choose(USM__GRAPH_ENERGY, m, 3), 0);
    m[0].may = false; /* has no image: whoever can */
    CHECK_INT(choose(USM__GRAPH_ENERGY, m, 3), 2);
    m[0].flying = 10; /* with another kernel: it draws */
    CHECK_INT(choose(USM__GRAPH_ENERGY, m, 3), USM__NOBODY);
}

static void energy_never_leaves_a_task_that_one_alone_may_do(void)
{
    const double      cap = 250.04; /* sets are chosen by tenths, rounded to be under it */
    usm_policy        p   = {.nnumbers = 1, .numbers = &cap};
    usm__graph_member m   = member(1, 0, 1);

    m.watts = 250.03;
    CHECK_INT(usm__graph_choose(USM__GRAPH_ENERGY, &p, &m, 1, 10, 5), 0);
}

static uint64_t only_the_second(const usm_policy_state *state, uint32_t index)
{
    CHECK_INT(state->remaining, 5);
    CHECK_INT(state->nmembers, 2);
    return index == 1 ? 3 : 0;
}

static uint64_t nobody(const usm_policy_state *state, uint32_t index)
{
    (void)state;
    (void)index;
    return 0;
}

static void a_function_of_the_user_is_asked(void)
{
    usm__graph_member m[2] = {member(8, 0, 1), member(1, 0, 1)};
    usm_policy        p    = {.fn = only_the_second};
    usm__graph_policy which;

    CHECK_INT(usm__graph_policy_find(&p, &which), USM_OK);
    CHECK_INT(usm__graph_choose(which, &p, m, 2, 10, 5), 1);
    p.fn = nobody;
    CHECK_INT(usm__graph_choose(which, &p, m, 2, 10, 5), 0); /* nothing is under way: it goes on */
    m[0].flying = 1;
    CHECK_INT(usm__graph_choose(which, &p, m, 2, 10, 5), USM__NOBODY);
}

static const plain_case cases[] = {
    CASE(adaptive_gives_to_who_is_done_first_and_waits_for_it),
    CASE(one_that_was_not_measured_is_tried),
    CASE(shares_are_kept),
    CASE(energy_keeps_to_the_fastest_set_under_the_cap),
    CASE(energy_never_leaves_a_task_that_one_alone_may_do),
    CASE(a_function_of_the_user_is_asked),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
