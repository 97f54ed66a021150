/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Managed ranges: shared by the files of src/managed.  The mechanism is explained in managed.c. */
#ifndef USM_MANAGED_MANAGED_H
#define USM_MANAGED_MANAGED_H

#include "base/mutex.h"
#include "managed/mechanism.h"
#include "spill/engine.h"

#include <usm/managed.h>

typedef enum usm__managed_state {
    USM__MANAGED_AWAY      = 0, /* not in the range                                             */
    USM__MANAGED_PROTECTED = 1, /* in the range, write-protected                                */
    USM__MANAGED_WRITABLE  = 2,
    USM__MANAGED_LOST      = 3 /* poisoned: an access could not be served                       */
} usm__managed_state;

typedef struct usm__managed {
    /* fixed after create */
    /* Held as a user; its error callback is told of accesses that fail.  NULL: the default context,
     * which usm_shutdown() ends, and which the range outlives. */
    usm_context *ctx;
    char        *base;
    size_t       size, mapped; /* that the program asked for; whole blocks                       */
    usm__space  *space;
    const usm__mechanism *mechanism;
    usm__view             view;
    size_t                block_size;
    /* guarded by managed.c's lock */
    unsigned users; /* threads that use the range: it is not freed meanwhile                     */

    usm__mutex lock;
    /* guarded by lock */
    bool    is_ending; /* it is being freed: nothing in it is needed any more                    */
    uint8_t states[];  /* a usm__managed_state for each block                                    */
} usm__managed;

/* managed.c */
/* The range around p, until usm__managed_put(); NULL: there is none. */
usm__managed *usm__managed_get(const void *p);
void          usm__managed_put(usm__managed *r);
/* Brings a block into the range. */
usm_status usm__managed_bring(usm__managed *r, uint32_t block, bool is_write);
/* The block is in the range, but the page at `at` is not: the program has taken it away (madvise()).
 * Accesses to it fail from now on.  False also where the kernel cannot tell. */
bool usm__managed_has_hole(usm__managed *r, uint32_t block, void *at, size_t page);
/* No access of the block can be served: those that wait for it fail. */
void usm__managed_lose(usm__managed *r, uint32_t block);

/* fault.c */
/* Starts the threads that serve the faults that it tells of. */
usm_status usm__managed_serve(const usm__mechanism *m);

extern const usm_part usm__managed_part;

#endif
