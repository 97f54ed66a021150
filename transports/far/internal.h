/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of remote memory.  All state belongs to the thread that steps the node,
 * except what is marked: "lock" is node->lock, "atomic" may be read by any thread.
 *
 * The link is called only from far_step(), and never from within `done`: that only records that an
 * operation has ended (node->ended), and the consequences follow after poll(). */
#ifndef FAR_INTERNAL_H
#define FAR_INTERNAL_H

#include "far.h"
#include "near.h"
#include "wire.h"

#include "base/inline/atomic.h"
#include "base/inline/list.h"
#include "group/lease.h"

#include <pthread.h>

typedef struct far_peer       far_peer;
typedef struct far_io         far_io;
typedef struct far_slot       far_slot;
typedef struct far_chunk      far_chunk;
typedef struct far_slab       far_slab;
typedef struct far_stage      far_stage;
typedef struct far_map        far_map;
typedef struct far_near_block far_near_block;
typedef struct far_headers    far_headers;

/* A step of the protocol at which tests let this process die: USM_HOOKS=fault:die.lend.reserved@3
 * is the third time that it passes there.  The points have no other use. */
static inline void far_point(const far_node *node, const char *name);

/* ---- memory and operations of the link (node.c) --------------------------------------- */

/* Zeroed memory of the node's own.  It is listed, so that memory which the link still holds when
 * the node is destroyed is left and everything else freed.  NULL: no memory. */
void *far_alloc(far_node *node, size_t size);
void  far_free(far_node *node, void *p);
/* From any thread: not listed until far_alloc_list(). */
void *far_alloc_unlisted(far_node *node, size_t size);
void  far_alloc_list(far_node *node, void *p);

/* Where bytes to be sent begin, from the start of their memory.  A message system copies them
 * behind a header of its own, which often begins a page; and AMD's Zen 3 copies (`rep movsb`: the
 * kernel, glibc 2.36) at a fifth of its speed if the target is 1 to 31 bytes after the source,
 * pages not counted.  TCP's copy of bytes that begin a page took 0.4 ms per MiB there, of others
 * half of that (docs/benchmarks/mpi.md). */
enum { FAR_ASIDE = 2048 };

/* memcpy that lets the link work in between. */
void far_copy(far_node *node, void *to, const void *from, size_t size);

typedef void far_io_ended(far_io *io, far_result result);
struct far_io {
    far_op        op;
    far_node     *node;
    far_io_ended *ended;
    far_io       *next;     /* in node->ended */
    void         *holder;   /* memory of far_alloc(): it, and the buffer's, stay while the operation
                             is in progress */
    void         *holder_2; /* or NULL */
    far_result    result;
    bool          is_under_way;
};

static inline void far_io_init(far_io *io, far_node *node, far_io_ended *ended, void *holder)
{
    io->node   = node;
    io->ended  = ended;
    io->holder = holder;
}

typedef struct far_buffer {
    void    *bytes;
    size_t   size;
    uint32_t peer, tag;
} far_buffer;
void far_io_send(far_io *io, far_buffer b);
void far_io_receive(far_io *io, far_buffer b);

/* Sends a header to a peer: fills in to and from, and `behind` of requests.  It goes with the others
 * of this round of the step, as one message.  Without memory it is lost, as messages may be. */
void far_header_send(far_peer *peer, far_header h);
/* Sends now what waits, to all peers. */
void far_headers_flush(far_node *node);

/* ---- borrowing (borrow.c, control.c) ---------------------------------------------------- */

/* The borrower's data in usm_transfer.opaque. */
typedef struct far_ticket {
    usm_list   link;
    far_store *store;
    uint64_t   since; /* when it was submitted */
    size_t     next;  /* bytes for which pieces were made */
    uint32_t   peer;
    uint16_t   out; /* pieces in progress */
    int16_t    status;
} far_ticket;

/* A request with an operation number, whose answer is awaited. */
typedef struct far_request {
    usm_list link;      /* in peer->awaited, by rising number */
    uint64_t operation; /* 0: none */
    uint64_t since;
} far_request;

typedef enum far_slot_state {
    FAR_SLOT_IDLE,    /* the link has nothing of it */
    FAR_SLOT_WAITING, /* waits for the answer */
    FAR_SLOT_ARRIVED, /* the bytes have arrived, and must be copied */
    FAR_SLOT_AGAIN,   /* is sent once more when the link has ended its operations */
    FAR_SLOT_LINGERS  /* over, but the link still holds something of it */
} far_slot_state;

/* A request slot and, while it is used, a piece: a store's bytes begin FAR_ASIDE after its
 * start. */
struct far_slot {
    usm_list       link; /* in peer->idle or node->arrived */
    far_peer      *peer;
    far_io         data; /* receive of a fetch, send of a store */
    far_request    request;
    far_slot_state state;
    uint16_t       slot_number;
    uint8_t        tries;       /* of the request, later of recalling it */
    bool           is_given_up; /* it lingers since its time ran out */
    usm_transfer  *transfer;
    size_t         at, size; /* part of the transfer */
    unsigned char *piece;
    far_header     over;        /* if given up: the request's header */
    uint64_t       recalled;    /* when it was last recalled */
    uint32_t       recalled_in; /* and in which session (epoch) */
};

struct far_store {
    far_node *node;
    uint32_t  number;
    uint8_t   shift;
};

typedef struct far_control {
    usm_list          link; /* in node->asked, peer->controls or peer->asked */
    far_request       request;
    far_header        header;
    uint32_t          peer;
    uint64_t          sent;
    far_reserve_done *done; /* for a reserve */
    void             *arg;
    far_near_block   *places; /* for a reserve: where its blocks will be, if they are in mapped
                                 memory */
} far_control;

bool far_transfer_is_valid(const far_store *store, const usm_transfer *t);
void far_transfers_take(far_node *node); /* takes what was submitted */
/* Starts pieces as far as the depth allows. */
void far_transfers_issue(far_node *node);
bool far_transfers_copy(far_node *node); /* copies one that has arrived; false: there is none */
void far_transfers_answered(far_peer *peer, const far_header *h);
void far_transfers_expire(far_peer *peer);
void far_transfers_fail(far_peer *peer);  /* all of them: the peer is lost */
void far_transfers_break(far_peer *peer); /* those in progress; the others wait */
void far_slots_recall(far_node *node);
void far_slots_trim(far_node *node);

void far_controls_take(far_node *node);
void far_controls_joined(far_peer *peer);
void far_controls_answered(far_peer *peer, const far_header *h);
void far_controls_expire(far_peer *peer);
void far_controls_fail(far_peer *peer);
/* The session is broken, and its blocks may return: forgotten blocks are reported later. */
void far_controls_break(far_peer *peer);
void far_controls_fini(far_node *node); /* frees requests that no peer will answer */

void far_request_start(far_peer *peer, far_request *r); /* gives it a new number */
void far_request_end(far_request *r);
/* The peer has been silent, or has not answered, for too long since `since`. */
bool far_request_is_over(const far_peer *peer, uint64_t since, bool is_sent);

/* ---- lending (lend.c, chunks.c) ------------------------------------------------------------ */

/* Memory of 1 << shift bytes and a header after them. */
struct far_chunk {
    usm_list       link; /* while free */
    far_slab      *slab;
    unsigned char *bytes;
    uint32_t       sends;          /* sends that read it */
    bool           is_dropped;     /* it becomes free when they have ended */
    bool           is_quarantined; /* and the receiver is lost */
};

struct far_slab {
    usm_list  link;
    void     *memory;
    uint32_t  used, count;
    uint8_t   shift;
    far_chunk chunks[];
};

far_chunk *far_chunk_take(far_node *node, uint8_t shift); /* NULL: no memory */
void       far_chunk_drop(far_node *node, far_chunk *c);  /* once no send reads it */
void       far_chunks_trim(far_node *node);

void far_lend_request(far_peer *peer, const far_header *h);
/* Frees what the peer borrowed; its next incarnation starts without blocks. */
void far_lend_forget_borrower(far_peer *peer);
/* A session ends: operations in progress do not matter any more, the blocks stay. */
void     far_lend_suspend_borrower(far_peer *peer);
uint64_t far_lend_available(const far_node *node);
void     far_stages_tick(far_node *node);

/* ---- memory on the same host (near.c) ------------------------------------------------------ */

typedef enum far_near_state {
    FAR_NEAR_UNKNOWN, /* nothing was ever reserved there */
    FAR_NEAR_ASKED,
    FAR_NEAR_NO,
    FAR_NEAR_YES
} far_near_state;

/* The lender: a NEAR request came; the session ends. */
void far_near_lend(far_peer *peer, const far_header *h);
void far_near_take_back(far_peer *peer);
/* The borrower: NEAR was answered, or given up (FAR_MISSING); the session ends. */
void far_near_answered(far_peer *peer, const far_header *h);
void far_near_end(far_peer *peer);
/* Positions for the blocks of a reserve; NULL: none.  They are returned, or kept as its blocks. */
far_near_block *far_near_take(far_peer *peer, const far_header *reserve);
void            far_near_give(far_peer *peer, far_near_block *list);
void            far_near_keep(far_peer *peer, far_near_block *list);
void            far_near_trim(far_node *node);
void            far_near_fini(far_node *node);
/* Any thread.  Forgets blocks in mapped memory; false: the block is not in mapped memory. */
void far_near_forget(far_store *store, uint32_t peer, uint64_t first, uint64_t n);
bool far_near_submit(far_store *store, uint32_t peer, usm_transfer *t);

/* ---- members and messages (members.c, message.c) ------------------------------------------ */

struct far_peer {
    far_node *node;
    uint32_t  index;

    /* lock, written by the stepping thread */
    far_member_state state;
    char             domain[64];
    uint64_t         lends;
    uint32_t         joined;
    bool             is_refused;

    /* atomic, written by the stepping thread */
    _Atomic uint64_t available;

    usm__group_lease lease; /* `heard`: atomic, like the above */

    /* The session: headers between these two incarnations are accepted. */
    bool     has_session;
    uint64_t mine, its;
    uint32_t epoch;
    uint8_t  piece_shift; /* the smaller one of both */
    uint64_t fenced;      /* when it was last told that it is unknown */
    uint64_t leave_after; /* it leaves once so many messages have come; 0: it does not */
    bool     has_left_too, is_seldom;

    /* The blocks that we have there (claim) and that it has here (estate), each by a number of the
     * session that they began with; 0: none.  They outlive sessions (members.c). */
    uint64_t claim, orphans;
    bool     may_return; /* the session is broken, our claim is not */
    bool     is_silent;  /* and the peer is silent: nothing waits for it */
    uint64_t return_until;

    /* Joining. */
    bool          has_challenge;
    bool          is_dead; /* the link has reported it dead: nothing is sent there any more */
    unsigned char challenge[16];
    uint64_t      its_pending; /* of part 1 */
    uint64_t      next_join;
    uint32_t      join_tries;

    far_headers *headers; /* those of this round; or NULL */

    /* The peer as a lender of this node. */
    usm_list       active; /* in node->active while one of the following is not empty */
    uint64_t       operation;
    usm_list       awaited;
    usm_list       urgent, queue;     /* far_ticket */
    usm_list       controls;          /* sent */
    usm_list       asked;             /* not sent yet */
    uint32_t       controls_out, out; /* number of controls, of pieces */
    uint64_t       out_bytes;
    usm_list       idle; /* request slots */
    far_slot     **slots;
    uint32_t       slot_count, slot_cap;
    uint32_t       given_up; /* request slots that linger without an answer */
    far_near_state near_state;
    far_map       *map; /* its area; lock, written by the stepping thread */

    /* The peer as a borrower of this node. */
    uint64_t    floor; /* requests below are not awaited any more */
    usm_list    stores, tombs;
    far_stage **stages;
    uint32_t    stage_cap;
    uint64_t    holds; /* in blocks */
    far_area   *lent_area;
    uint32_t    lent_where[2];

    /* Messages. */
    uint64_t next_out, next_in, gap_since;
    usm_list outbox, held; /* outbox: until the peer is up; held: until those before have come */
};

void far_member_init(far_peer *peer);
void far_member_describe(const far_peer *peer, uint64_t now, far_member *m); /* the lock is held */
void far_members_tick(far_node *node, uint64_t absent); /* of usm__group_look() */
void far_leave_tick(far_node *node, uint64_t now);
void far_member_check_left(far_peer *peer);
void far_member_heard(far_peer *peer);
void far_member_lost(far_peer *peer, bool is_dead);
/* The session cannot go on, because the peer is silent, or although it is alive. */
void far_member_broken(far_peer *peer, bool is_silent);
/* Handles a header that came alone. */
void far_member_header(far_peer *peer, const far_header *h);
void far_member_join(far_peer *peer, const far_header *h, const void *body);
/* Whether the header is of the session; a peer without one is told. */
bool far_member_is_known(far_peer *peer, const far_header *h);

usm_status far_messages_init(far_node *node);
void       far_messages_start(far_node *node);
void       far_messages_fini(far_node *node);
void       far_messages_take(far_node *node);
void       far_messages_joined(far_peer *peer);
void       far_messages_tick(far_node *node);
void       far_messages_reset(far_peer *peer);
/* Sends a header and a body, now. */
void far_message_send(far_peer *peer, far_header h, const void *body);

struct far_node {
    /* Fixed after create. */
    far_params          params;
    const usm_host_api *api;
    far_link           *link;
    char                domain[64];
    unsigned char      *key;
    uint32_t            self, count;
    uint8_t             piece_shift;
    uint64_t            tick_ns;

    /* lock */
    pthread_mutex_t lock;
    usm_list        submitted; /* far_ticket */
    usm_list        asked;     /* far_control */
    usm_list        outgoing;  /* far_message */
    usm_list        spare_messages;
    uint32_t        spares;
    usm_list        near; /* near_ticket */
    uint32_t        next_store;

    /* atomic */
    _Atomic bool     has_work; /* release: something was put into the lists above */
    _Atomic uint64_t now;
    _Atomic uint64_t fetched, stored, served, kept, borrowers;
    _Atomic uint64_t timeouts, late, stale, quarantined, refused, requests;
    _Atomic uint64_t near_fetched, near_stored;
    _Atomic uint32_t near_waiting; /* number in `near` */

    /* Used only by the stepping thread. */
    usm_list          memory; /* all memory of far_alloc() */
    far_io           *ended, **ended_end;
    far_peer         *peers;
    usm_list          active;   /* peers with transfers or controls */
    usm_list          arrived;  /* request slots */
    usm_list          headers;  /* free messages of headers */
    usm_list          unsent;   /* those that wait for the end of the round */
    usm_list          servings; /* free sends of bytes */
    usm_list          unarmed;  /* stages without memory */
    void             *pieces;   /* free pieces, a stack */
    uint32_t          pieces_free, out, serving, receiving;
    usm_list          slabs;
    usm_list          chunks[FAR_SHIFT_MAX + 1]; /* free ones, the last freed first */
    uint64_t          chunks_idle, lent;         /* in bytes: free; promised to borrowers */
    usm__group_clock  clock;
    uint64_t          next_tick, last_moved;
    uint64_t          draws; /* number of challenges drawn */
    bool             *left;
    uint64_t          leave_until;
    bool              is_leaving;
    struct far_inbox *inbox;          /* receives of headers */
    uint64_t          message_posted; /* receives of messages: numbered in the order of posting */
    uint64_t          message_ended;
    uint64_t          message_heard; /* when a receive of a message ended last, or one was added */
    unsigned          messages_more; /* receives that were added */
    usm_list          messages_in;
};

void far_die(void);

static inline void far_point(const far_node *node, const char *name)
{
    if (__builtin_expect(node->api->fault(name, NULL), 0))
        far_die();
}

/* Puts the peer into node->active, unless it is there. */
void far_peer_activate(far_peer *peer);
/* Sets the node's work flag and wakes the stepping thread. */
void far_wake(far_node *node);

#endif
