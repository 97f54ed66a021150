/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The headers that nodes of remote memory send each other: 64 bytes, little-endian, with a version
 * and a checksum of their own.  Only encoding and decoding is here: no state, no link, no memory.
 *
 *     tag      from      to        messages
 *     1        any       any       headers, one behind the other: requests, acknowledgements, signs
 *                                  of life
 *     2        any       any       a header and its body: far_send(), joining
 *     1024 + s borrower  lender    bytes of a store and, after them, their header
 *     8192 + s lender    borrower  bytes of a fetch and, after them, the header of its answer; of
 *                                  a failed fetch the header alone
 *
 * s is the number of one of the borrower's request slots for that lender; a slot has one request in
 * progress at a time.  Bytes are identified by the header that comes with them, so that duplicated
 * and late ones are recognised; src/spill checks whether they are the right bytes.  No caller
 * checks the bodies of messages and of joining: their header has their checksum. */
#ifndef FAR_WIRE_H
#define FAR_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FAR_HEADER           = 64, /* bytes */
    FAR_JOIN_BODY        = 160,
    FAR_HEADERS_MAX      = 1024, /* bytes of one message of headers */
    FAR_WIRE_VERSION     = 3,
    FAR_MESSAGE_MAX      = 65600, /* 64 KiB, and a header of the sender */
    FAR_TAG_HEADER       = 1,
    FAR_TAG_MESSAGE      = 2,
    FAR_TAG_STORE        = 1024,
    FAR_TAG_FETCH        = 8192,
    FAR_SLOT_NUMBERS_MAX = 4096, /* of a pair of members */
    FAR_SHIFT_MIN        = 12,
    FAR_SHIFT_MAX        = 31
};

/* The numbers are those of the wire. */
typedef enum far_wire_op {
    FAR_OP_ALIVE   = 1, /* a sign of life, and the room left */
    FAR_OP_WELCOME = 2, /* the third part of joining was right */
    FAR_OP_FENCED  = 3, /* the sender does not know the incarnation `to`; operation: the incarnation
                           of the sender to which it had spoken */
    FAR_OP_LEAVE   = 4,
    FAR_OP_LEFT    = 5, /* LEAVE was received */
    FAR_OP_RESERVE = 8, /* [block, block + length); slot 1: in mapped memory */
    FAR_OP_UNDO    = 9, /* of a reserve that was given up, whose operation was this one - offset */
    FAR_OP_FORGET  = 10,
    FAR_OP_CLOSE   = 11, /* forget the store */
    FAR_OP_FETCH   = 12,
    FAR_OP_STORE   = 13,
    FAR_OP_NEAR    = 14, /* can a process of the host `block` map the memory? */
    FAR_OP_ANSWER  = 16, /* to any of the seven above, by its operation number; to NEAR: store and
                            length say where it is */
    FAR_OP_BYTES   = 17, /* after the bytes of a store */
    FAR_OP_MESSAGE = 24, /* block: its number from 1; store: its tag; length: of its body;
                            operation: the body's sum */
    FAR_OP_JOIN    = 25, /* parts 1 to 3 of joining: offset; operation: the body's sum */
    FAR_OP_END
} far_wire_op;

typedef enum far_wire_status {
    FAR_DONE     = 0,
    FAR_FULL     = 1, /* no room */
    FAR_MISSING  = 2, /* nothing is kept there */
    FAR_STALE    = 3, /* newer requests have been applied */
    FAR_REPEAT   = 4, /* the bytes did not arrive as they should */
    FAR_NO_STORE = 5, /* it does not lend */
    FAR_STATUS_END
} far_wire_status;

typedef struct far_header {
    far_wire_op     op;
    far_wire_status status;
    uint16_t        slot_number;
    uint8_t         shift;     /* the store's blocks have 1 << shift bytes */
    uint64_t        from, to;  /* incarnations */
    uint64_t        operation; /* rises with every request of a borrower to a lender */
    uint32_t        behind;    /* operation - behind: the oldest request that is still awaited */
    uint32_t        store;
    uint64_t        block; /* of answers and signs of life: bytes that could be reserved */
    uint32_t        offset, length;
} far_header;

typedef struct far_join {
    unsigned char mine[16],
        yours[16];           /* challenges: the sender's; the receiver's, as it was received */
    unsigned char proof[32]; /* parts 2 and 3 */
    uint64_t      lends;
    uint64_t      claim, orphans; /* the sender's claim at the receiver, and the estate it keeps for
                                    it */
    uint32_t      piece_shift;
    bool          is_seldom; /* it is stepped seldom */
    char          domain[64];
} far_join;

void far_header_encode(const far_header *h, unsigned char bytes[FAR_HEADER]);
/* False, and *h is untouched: not a header, of another version, damaged, or it makes no sense.
 * Headers that pass have ranges that do not wrap and lie within a block; numbers of blocks may be
 * any. */
bool far_header_decode(const void *bytes, size_t size, far_header *h);

/* The sum of a body.  Bodies that differ in only one word of eight bytes have different sums for
 * sure. */
uint64_t far_body_sum(const void *body, size_t size);

void far_join_encode(const far_join *j, unsigned char bytes[FAR_JOIN_BODY]);
bool far_join_decode(const void *bytes, size_t size, far_join *j);

#endif
