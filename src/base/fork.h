/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The handling of fork() in src/base: its locks are taken before and released after, so that the
 * data they guard is consistent in the child.  The core's fork handler calls usm__base_fork() last
 * before and first after the fork. */
#ifndef USM_BASE_FORK_H
#define USM_BASE_FORK_H

enum { USM__FORK_PREPARE = 0, USM__FORK_PARENT = 1, USM__FORK_CHILD = 2 };

void usm__base_fork(int phase);

/* The part of each file; only usm__base_fork() calls these. */
void usm__meta_fork(int phase);
void usm__log_fork(int phase);
void usm__thread_fork(int phase);
void usm__fault_fork(int phase);

struct usm__mutex;
/* Locks, unlocks or re-initialises one mutex, by phase. */
void usm__mutex_fork(struct usm__mutex *m, int phase);

#endif
