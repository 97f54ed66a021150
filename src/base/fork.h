/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The handling of fork() in src/base: its locks are taken before and released after, so that the
 * data they guard is consistent in the child.  The core's fork handler calls usm__base_fork() last
 * before and first after the fork. */
#ifndef USM_BASE_FORK_H
#define USM_BASE_FORK_H

#include <usm/pool_ops.h>

void usm__base_fork(usm_fork_phase phase);

/* The part of each file; only usm__base_fork() calls these. */
void usm__meta_fork(usm_fork_phase phase);
void usm__log_fork(usm_fork_phase phase);
void usm__thread_fork(usm_fork_phase phase);
void usm__fault_fork(usm_fork_phase phase);

struct usm__mutex;
/* Locks, unlocks or re-initialises one mutex, by phase. */
void usm__mutex_fork(struct usm__mutex *m, usm_fork_phase phase);

#endif
