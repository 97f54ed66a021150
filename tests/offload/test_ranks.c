/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Teams over the ranks of a job, over processes without MPI (job_fixture.h).  What the ranks do is
 * in ranks_cases.c. */
#include "cluster/job_fixture.h"

#include "ranks_cases.h"

#include <usm/usm.h>

/* That rank is killed; all others end well. */
static void run_and_lose(uint32_t victim, uint32_t count, job_rank_fn *fn)
{
    int status[JOB_RANKS_MAX];

    job_run_some(count, fn, status);
    for (uint32_t r = 0; r < count; r++)
        CHECK_INT(status[r], r == victim ? SIGKILL : 0);
}

static void results_are_those_of_one_process(void)
{
    job_run(1, rank_fills);
    job_run(2, rank_fills);
    job_run(4, rank_fills);
}

static void any_rank_can_be_home(void)
{
    job_run(3, rank_fills_for_another_home);
}

static void chunks_have_their_neighbours_from_home(void)
{
    job_run(3, rank_has_neighbours);
}

static void sums_are_the_same_to_the_bit_for_any_split(void)
{
    job_run(3, rank_sums);
}

static void the_first_that_is_found_is_the_lowest(void)
{
    job_run(3, rank_finds_the_first);
}

static void what_is_read_and_written_is_written_once(void)
{
    job_run(3, rank_updates_in_place);
}

static void a_hundred_launches_follow_each_other(void)
{
    job_run(3, rank_launches_often);
}

static void members_have_the_names_of_their_ranks(void)
{
    job_run(3, rank_names_members);
}

static void only_addresses_pass_the_master(void)
{
    job_run(3, rank_moves_much);
}

static void a_slow_rank_gets_less(void)
{
    job_run(3, rank_1_is_slow);
}

static void any_rank_can_cancel(void)
{
    job_run(3, rank_1_cancels);
}

static void the_progress_function_of_any_rank_can_cancel(void)
{
    job_run(3, rank_1_says_stop_in_progress);
}

static void ranks_that_disagree_launch_nothing(void)
{
    job_run(3, rank_1_launches_something_else);
}

static void a_rank_whose_call_fails_is_waited_for_by_nobody(void)
{
    job_run(3, rank_1_is_refused);
}

static void what_comes_for_a_refused_launch_is_not_kept(void)
{
    job_run(2, rank_0_is_refused_often);
}

static void without_memory_nobody_waits(void)
{
    job_run(3, rank_has_no_memory);
}

static void a_home_that_is_no_rank_is_refused(void)
{
    job_run(2, rank_names_a_home_that_is_none);
}

static void ranks_count_their_energy(void)
{
    job_run(2, rank_counts_its_energy);
}

static void a_rank_that_dies_is_replaced(void)
{
    run_and_lose(2, 3, last_rank_dies_early);
    run_and_lose(2, 3, last_rank_dies_halfway);
    run_and_lose(3, 4, last_rank_dies_late);
}

static void a_rank_that_dies_changes_no_sum(void)
{
    run_and_lose(2, 3, last_rank_dies_summing);
}

static void a_rank_that_dies_updates_nothing_twice(void)
{
    run_and_lose(2, 3, last_rank_dies_updating);
}

static void a_rank_that_is_stopped_is_replaced_and_comes_back(void)
{
    job_run(3, last_rank_is_stopped);
}

static void rounds_of_what_is_not_wanted_are_left(void)
{
    job_run(3, rank_leaves_rounds_when_it_is_found);
    run_and_lose(2, 3, last_rank_dies_below_what_is_found);
}

static void a_rank_that_dies_hides_nothing_that_is_found(void)
{
    run_and_lose(2, 3, last_rank_dies_finding);
    run_and_lose(2, 3, last_rank_dies_finding_nothing);
}

static void a_rank_that_dies_does_not_keep_a_cancel(void)
{
    run_and_lose(2, 3, last_rank_dies_before_a_cancel);
    run_and_lose(2, 3, last_rank_dies_at_a_cancel);
    run_and_lose(2, 3, last_rank_dies_after_a_cancel);
}

static void two_launches_share_a_team(void)
{
    job_run(2, rank_launches_two_at_a_time);
    job_run(4, rank_launches_two_at_a_time);
    run_and_lose(2, 3, last_rank_dies_in_two_launches);
}

static void all_ranks_know_what_members_did(void)
{
    job_run(3, rank_tells_its_figures);
    job_run(3, last_rank_leaves);
}

static void who_leaves_at_work_is_told(void)
{
    job_run(3, last_rank_leaves_at_work);
}

static void without_retry_a_death_is_named(void)
{
    run_and_lose(2, 3, last_rank_dies_and_may_not_be_replaced);
}

static void the_end_of_home_is_named(void)
{
    run_and_lose(2, 3, home_dies);
}

static void the_end_of_the_master_is_named(void)
{
    run_and_lose(0, 3, master_dies);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(results_are_those_of_one_process),
        CASE(any_rank_can_be_home),
        CASE(chunks_have_their_neighbours_from_home),
        CASE(sums_are_the_same_to_the_bit_for_any_split),
        CASE(the_first_that_is_found_is_the_lowest),
        CASE(what_is_read_and_written_is_written_once),
        CASE(a_hundred_launches_follow_each_other),
        CASE(members_have_the_names_of_their_ranks),
        CASE(only_addresses_pass_the_master),
        CASE(a_slow_rank_gets_less),
        CASE(any_rank_can_cancel),
        CASE(the_progress_function_of_any_rank_can_cancel),
        CASE(ranks_that_disagree_launch_nothing),
        CASE(a_rank_whose_call_fails_is_waited_for_by_nobody),
        CASE(what_comes_for_a_refused_launch_is_not_kept),
        CASE(without_memory_nobody_waits),
        CASE(a_home_that_is_no_rank_is_refused),
        CASE(ranks_count_their_energy),
        CASE(a_rank_that_dies_is_replaced),
        CASE(a_rank_that_dies_changes_no_sum),
        CASE(a_rank_that_dies_updates_nothing_twice),
        CASE(a_rank_that_is_stopped_is_replaced_and_comes_back),
        CASE(rounds_of_what_is_not_wanted_are_left),
        CASE(a_rank_that_dies_hides_nothing_that_is_found),
        CASE(a_rank_that_dies_does_not_keep_a_cancel),
        CASE(two_launches_share_a_team),
        CASE(all_ranks_know_what_members_did),
        CASE(who_leaves_at_work_is_told),
        CASE(without_retry_a_death_is_named),
        CASE(the_end_of_home_is_named),
        CASE(the_end_of_the_master_is_named),
        {NULL, NULL},
    };

    job_plan_now.seconds = 120;
    return plain_main(argc, argv, cases);
}
