/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The best local size of a kernel on a device, found by measuring chunks of launches
 * (USM_PARALLEL_TUNE). */
#ifndef USM_OFFLOAD_TUNE_H
#define USM_OFFLOAD_TUNE_H

#include "offload/offload.h"

#include "base/hash.h"
#include "base/inline/atomic.h"

#define USM__TUNE_SIZES 10u /* most sizes that are tried */
#define USM__TUNE_TRIES 3u  /* trials of each */
/* Not numbers of work-items: the size that is used without the flag (usm__plan_local()), always the
 * first in the list; and the size that the driver chooses. */
#define USM__TUNE_USUAL  SIZE_MAX
#define USM__TUNE_DRIVER ((size_t)0)

typedef struct usm__tune_size {
    size_t   items; /* in a work-group */
    bool     is_refused;
    unsigned given, n; /* trials started; trials measured */
    double   ns[USM__TUNE_TRIES];
    double   median; /* time per item in ns; 0: unknown */
} usm__tune_size;

/* The trials of one member, for launches in which the same sizes can be tried. */
typedef struct usm__tune {
    struct usm__tune *next;
    /* fixed after create */
    usm_team_kernel *kernel;
    uint32_t         member;
    usm__hash        key;    /* hash of program, device, driver, kernel, sizes: the file's name */
    unsigned         nsizes; /* 0: nothing is tried */
    /* guarded by the team's lock */
    usm__tune_size sizes[USM__TUNE_SIZES];
    bool           is_warm; /* the first chunk, which is not measured, was handed out */
    unsigned       misses;  /* trials without a time */
    bool           is_from_cache;
    _Atomic(int)   chosen; /* index in sizes; -1: not chosen yet */
} usm__tune;

/* For tests: tunes processors as well. */
void usm__tune_include_processors(bool yes);

/* Finds the results for launches like this one, in this process or in USM_CACHE_DIR.  NULL: nothing
 * is tuned on that member; the log says why. */
usm__tune *usm__tune_find(usm_team_kernel *k, uint32_t member, const usm__plan *plan);
void       usm__tunes_destroy(usm__tune *list);
/* Whether sizes are still tried; t may be NULL. */
static inline bool usm__tune_explores(const usm__tune *t)
{
    return t && usm_load_acquire(&t->chosen) < 0;
}
/* How large chunks may be, so that there are enough of them; the plan's max_chunk if no size is
 * tried. */
uint64_t usm__tune_max_chunk(const usm__plan *plan);

/* Chooses the size for a chunk.  *is_trial: the caller must call usm__tune_ended(). */
unsigned usm__tune_choose(usm__tune *t, const usm__plan *plan, uint64_t count, size_t local[3],
                          bool *is_trial);
/* The driver refused the size: it is not tried any more. */
void usm__tune_refused(usm__tune *t, unsigned size);
/* The result of a trial: the time for so many items.  0 items: it was not run; 0 ns: it was not
 * measured.  In both cases it is repeated. */
void usm__tune_ended(usm__tune *t, unsigned size, uint64_t items, uint64_t ns);

/* Called by lane.c, at each step of a chunk: before its local size is needed; after the kernel was
 * queued; after it could not be queued (true: try again, with the usual size); when it is over. */
struct usm__lane;
void usm__tune_lane_begin(struct usm__lane *lane);
void usm__tune_lane_queued(struct usm__lane *lane, usm_event *ev);
bool usm__tune_lane_refused(struct usm__lane *lane);
void usm__tune_lane_over(struct usm__lane *lane, usm_status status);

#endif
