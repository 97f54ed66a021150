/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The messages of launches over ranks as bytes: wire.h. */
#include "offload/wire.h"

#include "base/inline/bytes.h"

#include <string.h>

#define MAGIC   0x54534d55u /* "UMST" */
#define VERSION 1u

void usm__wire_encode(const usm__wire *w, unsigned char header[USM__WIRE_HEADER])
{
    usm_put_le(header, MAGIC, 4);
    header[4] = w->op;
    header[5] = w->flags;
    usm_put_le(header + 6, VERSION, 2);
    usm_put_le(header + 8, w->team, 4);
    usm_put_le(header + 12, w->launch, 4);
    usm_put_le(header + 16, (uint32_t)w->status, 4);
    usm_put_le(header + 20, w->index, 4);
    usm_put_le(header + 24, w->request, 8);
    usm_put_le(header + 32, w->a, 8);
    usm_put_le(header + 40, w->b, 8);
    usm_put_le(header + 48, w->c, 8);
    usm_put_le(header + 56, w->size, 4);
    usm_put_le(header + 60, 0, 4);
}

static bool is_size_right(const usm__wire *w)
{
    switch ((usm__wire_op)w->op) {
    case USM__WIRE_READY:
        return w->size >= USM__WIRE_SHAPE;
    case USM__WIRE_GRANT:
    case USM__WIRE_DONE:
    case USM__WIRE_COUNTS:
        return w->size > 0 && w->size % USM__WIRE_RECORD == 0;
    case USM__WIRE_PROGRESS:
        return w->size % 8 == 0;
    case USM__WIRE_END:
        return w->size >= USM__WIRE_FIGURES + (uint64_t)w->index * USM__WIRE_MEMBER;
    case USM__WIRE_STORE:
    case USM__WIRE_COPIES:
        return w->size > 0 && w->size <= USM__WIRE_PIECE;
    case USM__WIRE_DATA:
        return w->status != 0 ? w->size == 0 : w->size > 0 && w->size <= USM__WIRE_PIECE;
    case USM__WIRE_FAILED:
    case USM__WIRE_SETTLED:
        return true; /* an error message, or none */
    case USM__WIRE_ALIVE:
    case USM__WIRE_CUT:
    case USM__WIRE_CANCEL:
    case USM__WIRE_SETTLE:
    case USM__WIRE_FETCH:
    case USM__WIRE_ACK:
        return w->size == 0;
    case USM__WIRE_OPS:
        break;
    }
    return false;
}

bool usm__wire_decode(const void *data, size_t size, usm__wire *w)
{
    const unsigned char *header = data;

    if (size < USM__WIRE_HEADER || usm_get_le(header, 4) != MAGIC ||
        usm_get_le(header + 6, 2) != VERSION)
        return false;
    w->op      = header[4];
    w->flags   = header[5];
    w->team    = (uint32_t)usm_get_le(header + 8, 4);
    w->launch  = (uint32_t)usm_get_le(header + 12, 4);
    w->status  = (int32_t)(uint32_t)usm_get_le(header + 16, 4);
    w->index   = (uint32_t)usm_get_le(header + 20, 4);
    w->request = usm_get_le(header + 24, 8);
    w->a       = usm_get_le(header + 32, 8);
    w->b       = usm_get_le(header + 40, 8);
    w->c       = usm_get_le(header + 48, 8);
    w->size    = (uint32_t)usm_get_le(header + 56, 4);
    w->bytes   = header + USM__WIRE_HEADER;
    return w->size == size - USM__WIRE_HEADER && w->op > 0 && is_size_right(w);
}

void usm__wire_put_record(unsigned char *at, const usm__wire_record *r)
{
    usm_put_le(at, r->member, 4);
    usm_put_le(at + 4, r->attempt, 4);
    usm_put_le(at + 8, r->id, 8);
    usm_put_le(at + 16, r->a, 8);
    usm_put_le(at + 24, r->b, 8);
}

void usm__wire_get_record(const unsigned char *at, usm__wire_record *r)
{
    r->member  = (uint32_t)usm_get_le(at, 4);
    r->attempt = (uint32_t)usm_get_le(at + 4, 4);
    r->id      = usm_get_le(at + 8, 8);
    r->a       = usm_get_le(at + 16, 8);
    r->b       = usm_get_le(at + 24, 8);
}

void usm__wire_put_member(unsigned char *at, const usm__wire_member *m)
{
    usm_put_le(at, m->chunks, 8);
    usm_put_le(at + 8, m->items, 8);
    usm_put_le(at + 16, m->busy_ns, 8);
    usm_put_le(at + 24, m->speed < 1e15 ? (uint64_t)(m->speed * 1e3) : UINT64_MAX, 8);
    usm_put_le(at + 32, m->state, 8);
}

void usm__wire_get_member(const unsigned char *at, usm__wire_member *m)
{
    m->chunks  = usm_get_le(at, 8);
    m->items   = usm_get_le(at + 8, 8);
    m->busy_ns = usm_get_le(at + 16, 8);
    m->speed   = (double)usm_get_le(at + 24, 8) / 1e3;
    m->state   = (uint32_t)usm_get_le(at + 32, 8);
}
