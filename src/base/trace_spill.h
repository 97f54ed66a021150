/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The events of spilling in USM_TRACE: misses and their waits, transfers, readahead, evictions,
 * pinned memory.  Part of the event rings (trace.h); like them, it costs one branch while nothing
 * is recorded.  src/spill and src/buffer record the events; src/profile reads them; `usm-prof
 * report` and `usm-replay --spill` show them.
 *
 *     space->trace = usm__trace_space(space->name, block_size, nblocks);          at its creation
 *     tier->trace  = usm__trace_tier("/var/tmp");                                 at its opening
 *     usm__trace_spill(&(usm__trace_spill_event){.kind = USM__SPILL_FETCH, .space = space->trace,
 *                      .tier = tier->trace, .block = i, .bytes = n, .ns = now - start});
 *
 * Hits are not recorded.  The time of an event is that of its end: record it when it is over. */
#ifndef USM_BASE_TRACE_SPILL_H
#define USM_BASE_TRACE_SPILL_H

#include "base/trace.h"

typedef enum usm__trace_spill_kind {
    /* An access waited for its blocks or for room.  block: its first; bytes: of the access; ns: the
     * wait. */
    USM__SPILL_MISS = 0,
    /* Successful transfers.  ns: since their submission.  _FETCH_AHEAD: by readahead or prefetch.
     * _STORE_AHEAD: before a frame was needed. */
    USM__SPILL_FETCH       = 1,
    USM__SPILL_FETCH_AHEAD = 2,
    USM__SPILL_STORE       = 3,
    USM__SPILL_STORE_AHEAD = 4,
    /* The outcome of a readahead: the first use of the block (ns: how long the access waited for
     * it, 0: it was there), or its eviction without a use. */
    USM__SPILL_GUESS_USED   = 5,
    USM__SPILL_GUESS_WASTED = 6,
    /* A block was evicted: dropped because it was stored before, or stored first. */
    USM__SPILL_EVICT_CLEAN = 7,
    USM__SPILL_EVICT_DIRTY = 8,
    /* A thread waited for memory for ns while this space had bytes pinned: one event for each such
     * space. */
    USM__SPILL_PINNED = 9,
    /* The first spill of the process.  bytes: the limit; the space is that of the evicted block. */
    USM__SPILL_FIRST = 10,
    /* The eviction policy found that the block was used since its previous check: the only record
     * of hits. */
    USM__SPILL_USED  = 11,
    USM__SPILL_KINDS = 12
} usm__trace_spill_kind;

typedef struct usm__trace_spill_event {
    usm__trace_spill_kind kind;
    uint32_t              space; /* of usm__trace_space(); 0: unknown                       */
    uint32_t              tier;  /* of usm__trace_tier(); 0: none                           */
    uint32_t              mode;  /* usm_access_mode of a MISS, GUESS_USED, USED; 0: unknown */
    uint64_t              block; /* number in the space, below 2^32                         */
    uint64_t              bytes;
    uint64_t              ns; /* exact below 134 ms, then within 1e-8 */
} usm__trace_spill_event;

/* Define the name of a space, or of a tier (an entry of USM_SPILL, the file of a backing store,
 * device memory), in the file, and return its number there, > 0.  0: tracing is off, or there are
 * too many; events accept it. */
uint32_t usm__trace_space(const char *name, uint64_t block_size, uint64_t blocks);
uint32_t usm__trace_tier(const char *name);

void usm__trace_spill_put(const usm__trace_spill_event *e);

static inline void usm__trace_spill(const usm__trace_spill_event *e)
{
    if (usm__trace_is_on())
        usm__trace_spill_put(e);
}

#endif
