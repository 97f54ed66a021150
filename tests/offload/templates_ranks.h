/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What ranks do in tests of templates (templates_ranks.c): run by test_templates_ranks.c over
 * processes of the fixture, by templates_mpi.c over those of an MPI.  Each template's result is
 * compared with plain C on the rank that has the data. */
#ifndef TEMPLATES_RANKS_H
#define TEMPLATES_RANKS_H

#include <stdint.h>

void rank_maps(uint32_t rank, uint32_t count);
void rank_joins(uint32_t rank, uint32_t count);
void rank_searches(uint32_t rank, uint32_t count);
void rank_iterates(uint32_t rank, uint32_t count);
void rank_pipes(uint32_t rank, uint32_t count);
/* Mistakes and a source that ends: every rank's call fails, and the next one works. */
void rank_refuses(uint32_t rank, uint32_t count);
void rank_ends_a_pipeline(uint32_t rank, uint32_t count);

#endif
