/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Call sites of a trace by name: all stacks whose site has the same name are one.  Stacks are
 * sampled, so a block stands for several.  Called by analyse.c and peaks.c. */
#ifndef USM_PROFILE_SITES_H
#define USM_PROFILE_SITES_H

#include "profile/trace.h"

#define USM__SITE_NAME 320

typedef struct usm__profile_sites {
    size_t n; /* 0: the trace has no stacks */
    char (*names)[USM__SITE_NAME];
    uint32_t *of; /* by stack id, from 1: index of its name */
} usm__profile_sites;

/* false: no memory. */
bool usm__profile_sites_find(const usm__profile *t, usm__profile_sites *sites);
void usm__profile_sites_free(usm__profile_sites *sites);

/* How many allocations of its size one whose stack was sampled stands for, on average. */
double usm__profile_weight(const usm__profile *t, const usm__profile_record *r);

#endif
