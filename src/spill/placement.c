/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Weighted rendezvous hashing: see the header. */
#include "spill/placement.h"

#include "base/hash.h"

#include <math.h>
#include <string.h>

uint64_t usm__placement_domain(const char *name)
{
    usm__hash h = USM__HASH_INIT;

    usm__hash_add(&h, name, strlen(name));
    return h.hi ^ h.lo;
}

/* The finaliser of splitmix64: every bit of the input changes half of the output's. */
static uint64_t mixed(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double usm__placement_lot(const usm__candidate *c, size_t index, uint64_t key)
{
    uint64_t h = mixed(mixed(mixed(key) ^ c->domain) ^ index);
    double   u = ((double)(h >> 11) + 0.5) * 0x1p-53; /* in (0, 1) */

    return -log(u) / (double)c->weight;
}

static bool is_avoided(const usm__placement *p, uint64_t domain)
{
    for (size_t i = 0; i < p->navoid; i++)
        if (p->avoid[i] == domain)
            return true;
    return false;
}

size_t usm__placement_best(const usm__placement *p)
{
    size_t best  = USM__PLACEMENT_NONE;
    double first = INFINITY;

    for (size_t i = 0; i < p->n; i++) {
        const usm__candidate *c = &p->list[i];
        double                lot;

        if (c->weight == 0 || is_avoided(p, c->domain) || (p->may_take && !p->may_take(p->arg, i)))
            continue;
        lot = usm__placement_lot(c, i, p->key);
        if (lot < first) {
            first = lot;
            best  = i;
        }
    }
    return best;
}
