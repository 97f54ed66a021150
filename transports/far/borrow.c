/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The borrower's transfers: they are divided into pieces, which are sent through request slots.
 *
 *     transfer --> piece (at most a chunk of the lender) --> request slot, bounce buffer, request
 *
 *     store:  bytes copied in, header sent, bytes and their header sent       ... answer
 *     fetch:  receive posted, request sent ... ended, bytes copied out
 *
 * A request slot has one request at a time.  If the request's time runs out
 * while the link still holds a buffer of it, the slot lingers: neither its number nor its buffer is
 * used until the link has ended the operation.  Another slot takes its place, and the lender is
 * asked now and then to let the operation end (slot_recall).  The receive of a fetch takes the
 * messages of its tag in the order in which these were sent, and the header after the bytes names
 * its request, so that remains of earlier requests are recognised and dropped:
 *
 *     received                   what to do
 *     bytes, our header          that is the answer
 *     an old header, or none     an older answer: receive once more
 *     as many bytes, no header   damaged: ask once more, under a new number */
#include "internal.h"

#include <string.h>

enum { TRIES = 6, SMALL_PER_DEPTH = 4, LANES_PER_DEPTH = 8, GIVE_UP = 4 };
enum { RECALLS_IN_VAIN = 2, RECALLS_SLOWER = 4 };
enum { AT_ONCE = FAR_HEADERS_MAX / FAR_HEADER }; /* stores that are announced by one message */

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

static bool slot_is_free_of_link(const far_slot *slot)
{
    return !slot->data.is_under_way;
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

void far_slots_trim(far_node *node)
{
    while (node->pieces_free > SMALL_PER_DEPTH * node->params.depth ||
           (node->pieces_free > node->params.depth && usm_list_is_empty(&node->active)))
        far_free(node, piece_take(node));
}

/* The link has nothing of the slot any more, and no thread waits for it. */
static void slot_rest(far_slot *slot)
{
    far_node *node = slot->peer->node;

    if (slot->is_given_up) {
        usm_sub_relaxed(&node->quarantined, node->params.piece);
        slot->peer->given_up--;
    }
    slot->is_given_up = false;
    slot->state       = FAR_SLOT_IDLE;
    piece_put(node, slot->piece);
    slot->piece = NULL;
    usm_list_append(&slot->peer->idle, &slot->link);
}

static void slot_is_in(far_slot *slot)
{
    slot->peer->out--;
    slot->peer->out_bytes -= slot->size;
    slot->peer->node->out--;
}

static far_header slot_header(const far_slot *slot, far_wire_op op)
{
    usm_transfer    *t = slot->transfer;
    const far_store *s = ticket_of(t)->store;

    return (far_header){.op          = op,
                        .slot_number = slot->slot_number,
                        .shift       = s->shift,
                        .operation   = slot->request.operation,
                        .store       = s->number,
                        .block       = t->block & (UINT64_MAX >> 16),
                        .offset      = (uint32_t)(t->offset + slot->at),
                        .length      = (uint32_t)slot->size};
}

/* The slot is recalled under its number, but with no store: nothing is stored or fetched again. */
static void slot_linger(far_slot *slot)
{
    far_peer *peer     = slot->peer;
    bool      is_store = slot->transfer->op == USM_TRANSFER_STORE;

    slot->over        = slot_header(slot, is_store ? FAR_OP_STORE : FAR_OP_FETCH);
    slot->over.store  = 0;
    slot->recalled    = usm_load_relaxed(&peer->node->now);
    slot->recalled_in = peer->epoch;
    slot->tries       = 0;
    slot->is_given_up = true;
    peer->given_up++;
    usm_add_relaxed(&peer->node->quarantined, peer->node->params.piece);
}

/* The request is over; `is_given_up`: without an answer. */
static void slot_leave(far_slot *slot, bool is_given_up)
{
    if (is_given_up && !slot_is_free_of_link(slot))
        slot_linger(slot);
    far_request_end(&slot->request);
    if (slot->state != FAR_SLOT_ARRIVED)
        slot_is_in(slot);
    slot->transfer = NULL;
    if (slot_is_free_of_link(slot)) {
        slot_rest(slot);
        return;
    }
    slot->state = FAR_SLOT_LINGERS;
}

static void slot_fail(far_slot *slot, usm_status s, bool is_given_up)
{
    usm_transfer *t = slot->transfer;

    slot_leave(slot, is_given_up);
    piece_end(t, s);
}

/* Those of a store, which was announced. */
static void slot_send_bytes(far_slot *slot)
{
    far_peer  *peer = slot->peer;
    far_header h    = slot_header(slot, FAR_OP_BYTES);

    h.from   = peer->mine;
    h.to     = peer->its;
    h.behind = (uint32_t)(h.operation -
                          usm_container_of(peer->awaited.next, far_request, link)->operation);
    far_header_encode(&h, slot->piece + FAR_ASIDE + slot->size);
    far_io_send(&slot->data,
                (far_buffer){slot->piece + FAR_ASIDE, slot->size + FAR_HEADER, peer->index,
                             FAR_TAG_STORE + (uint32_t)slot->slot_number});
    far_point(peer->node, "die.borrow.sent");
}

/* The receive has all the room there is: some message systems treat a message that is too long as
 * an error of the program. */
static void slot_post_data(far_slot *slot)
{
    far_io_receive(&slot->data,
                   (far_buffer){slot->piece, slot->peer->node->params.piece + FAR_HEADER,
                                slot->peer->index, FAR_TAG_FETCH + (uint32_t)slot->slot_number});
}

/* pre: the link has nothing of the slot.  A store's bytes follow. */
static void slot_request(far_slot *slot)
{
    far_node *node = slot->peer->node;

    slot->state = FAR_SLOT_WAITING;
    far_request_start(slot->peer, &slot->request);
    if (slot->transfer->op == USM_TRANSFER_STORE) {
        far_point(node, "die.borrow.store");
        far_header_send(slot->peer, slot_header(slot, FAR_OP_STORE));
        return;
    }
    slot_post_data(slot);
    far_point(node, "die.borrow.posted");
    far_header_send(slot->peer, slot_header(slot, FAR_OP_FETCH));
    far_point(node, "die.borrow.fetch");
}

/* pre: the link has nothing of the slot. */
static void slot_send(far_slot *slot)
{
    slot_request(slot);
    if (slot->transfer->op == USM_TRANSFER_STORE)
        slot_send_bytes(slot);
}

/* Sends the request once more, as soon as the link has ended the operations of the last attempt. */
static void slot_again(far_slot *slot)
{
    if (++slot->tries >= TRIES) {
        slot_fail(slot, USM_E_IO, false);
        return;
    }
    slot->state = FAR_SLOT_AGAIN;
    if (slot_is_free_of_link(slot))
        slot_send(slot);
}

static bool is_ours(const far_slot *slot, const far_header *h)
{
    return h->op == FAR_OP_ANSWER && h->operation == slot->request.operation &&
           h->from == slot->peer->its && h->to == slot->peer->mine;
}

static void slot_arrived(far_slot *slot)
{
    far_point(slot->peer->node, "die.borrow.arrived");
    far_request_end(&slot->request);
    slot_is_in(slot);
    slot->state = FAR_SLOT_ARRIVED;
    usm_list_append(&slot->peer->node->arrived, &slot->link);
}

/* Judges what was received for a fetch: see the table above. */
static void slot_judge(far_slot *slot)
{
    const size_t size = slot->data.op.size;
    far_header   h;

    if (slot->data.result != FAR_OK) {
        slot_again(slot);
    } else if (size < FAR_HEADER ||
               !far_header_decode(slot->piece + size - FAR_HEADER, FAR_HEADER, &h)) {
        usm_add_relaxed(&slot->peer->node->late, 1);
        if (size == slot->size + FAR_HEADER)
            slot_again(slot);
        else
            slot_post_data(slot);
    } else if (!is_ours(slot, &h)) {
        usm_add_relaxed(&slot->peer->node->late, 1);
        slot_post_data(slot);
    } else if (h.status != FAR_DONE) {
        slot_fail(slot, USM_E_IO, false);
    } else if (size != slot->size + FAR_HEADER) {
        slot_again(slot);
    } else {
        slot_arrived(slot);
    }
}

static void slot_free_of_link(far_slot *slot, far_result result)
{
    const bool is_store =
        slot->state == FAR_SLOT_WAITING && slot->transfer->op == USM_TRANSFER_STORE;

    switch (slot->state) {
    case FAR_SLOT_WAITING:
        if (is_store && result != FAR_OK && result != FAR_PEER_LOST) {
            slot_fail(slot, USM_E_IO, false);
        } else if (!is_store) {
            far_member_heard(slot->peer);
            slot_judge(slot);
        }
        break;
    case FAR_SLOT_AGAIN:
        slot_send(slot);
        break;
    case FAR_SLOT_LINGERS:
        if (slot->is_given_up)
            usm_add_relaxed(&slot->peer->node->late, 1);
        slot_rest(slot);
        break;
    case FAR_SLOT_IDLE:
    case FAR_SLOT_ARRIVED:
    default:
        break;
    }
}

static void slot_data_ended(far_io *io, far_result result)
{
    far_slot *slot = usm_container_of(io, far_slot, data);

    if (result == FAR_PEER_LOST)
        far_member_lost(slot->peer, true);
    slot_free_of_link(slot, result);
}

static far_slot *slot_make(far_peer *peer)
{
    far_node *node = peer->node;
    far_slot *slot;

    if (peer->slot_count == peer->slot_cap) {
        uint32_t   cap  = peer->slot_cap == 0 ? 8 : 2 * peer->slot_cap;
        far_slot **more = far_alloc(node, cap * sizeof(far_slot *));

        if (more == NULL)
            return NULL;
        if (peer->slot_count > 0)
            memcpy(more, peer->slots, peer->slot_count * sizeof(far_slot *));
        far_free(node, peer->slots);
        peer->slots    = more;
        peer->slot_cap = cap;
    }
    slot = far_alloc(node, sizeof(*slot));
    if (slot == NULL)
        return NULL;
    slot->peer        = peer;
    slot->slot_number = (uint16_t)peer->slot_count;
    far_io_init(&slot->data, node, slot_data_ended, slot);
    usm_list_init(&slot->link);
    peer->slots[peer->slot_count++] = slot;
    return slot;
}

/* NULL: no memory, or (*is_spent) there are enough slots, and none is free. */
static far_slot *slot_take(far_peer *peer, bool *is_spent)
{
    usm_list *it   = usm_list_pop(&peer->idle);
    far_slot *slot = it != NULL ? usm_container_of(it, far_slot, link) : NULL;

    if (slot == NULL) {
        *is_spent = peer->slot_count >= LANES_PER_DEPTH * peer->node->params.depth;
        slot      = *is_spent ? NULL : slot_make(peer);
    }
    if (slot == NULL)
        return NULL;
    slot->piece = piece_take(peer->node);
    if (slot->piece == NULL) {
        usm_list_append(&peer->idle, &slot->link);
        return NULL;
    }
    slot->data.holder_2 = slot->piece;
    return slot;
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

static void piece_start(far_slot *slot, usm_transfer *t)
{
    far_peer   *peer = slot->peer;
    far_ticket *k    = ticket_of(t);

    slot->transfer      = t;
    slot->at            = k->next;
    slot->size          = piece_size(peer, t);
    slot->tries         = 0;
    slot->request.since = usm_load_relaxed(&peer->node->now);
    k->next += slot->size;
    k->out++;
    if (k->next == t->size)
        usm_list_remove(&k->link);
    peer->out++;
    peer->out_bytes += slot->size;
    peer->node->out++;
    slot_request(slot);
}

/* Stores that were announced. */
static void pieces_send(far_peer *peer, far_slot *const *stores, uint32_t n)
{
    far_headers_flush(peer->node); /* the lender posts its receives while bytes are copied */
    for (uint32_t i = 0; i < n; i++) {
        far_slot           *slot = stores[i];
        const usm_transfer *t    = slot->transfer;

        far_point(peer->node, "die.borrow.announced");
        far_copy(peer->node, slot->piece + FAR_ASIDE, (const char *)t->data + slot->at, slot->size);
        slot_send_bytes(slot);
    }
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
    far_slot *stores[AT_ONCE];
    uint32_t  n = 0;

    if (!peer->has_session || (peer->state != FAR_UP && peer->state != FAR_SLOW))
        return;
    while (n < AT_ONCE && has_room(peer)) {
        usm_list *q        = usm_list_is_empty(&peer->urgent) ? &peer->queue : &peer->urgent;
        bool      is_spent = false;
        far_slot *slot;

        if (usm_list_is_empty(q))
            break;
        slot = slot_take(peer, &is_spent);
        if (slot == NULL) {
            if (!is_spent && peer->out == 0)
                transfer_fail(transfer_of(q->next), USM_E_NO_MEMORY);
            break;
        }
        piece_start(slot, transfer_of(q->next));
        if (slot->transfer->op == USM_TRANSFER_STORE)
            stores[n++] = slot;
    }
    pieces_send(peer, stores, n);
}

void far_transfers_issue(far_node *node)
{
    USM_LIST_FOREACH_SAFE (it, next, &node->active)
        issue(usm_container_of(it, far_peer, active));
}

bool far_transfers_copy(far_node *node)
{
    usm_list     *it = usm_list_pop(&node->arrived);
    far_slot     *slot;
    usm_transfer *t;

    if (it == NULL)
        return false;
    slot = usm_container_of(it, far_slot, link);
    t    = slot->transfer;
    far_copy(node, (char *)t->data + slot->at, slot->piece, slot->size);
    usm_add_relaxed(&node->fetched, slot->size);
    slot_leave(slot, false);
    piece_end(t, USM_OK);
    return true;
}

/* ---- answers to stores, time --------------------------------------------------------------- */

void far_transfers_answered(far_peer *peer, const far_header *h)
{
    far_node     *node = peer->node;
    far_slot     *slot = h->slot_number < peer->slot_count ? peer->slots[h->slot_number] : NULL;
    usm_transfer *t;

    if (slot == NULL || slot->state != FAR_SLOT_WAITING ||
        slot->request.operation != h->operation || slot->transfer->op != USM_TRANSFER_STORE) {
        usm_add_relaxed(&node->late, 1);
        return;
    }
    switch (h->status) {
    case FAR_DONE:
        far_point(node, "die.borrow.acknowledged");
        usm_add_relaxed(&node->stored, slot->size);
        t = slot->transfer;
        slot_leave(slot, false);
        piece_end(t, USM_OK);
        return;
    case FAR_STALE:
    case FAR_REPEAT:
        slot_again(slot);
        return;
    case FAR_FULL:
    case FAR_NO_STORE:
        slot_fail(slot, USM_E_SPILL_FULL, false);
        return;
    case FAR_MISSING:
    case FAR_STATUS_END:
    default:
        slot_fail(slot, USM_E_IO, false);
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
    for (uint32_t i = 0; i < peer->slot_count; i++)
        if (peer->slots[i]->recalled_in != peer->epoch || peer->slots[i]->tries < RECALLS_IN_VAIN)
            return false;
    return true;
}

void far_transfers_expire(far_peer *peer)
{
    bool has_failed;

    for (uint32_t i = 0; i < peer->slot_count && peer->out > 0; i++) {
        far_slot *slot = peer->slots[i];

        if (slot->state != FAR_SLOT_WAITING && slot->state != FAR_SLOT_AGAIN)
            continue;
        if (!far_request_is_over(peer, slot->request.since, true))
            continue;
        usm_add_relaxed(&peer->node->timeouts, 1);
        slot_fail(slot, USM_E_IO, true);
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
static void slot_recall(far_slot *slot)
{
    far_peer *peer = slot->peer;
    uint64_t  now  = usm_load_relaxed(&peer->node->now);

    if (slot->recalled_in != peer->epoch)
        slot->tries = 0;
    else if (now - slot->recalled < peer->node->params.deadline_ns << slot->tries)
        return;
    slot->recalled    = now;
    slot->recalled_in = peer->epoch;
    if (slot->tries < RECALLS_SLOWER)
        slot->tries++;
    far_header_send(peer, slot->over);
}

void far_slots_recall(far_node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        const far_peer *peer = &node->peers[i];

        if (peer->given_up == 0 || !peer->has_session || peer->state != FAR_UP)
            continue;
        for (uint32_t k = 0; k < peer->slot_count; k++)
            if (peer->slots[k]->state == FAR_SLOT_LINGERS && peer->slots[k]->is_given_up)
                slot_recall(peer->slots[k]);
    }
}

void far_transfers_break(far_peer *peer)
{
    for (uint32_t i = 0; i < peer->slot_count && peer->out > 0; i++) {
        far_slot *slot = peer->slots[i];

        if (slot->state == FAR_SLOT_WAITING || slot->state == FAR_SLOT_AGAIN)
            slot_fail(slot, USM_E_IO, true);
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
