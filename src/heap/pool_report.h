/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Messages when an allocation finds no memory: always the error message for the caller, and with
 * USM_LOG=info a report of how much each pool holds; a brief one at the level warn for pools over
 * area sources and while a trace is written. */
#ifndef USM_HEAP_POOL_REPORT_H
#define USM_HEAP_POOL_REPORT_H

#include "heap/pool.h"

/* Called after `pool` could not allocate `size` bytes aligned to `align`, with `status` and an
 * error message.  Does nothing unless that is USM_E_NO_MEMORY or USM_E_BUDGET.  Otherwise it
 * extends the error message by size, kind, device and the memory that the pool holds, and logs the
 * report, for each pool at most once a second.  No lock is held. */
void usm__pool_report_full(usm_pool *pool, size_t size, size_t align, usm_status status);

#endif
