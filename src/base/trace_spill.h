/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What USM_TRACE records of spilling: misses and their waits, transfers, guesses, evictions, who
 * kept memory pinned.  Part of the event rings (trace.h), and like them costs one branch while
 * nothing is recorded.  src/spill and src/buffer call this; src/profile reads it; `usm-prof report`
 * and `usm-replay --spill` show it.
 *
 *     space->trace = usm__trace_space(space->name, block_size, nblocks);          at its creation
 *     tier->trace  = usm__trace_tier("/var/tmp");                                 at its opening
 *     usm__trace_spill(&(usm__spill_event){.kind = USM__SPILL_FETCH, .space = space->trace,
 *                      .tier = tier->trace, .block = i, .bytes = n, .ns = now - start});
 *
 * Hits are not recorded.  An event's time is that of its end: call when it is over. */
#ifndef USM_BASE_TRACE_SPILL_H
#define USM_BASE_TRACE_SPILL_H

#include "base/trace.h"

typedef enum usm__spill_kind {
    /* An access had to wait, for its blocks or for room.  block: its first; bytes: of the access;
     * ns: the wait. */
    USM__SPILL_MISS = 0,
    /* Transfers that ended well.  ns: from their submission.  _AHEAD: of a guess or an announced
     * list; before somebody needed the frame. */
    USM__SPILL_FETCH       = 1,
    USM__SPILL_FETCH_AHEAD = 2,
    USM__SPILL_STORE       = 3,
    USM__SPILL_STORE_AHEAD = 4,
    /* What became of a guess: its first use (and how long an access waited for it: 0, it was
     * there), or it left memory unused. */
    USM__SPILL_GUESS_USED   = 5,
    USM__SPILL_GUESS_WASTED = 6,
    /* A block left memory: dropped as it was stored before, or stored for it. */
    USM__SPILL_EVICT_CLEAN = 7,
    USM__SPILL_EVICT_DIRTY = 8,
    /* Somebody waited for memory for ns, while this space had bytes pinned: of each such space. */
    USM__SPILL_PINNED = 9,
    /* The process's first spill: bytes: the limit; the space whose block goes. */
    USM__SPILL_FIRST = 10,
    /* The policy's look found the block used since its look before: all there is of hits. */
    USM__SPILL_USED  = 11,
    USM__SPILL_KINDS = 12
} usm__spill_kind;

typedef struct usm__spill_event {
    usm__spill_kind kind;
    uint32_t        space; /* of usm__trace_space(); 0: unknown                              */
    uint32_t        tier;  /* of usm__trace_tier(); 0: none                                  */
    uint32_t        mode;  /* usm_access_mode of a MISS, GUESS_USED, USED; 0: unknown         */
    uint64_t        block; /* of the space, below 2^32                                       */
    uint64_t        bytes;
    uint64_t        ns; /* exact below 134 ms, then within 1e-8                              */
} usm__spill_event;

/* Names a space, a tier (a place of USM_SPILL, a home's file, device memory) in the file: its
 * number there, > 0; 0 when not tracing or no more fit, which is fine in events. */
uint32_t usm__trace_space(const char *name, uint64_t block_size, uint64_t blocks);
uint32_t usm__trace_tier(const char *name);

void usm__trace_spill_put(const usm__spill_event *e);

/* Whether to read clocks for an event. */
static inline bool usm__trace_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&usm__trace_on, memory_order_relaxed) != 0, 0);
}

static inline void usm__trace_spill(const usm__spill_event *e)
{
    if (usm__trace_is_on())
        usm__trace_spill_put(e);
}

#endif
