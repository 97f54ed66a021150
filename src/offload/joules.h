/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Divides energy among launches: joules.c.  Pure: it is told when launches begin and end, and what
 * the counters read; it reads no clock and no file.  One thread at a time. */
#ifndef USM_OFFLOAD_JOULES_H
#define USM_OFFLOAD_JOULES_H

#include "offload/watts.h"

#include <stddef.h>

typedef enum usm__joules_source {
    USM__JOULES_UNKNOWN = 0,
    USM__JOULES_COUNTED = 1, /* a processor of this host: its share of the packages' counters */
    USM__JOULES_STATED  = 2  /* its watts are known, and multiplied by its busy time */
} usm__joules_source;

typedef struct usm__joules_member {
    usm__joules_source source;
    double             watts; /* STATED */
    unsigned           under_way;
    /* Since the last reading: busy_ns of them all, open_ns of the launch under way. */
    uint64_t busy_ns, open_ns;
    double   joules, open; /* open: of the launch under way, which is in no account yet */
} usm__joules_member;

/* What launches that have ended used; their times since the last reading are not divided yet. */
typedef struct usm__joules_account {
    uint64_t ns;
    double   joules;
} usm__joules_account;

typedef struct usm__joules {
    uint32_t             nmembers;
    usm__joules_member  *members;
    size_t               naccounts, cap;
    usm__joules_account *accounts;
    uint64_t             at_ns;      /* of the last event */
    uint64_t             covered_ns; /* since the last reading, with a COUNTED member busy */
    usm__powercap        last;       /* n is 0: it could not be read */
    double               idle;       /* counted while no member was busy */
    bool                 is_partial; /* counters could not be read at some time */
} usm__joules;

/* All members are UNKNOWN.  USM_E_NO_MEMORY */
usm_status usm__joules_init(usm__joules *j, uint32_t nmembers);
void       usm__joules_fini(usm__joules *j);
/* Adds n empty accounts; *first: the first of them.  USM_E_NO_MEMORY */
usm_status usm__joules_add_accounts(usm__joules *j, size_t n, size_t *first);

/* A launch begins on a member, and ends.  Launches of a member that overlap count from the end of
 * the previous one.  A time before that of the last event counts as that one. */
void usm__joules_begin(usm__joules *j, uint32_t member, uint64_t now_ns);
void usm__joules_end(usm__joules *j, uint32_t member, size_t account, uint64_t now_ns);
/* Takes a reading as the first one: what was drawn before belongs to nobody. */
void usm__joules_start(usm__joules *j, const usm__powercap *counters);
/* Divides what was drawn since the last reading.  counters->n is 0: they cannot be read. */
void usm__joules_read(usm__joules *j, const usm__powercap *counters);

#endif
