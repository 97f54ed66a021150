/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Expectations of the checker of stream order (observe/order_check.h): a command must come after
 * another; a line is logged if it does not.  If the command depends on a user event that has not
 * been signalled, the check is repeated after the signal, because everything that the host learns
 * before it signals comes before the command too.  All state is guarded by the lock of
 * order_check.c; false: memory ran out. */
#ifndef USM_OBSERVE_ORDER_EXPECT_H
#define USM_OBSERVE_ORDER_EXPECT_H

#include "observe/order_block.h"

/* `by` must come after `former`; otherwise `why` is the violation. */
typedef struct usm__expected {
    usm__clock     clock; /* set while the check is deferred */
    usm__order_use former, by;
    uintptr_t      p; /* the block                                                        */
    const char    *why;
} usm__expected;

/* `clock` is the clock of what->by. */
bool usm__expect(const usm__clock *clock, const usm__expected *what);
/* The same for each of `former`. */
bool usm__expect_all(const usm__clock *clock, const usm__order_uses *former, usm__expected what);
/* The host itself does `why`: all of `former` must be known to have ended. */
void usm__expect_known(usm__order_uses *former, uintptr_t p, const char *why);
/* A user event was signalled; _forget: it never will be. */
void usm__expect_look(void);
void usm__expect_forget(usm__tick user);
void usm__expect_drop_all(void);

/* Counts and logs a violation, under USM_HOOKS=order; former may be NULL. */
void usm__order_report(const char *why, uintptr_t p, const usm__order_use *by,
                       const usm__order_use *former);
void usm__order_count(void);
/* Writes a name such as "copy 3 of queue 2". */
const char *usm__order_use_name(const usm__order_use *u, char *text, size_t size);

#endif
