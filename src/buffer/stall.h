/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A warning when commands that wait for memory do not move (stall.c).  Called by grant.c. */
#ifndef USM_BUFFER_STALL_H
#define USM_BUFFER_STALL_H

/* A command was deferred: somebody looks from now on.  No lock is held. */
void usm__stall_watch(void);
void usm__stall_in_child(void);

#endif
