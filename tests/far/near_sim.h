/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory that simulated processes of one host share: a far_near for each of them (transports/far/
 * near.h), in one process.  What a lender takes back is gone for his borrower too; what a dead
 * process had mapped stays for the others.  In the middle of each copy somebody may let the world
 * go on. */
#ifndef TESTS_FAR_NEAR_SIM_H
#define TESTS_FAR_NEAR_SIM_H

#include "far/near.h"

typedef struct near_sim {
    far_near base; /* first */
    uint64_t host; /* 0: none                                                                  */
    uint32_t node;
    bool     cannot_lend, cannot_map;
    unsigned lent, mapped;   /* areas now                                                        */
    _Atomic uint64_t copied; /* bytes                                                           */
    uint64_t         given_back;
    /* In the middle of a copy between the node and the lender of the area; may be NULL. */
    void (*middle)(void *user, uint32_t lender);
    void *user;
} near_sim;

void near_sim_init(near_sim *n, uint32_t node, uint64_t host);
/* Of all nodes. */
void near_sim_free_all(void);

#endif
