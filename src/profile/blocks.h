/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a trace shows about blocks and areas: which free belongs to which allocation, and what each
 * pool had taken from its driver.  Called by the exporters; nothing is written out here. */
#ifndef USM_PROFILE_BLOCKS_H
#define USM_PROFILE_BLOCKS_H

#include "profile/trace.h"

#define USM__NEVER UINT32_MAX /* no such record, block, or area */

/* From its allocation to its free. */
typedef struct usm__profile_block {
    uint64_t address, size, usable;
    uint32_t born;   /* record that allocated it                                              */
    uint32_t died;   /* record that freed it, or that shows that it is gone; USM__NEVER       */
    uint32_t reused; /* freed block that had the address before; USM__NEVER                   */
    bool     freed;  /* by a free; else its area was returned, or its address allocated again */
} usm__profile_block;

/* A range that a pool had from its driver: taken whole, or mapped into a reserved range.  If a
 * piece is unmapped in part, the rest is a range of its own. */
typedef struct usm__profile_area {
    uint64_t address, size;
    uint32_t took, gave; /* records; gave may be USM__NEVER */
} usm__profile_area;

typedef struct usm__profile_blocks {
    size_t              nblocks, nareas;
    usm__profile_block *blocks;    /* by born */
    usm__profile_area  *areas;     /* by took */
    size_t              unmatched; /* frees of blocks whose allocation is not in the trace */
} usm__profile_blocks;

/* 0, ENOMEM, or EFBIG for 2^32 records and more. */
int  usm__profile_blocks_find(const usm__profile *t, usm__profile_blocks **found);
void usm__profile_blocks_free(usm__profile_blocks *found); /* NULL is fine */

/* What a pool holds. */
typedef struct usm__profile_level {
    uint64_t live, reserved; /* bytes */
    uint64_t usable;         /* live bytes with what rounding up added */
    uint64_t blocks;
} usm__profile_level;

/* Walks over the records in their order.  After each record that changed a level, `visit` is called
 * with its number and the levels of all pools by their id, npools + 1 of them; `pool` is the one
 * that changed.  0 or ENOMEM. */
typedef void usm__profile_visit(void *user, uint32_t record, uint32_t pool,
                                const usm__profile_level *levels);
int          usm__profile_walk(const usm__profile *t, const usm__profile_blocks *found,
                               usm__profile_visit *visit, void *user);

/* The `max` blocks with the largest bytes x time, or all of them, in the order of their allocation.
 * The caller frees *list.  0 or ENOMEM. */
int usm__profile_blocks_choose(const usm__profile *t, const usm__profile_blocks *found, size_t max,
                               uint32_t **list, size_t *n);

/* From the trace's start to its last event. */
uint64_t usm__profile_duration_ns(const usm__profile *t);
/* The time of the record; of USM__NEVER: the trace's last moment. */
uint64_t usm__profile_time_ns(const usm__profile *t, uint32_t record);

#endif
