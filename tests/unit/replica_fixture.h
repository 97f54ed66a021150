/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks with copies in the places of a fake transport, for tests of src/spill/replica.h. */
#ifndef REPLICA_FIXTURE_H
#define REPLICA_FIXTURE_H

#include "tier_fixture.h"

#include "base/fork.h"
#include "spill/replica.h"

#include <time.h>

#define SETTLE_S 60

static const char *const racks[] = {"rack0", "rack1", "rack2", "rack3", "rack4"};

/* ---- helpers ----------------------------------------------------------------------------- */

static inline void start_copies(const char *spec, const char *replicas)
{
    CHECK_INT(usm__settings_set("spill_replicas", replicas), USM_OK);
    start(spec);
    CHECK_INT(usm__settings_set("spill_replicas", NULL), USM_OK);
}

/* A place in each rack. */
static inline void add_racks(fake_name name, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        (void)fake_place_add(name, racks[i], 1000);
}

static inline usm__tiers_copies copies(void)
{
    usm__tiers_copies s;

    usm__tiers_get_copies(tiers, &s);
    return s;
}

/* Until every block has its copies. */
static inline void settle(void)
{
    time_t last = time(NULL) + SETTLE_S;

    while (copies().missing > 0) {
        CHECK(time(NULL) < last);
        if (!usm__tiers_progress(tiers, 10))
            (void)usleep(200);
    }
}

/* Until nothing more is tried: what is left cannot be mended now. */
static inline void settle_as_far_as_may_be(void)
{
    time_t last = time(NULL) + SETTLE_S;
    bool   busy = true;

    while (busy) {
        CHECK(time(NULL) < last);
        if (!usm__tiers_progress(tiers, 10))
            (void)usleep(200);
        usm__mutex_lock(&tiers->lock);
        busy = !usm_list_is_empty(&tiers->replicas->repairing) || tiers->replicas->is_repairing;
        usm__mutex_unlock(&tiers->lock);
    }
}

/* Places that have a good copy; they are in different domains. */
static inline unsigned places_of(const block *b, usm__target *list[USM__LOCATIONS])
{
    usm__spread *s = usm__spread_of(tiers, b->copy);
    unsigned     n = 0;

    usm__mutex_lock(&tiers->lock);
    for (unsigned i = 0; i < USM__LOCATIONS; i++)
        if (s->at[i].state == USM__LOCATION_GOOD)
            list[n++] = s->at[i].place;
    usm__mutex_unlock(&tiers->lock);
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < i; k++)
            CHECK(list[i]->domain != list[k]->domain);
    return n;
}

static inline unsigned count_copies(const block *b)
{
    usm__target *list[USM__LOCATIONS];

    return places_of(b, list);
}

static inline bool lies_in(const block *b, const char *domain)
{
    usm__target *list[USM__LOCATIONS];
    unsigned     n = places_of(b, list);

    for (unsigned i = 0; i < n; i++)
        if (strcmp(list[i]->domain_name, domain) == 0)
            return true;
    return false;
}

static inline void write_all(block *b, unsigned n, uint32_t version)
{
    for (unsigned i = 0; i < n; i++)
        CHECK_INT(write_new(&b[i], version), USM_OK);
}

static inline void read_all(block *b, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        CHECK_INT(read_part(&b[i], 0, SECTORS), USM_OK);
        CHECK(holds_all(&b[i]));
    }
}

static inline void init_all(block *b, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        block_init(&b[i], 100 + i);
}

static inline void fini_all(block *b, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        block_fini(&b[i]);
}

/* Each place is asked first in turn: every copy is right. */
static inline void read_every_copy(fake_name name, block *b, unsigned n, unsigned places)
{
    uint64_t before = stats_of(0).corrupt;

    for (unsigned p = 0; p < places; p++) {
        for (unsigned q = 0; q < places; q++)
            fake_place_set(name, q, q == p ? USM_PLACE_UP : USM_PLACE_SLOW);
        read_all(b, n);
    }
    for (unsigned q = 0; q < places; q++)
        fake_place_set(name, q, USM_PLACE_UP);
    CHECK_INT(stats_of(0).corrupt, before);
}

#endif
