/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Templates over the ranks of a job: what ranks do is in templates_ranks.c. */
#include "templates_ranks.h"

#include "cluster/job_fixture.h"

static void maps_and_stencils_give_what_one_process_gives(void)
{
    job_run(2, rank_maps);
}

static void reductions_and_scans_give_what_one_process_gives(void)
{
    job_run(2, rank_joins);
}

static void a_search_ends_on_all_ranks(void)
{
    job_run(2, rank_searches);
}

static void ranks_make_as_many_steps_as_an_iteration_needs(void)
{
    job_run(2, rank_iterates);
}

static void batches_of_one_rank_go_through_the_stages_of_all(void)
{
    job_run(2, rank_pipes);
}

static void a_mistake_of_one_rank_is_known_to_all(void)
{
    job_run(2, rank_refuses);
}

static void the_end_of_a_source_or_a_sink_is_known_to_all(void)
{
    job_run(2, rank_ends_a_pipeline);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(maps_and_stencils_give_what_one_process_gives),
        CASE(reductions_and_scans_give_what_one_process_gives),
        CASE(a_search_ends_on_all_ranks),
        CASE(ranks_make_as_many_steps_as_an_iteration_needs),
        CASE(batches_of_one_rank_go_through_the_stages_of_all),
        CASE(a_mistake_of_one_rank_is_known_to_all),
        CASE(the_end_of_a_source_or_a_sink_is_known_to_all),
        {NULL, NULL},
    };

    return plain_main(argc, argv, cases);
}
