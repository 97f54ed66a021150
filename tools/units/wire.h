/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What usm-run and its units say to each other, as bytes: frames of a header and what follows it.
 * Numbers are little-endian, of fixed widths.
 *
 *      0  magic       4  op, flags; 0, 2 bytes     8  node     12  first     16  count
 *     20  status     24  number                   32  size: of the bytes after it     40  0
 *
 * The meaning of the numbers, by op:
 *
 *     HELLO   both, first   first: least, count: greatest version it speaks; bytes: who it is.
 *                           These two and the header never change
 *     APP     to the unit   bytes: an app's file, then the list of app.h
 *     WANT    to the master bytes: a byte for each image of the list: 1, it is to be sent
 *     FILE    to the unit   first: which image; bytes: the image
 *     READY   to the master count: devices; bytes: a byte for each node: 1, it can execute it
 *     REFUSE  to the master status; bytes: why it cannot take part
 *     ECHO    both          number; it is sent back as it is
 *     UNROLL  to the unit   node: a partitioner; count: its parts
 *     BLOCKS  both          node, first, count: blocks; bytes: theirs.  number: to the unit, of the
 *                           GOT that answers it
 *     GOT     to the master number: the BLOCKS with this number are there
 *     FETCH   to the unit   node, first, count: the BLOCKS that are to be sent
 *     RUN     to the unit   node, first: a launch, its part; flags
 *     DONE    to the master node, first: a launch; number: ns on the device; bytes: work per second
 *                           of all devices, a double's bits
 *     FAILED  to the master node, first: a launch; status; bytes: why
 *     DROP    to the unit   node: its blocks are not needed any more
 *     ALIVE   to the master a sign of life
 *     BYE     to the unit   the end */
#ifndef USM_TOOLS_UNITS_WIRE_H
#define USM_TOOLS_UNITS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    UNIT_HEADER = 48,
    UNIT_LEAST  = 1, /* versions of this program */
    UNIT_MOST   = 1,
    UNIT_TEXT   = 255, /* most bytes of a reason, and of who it is */
    UNIT_SPEED  = 8,   /* bytes of DONE */
    UNIT_COMES  = 1    /* RUN: BLOCKS come before DONE */
};

typedef enum unit_op {
    UNIT_HELLO = 1,
    UNIT_APP,
    UNIT_WANT,
    UNIT_FILE,
    UNIT_READY,
    UNIT_REFUSE,
    UNIT_ECHO,
    UNIT_UNROLL,
    UNIT_BLOCKS,
    UNIT_GOT,
    UNIT_FETCH,
    UNIT_RUN,
    UNIT_DONE,
    UNIT_FAILED,
    UNIT_DROP,
    UNIT_ALIVE,
    UNIT_BYE,
    UNIT_OPS
} unit_op;

typedef struct unit_frame {
    uint8_t  op, flags;
    uint32_t node, first, count;
    int32_t  status;
    uint64_t number, size;
} unit_frame;

void unit_frame_encode(const unit_frame *f, unsigned char head[UNIT_HEADER]);
/* false: no frame begins so.  A frame may be of any size: who reads it knows which may come. */
bool unit_frame_decode(const unsigned char head[UNIT_HEADER], unit_frame *f);

/* The version that both speak; 0: there is none.  f: the other side's HELLO. */
uint32_t unit_version(const unit_frame *f);

/* Copies text from the other side, as far as it has room; what cannot be printed becomes '?'. */
void unit_text(char *to, size_t room, const void *bytes, size_t size);

void   unit_put_speed(unsigned char bytes[UNIT_SPEED], double speed);
double unit_get_speed(const unsigned char bytes[UNIT_SPEED]);

#endif
