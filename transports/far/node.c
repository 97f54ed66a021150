/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Creating and destroying a node, its memory, its operations on the link, and the step that drives
 * the other files.
 *
 *     far_step:  poll the link -> ended operations -> new requests -> pieces that can be sent
 *                -> one arrived piece copied -> again, until nothing moves
 *
 * Pieces are sent before one is copied, so that the link works while memory is copied. */
#include "internal.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 64, HEADERS_POSTED = 32, BIG = 65536, PAGE = 4096, COPIED_AT_ONCE = 256 << 10 };

/* Before memory of far_alloc(): a cache line, for large memory a page. */
typedef struct block {
    usm_list link;
    size_t   mapped; /* 0: from the heap */
    uint32_t pins;   /* operations in progress in it */
} block;

struct far_inbox {
    far_io        io;
    unsigned char bytes[FAR_HEADERS_MAX];
};

_Static_assert(sizeof(block) <= 64, "a line");

static block *block_of(void *p)
{
    return (block *)(void *)((unsigned char *)p - 64);
}

void *far_alloc_unlisted(far_node *node, size_t size)
{
    bool           is_big = size >= BIG;
    size_t         room   = is_big ? (size + PAGE + PAGE - 1) & ~(size_t)(PAGE - 1) : size + 64;
    unsigned char *p      = is_big ? node->api->os->map(room, 3 /* PROT_READ | PROT_WRITE */)
                                   : node->api->heap_alloc(room);
    block         *b;

    if (p == NULL)
        return NULL;
    p += is_big ? PAGE : 64;
    b         = (block *)(void *)(p - 64);
    b->mapped = is_big ? room : 0;
    usm_list_init(&b->link);
    return p;
}

void far_alloc_list(far_node *node, void *p)
{
    usm_list_append(&node->memory, &block_of(p)->link);
}

void *far_alloc(far_node *node, size_t size)
{
    void *p = far_alloc_unlisted(node, size);

    if (p != NULL)
        far_alloc_list(node, p);
    return p;
}

void far_free(far_node *node, void *p)
{
    block *b;

    if (p == NULL)
        return;
    b = block_of(p);
    usm_list_remove(&b->link);
    if (b->mapped != 0)
        (void)node->api->os->unmap((unsigned char *)p - PAGE, b->mapped);
    else
        node->api->heap_free(b);
}

static void io_done(far_op *op, far_result result)
{
    far_io *io = op->user;

    io->result           = result;
    io->next             = NULL;
    *io->node->ended_end = io;
    io->node->ended_end  = &io->next;
}

static void io_begin(far_io *io, far_buffer b)
{
    io->op.buffer    = b.bytes;
    io->op.size      = b.size;
    io->op.peer      = b.peer;
    io->op.tag       = b.tag;
    io->op.done      = io_done;
    io->op.user      = io;
    io->is_under_way = true;
    block_of(io->holder)->pins++;
    if (io->holder_2 != NULL)
        block_of(io->holder_2)->pins++;
}

void far_io_send(far_io *io, far_buffer b)
{
    io_begin(io, b);
    io->node->link->ops->send(io->node->link, &io->op);
}

void far_io_receive(far_io *io, far_buffer b)
{
    io_begin(io, b);
    io->node->link->ops->receive(io->node->link, &io->op);
}

void far_copy(far_node *node, void *to, const void *from, size_t size)
{
    size_t at = 0;

    for (; size - at > COPIED_AT_ONCE; at += COPIED_AT_ONCE) {
        memcpy((char *)to + at, (const char *)from + at, COPIED_AT_ONCE);
        (void)node->link->ops->poll(node->link);
    }
    memcpy((char *)to + at, (const char *)from + at, size - at);
}

static bool io_end_all(far_node *node)
{
    far_io *io = node->ended;

    if (io == NULL)
        return false;
    node->ended     = NULL;
    node->ended_end = &node->ended;
    while (io != NULL) {
        far_io *next = io->next;

        io->is_under_way = false;
        block_of(io->holder)->pins--;
        if (io->holder_2 != NULL)
            block_of(io->holder_2)->pins--;
        io->ended(io, io->result);
        io = next;
    }
    return true;
}

/* ---- headers -------------------------------------------------------------------------------- */

/* A message of headers: those for one peer in a round of the step. */
typedef struct far_headers {
    usm_list      link; /* in node->unsent; in node->headers while free */
    far_io        io;
    far_peer     *peer;
    size_t        size;
    unsigned char bytes[FAR_HEADERS_MAX];
} headers;

static void headers_ended(far_io *io, far_result result)
{
    headers *s = usm_container_of(io, headers, io);

    if (result == FAR_PEER_LOST)
        far_member_lost(&io->node->peers[io->op.peer], true);
    /* The last one goes first: it is in the cache. */
    s->link.next           = io->node->headers.next;
    s->link.prev           = &io->node->headers;
    s->link.next->prev     = &s->link;
    io->node->headers.next = &s->link;
}

static headers *headers_take(far_node *node)
{
    usm_list *free = usm_list_pop(&node->headers);
    headers  *s    = free != NULL ? usm_container_of(free, headers, link) : NULL;

    if (s != NULL)
        return s;
    s = far_alloc(node, sizeof(*s));
    if (s == NULL)
        return NULL;
    usm_list_init(&s->link);
    far_io_init(&s->io, node, headers_ended, s);
    return s;
}

static far_header header_complete(const far_peer *peer, far_header h)
{
    h.from = peer->mine;
    if (h.op != FAR_OP_FENCED)
        h.to = peer->its;
    if (!usm_list_is_empty(&peer->awaited) && h.operation != 0) {
        uint64_t oldest = usm_container_of(peer->awaited.next, far_request, link)->operation;

        h.behind = h.operation > oldest ? (uint32_t)(h.operation - oldest) : 0;
    }
    return h;
}

/* pre: it is in no list. */
static void headers_send(far_node *node, headers *s)
{
    s->peer->headers = NULL;
    if (s->peer->is_dead)
        usm_list_append(&node->headers, &s->link);
    else
        far_io_send(&s->io, (far_buffer){s->bytes, s->size, s->peer->index, FAR_TAG_HEADER});
}

void far_headers_flush(far_node *node)
{
    usm_list *it;

    while ((it = usm_list_pop(&node->unsent)) != NULL)
        headers_send(node, usm_container_of(it, headers, link));
}

void far_header_send(far_peer *peer, far_header h)
{
    far_node *node = peer->node;
    headers  *s    = peer->headers;

    if (peer->is_dead)
        return;
    if (s == NULL) {
        s = headers_take(node);
        if (s == NULL)
            return;
        s->peer       = peer;
        s->size       = 0;
        peer->headers = s;
        usm_list_append(&node->unsent, &s->link);
    }
    h = header_complete(peer, h);
    far_header_encode(&h, s->bytes + s->size);
    s->size += FAR_HEADER;
    peer->lease.sent = usm_load_relaxed(&node->now);
    if (s->size == FAR_HEADERS_MAX) {
        usm_list_remove(&s->link);
        headers_send(node, s);
    }
}

static void inbox_post(struct far_inbox *in)
{
    far_io_receive(&in->io, (far_buffer){in->bytes, FAR_HEADERS_MAX, FAR_ANY, FAR_TAG_HEADER});
}

/* The headers of one message; false: something else is among them. */
static bool headers_came(far_peer *peer, const unsigned char *bytes, size_t size)
{
    bool is_right = size > 0 && size % FAR_HEADER == 0;

    for (size_t at = 0; at + FAR_HEADER <= size; at += FAR_HEADER) {
        far_header h;

        if (far_header_decode(bytes + at, FAR_HEADER, &h))
            far_member_header(peer, &h);
        else
            is_right = false;
    }
    return is_right;
}

static void inbox_ended(far_io *io, far_result result)
{
    struct far_inbox *in   = usm_container_of(io, struct far_inbox, io);
    far_node         *node = io->node;
    uint32_t          from = io->op.peer;
    bool              is_right;

    if (result == FAR_PEER_LOST && from < node->count)
        far_member_lost(&node->peers[from], true);
    is_right = result == FAR_OK && from < node->count && from != node->self &&
               headers_came(&node->peers[from], in->bytes, io->op.size);
    if (!is_right && (result == FAR_OK || result == FAR_TRUNCATED))
        usm_add_relaxed(&node->refused, 1);
    inbox_post(in);
}

/* ---- life ----------------------------------------------------------------------------------- */

static usm_status params_check(const far_params *p)
{
    const usm_host_api *api = p->api;

    if (p->piece == 0 || (p->piece & (p->piece - 1)) != 0 || p->piece >> FAR_SHIFT_MIN == 0 ||
        p->piece >> FAR_SHIFT_MAX > 1)
        return api->report(USM_E_INVALID,
                           "far memory: a piece of %zu bytes is not a power of two "
                           "from 4 KiB to 2 GiB",
                           p->piece);
    if (p->depth == 0 || p->depth > FAR_SLOT_NUMBERS_MAX / 8)
        return api->report(USM_E_INVALID,
                           "far memory: %u pieces in flight are not between 1 and %u", p->depth,
                           (unsigned)FAR_SLOT_NUMBERS_MAX / 8);
    if (p->lease_ns == 0 || p->deadline_ns == 0 || p->orphan_ns < p->lease_ns)
        return api->report(USM_E_INVALID,
                           "far memory: a lease and a deadline are needed, and orphans "
                           "cannot be freed before the lease");
    if (p->is_stepped_seldom && p->lend != 0)
        return api->report(USM_E_INVALID, "far memory: who is stepped seldom cannot lend");
    if (p->key != NULL && p->hmac == NULL)
        return api->report(USM_E_INVALID, "far memory: a key without a function that proves it");
    return USM_OK;
}

static void peer_init(far_node *node, far_peer *peer, uint32_t index)
{
    peer->node  = node;
    peer->index = index;
    usm_list_init(&peer->active);
    usm_list_init(&peer->awaited);
    usm_list_init(&peer->urgent);
    usm_list_init(&peer->queue);
    usm_list_init(&peer->controls);
    usm_list_init(&peer->asked);
    usm_list_init(&peer->idle);
    usm_list_init(&peer->stores);
    usm_list_init(&peer->tombs);
    usm_list_init(&peer->held);
    usm_list_init(&peer->outbox);
    far_member_init(peer);
}

static void lists_init(far_node *node)
{
    usm_list_init(&node->memory);
    usm_list_init(&node->submitted);
    usm_list_init(&node->asked);
    usm_list_init(&node->outgoing);
    usm_list_init(&node->near);
    usm_list_init(&node->active);
    usm_list_init(&node->arrived);
    usm_list_init(&node->headers);
    usm_list_init(&node->unsent);
    usm_list_init(&node->servings);
    usm_list_init(&node->unarmed);
    usm_list_init(&node->slabs);
    usm_list_init(&node->messages_in);
    for (unsigned i = 0; i <= FAR_SHIFT_MAX; i++)
        usm_list_init(&node->chunks[i]);
    node->ended_end = &node->ended;
}

static void copy_name(char *to, size_t cap, const char *from)
{
    size_t n = from != NULL ? strlen(from) : 0;

    if (n >= cap)
        n = cap - 1;
    if (n > 0)
        memcpy(to, from, n);
    to[n] = '\0';
}

static void node_set(far_node *node, const far_params *params)
{
    uint64_t shorter =
        params->lease_ns < params->deadline_ns ? params->lease_ns : params->deadline_ns;

    node->params      = *params;
    node->api         = params->api;
    node->link        = params->link;
    node->self        = params->link->ops->self(params->link);
    node->count       = params->link->ops->count(params->link);
    node->piece_shift = (uint8_t)__builtin_ctzll(params->piece);
    node->tick_ns     = shorter / 16 > 0 ? shorter / 16 : 1;
    node->clock       = (usm__group_clock){.lease_ns = params->lease_ns,
                                           .sign_ns  = params->lease_ns / 4,
                                           .pause_ns = 4 * node->tick_ns};
    copy_name(node->domain, sizeof(node->domain), params->domain);
}

static usm_status node_fill(far_node *node)
{
    uint64_t now = node->link->ops->now(node->link);

    node->peers = far_alloc(node, node->count * sizeof(*node->peers));
    node->inbox = far_alloc(node, HEADERS_POSTED * sizeof(*node->inbox));
    if (node->params.key != NULL) { /* in memory that is excluded from dumps, like the caller's
                                       key */
        node->key = node->api->os->secret_map(node->params.key_size);
        if (node->key == NULL)
            return USM_E_NO_MEMORY;
        memcpy(node->key, node->params.key, node->params.key_size);
    }
    if (node->peers == NULL || node->inbox == NULL)
        return USM_E_NO_MEMORY;
    usm_store_relaxed(&node->now, now);
    node->clock.looked = now;
    for (uint32_t i = 0; i < node->count; i++) {
        peer_init(node, &node->peers[i], i);
        usm__group_lease_heard(&node->peers[i].lease, now);
        /* The peer with the lower number begins; the other one if that does not help. */
        node->peers[i].next_join = i > node->self ? now : now + node->params.lease_ns / 2;
    }
    for (uint32_t i = 0; i < HEADERS_POSTED; i++) {
        far_io_init(&node->inbox[i].io, node, inbox_ended, node->inbox);
    }
    return far_messages_init(node);
}

usm_status far_node_create(const far_params *params, far_node **out)
{
    usm_status s = params_check(params);
    far_node  *node;

    if (s != USM_OK)
        return s;
    node = params->api->heap_alloc(sizeof(*node));
    if (node == NULL)
        return params->api->report(USM_E_NO_MEMORY, "far memory: no memory for a node");
    lists_init(node);
    node_set(node, params);
    (void)pthread_mutex_init(&node->lock, NULL);
    s = node_fill(node);
    if (s != USM_OK) {
        far_node_destroy_closed(node);
        return params->api->report(s, "far memory: no memory for a node of %u members",
                                   params->link->ops->count(params->link));
    }
    for (uint32_t i = 0; i < HEADERS_POSTED; i++)
        inbox_post(&node->inbox[i]);
    far_messages_start(node);
    *out = node;
    return USM_OK;
}

static void node_free(far_node *node, bool is_closed)
{
    const usm_host_api *api = node->api;

    far_messages_fini(node);
    far_controls_fini(node);
    far_near_fini(node);
    api->os->secret_unmap(node->key, node->params.key_size);
    USM_LIST_FOREACH_SAFE (it, next, &node->memory) {
        block *b = usm_container_of(it, block, link);

        if (is_closed || b->pins == 0)
            far_free(node, (unsigned char *)b + 64);
    }
    (void)pthread_mutex_destroy(&node->lock);
    api->heap_free(node);
}

void far_node_destroy(far_node *node)
{
    if (node != NULL)
        node_free(node, false);
}

void far_node_destroy_closed(far_node *node)
{
    if (node != NULL)
        node_free(node, true);
}

/* As the system does it when memory is short: without any notice. */
void far_die(void)
{
    (void)kill(getpid(), SIGKILL);
}

/* ---- the step ------------------------------------------------------------------------------- */

void far_wake(far_node *node)
{
    usm_store_release(&node->has_work, true);
    if (node->params.wake != NULL)
        node->params.wake(node->params.user);
}

void far_peer_activate(far_peer *peer)
{
    if (usm_list_is_empty(&peer->active))
        usm_list_append(&peer->node->active, &peer->active);
}

static bool peer_is_idle(const far_peer *peer)
{
    return peer->out == 0 && usm_list_is_empty(&peer->urgent) && usm_list_is_empty(&peer->queue) &&
           usm_list_is_empty(&peer->controls) && usm_list_is_empty(&peer->asked);
}

/* Ends requests that have no answer in time, for all peers with requests. */
static void expire(far_node *node)
{
    USM_LIST_FOREACH_SAFE (it, next, &node->active) {
        far_peer *peer = usm_container_of(it, far_peer, active);

        far_transfers_expire(peer);
        far_controls_expire(peer);
        if (peer_is_idle(peer))
            usm_list_remove(&peer->active);
    }
}

static void tick(far_node *node, uint64_t now, uint64_t absent)
{
    far_members_tick(node, absent);
    far_messages_tick(node);
    /* If this process did not run, answers may have come that were not polled yet. */
    if (absent == 0)
        expire(node);
    far_stages_tick(node);
    far_slots_recall(node);
    far_slots_trim(node);
    far_chunks_trim(node);
    far_near_trim(node);
    node->next_tick = now + node->tick_ns;
}

static bool take_work(far_node *node)
{
    if (!usm_load_acquire(&node->has_work))
        return false;
    usm_store_relaxed(&node->has_work, false);
    far_controls_take(node);
    far_transfers_take(node);
    far_messages_take(node);
    return true;
}

/* One round; false: nothing moved. */
static bool turn(far_node *node)
{
    bool moved;

    (void)node->link->ops->poll(node->link);
    if (node->serving > 0)
        far_point(node, "die.lend.serving");
    if (node->receiving > 0)
        far_point(node, "die.lend.receiving");
    if (node->out > 0)
        far_point(node, "die.borrow.waiting");
    usm_store_relaxed(&node->now, node->link->ops->now(node->link));
    moved = io_end_all(node);
    moved = take_work(node) || moved;
    far_headers_flush(node);
    if (!usm_list_is_empty(&node->active))
        far_transfers_issue(node);
    far_headers_flush(node);
    return far_transfers_copy(node) || moved;
}

uint64_t far_step(far_node *node, bool *busy)
{
    bool     moved = false;
    uint64_t now, absent;

    for (int i = 0; i < ROUNDS && turn(node); i++)
        moved = true;
    now    = usm_load_relaxed(&node->now);
    absent = usm__group_look(&node->clock, now);
    if (now >= node->next_tick)
        tick(node, now, absent);
    far_headers_flush(node);
    if (moved)
        node->last_moved = now;
    /* Sends to dead peers may be in progress for ever. */
    if (busy != NULL)
        *busy =
            moved || node->out > 0 || (node->serving > 0 && now - node->last_moved < node->tick_ns);
    return usm_load_acquire(&node->has_work) || !usm_list_is_empty(&node->arrived)
               ? now
               : node->next_tick;
}

/* ---- statistics ---------------------------------------------------------------------------- */

void far_get_stats(far_node *node, far_stats *stats)
{
    stats->fetched     = usm_load_relaxed(&node->fetched);
    stats->stored      = usm_load_relaxed(&node->stored);
    stats->served      = usm_load_relaxed(&node->served);
    stats->kept        = usm_load_relaxed(&node->kept);
    stats->borrowers   = usm_load_relaxed(&node->borrowers);
    stats->requests    = usm_load_relaxed(&node->requests);
    stats->timeouts    = usm_load_relaxed(&node->timeouts);
    stats->late        = usm_load_relaxed(&node->late);
    stats->stale       = usm_load_relaxed(&node->stale);
    stats->quarantined = usm_load_relaxed(&node->quarantined);
    stats->refused     = usm_load_relaxed(&node->refused);

    stats->near_fetched = usm_load_relaxed(&node->near_fetched);
    stats->near_stored  = usm_load_relaxed(&node->near_stored);
    stats->fetched += stats->near_fetched;
    stats->stored += stats->near_stored;
}

size_t far_members(far_node *node, far_member *list, size_t cap)
{
    uint64_t now = usm_load_relaxed(&node->now);
    size_t   n   = 0;

    (void)pthread_mutex_lock(&node->lock);
    for (uint32_t i = 0; i < node->count; i++) {
        far_peer *peer = &node->peers[i];

        if (i == node->self)
            continue;
        if (n++ < cap)
            far_member_describe(peer, now, &list[n - 1]);
    }
    (void)pthread_mutex_unlock(&node->lock);
    return n;
}
