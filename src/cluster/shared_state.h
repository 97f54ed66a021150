/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Who may read and who may write which block of a shared buffer: the protocol, as a state machine
 * without I/O, locks and clocks.  shared.c drives it over the job's messages, and
 * tests/cluster/shared_model.c over a network that delays and doubles them and kills ranks.
 *
 * The blocks are dealt out evenly: each has a home, and the first living rank from there on is its
 * directory.  The directory knows the owner and who has copies, and handles one request for a block
 * at a time, the others wait in line, so nobody starves:
 *
 *     R reads     R -ASK-> directory -SEND-> owner -DATA-> R -DONE-> directory
 *     R writes    R -ASK-> directory -DROP-> each copy -DROPPED-> directory
 *                          directory -SEND(give)-> owner -DATA-> R -DONE-> directory
 *                 or, when R is the owner:  directory -GRANT-> R -DONE-> directory
 *
 * Every request ends by its DONE, or by the end of who asked.  A DROP, or a SEND that the open
 * accesses of a rank stand against, waits for their end, and new ones wait behind it; those that
 * waited for the block are let in before it is asked for again.
 *
 * Doubled messages are known by numbers: requests by the rank's own (one for a block at a time),
 * what a directory says by its transaction.
 *
 * A rank that ends.  What it owned is lost.  An owner that was giving a block to it is asked to
 * take it back (RECALL), which works unless it has sent it already.  The next living rank is
 * directory in its place: all others REPORT to it what they have of these blocks and ask anew, and
 * it begins when all living ranks have told.  A block whose bytes were on their way from one rank
 * to another at that moment is lost.
 *
 * Invariants, over all ranks: a block is SOLE on one rank at most, and then COPY or OWNER nowhere;
 * it is OWNER or SOLE on one rank at most. */
#ifndef USM_CLUSTER_SHARED_STATE_H
#define USM_CLUSTER_SHARED_STATE_H

#include <usm/buffer.h>
#include <usm/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef enum usm__shared_op {
    /* to the directory */
    USM__SHARED_ASK = 1,  /* mode, request                                               */
    USM__SHARED_DROPPED,  /* txn                                                         */
    USM__SHARED_DONE,     /* txn, request, status                                        */
    USM__SHARED_KEPT,     /* txn, status USM_OK: the block is still here                 */
    USM__SHARED_REPORT,   /* mode: a usm__shared_hold                                    */
    USM__SHARED_REPORTED, /* rank: a home; of its blocks no report will follow           */
    /* from the directory */
    USM__SHARED_DROP,   /* txn                                                         */
    USM__SHARED_SEND,   /* txn; flags; rank, request: to whom, for what                */
    USM__SHARED_GRANT,  /* txn, request: the owner may write                           */
    USM__SHARED_RECALL, /* txn: who should have got it has ended                       */
    USM__SHARED_LOST,   /* the owner has ended                                         */
    /* from directory or owner to who asked */
    USM__SHARED_REFUSE, /* txn, request, status                                        */
    USM__SHARED_DATA,   /* txn, request, flags, offset, size                           */
    /* not of a block: shared.c's */
    USM__SHARED_BYE,    /* the rank has no access open and will open none                */
    USM__SHARED_ABSENT, /* the rank has no part in this buffer (any more)                */
    USM__SHARED_OPS
} usm__shared_op;

enum {
    USM__SHARED_GIVE     = 1, /* with the right to write                                     */
    USM__SHARED_NO_BYTES = 2, /* who asked has them, or does not want them                   */
    USM__SHARED_ZERO     = 4  /* nothing was ever written: no bytes either                   */
};

typedef struct usm__shared_message {
    uint8_t  op, mode, flags;
    int32_t  status;
    uint32_t rank;
    uint32_t offset, size; /* of the bytes behind it, in the block                        */
    uint64_t block, request, txn;
} usm__shared_message;

typedef enum usm__shared_hold {
    USM__SHARED_NONE = 0,
    USM__SHARED_GONE,  /* its owner has ended: USM_E_PEER from now on                        */
    USM__SHARED_COPY,  /* may be read                                                    */
    USM__SHARED_OWNER, /* may be read; others may have copies                             */
    USM__SHARED_SOLE   /* may be written                                                 */
} usm__shared_hold;

/* An access that waits.  The caller's until it is woken. */
typedef struct usm__shared_waiter {
    struct usm__shared_waiter *next;
    usm_access_mode            mode;
    bool                       is_done;
    usm_status                 status;
} usm__shared_waiter;

/* What a rank has of a block. */
typedef struct usm__shared_local {
    uint8_t             hold;
    uint8_t             asked;     /* the mode that was asked for, 0: nothing                   */
    uint8_t             pending;   /* DROP or SEND that waits for accesses to end, or 0          */
    uint8_t             flags;     /* of that SEND                                            */
    bool                is_ahead;  /* asked for by usm__shared_want()                         */
    bool                is_giving; /* its bytes are being sent, and the right to write        */
    bool                is_recalled, is_orphan; /* meanwhile: RECALL came; the directory ended */
    uint32_t            readers, writers;       /* open accesses                              */
    uint32_t            to;                     /* of the SEND                              */
    uint64_t            to_request, request, txn;
    uint32_t            gives; /* counted: the last one's serial                              */
    usm__shared_waiter *first, *last;
} usm__shared_local;

/* Bytes to be sent to `to`. */
typedef struct usm__shared_give {
    uint64_t block, request, txn;
    uint32_t to, serial;
    uint8_t  flags;
} usm__shared_give;

/* What the machine wants done.  None may call back into it. */
typedef struct usm__shared_ops {
    /* `to` may be the rank itself. */
    void (*send)(void *arg, uint32_t to, const usm__shared_message *msg);
    /* The block's bytes to give->to, as DATA; then usm__shared_sent(). */
    void (*give)(void *arg, const usm__shared_give *give);
    /* is_done is set: it is the caller's again. */
    void (*wake)(void *arg, usm__shared_waiter *waiter);
    /* What the rank has of the block: nothing any more (false), or the right to write it without
     * bytes (true). */
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
    bool                  *lost;      /* by rank                                          */
    usm__shared_local     *local;     /* by block                                         */
    usm__shared_dir      **dir;       /* by block, made when first asked; NULL: as at first */
    usm__shared_takeover **takeovers; /* by home                                          */
} usm__shared_machine;

/* ops, arg, self, ranks and blocks are set.  USM_E_NO_MEMORY. */
usm_status usm__shared_init(usm__shared_machine *m);
void       usm__shared_fini(usm__shared_machine *m);

static inline uint32_t usm__shared_home(const usm__shared_machine *m, uint64_t block)
{
    return (uint32_t)(block * m->ranks / m->blocks);
}

/* USM_OK: the access is open.  USM_E_NOT_READY: it will be, or fail, when w is woken.
 * USM_E_PEER: the block is lost. */
usm_status usm__shared_begin(usm__shared_machine *m, uint64_t block, usm_access_mode mode,
                             usm__shared_waiter *w);
void       usm__shared_end(usm__shared_machine *m, uint64_t block, usm_access_mode mode);
/* An access of that mode will come to the block: it is asked for ahead.  Nothing holds it here: it
 * may be taken away before, and the access asks anew.  Nothing waits for it either, so ranks that
 * want each other's blocks do not wait for each other. */
void usm__shared_want(usm__shared_machine *m, uint64_t block, usm_access_mode mode);
/* It waits no longer, and was not woken. */
void usm__shared_cancel(usm__shared_machine *m, uint64_t block, usm__shared_waiter *w);
/* Whether bytes for that request are wanted; DATA is received when all have come. */
bool usm__shared_expects(const usm__shared_machine *m, uint64_t block, uint64_t request);
void usm__shared_receive(usm__shared_machine *m, uint32_t from, const usm__shared_message *msg);
/* What give() asked for has ended. */
void usm__shared_sent(usm__shared_machine *m, const usm__shared_give *give, usm_status st);
void usm__shared_rank_lost(usm__shared_machine *m, uint32_t rank);

#endif
