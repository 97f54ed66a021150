/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Choice of the replica target for a block: weighted rendezvous hashing over the targets ("places")
 * of a tier.
 *
 * Each target draws a number for each key, from hash(key, domain, index): the time of the first
 * event of a Poisson process whose rate is the target's weight.  The earliest wins.  The earliest
 * target of a fault domain is then drawn with the sum of its targets' weights, so one draw ranks
 * the domains by size and the targets of a domain at once.  The next copy goes to the earliest
 * target of another domain.
 *
 * It follows that a target gets keys in proportion to its weight; that when a target is added, keys
 * move only to it; and that when one is removed, only its own keys move.  (Two steps, domains by
 * the sum of weights and then targets, would also move keys between the old targets of a domain.)
 *
 * Pure functions: no state, no lock, no call.  Used by replica_place.c. */
#ifndef USM_SPILL_PLACEMENT_H
#define USM_SPILL_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USM__PLACEMENT_NONE SIZE_MAX

typedef struct usm__candidate {
    uint64_t domain; /* usm__placement_domain() of its name           */
    uint64_t weight; /* bytes that it may hold; 0: it accepts nothing */
} usm__candidate;

uint64_t usm__placement_domain(const char *name);
/* The number that target `index` draws for the key: the smallest wins. pre: weight > 0 */
double usm__placement_lot(const usm__candidate *c, size_t index, uint64_t key);
/* Chooses among the targets in domains other than avoid[] that may_take() accepts (NULL: it accepts
 * all). */
typedef struct usm__placement {
    const usm__candidate *list;
    size_t                n;
    uint64_t              key;
    const uint64_t       *avoid;
    size_t                navoid;
    bool (*may_take)(void *arg, size_t index);
    void *arg;
} usm__placement;
size_t usm__placement_best(const usm__placement *p);

#endif
