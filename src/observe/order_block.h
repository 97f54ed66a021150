/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lifetimes of blocks, for the checker of stream order (observe/order_check.h): the allocation of
 * each block, the commands that use it, and those uses of the previous blocks at its addresses that
 * have not ended.  Everything is guarded by the lock of order_check.c. */
#ifndef USM_OBSERVE_ORDER_BLOCK_H
#define USM_OBSERVE_ORDER_BLOCK_H

#include "observe/order_clock.h"

#include "base/inline/list.h"

/* A command that uses a block, or frees it. */
typedef struct usm__order_use {
    usm__tick   tick;
    const char *what;   /* "copy"; a static string            */
    uint64_t    queue;  /* the queue's serial number          */
    uint64_t    number; /* the command's number in that queue */
} usm__order_use;

typedef struct usm__order_uses {
    usm__order_use *use; /* the last one of each chain */
    uint32_t        n;
    size_t          cap;
} usm__order_uses;

typedef enum usm__life_state {
    USM__LIFE_LIVE   = 0,
    USM__LIFE_QUEUED = 1, /* freed in a queue */
    USM__LIFE_OVER   = 2  /* back in the pool */
} usm__life_state;

typedef struct usm__life {
    struct usm__life *left, *right; /* tree by address      */
    uint32_t          order;        /* priority in the heap */
    usm__life_state   state;
    uintptr_t         lo, hi;
    usm__order_use    born;         /* uses come after it; no tick: allocated by the host     */
    bool              is_named;     /* was reported as freed while in use                     */
    usm__order_uses   uses, before; /* its own; those of the previous blocks at its addresses */
    usm_list          freed;        /* QUEUED: in the queue's list                            */
    uint64_t          position;     /* QUEUED: the position in the queue                      */
} usm__life;

/* The lifetime that p lies in; NULL: none. */
usm__life *usm__life_at(uintptr_t p);
/* The first one that ends behind p. */
usm__life *usm__life_from(uintptr_t p);
/* Begins a lifetime of [lo, hi).  Earlier ones there are over, and their uses become the new one's
 * `before`.  NULL: no memory. */
usm__life *usm__life_begin(uintptr_t lo, uintptr_t hi);
/* Removes all lifetimes of [lo, hi). */
bool usm__life_forget(uintptr_t lo, uintptr_t hi);

bool usm__order_uses_add(usm__order_uses *u, usm__order_use use);
/* Removes the uses that the host knows to have ended. */
void usm__order_uses_prune(usm__order_uses *u);
/* Marks the uses of all blocks as ended. */
void usm__lives_settle(void);

#endif
