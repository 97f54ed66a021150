/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What buffers cost while everything fits into memory; see spill_cost.c.  Called by
 * spill_worker.c. */
#ifndef USM_BENCH_SPILL_COST_H
#define USM_BENCH_SPILL_COST_H

#include "plugin.h"

#include <stdbool.h>

/* ns of an operation, medians; theirs 0 where there is no peer in the process. */
typedef struct spill_cost {
    double ours, theirs;
} spill_cost;

/* false and a text: no such cost, or it cannot be measured. */
bool spill_cost_measure(const char *name, spill_cost *cost, const char **why);
/* The same of a plugin's buffers: "create" and "device". */
bool spill_cost_of_plugin(const bench_buffers *buffers, const char *name, spill_cost *cost,
                          const char **why);
/* ns to hash a byte, times 2^20: of the checksum that tiers use; 0: not built in. */
double spill_cost_checksum(void);

#endif
