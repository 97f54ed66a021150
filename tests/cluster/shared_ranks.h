/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What each rank of a job does in the tests of shared buffers: over processes without MPI
 * (test_shared.c), and over real ones (shared_mpi.c).  All ranks are attached, and come to the same
 * functions in the same order; a check that fails ends the process. */
#ifndef SHARED_RANKS_H
#define SHARED_RANKS_H

#include <stdint.h>

void rank_reads_and_writes(uint32_t rank, uint32_t count);
void rank_has_the_only_copy(uint32_t rank, uint32_t count);
void rank_writes_a_part(uint32_t rank, uint32_t count);
void rank_passes_over_its_rows(uint32_t rank, uint32_t count);
void rank_adds(uint32_t rank, uint32_t count);
void rank_takes_neighbours(uint32_t rank, uint32_t count);
void rank_takes_all_at_once(uint32_t rank, uint32_t count);
void rank_adds_with_threads(uint32_t rank, uint32_t count);
void rank_keeps_slots(uint32_t rank, uint32_t count);
void rank_moves_large_blocks(uint32_t rank, uint32_t count);
void rank_has_no_outbox(uint32_t rank, uint32_t count);
void rank_dies_with_slots(uint32_t rank, uint32_t count);
void rank_goes_through_the_others(uint32_t rank, uint32_t count);
void rank_has_little_memory(uint32_t rank, uint32_t count);
void rank_runs_out_of_heap(uint32_t rank, uint32_t count);
void rank_dies_while_it_owns(uint32_t rank, uint32_t count);
void rank_dies_in_an_access(uint32_t rank, uint32_t count);
void rank_dies_in_a_crowd(uint32_t rank, uint32_t count);
void rank_0_dies_in_a_crowd(uint32_t rank, uint32_t count);
void rank_makes_another_size(uint32_t rank, uint32_t count);
void rank_asks_for_nonsense(uint32_t rank, uint32_t count);
void rank_leaves_its_job(uint32_t rank, uint32_t count);

#endif
