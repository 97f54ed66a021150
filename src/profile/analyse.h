/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a trace shows about reuse: tables by pool, size, call site and tag, and advice in words.
 * This part counts; it does not print (tools/usm-prof) or export.  Called by usm-prof report. */
#ifndef USM_PROFILE_ANALYSE_H
#define USM_PROFILE_ANALYSE_H

#include "profile/energy.h"
#include "profile/spill.h"
#include "profile/trace.h"
#include "profile/work.h"

#define USM__BRIEF_NS 1000000u /* a life shorter than this is brief: 1 ms */

/* A row of a table.  Call sites are sampled, so their allocations and bytes are estimates. */
typedef struct usm__usage {
    char     name[320]; /* pool, "4 MiB..8 MiB", call site, tag                              */
    uint64_t low, high; /* of a size class: bytes (low, high]                                */
    uint64_t samples;   /* of a call site: stacks on which the estimates are based           */
    uint64_t allocations, bytes;
    uint64_t hits; /* allocations for which the allocating thread made no driver call         */
    uint64_t failed;
    uint64_t ended, brief; /* blocks whose end is in the trace; those that lived < 1 ms      */
    double   life_ns;      /* sum of the lives of ended blocks                               */
    uint64_t live, blocks; /* bytes (usable) and blocks at the trace's end                   */
    uint64_t live_peak, blocks_peak;
} usm__usage;

/* A pool, and its driver calls. */
typedef struct usm__profile_pool {
    usm__usage u;
    uint32_t   id, kind, source;
    char       pool[32], device[64];
    uint64_t   takes, gives; /* driver calls that were granted                                 */
    uint64_t   refused;      /* driver calls that were refused                                 */
    uint64_t   driver_ns;    /* time spent in all of them                                      */
    uint64_t   avoided;      /* allocations - takes + frees - gives, as far as positive        */
    uint64_t   avoided_ns;   /* what those calls would have cost, by the medians of this trace */
    uint64_t   reserved, reserved_peak;   /* bytes at the end; most bytes                      */
    uint64_t   live_then;                 /* live bytes when reserved was at its peak          */
    uint64_t   caches_peak, caches_limit; /* what caches could hold, at most; the largest budget */
    uint64_t   repeats; /* allocations beyond the peak of blocks, by size class: for a cache      */
} usm__profile_pool;

typedef struct usm__usages {
    size_t      n;
    usm__usage *rows; /* most bytes first */
} usm__usages;

typedef struct usm__analysis {
    usm__usage         all;
    uint64_t           duration_ns;
    uint64_t           takes, gives, driver_ns, avoided, avoided_ns;
    uint64_t           take_ns, give_ns; /* medians; 0: the trace has no such call              */
    size_t             npools;
    usm__profile_pool *pools;
    usm__usages        classes, sites, tags; /* classes by size                                  */
    usm__profile_spill_usages spill;
    usm__profile_work_usages  work;
    usm__profile_energy       energy;
    size_t                    nadvice;
    char                    **advice;
} usm__analysis;

/* USM_E_NO_MEMORY; USM_E_SIZE for 2^32 events and more. */
usm_status usm__analyse(const usm__profile *t, usm__analysis **out);
void       usm__analysis_free(usm__analysis *a); /* NULL is fine */

/* A share in percent, 0 of nothing. */
double usm__percent(uint64_t part, uint64_t whole);

/* advice.c: fills in a->advice. false: no memory. */
bool usm__advise(const usm__profile *t, usm__analysis *a);

#endif
