/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What is said when an allocation finds no memory: the story for the caller, always, and with
 * USM_LOG=info the report of who holds what. */
#ifndef USM_CORE_POOL_REPORT_H
#define USM_CORE_POOL_REPORT_H

#include "core/pool.h"

/* The calling thread's story says why `pool` could not serve `size` bytes aligned to `align`, with
 * `status`.  Unless that is USM_E_NO_MEMORY or USM_E_BUDGET, nothing happens.  Else the story is
 * told anew with size, kind, device and what the pool holds, and the report is logged, at most once
 * a second and pool.  No lock is held. */
void usm__pool_report_full(usm_pool *pool, size_t size, size_t align, usm_status status);

#endif
