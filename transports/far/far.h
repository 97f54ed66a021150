/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Remote memory: blocks of bytes in the memory of other processes, over any link (link.h).  This is
 * the protocol, without a thread, a clock or MPI of its own, so that a simulation can run it.  It
 * is deterministic, given the link and the calls.
 *
 *     borrower                                              lender
 *     far_submit --> requests (id, deadline) --header-->    its table of blocks, chunks
 *                    pieces, at most `depth` a peer --data-->
 *     done      <--- matched by id, late ones dropped <---  reply, acknowledgement
 *
 * A node is one process's end; it may borrow, lend, or both.  One thread steps it: the service
 * thread or, in a borrower without one, the thread that waits.  far_submit() and the other
 * functions that any thread may call only leave work for the next step and wake the stepping
 * thread.
 *
 * These rules hold, whatever the network does (messages late, duplicated, lost, from the dead):
 *   - `done` is called once, within the deadline and a step;
 *   - a store that ended with USM_OK is what every later fetch of that part returns, until the
 *     block is stored again or forgotten, or the lender is lost;
 *   - memory that a message may still be written into or read from is neither freed nor used
 *     again: it is quarantined, counted, and freed if its operation ever ends;
 *   - the link gets no memory of the caller: bytes go through the node's own pieces. */
#ifndef FAR_H
#define FAR_H

#include "link.h"
#include "near.h"

#include <usm/transport.h>

typedef struct far_node  far_node;
typedef struct far_store far_store; /* numbered blocks of one borrower; a node may have several */

typedef enum far_member_state {
    FAR_JOINING,
    FAR_UP,
    FAR_SLOW, /* when last checked, it was silent for half a lease */
    FAR_LOST, /* silent for a lease, or reported dead.  What it had here is kept for orphan_ns */
    FAR_LEFT  /* it has said goodbye */
} far_member_state;

typedef struct far_member {
    uint32_t         peer;
    far_member_state state;
    char             domain[64]; /* processes that fail together: a node's name, or
                                    USM_SPILL_DOMAIN */
    uint64_t         lends;      /* bytes that it lends in all; 0: it only borrows */
    uint64_t         available;  /* bytes, according to its last reply */
    uint64_t         silent_ns;
    uint32_t joined;  /* how often: UP again after LOST is a new member, which holds nothing */
    bool     refused; /* it has another key */
    bool     is_near; /* its memory is mapped here: nothing is sent over the link */
    /* LOST, but what it held may still exist: it had not heard of this process for a while, or may
     * be alive.  It will be UP again, the same one (`joined`), or, after orphan_ns at the latest,
     * LOST once more without this flag, with all that it held. */
    bool may_return;
    bool is_silent; /* with may_return: no requests are sent to it; otherwise requests wait */
} far_member;

typedef struct far_params {
    size_t              struct_size;
    const usm_host_api *api;
    far_link           *link;   /* outlives the node */
    const char         *domain; /* this process's */
    uint64_t            lend;   /* bytes; 0: it only borrows */
    const void         *key;    /* of the job: members prove that they have it; NULL: no proof is
                                   asked for */
    size_t              key_size;
    /* HMAC-SHA-256 of data under the key, 32 bytes; false: it failed.  NULL if the key is NULL. */
    bool (*hmac)(const void *key, size_t key_size, const void *data, size_t size,
                 unsigned char mac[32]);
    uint64_t seed;        /* of this incarnation: random, or the simulation's */
    uint64_t lease_ns;    /* a member that is silent for so long is lost */
    uint64_t deadline_ns; /* of a request, between two signs of life of its peer */
    uint64_t orphan_ns;   /* a lender frees the blocks of a borrower that was silent for so long */
    size_t   piece;       /* most bytes of a data message, a power of two */
    uint32_t depth;       /* pieces in flight per peer; of small ones up to four times as many */
    /* All are called in far_step(), with no lock held. */
    void (*member_changed)(void *user, const far_member *m);
    void (*message)(void *user, uint32_t from, uint32_t tag, const void *data, size_t size);
    void (*wake)(void *user); /* from any thread: there is work for a step */
    void *user;
    /* The node is stepped only when it wants something, and may be silent for minutes: the others
     * neither take it for lost nor free what it has.  It cannot lend. */
    bool is_stepped_seldom;
    /* Memory shared with members on the same host; NULL: none.  Outlives the node. */
    far_near *near_memory;
} far_params;

/*   USM_E_NO_MEMORY;  USM_E_INVALID */
usm_status far_node_create(const far_params *params, far_node **node);
/* Nothing is stepped any more.  Notifies and waits for no member.  Quarantined memory is leaked,
 * because the link may still write there. */
void far_node_destroy(far_node *node);
/* The same if the link is closed and will not write any more: frees that memory too. */
void far_node_destroy_closed(far_node *node);
/* Does the work there is, and returns when it wants to be called again at the latest (by the link's
 * clock).  *busy: pieces are in flight or have just been, so do not sleep long. */
uint64_t far_step(far_node *node, bool *busy);
/* The message system has reported, in another way than by the end of an operation with that peer,
 * that the peer is dead: it is lost at once.  Called by the stepping thread, outside of
 * far_step(). */
void far_peer_died(far_node *node, uint32_t peer);
/* Says goodbye.  The caller goes on stepping until *left, which is set within `deadline_ns`,
 * whichever member is dead. */
void far_leave(far_node *node, bool *left);

/* ---- borrowing: any thread ----------------------------------------------------------- */

/*   USM_E_NO_MEMORY */
usm_status far_store_open(far_node *node, size_t block_size, far_store **store);
/* pre: nothing is in progress.  Asks the lenders to free its blocks. */
void far_store_close(far_store *store);
/* The same after far_leave() has notified them. */
void far_store_drop(far_store *store);
/* Reserves room for [first, first + n) at `peer`.  Waits, one deadline at most; the stepping thread
 * must not call it.  USM_E_SPILL_FULL; USM_E_IO: no answer, or lost */
usm_status far_reserve(far_store *store, uint32_t peer, uint64_t first, uint64_t n);
/* The same without waiting: the stepping thread calls `done`, with no lock held, as soon as for a
 * transfer. */
typedef void far_reserve_done(void *arg, usm_status status);
void         far_reserve_start(far_store *store, uint32_t peer, uint64_t first, uint64_t n,
                               far_reserve_done *done, void *arg);
void         far_forget(far_store *store, uint32_t peer, uint64_t first, uint64_t n);
/* Starts one transfer (usm/transport.h): `peer` keeps the block; the high 16 bits of t->block are
 * ignored. */
void far_submit(far_store *store, uint32_t peer, usm_transfer *t);
/* Copies some of the bytes that go through shared memory (near.h), and calls `done`; false: there
 * were none.  Any thread, several at a time; far_step() does not do it.  A transfer with is_awaited
 * has ended when far_submit() returns. */
bool   far_near_run(far_node *node);
size_t far_members(far_node *node, far_member *list, size_t cap);
/* Sends to a member at most 64 KiB and 64 bytes, which are copied; in order for one receiver.
 * There is no answer: what is sent to a lost member is lost.  The next step sends it: the caller
 * steps, or wakes the thread that does. */
usm_status far_send(far_node *node, uint32_t peer, uint32_t tag, const void *data, size_t size);

typedef struct far_stats {
    uint64_t fetched, stored;       /* bytes, as a borrower */
    uint64_t served, kept;          /* bytes sent to borrowers; bytes held now, as a lender */
    uint64_t borrowers;             /* borrowers that hold blocks here */
    uint64_t requests;              /* of borrowers so far, as a lender */
    uint64_t timeouts, late, stale; /* requests; replies that came too late; stores that were old */
    uint64_t quarantined;           /* bytes */
    uint64_t refused;               /* members without the key, headers that make no sense */
    uint64_t near_fetched, near_stored; /* those bytes of fetched and stored that went through
                                           shared memory */
} far_stats;
void far_get_stats(far_node *node, far_stats *stats);

#endif
