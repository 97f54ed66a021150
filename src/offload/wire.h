/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The messages that ranks send each other about a launch, as bytes: little-endian, of fixed widths.
 *
 *      0  magic       4  op, flags; version, 2 bytes     8  team     12  launch
 *     16  status     20  index                          24  request
 *     32  a          40  b                              48  c
 *     56  size: of the bytes after it                   60  0
 *
 * The meaning of the numbers, by op.  "master" is the rank that hands out the chunks, "home" the
 * one that provides the data:
 *
 *     READY     worker > master  a home, b most indices of a chunk (0: any), flags; bytes: the
 *                                launch's shape, then a byte for each member: it takes part.
 *                                With a status, at any time: this rank takes no part, or no
 *                                longer; after as many unused bytes the error message
 *     GRANT     master > worker  records
 *     DONE      worker > master  records: home has all of their bytes
 *     FAILED    worker > master  index member, a chunk, status, flags; bytes: the error message
 *     ALIVE     worker > master  granted chunks are being worked on
 *     COUNTS    master > home    records: copies of these chunks are to be merged
 *     CUT       master > all     a: indices from there on are no longer wanted
 *     CANCEL    any > master
 *     PROGRESS  master > all     a done, b chunks, c rescheduled; bytes: 8 a member, indices done
 *     SETTLE    master > home    all is done: finalize, that is merge the private copies
 *     SETTLED   home > master    status, a: the first 8 bytes of the first argument that was merged;
 *                                bytes: the error message
 *     END       master > all     status, a: as in SETTLED; bytes: chunks, rescheduled, duplicated, dropped, ns from
 *                                the first end of a member to the last, 8 bytes each; as many
 *                                members (USM__WIRE_MEMBER) as index says; the error message
 *     FETCH     worker > home    index argument, a offset, b length, request; flags
 *     DATA      home > worker    a offset, status, request; bytes
 *     STORE     worker > home    index argument, a offset, request; bytes
 *     COPIES    worker > home    a chunk, b its first index, c indices, index: which of the pieces
 *                                of USM__WIRE_PIECE, request; bytes
 *     ACK       home > worker    status, request: one for each STORE and COPIES that has a
 *                                request, in their order */
#ifndef USM_OFFLOAD_WIRE_H
#define USM_OFFLOAD_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USM__WIRE_HEADER 64u
#define USM__WIRE_RECORD 32u
#define USM__WIRE_SHAPE  32u
/* of an argument in one message */
#define USM__WIRE_PIECE   65536u
#define USM__WIRE_FIGURES 40u
#define USM__WIRE_MEMBER  40u

typedef enum usm__wire_op {
    USM__WIRE_READY = 1,
    USM__WIRE_GRANT,
    USM__WIRE_DONE,
    USM__WIRE_FAILED,
    USM__WIRE_ALIVE,
    USM__WIRE_COUNTS,
    USM__WIRE_CUT,
    USM__WIRE_CANCEL,
    USM__WIRE_PROGRESS,
    USM__WIRE_SETTLE,
    USM__WIRE_SETTLED,
    USM__WIRE_END,
    USM__WIRE_FETCH,
    USM__WIRE_DATA,
    USM__WIRE_STORE,
    USM__WIRE_COPIES,
    USM__WIRE_ACK,
    USM__WIRE_OPS
} usm__wire_op;

enum {
    USM__WIRE_FATAL   = 2, /* FAILED: no other member could do it */
    USM__WIRE_ASIDE   = 4, /* FAILED: the member is granted nothing more */
    USM__WIRE_WATCHES = 2  /* READY: the rank wants PROGRESS */
};

typedef struct usm__wire {
    uint8_t              op, flags;
    uint32_t             team, launch;
    int32_t              status;
    uint32_t             index;
    uint64_t             request, a, b, c;
    uint32_t             size;  /* of `bytes` */
    const unsigned char *bytes; /* the caller's, or part of the received message */
} usm__wire;

/* The numbers attempt, a, b.  Of GRANT: attempt, first, count.  Of DONE: 0, compute_ns, the first
 * index that is no longer wanted (UINT64_MAX: all are).  Of COUNTS: 0, 0, 0, and `member` is the
 * rank that did the chunk. */
typedef struct usm__wire_record {
    uint32_t member, attempt;
    uint64_t id, a, b;
} usm__wire_record;

/* The statistics of a member in one launch. */
typedef struct usm__wire_member {
    uint64_t chunks, items, busy_ns;
    double   speed; /* indices per second, to a thousandth */
    uint32_t state; /* usm_member_state */
} usm__wire_member;

/* Writes the header; the bytes follow it. */
void usm__wire_encode(const usm__wire *w, unsigned char header[USM__WIRE_HEADER]);
/* False: not a message of this version, or its length does not match its header or op. */
bool usm__wire_decode(const void *data, size_t size, usm__wire *w);
void usm__wire_put_record(unsigned char *at, const usm__wire_record *r);
void usm__wire_get_record(const unsigned char *at, usm__wire_record *r);
void usm__wire_put_member(unsigned char *at, const usm__wire_member *m);
void usm__wire_get_member(const unsigned char *at, usm__wire_member *m);
/* The number of records of a GRANT, a DONE or a COUNTS. */
static inline uint32_t usm__wire_records(const usm__wire *w)
{
    return w->size / USM__WIRE_RECORD;
}

#endif
