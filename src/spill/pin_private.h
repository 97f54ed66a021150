/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of pins share: a request, and its part in one block.
 *
 *     pin.c        requests: whose turn it is, all or nothing, waiting for frames
 *     pin_block.c  one block: what of it must be fetched, and its way from any state to pinned
 *
 * Functions are called with the engine's lock held. */
#ifndef USM_SPILL_PIN_PRIVATE_H
#define USM_SPILL_PIN_PRIVATE_H

#include "spill/internal.h"

/* A pin's part in one block. */
typedef struct usm__pin_part {
    usm__space     *space;
    uint32_t        block;
    usm__run        touch; /* sectors                                                        */
    usm__run        cover; /* of these, wholly covered                                       */
    usm_access_mode mode;
} usm__pin_part;

typedef struct usm__pin_request {
    usm__spill     *spill;
    size_t          n;
    const usm__pin *list;
    bool            may_wait;
    bool            is_hasty;     /* but not for memory that others hold                        */
    bool            is_past_turn; /* it makes memory: others' turn would wait for it           */
    bool            has_asked;    /* others for memory                                          */
    bool            is_trying;    /* frames may not be waited for at this moment                 */
    bool            has_turned;   /* it has or had the turn                                      */
    uint64_t        held;         /* the engine's, when it first had to wait for frames          */
    uint64_t        deadline;
    uint64_t        started; /* when it first had to wait; 0                                 */
    size_t          blocks;  /* each time it names one                                        */
    unsigned char  *marks;   /* of each block in turn: whether it is pinned                   */
    uint32_t        hand;    /* frames for hollow blocks, linked by next                       */
} usm__pin_request;

static inline uint32_t usm__pin_first(const usm__pin *pin)
{
    return (uint32_t)(pin->offset >> pin->space->shift);
}

static inline uint32_t usm__pin_last(const usm__pin *pin)
{
    return (uint32_t)((pin->offset + pin->size - 1) >> pin->space->shift);
}

/* ---- pin_block.c ----------------------------------------------------------------------------- */

usm__pin_part usm__pin_part_of(const usm__spill *s, const usm__pin *pin, uint32_t block);
/* What must be fetched before the access; count 0: nothing. */
usm__run usm__pin_needed(const usm__spill *s, const usm__pin_part *p);
/* Begins to fetch what the part needs; *from_store: the block comes from where it is stored, if
 * only because it cannot come in parts.  A status when that cannot be. */
usm_status usm__pin_fetch(usm__pin_request *r, const usm__pin_part *p, bool *from_store);
/* USM_E_AGAIN: no frame now, or it would wait and may not. */
usm_status usm__pin_block(usm__pin_request *r, const usm__pin_part *p);
/* No frame was to be had, for that reason: says so of the block. */
usm_status usm__pin_fail_room(const usm__pin_part *p, usm_status status);
/* For something that happens to a block. */
void usm__pin_wait(usm__pin_request *r);

#endif
