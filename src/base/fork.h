/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What base does around fork(): its locks are taken before, so that what they
 * guard is whole in the child, and given back after.  The core's fork handler
 * calls usm__base_fork() last before and first after the fork. */
#ifndef USM_BASE_FORK_H
#define USM_BASE_FORK_H

enum { USM__FORK_PREPARE = 0, USM__FORK_PARENT = 1, USM__FORK_CHILD = 2 };

void usm__base_fork(int phase);

/* Each file's part; only usm__base_fork() calls them. */
void usm__meta_fork(int phase);
void usm__log_fork(int phase);
void usm__thread_fork(int phase);
void usm__fault_fork(int phase);

struct usm__mutex;
/* Takes, gives back or renews one mutex, by phase. */
void usm__mutex_fork(struct usm__mutex *m, int phase);

#endif
