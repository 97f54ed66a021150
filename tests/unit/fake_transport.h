/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Transports in memory that fail as they are told, for tests of everything above: six of them, each
 * with a name for USM_SPILL, a plan and a random sequence of its own.  Two consist of places.
 *
 *     fake_reset();                                 // all four: empty, no faults, registered
 *     fake_plan_of(FAKE_A)->store_eio = 100;        // one store in ten fails
 *     usm__tiers_create(... spec "fake_a:;fake_b:" ...)
 *
 * It watches its callers, and counts what transport.h forbids them as violations: fetching what was
 * never stored, storing where nothing is reserved, overlapping transfers of which one stores,
 * forgetting what is under way, sizes and addresses that are not multiples of 4 KiB.
 *
 * A plan may be changed while nothing is under way.  Rates are in thousandths.
 *
 * Of those with places:
 *
 *     fake_place_add(FAKE_M, "rack1", 100);             // before or after it was opened
 *     fake_place_set(FAKE_M, 0, USM_PLACE_LOST);        // with all that it held; tells who listens
 */
#ifndef FAKE_TRANSPORT_H
#define FAKE_TRANSPORT_H

#include <usm/transport.h>

typedef enum fake_name {
    FAKE_A, /* "fake_a": ends transfers inside submit, or with plan->thread by a thread          */
    FAKE_B,
    FAKE_P, /* "fake_p": ends them in progress(), one a call                                     */
    FAKE_Q,
    FAKE_M, /* "fake_m": as FAKE_A, with places                                              */
    FAKE_N, /* "fake_n": as FAKE_P, with places                                              */
    FAKE_COUNT
} fake_name;

#define FAKE_PLACES 24

typedef struct fake_plan {
    uint64_t seed;
    bool     thread;   /* FAKE_A, FAKE_B: read when a store is opened                          */
    bool     shuffle;  /* transfers that wait end in random order, not the first first          */
    uint64_t capacity; /* blocks; UINT64_MAX                                                   */
    unsigned full_us;  /* how long it takes to see that there is no room                       */
    /* what is refused */
    usm_status open;                 /* what open() answers; USM_OK                               */
    unsigned   store_eio, fetch_eio; /* rates                                                  */
    unsigned   store_full;           /* although it was reserved                               */
    uint64_t   store_eio_at, store_eio_for; /* the n-th store from now, and so many from there  */
    uint64_t   fetch_eio_at, fetch_eio_for;
    /* what is told to have gone well */
    unsigned lost;  /* a store that does not happen: stale content, zeros if there is none      */
    unsigned torn;  /* only the first half of a store happens                                   */
    unsigned stray; /* a store that hits another block, if there is one, too                    */
    unsigned flip;  /* one bit of what is fetched is wrong, this once                           */
} fake_plan;

typedef struct fake_counts {
    uint64_t stores, fetches, reserves, forgets; /* calls; reserves and forgets: blocks         */
    uint64_t eio, full;                          /* refused                                     */
    uint64_t asked;                              /* calls that were to reserve                  */
    uint64_t lost, torn, stray, flips;           /* done                                        */
    uint64_t violations;
    char     violation[128]; /* the first                                                      */
    uint64_t blocks;         /* that hold something now                                        */
    uint64_t reserved;       /* blocks                                                         */
    uint64_t opened;         /* stores that are open                                           */
} fake_counts;

/* As at the beginning; no store is open. Registers them the first time. */
void        fake_reset(void);
fake_plan  *fake_plan_of(fake_name name);
fake_counts fake_counts_of(fake_name name);
const char *fake_name_of(fake_name name);
/* Between transfers: the stored bytes of a block, or NULL. */
unsigned char *fake_block(fake_name name, uint64_t block);
/* The n-th block that holds something, UINT64_MAX when there are fewer. */
uint64_t fake_nth(fake_name name, uint64_t n);
/* Places: the number of the new one, which is up; blocks it holds at most. */
uint32_t fake_place_add(fake_name name, const char *domain, uint64_t capacity);
/* What is under way there when it is lost ends with USM_E_IO. */
void fake_place_set(fake_name name, uint32_t place, usm_place_state state);
/* Rates of one place, beside the plan's; may be changed at any time. */
void     fake_place_fail(fake_name name, uint32_t place, unsigned store_eio, unsigned fetch_eio);
void     fake_place_room(fake_name name, uint32_t place, uint64_t capacity);
uint64_t fake_place_blocks(fake_name name, uint32_t place); /* that hold something there       */
/* Flips a bit of every n-th stored block there; how many. */
uint64_t fake_place_rot(fake_name name, uint32_t place, uint64_t n, uint64_t *random);
/* A step of splitmix64. */
uint64_t fake_random(uint64_t *state);

#endif
