/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The state of the checker of stream order (observe/order_check.h), which its files share: each
 * part says which file has its functions.  No other file includes this. */
#ifndef USM_OBSERVE_ORDER_STATE_H
#define USM_OBSERVE_ORDER_STATE_H

#include "base/mutex.h"
#include "observe/order_expect.h"

#define USM__ORDER_BUCKETS 4096u

struct usm__order_node;

typedef struct usm__chain {
    uint64_t last;  /* ticks issued                            */
    uint64_t known; /* ticks that the host knows to have ended */
    bool     is_owned, is_user;
} usm__chain;

typedef struct usm__order_state {
    atomic_int        active; /* USM__ORDER_CHECK and _VALIDATE; 0: nothing is checked */
    _Atomic(uint64_t) violations;
    bool              is_debug; /* USM_DEBUG, fixed: the library itself writes to blocks */
    usm__mutex        lock;
    /* guarded by lock */
    struct usm__order_node *queues[USM__ORDER_BUCKETS], *events[USM__ORDER_BUCKETS];
    uint64_t serials, commands, nlives; /* so far: queues, commands, lives of blocks */
    struct {
        usm__chain *list;
        uint32_t    n;
        size_t      cap;
        uint32_t    hand; /* where the search for a reusable chain continues */
    } chains;             /* order_clock.c */
    usm__life *lives;     /* order_block.c: the root of the tree */
    uint32_t   random;    /* order_block.c: the last priority in the tree */
    struct {
        usm__expected *list;
        uint32_t       n;
        size_t         cap;
    } expected; /* order_expect.c: what waits for a user event */
} usm__order_state;

/* of order_check.c */
extern usm__order_state usm__order __attribute__((visibility("hidden")));

#endif
