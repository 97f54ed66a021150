/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Extents, copies and the lock over both: what places.c, places_copy.c, extent.c and extent_evict.c
 * share.  Nobody else includes it, but their tests.
 *
 *     usm__places   a buffer: what is valid in host memory, its extents, its copies under way
 *     usm__extent   a run of device memory that covers a range of it
 *     usm__copying  a copy between two of these places that has not ended
 *     usm__memory   a device's memory: the extents of all buffers, used longest ago first
 *
 * An extent stays while commands or copies are counted on it.  One that is leaving is on its way to
 * host memory (extent_evict.c): it is neither found nor copied from by others, and calls for ranges
 * that overlap it wait.
 *
 * Sets of valid bytes have room for what the copies under way may still have to change when they
 * fail (`pending`), so that a failure can always be entered. */
#ifndef USM_BUFFER_EXTENT_H
#define USM_BUFFER_EXTENT_H

#include "base/inline/list.h"
#include "buffer/places.h"
#include "buffer/valid.h"

typedef struct usm__memory usm__memory;

/* Of one place, for one buffer. */
typedef struct usm__holding {
    usm__valid valid;
    size_t     pending; /* copies under way from or to it                                  */
} usm__holding;

struct usm__extent {
    /* fixed */
    usm__places *places;
    usm__memory *memory;
    usm_context *ctx; /* counted by users                                                   */
    size_t       index;
    char        *at; /* device address of byte `start`                                    */
    size_t       start, end;
    /* guarded by usm__extents_lock() */
    usm_list     link; /* in places->extents                                              */
    usm_list     lru;  /* in memory->extents                                              */
    usm__holding holding;
    unsigned     commands, copies; /* that use it                                          */
    bool         is_leaving;
    usm_status   failure;    /* of the last copy to it that failed                        */
    bool         is_surplus; /* another covers it: it goes when it is not used any more    */
};

struct usm__places {
    /* fixed */
    usm__space *space;
    size_t      base, size;
    /* guarded by usm__extents_lock() */
    usm__holding host;
    usm_list     extents;
    usm_list     copies; /* usm__copying.link, oldest first                               */
};

typedef struct usm__copying {
    usm__completion c;
    /* fixed */
    usm__places *places;
    usm_event   *ev;        /* counted                                                      */
    usm__extent *from, *to; /* counted by copies; from NULL: host memory                   */
    size_t       start, end;
    bool         is_pinned; /* the host blocks                                            */
    bool         is_behind; /* a command, itself or through the copies before it          */
    /* guarded by usm__extents_lock() */
    usm_list link;
    unsigned refs;          /* its completion, who waits for it                             */
    uint64_t seen;          /* by usm__copies_reap()                                        */
    bool     is_ending;     /* somebody is entering what became of it                        */
    bool     is_superseded; /* what it was copied from turned out bad                      */
} usm__copying;

struct usm__memory {
    usm_device  *dev;
    usm__memory *next;
    usm_list     extents; /* all contexts', used longest ago first                         */
    uint64_t     turn;    /* grows when an extent is used less                              */
};

/* ---- extent.c --------------------------------------------------------------------- */

void usm__extents_lock(void);
void usm__extents_unlock(void);
/* Until something changed: an extent left or is used less, a copy ended. */
void usm__extents_wait(void);
void usm__extents_changed(void);

/* The record of a device's memory; NULL and a story: no host memory.  Takes the lock. */
usm__memory *usm__memory_of(usm_device *dev);
/* The device's list is gone over with the lock held. */
usm__memory *usm__memory_find(const usm_device *dev);

/* With the lock held, all of the following. ------------------------------------------- */
static inline bool usm__extent_overlaps(const usm__extent *e, size_t start, size_t end)
{
    return e->start < end && start < e->end;
}

static inline bool usm__extent_is_used(const usm__extent *e)
{
    return e->commands + e->copies > 0;
}

bool usm__places_are_leaving(const usm__places *p, size_t start, size_t end);
/* Nothing of the range is leaving a device now, so that what is valid where can be relied on for as
 * long as the lock is held: to be asked anew whenever it was given up.  It is given up meanwhile.
 *   USM_E_AGAIN  would have to wait, and may_wait is false */
usm_status usm__places_settle(const usm__places *p, size_t start, size_t end, bool may_wait);
/* On the queue's device, covering the range, not leaving; the one with most of it valid. */
usm__extent *usm__extent_find(usm__places *p, const usm_queue *q, size_t start, size_t end);
void         usm__extent_touch(usm__extent *e);
/* Out of all lists: then, without the lock, usm__extent_free(). */
void usm__extent_unlink(usm__extent *e);
/* Whether another extent of that memory covers it and has all that is valid in it. */
bool usm__extent_is_covered(const usm__extent *e);
/* One use less of either kind; true: it is to be freed. */
bool usm__extent_drop_command(usm__extent *e);
bool usm__extent_drop_copy(usm__extent *e);
/* How many of its commands are the one at hand, by want->held. */
unsigned usm__extent_own_uses(const usm__device_want *want, const usm__extent *e);
/* Room for one change now, besides those that are pending; false: no memory. */
bool usm__holding_reserve(usm__holding *h);

/* Without the lock. --------------------------------------------------------------------- */
/* Memory and a descriptor for [start, end), counted by one command and in all lists. */
usm_status usm__extent_make(usm__places *p, const usm__device_want *want, usm__extent **out);
void       usm__extent_free(usm__extent *e);

/* ---- extent_evict.c ---------------------------------------------------------------- */

typedef struct usm__evict_rule {
    const usm_context *of;       /* whose extents; NULL: any                                  */
    const usm_context *for_pool; /* whose pool wants the memory: others give theirs to the driver */
    bool may_copy; /* false: only what has nothing that is valid nowhere else          */
} usm__evict_rule;

/* An unused extent of the memory leaves.  *freed is its size; 0 with USM_OK: there is none. */
usm_status usm__extent_evict(usm__memory *m, const usm__evict_rule *rule, size_t *freed);
/* How dear it is to let an extent go: bytes that have to be copied away and back, bytes to be
 * copied back, among so many that were used longer ago.  Pure. */
uint64_t usm__extent_cost(size_t only_there, size_t elsewhere_too, size_t size, size_t age_rank);

/* ---- places_copy.c ------------------------------------------------------------------ */

static inline void *usm__places_host(const usm__places *p, size_t offset)
{
    return p->space->base + p->base + offset;
}

/* Pins the start of [piece->start, piece->end) in host memory, and shortens the piece to that: what
 * does not fit at once comes in parts.   is_leaving: for a copy away from a
 * device.   USM_E_AGAIN  others hold all of it */
usm_status usm__places_pin(const usm__places *p, usm__interval *piece, usm_access_mode mode,
                           bool is_leaving);
void usm__places_unpin(const usm__places *p, const usm__interval *piece, usm_access_mode mode);
/* Device to host on the context's own queue; waits.  The piece is pinned by the caller. */
usm_status usm__places_fetch(const usm__extent *from, const usm__interval *piece);
/* What `e` lacks of the wanted range and other places have comes to it. */
usm_status usm__places_bring(usm__places *p, const usm__device_want *want, usm__extent *e);
/* One under way to or from e; NULL.  Lock held. */
usm__copying *usm__extent_copying(const usm__extent *e);
/* Copies that have ended, and of which nobody was told so far, do not count any more.  Without the
 * lock. */
void usm__copies_reap(usm__memory *m);
/* Whether there is something left to bring: a copy failed meanwhile.  Lock held. */
bool usm__places_lacks(const usm__places *p, const usm__device_want *want, const usm__extent *e);
/* Waits until the copy ended, and it is entered what became of it.  The lock is held, and given up
 * meanwhile. */
void usm__copying_await(usm__copying *t);
/* The next piece of [from, to) that is valid in some extent (not leaving, not `but`) and not in
 * `lacking`; lock held. */
usm__extent *usm__places_source(const usm__places *p, const usm__valid *lacking,
                                const usm__extent *but, usm__interval *piece);

#endif
