/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reading traces: a whole trace in memory, with numbers that are unique over all its parts.  Called
 * by usm-prof and usm-replay; the file's format is base/trace_format.h. */
#ifndef USM_PROFILE_TRACE_H
#define USM_PROFILE_TRACE_H

#include "base/trace_format.h"

#include <usm/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct usm__profile_event {
    uint64_t time_ns; /* since the trace's first moment (which need not be that of sources[0]) */
    uint64_t address; /* of a driver call 0: refused                                           */
    uint64_t size;    /* requested size; of a free: 0                                          */
    uint64_t usable;  /* alloc: size of the block, to within a thousandth                      */
    uint32_t extra;   /* alloc: id of its stack, 0 = none; driver calls: duration in ns        */
    uint32_t tag;     /* index in tags; 0 = none                                               */
    uint32_t pool;    /* id, see usm__profile_find_pool(); 0 = none                              */
    uint32_t type;    /* usm__trace_type; a driver call has the time of its end                */
} usm__profile_event;

typedef struct usm__profile_pool_info {
    uint32_t id, kind; /* usm_kind */
    char     name[32], device[64];
    uint32_t source;
} usm__profile_pool_info;

typedef struct usm__profile_stack_info {
    uint32_t        id, depth;
    const uint64_t *frames; /* innermost first */
    uint32_t        source;
} usm__profile_stack_info;

/* A buffer's range of blocks. */
typedef struct usm__profile_space_info {
    uint64_t block_size, blocks;
    char     name[48];
    uint32_t source;
} usm__profile_space_info;

/* An event of a block that is spilled: base/trace_spill.h. */
typedef struct usm__profile_spill_record {
    uint64_t time_ns; /* of the event's end, as in usm__profile_event                          */
    uint64_t ns, bytes;
    uint32_t
        kind; /* usm__trace_spill_kind                                                        */
    uint32_t block, mode;
    uint32_t space, tier;    /* spaces[space - 1], tiers[tier - 1]; 0: unknown, none */
    uint32_t thread, source; /* as in usm__profile_record                              */
} usm__profile_spill_record;

/* An event of a launch over a team: base/trace_work.h. */
typedef struct usm__profile_work_record {
    uint64_t time_ns; /* of the event's end; of a part of a chunk by the device's clock      */
    uint64_t ns;
    uint64_t first, n;       /* of a chunk; indices, or bytes                              */
    uint32_t kind;           /* usm__trace_work_kind                                             */
    uint32_t member, kernel; /* members[member - 1], kernels[kernel - 1]; 0: none, unknown */
    uint32_t thread, source; /* as in usm__profile_record                                    */
    bool     is_in_order;    /* it overlaps no other command of its queue */
} usm__profile_work_record;

/* What a launch has used on a member: base/trace_work.h. */
typedef struct usm__profile_energy_record {
    uint64_t time_ns; /* of the launch's end */
    uint64_t microjoules;
    uint32_t member, kernel; /* as in usm__profile_work_record; both 0: idle */
    uint32_t thread, source;
    bool     is_stated; /* from USM_WATTS, not measured */
} usm__profile_energy_record;

/* What the caches of a pool's threads may hold from now on. */
typedef struct usm__profile_cache_record {
    uint64_t time_ns;
    uint64_t room, limit;    /* bytes; the budget at that moment    */
    uint32_t pool;           /* id, > 0                              */
    uint32_t thread, source; /* as in usm__profile_record            */
} usm__profile_cache_record;

/* An event with the fields that only a reader knows. */
typedef struct usm__profile_record {
    usm__profile_event e;
    uint32_t           thread; /* unique over all sources, from 1                          */
    uint32_t           source; /* index of its process, to which the addresses belong      */
} usm__profile_record;

/* One process of a trace; there is only one unless the trace was merged. */
typedef struct usm__profile_source {
    usm__trace_header header;
    char             *maps; /* the executable ranges of /proc/PID/maps, or NULL */
    bool              ended;
    uint64_t          lost;
} usm__profile_source;

/* A whole trace in memory; immutable once opened. */
typedef struct usm__profile {
    usm__trace_header       header; /* of the file; start_* is the trace's first moment */
    size_t                  nrecords;
    usm__profile_record    *records; /* by time; those of one thread in written order */
    size_t                  npools;
    usm__profile_pool_info *pools; /* ids are 1, 2, ...: pools[id - 1]           */
    size_t                  ntags;
    char (*tags)[64]; /* tags[0] = ""                               */
    size_t                     nstacks;
    usm__profile_stack_info   *stacks; /* ids are 1, 2, ...: stacks[id - 1]          */
    size_t                     nsources;
    usm__profile_source       *sources;
    size_t                     nspills;
    usm__profile_spill_record *spills; /* by time; separate from records                */
    size_t                     nspaces, ntiers;
    usm__profile_space_info   *spaces; /* spaces[id - 1]                              */
    char (*tiers)[64];                 /* tiers[id - 1]                               */
    size_t                      nworks;
    usm__profile_work_record   *works; /* by time; separate from records                */
    size_t                      nenergies;
    usm__profile_energy_record *energies; /* by time */
    size_t                      nmembers, nkernels;
    char (*members)[64]; /* members[id - 1], each of its source only            */
    char (*kernels)[64]; /* kernels[id - 1]                                     */
    size_t                     ncaches;
    usm__profile_cache_record *caches; /* by time; separate from records                */
    uint64_t                   lost;
    bool                       ended;       /* all processes ended properly                     */
    char                       damage[256]; /* the flaw of the file's rest; "": none            */
} usm__profile;

/* Reads a file completely.  A damaged or cut file is read as far as possible, and `damage` has the
 * flaw.
 *
 *     USM_E_SYSTEM     it cannot be read (the error message has the path and the reason)
 *     USM_E_FORMAT     not a trace of libusm, or of a version that this libusm does not know
 *     USM_E_NO_MEMORY */
usm_status usm__profile_open(const char *path, usm__profile **trace);
/* The same for a file's bytes; `name` is for error messages. */
usm_status usm__profile_parse(const void *data, size_t size, const char *name,
                              usm__profile **trace);
void       usm__profile_close(usm__profile *trace); /* NULL is fine */

/* NULL for 0 and for ids that the trace does not define. */
const usm__profile_pool_info  *usm__profile_find_pool(const usm__profile *t, uint32_t id);
const usm__profile_stack_info *usm__profile_find_stack(const usm__profile *t, uint32_t id);

/* Joins trace files into one (docs/profiling.md): the parts follow each other unchanged; reading
 * sorts them by real time.  Damaged parts of a file are left out and reported in the log.
 *
 *     USM_E_SYSTEM, USM_E_FORMAT, USM_E_NO_MEMORY as above; USM_E_INVALID: no file */
usm_status usm__profile_merge(size_t n, char *const *paths, const char *out);

#endif
