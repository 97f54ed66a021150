/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* USM_DEBUG=redzone,poison,leaks: the checks of blocks that the program allocates, for every kind
 * of memory and every pool.  Called by observe/observe.c, which decides when. */
#ifndef USM_OBSERVE_DEBUG_H
#define USM_OBSERVE_DEBUG_H

#include "observe/tracked.h"

enum { USM__DEBUG_REDZONE = 1, USM__DEBUG_POISON = 2, USM__DEBUG_LEAKS = 4 };

/* The value of USM_DEBUG; read once, before the first block. */
unsigned usm__debug_checks(void);
/* Checks a text for the setting `debug`. */
bool usm__debug_check(const char *text, char *why, size_t why_size);

/* The request to the pool, enlarged so that the block has room for its zones. */
typedef struct usm__debug_plan {
    size_t align, size, front;
} usm__debug_plan;

/* front == 0: no zones. */
void usm__debug_plan_for(const usm_pool *pool, size_t align, size_t size, usm__debug_plan *plan);
/* Called after the allocation of a block: writes the zones, and poison unless the program's bytes
 * must be zero.  Waits until a device has done so. */
void usm__debug_paint(usm__record *r);
/* Called before its free: reports zones that were overwritten ... */
void usm__debug_inspect(const usm__record *r);
/* ... and poisons the program's bytes. */
void usm__debug_wipe(const usm__record *r);
/* Lists the blocks of `pool` in the log, as warnings; NULL: all blocks that this process, not its
 * parent, allocated.  Calls no driver.  Returns their number. */
size_t usm__debug_list(const usm_pool *pool);

#endif
