/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Teams over the ranks of a job without MPI, usm_job_join(): the cases where the transport matters.
 * What the ranks do is in ranks_cases.c. */
#include "cluster/socket_ranks.h"

#include "ranks_cases.h"

/* The last rank is killed; all others end well. */
static void run_and_lose(uint32_t count, rank_fn *fn)
{
    pid_t pids[RANKS];

    start_all(count, fn, pids);
    for (uint32_t r = 0; r < count; r++)
        CHECK_INT(end_of(pids[r]), r == count - 1 ? SIGKILL : 0);
}

static void results_are_those_of_one_process(void)
{
    begin();
    run(2, rank_fills);
    begin();
    run(4, rank_fills_for_another_home);
}

static void only_addresses_pass_the_master(void)
{
    begin();
    run(3, rank_moves_much);
}

static void sums_are_the_same_to_the_bit_for_any_split(void)
{
    begin();
    run(3, rank_sums);
}

static void two_launches_share_a_team(void)
{
    begin();
    run(3, rank_launches_two_at_a_time);
}

static void all_ranks_know_what_members_did(void)
{
    begin();
    run(3, rank_tells_its_figures);
}

static void a_rank_that_dies_is_replaced(void)
{
    begin();
    run_and_lose(3, last_rank_dies_halfway);
}

static void a_rank_that_is_stopped_is_replaced_and_comes_back(void)
{
    begin();
    run(3, last_rank_is_stopped);
}

static void the_end_of_home_is_named(void)
{
    begin();
    run_and_lose(3, home_dies);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(results_are_those_of_one_process),
        CASE(only_addresses_pass_the_master),
        CASE(sums_are_the_same_to_the_bit_for_any_split),
        CASE(two_launches_share_a_team),
        CASE(all_ranks_know_what_members_did),
        CASE(a_rank_that_dies_is_replaced),
        CASE(a_rank_that_is_stopped_is_replaced_and_comes_back),
        CASE(the_end_of_home_is_named),
        {NULL, NULL},
    };

    return plain_main(argc, argv, cases);
}
