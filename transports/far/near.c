/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lenders on the same host ("near" in the code): their memory is mapped, and the borrower alone
 * copies bytes (near.h).  Joining, signs of life, reserving and the end of an estate (members.c)
 * still go over the link.
 *
 *     before the first reserve   NEAR: which host        --> lender: an area for this estate
 *                                where it is, or nothing <--
 *     reserve                    the borrower takes positions in the area, and tells nobody; the
 *                                lender says whether the blocks are in the area, and counts them
 *     store, fetch               copied, then the area's word is read: unchanged means that the
 *                                area was the borrower's all the time
 *     forget                     the positions are free for other blocks of the borrower, at once
 *     end of the estate          the lender clears the word and takes the memory back
 *
 * A block is in mapped memory or not from its reserve until it is forgotten.  Only its one borrower
 * ever writes or reads it, and a copy cannot be late.  So nothing can tear a block or arrive after
 * it was given up, and nothing needs an acknowledgement.  A lender's death leaves the mapping and
 * its content: its blocks are lost when the protocol says so, and not before.
 *
 * A thread that waits for its transfer copies it in far_submit().  Other transfers are copied, in
 * pieces, by threads that call far_near_run(), several at a time.
 *
 * Everything here is guarded by node->lock, except what is marked as the stepping thread's. */
#include "lend.h"

#include <string.h>

enum { IDLE_KEPT = 32 << 20, BUCKETS = 64, GIVEN_BACK = 256, ROUND = 16 << 20, ALIGN = 2 << 20 };

/* Of virtual space: taking and returning blocks of several sizes leaves gaps. */
enum { SPARE = 4 };

#define LEND_MAX ((uint64_t)1 << 44)

struct far_near_block {
    far_near_block *next; /* in its bucket, in the free list of its size, or in a reserve */
    uint64_t        number, at;
    uint32_t        store;
    uint8_t         shift;
    bool            is_stored;
    bool            is_warm; /* it has memory */
};

struct far_map {
    far_peer        *peer;
    far_area        *area;
    far_lease        lease;
    uint32_t         users;      /* number of transfers */
    bool             is_over;    /* the last user frees it */
    uint64_t         fresh;      /* from here on nothing was ever used */
    uint64_t         used, idle; /* bytes: of blocks; of memory that free blocks still have */
    far_near_block  *warm[FAR_SHIFT_MAX + 1], *cold[FAR_SHIFT_MAX + 1]; /* free */
    far_near_block **buckets;
    uint32_t         bucket_count, count;
};

/* Data in usm_transfer.opaque. */
typedef struct near_ticket {
    usm_list       link; /* in node->near */
    far_map       *map;
    unsigned char *bytes;
    size_t         next;                 /* bytes for which copying has begun */
    uint16_t       out;                  /* pieces in progress */
    bool           has_failed, is_first; /* first store to its position */
} near_ticket;

_Static_assert(sizeof(near_ticket) <= sizeof(((usm_transfer *)0)->opaque), "fits");

/* NOLINTBEGIN(clang-diagnostic-cast-align): opaque is aligned to 8 */
static near_ticket *ticket_of(usm_transfer *t)
{
    return (near_ticket *)(void *)t->opaque;
}

static usm_transfer *transfer_of(usm_list *link)
{
    return usm_container_of(usm_container_of(link, near_ticket, link), usm_transfer, opaque);
}
/* NOLINTEND(clang-diagnostic-cast-align) */

/* ---- the lender ------------------------------------------------------------------------------ */

static uint64_t area_size(uint64_t lends)
{
    uint64_t most = lends < LEND_MAX ? lends : LEND_MAX;

    return (most * SPARE + ROUND - 1) & ~(uint64_t)(ROUND - 1);
}

void far_near_lend(far_peer *peer, const far_header *h)
{
    far_node  *node = peer->node;
    far_near  *n    = node->params.near_memory;
    far_header a    = {.op        = FAR_OP_ANSWER,
                       .status    = FAR_MISSING,
                       .operation = h->operation,
                       .block     = far_lend_available(node),
                       .offset    = (uint32_t)FAR_OP_NEAR};
    far_lease  l    = {peer->orphans, area_size(node->params.lend)};

    if (n != NULL && node->params.lend != 0 && h->block != 0 && h->block == n->ops->host(n)) {
        if (peer->lent_area == NULL)
            peer->lent_area = n->ops->lend(n, &l, peer->lent_where);
        far_point(node, "die.lend.near");
        if (peer->lent_area != NULL) {
            a.status = FAR_DONE;
            a.store  = peer->lent_where[0];
            a.length = peer->lent_where[1];
        }
    }
    far_header_send(peer, a);
}

void far_near_take_back(far_peer *peer)
{
    far_near *n = peer->node->params.near_memory;

    if (peer->lent_area == NULL)
        return;
    atomic_store(peer->lent_area->word, (uint64_t)0);
    far_point(peer->node, "die.lend.cleared");
    n->ops->take_back(n, peer->lent_area);
    peer->lent_area = NULL;
}

/* ---- positions in an area ------------------------------------------------------------------ */

/* Takes a free position with memory, else a free one, else a new one.  NULL: no room, or no
 * memory. */
static far_near_block *place_take(far_map *m, uint8_t shift)
{
    uint64_t         size  = (uint64_t)1 << shift;
    uint64_t         align = size < ALIGN ? size : ALIGN;
    uint64_t         at    = (m->fresh + align - 1) & ~(align - 1);
    far_near_block **free  = m->warm[shift] != NULL ? &m->warm[shift] : &m->cold[shift];
    far_near_block  *b     = *free;

    if (b != NULL) {
        *free = b->next;
    } else {
        if (size > m->lease.size || at > m->lease.size - size)
            return NULL;
        b = m->peer->node->api->heap_alloc(sizeof(*b));
        if (b == NULL)
            return NULL;
        b->at    = at;
        b->shift = shift;
        m->fresh = at + size;
    }
    m->used += size;
    m->idle -= b->is_warm ? size : 0;
    b->is_stored = false;
    b->next      = NULL;
    return b;
}

static void place_put(far_map *m, far_near_block *b)
{
    uint64_t         size = (uint64_t)1 << b->shift;
    far_near_block **free = b->is_warm ? &m->warm[b->shift] : &m->cold[b->shift];

    b->next = *free;
    *free   = b;
    m->used -= size;
    m->idle += b->is_warm ? size : 0;
}

static void list_free(const far_map *m, far_near_block *b)
{
    while (b != NULL) {
        far_near_block *next = b->next;

        m->peer->node->api->heap_free(b);
        b = next;
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static far_near_block **bucket_of(const far_map *m, uint32_t store, uint64_t number)
{
    uint64_t hash = (number + ((uint64_t)store << 40)) * 0x9e3779b97f4a7c15u;

    return &m->buckets[(hash >> 32) & (m->bucket_count - 1)];
}

/* Where the block is linked: *result is NULL if it does not exist. */
static far_near_block **block_at(const far_map *m, uint32_t store, uint64_t number)
{
    far_near_block **at = bucket_of(m, store, number);

    while (*at != NULL && ((*at)->number != number || (*at)->store != store))
        at = &(*at)->next;
    return at;
}

/* Without memory for more buckets, the chains grow. */
static void buckets_grow(far_map *m)
{
    const usm_host_api *api  = m->peer->node->api;
    far_near_block    **from = m->buckets;
    uint32_t            old  = m->bucket_count;
    far_near_block    **more = api->heap_alloc((size_t)2 * old * sizeof(far_near_block *));

    if (more == NULL)
        return;
    m->buckets      = more;
    m->bucket_count = 2 * old;
    for (uint32_t i = 0; i < old; i++) {
        while (from[i] != NULL) {
            far_near_block *b = from[i], **to = bucket_of(m, b->store, b->number);

            from[i] = b->next;
            b->next = *to;
            *to     = b;
        }
    }
    api->heap_free(from);
}

static void block_forget(far_map *m, far_near_block **at)
{
    far_near_block *b = *at;

    *at = b->next;
    m->count--;
    place_put(m, b);
}

/* ---- reserving: the stepping thread -------------------------------------------------------- */

far_near_block *far_near_take(far_peer *peer, const far_header *reserve)
{
    far_node       *node  = peer->node;
    far_near_block *first = NULL, **end = &first, *b = NULL;

    if (peer->map == NULL)
        return NULL;
    (void)pthread_mutex_lock(&node->lock);
    for (uint64_t i = 0; i < reserve->length; i++, end = &b->next) {
        b = *end = place_take(peer->map, reserve->shift);
        if (b == NULL)
            break;
        b->store  = reserve->store;
        b->number = reserve->block + i;
    }
    (void)pthread_mutex_unlock(&node->lock);
    if (b != NULL)
        return first;
    far_near_give(peer, first);
    return NULL;
}

void far_near_give(far_peer *peer, far_near_block *list)
{
    far_node *node = peer->node;
    far_map  *m    = peer->map;

    (void)pthread_mutex_lock(&node->lock);
    while (list != NULL) {
        far_near_block *next = list->next;

        if (m != NULL)
            place_put(m, list);
        else
            node->api->heap_free(list);
        list = next;
    }
    (void)pthread_mutex_unlock(&node->lock);
}

/* Blocks that exist already stay where they are. */
void far_near_keep(far_peer *peer, far_near_block *list)
{
    far_map *m = peer->map;

    (void)pthread_mutex_lock(&peer->node->lock);
    while (list != NULL) {
        far_near_block  *b  = list;
        far_near_block **at = block_at(m, b->store, b->number);

        list = b->next;
        if (*at != NULL) {
            place_put(m, b);
            continue;
        }
        b->next = NULL;
        *at     = b;
        if (++m->count >= m->bucket_count)
            buckets_grow(m);
    }
    (void)pthread_mutex_unlock(&peer->node->lock);
}

/* ---- forgetting: any thread ------------------------------------------------------------------ */

/* In the faster of two ways. */
static void forget(far_map *m, uint32_t store, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; n <= m->bucket_count && i < n; i++) {
        far_near_block **at = block_at(m, store, first + i);

        if (*at != NULL)
            block_forget(m, at);
    }
    for (uint32_t i = 0; n > m->bucket_count && i < m->bucket_count; i++) {
        far_near_block **at = &m->buckets[i];

        while (*at != NULL) {
            if ((*at)->store == store && (*at)->number >= first && (*at)->number - first < n)
                block_forget(m, at);
            else
                at = &(*at)->next;
        }
    }
}

void far_near_forget(far_store *store, uint32_t peer, uint64_t first, uint64_t n)
{
    far_node *node = store->node;
    far_map  *m;

    if (node->params.near_memory == NULL || peer >= node->count)
        return;
    (void)pthread_mutex_lock(&node->lock);
    m = node->peers[peer].map;
    if (m != NULL)
        forget(m, store->number, first, n);
    (void)pthread_mutex_unlock(&node->lock);
}

/* ---- mapping --------------------------------------------------------------------------------- */

/* The lock is not held; no thread uses the map. */
static void map_free(far_map *m)
{
    const usm_host_api *api = m->peer->node->api;
    far_near           *n   = m->peer->node->params.near_memory;

    for (uint32_t i = 0; i < m->bucket_count; i++)
        list_free(m, m->buckets[i]);
    for (unsigned i = 0; i <= FAR_SHIFT_MAX; i++) {
        list_free(m, m->warm[i]);
        list_free(m, m->cold[i]);
    }
    api->heap_free(m->buckets);
    n->ops->unmap(n, m->area);
    api->heap_free(m);
}

static far_map *map_make(far_peer *peer, const uint32_t where[2])
{
    const usm_host_api *api = peer->node->api;
    far_near           *n   = peer->node->params.near_memory;
    far_map            *m   = api->heap_alloc(sizeof(*m));

    if (m == NULL)
        return NULL;
    m->peer         = peer;
    m->lease        = (far_lease){peer->claim, area_size(peer->lends)};
    m->bucket_count = BUCKETS;
    m->buckets      = api->heap_alloc(BUCKETS * sizeof(far_near_block *));
    if (m->buckets != NULL)
        m->area = n->ops->map(n, &m->lease, where);
    if (m->area != NULL)
        return m;
    api->heap_free(m->buckets);
    api->heap_free(m);
    return NULL;
}

void far_near_answered(far_peer *peer, const far_header *h)
{
    uint32_t where[2] = {h->store, h->length};
    far_map *m        = h->status == FAR_DONE ? map_make(peer, where) : NULL;

    far_point(peer->node, "die.borrow.mapped");
    peer->near_state = m != NULL ? FAR_NEAR_YES : FAR_NEAR_NO;
    (void)pthread_mutex_lock(&peer->node->lock);
    peer->map = m;
    (void)pthread_mutex_unlock(&peer->node->lock);
}

void far_near_end(far_peer *peer)
{
    far_node *node = peer->node;
    far_map  *m;
    bool      is_free;

    peer->near_state = FAR_NEAR_UNKNOWN;
    (void)pthread_mutex_lock(&node->lock);
    m       = peer->map;
    is_free = m != NULL && m->users == 0;
    if (m != NULL)
        m->is_over = true;
    peer->map = NULL;
    (void)pthread_mutex_unlock(&node->lock);
    if (is_free)
        map_free(m);
}

/* ---- copying: any thread --------------------------------------------------------------------- */

/* Pairs with far_near_take_back(): bytes that were copied before were copied while the area was
 * lent. */
static bool is_lent_still(far_map *m)
{
    return atomic_fetch_add(m->area->word, (uint64_t)0) == m->lease.number;
}

/* The lock is held; returns whether the caller must free the map. */
static bool map_leave(far_map *m)
{
    return --m->users == 0 && m->is_over;
}

static bool copy(usm_transfer *t, size_t at, size_t size)
{
    const near_ticket *k    = ticket_of(t);
    far_map           *m    = k->map;
    far_near          *n    = m->peer->node->params.near_memory;
    char              *data = (char *)t->data + at;

    if (t->op == USM_TRANSFER_FETCH)
        n->ops->copy(n, data, k->bytes + at, size, FAR_COPY_OUT);
    else
        n->ops->copy(n, k->bytes + at, data, size, k->is_first ? FAR_COPY_FIRST : FAR_COPY_IN);
    far_point(m->peer->node, "die.borrow.copied");
    return is_lent_still(m);
}

/* The last piece has ended. */
static void transfer_end(far_node *node, usm_transfer *t, bool has_failed)
{
    usm_status s = USM_OK;

    if (has_failed)
        s = node->api->report(USM_E_IO,
                              "far memory: a lender on this host has reclaimed slot %llu: it "
                              "considered this process lost, or has left",
                              (unsigned long long)t->block);
    else if (t->op == USM_TRANSFER_STORE)
        usm_add_relaxed(&node->near_stored, t->size);
    else
        usm_add_relaxed(&node->near_fetched, t->size);
    t->done(t, s);
}

static void piece_run(far_node *node, usm_transfer *t, size_t at, size_t size)
{
    near_ticket *k  = ticket_of(t);
    far_map     *m  = k->map;
    bool         ok = copy(t, at, size), is_last, is_free = false, has_failed;

    (void)pthread_mutex_lock(&node->lock);
    if (!ok || m->is_over)
        k->has_failed = true;
    has_failed = k->has_failed;
    k->out--;
    is_last = k->out == 0 && k->next == t->size;
    if (is_last)
        is_free = map_leave(m);
    (void)pthread_mutex_unlock(&node->lock);
    if (is_free)
        map_free(m);
    if (is_last)
        transfer_end(node, t, has_failed);
}

bool far_near_run(far_node *node)
{
    size_t done = 0;

    while (done < node->params.piece && usm_load_relaxed(&node->near_waiting) > 0) {
        usm_transfer *t  = NULL;
        size_t        at = 0, size = 0;

        (void)pthread_mutex_lock(&node->lock);
        if (!usm_list_is_empty(&node->near)) {
            near_ticket *k;

            t    = transfer_of(node->near.next);
            k    = ticket_of(t);
            at   = k->next;
            size = t->size - at < node->params.piece ? t->size - at : node->params.piece;
            k->next += size;
            k->out++;
            if (k->next == t->size) {
                usm_list_remove(&k->link);
                usm_sub_relaxed(&node->near_waiting, 1u);
            }
        }
        (void)pthread_mutex_unlock(&node->lock);
        if (t == NULL)
            break;
        piece_run(node, t, at, size);
        done += size;
    }
    return done > 0;
}

/* The lock is held. */
static bool begin(far_map *m, far_near_block *b, usm_transfer *t)
{
    near_ticket *k = ticket_of(t);

    if (t->op == USM_TRANSFER_FETCH && !b->is_stored)
        return false;
    *k = (near_ticket){
        .map = m, .bytes = m->area->bytes + b->at + t->offset, .is_first = !b->is_warm};
    if (t->op == USM_TRANSFER_STORE)
        b->is_stored = b->is_warm = true;
    usm_list_init(&k->link);
    m->users++;
    return true;
}

bool far_near_submit(far_store *store, uint32_t peer, usm_transfer *t)
{
    far_node        *node      = store->node;
    bool             has_begun = false;
    far_map         *m;
    far_near_block **b;

    if (node->params.near_memory == NULL || peer >= node->count || !far_transfer_is_valid(store, t))
        return false;
    (void)pthread_mutex_lock(&node->lock);
    m = node->peers[peer].map;
    b = m != NULL ? block_at(m, store->number, t->block & (UINT64_MAX >> 16)) : NULL;
    if (b == NULL || *b == NULL) {
        (void)pthread_mutex_unlock(&node->lock);
        return false;
    }
    has_begun = begin(m, *b, t);
    if (has_begun && !t->is_awaited) {
        usm_list_append(&node->near, &ticket_of(t)->link);
        usm_add_relaxed(&node->near_waiting, 1u);
    } else if (has_begun) {
        ticket_of(t)->next = t->size;
        ticket_of(t)->out  = 1;
    }
    (void)pthread_mutex_unlock(&node->lock);
    if (!has_begun)
        t->done(t, node->api->report(USM_E_IO, "far memory: slot %llu was never stored",
                                     (unsigned long long)t->block));
    else if (t->is_awaited)
        piece_run(node, t, 0, t->size);
    else if (node->params.wake != NULL)
        node->params.wake(node->params.user);
    return true;
}

/* ---- unused memory: the stepping thread ---------------------------------------------------- */

/* Nothing is used: returns all of it, at once. */
static void trim_all(far_map *m)
{
    far_node       *node = m->peer->node;
    far_near       *n    = node->params.near_memory;
    far_near_block *all[2 * (FAR_SHIFT_MAX + 1)];
    uint64_t        fresh;

    (void)pthread_mutex_lock(&node->lock);
    memcpy(all, m->warm, sizeof(m->warm));
    memcpy(all + FAR_SHIFT_MAX + 1, m->cold, sizeof(m->cold));
    memset(m->warm, 0, sizeof(m->warm));
    memset(m->cold, 0, sizeof(m->cold));
    fresh    = m->fresh;
    m->fresh = m->idle = 0;
    (void)pthread_mutex_unlock(&node->lock);
    for (unsigned i = 0; i < 2 * (FAR_SHIFT_MAX + 1); i++)
        list_free(m, all[i]);
    n->ops->give_back(n, m->area, 0, fresh);
}

static far_near_block *warm_take(far_map *m, uint64_t keep)
{
    for (unsigned i = FAR_SHIFT_MAX + 1; m->idle > keep && i-- > 0;) {
        far_near_block *b = m->warm[i];

        if (b == NULL)
            continue;
        m->warm[i] = b->next;
        m->idle -= (uint64_t)1 << i;
        return b;
    }
    return NULL;
}

static void trim(far_map *m)
{
    far_node *node = m->peer->node;
    far_near *n    = node->params.near_memory;

    for (unsigned i = 0; i < GIVEN_BACK; i++) {
        far_near_block *b;

        (void)pthread_mutex_lock(&node->lock);
        b = warm_take(m, IDLE_KEPT + m->used / 8);
        (void)pthread_mutex_unlock(&node->lock);
        if (b == NULL)
            return;
        n->ops->give_back(n, m->area, b->at, (uint64_t)1 << b->shift);
        b->is_warm = false;
        (void)pthread_mutex_lock(&node->lock);
        b->next           = m->cold[b->shift];
        m->cold[b->shift] = b;
        (void)pthread_mutex_unlock(&node->lock);
    }
}

void far_near_trim(far_node *node)
{
    for (uint32_t i = 0; node->params.near_memory != NULL && i < node->count; i++) {
        far_map *m = node->peers[i].map;
        bool     is_unused;

        if (m == NULL)
            continue;
        (void)pthread_mutex_lock(&node->lock);
        is_unused = m->used == 0 && m->fresh > 0;
        (void)pthread_mutex_unlock(&node->lock);
        if (is_unused)
            trim_all(m);
        else
            trim(m);
    }
}

void far_near_fini(far_node *node)
{
    for (uint32_t i = 0; node->peers != NULL && i < node->count; i++) {
        if (node->peers[i].node == NULL)
            continue;
        far_near_take_back(&node->peers[i]);
        far_near_end(&node->peers[i]);
    }
}
