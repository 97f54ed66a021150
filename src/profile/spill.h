/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a trace shows about spilling: by buffer how long accesses waited, what was moved, how useful
 * readahead was, and what kept memory pinned; by tier how fast it was.  Called by analyse.c;
 * printed by usm-prof and the exporters. */
#ifndef USM_PROFILE_SPILL_H
#define USM_PROFILE_SPILL_H

#include "profile/trace.h"

/* Times of one kind: their number, sum, median and 99th percentile. */
typedef struct usm__spill_times {
    uint64_t n, sum_ns, p50_ns, p99_ns;
} usm__spill_times;

/* A buffer; buffers with the same name count as one. */
typedef struct usm__spill_buffer {
    char             name[48];
    usm__spill_times waits;               /* of accesses, for its blocks */
    uint64_t         in, out;             /* bytes                       */
    uint64_t         in_ahead, out_ahead; /* of those, by prefetch, readahead or write-behind  */
    uint64_t         used, wasted; /* blocks of readahead                                      */
    uint64_t         evicted_clean, evicted_dirty;
    uint64_t         pinned_ns; /* while others waited for memory                              */
    uint64_t         pinned;    /* bytes, the most at a time                                   */
} usm__spill_buffer;

typedef struct usm__spill_tier {
    char             name[64];
    usm__spill_times reads, writes;
    uint64_t         in, out; /* bytes */
} usm__spill_tier;

typedef struct usm__spill_usages {
    size_t             nevents;
    usm__spill_buffer  all;
    size_t             nbuffers, ntiers;
    usm__spill_buffer *buffers; /* sorted: those with the longest waits first                */
    usm__spill_tier   *tiers;   /* those to or from which anything was moved                 */
    bool               has_first;
    uint64_t first_ns, first_limit; /* when memory was full for the first time; the limit then */
} usm__spill_usages;

/* false: no memory. */
bool usm__spill_count(const usm__trace *t, usm__spill_usages *u);
void usm__spill_usages_free(usm__spill_usages *u);

/* usm__spill_kind in a word: "miss". */
const char *usm__spill_kind_name(uint32_t kind);
/* The space's name, "" if it has none; never NULL. */
const char *usm__spill_space_name(const usm__trace *t, uint32_t space);
const char *usm__spill_tier_name(const usm__trace *t, uint32_t tier);

#endif
