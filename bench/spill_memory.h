/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How much memory this process takes, and how much it writes; memory that the machine has; see
 * spill_memory.c. */
#ifndef USM_BENCH_SPILL_MEMORY_H
#define USM_BENCH_SPILL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* From now on the highest is kept; what there is at this moment does not count. */
bool spill_memory_watch(void);
/* Bytes over those at the watch. */
void spill_memory_get(uint64_t *peak, uint64_t *now);
/* Bytes that the process had written to storage so far (/proc/self/io). */
bool spill_memory_written(uint64_t *bytes);
/* Takes so many bytes and returns them.  The host of a virtual machine takes back what lies free for
 * some seconds, and gives it again more slowly than a disk writes: 2 ms for a MiB were seen.  What
 * begins right afterwards need not wait for that. */
void spill_memory_warm(uint64_t bytes);

#endif
