/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tiers of USM_SPILL, to which blocks are evicted; each is opened for a moment. */
#ifndef USM_INFO_SPILL_H
#define USM_INFO_SPILL_H

#include "base/json.h"
#include "doctor.h"

#include <usm/transport.h>

typedef struct spill_tier {
    char                   name[32];  /* of the transport */
    char                   path[512]; /* of its module; "built in"; "": none */
    char                  *config;    /* after the name in USM_SPILL; "" */
    char                  *text;      /* its description, or why it is not available */
    bool                   is_ok;
    bool                   is_later; /* not available here, but in a program that attaches */
    usm_transport_capacity capacity; /* if it is ok */
} spill_tier;

/* The tiers in their order; *n is 0 when nothing is spilled. */
spill_tier *spill_collect(size_t *n);
void        spill_free(spill_tier *tiers, size_t n);

void show_spill(void);              /* lines for people */
void show_spill_json(usm__json *j); /* the member "spill" */
void doctor_check_spill(doctor *d);

#endif
