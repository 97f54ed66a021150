/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where blocks go that leave memory: the tiers of USM_SPILL, each opened for a moment. */
#ifndef USM_INFO_SPILL_H
#define USM_INFO_SPILL_H

#include "doctor.h"
#include "json.h"

#include <usm/transport.h>

typedef struct spill_tier {
    char                   name[32];  /* of the transport                                   */
    char                   path[512]; /* of its module; "built in"; "": none                 */
    char                  *config;    /* behind the name in USM_SPILL; ""                    */
    char                  *text;      /* what it says of itself, or why it cannot be had      */
    bool                   is_ok;
    bool                   is_later; /* not here, but in a program that attaches                */
    usm_transport_capacity capacity; /* when it is ok                                      */
} spill_tier;

/* The tiers in their order; *n is 0 when nothing is spilled. */
spill_tier *spill_collect(size_t *n);
void        spill_free(spill_tier *tiers, size_t n);

void show_spill(void);         /* lines for people                                        */
void show_spill_json(json *j); /* the member "spill"                                      */
void doctor_check_spill(doctor *d);

#endif
