/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Accesses of the host that do not take the hit path: to buffers that commands or devices use, to
 * several ranges at once, or without waiting.  First they enter the orders of their buffers, all in
 * one step: so later commands wait for them, and they wait for earlier ones, in the order in which
 * they were begun.  Called by access.c. */
#ifndef USM_BUFFER_HOST_H
#define USM_BUFFER_HOST_H

#include "buffer/track.h"

/* The kind of an open access: the low byte of usm_access.state; the serial of a slot is above
 * it. */
typedef enum usm__open_kind {
    USM__OPEN_NOT     = 0,
    USM__OPEN_HIT     = 1, /* opaque: a slot; one block is pinned        */
    USM__OPEN_SLOT    = 2, /* opaque: a slot; pinned by usm__spill_pin() */
    USM__OPEN_ENTRY   = 3, /* opaque: a usm__open                        */
    USM__OPEN_NOTHING = 4  /* it has no bytes                            */
} usm__open_kind;

/* An access in the order. */
typedef struct usm__open {
    usm__access_entry host;
    bool              is_pinned;
    bool     is_newest; /* the newest bytes are on the host: nothing to copy              */
    bool     is_coming; /* begun without waiting; guarded by the lock of track.c          */
    usm__pin pin;
} usm__open;

/* Begins all accesses of the list, or none; pre: handles, modes and ranges (not empty) are
 * valid. */
usm_status usm__access_begin(size_t n, const usm_buffer_range *list, usm__open **opens);
/* The same for one access, without waiting: it may be used when *ev has completed; if *ev fails,
 * the open access must still be ended. */
usm_status usm__access_begin_async(const usm_buffer_range *range, usm__open **open, usm_event **ev);
/* Only waits, and makes others wait: no bytes are copied. */
usm_status usm__access_enter(const usm_buffer_range *range, usm__open **open);
void       usm__access_end(usm__open *open);

#endif
