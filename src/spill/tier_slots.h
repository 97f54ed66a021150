/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Allocation of block numbers ("slots") of a transport, for one tier.  No calls of the transport
 * and no lock: src/spill/tier_place.c has both.
 *
 * Slots come in groups of 64.  A group is lent to 64 neighbouring keys while it holds anything of
 * theirs, so blocks that are neighbours in a space are neighbours at the transport too, in whatever
 * order they are evicted.  Room is reserved ahead by groups.  While less than half of the reserved
 * room is used, new blocks fill holes instead, lowest first, so that scattered blocks do not take
 * 64 times their room.
 *
 * Of each group: used <= reserved, and the busy bits (a thread outside the lock is reserving or
 * freeing their room) are in neither. */
#ifndef USM_SPILL_TIER_SLOTS_H
#define USM_SPILL_TIER_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USM__SLOT_NONE UINT64_MAX

typedef struct usm__slots_group {
    uint64_t used, reserved, busy; /* a bit per slot                                          */
    uint64_t owner;                /* key / 64 + 1 of the keys that it is lent to; 0: none    */
} usm__slots_group;

typedef struct usm__slots {
    usm__slots_group *groups;
    size_t            ngroups, cap;
    size_t            low;            /* no group before it has a slot that is reserved and free */
    uint64_t          used, reserved; /* slots                                                   */
    size_t            nbusy;          /* groups with busy bits                                   */
    unsigned          step; /* slots to reserve at once: fewer when there is little room   */
    uint64_t full_until; /* the transport is full and not asked before, ns; tier_place.c's       */
    /* owner -> group: open addressing; the number of entries is a power of two; an entry is group +
     * 1, or 0: empty. */
    uint32_t *index;
    size_t    index_size, index_used;
} usm__slots;

/* A run of slots inside one group. */
typedef struct usm__slots_run {
    uint64_t first;
    unsigned n;
} usm__slots_run;

typedef enum usm__slots_answer {
    USM__SLOT_TAKEN,   /* *slot is allocated to the caller                             */
    USM__SLOT_RESERVE, /* the caller reserves *run, then calls usm__slots_reserved()   */
    USM__SLOT_WAIT,    /* another thread is reserving or freeing: ask again afterwards */
    USM__SLOT_MEMORY   /* no memory for the table                                      */
} usm__slots_answer;

void usm__slots_init(usm__slots *s);
void usm__slots_fini(usm__slots *s);
/* With `grow` false only reserved slots are taken: the answer is never SLOT_RESERVE, and SLOT_WAIT
 * with no group busy means that there is none. */
usm__slots_answer usm__slots_take(usm__slots *s, uint64_t key, bool grow, uint64_t *slot,
                                  usm__slots_run *run);
/* Reports the outcome of reserving the run.  ok: the slot for `key` in it is the caller's; not ok:
 * the next run will be smaller.  False: the smallest run was refused, the transport is full. */
bool usm__slots_reserved(usm__slots *s, usm__slots_run run, bool ok, uint64_t key, uint64_t *slot);
/* Frees a slot.  run->n > 0: the caller must forget this run at the transport, then call
 * usm__slots_forgotten(). */
void usm__slots_free(usm__slots *s, uint64_t slot, usm__slots_run *run);
void usm__slots_forgotten(usm__slots *s, usm__slots_run run);
bool usm__slots_are_valid(const usm__slots *s);

#endif
