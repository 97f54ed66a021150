/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Extents, copies and the lock over both: shared by locations.c, locations_copy.c, extent.c and
 * extent_evict.c.  No other file includes it, except their tests.
 *
 *     usm__locations   a buffer: what is valid in host memory, its extents, its copies under way
 *     usm__extent   a run of device memory that covers a range of it
 *     usm__copying  a copy between two of these locations that has not ended
 *     usm__memory   a device's memory: the extents of all buffers, least recently used first
 *
 * An extent stays while commands or copies are counted on it.  An extent with is_leaving is being
 * evicted to host memory (extent_evict.c): others neither find it nor copy from it, and calls for
 * ranges that overlap it wait.
 *
 * Sets of valid bytes reserve room for the changes that copies under way may still have to make
 * when they fail (`pending`), so that a failure can always be recorded. */
#ifndef USM_BUFFER_EXTENT_H
#define USM_BUFFER_EXTENT_H

#include "base/inline/list.h"
#include "buffer/locations.h"
#include "buffer/valid.h"

typedef struct usm__memory usm__memory;

/* The valid bytes in one location, of one buffer. */
typedef struct usm__holding {
    usm__valid valid;
    size_t     pending; /* copies under way from or to it                                  */
} usm__holding;

struct usm__extent {
    /* fixed after create */
    usm__locations *locations;
    usm__memory    *memory;
    usm_context    *ctx; /* counted by users                                                   */
    size_t          index;
    char           *at; /* device address of byte `start`                                    */
    size_t          start, end;
    /* guarded by usm__extents_lock() */
    usm_list     link; /* in locations->extents                                              */
    usm_list     lru;  /* in memory->extents                                              */
    usm__holding holding;
    unsigned     commands, copies; /* number of those that use it                          */
    bool         is_leaving;
    usm_status   failure;    /* of the last copy to it that failed                       */
    bool         is_surplus; /* another extent covers it: it is freed after its last use */
};

struct usm__locations {
    /* fixed after create */
    usm__space *space;
    size_t      base, size;
    /* guarded by usm__extents_lock() */
    usm__holding host;
    usm_list     extents;
    usm_list     copies; /* usm__copying.link, oldest first                               */
};

typedef struct usm__copying {
    usm__completion c;
    /* fixed after create */
    usm__locations *locations;
    usm_event      *ev;        /* counted                                   */
    usm__extent    *from, *to; /* counted by copies; from NULL: host memory */
    size_t          start, end;
    bool            is_pinned; /* the host blocks                                            */
    bool            is_behind; /* it waits for a command, itself or through copies before it */
    /* guarded by usm__extents_lock() */
    usm_list link;
    unsigned refs;          /* its completion, and the threads that wait for it */
    uint64_t seen;          /* used by usm__locations_reap()                       */
    bool     is_superseded; /* its source turned out to be invalid              */
} usm__copying;

struct usm__memory {
    usm_device  *dev;
    usm__memory *next;
    usm_list     extents; /* of all contexts, least recently used first */
    uint64_t     turn;    /* grows when an extent loses a use           */
};

/* ---- extent.c --------------------------------------------------------------------- */

/* All memories, extents and copies. */
typedef struct usm__extents_state {
    usm__mutex lock;
    /* guarded by lock */
    pthread_cond_t changed;
    usm__memory   *memories;        /* they live as long as the process, as devices do */
    usm_list       extents, copies; /* retired                                         */
    uint64_t       reaps;           /* calls of usm__locations_reap()                  */

    _Atomic(uint64_t) bytes;
    _Atomic(bool)     forces_copies; /* usm__locations_force_copies() */
} usm__extents_state;
extern usm__extents_state usm__extents __attribute__((visibility("hidden")));

void usm__extents_lock(void);
/* Then frees what was retired. */
void usm__extents_unlock(void);
/* Waits for a change: an extent was freed or lost a use, or a copy ended. */
void usm__extents_wait(void);
void usm__extents_changed(void);

/* The record of a device's memory; NULL with an error message: no host memory.  Takes the lock. */
usm__memory *usm__memory_of(usm_device *dev);
/* The device's list may be walked with the lock held. */
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

bool usm__locations_are_leaving(const usm__locations *p, size_t start, size_t end);
/* Waits until no extent that overlaps the range is being evicted, so that the validity of its bytes
 * can be relied on until the lock is released; afterwards it must be called again.  It releases the
 * lock meanwhile.
 *
 *     USM_E_AGAIN  it would have to wait, and may_wait is false */
usm_status usm__locations_settle(const usm__locations *p, size_t start, size_t end, bool may_wait);
/* The extent on the queue's device that covers the range, is not being evicted, and has most of the
 * range valid. */
usm__extent *usm__extent_find(usm__locations *p, const usm_queue *q, size_t start, size_t end);
void         usm__extent_touch(usm__extent *e);
/* Removes it from all lists; the caller then calls usm__extent_free(), without the lock. */
void usm__extent_unlink(usm__extent *e);
/* The same, but usm__extents_unlock() frees it; it frees a copy that has ended, too. */
void usm__extent_retire(usm__extent *e);
void usm__copying_retire(usm__copying *t);
/* Whether another extent in that memory covers it and has all that is valid in it. */
bool usm__extent_is_covered(const usm__extent *e);
/* Ends a use of either kind; an extent that is of no more use is retired. */
void usm__extent_drop_command(usm__extent *e);
void usm__extent_drop_copy(usm__extent *e);
/* How many of its uses belong to the current command, by want->held. */
unsigned usm__extent_own_uses(const usm__locations_want *want, const usm__extent *e);
/* Reserves room for one change now, besides those pending; false: no memory. */
bool usm__holding_reserve(usm__holding *h);

/* Without the lock. --------------------------------------------------------------------- */
/* Allocates memory and a descriptor for [start, end), counted by one command and in all lists. */
usm_status usm__extent_make(usm__locations *p, const usm__locations_want *want, usm__extent **out);
void       usm__extent_free(usm__extent *e);

/* ---- extent_evict.c ---------------------------------------------------------------- */

typedef struct usm__evict_rule {
    const usm_context *of;       /* only extents of this context; NULL: of any             */
    const usm_context *for_pool; /* context whose pool needs it: other pools return theirs */
    bool may_copy; /* false: only extents whose bytes are all valid elsewhere          */
} usm__evict_rule;

/* Evicts an unused extent of the memory.  *freed is its size; 0 with USM_OK: there is none. */
usm_status usm__extent_evict(usm__memory *m, const usm__evict_rule *rule, size_t *freed);
/* The cost of evicting an extent: bytes that have to be copied away and back, bytes to be copied
 * back, and its rank among the least recently used.  A pure function. */
uint64_t usm__extent_cost(size_t only_there, size_t elsewhere_too, size_t size, size_t age_rank);

/* ---- locations_copy.c ------------------------------------------------------------------ */

static inline void *usm__locations_host(const usm__locations *p, size_t offset)
{
    return p->space->base + p->base + offset;
}

/* Pins the start of [piece->start, piece->end) in host memory, and shortens the piece to that: a
 * range that does not fit at once is pinned in parts.   is_leaving: for a copy away from a device.
 * USM_E_AGAIN  others hold all of the memory */
usm_status usm__locations_pin(const usm__locations *p, usm__interval *piece, usm_access_mode mode,
                              bool is_leaving);
void       usm__locations_unpin(const usm__locations *p, const usm__interval *piece,
                                usm_access_mode mode);
/* Copies from device to host on the context's own queue, and waits.  The caller has pinned the
 * piece. */
usm_status usm__locations_fetch(const usm__extent *from, const usm__interval *piece);
/* Copies the bytes of the wanted range that `e` lacks and other locations have to `e`. */
usm_status usm__locations_bring(usm__locations *p, const usm__locations_want *want, usm__extent *e);
/* A copy under way to or from e; NULL.  Lock held. */
usm__copying *usm__extent_copying(const usm__extent *e);
/* Ends the copies that have completed without a notification so far.  Called without the lock. */
void usm__locations_reap(usm__memory *m);
/* Whether bytes are still missing, because a copy failed meanwhile.  Lock held. */
bool usm__locations_lacks(const usm__locations *p, const usm__locations_want *want,
                          const usm__extent *e);
/* Counts the caller, who then calls usm__copying_await(); t may be NULL.  Lock held. */
usm__copying *usm__copying_hold(usm__copying *t);
/* Waits until the copy has ended and its outcome is recorded; ends the count of the caller.  Called
 * without the lock. */
void usm__copying_await(usm__copying *t);
void usm__copying_free(usm__copying *t);
/* The next piece of [from, to) that is valid in some extent (not being evicted, not `but`) and not
 * in `lacking`; lock held. */
usm__extent *usm__locations_source(const usm__locations *p, const usm__valid *lacking,
                                   const usm__extent *but, usm__interval *piece);

#endif
