/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The coherence protocol of shared buffers: which rank may read and write which block.  It is a
 * state machine without I/O, locks and clocks.  shared.c runs it over the job's messages, and
 * tests/cluster/shared_model.c over a network that delays and duplicates them and kills ranks.
 *
 * The states are those of MOESI, with other names: SOLE is modified or exclusive, OWNER is owned,
 * COPY is shared, NONE is invalid.
 *
 * The blocks are distributed evenly: each has a home rank, and the first live rank from there on is
 * its directory.  The directory knows the owner and the ranks that have copies.  It handles one
 * request for a block at a time while the others wait in line, so no rank starves:
 *
 *     R reads     R -ASK-> directory -SEND-> owner -DATA-> R -DONE-> directory
 *     R writes    R -ASK-> directory -DROP-> each copy -DROPPED-> directory
 *                          directory -SEND(give)-> owner -DATA-> R -DONE-> directory
 *                 or, when R is the owner:  directory -GRANT-> R -DONE-> directory
 *
 * Every request ends with its DONE, or when its rank ends.  If open accesses of a rank conflict
 * with a DROP or a SEND, the message waits for their end, and new accesses wait behind it.
 * Accesses that waited for the block are admitted before it is requested again.
 *
 * Duplicated messages are recognised by numbers: a request by the rank's own number (one request
 * per block at a time), a directory's message by its transaction.
 *
 * When a rank ends, the blocks that it owned are lost.  An owner that was giving a block to it is
 * asked to take the block back (RECALL), which works unless it has sent it already.  The next live
 * rank becomes the directory in its place: all others REPORT to it what they have of these blocks
 * and repeat their requests, and it starts when all live ranks have reported.  A block whose bytes
 * were on their way from one rank to another at that moment is lost.
 *
 * Invariants, over all ranks: a block is SOLE on at most one rank, and then COPY or OWNER on none;
 * it is OWNER or SOLE on at most one rank. */
#ifndef USM_CLUSTER_SHARED_STATE_H
#define USM_CLUSTER_SHARED_STATE_H

#include <usm/buffer.h>
#include <usm/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef enum usm__shared_op {
    /* to the directory */
    USM__SHARED_ASK = 1,  /* mode, request */
    USM__SHARED_DROPPED,  /* txn */
    USM__SHARED_DONE,     /* txn, request, status */
    USM__SHARED_KEPT,     /* txn; status USM_OK: the block is still here */
    USM__SHARED_REPORT,   /* mode: a usm__shared_hold */
    USM__SHARED_REPORTED, /* rank: a home; no more reports about its blocks will follow */
    /* from the directory */
    USM__SHARED_DROP,   /* txn */
    USM__SHARED_SEND,   /* txn; flags; rank, request: the receiver and its request */
    USM__SHARED_GRANT,  /* txn, request: the owner may write */
    USM__SHARED_RECALL, /* txn: the rank that should have got it has ended */
    USM__SHARED_LOST,   /* the owner has ended */
    /* from the directory or owner to the rank that asked */
    USM__SHARED_REFUSE, /* txn, request, status */
    USM__SHARED_DATA,   /* txn, request, flags, offset, size */
    /* not about a block: handled by shared.c */
    USM__SHARED_BYE,    /* the rank has no open access and will open none */
    USM__SHARED_ABSENT, /* the rank does not use this buffer, or no longer */
    USM__SHARED_MAPPED, /* the rank has mapped the receiver's outbox (shared_slots.c) */
    USM__SHARED_OPS
} usm__shared_op;

enum {
    USM__SHARED_GIVE     = 1, /* with the right to write */
    USM__SHARED_NO_BYTES = 2, /* the rank that asked has the bytes, or does not need them */
    USM__SHARED_ZERO     = 4  /* nothing was ever written: no bytes either */
};

typedef struct usm__shared_message {
    uint8_t  op, mode, flags;
    int32_t  status;
    uint32_t rank;
    uint32_t offset, size; /* of the bytes after the message, or in a slot, in the block */
    uint32_t slot, serial; /* the slot of the sender that has them; serial 0: they follow */
    uint64_t block, request, txn;
} usm__shared_message;

typedef enum usm__shared_hold {
    USM__HOLD_NONE = 0,
    USM__HOLD_GONE,     /* its owner has ended: USM_E_PEER from now on */
    USM__HOLD_SHARED,   /* may be read */
    USM__HOLD_OWNED,    /* may be read; others may have copies */
    USM__HOLD_EXCLUSIVE /* may be written */
} usm__shared_hold;

/* An access that waits.  The machine uses the record until the access is woken. */
typedef struct usm__shared_waiter {
    struct usm__shared_waiter *next;
    usm_access_mode            mode;
    bool                       is_done;
    usm_status                 status;
} usm__shared_waiter;

/* The state of a block on this rank. */
typedef struct usm__shared_local {
    uint8_t             hold;
    uint8_t             asked;     /* the requested mode; 0: nothing was requested */
    uint8_t             pending;   /* a DROP or SEND that waits for accesses to end; or 0 */
    uint8_t             flags;     /* of that SEND */
    bool                is_ahead;  /* requested by usm__shared_want() */
    bool                is_giving; /* its bytes are being sent, with the right to write */
    bool                is_recalled, is_orphan; /* during that: RECALL came; the directory ended */
    uint32_t            readers, writers;       /* open accesses */
    uint32_t            to;                     /* the receiver of the SEND */
    uint64_t            to_request, request, txn;
    uint32_t            gives; /* number of gives so far: the serial of the last one */
    usm__shared_waiter *first, *last;
} usm__shared_local;

/* A block whose bytes are to be sent to `to`. */
typedef struct usm__shared_give {
    uint64_t block, request, txn;
    uint32_t to, serial;
    uint8_t  flags;
} usm__shared_give;

/* The actions of the state machine.  None of them may call back into it. */
typedef struct usm__shared_ops {
    /* Sends a message; `to` may be the rank itself. */
    void (*send)(void *arg, uint32_t to, const usm__shared_message *msg);
    /* Sends the block's bytes to give->to, as DATA; then usm__shared_sent() is called. */
    void (*give)(void *arg, const usm__shared_give *give);
    /* Wakes a waiting access: is_done is set, and the record is the caller's again. */
    void (*wake)(void *arg, usm__shared_waiter *waiter);
    /* The content of the block on this rank has changed: it has none any more (false), or the right
     * to write it without having its bytes (true). */
    void (*content)(void *arg, uint64_t block, bool is_blank);
} usm__shared_ops;

typedef struct usm__shared_dir      usm__shared_dir;
typedef struct usm__shared_takeover usm__shared_takeover;

typedef struct usm__shared_machine {
    const usm__shared_ops *ops;
    void                  *arg;
    uint32_t               self, ranks;
    uint64_t               blocks;
    uint64_t               hits, misses, invalidated;
    bool                  *lost;      /* by rank */
    usm__shared_local     *local;     /* by block */
    usm__shared_dir      **dir;       /* by block, created at the first request; NULL: in the
                                         initial state */
    usm__shared_takeover **takeovers; /* by home */
} usm__shared_machine;

/* pre: ops, arg, self, ranks and blocks are set.  USM_E_NO_MEMORY */
usm_status usm__shared_init(usm__shared_machine *m);
void       usm__shared_fini(usm__shared_machine *m);

static inline uint32_t usm__shared_home(const usm__shared_machine *m, uint64_t block)
{
    return (uint32_t)(block * m->ranks / m->blocks);
}

/* Begins an access.  USM_OK: it is open.  USM_E_NOT_READY: it will be open, or have failed, when w
 * is woken.  USM_E_PEER: the block is lost. */
usm_status usm__shared_begin(usm__shared_machine *m, uint64_t block, usm_access_mode mode,
                             usm__shared_waiter *w);
void       usm__shared_end(usm__shared_machine *m, uint64_t block, usm_access_mode mode);
/* Readahead: an access of that mode will come to the block, which is requested in advance.  Nothing
 * holds the block here: it may be taken away before, and the access then requests it again.
 * Nothing waits for it either, so ranks that want each other's blocks do not wait for each
 * other. */
void usm__shared_want(usm__shared_machine *m, uint64_t block, usm_access_mode mode);
/* Cancels an access that waits and was not woken. */
void usm__shared_cancel(usm__shared_machine *m, uint64_t block, usm__shared_waiter *w);
/* Whether bytes for that request are expected; DATA is received when all have arrived. */
bool usm__shared_expects(const usm__shared_machine *m, uint64_t block, uint64_t request);
void usm__shared_receive(usm__shared_machine *m, uint32_t from, const usm__shared_message *msg);
/* The sending that give() started has ended. */
void usm__shared_sent(usm__shared_machine *m, const usm__shared_give *give, usm_status st);
void usm__shared_rank_lost(usm__shared_machine *m, uint32_t rank);

#endif
