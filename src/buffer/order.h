/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Who waits for whom: the outstanding accesses to one buffer, by range, and which of them a new one
 * must wait for: read after write, write after read, write after write; disjoint ranges never.
 *
 * An access that ended is removed.  One whose waiting is implied by a newer one's is put aside
 * ("covered"): a write over the same bytes waits for it, or it is a read before another read in the
 * same in-order lane, which has its place there already (enter.c).  Commands then wait for the
 * newer one alone, so that a long chain of commands has one dependency each; who looks at all (the
 * host, which must not go on while anything still runs) sees the covered ones too.
 *
 * And the ranges whose content a failed command left undefined.
 *
 * Pure: no lock, no allocation, no driver; tests/unit/test_order.c checks it against a model.
 * Called by track.c, under its lock. */
#ifndef USM_BUFFER_ORDER_H
#define USM_BUFFER_ORDER_H

#include "base/inline/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <usm/buffer.h>

typedef struct usm__order_entry {
    usm_list        link;
    size_t          begin, end; /* bytes, begin < end                                        */
    usm_access_mode mode;
    bool            is_host;    /* the host's accesses do not wait for each other              */
    bool            is_covered; /* in the list of these                                       */
    uint64_t        lane;       /* the in-order queue it is in; 0: none                       */
} usm__order_entry;

typedef struct usm__order {
    usm_list active, covered;
    size_t   ncommands; /* entries that are not the host's, in both lists                      */
} usm__order;

void usm__order_init(usm__order *o);

/* Whether a and b may not run at the same time. */
bool usm__order_conflict(const usm__order_entry *a, const usm__order_entry *b);
/* The next entry that `e`, which is not in the order yet, must wait for; `prev` NULL: the first.
 * all: also those that are covered. */
usm__order_entry *usm__order_next(usm__order *o, const usm__order_entry *e, bool all,
                                  const usm__order_entry *prev);
/* e waits for all that usm__order_next() gave for it. */
void usm__order_add(usm__order *o, usm__order_entry *e);
/* It ended.  is_clean false: not after all that it waited for (it failed, or was given up): what it
 * covered is then to be waited for again. */
void usm__order_remove(usm__order *o, usm__order_entry *e, bool is_clean);

/* ---- what failed commands should have written --------------------------------- */

#define USM__FAILURES 8

typedef struct usm__failures {
    unsigned n;
    struct usm__failure {
        size_t     begin, end;
        usm_status status;
    } list[USM__FAILURES];
} usm__failures;

/* When the list is full, the nearest one grows: more may be said to have failed than did, never
 * less. */
void usm__failures_add(usm__failures *f, size_t begin, size_t end, usm_status status);
/* An access in that mode begins: USM_OK, or the status of a failure in its range that it would see,
 * which is told only once.  What it overwrites without looking is forgotten. */
usm_status usm__failures_take(usm__failures *f, size_t begin, size_t end, usm_access_mode mode);

#endif
