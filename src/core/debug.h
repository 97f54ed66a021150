/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_DEBUG=redzone,poison,leaks: what is done to a block of the program's own memory, on any kind
 * and pool.  Called by core/observe.c, which says when. */
#ifndef USM_CORE_DEBUG_H
#define USM_CORE_DEBUG_H

#include "core/watch.h"

enum { USM__DEBUG_REDZONE = 1, USM__DEBUG_POISON = 2, USM__DEBUG_LEAKS = 4 };

/* USM_DEBUG, read once, before the first block. */
unsigned usm__debug_checks(void);
/* The check of the setting `debug`. */
bool usm__debug_check(const char *text, char *why, size_t why_size);

/* What is asked of the pool so that a block has room for its zones. */
typedef struct usm__debug_plan {
    size_t align, size, front;
} usm__debug_plan;

/* front == 0: no zones. */
void usm__debug_plan_for(const usm_pool *pool, size_t align, size_t size, usm__debug_plan *plan);
/* A block comes: zones, and poison where the program's bytes need not be zero.  Blocks until a
 * device has done it. */
void usm__debug_paint(usm__record *r);
/* It goes: reports zones that were written to ... */
void usm__debug_inspect(const usm__record *r);
/* ... and poisons what the program wrote. */
void usm__debug_wipe(const usm__record *r);
/* Lists the blocks of `pool`, in the log as warnings; NULL: all that this process, not its parent,
 * allocated.  No driver is called.  How many there are. */
size_t usm__debug_list(const usm_pool *pool);

#endif
