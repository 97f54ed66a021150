/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Warns when commands that wait for memory make no progress (stall.c).  Called by grant.c. */
#ifndef USM_BUFFER_STALL_H
#define USM_BUFFER_STALL_H

/* A command was deferred: from now on a thread checks for progress.  No lock is held. */
void usm__stall_watch(void);
void usm__stall_in_child(void);

#endif
