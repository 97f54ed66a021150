/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Large blocks of malloc in managed memory (usm-exec --managed).  Called by large.c, by any thread. */
#ifndef USM_INSIDE_MALLOC_MANAGED_H
#define USM_INSIDE_MALLOC_MANAGED_H

#include <stdbool.h>
#include <stddef.h>

/* Once, before the others.  False: this machine does not allow it; usm_last_error() or *why says why. */
bool managed_open(const char **why);

/* NULL, with a message in usm_last_error(): there is none.  pre: align is at most 2 MiB. */
void *managed_alloc(size_t size);
/* True if p is the start of a live block, of *size bytes. */
bool managed_find(const void *p, size_t *size);
/* ... which is freed. */
void managed_free(void *p, size_t size);

/* The handlers of fork(). */
void managed_fork_prepare(void);
void managed_fork_parent(void);
void managed_fork_child(void);

#endif
