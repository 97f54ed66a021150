/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The best local size of a kernel on a device, found on chunks of launches (USM_PARALLEL_TUNE). */
#ifndef USM_OFFLOAD_TUNE_H
#define USM_OFFLOAD_TUNE_H

#include "offload/offload.h"

#include "base/hash.h"
#include "base/inline/atomic.h"

#define USM__TUNE_SIZES 10u /* most that are tried                                              */
#define USM__TUNE_TRIES 3u  /* of each                                                          */
/* Not numbers of work-items: what is taken without the flag (usm__plan_local()), the first of all
 * sizes; and what the driver takes where it is left to it. */
#define USM__TUNE_USUAL  SIZE_MAX
#define USM__TUNE_DRIVER ((size_t)0)

typedef struct usm__tune_size {
    size_t   items; /* of a work-group                                                          */
    bool     is_refused;
    unsigned given, n; /* tries; those that were measured                                       */
    double   ns[USM__TUNE_TRIES];
    double   median; /* an item's time in ns; 0: not known                                      */
} usm__tune_size;

/* Of one member, for launches that let the same sizes be tried. */
typedef struct usm__tune {
    struct usm__tune *next;
    /* fixed after create */
    usm_team_kernel *kernel;
    uint32_t         member;
    usm__hash        key;    /* of program, device, driver, kernel, sizes: the file's name       */
    unsigned         nsizes; /* 0: nothing is tried                                             */
    /* guarded by the team's lock */
    usm__tune_size sizes[USM__TUNE_SIZES];
    bool           is_warm; /* a chunk was given that is not measured                           */
    unsigned       misses;  /* trials without a time                                            */
    bool           is_from_cache;
    _Atomic(int)   chosen; /* of sizes; -1: not yet                                              */
} usm__tune;

/* For tests: processors are tuned as well. */
void usm__tune_include_processors(bool yes);

/* What is known for launches like this one, in this process or in USM_CACHE_DIR.  NULL: nothing is
 * tuned on that member; the log says why. */
usm__tune *usm__tune_find(usm_team_kernel *k, uint32_t member, const usm__plan *plan);
void       usm__tunes_destroy(usm__tune *list);
/* Whether sizes are still tried; t may be NULL. */
static inline bool usm__tune_explores(const usm__tune *t)
{
    return t && usm_load_acquire(&t->chosen) < 0;
}
/* How large chunks may be, so that there are enough of them; the plan's max_chunk where nothing is
 * tried. */
uint64_t usm__tune_max_chunk(const usm__plan *plan);

/* The size for a chunk.  *is_trial: usm__tune_ended() is to be called. */
unsigned usm__tune_choose(usm__tune *t, const usm__plan *plan, uint64_t count, size_t local[3],
                          bool *is_trial);
/* The device did not take it: it is tried no more. */
void usm__tune_refused(usm__tune *t, unsigned size);
/* The trial took so long for so many items; 0 items: it was not run; 0 ns: it was not measured.  It
 * is then made again. */
void usm__tune_ended(usm__tune *t, unsigned size, uint64_t items, uint64_t ns);

/* What lane.c does with it, one call for each step of a chunk: its local size is wanted; the kernel
 * is queued; it could not be (true: it is to be tried again, with the usual size); it is over. */
struct usm__lane;
void usm__tune_lane_begin(struct usm__lane *lane);
void usm__tune_lane_queued(struct usm__lane *lane, usm_event *ev);
bool usm__tune_lane_refused(struct usm__lane *lane);
void usm__tune_lane_over(struct usm__lane *lane, usm_status status);

#endif
