/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What must come after what, for the checker of stream order (core/order_check.h), and the line in
 * the log when it does not.  What comes after a user event that nobody has signalled yet is looked
 * at again then: all that the host learns before it signals comes before the command too.  All
 * under the lock of order_check.c; false: memory ran out. */
#ifndef USM_CORE_ORDER_EXPECT_H
#define USM_CORE_ORDER_EXPECT_H

#include "core/order_block.h"

/* `by` comes after `former`, or it is `why`. */
typedef struct usm__expected {
    usm__clock  clock; /* kept while it waits                                          */
    usm__use    former, by;
    uintptr_t   p; /* the block                                                        */
    const char *why;
} usm__expected;

/* `clock` is that of what->by. */
bool usm__expect(const usm__clock *clock, const usm__expected *what);
/* The same of each of `former`. */
bool usm__expect_all(const usm__clock *clock, const usm__uses *former, usm__expected what);
/* The host itself does `why`: all must be known to have ended. */
void usm__expect_known(usm__uses *former, uintptr_t p, const char *why);
/* A user event was signalled; will never be. */
void usm__expect_look(void);
void usm__expect_forget(usm__tick user);
void usm__expect_drop_all(void);

/* Counts and logs, under USM_HOOKS=order; former may be NULL. */
void usm__order_report(const char *why, uintptr_t p, const usm__use *by, const usm__use *former);
void usm__order_count(void);
/* "copy 3 of queue 2" */
const char *usm__use_name(const usm__use *u, char *text, size_t size);

#endif
