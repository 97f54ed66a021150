/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Messages: a header and a body of at most 64 KiB in one, from any peer.  Those of far_send() are
 * numbered, so that they are delivered in order and once, whatever the order in which receives end.
 * If a number is missing for deadline_ns, its sender is lost.  Joining (members.c) uses messages
 * without numbers. */
#include "internal.h"

#include <string.h>

enum { POSTED = 8, POSTED_MAX = 4 * POSTED, BIG = 4096, SPARES = 16 };

typedef struct message {
    usm_list      link; /* in node->outgoing, peer->outbox or peer->held */
    far_io        io;
    far_header    header;
    uint32_t      peer;
    bool          is_big;    /* it has room for any message, and is reused */
    bool          is_listed; /* in node->memory */
    unsigned char bytes[];
} message;

typedef struct message_in {
    usm_list       link;
    far_io         io;
    unsigned char *buffer;
    uint64_t       number;    /* receives are matched in the order of posting */
    uint64_t       overtaken; /* since when a later one has ended before it */
    bool           is_stuck;  /* another one has taken its place */
} message_in;

/* ---- memory ---------------------------------------------------------------------------------- */

/* Fresh memory of that size costs more than the copy into it. */
static message *message_take_spare(far_node *node)
{
    usm_list *it;

    (void)pthread_mutex_lock(&node->lock);
    it = usm_list_pop(&node->spare_messages);
    node->spares -= it != NULL;
    (void)pthread_mutex_unlock(&node->lock);
    return it != NULL ? usm_container_of(it, message, link) : NULL;
}

static message *message_alloc(far_node *node, uint32_t length)
{
    const bool is_big = length > BIG;
    message   *m      = is_big ? message_take_spare(node) : NULL;

    if (m != NULL) {
        memset(m, 0, sizeof(*m));
        m->is_listed = true;
    } else {
        m = far_alloc_unlisted(node, sizeof(*m) + FAR_HEADER + (is_big ? FAR_MESSAGE_MAX : length));
    }
    if (m != NULL)
        m->is_big = is_big;
    return m;
}

static void message_list(far_node *node, message *m)
{
    if (!m->is_listed)
        far_alloc_list(node, m);
    m->is_listed = true;
}

/* The stepping thread. */
static void message_free(far_node *node, message *m)
{
    bool is_spare = false;

    if (m->is_big && m->is_listed) {
        (void)pthread_mutex_lock(&node->lock);
        is_spare = node->spares < SPARES;
        if (is_spare) {
            node->spares++;
            usm_list_append(&node->spare_messages, &m->link);
        }
        (void)pthread_mutex_unlock(&node->lock);
    }
    if (!is_spare)
        far_free(node, m);
}

/* ---- sending ------------------------------------------------------------------------------- */

static void message_ended(far_io *io, far_result result)
{
    message  *m    = usm_container_of(io, message, io);
    far_node *node = io->node;

    if (result == FAR_PEER_LOST)
        far_member_lost(&node->peers[m->peer], true);
    message_free(node, m);
}

static message *message_make(far_node *node, const far_header *h, const void *body)
{
    message *m = message_alloc(node, h->length);

    if (m == NULL)
        return NULL;
    usm_list_init(&m->link);
    far_io_init(&m->io, node, message_ended, m);
    m->header = *h;
    if (h->length > 0)
        memcpy(m->bytes + FAR_HEADER, body, h->length);
    return m;
}

static void message_go(far_peer *peer, message *m)
{
    m->header.from      = peer->mine;
    m->header.operation = far_body_sum(m->bytes + FAR_HEADER, m->header.length);
    m->peer             = peer->index;
    far_header_encode(&m->header, m->bytes);
    far_io_send(&m->io, (far_buffer){m->bytes, FAR_HEADER + m->header.length, peer->index,
                                     FAR_TAG_MESSAGE});
}

void far_message_send(far_peer *peer, far_header h, const void *body)
{
    message *m;

    if (peer->is_dead)
        return;
    m = message_make(peer->node, &h, body);
    if (m == NULL)
        return;
    message_list(peer->node, m);
    message_go(peer, m);
}

static void message_send_numbered(far_peer *peer, message *m)
{
    m->header.to    = peer->its;
    m->header.block = peer->next_out++;
    message_go(peer, m);
}

usm_status far_send(far_node *node, uint32_t peer, uint32_t tag, const void *data, size_t size)
{
    far_header h = {.op = FAR_OP_MESSAGE, .store = tag, .block = 1, .length = (uint32_t)size};
    message   *m;

    if (peer >= node->count || size > FAR_MESSAGE_MAX)
        return node->api->report(USM_E_INVALID,
                                 "far memory: a message of %zu bytes to member %u "
                                 "of %u: at most 64 KiB, to a member",
                                 size, peer, node->count);
    m = message_make(node, &h, data);
    if (m == NULL)
        return node->api->report(USM_E_NO_MEMORY, "far memory: no memory for a message");
    m->peer = peer;
    (void)pthread_mutex_lock(&node->lock);
    usm_list_append(&node->outgoing, &m->link);
    (void)pthread_mutex_unlock(&node->lock);
    usm_store_release(&node->has_work, true);
    return USM_OK;
}

static void message_take(far_node *node, message *m)
{
    far_peer *peer = &node->peers[m->peer];

    message_list(node, m);
    if (m->peer == node->self) {
        if (node->params.message != NULL)
            node->params.message(node->params.user, node->self, m->header.store,
                                 m->bytes + FAR_HEADER, m->header.length);
        message_free(node, m);
    } else if (peer->state == FAR_JOINING) {
        usm_list_append(&peer->outbox, &m->link);
    } else if (peer->has_session) {
        message_send_numbered(peer, m);
    } else {
        message_free(node, m);
    }
}

void far_messages_take(far_node *node)
{
    usm_list list, *it;

    (void)pthread_mutex_lock(&node->lock);
    usm_list_move(&node->outgoing, &list);
    (void)pthread_mutex_unlock(&node->lock);
    while ((it = usm_list_pop(&list)) != NULL)
        message_take(node, usm_container_of(it, message, link));
}

void far_messages_joined(far_peer *peer)
{
    usm_list *it;

    while ((it = usm_list_pop(&peer->outbox)) != NULL)
        message_send_numbered(peer, usm_container_of(it, message, link));
}

void far_messages_reset(far_peer *peer)
{
    usm_list *it;

    while ((it = usm_list_pop(&peer->outbox)) != NULL)
        message_free(peer->node, usm_container_of(it, message, link));
    while ((it = usm_list_pop(&peer->held)) != NULL)
        message_free(peer->node, usm_container_of(it, message, link));
}

/* Frees messages that no step has seen.  Spare ones are in node->memory. */
void far_messages_fini(far_node *node)
{
    usm_list *it;

    while ((it = usm_list_pop(&node->outgoing)) != NULL) {
        message *m = usm_container_of(it, message, link);

        if (!m->is_listed)
            far_free(node, m);
    }
}

/* ---- receiving ----------------------------------------------------------------------------- */

static void deliver(far_peer *peer, const far_header *h, const void *body)
{
    far_node *node = peer->node;

    peer->next_in++;
    if (node->params.message != NULL)
        node->params.message(node->params.user, peer->index, h->store, body, h->length);
}

/* Keeps messages by rising number; a second one of a number is dropped. */
static void hold(far_peer *peer, const far_header *h, const void *body)
{
    usm_list *before = &peer->held;
    message  *m;

    while (before->prev != &peer->held) {
        uint64_t number = usm_container_of(before->prev, message, link)->header.block;

        if (number == h->block)
            return;
        if (number < h->block)
            break;
        before = before->prev;
    }
    m = message_make(peer->node, h, body);
    if (m == NULL)
        return;
    message_list(peer->node, m);
    if (usm_list_is_empty(&peer->held))
        peer->gap_since = usm_load_relaxed(&peer->node->now);
    usm_list_append(before, &m->link);
}

static void deliver_held(far_peer *peer)
{
    while (!usm_list_is_empty(&peer->held)) {
        message *m = usm_container_of(peer->held.next, message, link);

        if (m->header.block != peer->next_in)
            return;
        peer->gap_since = usm_load_relaxed(&peer->node->now);
        usm_list_remove(&m->link);
        deliver(peer, &m->header, m->bytes + FAR_HEADER);
        message_free(peer->node, m);
    }
}

static void message_came(far_peer *peer, const far_header *h, const void *body)
{
    if (!far_member_is_known(peer, h))
        return;
    far_member_heard(peer);
    if (h->block == peer->next_in) {
        deliver(peer, h, body);
        deliver_held(peer);
        far_member_check_left(peer);
    } else if (h->block > peer->next_in) {
        hold(peer, h, body);
    }
}

static void in_post(message_in *in)
{
    in->number    = ++in->io.node->message_posted;
    in->overtaken = 0;
    far_io_receive(
        &in->io, (far_buffer){in->buffer, FAR_HEADER + FAR_MESSAGE_MAX, FAR_ANY, FAR_TAG_MESSAGE});
}

/* A header, its body and nothing else. */
static bool is_whole(const unsigned char *bytes, size_t size, far_header *h)
{
    return far_header_decode(bytes, size, h) && size == (size_t)FAR_HEADER + h->length &&
           (h->op == FAR_OP_MESSAGE || h->op == FAR_OP_JOIN) &&
           h->operation == far_body_sum(bytes + FAR_HEADER, h->length);
}

static void in_ended(far_io *io, far_result result)
{
    message_in *in   = usm_container_of(io, message_in, io);
    far_node   *node = io->node;
    uint32_t    from = io->op.peer;
    size_t      size = io->op.size;
    far_header  h;

    if (in->number > node->message_ended)
        node->message_ended = in->number;
    node->message_heard = usm_load_relaxed(&node->now);
    if (result == FAR_PEER_LOST && from < node->count)
        far_member_lost(&node->peers[from], true);
    if (result == FAR_OK && from < node->count && from != node->self &&
        is_whole(in->buffer, size, &h)) {
        if (h.op == FAR_OP_MESSAGE)
            message_came(&node->peers[from], &h, in->buffer + FAR_HEADER);
        else
            far_member_join(&node->peers[from], &h, in->buffer + FAR_HEADER);
    } else if (result == FAR_OK || result == FAR_TRUNCATED) {
        usm_add_relaxed(&node->refused, 1);
    }
    if (!in->is_stuck) {
        in_post(in);
        return;
    }
    usm_sub_relaxed(&node->quarantined, FAR_HEADER + FAR_MESSAGE_MAX);
    usm_list_remove(&in->link);
    far_free(node, in->buffer);
    far_free(node, in);
}

static message_in *in_make(far_node *node)
{
    message_in *in = far_alloc(node, sizeof(*in));

    if (in == NULL)
        return NULL;
    usm_list_init(&in->link);
    in->buffer = far_alloc(node, FAR_HEADER + FAR_MESSAGE_MAX);
    if (in->buffer == NULL) {
        far_free(node, in);
        return NULL;
    }
    far_io_init(&in->io, node, in_ended, in);
    in->io.holder_2 = in->buffer;
    usm_list_append(&node->messages_in, &in->link);
    return in;
}

usm_status far_messages_init(far_node *node)
{
    usm_list_init(&node->spare_messages);
    for (int i = 0; i < POSTED; i++) {
        if (in_make(node) == NULL)
            return USM_E_NO_MEMORY;
    }
    return USM_OK;
}

void far_messages_start(far_node *node)
{
    USM_LIST_FOREACH (it, &node->messages_in)
        in_post(usm_container_of(it, message_in, link));
}

/* A receive that later ones have overtaken belongs to a message that does not progress: its sender
 * has died while sending it. */
static void in_tick(far_node *node, message_in *in, uint64_t now)
{
    message_in *other;

    if (in->is_stuck || !in->io.is_under_way || in->number >= node->message_ended)
        return;
    if (in->overtaken == 0)
        in->overtaken = now;
    if (now - in->overtaken < node->params.lease_ns)
        return;
    other = in_make(node);
    if (other == NULL)
        return;
    in->is_stuck = true;
    usm_add_relaxed(&node->quarantined, FAR_HEADER + FAR_MESSAGE_MAX);
    in_post(other);
}

static bool awaits_joins(const far_node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        const far_peer *peer = &node->peers[i];

        if (i != node->self && !peer->has_session && !peer->is_dead && peer->state != FAR_LEFT)
            return true;
    }
    return false;
}

/* If all receives are stuck, none is overtaken, and no joining peer would ever be heard.  So if a
 * peer should join and no message comes for two leases, one more receive is posted, up to a
 * limit. */
static void in_revive(far_node *node, uint64_t now)
{
    message_in *in;

    if (now - node->message_heard < 2 * node->params.lease_ns ||
        node->messages_more >= POSTED_MAX - POSTED || !awaits_joins(node))
        return;
    node->message_heard = now;
    in                  = in_make(node);
    if (in == NULL)
        return;
    node->messages_more++;
    in_post(in);
}

void far_messages_tick(far_node *node)
{
    uint64_t now = usm_load_relaxed(&node->now);

    USM_LIST_FOREACH_SAFE (it, next, &node->messages_in)
        in_tick(node, usm_container_of(it, message_in, link), now);
    in_revive(node, now);
    for (uint32_t i = 0; i < node->count; i++) {
        far_peer *peer = &node->peers[i];

        if (!usm_list_is_empty(&peer->held) && now - peer->gap_since >= node->params.deadline_ns)
            far_member_broken(peer, false);
    }
}
