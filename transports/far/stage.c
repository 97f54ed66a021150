/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Bytes of lent blocks: received by stages, sent from where they are.
 *
 * A stage is one request slot of one borrower: a chunk into which the bytes of a store are
 * received, with their header after them.  A chunk that covers a whole part of a block becomes that
 * part.  A smaller one is copied, into a copy of the part if a send reads the old one.  So nothing
 * late, duplicated or truncated is ever visible in a block.
 *
 *     announced > last:  announced bytes have not come: a receive is posted
 *
 * Announcements only post the receive.  The header after the bytes says what came, and for which
 * request. */
#include "lend.h"

#include <string.h>

struct far_stage {
    usm_list   link; /* in node->unarmed: there was no memory for a chunk */
    far_io     io;
    far_peer  *peer;
    far_chunk *chunk;           /* while the receive is posted */
    far_header header;          /* of the last announcement */
    uint64_t   announced, last; /* operations */
    bool       is_unwanted;     /* of an incarnation that is gone */
};

typedef struct serving {
    usm_list      link;
    far_io        io;
    far_chunk    *chunk;             /* or NULL */
    unsigned char alone[FAR_HEADER]; /* an answer without bytes */
} serving;

/* ---- receiving ----------------------------------------------------------------------------- */

/* Returns a chunk of the part that may be written, with the old content. */
static far_chunk *part_to_write(far_node *node, const lent_store *s, lent_part *p)
{
    size_t     size = (size_t)1 << s->chunk_shift;
    far_chunk *c    = p->chunk;

    if (c != NULL && c->sends == 0)
        return c;
    c = far_chunk_take(node, s->chunk_shift);
    if (c == NULL)
        return NULL;
    if (p->chunk == NULL) {
        memset(c->bytes, 0, size);
        usm_add_relaxed(&node->kept, size);
    } else {
        far_copy(node, c->bytes, p->chunk->bytes, size);
        far_chunk_drop(node, p->chunk);
    }
    p->chunk = c;
    return c;
}

static bool part_fill(far_stage *g, const lent_store *s, lent_part *p, const far_header *h)
{
    far_node  *node = g->peer->node;
    size_t     size = (size_t)1 << s->chunk_shift;
    far_chunk *c;

    if (h->length == size && g->chunk->slab->shift == s->chunk_shift) {
        if (p->chunk == NULL)
            usm_add_relaxed(&node->kept, size);
        far_chunk_drop(node, p->chunk);
        p->chunk = g->chunk;
        g->chunk = NULL;
        return true;
    }
    c = part_to_write(node, s, p);
    if (c == NULL)
        return false;
    far_copy(node, c->bytes + (h->offset & (size - 1)), g->chunk->bytes, h->length);
    return true;
}

static far_wire_status apply(far_stage *g, const far_header *h)
{
    far_peer       *peer = g->peer;
    far_wire_status status;
    lent_store     *s;
    lent_block     *b;
    lent_part      *p;

    if (peer->node->params.lend == 0)
        return FAR_NO_STORE;
    if (far_lent_is_stale(peer, h))
        return FAR_STALE;
    s = far_lent_store(peer, h, &status);
    if (s == NULL)
        return status;
    if ((h->offset & (((size_t)1 << s->chunk_shift) - 1)) + h->length > (size_t)1 << s->chunk_shift)
        return FAR_MISSING;
    b = far_lent_block(s, h->block, h->operation, &status);
    if (b == NULL)
        return status;
    if (b->is_near) /* the bytes are for an earlier life of the block */
        return FAR_STALE;
    p = &b->parts[h->offset >> s->chunk_shift];
    if (p->operation == h->operation)
        return FAR_DONE;
    if (p->operation > h->operation)
        return FAR_STALE;
    if (!part_fill(g, s, p, h))
        return FAR_FULL;
    p->operation = h->operation;
    b->is_stored = true;
    return FAR_DONE;
}

static void stage_arm(far_stage *g)
{
    far_node *node = g->peer->node;
    uint8_t shift = g->header.shift < g->peer->piece_shift ? g->header.shift : g->peer->piece_shift;

    if (g->chunk == NULL)
        g->chunk = far_chunk_take(node, shift);
    usm_list_remove(&g->link);
    if (g->chunk == NULL) {
        usm_list_append(&node->unarmed, &g->link);
        return;
    }
    g->io.holder_2 = g->chunk->slab->memory;
    node->receiving++;
    far_io_receive(&g->io,
                   (far_buffer){g->chunk->bytes, ((size_t)1 << g->chunk->slab->shift) + FAR_HEADER,
                                g->peer->index, FAR_TAG_STORE + (uint32_t)g->header.slot_number});
    far_point(node, "die.lend.posted");
}

static void stage_came(far_stage *g, size_t size)
{
    far_peer       *peer = g->peer;
    far_wire_status status;
    far_header      h;

    if (size <= FAR_HEADER ||
        !far_header_decode(g->chunk->bytes + size - FAR_HEADER, FAR_HEADER, &h) ||
        h.op != FAR_OP_BYTES || h.length != size - FAR_HEADER ||
        h.slot_number != g->header.slot_number) {
        usm_add_relaxed(&peer->node->refused, 1);
        if (g->announced > g->last)
            far_lent_answer(peer, &g->header, FAR_REPEAT);
        return;
    }
    if (!peer->has_session || h.from != peer->its || h.to != peer->mine) {
        if (h.operation == g->announced) /* recalled, in a session that is over */
            g->last = h.operation;
        return;
    }
    if (h.operation <= g->last)
        return;
    far_member_heard(peer);
    g->last = h.operation;
    far_point(peer->node, "die.lend.bytes");
    status = apply(g, &h);
    far_point(peer->node, "die.lend.stored");
    far_lent_answer(peer, &h, status);
    far_point(peer->node, "die.lend.acknowledged");
}

static void stage_ended(far_io *io, far_result result)
{
    far_stage *g     = usm_container_of(io, far_stage, io);
    far_node  *node  = g->peer->node;
    uint8_t    shift = g->chunk->slab->shift;

    node->receiving--;
    if (g->is_unwanted)
        usm_sub_relaxed(&node->quarantined, (uint64_t)1 << shift);
    g->is_unwanted = false;
    if (result == FAR_OK)
        stage_came(g, io->op.size);
    else if (result == FAR_TRUNCATED && g->announced > g->last)
        far_lent_answer(g->peer, &g->header, FAR_REPEAT);
    else if (result == FAR_PEER_LOST)
        far_member_lost(g->peer, true);
    if (g->chunk != NULL) {
        far_chunk_drop(node, g->chunk);
        g->chunk = NULL;
    }
    if (g->announced > g->last && (result == FAR_OK || result == FAR_TRUNCATED))
        stage_arm(g);
}

static far_stage *stage_of(far_peer *peer, uint32_t slot_number)
{
    far_node *node = peer->node;

    if (slot_number >= peer->stage_cap) {
        uint32_t    cap  = (slot_number | 7u) + 1;
        far_stage **more = far_alloc(node, cap * sizeof(far_stage *));

        if (more == NULL)
            return NULL;
        if (peer->stage_cap > 0)
            memcpy(more, peer->stages, peer->stage_cap * sizeof(far_stage *));
        far_free(node, peer->stages);
        peer->stages    = more;
        peer->stage_cap = cap;
    }
    if (peer->stages[slot_number] == NULL) {
        far_stage *g = far_alloc(node, sizeof(*g));

        if (g == NULL)
            return NULL;
        usm_list_init(&g->link);
        g->peer = peer;
        far_io_init(&g->io, node, stage_ended, g);
        peer->stages[slot_number] = g;
    }
    return peer->stages[slot_number];
}

void far_stage_announce(far_peer *peer, const far_header *h)
{
    far_stage *g = stage_of(peer, h->slot_number);

    far_point(peer->node, "die.lend.announced");
    if (g == NULL) {
        far_lent_answer(peer, h, FAR_FULL);
        return;
    }
    if (h->operation <= g->announced || h->operation <= g->last)
        return;
    g->announced = h->operation;
    g->header    = *h;
    if (!g->io.is_under_way)
        stage_arm(g);
}

void far_stages_reset(far_peer *peer)
{
    for (uint32_t i = 0; i < peer->stage_cap; i++) {
        far_stage *g = peer->stages[i];

        if (g == NULL)
            continue;
        g->announced = g->last = 0;
        if (g->io.is_under_way && !g->is_unwanted) {
            g->is_unwanted = true;
            usm_add_relaxed(&peer->node->quarantined, (uint64_t)1 << g->chunk->slab->shift);
        }
    }
}

void far_stages_tick(far_node *node)
{
    usm_list list, *it;

    usm_list_move(&node->unarmed, &list);
    while ((it = usm_list_pop(&list)) != NULL) {
        far_stage *g = usm_container_of(it, far_stage, link);

        if (g->announced > g->last && !g->io.is_under_way)
            stage_arm(g);
    }
}

/* ---- sending ------------------------------------------------------------------------------- */

static void serving_ended(far_io *io, far_result result)
{
    serving   *v    = usm_container_of(io, serving, io);
    far_node  *node = io->node;
    far_chunk *c    = v->chunk;

    far_point(node, "die.lend.served");
    node->serving--;
    if (c != NULL && --c->sends == 0 && c->is_dropped)
        far_chunk_drop(node, c);
    if (result == FAR_OK)
        usm_add_relaxed(&node->served, io->op.size - FAR_HEADER);
    else if (result == FAR_PEER_LOST)
        far_member_lost(&node->peers[io->op.peer], true);
    usm_list_append(&node->servings, &v->link);
}

static serving *serving_take(far_node *node)
{
    usm_list *it = usm_list_pop(&node->servings);
    serving  *v  = it != NULL ? usm_container_of(it, serving, link) : NULL;

    if (v != NULL)
        return v;
    v = far_alloc(node, sizeof(*v));
    if (v == NULL)
        return NULL;
    usm_list_init(&v->link);
    far_io_init(&v->io, node, serving_ended, v);
    return v;
}

/* Sends `length` bytes, and the answer to the fetch h after them.  v->chunk, which has the bytes, is
 * set; NULL: there are none. */
static void serving_send(far_peer *peer, serving *v, const far_header *h, unsigned char *bytes,
                         size_t length)
{
    const far_header answer = {.op          = FAR_OP_ANSWER,
                               .status      = v->chunk != NULL ? FAR_DONE : FAR_MISSING,
                               .slot_number = h->slot_number,
                               .from        = peer->mine,
                               .to          = peer->its,
                               .operation   = h->operation,
                               .store       = h->store,
                               .block       = far_lend_available(peer->node),
                               .offset      = FAR_OP_FETCH};

    far_header_encode(&answer, bytes + length);
    peer->node->serving++;
    far_io_send(&v->io, (far_buffer){bytes, length + FAR_HEADER, peer->index,
                                     FAR_TAG_FETCH + (uint32_t)h->slot_number});
}

/* A copy of a part of a chunk, which is dropped when it has been sent. */
static far_chunk *chunk_copy(far_node *node, const unsigned char *bytes, uint32_t length)
{
    const uint8_t shift = (uint8_t)(32 - __builtin_clz(length - 1));
    far_chunk    *c     = far_chunk_take(node, shift);

    if (c == NULL)
        return NULL;
    far_copy(node, c->bytes, bytes, length);
    c->is_dropped = true;
    return c;
}

/* The header is written after the bytes, so a chunk that is being sent, or of which only a part is
 * asked for, is copied. */
bool far_serve(far_peer *peer, const far_header *h, far_chunk *c, size_t at)
{
    far_node *node = peer->node;
    serving  *v;

    if (peer->is_dead)
        return true;
    if (h->length < (size_t)1 << c->slab->shift || c->sends > 0)
        c = chunk_copy(node, c->bytes + at, h->length);
    v = c != NULL ? serving_take(node) : NULL;
    if (v == NULL) {
        if (c != NULL && c->is_dropped)
            far_chunk_drop(node, c);
        return false;
    }
    v->chunk       = c;
    v->io.holder_2 = c->slab->memory;
    c->sends++;
    serving_send(peer, v, h, c->bytes, h->length);
    far_point(node, "die.lend.sent");
    return true;
}

/* Without memory the answer is lost, as messages may be. */
void far_serve_nothing(far_peer *peer, const far_header *h)
{
    serving *v = peer->is_dead ? NULL : serving_take(peer->node);

    if (v == NULL)
        return;
    v->chunk       = NULL;
    v->io.holder_2 = NULL;
    serving_send(peer, v, h, v->alone, 0);
}
