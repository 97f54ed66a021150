/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Requests of a borrower without bytes: opening stores, reserving, forgetting.  One header is sent,
 * one answer comes back.
 *
 * Each request gets its operation number when it is accepted, before those of transfers that start
 * later.  The lender applies requests by these numbers, not by the order of arrival.  Forgetting is
 * repeated until it is answered: a lender applies the same request once.  A reserve that was given
 * up is undone. */
#include "internal.h"

#include "base/inline/clock.h"
#include "base/inline/plural.h"

enum { CONTROLS_OUT = 32 };

usm_status far_store_open(far_node *node, size_t block_size, far_store **out)
{
    far_store *s;

    if (block_size == 0 || (block_size & (block_size - 1)) != 0 ||
        block_size >> FAR_SHIFT_MIN == 0 || block_size >> FAR_SHIFT_MAX > 1)
        return node->api->report(
            USM_E_INVALID,
            "far memory: blocks of %zu bytes are not a power of two from 4 KiB "
            "to 2 GiB",
            block_size);
    s = node->api->heap_alloc(sizeof(*s));
    if (s == NULL)
        return node->api->report(USM_E_NO_MEMORY, "far memory: no memory for a store");
    s->node  = node;
    s->shift = (uint8_t)__builtin_ctzll(block_size);
    (void)pthread_mutex_lock(&node->lock);
    s->number = ++node->next_store;
    (void)pthread_mutex_unlock(&node->lock);
    *out = s;
    return USM_OK;
}

/* ---- any thread ----------------------------------------------------------------------------- */

static far_control *control_make(far_store *store, uint32_t peer, far_wire_op op)
{
    far_control *c = store->node->api->heap_alloc(sizeof(*c));

    if (c == NULL)
        return NULL;
    usm_list_init(&c->link);
    c->peer   = peer;
    c->header = (far_header){.op = op, .shift = store->shift, .store = store->number};
    return c;
}

static void control_ask(far_node *node, far_control *c)
{
    (void)pthread_mutex_lock(&node->lock);
    usm_list_append(&node->asked, &c->link);
    (void)pthread_mutex_unlock(&node->lock);
    far_wake(node);
}

/* If the request follows the last unsent one directly, it is appended to that: blocks are mostly
 * forgotten in order. */
static bool is_joined_to_last(far_store *store, uint32_t peer, uint64_t first, uint64_t n)
{
    far_node    *node = store->node;
    bool         done = false;
    far_control *last;

    (void)pthread_mutex_lock(&node->lock);
    if (!usm_list_is_empty(&node->asked)) {
        last = usm_container_of(node->asked.prev, far_control, link);
        done = last->header.op == FAR_OP_FORGET && last->peer == peer &&
               last->header.store == store->number &&
               last->header.block + last->header.length == first &&
               n <= UINT32_MAX - last->header.length;
        if (done)
            last->header.length += (uint32_t)n;
    }
    (void)pthread_mutex_unlock(&node->lock);
    return done;
}

void far_forget(far_store *store, uint32_t peer, uint64_t first, uint64_t n)
{
    first &= UINT64_MAX >> 16;
    far_near_forget(store, peer, first, n);
    while (n > 0) {
        uint64_t     part = n < UINT32_MAX ? n : UINT32_MAX;
        far_control *c;

        if (!is_joined_to_last(store, peer, first, part)) {
            c = control_make(store, peer, FAR_OP_FORGET);
            if (c == NULL) {
                store->node->api->log(USM_LOG_WARN,
                                      "far memory: no memory to notify member %u of %llu forgotten "
                                      "blocks; they stay there until "
                                      "the store is closed",
                                      peer, (unsigned long long)n);
                return;
            }
            c->header.block  = first;
            c->header.length = (uint32_t)part;
            control_ask(store->node, c);
        }
        first += part;
        n -= part;
    }
}

void far_store_close(far_store *store)
{
    far_node *node;

    if (store == NULL)
        return;
    node = store->node;
    for (uint32_t i = 0; i < node->count; i++) {
        far_control *c = i != node->self ? control_make(store, i, FAR_OP_CLOSE) : NULL;

        far_near_forget(store, i, 0, UINT64_MAX);
        if (c != NULL)
            control_ask(node, c);
    }
    node->api->heap_free(store);
}

void far_store_drop(far_store *store)
{
    if (store != NULL)
        store->node->api->heap_free(store);
}

void far_reserve_start(far_store *store, uint32_t peer, uint64_t first, uint64_t n,
                       far_reserve_done *done, void *arg)
{
    far_control *c;

    if (n == 0 || n > UINT32_MAX) {
        done(arg, n == 0 ? USM_OK : USM_E_SPILL_FULL);
        return;
    }
    c = control_make(store, peer, FAR_OP_RESERVE);
    if (c == NULL) {
        done(arg, USM_E_NO_MEMORY);
        return;
    }
    c->header.block  = first & (UINT64_MAX >> 16);
    c->header.length = (uint32_t)n;
    c->done          = done;
    c->arg           = arg;
    control_ask(store->node, c);
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* The last of the two threads frees it: the waiting thread may leave first. */
typedef struct waiter {
    const usm_host_api *api;
    pthread_mutex_t     lock;
    pthread_cond_t      ended;
    bool                has_ended, has_left;
    usm_status          status;
} waiter;

static void waiter_drop(waiter *w)
{
    (void)pthread_cond_destroy(&w->ended);
    (void)pthread_mutex_destroy(&w->lock);
    w->api->heap_free(w);
}

static void waiter_done(void *arg, usm_status status)
{
    waiter *w = arg;
    bool    has_left;

    (void)pthread_mutex_lock(&w->lock);
    w->has_ended = true;
    w->status    = status;
    has_left     = w->has_left;
    (void)pthread_cond_signal(&w->ended);
    (void)pthread_mutex_unlock(&w->lock);
    if (has_left)
        waiter_drop(w);
}

static waiter *waiter_make(const usm_host_api *api)
{
    waiter *w = api->heap_alloc(sizeof(*w));

    if (w == NULL)
        return NULL;
    w->api = api;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)usm_cond_init_monotonic(&w->ended);
    return w;
}

usm_status far_reserve(far_store *store, uint32_t peer, uint64_t first, uint64_t n)
{
    far_node       *node  = store->node;
    uint64_t        limit = 5 * node->params.deadline_ns + 1000000000u;
    struct timespec until = usm_clock_in(CLOCK_MONOTONIC, limit);
    waiter         *w     = waiter_make(node->api);
    usm_status      s     = USM_E_IO;
    bool            has_ended;
    int             error = 0;

    if (w == NULL)
        return node->api->report(USM_E_NO_MEMORY, "far memory: no memory to reserve");
    far_reserve_start(store, peer, first, n, waiter_done, w);
    (void)pthread_mutex_lock(&w->lock);
    while (!w->has_ended && error == 0)
        error = pthread_cond_timedwait(&w->ended, &w->lock, &until);
    has_ended   = w->has_ended;
    w->has_left = true;
    if (has_ended)
        s = w->status;
    (void)pthread_mutex_unlock(&w->lock);
    if (has_ended)
        waiter_drop(w);
    if (s == USM_E_SPILL_FULL)
        return node->api->report(s, "far memory: member %u has no room for %llu %s", peer,
                                 (unsigned long long)n, usm__plural(n, "block", "blocks"));
    if (s != USM_OK)
        return node->api->report(s, "far memory: member %u did not answer, or is lost", peer);
    return USM_OK;
}

/* ---- the stepping thread ------------------------------------------------------------------- */

static void control_end(far_node *node, far_control *c, usm_status s)
{
    usm_list_remove(&c->link);
    far_request_end(&c->request);
    if (c->places != NULL)
        far_near_give(&node->peers[c->peer], c->places);
    if (c->done != NULL)
        c->done(c->arg, s);
    node->api->heap_free(c);
}

static bool peer_is_up(const far_peer *peer)
{
    return peer->has_session && (peer->state == FAR_UP || peer->state == FAR_SLOW);
}

static void control_send(far_peer *peer, far_control *c)
{
    far_header h = c->header;

    h.operation = c->request.operation;
    c->sent     = usm_load_relaxed(&peer->node->now);
    if (h.op == FAR_OP_UNDO) {
        /* block and length are the reserve's; the reserve's number was passed in `operation`. */
        if (h.operation - c->header.operation > UINT32_MAX)
            return;
        h.offset = (uint32_t)(h.operation - c->header.operation);
    }
    if (h.op == FAR_OP_RESERVE && c->places == NULL)
        c->places = far_near_take(peer, &h);
    h.slot_number = c->places != NULL;
    far_header_send(peer, h);
    if (h.op == FAR_OP_RESERVE)
        far_point(peer->node, "die.borrow.reserve");
    else if (h.op == FAR_OP_FORGET)
        far_point(peer->node, "die.borrow.forget");
}

/* Reserves wait until it is known whether the lender's memory can be mapped. */
static void controls_send(far_peer *peer)
{
    USM_LIST_FOREACH_SAFE (it, next, &peer->asked) {
        far_control *c = usm_container_of(it, far_control, link);

        if (peer->controls_out >= CONTROLS_OUT)
            return;
        if (c->header.op == FAR_OP_RESERVE && peer->near_state == FAR_NEAR_ASKED)
            continue;
        usm_list_remove(it);
        usm_list_append(&peer->controls, it);
        peer->controls_out++;
        control_send(peer, c);
    }
}

/* Called once, before the first reserve, ahead of all waiting requests: see near.c. */
static void near_ask(far_peer *peer)
{
    far_node    *node = peer->node;
    far_near    *n    = node->params.near_memory;
    far_control *c;

    if (n == NULL || peer->near_state != FAR_NEAR_UNKNOWN || peer->lends == 0)
        return;
    c = node->api->heap_alloc(sizeof(*c));
    if (c == NULL)
        return;
    usm_list_init(&c->link);
    c->peer          = peer->index;
    c->header        = (far_header){.op = FAR_OP_NEAR, .block = n->ops->host(n)};
    c->request.since = usm_load_relaxed(&node->now);
    far_request_start(peer, &c->request);
    usm_list_append(peer->asked.next, &c->link); /* before the first */
    peer->near_state = FAR_NEAR_ASKED;
}

/* For a peer that is not up: reserves wait while it joins, and forgotten blocks are kept in mind
 * until it is known that all of its blocks are gone. */
static bool waits_for(const far_peer *peer, const far_control *c)
{
    if (c->done == NULL)
        return peer->may_return;
    return peer->state == FAR_JOINING || (peer->may_return && !peer->is_silent);
}

static void control_take(far_node *node, far_control *c)
{
    far_peer *peer  = c->peer < node->count && c->peer != node->self ? &node->peers[c->peer] : NULL;
    bool      is_up = peer != NULL && peer_is_up(peer);

    if (peer == NULL) {
        control_end(node, c, USM_E_INVALID);
        return;
    }
    /* Nothing is kept if there is no session, unless it may return. */
    if (!is_up && !waits_for(peer, c)) {
        control_end(node, c, USM_E_IO);
        return;
    }
    c->request.since = usm_load_relaxed(&node->now);
    if (is_up && c->header.op == FAR_OP_RESERVE)
        near_ask(peer);
    if (is_up || peer->may_return)
        far_request_start(peer, &c->request);
    usm_list_append(&peer->asked, &c->link);
    far_peer_activate(peer);
    if (is_up)
        controls_send(peer);
}

void far_controls_take(far_node *node)
{
    usm_list list, *it;

    (void)pthread_mutex_lock(&node->lock);
    usm_list_move(&node->asked, &list);
    (void)pthread_mutex_unlock(&node->lock);
    while ((it = usm_list_pop(&list)) != NULL)
        control_take(node, usm_container_of(it, far_control, link));
}

void far_controls_joined(far_peer *peer)
{
    if (!usm_list_is_empty(&peer->asked))
        near_ask(peer);
    USM_LIST_FOREACH (it, &peer->asked) {
        far_control *c = usm_container_of(it, far_control, link);

        if (c->request.operation == 0)
            far_request_start(peer, &c->request);
    }
    controls_send(peer);
}

static usm_status status_of(far_wire_status s)
{
    if (s == FAR_DONE)
        return USM_OK;
    return s == FAR_FULL || s == FAR_NO_STORE ? USM_E_SPILL_FULL : USM_E_IO;
}

/* Handles what an answer says about mapped memory. */
static void near_look(far_peer *peer, far_control *c, const far_header *h)
{
    if (c->header.op == FAR_OP_NEAR)
        far_near_answered(peer, h);
    if (c->places == NULL || h->status != FAR_DONE || h->slot_number != 1)
        return;
    far_near_keep(peer, c->places);
    c->places = NULL;
}

void far_controls_answered(far_peer *peer, const far_header *h)
{
    USM_LIST_FOREACH (it, &peer->controls) {
        far_control *c = usm_container_of(it, far_control, link);

        if (c->request.operation != h->operation)
            continue;
        far_point(peer->node, "die.borrow.answered");
        peer->controls_out--;
        near_look(peer, c, h);
        control_end(peer->node, c, status_of(h->status));
        controls_send(peer);
        return;
    }
    usm_add_relaxed(&peer->node->late, 1);
}

/* The reserve may still be applied. */
static void control_undo(far_peer *peer, const far_control *reserve)
{
    far_node    *node = peer->node;
    far_control *c    = node->api->heap_alloc(sizeof(*c));

    if (c == NULL)
        return;
    usm_list_init(&c->link);
    c->peer             = peer->index;
    c->header           = reserve->header;
    c->header.op        = FAR_OP_UNDO;
    c->header.operation = reserve->request.operation;
    c->request.since    = usm_load_relaxed(&node->now);
    far_request_start(peer, &c->request);
    usm_list_append(&peer->asked, &c->link);
}

static void control_expire(far_peer *peer, far_control *c, bool is_sent)
{
    far_node *node = peer->node;

    if (c->done != NULL && far_request_is_over(peer, c->request.since, is_sent)) {
        usm_add_relaxed(&node->timeouts, 1);
        if (is_sent) {
            peer->controls_out--;
            control_undo(peer, c);
        }
        control_end(node, c, USM_E_IO);
        return;
    }
    if (c->header.op == FAR_OP_NEAR && is_sent && peer_is_up(peer) &&
        usm_load_relaxed(&node->now) - c->request.since >= node->params.deadline_ns) {
        peer->controls_out--;
        far_near_answered(peer, &(far_header){.status = FAR_MISSING});
        control_end(node, c, USM_E_IO);
        return;
    }
    if (c->done == NULL && is_sent && peer_is_up(peer) &&
        usm_load_relaxed(&node->now) - c->sent >= node->params.deadline_ns)
        control_send(peer, c);
}

void far_controls_expire(far_peer *peer)
{
    USM_LIST_FOREACH_SAFE (it, next, &peer->controls)
        control_expire(peer, usm_container_of(it, far_control, link), true);
    USM_LIST_FOREACH_SAFE (it, next, &peer->asked)
        control_expire(peer, usm_container_of(it, far_control, link), false);
    if (peer_is_up(peer))
        controls_send(peer);
}

void far_controls_break(far_peer *peer)
{
    usm_list *first = peer->asked.next; /* of the waiting requests: the new ones go behind those
                                           that were sent before */

    while (!usm_list_is_empty(&peer->controls)) {
        far_control *c = usm_container_of(peer->controls.next, far_control, link);

        if (c->done != NULL) {
            control_undo(peer, c);
            control_end(peer->node, c, USM_E_IO);
            continue;
        }
        usm_list_remove(&c->link);
        usm_list_append(first, &c->link);
    }
    peer->controls_out = 0;
}

void far_controls_fail(far_peer *peer)
{
    while (!usm_list_is_empty(&peer->controls))
        control_end(peer->node, usm_container_of(peer->controls.next, far_control, link), USM_E_IO);
    while (!usm_list_is_empty(&peer->asked))
        control_end(peer->node, usm_container_of(peer->asked.next, far_control, link), USM_E_IO);
    peer->controls_out = 0;
    far_near_end(peer);
}

static void controls_free(far_node *node, usm_list *list)
{
    usm_list *it;

    while ((it = usm_list_pop(list)) != NULL) {
        far_control *c = usm_container_of(it, far_control, link);

        if (c->places != NULL)
            far_near_give(&node->peers[c->peer], c->places);
        node->api->heap_free(c);
    }
}

void far_controls_fini(far_node *node)
{
    controls_free(node, &node->asked);
    for (uint32_t i = 0; node->peers != NULL && i < node->count; i++) {
        if (node->peers[i].node == NULL)
            continue;
        controls_free(node, &node->peers[i].controls);
        controls_free(node, &node->peers[i].asked);
    }
}
