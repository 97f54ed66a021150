/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Frames as bytes: see wire.h. */
#include "units/wire.h"

#include "base/inline/bytes.h"

#include <string.h>

#define MAGIC 0x554d5355u /* "USMU" */

void unit_frame_encode(const unit_frame *f, unsigned char head[UNIT_HEADER])
{
    memset(head, 0, UNIT_HEADER);
    usm_put_le(head, MAGIC, 4);
    head[4] = f->op;
    head[5] = f->flags;
    usm_put_le(head + 8, f->node, 4);
    usm_put_le(head + 12, f->first, 4);
    usm_put_le(head + 16, f->count, 4);
    usm_put_le(head + 20, (uint32_t)f->status, 4);
    usm_put_le(head + 24, f->number, 8);
    usm_put_le(head + 32, f->size, 8);
}

bool unit_frame_decode(const unsigned char head[UNIT_HEADER], unit_frame *f)
{
    *f = (unit_frame){.op     = head[4],
                      .flags  = head[5],
                      .node   = (uint32_t)usm_get_le(head + 8, 4),
                      .first  = (uint32_t)usm_get_le(head + 12, 4),
                      .count  = (uint32_t)usm_get_le(head + 16, 4),
                      .status = (int32_t)(uint32_t)usm_get_le(head + 20, 4),
                      .number = usm_get_le(head + 24, 8),
                      .size   = usm_get_le(head + 32, 8)};
    return usm_get_le(head, 4) == MAGIC && f->op > 0 && f->op < UNIT_OPS;
}

uint32_t unit_version(const unit_frame *f)
{
    uint32_t most = f->count < UNIT_MOST ? f->count : UNIT_MOST;

    return most >= UNIT_LEAST && most >= f->first ? most : 0;
}

void unit_text(char *to, size_t room, const void *bytes, size_t size)
{
    const char *from = bytes;
    size_t      n    = size < room - 1 ? size : room - 1;

    for (size_t i = 0; i < n; i++)
        if (from[i] >= ' ' && from[i] <= '~')
            to[i] = from[i];
        else
            to[i] = '?';
    to[n] = '\0';
}

void unit_put_speed(unsigned char bytes[UNIT_SPEED], double speed)
{
    uint64_t bits;

    memcpy(&bits, &speed, sizeof bits);
    usm_put_le(bytes, bits, UNIT_SPEED);
}

double unit_get_speed(const unsigned char bytes[UNIT_SPEED])
{
    uint64_t bits = usm_get_le(bytes, UNIT_SPEED);
    double   speed;

    memcpy(&speed, &bits, sizeof speed);
    return speed;
}
