/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a trace shows about energy: joules by device and kernel.  Called by analyse.c; printed by
 * usm-prof. */
#ifndef USM_PROFILE_ENERGY_H
#define USM_PROFILE_ENERGY_H

#include "profile/trace.h"

/* A kernel on a member of teams in one process. */
typedef struct usm__profile_energy_row {
    uint32_t member, kernel, source;
    bool     is_stated;
    uint64_t microjoules;
} usm__profile_energy_row;

typedef struct usm__profile_energy {
    size_t                   n;
    usm__profile_energy_row *rows; /* in the order of the members, the greatest first */
    uint64_t                 idle; /* microjoules while the processors of teams did nothing */
    uint64_t                 all;  /* microjoules of all rows */
} usm__profile_energy;

/* false: no memory. */
bool usm__profile_energy_count(const usm__profile *t, usm__profile_energy *e);
void usm__profile_energy_free(usm__profile_energy *e);

#endif
