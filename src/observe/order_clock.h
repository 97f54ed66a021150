/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Clocks of the checker of stream order (observe/order_check.h): vector clocks.
 *
 * Commands are arranged in chains: those of an in-order queue in one, those of an out-of-order
 * queue in as many as can run in parallel, and a user event in one of its own.  A tick is the n-th
 * element of a chain, and stands for all elements up to it.  The clock of a command contains
 * everything that it comes after, and itself, as one tick for each chain:
 *
 *     queue 1 (chain 0)    a1 --- a2 --- a3             a3 = {0: 3, 1: 1}
 *                                       /
 *     queue 2 (chain 1)    b1 ---------+   b2           b2 = {1: 2}:  a1 .. a3 and b2 are unordered
 *
 * Ticks that the host knows to have ended are left out of clocks, because everything queued later
 * comes after them.  So clocks stay short, and a chain whose last tick is known can be reused.
 *
 * Used by order_check.c and order_block.c, whose lock guards all of it. */
#ifndef USM_OBSERVE_ORDER_CLOCK_H
#define USM_OBSERVE_ORDER_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct usm__tick {
    uint32_t chain;
    uint64_t at; /* 0: no tick */
} usm__tick;

typedef struct usm__clock {
    usm__tick *tick;
    uint32_t   n;
    size_t     cap;
    bool       is_foreign; /* depends on an event that libusm did not make: its past is unknown */
} usm__clock;

/* These functions, and all below, return false if memory ran out: the checker then stops. */
bool usm__clock_raise(usm__clock *c, usm__tick t);
bool usm__clock_join(usm__clock *c, const usm__clock *other);
bool usm__clock_set(usm__clock *c, const usm__clock *other);
bool usm__clock_has(const usm__clock *c, usm__tick t);
void usm__clock_fini(usm__clock *c);
/* True if the clock contains a user event that has not been signalled. */
bool usm__clock_is_open(const usm__clock *c);

bool usm__chain_new(bool is_user, uint32_t *chain);
/* The owner of the chain has gone. */
void      usm__chain_drop(uint32_t chain);
usm__tick usm__chain_next(uint32_t chain);
usm__tick usm__chain_last(uint32_t chain);

/* The ticks that the host knows to have ended. */
bool usm__order_host_knows(usm__tick t);
void usm__order_host_learns(const usm__clock *c);
void usm__order_host_learns_tick(usm__tick t);
void usm__order_host_knows_all(void);

/* Makes room for another element after n of `size` bytes; doubles the list if it is full. */
bool usm__order_grow(void *list, size_t *cap, size_t n, size_t size);

#endif
