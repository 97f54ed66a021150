/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What each rank of a job does in the tests of teams over ranks: over processes without MPI
 * (test_ranks.c), and over real ones (ranks_mpi.c); ranks_cases.c, ranks_lost.c.  All ranks come to
 * the same functions in the same order; a check that fails ends the process. */
#ifndef RANKS_CASES_H
#define RANKS_CASES_H

#include <stdint.h>

void rank_fills(uint32_t rank, uint32_t count);
void rank_fills_for_another_home(uint32_t rank, uint32_t count);
void rank_has_neighbours(uint32_t rank, uint32_t count);
void rank_sums(uint32_t rank, uint32_t count);
void rank_finds_the_first(uint32_t rank, uint32_t count);
void rank_leaves_rounds_when_it_is_found(uint32_t rank, uint32_t count);
void rank_launches_two_at_a_time(uint32_t rank, uint32_t count);
void rank_tells_its_figures(uint32_t rank, uint32_t count);
void rank_updates_in_place(uint32_t rank, uint32_t count);
void rank_launches_often(uint32_t rank, uint32_t count);
void rank_names_members(uint32_t rank, uint32_t count);
void rank_moves_much(uint32_t rank, uint32_t count);
void rank_1_is_slow(uint32_t rank, uint32_t count);
void rank_1_cancels(uint32_t rank, uint32_t count);
void rank_1_says_stop_in_progress(uint32_t rank, uint32_t count);
void rank_1_launches_something_else(uint32_t rank, uint32_t count);
void rank_1_is_refused(uint32_t rank, uint32_t count);
void rank_0_is_refused_often(uint32_t rank, uint32_t count);
void rank_has_no_memory(uint32_t rank, uint32_t count);
void rank_names_a_home_that_is_none(uint32_t rank, uint32_t count);
void rank_counts_its_energy(uint32_t rank, uint32_t count);
/* The last rank, which is neither the master nor home. */
void last_rank_dies_early(uint32_t rank, uint32_t count);
void last_rank_dies_halfway(uint32_t rank, uint32_t count);
void last_rank_dies_late(uint32_t rank, uint32_t count);
void last_rank_dies_summing(uint32_t rank, uint32_t count);
void last_rank_dies_updating(uint32_t rank, uint32_t count);
void last_rank_is_stopped(uint32_t rank, uint32_t count);
void last_rank_dies_and_may_not_be_replaced(uint32_t rank, uint32_t count);
void last_rank_dies_finding(uint32_t rank, uint32_t count);
void last_rank_dies_finding_nothing(uint32_t rank, uint32_t count);
void last_rank_dies_below_what_is_found(uint32_t rank, uint32_t count);
void last_rank_dies_before_a_cancel(uint32_t rank, uint32_t count);
void last_rank_dies_at_a_cancel(uint32_t rank, uint32_t count);
void last_rank_dies_after_a_cancel(uint32_t rank, uint32_t count);
void last_rank_dies_in_two_launches(uint32_t rank, uint32_t count);
void last_rank_leaves(uint32_t rank, uint32_t count);
void last_rank_leaves_at_work(uint32_t rank, uint32_t count);
void home_dies(uint32_t rank, uint32_t count);
void master_dies(uint32_t rank, uint32_t count);

#endif
