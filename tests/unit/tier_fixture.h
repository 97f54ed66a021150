/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks over tiers, for tests of src/spill/tier.h: who includes it has one set of tiers, and
 * blocks whose sectors hold what follows from key, sector and version. */
#ifndef TIER_FIXTURE_H
#define TIER_FIXTURE_H

#include "plain.h"

#include "fake_transport.h"

#include "base/settings.h"
#include "base/status.h"
#include "spill/tier_private.h"

#include <stdatomic.h>

#define BLOCK   65536u
#define SECTOR  4096u
#define SECTORS (BLOCK / SECTOR)

typedef struct block {
    uint64_t       key;
    usm__copy     *copy;
    unsigned char *data; /* memory; aligned                                                */
    uint32_t       version[SECTORS]; /* of what is expected in each sector                 */
    usm__io        io;
    _Atomic(int)   status; /* 1: under way                                                 */
    char           reason[USM__STORY_SIZE];
} block;

typedef struct notified {
    unsigned   n;
    usm_status status[32];
    char       sentence[32][700];
} notified;

static usm__tiers *tiers;
static notified    events;

static inline void on_event(void *user, usm_status status, const char *sentence)
{
    notified *t = user;

    CHECK(t->n < 32);
    t->status[t->n] = status;
    (void)snprintf(t->sentence[t->n++], sizeof t->sentence[0], "%s", sentence);
}

static inline unsigned events_of(usm_status status)
{
    unsigned n = 0;

    for (unsigned i = 0; i < events.n; i++)
        n += events.status[i] == status;
    return n;
}

static inline void start(const char *spec)
{
    usm__tiers_params params = {.block_size  = BLOCK,
                                .sector_size = SECTOR,
                                .spec        = spec,
                                .limit       = 256u << 20,
                                .event       = on_event,
                                .user        = &events};

    memset(&events, 0, sizeof events);
    CHECK_INT(usm__tiers_create(&params, &tiers), USM_OK);
}

static inline void stop(void)
{
    usm__tiers_destroy(tiers);
    tiers = NULL;
    for (unsigned i = 0; i < FAKE_COUNT; i++) {
        fake_counts c = fake_counts_of((fake_name)i);

        CHECK_STR(c.violation, "");
        CHECK_INT(c.opened, 0);
        CHECK_INT(c.blocks, 0);
    }
}

static inline void block_init(block *b, uint64_t key)
{
    memset(b, 0, sizeof *b);
    b->key  = key;
    b->copy = calloc(1, usm__tiers_copy_size(tiers));
    b->data = aligned_alloc(4096, BLOCK);
    CHECK(b->copy && b->data);
    memset(b->data, 0, BLOCK);
}

static inline void block_fini(block *b)
{
    usm__tiers_forget(tiers, b->copy);
    free(b->copy);
    free(b->data);
}

static inline void fill(block *b, uint32_t sector, uint32_t version)
{
    uint64_t  state = b->key << 32 | sector << 24 | version;
    uint64_t *at    = (uint64_t *)(void *)(b->data + (size_t)sector * SECTOR);

    for (size_t i = 0; i < SECTOR / sizeof *at; i++)
        at[i] = fake_random(&state);
    b->version[sector] = version;
}

static inline bool holds(const block *b, uint32_t sector)
{
    uint64_t        state = b->key << 32 | sector << 24 | b->version[sector];
    const uint64_t *at    = (const uint64_t *)(const void *)(b->data + (size_t)sector * SECTOR);

    for (size_t i = 0; i < SECTOR / sizeof *at; i++)
        if (at[i] != fake_random(&state))
            return false;
    return true;
}

static inline bool holds_all(const block *b)
{
    for (uint32_t i = 0; i < SECTORS; i++)
        if (!holds(b, i))
            return false;
    return true;
}

static inline void on_io_done(usm__io *io, usm_status status)
{
    block *b = io->user;

    (void)snprintf(b->reason, sizeof b->reason, "%s", usm_last_error());
    atomic_store(&b->status, status);
}

static inline void begin(block *b, bool is_write, uint32_t first, uint32_t count)
{
    b->io = (usm__io){.key        = b->key,
                      .copy       = b->copy,
                      .data       = b->data + (size_t)first * SECTOR,
                      .registered = SIZE_MAX,
                      .is_tracked = true,
                      .first      = first,
                      .count      = count,
                      .done       = on_io_done,
                      .user       = b};
    atomic_store(&b->status, 1);
    if (is_write)
        usm__tiers_write(tiers, &b->io);
    else
        usm__tiers_read(tiers, &b->io);
}

static inline usm_status end(block *b)
{
    while (atomic_load(&b->status) == 1)
        if (!usm__tiers_progress(tiers, 100))
            (void)sched_yield();
    return (usm_status)atomic_load(&b->status);
}

static inline usm_status write_part(block *b, uint32_t first, uint32_t count)
{
    begin(b, true, first, count);
    return end(b);
}

static inline usm_status read_part(block *b, uint32_t first, uint32_t count)
{
    memset(b->data + (size_t)first * SECTOR, 0x55, (size_t)count * SECTOR);
    begin(b, false, first, count);
    return end(b);
}

static inline usm_status write_new(block *b, uint32_t version)
{
    for (uint32_t i = 0; i < SECTORS; i++)
        fill(b, i, version);
    return write_part(b, 0, SECTORS);
}

/* Whether the tiers know that the copy has what is in memory. */
static inline bool is_known(const block *b)
{
    return usm__tiers_has(tiers, b->copy, b->key, b->data);
}

/* ... and that it has not, when one bit differs. */
static inline bool is_known_to_the_bit(block *b)
{
    bool known = is_known(b);

    b->data[BLOCK - 1] ^= 1;
    known = known && !is_known(b);
    b->data[BLOCK - 1] ^= 1;
    return known;
}

static inline usm_tier_stats stats_of(unsigned index)
{
    usm_tier_stats list[USM_TIERS];

    CHECK(usm__tiers_get_stats(tiers, list, USM_TIERS) > index);
    return list[index];
}

#endif
