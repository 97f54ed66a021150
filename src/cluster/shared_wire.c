/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The header of messages of shared buffers.  Several may be sent as one: those without bytes, one
 * behind the other.
 *
 *      0  magic      4  op, mode, flags, version      8  status     12  rank
 *     16  buffer    24  block    32  request    40  transaction
 *     48  offset    52  size: of the bytes after it, or in the slot   56  slot    60  serial */
#include "cluster/shared.h"

#include "base/inline/bytes.h"

#include <string.h>

#define MAGIC   0x53534d55u /* "UMSS" */
#define VERSION 2u

void usm__shared_encode(uint64_t buffer, const usm__shared_message *msg,
                        unsigned char header[USM__SHARED_HEADER])
{
    memset(header, 0, USM__SHARED_HEADER);
    usm_put_le(header, MAGIC, 4);
    header[4] = msg->op;
    header[5] = msg->mode;
    header[6] = msg->flags;
    header[7] = VERSION;
    usm_put_le(header + 8, (uint32_t)msg->status, 4);
    usm_put_le(header + 12, msg->rank, 4);
    usm_put_le(header + 16, buffer, 8);
    usm_put_le(header + 24, msg->block, 8);
    usm_put_le(header + 32, msg->request, 8);
    usm_put_le(header + 40, msg->txn, 8);
    usm_put_le(header + 48, msg->offset, 4);
    usm_put_le(header + 52, msg->size, 4);
    usm_put_le(header + 56, msg->slot, 4);
    usm_put_le(header + 60, msg->serial, 4);
}

bool usm__shared_decode(const void *data, size_t size, uint64_t *buffer, usm__shared_message *msg)
{
    const unsigned char *header = data;

    if (size < USM__SHARED_HEADER || usm_get_le(header, 4) != MAGIC || header[7] != VERSION ||
        header[4] == 0 || header[4] >= USM__SHARED_OPS)
        return false;
    msg->op      = header[4];
    msg->mode    = header[5];
    msg->flags   = header[6];
    msg->status  = (int32_t)(uint32_t)usm_get_le(header + 8, 4);
    msg->rank    = (uint32_t)usm_get_le(header + 12, 4);
    *buffer      = usm_get_le(header + 16, 8);
    msg->block   = usm_get_le(header + 24, 8);
    msg->request = usm_get_le(header + 32, 8);
    msg->txn     = usm_get_le(header + 40, 8);
    msg->offset  = (uint32_t)usm_get_le(header + 48, 4);
    msg->size    = (uint32_t)usm_get_le(header + 52, 4);
    msg->slot    = (uint32_t)usm_get_le(header + 56, 4);
    msg->serial  = (uint32_t)usm_get_le(header + 60, 4);
    return usm__shared_length(msg) <= size;
}
