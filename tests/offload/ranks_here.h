/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the cases of ranks (ranks_cases.c) and of ranks that get lost (ranks_lost.c) share: this
 * rank's team, its kernels, and launches of each. */
#ifndef RANKS_HERE_H
#define RANKS_HERE_H

#include "ranks_cases.h"

#include "plain.h"

#include <usm/parallel.h>
#include <usm/usm.h>

#include <stdatomic.h>

enum { TABLE = 5000, TOTAL = 60000, NOTHING = -1, ROUNDS = 20 };

/* What the kernels do besides: this rank's. */
extern struct rank_here {
    usm_team   *team;
    size_t      die_at, stop_at; /* from this index on; 0: never                              */
    unsigned    ns;              /* an index takes, asleep                                    */
    bool        has_energy;      /* teams count it */
    atomic_bool has_stopped;
    atomic_uint_fast64_t indices;
} here;

void must(usm_status st, usm_status want);
/* "fill", "blur", "sum", "find", "update", "seek" of a new team over all ranks. */
usm_team_kernel *begin(const char *name);
void             end(usm_team_kernel *k);
usm_team_kernel *kernel_of_team(const char *name);

usm_parallel_desc launch_of(usm_team_kernel *k, size_t total, const usm_split_arg *args,
                            size_t nargs);
uint32_t         *make_table(void);
uint64_t          value_at(size_t i, const uint32_t *table);

/* One launch, and whether what home has then is right. */
usm_status fill_once(usm_team_kernel *k, uint32_t home, uint32_t rank, size_t total,
                     usm_parallel_stats *stats);
void       sum_once(usm_team_kernel *k, uint32_t rank, uint32_t home, double *result);
void       find_once(usm_team_kernel *k, uint32_t rank, uint32_t home, size_t want);
void       seek_once(usm_team_kernel *k, uint32_t rank, uint32_t home, size_t want);
usm_status update_once(usm_team_kernel *k, uint32_t rank, uint32_t home, uint32_t flags);

/* A thread: of the usm_parallel_run, after 100 ms. */
void *cancel_soon(void *run);

#endif
