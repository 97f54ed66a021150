/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lives of blocks, for the checker of stream order (core/order_check.h): when each was allocated,
 * who uses it, and what is still to end of those that had the addresses before.  All under the
 * lock of order_check.c. */
#ifndef USM_CORE_ORDER_BLOCK_H
#define USM_CORE_ORDER_BLOCK_H

#include "core/order_clock.h"

#include "base/inline/list.h"

/* A command that uses a block, or ends it. */
typedef struct usm__use {
    usm__tick   tick;
    const char *what;   /* "copy"; lives for ever                                       */
    uint64_t    queue;  /* its serial                                                   */
    uint64_t    number; /* the how manieth there                                        */
} usm__use;

typedef struct usm__uses {
    usm__use *use; /* the last of each chain                                            */
    uint32_t  n, cap;
} usm__uses;

typedef enum usm__life_state {
    USM__LIFE_LIVE   = 0,
    USM__LIFE_QUEUED = 1, /* freed in a queue                                           */
    USM__LIFE_OVER   = 2  /* the pool has it                                             */
} usm__life_state;

typedef struct usm__life {
    struct usm__life *left, *right; /* tree by address                                  */
    uint32_t          order;        /* a heap by this                                   */
    usm__life_state   state;
    uintptr_t         lo, hi;
    usm__use          born;         /* users come after it; no tick: the host's               */
    bool              is_named;     /* as freed while in use                                  */
    usm__uses         uses, before; /* its own; of those who had its addresses             */
    usm_list          freed;        /* QUEUED: in the queue's list                         */
    uint64_t          position;     /* QUEUED: there                                       */
} usm__life;

/* The life that p lies in; NULL when there is none. */
usm__life *usm__life_at(uintptr_t p);
/* The first that ends behind p. */
usm__life *usm__life_from(uintptr_t p);
/* A new life of [lo, hi): what was there is over, and its uses are the new one's `before`.  NULL
 * when memory ran out. */
usm__life *usm__life_begin(uintptr_t lo, uintptr_t hi);
/* Nothing is there any more. */
bool usm__life_forget(uintptr_t lo, uintptr_t hi);

bool usm__uses_add(usm__uses *u, usm__use use);
/* Without those that the host knows to have ended. */
void usm__uses_prune(usm__uses *u);
/* All, as far as anybody knows, have ended. */
void usm__lives_settle(void);

#endif
