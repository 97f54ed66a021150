/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of pins: a request, and its part in one block.
 *
 *     pin.c        requests: tickets, all or nothing, waiting for frames
 *     pin_block.c  one block: which sectors must be fetched, and its way from any state to pinned
 *
 * Functions are called with the engine's lock held.  One that returns USM__DEFERRED is called again
 * for the same block. */
#ifndef USM_SPILL_PIN_PRIVATE_H
#define USM_SPILL_PIN_PRIVATE_H

#include "spill/internal.h"

/* The part of a pin that lies in one block. */
typedef struct usm__pin_part {
    usm__space     *space;
    uint32_t        block;
    usm__sectors    touch; /* sectors                                                        */
    usm__sectors    cover; /* of these, those that it covers completely                      */
    usm_access_mode mode;
} usm__pin_part;

/* What is done to the blocks of a request, one after the other: `at` is the next of them. */
typedef enum usm__pin_phase {
    USM__PIN_FETCH = 0, /* begins to fetch the absent ones, so that the medium gets all requests at
                           once                                                              */
    USM__PIN_SOLID,     /* pins those that are not written without fetch                      */
    USM__PIN_SECURE,    /* takes frames for the others                                       */
    USM__PIN_UNFETCHED, /* pins them                                                         */
    USM__PIN_PHASES
} usm__pin_phase;

typedef struct usm__pin_at {
    size_t   pin, number; /* in the list; of the block, among all                              */
    uint32_t block;
    bool     has_waited; /* a load of this block that fails is reported                        */
    bool     has_read;   /* and was from where it is stored, possibly only because it cannot be
                            read in parts                                                    */
} usm__pin_at;

typedef struct usm__pin_request {
    usm__spill     *spill;
    size_t          n;
    const usm__pin *list;
    void (*pinned)(void *user); /* of usm__spill_pin_then(), until it is called; NULL             */
    void           *user;
    bool            may_wait;
    bool            is_hasty;       /* but does not wait for memory that others hold             */
    bool            is_past_ticket; /* it frees memory: a thread with a ticket would wait for it */
    bool            asks;           /* other parts are to be asked for memory, without the lock  */
    bool            has_asked;      /* it has asked them                                         */
    bool            has_lent;       /* it left the ticket to others while it asks                */
    bool            has_ticketed;   /* it has or had the ticket                                  */
    bool            is_under_way;   /* it is between two blocks, or at one for the second time   */
    bool            marks_pins;     /* it has waited for frames: usm__spill_await_frames()       */
    uint64_t        held;           /* the engine's `held` when it first had to wait for frames  */
    uint64_t        seen;           /* as of usm__spill_await_frames()                           */
    uint64_t        deadline;
    uint64_t        started; /* time at which it first had to wait; 0: it did not */
    size_t          blocks;  /* blocks of the list, counted each time that one is named */
    unsigned char  *marks;   /* of each block in order: whether it is pinned */
    uint32_t        hand;    /* frames for blocks that are written without fetch, linked by next */
    usm__pin_phase  phase;
    usm__pin_at     at;
    usm__frame_want want;
    usm__ahead      ahead; /* blocks to be loaded before the next block is looked at           */
    usm__deferred   deferred;
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
/* The sectors that must be fetched before the access; count 0: none. */
usm__sectors usm__pin_needed(const usm__spill *s, const usm__pin_part *p);
/* Begins to fetch what the part needs: USM__DEFERRED.  A status if the fetch cannot begin. */
usm_status usm__pin_fetch(usm__pin_request *r, const usm__pin_part *p);
/* USM_OK: the block is pinned.  USM_E_AGAIN: no frame is available now, or the pin would have to
 * wait and may not. */
usm_status usm__pin_block(usm__pin_request *r, const usm__pin_part *p);
/* Fails because no frame was available, for the reason `status`; the message names the block. */
usm_status usm__pin_fail_room(const usm__pin_part *p, usm_status status);
/* USM__DEFERRED: the request waits until the frame is no longer busy; USM_E_AGAIN: it may not. */
usm_status usm__pin_wait(usm__pin_request *r, uint32_t frame);

#endif
