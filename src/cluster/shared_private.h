/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the two halves of the state machine: shared_state.c, a rank's own blocks, and
 * shared_dir.c, the directories that the rank keeps. */
#ifndef USM_CLUSTER_SHARED_PRIVATE_H
#define USM_CLUSTER_SHARED_PRIVATE_H

#include "cluster/shared_state.h"

static inline uint32_t usm__shared_next_living(const usm__shared_machine *m, uint32_t rank)
{
    while (m->lost[rank])
        rank = (rank + 1) % m->ranks;
    return rank;
}

static inline uint32_t usm__shared_dir_of(const usm__shared_machine *m, uint64_t block)
{
    return usm__shared_next_living(m, usm__shared_home(m, block));
}

/* Handles messages for the directory of a block, if this rank is the directory. */
void usm__shared_dir_receive(usm__shared_machine *m, uint32_t from, const usm__shared_message *msg);
/* Handles the loss of a rank in the directories that were here before; m->lost[rank] is set. */
void usm__shared_dir_rank_lost(usm__shared_machine *m, uint32_t rank);
/* Makes this rank the directory of the blocks of `home` from now on. */
void usm__shared_dir_take_over(usm__shared_machine *m, uint32_t home);
void usm__shared_dir_free(usm__shared_machine *m);

#endif
