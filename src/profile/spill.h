/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a trace shows about spilling: by buffer how long accesses waited, what was moved, how useful
 * readahead was, and what kept memory pinned; by tier how fast it was.  Called by analyse.c;
 * printed by usm-prof and the exporters. */
#ifndef USM_PROFILE_SPILL_H
#define USM_PROFILE_SPILL_H

#include "profile/trace.h"

/* Times of one kind: their number, sum, median and 99th percentile. */
typedef struct usm__profile_spill_times {
    uint64_t n, sum_ns, p50_ns, p99_ns;
} usm__profile_spill_times;

/* A buffer; buffers with the same name count as one. */
typedef struct usm__profile_spill_buffer {
    char                     name[48];
    usm__profile_spill_times waits;   /* of accesses, for its blocks */
    uint64_t                 in, out; /* bytes                       */
    uint64_t in_ahead, out_ahead;     /* of those, by prefetch, readahead or write-behind  */
    uint64_t used, wasted;            /* blocks of readahead                                      */
    uint64_t evicted_clean, evicted_dirty;
    uint64_t pinned_ns; /* while others waited for memory                              */
    uint64_t pinned;    /* bytes, the most at a time                                   */
} usm__profile_spill_buffer;

typedef struct usm__profile_spill_tier {
    char                     name[64];
    usm__profile_spill_times reads, writes;
    uint64_t                 in, out; /* bytes */
} usm__profile_spill_tier;

typedef struct usm__profile_spill_usages {
    size_t                    nevents;
    usm__profile_spill_buffer all;
    size_t                    nbuffers, ntiers;
    usm__profile_spill_buffer
        *buffers;                   /* sorted: those with the longest waits first                */
    usm__profile_spill_tier *tiers; /* those to or from which anything was moved                 */
    bool                     has_first;
    uint64_t first_ns, first_limit; /* when memory was full for the first time; the limit then */
} usm__profile_spill_usages;

/* false: no memory. */
bool usm__profile_spill_count(const usm__profile *t, usm__profile_spill_usages *u);
void usm__profile_spill_usages_free(usm__profile_spill_usages *u);

/* usm__trace_spill_kind in a word: "miss". */
const char *usm__profile_spill_kind_name(uint32_t kind);
/* The space's name, "" if it has none; never NULL. */
const char *usm__profile_spill_space_name(const usm__profile *t, uint32_t space);
const char *usm__profile_spill_tier_name(const usm__profile *t, uint32_t tier);

#endif
