/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the baselines over MPI have in common: rank 0 is told when to run, the others sleep until it
 * says so, and each takes its next chunk from a counter at rank 0. */
#ifndef BASELINE_RANKS_H
#define BASELINE_RANKS_H

#include <mpi.h>

#include "baseline.h"

struct ranks {
    int      rank, size;
    MPI_Win  window; /* of the counter, locked by all, all the time */
    int64_t *counter;
};

void ranks_init(struct ranks *r, int *argc, char ***argv);
/* The same, once MPI is initialised. */
void ranks_open(struct ranks *r);
/* baseline_next() for all of them, and everyone's counter is 0 again. */
bool ranks_next(struct ranks *r, struct baseline *b);
/* The next chunk that nobody has; from b->chunks on there is none left. */
int64_t ranks_take(struct ranks *r);
/* Nobody gets another chunk. */
void ranks_cancel(struct ranks *r, int64_t chunks);
/* Waits for everyone; then baseline_stop(), and at rank 0 the processor time of all. */
double ranks_stop(struct ranks *r, struct baseline *b);
void   ranks_fini(struct ranks *r);

#endif
