/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The monitor page of a process: a file that the process maps and that readers (usm-top) read.
 *
 *     FOLDER/<pid>-<pid namespace>.page    the page, 0600, written by the process alone
 *     FOLDER/readers                       a word that readers write (base/watched.h)
 *
 * Two kinds of figures.  Those of usm__monitor_pool.held are the pool's own counters: they are right at
 * every moment, whether somebody reads or not, so what a process holds that makes no call is known.  All others are sampled by a thread of the process,
 * which runs while somebody reads; `sequence` is odd while it writes them.
 *
 * A reader takes nothing on trust: usm__monitor_check() makes any bytes a page or says why they are
 * none.  A change of the layout raises USM__MONITOR_VERSION. */
#ifndef USM_MONITOR_PAGE_H
#define USM_MONITOR_PAGE_H

#include "heap/pool_held.h"

#define USM__MONITOR_MAGIC   "USMPAGE"
#define USM__MONITOR_VERSION 2u

#define USM__MONITOR_POOLS    96
#define USM__MONITOR_TAGS     64
#define USM__MONITOR_DEVICES  16
#define USM__MONITOR_QUEUES   32
#define USM__MONITOR_TIERS    8
#define USM__MONITOR_LAUNCHES 4
#define USM__MONITOR_MEMBERS  16
#define USM__MONITOR_TEXT     64
#define USM__MONITOR_SEGMENTS 128
#define USM__MONITOR_CELLS    8192
#define USM__MONITOR_REASON   128

/* Since `serial` is never reused, a reader knows a new pool in an old place. */
typedef struct usm__monitor_pool {
    _Atomic(uint64_t) serial; /* 0: the place is free */
    usm__pool_held    held;
    uint32_t          kind; /* usm_kind */
    uint32_t          is_default;
    char              name[16], device[USM__MONITOR_TEXT];
    /* sampled */
    uint64_t live, live_peak, blocks, allocations, frees, largest_free;
    uint64_t thread_cached, depot_cached, threads, queued;
} usm__monitor_pool;

typedef struct usm__monitor_tag {
    char     name[USM__MONITOR_TEXT];
    uint64_t live, live_peak, blocks, allocations;
} usm__monitor_tag;

/* A device stays in its place after its last context has ended. */
typedef struct usm__monitor_device {
    char term[USM__MONITOR_TEXT], name[USM__MONITOR_TEXT]; /* the host's memory: "host memory" */
    uint64_t memory;                                       /* bytes; 0: unknown          */
    uint64_t reserved, limit;                              /* of the quota; limit 0: none */
    uint64_t commands; /* submitted to the queues of the device that exist */
    uint64_t depth;    /* commands in flight: the sum over these queues    */
    uint64_t busy_ns;  /* periods between two samples at whose end it had commands in flight */
} usm__monitor_device;

#define USM__MONITOR_UNKNOWN UINT64_MAX

/* `ended` is a few milliseconds old while somebody reads (progress.c), so depth may be a little too
 * large, but not too small. */
typedef struct usm__monitor_queue {
    uint64_t serial, submitted, ended;
    uint64_t depth; /* commands in flight; unknown: others submit to its native queue as well */
    uint64_t depth_peak; /* the most in a sample; unknown likewise */
    uint32_t device;     /* index in devices; UINT32_MAX: it found no room there */
    uint32_t flags;      /* of usm_queue_desc */
} usm__monitor_queue;

typedef struct usm__monitor_tier {
    char     name[USM__MONITOR_TEXT];
    uint64_t used, capacity; /* UINT64_MAX: unknown */
    uint64_t read, written, reads, writes, errors;
} usm__monitor_tier;

typedef struct usm__monitor_spill {
    uint64_t limit, resident, resident_peak, pinned, dirty, misses, wait_ns;
    uint64_t prefetched, prefetch_hits, evicted_clean, evicted_dirty;
} usm__monitor_spill;

typedef struct usm__monitor_member {
    char     name[32];
    uint64_t chunks, items, busy_ns; /* busy: at least one chunk in progress */
    uint32_t under_way;
    uint32_t state;                    /* usm_member_state */
    char     why[USM__MONITOR_REASON]; /* others last got work of it: the reason */
} usm__monitor_member;

/* A launch of usm_parallel(); start_ns tells two apart. */
typedef struct usm__monitor_launch {
    char                kernel[USM__MONITOR_TEXT];
    uint64_t            start_ns, total, done; /* indices */
    uint32_t            nmembers; /* over a job: of all ranks, where chunks are granted;
                                                   of this rank elsewhere */
    uint32_t            is_over;
    usm__monitor_member members[USM__MONITOR_MEMBERS];
    uint64_t            rescheduled;
} usm__monitor_launch;

/* A map of the addresses of all pools that have memory.  A segment is a stretch of addresses of one
 * pool; small gaps may lie in it.  It is cut into cells of 2^shift bytes, the first of which begins
 * at `base`; segments are in the order of pools, then of addresses. */
typedef struct usm__monitor_segment {
    uint64_t pool; /* its serial */
    uint64_t base, size;
    uint32_t shift, first; /* cells[first] is its first cell */
} usm__monitor_segment;

/* A cell: without memory, with memory of which only the pool's module knows what is used, or FREE + u,
 * where u of USM__MONITOR_FULL is used; u is 0 only if nothing is. */
typedef enum usm__monitor_cell {
    USM__MONITOR_HOLE   = 0,
    USM__MONITOR_UNTOLD = 1,
    USM__MONITOR_FREE   = 2
} usm__monitor_cell;
#define USM__MONITOR_FULL 61 /* 64 values in all */

typedef struct usm__monitor_map {
    uint64_t             taken_ns, cost_ns; /* when, and how long that took; taken_ns 0: never */
    uint32_t             nsegments, reserved;
    usm__monitor_segment segments[USM__MONITOR_SEGMENTS];
    uint8_t              cells[USM__MONITOR_CELLS];
} usm__monitor_map;

/* Counts say how many places of an array are in use; what did not fit is in `left_out`. */
typedef struct usm__monitor_page {
    char     magic[8];
    uint32_t version, size; /* size: of the whole */
    uint32_t pid, uid;
    uint64_t start_ticks, stack_start; /* fields 22 and 28 of /proc/<pid>/stat */
    uint32_t rank, ranks;              /* of the job; ranks 0: there is none    */
    char     program[USM__MONITOR_TEXT], host[USM__MONITOR_TEXT];
    uint64_t start_ns; /* as all times here, of CLOCK_MONOTONIC */
    /* sampled, from here on */
    _Atomic(uint64_t)   sequence;
    uint64_t            sampled_ns; /* 0: never */
    uint64_t            samples;
    uint32_t            ntags, ndevices, nqueues, ntiers;
    uint32_t            has_spill, left_out;
    _Atomic(uint32_t)   pools_left_out; /* pools without a place */
    uint32_t            nlaunches;
    usm__monitor_pool   pools[USM__MONITOR_POOLS];
    usm__monitor_tag    tags[USM__MONITOR_TAGS];
    usm__monitor_device devices[USM__MONITOR_DEVICES];
    usm__monitor_queue  queues[USM__MONITOR_QUEUES];
    usm__monitor_spill  spill;
    usm__monitor_tier   tiers[USM__MONITOR_TIERS];
    usm__monitor_launch launches[USM__MONITOR_LAUNCHES];
    usm__monitor_map    map;
} usm__monitor_page;

#endif
