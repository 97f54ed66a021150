/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A thread of a test of pools: it holds up to a hundred blocks of 8 to 20,007 bytes, replaces them
 * at random, and finds in each what it wrote. */
#ifndef USM_TESTS_INSIDE_CHURN_H
#define USM_TESTS_INSIDE_CHURN_H

#include "plain.h"

#include <stdint.h>

/* id: of the thread; give: fails the test itself if it cannot. */
static void churn_blocks(uintptr_t id, int rounds, void *(*get)(size_t size), void (*give)(void *p))
{
    unsigned  seed   = (unsigned)id;
    uint64_t *p[100] = {NULL};

    for (int i = 0; i < rounds; i++) {
        unsigned k    = (unsigned)rand_r(&seed) % 100;
        size_t   size = 8 + (unsigned)rand_r(&seed) % 20000;

        if (p[k]) {
            CHECK(*p[k] == ((uint64_t)id << 32 | k));
            give(p[k]);
        }
        p[k] = get(size);
        CHECK(p[k] != NULL);
        *p[k] = (uint64_t)id << 32 | k;
    }
    for (int k = 0; k < 100; k++)
        if (p[k])
            give(p[k]);
}

#endif
