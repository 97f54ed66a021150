/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The order of accesses: the outstanding accesses to one buffer, by range, and which of them a new
 * one must wait for: read after write, write after read, write after write; accesses to disjoint
 * ranges do not wait.
 *
 * An access that ended is removed.  An access is put aside ("covered") when a newer one implies
 * waiting for it: a write over the same bytes waits for it, or it is a read before another read in
 * the same in-order queue, where it already has its place (enter.c).  Commands then wait for the
 * newer one only, so that each command in a long chain has one dependency.  The host, which must
 * not go on while anything still runs, looks at the covered ones, too.
 *
 * Also recorded: the ranges whose content a failed command left undefined.
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

typedef struct usm__track_order_entry {
    usm_list        link;
    size_t          begin, end; /* bytes, begin < end                                        */
    usm_access_mode mode;
    bool            is_host;    /* accesses of the host do not wait for each other */
    bool            is_covered; /* in the list of covered accesses                 */
    uint64_t        lane;       /* the in-order queue that it is in; 0: none       */
} usm__track_order_entry;

typedef struct usm__track_order {
    usm_list active, covered;
    size_t   ncommands; /* entries in both lists that are not the host's                       */
    size_t   nwrites;   /* entries in both lists that write                                    */
} usm__track_order;

void usm__track_order_init(usm__track_order *o);

/* Whether a and b may not run at the same time. */
bool usm__track_order_conflict(const usm__track_order_entry *a, const usm__track_order_entry *b);
/* The next entry that `e`, which is not in the order yet, must wait for; `prev` NULL: the first.
 * all: also those that are covered. */
usm__track_order_entry *usm__track_order_next(usm__track_order *o, const usm__track_order_entry *e,
                                              bool all, const usm__track_order_entry *prev);
/* Adds e, which waits for all that usm__track_order_next() returned for it. */
void usm__track_order_add(usm__track_order *o, usm__track_order_entry *e);
/* The access ended.  is_clean false: it did not wait for all that it should have (it failed, or was
 * withdrawn): the accesses that it covered must be waited for again. */
void usm__track_order_remove(usm__track_order *o, usm__track_order_entry *e, bool is_clean);

/* ---- ranges that failed commands did not write -------------------------------- */

#define USM__FAILURES 8

typedef struct usm__failures {
    unsigned n;
    struct usm__failure {
        size_t     begin, end;
        usm_status status;
    } list[USM__FAILURES];
} usm__failures;

/* If the list is full, the nearest range grows: bytes may be marked as failed that were not, but
 * never the reverse. */
void usm__failures_add(usm__failures *f, size_t begin, size_t end, usm_status status);
/* An access in that mode begins: returns USM_OK, or the status of a failure in its range whose
 * bytes it would see; each failure is reported once.  Failures in bytes that it overwrites without
 * reading are deleted. */
usm_status usm__failures_take(usm__failures *f, size_t begin, size_t end, usm_access_mode mode);

#endif
