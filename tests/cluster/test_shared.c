/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Buffers that ranks share, over processes without MPI (job_fixture.h).  What the ranks do is in
 * shared_ranks.c. */
#include "cluster/job_fixture.h"

#include "cluster/shared_ranks.h"

#include <usm/usm.h>

/* That rank is killed; all others end well. */
static void run_and_lose(uint32_t victim, uint32_t count, job_rank_fn *fn)
{
    int status[JOB_RANKS_MAX];

    job_run_some(count, fn, status);
    for (uint32_t r = 0; r < count; r++)
        CHECK_INT(status[r], r == victim ? SIGKILL : 0);
}

static void what_one_rank_writes_all_others_read(void)
{
    job_run(3, rank_reads_and_writes);
}

static void a_block_moves_with_the_right_to_write_it(void)
{
    job_run(2, rank_has_the_only_copy);
}

static void no_init_of_a_part_keeps_the_rest_of_the_block(void)
{
    job_run(4, rank_writes_a_part);
}

static void a_matrix_is_the_same_bit_by_bit_as_in_one_process(void)
{
    job_run(1, rank_passes_over_its_rows);
    job_run(3, rank_passes_over_its_rows);
    job_run(4, rank_passes_over_its_rows);
}

static void four_ranks_add_to_one_number_and_nothing_is_lost(void)
{
    job_run(4, rank_adds);
}

static void accesses_to_several_blocks_do_not_lock_each_other_out(void)
{
    job_run(4, rank_takes_neighbours);
}

static void an_access_to_many_blocks_asks_for_them_ahead_and_finds_the_last_write(void)
{
    job_run(4, rank_takes_all_at_once);
}

static void threads_of_several_ranks_write_parts_of_one_block(void)
{
    job_run(3, rank_adds_with_threads);
}

static void what_a_rank_keeps_goes_down_its_tiers(void)
{
    const char *folder = getenv("USM_PLUGIN_PATH");
    char        module[4096];

    (void)snprintf(module, sizeof module, "%s/libusm_transport_file.so", folder ? folder : ".");
    if (access(module, R_OK) != 0)
        SKIP("the transport file is not built");
    CHECK_INT(setenv("USM_MEMORY_LIMIT", "host:1M", 1), 0);
    CHECK_INT(setenv("USM_SPILL", "file:/var/tmp", 1), 0);
    job_run(2, rank_has_little_memory);
    CHECK_INT(unsetenv("USM_SPILL"), 0);
    CHECK_INT(unsetenv("USM_MEMORY_LIMIT"), 0);
}

/* Whose bytes need no memory of the heap where they come through slots. */
static void an_access_that_gets_no_memory_can_be_tried_again(void)
{
    CHECK_INT(setenv("USM_MPI_NEAR", "0", 1), 0);
    job_run(2, rank_runs_out_of_heap);
    CHECK_INT(unsetenv("USM_MPI_NEAR"), 0);
}

static void without_shared_memory_bytes_go_in_messages(void)
{
    CHECK_INT(setenv("USM_MPI_NEAR", "0", 1), 0);
    job_run(3, rank_reads_and_writes);
    job_run(4, rank_takes_all_at_once);
    job_run(2, rank_moves_large_blocks);
    CHECK_INT(unsetenv("USM_MPI_NEAR"), 0);
    job_run(3, rank_has_no_outbox);
}

static void slots_are_kept_in_part_only_and_all_come_back(void)
{
    job_run(2, rank_keeps_slots);
}

static void blocks_larger_than_a_slot_come_in_pieces(void)
{
    job_run(3, rank_moves_large_blocks);
}

static void slots_of_a_rank_that_dies_are_not_used_again(void)
{
    run_and_lose(1, 2, rank_dies_with_slots);
}

static void accesses_one_behind_the_other_are_read_ahead(void)
{
    job_run(2, rank_goes_through_the_others);
}

static void a_rank_that_dies_takes_what_it_owned_and_nothing_else(void)
{
    run_and_lose(1, 2, rank_dies_while_it_owns);
    run_and_lose(3, 4, rank_dies_while_it_owns);
}

static void who_waits_for_a_rank_that_dies_is_told(void)
{
    run_and_lose(3, 4, rank_dies_in_an_access);
}

static void nobody_hangs_when_a_rank_dies_in_a_crowd(void)
{
    for (unsigned i = 0; i < 3; i++) {
        run_and_lose(3, 4, rank_dies_in_a_crowd);
        run_and_lose(0, 4, rank_0_dies_in_a_crowd);
    }
}

static void ranks_that_disagree_make_nothing(void)
{
    job_run(3, rank_makes_another_size);
}

static void accesses_that_make_no_sense_are_refused(void)
{
    job_run(2, rank_asks_for_nonsense);
}

static void who_has_left_the_job_is_told(void)
{
    job_run(3, rank_leaves_its_job);
}

static void a_process_alone_is_told_to_attach(void)
{
    usm_shared_buffer_desc d = USM_SHARED_BUFFER_DESC_INIT;
    usm_shared_buffer     *s = NULL;

    d.size = 1;
    CHECK_INT(usm_shared_buffer_create(NULL, &d, &s), USM_E_MPI);
    CHECK_IN("usm_mpi_attach", usm_last_error());
    usm_shared_buffer_destroy(NULL);
}

static void without_a_thread_of_the_transport_messages_go_all_the_same(void)
{
    job_plan_now.by_calls = true;
    job_run(3, rank_reads_and_writes);
    job_plan_now.by_calls = false;
}

static const plain_case cases[] = {
    CASE(what_one_rank_writes_all_others_read),
    CASE(a_block_moves_with_the_right_to_write_it),
    CASE(no_init_of_a_part_keeps_the_rest_of_the_block),
    CASE(a_matrix_is_the_same_bit_by_bit_as_in_one_process),
    CASE(four_ranks_add_to_one_number_and_nothing_is_lost),
    CASE(accesses_to_several_blocks_do_not_lock_each_other_out),
    CASE(an_access_to_many_blocks_asks_for_them_ahead_and_finds_the_last_write),
    CASE(threads_of_several_ranks_write_parts_of_one_block),
    CASE(what_a_rank_keeps_goes_down_its_tiers),
    CASE(an_access_that_gets_no_memory_can_be_tried_again),
    CASE(without_shared_memory_bytes_go_in_messages),
    CASE(slots_are_kept_in_part_only_and_all_come_back),
    CASE(blocks_larger_than_a_slot_come_in_pieces),
    CASE(slots_of_a_rank_that_dies_are_not_used_again),
    CASE(accesses_one_behind_the_other_are_read_ahead),
    CASE(a_rank_that_dies_takes_what_it_owned_and_nothing_else),
    CASE(who_waits_for_a_rank_that_dies_is_told),
    CASE(nobody_hangs_when_a_rank_dies_in_a_crowd),
    CASE(ranks_that_disagree_make_nothing),
    CASE(accesses_that_make_no_sense_are_refused),
    CASE(who_has_left_the_job_is_told),
    CASE(without_a_thread_of_the_transport_messages_go_all_the_same),
    CASE(a_process_alone_is_told_to_attach), /* the parent starts libusm: the last */
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
