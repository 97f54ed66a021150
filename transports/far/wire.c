/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Headers as bytes (wire.h).  Called by all parts of remote memory, and by the fuzzer.
 *
 *     at  0 magic 4   4 version 1   5 op 1   6 status 1   7 shift 1   8 checksum 4
 *        12 slot 2   14 zero 2     16 from 8   24 to 8   32 operation 8   40 block 8
 *        48 behind 4   52 store 4   56 offset 4   60 length 4 */
#include "wire.h"

#include "base/inline/bytes.h"

#include <string.h>

#define MAGIC 0x52414655u /* "UFAR" */

/* Each step is a bijection of the sum so far, so a change within one word of eight bytes always
 * changes the 64 bits, of which 32 are sent.  The position of the checksum itself counts as
 * zero. */
static uint32_t checksum(const unsigned char *bytes)
{
    uint64_t sum = 0x9e3779b97f4a7c15u;

    for (unsigned i = 0; i < FAR_HEADER / 8; i++) {
        uint64_t word = usm_get_le(bytes + (size_t)8 * i, 8);

        if (i == 1)
            word &= 0xffffffff00000000u;
        sum = (sum ^ word) * 0xff51afd7ed558ccdu;
        sum ^= sum >> 32;
    }
    sum *= 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(sum >> 32);
}

/* Two sums take turns, because one would have to wait for its own last product. */
uint64_t far_body_sum(const void *body, size_t size)
{
    const unsigned char *at   = body;
    uint64_t             even = 0x9e3779b97f4a7c15u ^ size, odd = 0x94d049bb133111ebu;
    unsigned char        rest[16] = {0};

    for (; size >= 16; at += 16, size -= 16) {
        even = (even ^ usm_get_le(at, 8)) * 0xff51afd7ed558ccdu;
        even ^= even >> 32;
        odd = (odd ^ usm_get_le(at + 8, 8)) * 0xc4ceb9fe1a85ec53u;
        odd ^= odd >> 32;
    }
    if (size > 0)
        memcpy(rest, at, size);
    even = (even ^ usm_get_le(rest, 8)) * 0xff51afd7ed558ccdu;
    odd  = (odd ^ usm_get_le(rest + 8, 8)) * 0xc4ceb9fe1a85ec53u;
    even ^= even >> 32;
    odd ^= odd >> 32;
    return (even ^ odd >> 1 ^ odd << 63) * 0xff51afd7ed558ccdu;
}

void far_header_encode(const far_header *h, unsigned char bytes[FAR_HEADER])
{
    usm_put_le(bytes, MAGIC, 4);
    bytes[4] = FAR_WIRE_VERSION;
    bytes[5] = (unsigned char)h->op;
    bytes[6] = (unsigned char)h->status;
    bytes[7] = h->shift;
    usm_put_le(bytes + 8, 0, 4);
    usm_put_le(bytes + 12, h->slot_number, 2);
    usm_put_le(bytes + 14, 0, 2);
    usm_put_le(bytes + 16, h->from, 8);
    usm_put_le(bytes + 24, h->to, 8);
    usm_put_le(bytes + 32, h->operation, 8);
    usm_put_le(bytes + 40, h->block, 8);
    usm_put_le(bytes + 48, h->behind, 4);
    usm_put_le(bytes + 52, h->store, 4);
    usm_put_le(bytes + 56, h->offset, 4);
    usm_put_le(bytes + 60, h->length, 4);
    usm_put_le(bytes + 8, checksum(bytes), 4);
}

static bool shift_is_valid(const far_header *h)
{
    return h->shift >= FAR_SHIFT_MIN && h->shift <= FAR_SHIFT_MAX;
}

static bool part_is_valid(const far_header *h)
{
    const uint32_t page = (1u << FAR_SHIFT_MIN) - 1;

    return shift_is_valid(h) && h->slot_number < FAR_SLOT_NUMBERS_MAX && h->length != 0 &&
           ((h->length | h->offset) & page) == 0 &&
           (uint64_t)h->offset + h->length <= (uint64_t)1 << h->shift;
}

static bool blocks_are_valid(const far_header *h)
{
    return shift_is_valid(h) && h->length != 0 && h->block <= UINT64_MAX - h->length;
}

static bool fields_are_valid(const far_header *h)
{
    if (h->from == 0 || h->behind > h->operation)
        return false;
    switch (h->op) {
    case FAR_OP_ALIVE:
    case FAR_OP_WELCOME:
    case FAR_OP_FENCED:
    case FAR_OP_LEAVE:
    case FAR_OP_LEFT:
        return true;
    case FAR_OP_UNDO:
        return h->operation > h->offset && blocks_are_valid(h);
    case FAR_OP_RESERVE:
    case FAR_OP_FORGET:
        return h->operation != 0 && blocks_are_valid(h);
    case FAR_OP_CLOSE:
        return h->operation != 0 && shift_is_valid(h);
    case FAR_OP_NEAR:
        return h->operation != 0;
    case FAR_OP_FETCH:
    case FAR_OP_STORE:
    case FAR_OP_BYTES:
        return h->operation != 0 && part_is_valid(h);
    case FAR_OP_ANSWER:
        return h->operation != 0 && h->slot_number < FAR_SLOT_NUMBERS_MAX;
    case FAR_OP_MESSAGE:
        return h->block != 0 && h->length <= FAR_MESSAGE_MAX;
    case FAR_OP_JOIN:
        return h->offset >= 1 && h->offset <= 3 && h->length == FAR_JOIN_BODY;
    case FAR_OP_END:
    default:
        return false;
    }
}

bool far_header_decode(const void *data, size_t size, far_header *h)
{
    const unsigned char *bytes = data;
    far_header           d;

    if (size < FAR_HEADER || usm_get_le(bytes, 4) != MAGIC || bytes[4] != FAR_WIRE_VERSION)
        return false;
    if (usm_get_le(bytes + 8, 4) != checksum(bytes) || usm_get_le(bytes + 14, 2) != 0)
        return false;
    if (bytes[5] >= FAR_OP_END || bytes[6] >= FAR_STATUS_END)
        return false;
    d.op          = (far_wire_op)bytes[5];
    d.status      = (far_wire_status)bytes[6];
    d.shift       = bytes[7];
    d.slot_number = (uint16_t)usm_get_le(bytes + 12, 2);
    d.from        = usm_get_le(bytes + 16, 8);
    d.to          = usm_get_le(bytes + 24, 8);
    d.operation   = usm_get_le(bytes + 32, 8);
    d.block       = usm_get_le(bytes + 40, 8);
    d.behind      = (uint32_t)usm_get_le(bytes + 48, 4);
    d.store       = (uint32_t)usm_get_le(bytes + 52, 4);
    d.offset      = (uint32_t)usm_get_le(bytes + 56, 4);
    d.length      = (uint32_t)usm_get_le(bytes + 60, 4);
    if (!fields_are_valid(&d))
        return false;
    *h = d;
    return true;
}

void far_join_encode(const far_join *j, unsigned char bytes[FAR_JOIN_BODY])
{
    memset(bytes, 0, FAR_JOIN_BODY);
    memcpy(bytes, j->mine, 16);
    memcpy(bytes + 16, j->yours, 16);
    memcpy(bytes + 32, j->proof, 32);
    usm_put_le(bytes + 64, j->lends, 8);
    usm_put_le(bytes + 72, j->piece_shift, 4);
    usm_put_le(bytes + 76, j->is_seldom, 4);
    memcpy(bytes + 80, j->domain, sizeof(j->domain));
    usm_put_le(bytes + 144, j->claim, 8);
    usm_put_le(bytes + 152, j->orphans, 8);
}

bool far_join_decode(const void *data, size_t size, far_join *j)
{
    const unsigned char *bytes = data;
    far_join             d;

    if (size != FAR_JOIN_BODY)
        return false;
    memcpy(d.mine, bytes, 16);
    memcpy(d.yours, bytes + 16, 16);
    memcpy(d.proof, bytes + 32, 32);
    d.lends       = usm_get_le(bytes + 64, 8);
    d.piece_shift = (uint32_t)usm_get_le(bytes + 72, 4);
    d.is_seldom   = bytes[76] == 1;
    memcpy(d.domain, bytes + 80, sizeof(d.domain));
    d.claim   = usm_get_le(bytes + 144, 8);
    d.orphans = usm_get_le(bytes + 152, 8);
    if (d.piece_shift < FAR_SHIFT_MIN || d.piece_shift > FAR_SHIFT_MAX)
        return false;
    if (memchr(d.domain, '\0', sizeof(d.domain)) == NULL)
        return false;
    *j = d;
    return true;
}
