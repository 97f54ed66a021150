/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reading traces: a whole one in memory, with numbers that are unique over all its parts.
 * usm-prof and usm-replay call this; the file's format is base/trace_format.h. */
#ifndef USM_PROFILE_TRACE_H
#define USM_PROFILE_TRACE_H

#include "base/trace_format.h"

#include <usm/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct usm__trace_event {
    uint64_t time_ns; /* since the trace's first moment (sources[0] need not be the first)     */
    uint64_t address; /* of a driver call 0: refused                                           */
    uint64_t size;    /* asked for; of a free: 0                                               */
    uint64_t usable;  /* alloc: what the block has, within a thousandth                        */
    uint32_t extra;   /* alloc: id of its stack, 0 = none; driver calls: duration in ns        */
    uint32_t tag;     /* index in tags; 0 = none                                               */
    uint32_t pool;    /* id, see usm__trace_find_pool(); 0 = none                              */
    uint32_t type;    /* usm__trace_type; the time of a driver call is that of its end         */
} usm__trace_event;

typedef struct usm__trace_pool_info {
    uint32_t id, kind; /* usm_kind */
    char     name[32], device[64];
    uint32_t source;
} usm__trace_pool_info;

typedef struct usm__trace_stack_info {
    uint32_t        id, depth;
    const uint64_t *frames; /* innermost first */
    uint32_t        source;
} usm__trace_stack_info;

/* A buffer's range of blocks. */
typedef struct usm__trace_space_info {
    uint64_t block_size, blocks;
    char     name[48];
    uint32_t source;
} usm__trace_space_info;

/* What happened to a block on its way: base/trace_spill.h. */
typedef struct usm__trace_spill_record {
    uint64_t time_ns; /* of its end, as an event's                                           */
    uint64_t ns, bytes;
    uint32_t kind; /* usm__spill_kind                                                        */
    uint32_t block, mode;
    uint32_t space, tier;    /* spaces[space - 1], tiers[tier - 1]; 0: unknown, none            */
    uint32_t thread, source; /* as a record's                                                */
} usm__trace_spill_record;

/* What a launch over a team did: base/trace_work.h. */
typedef struct usm__trace_work_record {
    uint64_t time_ns; /* of its end; of a part of a chunk the device's                       */
    uint64_t ns;
    uint64_t first, n;       /* of a chunk; indices, or bytes                                */
    uint32_t kind;           /* usm__work_kind                                               */
    uint32_t member, kernel; /* members[member - 1], kernels[kernel - 1]; 0: none, unknown    */
    uint32_t thread, source; /* as a record's                                                */
} usm__trace_work_record;

/* An event with what only a reader knows. */
typedef struct usm__trace_record {
    usm__trace_event e;
    uint32_t         thread; /* unique over all sources, from 1                          */
    uint32_t         source; /* index of its process; addresses are its own              */
} usm__trace_record;

/* One process of a trace: all there is, unless it was merged. */
typedef struct usm__trace_source {
    usm__trace_header header;
    char             *maps; /* code of /proc/PID/maps, or NULL         */
    bool              ended;
    uint64_t          lost;
} usm__trace_source;

/* A whole trace in memory; immutable once opened. */
typedef struct usm__trace {
    usm__trace_header     header; /* of the file; start_* is the trace's first moment */
    size_t                nrecords;
    usm__trace_record    *records; /* by time; of one thread in the order written */
    size_t                npools;
    usm__trace_pool_info *pools; /* ids are 1, 2, ...: pools[id - 1]           */
    size_t                ntags;
    char (*tags)[64]; /* tags[0] = ""                               */
    size_t                   nstacks;
    usm__trace_stack_info   *stacks; /* ids are 1, 2, ...: stacks[id - 1]          */
    size_t                   nsources;
    usm__trace_source       *sources;
    size_t                   nspills;
    usm__trace_spill_record *spills; /* by time; apart from records                   */
    size_t                   nspaces, ntiers;
    usm__trace_space_info   *spaces; /* spaces[id - 1]                              */
    char (*tiers)[64];               /* tiers[id - 1]                               */
    size_t                  nworks;
    usm__trace_work_record *works; /* by time; apart from records                   */
    size_t                  nmembers, nkernels;
    char (*members)[64]; /* members[id - 1], of their source alone              */
    char (*kernels)[64]; /* kernels[id - 1]                                     */
    uint64_t lost;
    bool     ended;       /* all processes ended in order                     */
    char     damage[256]; /* what is wrong with the file's rest; "" = nothing */
} usm__trace;

/* Reads a file whole.  A damaged or cut file is read as far as it goes and `damage` says so;
 *   USM_E_SYSTEM  it cannot be read (the story names the path and why)
 *   USM_E_FORMAT  no trace of ours, or of a version this libusm does not know
 *   USM_E_NO_MEMORY */
usm_status usm__trace_open(const char *path, usm__trace **trace);
/* The same of a file's bytes; `name` is for stories. */
usm_status usm__trace_parse(const void *data, size_t size, const char *name, usm__trace **trace);
void       usm__trace_close(usm__trace *trace); /* NULL is fine */

/* NULL for 0 and for ids that the trace does not define. */
const usm__trace_pool_info  *usm__trace_find_pool(const usm__trace *t, uint32_t id);
const usm__trace_stack_info *usm__trace_find_stack(const usm__trace *t, uint32_t id);

/* Joins trace files into one (docs/profiling.md): parts as they are, one after the other; reading
 * puts them in one order by real time.  What is damaged in one is left out and told in the log.
 *   USM_E_SYSTEM, USM_E_FORMAT, USM_E_NO_MEMORY as above; USM_E_INVALID: no file */
usm_status usm__trace_merge(size_t n, char *const *paths, const char *out);

#endif
