/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The launches of this process that have begun and are not released: for src/monitor. */
#ifndef USM_OFFLOAD_LAUNCHES_H
#define USM_OFFLOAD_LAUNCHES_H

#include "offload/parallel.h"

#include <usm/pool_ops.h>

void usm__launches_add(usm_parallel_run *r);
void usm__launches_remove(usm_parallel_run *r);
/* Calls fn for each, the oldest first, with the locks of the list, the team and the launch held. */
void usm__launches_each(void (*fn)(usm_parallel_run *r, void *arg), void *arg);
/* In a child the list is empty: launches are the parent's. */
void usm__launches_fork(usm_fork_phase phase);

#endif
