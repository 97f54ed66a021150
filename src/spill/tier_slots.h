/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which block numbers ("slots") of a transport are taken: one tier's.  No calls of the transport,
 * no lock: src/spill/tier_place.c has both.
 *
 * Slots come in groups of 64.  A group is lent to 64 neighbouring keys while anything of theirs is
 * in it, so blocks that follow each other in a space do so at the transport too, in whatever order
 * they leave memory.  Room is reserved ahead by groups; as long as less than half of what is
 * reserved is used, new blocks fill holes instead, lowest first, so that scattered blocks do not
 * take 64 times their room.
 *
 * Of each group: used <= reserved, and busy bits (their room is being reserved or given back by
 * somebody outside the lock) are in neither. */
#ifndef USM_SPILL_TIER_SLOTS_H
#define USM_SPILL_TIER_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USM__SLOT_NONE UINT64_MAX

typedef struct usm__slot_group {
    uint64_t used, reserved, busy; /* a bit per slot                                          */
    uint64_t owner;                /* key / 64 + 1 that it is lent to; 0: nobody              */
} usm__slot_group;

typedef struct usm__slots {
    usm__slot_group *groups;
    size_t           ngroups, cap;
    size_t           low;            /* no group before it has a slot that is reserved and free */
    uint64_t         used, reserved; /* slots                                                 */
    size_t           nbusy;          /* groups with busy bits                                 */
    unsigned         step; /* slots to reserve at once: smaller when there is little room */
    uint64_t full_until; /* the transport was full and is not asked before: tier_place.c's, ns   */
    /* owner -> group: open addressing, a power of two of places, group + 1 in each; 0: empty. */
    uint32_t *index;
    size_t    index_size, index_used;
} usm__slots;

/* A run of slots inside one group. */
typedef struct usm__slot_run {
    uint64_t first;
    unsigned n;
} usm__slot_run;

typedef enum usm__slot_answer {
    USM__SLOT_TAKEN,   /* *slot is the caller's                                              */
    USM__SLOT_RESERVE, /* *run is to be reserved: usm__slots_reserved() with the outcome      */
    USM__SLOT_WAIT,    /* somebody else is reserving or giving back: ask again then           */
    USM__SLOT_MEMORY   /* no memory for the table                                             */
} usm__slot_answer;

void usm__slots_init(usm__slots *s);
void usm__slots_fini(usm__slots *s);
/* `grow` false: only what is reserved, SLOT_RESERVE does not come; then USM__SLOT_WAIT with
 * nobody busy means that there is nothing. */
usm__slot_answer usm__slots_take(usm__slots *s, uint64_t key, bool grow, uint64_t *slot,
                                 usm__slot_run *run);
/* The run is reserved: the slot for `key` in it is the caller's; or it is not (ok false): the next
 * run will be smaller.  False: the smallest was refused, the transport is full. */
bool usm__slots_reserved(usm__slots *s, usm__slot_run run, bool ok, uint64_t key, uint64_t *slot);
/* A slot is free.  run->n > 0: these are to be forgotten at the transport, then
 * usm__slots_forgotten(). */
void usm__slots_free(usm__slots *s, uint64_t slot, usm__slot_run *run);
void usm__slots_forgotten(usm__slots *s, usm__slot_run run);
bool usm__slots_are_valid(const usm__slots *s);

#endif
