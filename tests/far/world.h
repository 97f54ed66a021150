/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A job of far-memory nodes in one thread: who they are, when they step, what memory they have, and
 * what breaks (world.c); what their blocks must hold (blocks.c).  far_model.c says what they do. */
#ifndef TESTS_FAR_WORLD_H
#define TESTS_FAR_WORLD_H

#include "budget.h"
#include "near_sim.h"
#include "net.h"

#include "far/far.h"

enum {
    PAGE        = 4096,
    PAGES_MAX   = 16, /* of a block                                                       */
    STAMPS_MAX  = 6,
    BLOCKS      = 8, /* of a store, a lender                                             */
    STORES      = 2, /* of a borrower                                                    */
    MESSAGE_MAX = 65536
};

typedef struct world  world;
typedef struct member member;

/* What a page may hold: stamps of stores, or anything (it was never surely stored). */
typedef struct page {
    uint64_t stamps[STAMPS_MAX];
    unsigned n;
    bool     is_unknown;
} page;

typedef struct block {
    page     pages[PAGES_MAX];
    uint32_t stored;             /* pages on their way there, bits                          */
    unsigned fetched;            /* transfers on their way back                             */
    uint16_t fetches[PAGES_MAX]; /* of each page                                            */
    bool     is_reserved, is_asked;
} block;

typedef struct keep { /* an open far_store */
    far_store *store;
    unsigned   under_way, number;
    block      blocks[NET_NODES_MAX][BLOCKS];
} keep;

typedef struct transfer {
    usm_transfer     t; /* first */
    struct transfer *next;
    member          *m;
    keep            *k;
    uint32_t         peer, life; /* of the peer, when it was submitted */
    unsigned         block, first, n, tries;
    uint64_t         stamp, began;
    usm_status       status;
    bool             is_done, is_final, is_needed;
} transfer;

typedef struct asking { /* for room */
    struct asking *next, **at;
    member        *m;
    keep          *k;
    uint32_t       peer, life;
    unsigned       first, n;
    uint64_t       began;
} asking;

struct member {
    world    *w;
    far_node *node; /* NULL: not started, or gone */
    uint32_t  index;
    uint64_t  lend, wake_at, leave_at, stopped_ns; /* stopped: longest it was not run at all */
    unsigned  domain;
    near_sim  near;
    bool      is_copying; /* it is not stepped then                                          */
    bool      borrows, has_wrong_key, is_leaving, left, was_hung, is_gone;
    far_member_state seen[NET_NODES_MAX]; /* by member_changed                             */
    uint64_t         up_at[NET_NODES_MAX];
    uint32_t         life[NET_NODES_MAX];  /* how often what a peer held was gone           */
    uint64_t         ended[NET_NODES_MAX]; /* when something of a peer's last did             */
    uint64_t         said[NET_NODES_MAX], heard[NET_NODES_MAX]; /* messages: numbers           */
    keep            *keeps[STORES];
    transfer        *transfers;
    asking          *asked;
};

typedef struct counts {
    uint64_t operations, stores, fetches, failures, lost, damaged, refused, messages, bytes, steps;
    uint64_t reserved, full, deaths, hangs, cuts, leaves, joins, timeouts, late, stale, longest_ns;
    uint64_t quarantined, net_messages, net_faults, late_writes, near_bytes, near_deaths;
} counts;

struct world {
    uint64_t   seed, random, stamps, operation;
    net       *n;
    uint32_t   nmembers;
    member     members[NET_NODES_MAX];
    uint64_t   lease_ns, deadline_ns, orphan_ns;
    size_t     piece, block_size;
    uint32_t   depth;
    bool       has_key, is_quiescent, has_left, is_ending, has_data_faults;
    unsigned   nkeeps;
    unsigned   stalls;      /* of a thousand steps: come late                                     */
    unsigned   hosts;       /* members share so many; 0: each has its own                        */
    unsigned   near_deaths; /* in the middle of copies                                      */
    bool       near_hangs;  /* borrowers stand still there, at times                        */
    net_faults faults;
    counts    *counts;
    void (*changed)(const far_member *f); /* what member 0 sees; may be NULL */
};

/* ---- world.c ------------------------------------------------------------------------- */

extern struct world_settings {
    budget      seeds;
    uint64_t    operations, flips;
    bool        verbose;
    const char *planted;
} settings;

void           world_parse(int argc, char **argv);
_Noreturn void found(const world *w, const char *format, ...) USM_PRINTF(2, 3);
void           notify(const world *w, const char *format, ...) USM_PRINTF(2, 3);
bool           is_planted(const char *what);
uint64_t       drawn(world *w, uint64_t below);
bool           one_in(world *w, uint64_t n);
bool           runs(const member *m); /* it can be called: started, neither dead nor gone */

/* seed, nmembers, times and faults are set. */
void world_open(world *w, bool tells_death);
/* With all that is left of it. */
void world_close(world *w);
void world_start(world *w, member *m);
void world_wake(member *m, uint64_t time);
void world_run(world *w, uint64_t ns);
/* Lives on, on its own: far_node_destroy(). */
void world_stop(member *m);
void world_hang(world *w, uint32_t node, uint64_t ns);
/* One way, or both; what is sent waits, or is lost. */
void world_cut(world *w, uint32_t a, uint32_t b, uint64_t ns);
void world_cut_both(world *w, uint32_t a, uint32_t b, uint64_t ns); /* it waits */
/* Everything that broke and can be mended is. */
void world_mend(world *w);
/* Whether something happened between the two that excuses a failure. */
bool is_excused(const world *w, uint32_t a, uint32_t b);
/* What a has at b may have been freed, for b had not heard of a for so long. */
bool is_orphaned(const world *w, uint32_t a, uint32_t b);
void world_check(world *w);
void world_check_leaks(world *w);

/* ---- blocks.c ------------------------------------------------------------------------ */

keep *keep_open(member *m);
void  keep_close(member *m, unsigned which);
void  blocks_lost(member *m, uint32_t peer);
void  blocks_reserve(member *m, keep *k, uint32_t peer, unsigned first, unsigned n);
void  blocks_forget(member *m, keep *k, uint32_t peer, unsigned first, unsigned n);
/* NULL: these pages are in use. */
transfer *blocks_transfer(member *m, keep *k, uint32_t peer, usm_transfer_op op, unsigned which,
                          unsigned first, unsigned n);
/* Fetches everything that must be there; false: there is nothing of it. */
void blocks_verify(world *w);
void blocks_check_deadlines(world *w);
/* Until nothing is under way. */
void blocks_settle(world *w);
void blocks_free(member *m);

#endif
