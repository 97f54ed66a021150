/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The interface that remote memory requires of a message system.  MPI implements it
 * (transports/mpi/link.c), and so does the simulated network (tests/far/net.c), with the faults
 * that a test asks for.
 *
 * Peers are numbered 0 to count - 1, self included.  A message goes from a peer to a peer under a
 * tag.  Messages of one pair and tag arrive in the order in which they were sent, others in any
 * order.  An operation belongs to the link from its start until its `done` was called, and so does
 * its buffer.
 *
 * A send that has ended says nothing about the receiver: messages to the dead "succeed" (measured
 * with Open MPI 5).  Nothing here waits, and the link reports a peer's death only as a hint
 * (FAR_PEER_LOST).  One thread at a time may call, and `done` is called inside poll() only. */
#ifndef FAR_LINK_H
#define FAR_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum far_result {
    FAR_OK        = 0,
    FAR_TRUNCATED = 1, /* the message was longer than the buffer: its content is unknown */
    FAR_PEER_LOST = 2, /* the message system reports that the peer is gone (ULFM) */
    FAR_FAILED    = 3  /* any other error that it reports */
} far_result;

#define FAR_ANY UINT32_MAX /* receive from any peer */

typedef struct far_op far_op;
struct far_op {
    void    *buffer;
    size_t   size; /* bytes; of a receive: room before, received bytes after */
    uint32_t peer; /* of a receive from FAR_ANY: the sender, once it has ended */
    uint32_t tag;  /* 0 to 32,767 (MPI guarantees that many) */
    void (*done)(far_op *op, far_result result);
    void    *user;
    uint64_t opaque[4]; /* for the link */
};

typedef struct far_link far_link; /* begins with its table */
typedef struct far_link_ops {
    /* Fixed as long as the link is open. */
    uint32_t (*self)(far_link *l);
    uint32_t (*count)(far_link *l);
    /* Starts an operation; errors are reported by `done`. */
    void (*send)(far_link *l, far_op *op);
    void (*receive)(far_link *l, far_op *op);
    /* Lets operations progress; calls `done` of those that have ended; returns their number.  Does
     * not wait. */
    unsigned (*poll)(far_link *l);
    /* Nanoseconds of a clock that never goes back. */
    uint64_t (*now)(far_link *l);
} far_link_ops;

struct far_link {
    const far_link_ops *ops;
};

#endif
