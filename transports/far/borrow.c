/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The borrower's transfers: they are divided into pieces, which are sent through request slots.
 *
 *     transfer --> piece (at most a chunk of the lender) --> request slot, bounce buffer, request
 *
 *     store:  bytes copied in, header sent, bytes and their header sent       ... answer
 *     fetch:  two receives posted (header, bytes), request sent ... both ended, bytes copied out
 *
 * A request slot ("lane" in the code) has one request at a time.  If the request's time runs out
 * while the link still holds a buffer of it, the slot lingers: neither its number nor its buffer is
 * used until the link has ended the operation.  Another slot takes its place, and the lender is
 * asked now and then to let the operation end (lane_recall).  Both receives of a fetch take the
 * messages of their tag in the order in which these were sent, and a header names its request, so
 * that remains of earlier requests are recognised and dropped:
 *
 *     first receive   second          what to do
 *     our header      bytes           that is the answer
 *     our header      a header        it was duplicated: receive the bytes
 *     anything else   our header      an older message came before it: receive the bytes
 *     old header      anything        an old answer: receive both once more
 *     no header       old header      the same
 *     no header       no header       damaged: ask once more, under a new number */
#include "internal.h"

#include <string.h>

enum { TRIES = 6, SMALL_PER_DEPTH = 4, LANES_PER_DEPTH = 8, GIVE_UP = 4 };
enum { RECALLS_IN_VAIN = 2, RECALLS_SLOWER = 4 };

_Static_assert(sizeof(far_ticket) <= sizeof(((usm_transfer *)0)->opaque), "fits");

/* NOLINTBEGIN(clang-diagnostic-cast-align): opaque is aligned to 8 */
static far_ticket *ticket_of(usm_transfer *t)
{
    return (far_ticket *)(void *)t->opaque;
}

static usm_transfer *transfer_of(usm_list *link)
{
    far_ticket *k = usm_container_of(link, far_ticket, link);

    return usm_container_of(k, usm_transfer, opaque);
}
/* NOLINTEND(clang-diagnostic-cast-align) */

/* ---- requests ------------------------------------------------------------------------------- */

void far_request_start(far_peer *peer, far_request *r)
{
    if (r->operation != 0)
        usm_list_remove(&r->link);
    r->operation = ++peer->operation;
    usm_list_append(&peer->awaited, &r->link);
}

void far_request_end(far_request *r)
{
    if (r->operation == 0)
        return;
    usm_list_remove(&r->link);
    r->operation = 0;
}

bool far_request_is_over(const far_peer *peer, uint64_t since, bool is_sent)
{
    const far_node *node  = peer->node;
    uint64_t        now   = usm_load_relaxed(&node->now);
    uint64_t        heard = usm_load_relaxed(&peer->lease.heard);
    uint64_t        limit = node->params.deadline_ns;

    if (is_sent && now - since >= GIVE_UP * limit)
        return true;
    if (!peer->has_session)
        heard = 0;
    return now - (heard > since ? heard : since) >= limit;
}

/* ---- transfers ------------------------------------------------------------------------------ */

static void transfer_end(usm_transfer *t)
{
    far_ticket *k = ticket_of(t);
    usm_status  s = (usm_status)k->status;

    if (s != USM_OK)
        s = k->store->node->api->report(
            s, "far memory: slot %llu could not be %s member %u", (unsigned long long)t->block,
            t->op == USM_TRANSFER_STORE ? "stored at" : "fetched from", k->peer);
    t->done(t, s);
}

/* No more pieces of it are made. */
static void transfer_fail(usm_transfer *t, usm_status s)
{
    far_ticket *k = ticket_of(t);

    if (k->status == USM_OK)
        k->status = (int16_t)s;
    if (k->next < t->size) {
        usm_list_remove(&k->link);
        k->next = t->size;
    }
    if (k->out == 0)
        transfer_end(t);
}

static void piece_end(usm_transfer *t, usm_status s)
{
    far_ticket *k = ticket_of(t);

    k->out--;
    if (s != USM_OK)
        transfer_fail(t, s);
    else if (k->out == 0 && k->next == t->size)
        transfer_end(t);
}

void far_submit(far_store *store, uint32_t peer, usm_transfer *t)
{
    far_node   *node = store->node;
    far_ticket *k    = ticket_of(t);

    if (far_near_submit(store, peer, t))
        return;
    *k       = (far_ticket){.store = store, .peer = peer};
    k->since = usm_load_relaxed(&node->now);
    usm_list_init(&k->link);
    (void)pthread_mutex_lock(&node->lock);
    usm_list_append(&node->submitted, &k->link);
    (void)pthread_mutex_unlock(&node->lock);
    far_wake(node);
}

bool far_transfer_is_valid(const far_store *store, const usm_transfer *t)
{
    size_t block = (size_t)1 << store->shift;

    return (t->op == USM_TRANSFER_FETCH || t->op == USM_TRANSFER_STORE) && t->size != 0 &&
           ((t->size | t->offset) & 4095) == 0 && t->size <= block && t->offset <= block - t->size;
}

static void transfer_take(far_node *node, usm_transfer *t)
{
    far_ticket *k    = ticket_of(t);
    far_peer   *peer = k->peer < node->count ? &node->peers[k->peer] : NULL;

    k->since = usm_load_relaxed(&node->now);
    k->next  = t->size;
    if (peer == NULL || k->peer == node->self || !far_transfer_is_valid(k->store, t)) {
        transfer_fail(t, USM_E_INVALID);
        return;
    }
    if ((peer->state == FAR_LOST && (!peer->may_return || peer->is_silent)) ||
        peer->state == FAR_LEFT) {
        transfer_fail(t, USM_E_IO);
        return;
    }
    if (peer->has_session && peer->state != FAR_JOINING && peer->lends == 0) {
        transfer_fail(t, USM_E_SPILL_FULL);
        return;
    }
    k->next = 0;
    usm_list_append(t->is_awaited ? &peer->urgent : &peer->queue, &k->link);
    far_peer_activate(peer);
}

void far_transfers_take(far_node *node)
{
    usm_list list, *it;

    (void)pthread_mutex_lock(&node->lock);
    usm_list_move(&node->submitted, &list);
    (void)pthread_mutex_unlock(&node->lock);
    while ((it = usm_list_pop(&list)) != NULL)
        transfer_take(node, transfer_of(it));
}

/* ---- request slots -------------------------------------------------------------------------- */

static bool lane_is_free_of_link(const far_lane *lane)
{
    return !lane->stamp.is_under_way && !lane->data.is_under_way;
}

/* A stack of free pieces, linked through their first bytes: the one used last is in the cache, and
 * is used next. */
static unsigned char *piece_take(far_node *node)
{
    void *p = node->pieces;

    if (p == NULL)
        return far_alloc(node, FAR_ASIDE + node->params.piece + FAR_HEADER);
    memcpy(&node->pieces, p, sizeof(void *));
    node->pieces_free--;
    return p;
}

static void piece_put(far_node *node, void *p)
{
    if (p == NULL)
        return;
    memcpy(p, &node->pieces, sizeof(void *));
    node->pieces = p;
    node->pieces_free++;
}

void far_lanes_trim(far_node *node)
{
    while (node->pieces_free > SMALL_PER_DEPTH * node->params.depth ||
           (node->pieces_free > node->params.depth && usm_list_is_empty(&node->active)))
        far_free(node, piece_take(node));
}

/* The link has nothing of the slot any more, and no thread waits for it. */
static void lane_rest(far_lane *lane)
{
    far_node *node = lane->peer->node;

    if (lane->is_given_up) {
        usm_sub_relaxed(&node->quarantined, node->params.piece);
        lane->peer->given_up--;
    }
    lane->is_given_up = false;
    lane->state       = FAR_LANE_IDLE;
    piece_put(node, lane->piece);
    lane->piece = NULL;
    usm_list_append(&lane->peer->idle, &lane->link);
}

static void lane_is_in(far_lane *lane)
{
    lane->peer->out--;
    lane->peer->out_bytes -= lane->size;
    lane->peer->node->out--;
}

static far_header lane_header(const far_lane *lane, far_wire_op op)
{
    usm_transfer    *t = lane->transfer;
    const far_store *s = ticket_of(t)->store;

    return (far_header){.op        = op,
                        .slot      = lane->slot,
                        .shift     = s->shift,
                        .operation = lane->request.operation,
                        .store     = s->number,
                        .block     = t->block & (UINT64_MAX >> 16),
                        .offset    = (uint32_t)(t->offset + lane->at),
                        .length    = (uint32_t)lane->size};
}

/* The slot is recalled under its number, but with no store: nothing is stored or fetched again. */
static void lane_linger(far_lane *lane)
{
    far_peer *peer     = lane->peer;
    bool      is_store = lane->transfer->op == USM_TRANSFER_STORE;

    lane->over        = lane_header(lane, is_store ? FAR_OP_STORE : FAR_OP_FETCH);
    lane->over.store  = 0;
    lane->recalled    = usm_load_relaxed(&peer->node->now);
    lane->recalled_in = peer->epoch;
    lane->tries       = 0;
    lane->is_given_up = true;
    peer->given_up++;
    usm_add_relaxed(&peer->node->quarantined, peer->node->params.piece);
}

/* The request is over; `is_given_up`: without an answer. */
static void lane_leave(far_lane *lane, bool is_given_up)
{
    if (is_given_up && !lane_is_free_of_link(lane))
        lane_linger(lane);
    far_request_end(&lane->request);
    if (lane->state != FAR_LANE_ARRIVED)
        lane_is_in(lane);
    lane->transfer = NULL;
    if (lane_is_free_of_link(lane)) {
        lane_rest(lane);
        return;
    }
    lane->state = FAR_LANE_LINGERS;
}

static void lane_fail(far_lane *lane, usm_status s, bool is_given_up)
{
    usm_transfer *t = lane->transfer;

    lane_leave(lane, is_given_up);
    piece_end(t, s);
}

static void lane_send_store(far_lane *lane)
{
    far_peer  *peer = lane->peer;
    far_header h    = lane_header(lane, FAR_OP_STORE);

    far_point(peer->node, "die.borrow.store");
    far_header_send(peer, FAR_TAG_HEADER, h);
    far_point(peer->node, "die.borrow.announced");
    h.op     = FAR_OP_BYTES;
    h.from   = peer->mine;
    h.to     = peer->its;
    h.behind = (uint32_t)(h.operation -
                          usm_container_of(peer->awaited.next, far_request, link)->operation);
    far_header_encode(&h, lane->piece + FAR_ASIDE + lane->size);
    far_io_send(&lane->data, (far_buffer){lane->piece + FAR_ASIDE, lane->size + FAR_HEADER,
                                          peer->index, FAR_TAG_STORE + (uint32_t)lane->slot});
    far_point(peer->node, "die.borrow.sent");
}

/* The receive has all the room there is: some message systems treat a message that is too long as
 * an error of the program. */
static void lane_post_data(far_lane *lane)
{
    far_io_receive(&lane->data,
                   (far_buffer){lane->piece, lane->peer->node->params.piece + FAR_HEADER,
                                lane->peer->index, FAR_TAG_FETCH + (uint32_t)lane->slot});
}

static bool is_brief(const far_lane *lane)
{
    return lane->size <= FAR_BRIEF && lane->transfer->op == USM_TRANSFER_FETCH;
}

static void lane_post(far_lane *lane)
{
    if (!is_brief(lane))
        far_io_receive(&lane->stamp, (far_buffer){lane->stamp_bytes, FAR_HEADER, lane->peer->index,
                                                  FAR_TAG_FETCH + (uint32_t)lane->slot});
    lane_post_data(lane);
}

/* pre: the link has nothing of the slot. */
static void lane_send(far_lane *lane)
{
    lane->state     = FAR_LANE_WAITING;
    lane->has_stamp = false;
    far_request_start(lane->peer, &lane->request);
    if (lane->transfer->op == USM_TRANSFER_STORE) {
        lane_send_store(lane);
        return;
    }
    lane_post(lane);
    far_point(lane->peer->node, "die.borrow.posted");
    far_header_send(lane->peer, FAR_TAG_HEADER, lane_header(lane, FAR_OP_FETCH));
    far_point(lane->peer->node, "die.borrow.fetch");
}

/* Sends the request once more, as soon as the link has ended the operations of the last attempt. */
static void lane_again(far_lane *lane)
{
    if (++lane->tries >= TRIES) {
        lane_fail(lane, USM_E_IO, false);
        return;
    }
    lane->state = FAR_LANE_AGAIN;
    if (lane_is_free_of_link(lane))
        lane_send(lane);
}

static bool is_ours(const far_lane *lane, const far_header *h)
{
    return h->op == FAR_OP_ANSWER && h->operation == lane->request.operation &&
           h->from == lane->peer->its && h->to == lane->peer->mine;
}

static void lane_arrived(far_lane *lane)
{
    far_point(lane->peer->node, "die.borrow.arrived");
    far_request_end(&lane->request);
    lane_is_in(lane);
    lane->state = FAR_LANE_ARRIVED;
    usm_list_append(&lane->peer->node->arrived, &lane->link);
}

/* Our header has come; judges what came after it. */
static void lane_judge_data(far_lane *lane)
{
    if (lane->status != FAR_DONE)
        lane_fail(lane, USM_E_IO, false);
    else if (lane->data.result == FAR_OK && lane->data.op.size == lane->size)
        lane_arrived(lane);
    else if (lane->data.result == FAR_OK && lane->data.op.size == FAR_HEADER)
        lane_post_data(lane);
    else
        lane_again(lane);
}

/* Header and bytes in one message; remains of earlier requests are received and dropped. */
static void lane_judge_brief(far_lane *lane)
{
    far_header h;
    size_t     size = lane->data.op.size;

    if (lane->data.result != FAR_OK) {
        lane_again(lane);
    } else if (!far_header_decode(lane->piece, size, &h) || !is_ours(lane, &h)) {
        usm_add_relaxed(&lane->peer->node->late, 1);
        lane_post_data(lane);
    } else if (h.status != FAR_DONE) {
        lane_fail(lane, USM_E_IO, false);
    } else if (size != FAR_HEADER + lane->size) {
        lane_again(lane);
    } else {
        lane_arrived(lane);
    }
}

/* Judges what was received for a fetch: see the table above. */
static void lane_judge(far_lane *lane)
{
    bool       is_header = lane->data.result == FAR_OK && lane->data.op.size == FAR_HEADER;
    bool       has_first;
    far_header h;

    if (is_brief(lane)) {
        lane_judge_brief(lane);
        return;
    }
    if (lane->has_stamp) {
        lane_judge_data(lane);
        return;
    }
    has_first = lane->stamp.result == FAR_OK &&
                far_header_decode(lane->stamp_bytes, lane->stamp.op.size, &h);
    if (has_first && is_ours(lane, &h)) {
        lane->has_stamp = true;
        lane->status    = h.status;
        lane_judge_data(lane);
        return;
    }
    usm_add_relaxed(&lane->peer->node->late, 1);
    if (is_header && far_header_decode(lane->piece, FAR_HEADER, &h) && is_ours(lane, &h)) {
        lane->has_stamp = true;
        lane->status    = h.status;
        if (h.status == FAR_DONE)
            lane_post_data(lane);
        else
            lane_judge_data(lane);
    } else if (has_first || is_header) {
        lane_post(lane);
    } else {
        lane_again(lane);
    }
}

static void lane_io_ended(far_lane *lane, far_io *io, far_result result)
{
    far_node *node = lane->peer->node;

    if (result == FAR_PEER_LOST)
        far_member_lost(lane->peer, true);
    if (!lane_is_free_of_link(lane))
        return;
    switch (lane->state) {
    case FAR_LANE_WAITING:
        if (lane->transfer->op == USM_TRANSFER_FETCH) {
            far_member_heard(lane->peer);
            lane_judge(lane);
        }
        break;
    case FAR_LANE_AGAIN:
        lane_send(lane);
        break;
    case FAR_LANE_LINGERS:
        if (lane->is_given_up && io != NULL)
            usm_add_relaxed(&node->late, 1);
        lane_rest(lane);
        break;
    case FAR_LANE_IDLE:
    case FAR_LANE_ARRIVED:
    default:
        break;
    }
}

static void lane_stamp_ended(far_io *io, far_result result)
{
    lane_io_ended(usm_container_of(io, far_lane, stamp), io, result);
}

static void lane_data_ended(far_io *io, far_result result)
{
    far_lane *lane = usm_container_of(io, far_lane, data);

    if (lane->state == FAR_LANE_WAITING && lane->transfer->op == USM_TRANSFER_STORE &&
        result != FAR_OK && result != FAR_PEER_LOST) {
        lane_fail(lane, USM_E_IO, false);
        return;
    }
    lane_io_ended(lane, io, result);
}

static far_lane *lane_make(far_peer *peer)
{
    far_node *node = peer->node;
    far_lane *lane;

    if (peer->lane_count == peer->lane_cap) {
        uint32_t   cap  = peer->lane_cap == 0 ? 8 : 2 * peer->lane_cap;
        far_lane **more = far_alloc(node, cap * sizeof(far_lane *));

        if (more == NULL)
            return NULL;
        if (peer->lane_count > 0)
            memcpy(more, peer->lanes, peer->lane_count * sizeof(far_lane *));
        far_free(node, peer->lanes);
        peer->lanes    = more;
        peer->lane_cap = cap;
    }
    lane = far_alloc(node, sizeof(*lane));
    if (lane == NULL)
        return NULL;
    lane->peer       = peer;
    lane->slot       = (uint16_t)peer->lane_count;
    lane->stamp.node = lane->data.node = node;
    lane->stamp.ended                  = lane_stamp_ended;
    lane->data.ended                   = lane_data_ended;
    lane->stamp.holder = lane->data.holder = lane;
    usm_list_init(&lane->link);
    peer->lanes[peer->lane_count++] = lane;
    return lane;
}

/* NULL: no memory, or (*is_spent) there are enough slots, and none is free. */
static far_lane *lane_take(far_peer *peer, bool *is_spent)
{
    usm_list *it   = usm_list_pop(&peer->idle);
    far_lane *lane = it != NULL ? usm_container_of(it, far_lane, link) : NULL;

    if (lane == NULL) {
        *is_spent = peer->lane_count >= LANES_PER_DEPTH * peer->node->params.depth;
        lane      = *is_spent ? NULL : lane_make(peer);
    }
    if (lane == NULL)
        return NULL;
    lane->piece = piece_take(peer->node);
    if (lane->piece == NULL) {
        usm_list_append(&peer->idle, &lane->link);
        return NULL;
    }
    lane->data.holder_2 = lane->piece;
    return lane;
}

/* ---- issuing -------------------------------------------------------------------------------- */

static size_t piece_size(const far_peer *peer, usm_transfer *t)
{
    const far_ticket *k = ticket_of(t);
    uint8_t shift       = k->store->shift < peer->piece_shift ? k->store->shift : peer->piece_shift;
    size_t  chunk       = (size_t)1 << shift;
    size_t  left        = chunk - ((t->offset + k->next) & (chunk - 1));

    return left < t->size - k->next ? left : t->size - k->next;
}

static void piece_start(far_lane *lane, usm_transfer *t)
{
    far_peer   *peer = lane->peer;
    far_ticket *k    = ticket_of(t);

    lane->transfer      = t;
    lane->at            = k->next;
    lane->size          = piece_size(peer, t);
    lane->tries         = 0;
    lane->request.since = usm_load_relaxed(&peer->node->now);
    k->next += lane->size;
    k->out++;
    if (k->next == t->size)
        usm_list_remove(&k->link);
    peer->out++;
    peer->out_bytes += lane->size;
    peer->node->out++;
    if (t->op == USM_TRANSFER_STORE)
        far_copy(peer->node, lane->piece + FAR_ASIDE, (const char *)t->data + lane->at, lane->size);
    lane_send(lane);
}

/* As many bytes as `depth` whole pieces have, in at most four times as many pieces. */
static bool has_room(const far_peer *peer)
{
    const far_params *p = &peer->node->params;

    return peer->out < p->depth ||
           (peer->out < SMALL_PER_DEPTH * p->depth && peer->out_bytes < p->depth * p->piece);
}

static void issue(far_peer *peer)
{
    if (!peer->has_session || (peer->state != FAR_UP && peer->state != FAR_SLOW))
        return;
    while (has_room(peer)) {
        usm_list *q        = usm_list_is_empty(&peer->urgent) ? &peer->queue : &peer->urgent;
        bool      is_spent = false;
        far_lane *lane;

        if (usm_list_is_empty(q))
            return;
        lane = lane_take(peer, &is_spent);
        if (lane == NULL) {
            if (!is_spent && peer->out == 0)
                transfer_fail(transfer_of(q->next), USM_E_NO_MEMORY);
            return;
        }
        piece_start(lane, transfer_of(q->next));
    }
}

void far_transfers_issue(far_node *node)
{
    USM_LIST_FOREACH_SAFE (it, next, &node->active)
        issue(usm_container_of(it, far_peer, active));
}

bool far_transfers_copy(far_node *node)
{
    usm_list     *it = usm_list_pop(&node->arrived);
    far_lane     *lane;
    usm_transfer *t;

    if (it == NULL)
        return false;
    lane = usm_container_of(it, far_lane, link);
    t    = lane->transfer;
    far_copy(node, (char *)t->data + lane->at, lane->piece + (is_brief(lane) ? FAR_HEADER : 0),
             lane->size);
    usm_add_relaxed(&node->fetched, lane->size);
    lane_leave(lane, false);
    piece_end(t, USM_OK);
    return true;
}

/* ---- answers to stores, time --------------------------------------------------------------- */

void far_transfers_answered(far_peer *peer, const far_header *h)
{
    far_node     *node = peer->node;
    far_lane     *lane = h->slot < peer->lane_count ? peer->lanes[h->slot] : NULL;
    usm_transfer *t;

    if (lane == NULL || lane->state != FAR_LANE_WAITING ||
        lane->request.operation != h->operation || lane->transfer->op != USM_TRANSFER_STORE) {
        usm_add_relaxed(&node->late, 1);
        return;
    }
    switch (h->status) {
    case FAR_DONE:
        far_point(node, "die.borrow.acknowledged");
        usm_add_relaxed(&node->stored, lane->size);
        t = lane->transfer;
        lane_leave(lane, false);
        piece_end(t, USM_OK);
        return;
    case FAR_STALE:
    case FAR_REPEAT:
        lane_again(lane);
        return;
    case FAR_FULL:
    case FAR_NO_STORE:
        lane_fail(lane, USM_E_SPILL_FULL, false);
        return;
    case FAR_MISSING:
    case FAR_STATUS_END:
    default:
        lane_fail(lane, USM_E_IO, false);
    }
}

static bool queue_expire(far_peer *peer, usm_list *queue)
{
    bool has_failed = false;

    while (!usm_list_is_empty(queue)) {
        usm_transfer *t = transfer_of(queue->next);

        /* If nothing is in progress, no slot is available. */
        if (!far_request_is_over(peer, ticket_of(t)->since, peer->out == 0))
            return has_failed;
        usm_add_relaxed(&peer->node->timeouts, 1);
        transfer_fail(t, USM_E_IO);
        has_failed = true;
    }
    return has_failed;
}

/* The peer is alive, every slot was given up, and recalling them has not helped: operations that
 * the link does not end cannot be waited for. */
static bool peer_is_spent(const far_peer *peer)
{
    if (peer->state != FAR_UP || peer->given_up < LANES_PER_DEPTH * peer->node->params.depth)
        return false;
    for (uint32_t i = 0; i < peer->lane_count; i++)
        if (peer->lanes[i]->recalled_in != peer->epoch || peer->lanes[i]->tries < RECALLS_IN_VAIN)
            return false;
    return true;
}

void far_transfers_expire(far_peer *peer)
{
    bool has_failed;

    for (uint32_t i = 0; i < peer->lane_count && peer->out > 0; i++) {
        far_lane *lane = peer->lanes[i];

        if (lane->state != FAR_LANE_WAITING && lane->state != FAR_LANE_AGAIN)
            continue;
        if (!far_request_is_over(peer, lane->request.since, true))
            continue;
        usm_add_relaxed(&peer->node->timeouts, 1);
        lane_fail(lane, USM_E_IO, true);
    }
    has_failed = queue_expire(peer, &peer->urgent);
    has_failed = queue_expire(peer, &peer->queue) || has_failed;
    if (has_failed && peer_is_spent(peer))
        far_member_lost(peer, false);
}

/* The link never ends an operation if its request was lost, or came after the lender's session was
 * over.  So the request is sent once more, in the current session.  A fetch is then answered with
 * as many messages as receives are posted, and for the bytes of a store there is a receive; their
 * headers say that they are old.  If the first request was only late, nothing is done twice. */
static void lane_recall(far_lane *lane)
{
    far_peer *peer = lane->peer;
    uint64_t  now  = usm_load_relaxed(&peer->node->now);

    if (lane->recalled_in != peer->epoch)
        lane->tries = 0;
    else if (now - lane->recalled < peer->node->params.deadline_ns << lane->tries)
        return;
    lane->recalled    = now;
    lane->recalled_in = peer->epoch;
    if (lane->tries < RECALLS_SLOWER)
        lane->tries++;
    far_header_send(peer, FAR_TAG_HEADER, lane->over);
}

void far_lanes_recall(far_node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        const far_peer *peer = &node->peers[i];

        if (peer->given_up == 0 || !peer->has_session || peer->state != FAR_UP)
            continue;
        for (uint32_t k = 0; k < peer->lane_count; k++)
            if (peer->lanes[k]->state == FAR_LANE_LINGERS && peer->lanes[k]->is_given_up)
                lane_recall(peer->lanes[k]);
    }
}

void far_transfers_break(far_peer *peer)
{
    for (uint32_t i = 0; i < peer->lane_count && peer->out > 0; i++) {
        far_lane *lane = peer->lanes[i];

        if (lane->state == FAR_LANE_WAITING || lane->state == FAR_LANE_AGAIN)
            lane_fail(lane, USM_E_IO, true);
    }
}

void far_transfers_fail(far_peer *peer)
{
    far_transfers_break(peer);
    while (!usm_list_is_empty(&peer->urgent))
        transfer_fail(transfer_of(peer->urgent.next), USM_E_IO);
    while (!usm_list_is_empty(&peer->queue))
        transfer_fail(transfer_of(peer->queue.next), USM_E_IO);
}
