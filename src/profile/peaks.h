/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The most memory that a trace shows of each kind on each device, over all pools and processes
 * together, and who held it then or at another moment.  Called by usm-prof and usm-replay --budget. */
#ifndef USM_PROFILE_PEAKS_H
#define USM_PROFILE_PEAKS_H

#include "profile/blocks.h"
#include "profile/sites.h"

typedef struct usm__profile_peak {
    char     name[160]; /* "device memory of level_zero:0"; of several hosts with the host */
    uint32_t kind;      /* usm_kind */
    uint32_t first;     /* id of its first pool */
    uint64_t live, blocks, reserved;                /* at the current record */
    uint64_t live_peak, blocks_peak, reserved_peak; /* each at a moment of its own */
    uint32_t live_at; /* record at which live_peak was reached first */
} usm__profile_peak;

/* One call site; of blocks without a stack one tag. */
typedef struct usm__profile_holder {
    char     name[USM__SITE_NAME];
    uint64_t bytes, blocks; /* estimated from the sampled blocks, if stacks were sampled */
} usm__profile_holder;

typedef struct usm__profile_peaks {
    const usm__profile  *t;
    usm__profile_blocks *found;
    size_t               n;
    usm__profile_peak   *rows;
    uint32_t            *row_of; /* by pool id, from 1; USM__NEVER: left out */
} usm__profile_peaks;

/* `only_pool`: of this pool alone; 0: of all.  Pools without memory have no row.  0, ENOMEM or
 * EFBIG. */
int  usm__profile_peaks_find(const usm__profile *t, uint32_t only_pool, usm__profile_peaks *p);
void usm__profile_peaks_free(usm__profile_peaks *p);

/* Who held the live bytes of a row after the record `at`, such as the row's live_at, most bytes
 * first.  The caller frees *list with usm__heap_free().  0 or ENOMEM. */
int usm__profile_peaks_holders(const usm__profile_peaks *p, size_t row, uint32_t at,
                               usm__profile_holder **list, size_t *n);

#endif
