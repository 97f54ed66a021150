/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which place gets a block: weighted rendezvous hashing over the places of a tier.
 *
 * Each place draws a lot for each key, from hash(key, domain, index): the time of the first event
 * of a Poisson process whose rate is the place's weight.  The earliest wins.  The earliest of a
 * fault domain is then drawn with the sum of its places' weights, so that this one race ranks
 * domains by size and the places of a domain at once; the next copy goes to the earliest place of
 * another domain.
 *
 * What follows: a place gets keys in proportion to its weight; when one comes, the keys that change
 * their place all go to it; when one leaves, only its own go elsewhere.  (Two steps, domains by the
 * sum of weights and then places, would move keys between the old places of a domain as well.)
 *
 * Pure functions: no state, no lock, no call.  Used by replica_place.c. */
#ifndef USM_SPILL_PLACEMENT_H
#define USM_SPILL_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USM__PLACEMENT_NONE SIZE_MAX

typedef struct usm__candidate {
    uint64_t domain; /* usm__placement_domain() of its name                                  */
    uint64_t weight; /* bytes that it may hold; 0: it takes nothing                         */
} usm__candidate;

uint64_t usm__placement_domain(const char *name);
/* When place `index` would get the key: smaller is sooner. pre: weight > 0 */
double usm__placement_lot(const usm__candidate *c, size_t index, uint64_t key);
/* Of those in domains other than avoid[], and that may_take() does not refuse (NULL: it refuses
 * none). */
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
