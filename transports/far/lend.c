/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lending: the blocks that a borrower has here, and its requests.  stage.c receives the bytes of
 * stores.
 *
 *     peer --> stores (number, size of blocks) --> blocks (hashed) --> parts: chunk, operation
 *
 * A kept block counts as a whole against `lend`, whether reserved or stored.  A request is applied
 * once and in the order of operation numbers, not of arrival: each part and each block remembers
 * the last one applied to it.  A forgotten block stays as a tombstone, because older stores may
 * still come, until the borrower has said (`behind`) that it awaits nothing so old. */
#include "lend.h"

#include <string.h>

static uint64_t bytes_of(const lent_store *s)
{
    return (uint64_t)1 << s->shift;
}

uint64_t far_lend_available(const far_node *node)
{
    return node->params.lend > node->lent ? node->params.lend - node->lent : 0;
}

/* ---- stores and blocks ---------------------------------------------------------------------- */

static lent_store *store_find(far_peer *peer, uint32_t number)
{
    USM_LIST_FOREACH (it, &peer->stores) {
        lent_store *s = usm_container_of(it, lent_store, link);

        if (s->number == number)
            return s;
    }
    return NULL;
}

static lent_store *store_make(far_peer *peer, const far_header *h)
{
    lent_store *s = far_alloc(peer->node, sizeof(*s));

    if (s == NULL)
        return NULL;
    s->bucket_count = 64;
    s->buckets      = far_alloc(peer->node, s->bucket_count * sizeof(lent_block *));
    if (s->buckets == NULL) {
        far_free(peer->node, s);
        return NULL;
    }
    s->peer        = peer;
    s->number      = h->store;
    s->shift       = h->shift;
    s->chunk_shift = h->shift < peer->piece_shift ? h->shift : peer->piece_shift;
    usm_list_append(&peer->stores, &s->link);
    return s;
}

lent_store *far_lent_store(far_peer *peer, const far_header *h, far_wire_status *status)
{
    lent_store *s = store_find(peer, h->store);

    if (s == NULL) {
        s = store_make(peer, h);
        if (s == NULL)
            *status = FAR_FULL;
        return s;
    }
    *status = s->closed_by > h->operation ? FAR_STALE : FAR_MISSING;
    return s->closed_by != 0 || s->shift != h->shift ? NULL : s;
}

static lent_block **bucket_of(const lent_store *s, uint64_t block)
{
    return &s->buckets[(block * 0x9e3779b97f4a7c15u >> 32) & (s->bucket_count - 1)];
}

static lent_block *block_find(const lent_store *s, uint64_t number)
{
    lent_block *b = *bucket_of(s, number);

    while (b != NULL && b->number != number)
        b = b->next;
    return b;
}

/* Without memory for more buckets, the chains grow. */
static void buckets_grow(lent_store *s)
{
    far_node    *node = s->peer->node;
    uint32_t     old  = s->bucket_count;
    lent_block **from = s->buckets;
    lent_block **more = far_alloc(node, (size_t)2 * old * sizeof(lent_block *));

    if (more == NULL)
        return;
    s->buckets      = more;
    s->bucket_count = 2 * old;
    for (uint32_t i = 0; i < old; i++) {
        while (from[i] != NULL) {
            lent_block *b = from[i];

            from[i]                  = b->next;
            b->next                  = *bucket_of(s, b->number);
            *bucket_of(s, b->number) = b;
        }
    }
    far_free(node, from);
}

static lent_block *block_make(lent_store *s, uint64_t number)
{
    uint32_t    parts = 1u << (s->shift - s->chunk_shift);
    lent_block *b     = far_alloc(s->peer->node, sizeof(*b) + parts * sizeof(lent_part));

    if (b == NULL)
        return NULL;
    if (s->count >= s->bucket_count)
        buckets_grow(s);
    b->store              = s;
    b->number             = number;
    b->next               = *bucket_of(s, number);
    *bucket_of(s, number) = b;
    s->count++;
    usm_list_init(&b->tomb);
    return b;
}

static void block_free(lent_block *b)
{
    lent_block **at = bucket_of(b->store, b->number);

    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    b->store->count--;
    usm_list_remove(&b->tomb);
    far_free(b->store->peer->node, b);
}

static void block_keep(lent_block *b)
{
    far_peer *peer = b->store->peer;

    b->is_kept = true;
    usm_list_remove(&b->tomb);
    peer->node->lent += bytes_of(b->store);
    if (peer->holds++ == 0)
        usm_add_relaxed(&peer->node->borrowers, 1);
}

static void block_is_near(lent_block *b)
{
    if (!b->is_near)
        usm_add_relaxed(&b->store->peer->node->kept, bytes_of(b->store));
    b->is_near = true;
}

/* Frees its memory; what it remembers stays. */
static void block_empty(lent_block *b)
{
    lent_store *s     = b->store;
    far_node   *node  = s->peer->node;
    uint32_t    parts = 1u << (s->shift - s->chunk_shift);

    for (uint32_t i = 0; i < parts; i++) {
        if (b->parts[i].chunk == NULL)
            continue;
        usm_sub_relaxed(&node->kept, (uint64_t)1 << s->chunk_shift);
        if (b->parts[i].chunk->sends > 0 && !s->peer->has_session) {
            b->parts[i].chunk->is_quarantined = true;
            usm_add_relaxed(&node->quarantined, (uint64_t)1 << s->chunk_shift);
        }
        far_chunk_drop(node, b->parts[i].chunk);
        b->parts[i].chunk = NULL;
    }
    if (!b->is_kept)
        return;
    b->is_kept = false;
    if (b->is_near)
        usm_sub_relaxed(&node->kept, bytes_of(s));
    b->is_near = false;
    node->lent -= bytes_of(s);
    if (--s->peer->holds == 0)
        usm_sub_relaxed(&node->borrowers, 1);
}

static void tomb_make(lent_block *b, uint64_t operation)
{
    b->operation = operation;
    usm_list_remove(&b->tomb);
    usm_list_append(&b->store->peer->tombs, &b->tomb);
}

lent_block *far_lent_block(lent_store *s, uint64_t number, uint64_t operation,
                           far_wire_status *status)
{
    far_node   *node = s->peer->node;
    lent_block *b    = block_find(s, number);

    *status = FAR_STALE;
    if (b != NULL && b->is_kept)
        return b;
    if (b != NULL && b->operation > operation)
        return NULL;
    *status = FAR_FULL;
    if (far_lend_available(node) < bytes_of(s))
        return NULL;
    if (b == NULL)
        b = block_make(s, number);
    if (b == NULL)
        return NULL;
    b->operation = b->kept_by = operation;
    block_keep(b);
    return b;
}

/* ---- the end of a borrower ------------------------------------------------------------------ */

static void store_empty(lent_store *s)
{
    for (uint32_t i = 0; i < s->bucket_count; i++) {
        while (s->buckets[i] != NULL) {
            block_empty(s->buckets[i]);
            block_free(s->buckets[i]);
        }
    }
}

static void store_free(lent_store *s)
{
    far_node *node = s->peer->node;

    store_empty(s);
    usm_list_remove(&s->link);
    far_free(node, s->buckets);
    far_free(node, s);
}

void far_lend_forget_borrower(far_peer *peer)
{
    far_near_take_back(peer);
    while (!usm_list_is_empty(&peer->stores))
        store_free(usm_container_of(peer->stores.next, lent_store, link));
    peer->floor = 0;
    far_stages_reset(peer);
}

/* Operation numbers go on rising over sessions, so old requests stay recognisable. */
void far_lend_suspend_borrower(far_peer *peer)
{
    far_stages_reset(peer);
}

/* The borrower awaits nothing older any more: the tombstones of such requests are not needed. */
static void floor_raise(far_peer *peer, const far_header *h)
{
    uint64_t floor = h->operation - h->behind;

    if (floor <= peer->floor)
        return;
    peer->floor = floor;
    USM_LIST_FOREACH_SAFE (it, next, &peer->tombs) {
        lent_block *b = usm_container_of(it, lent_block, tomb);

        if (b->operation >= floor)
            break;
        block_free(b);
    }
    USM_LIST_FOREACH_SAFE (it, next, &peer->stores) {
        lent_store *s = usm_container_of(it, lent_store, link);

        if (s->closed_by != 0 && s->closed_by < floor)
            store_free(s);
    }
}

bool far_lent_is_stale(far_peer *peer, const far_header *h)
{
    floor_raise(peer, h);
    if (h->operation >= peer->floor)
        return false;
    usm_add_relaxed(&peer->node->stale, 1);
    return true;
}

/* ---- requests ------------------------------------------------------------------------------- */

void far_lent_answer(far_peer *peer, const far_header *h, far_wire_status status)
{
    far_header a = {.op          = FAR_OP_ANSWER,
                    .status      = status,
                    .slot_number = h->slot_number,
                    .operation   = h->operation,
                    .store       = h->store,
                    .block       = far_lend_available(peer->node),
                    .offset      = (uint32_t)h->op};

    far_header_send(peer, a);
}

/* Undoes the reserve `operation` for a block that was not used since. */
static void undo_one(lent_block *b, const far_header *h, uint64_t operation)
{
    if (!b->is_kept || b->kept_by != operation || b->operation != operation || b->is_stored)
        return;
    block_empty(b);
    tomb_make(b, h->operation);
}

static void forget_one(lent_block *b, const far_header *h, uint64_t operation)
{
    const lent_store *s     = b->store;
    uint32_t          parts = 1u << (s->shift - s->chunk_shift);
    uint64_t          last  = b->operation;

    for (uint32_t i = 0; i < parts; i++)
        last = b->parts[i].operation > last ? b->parts[i].operation : last;
    if (last >= operation)
        return;
    block_empty(b);
    memset(b->parts, 0, parts * sizeof(lent_part));
    b->is_stored = false;
    tomb_make(b, h->operation);
}

typedef void block_fn(lent_block *b, const far_header *h, uint64_t operation);

/* Calls fn for the existing blocks of [block, block + length), in the faster of two ways. */
static void blocks_each(lent_store *s, const far_header *h, block_fn *fn, uint64_t operation)
{
    for (uint64_t i = 0; h->length <= s->bucket_count && i < h->length; i++) {
        lent_block *b = block_find(s, h->block + i);

        if (b != NULL)
            fn(b, h, operation);
    }
    for (uint32_t i = 0; h->length > s->bucket_count && i < s->bucket_count; i++) {
        for (lent_block *b = s->buckets[i]; b != NULL; b = b->next) {
            if (b->number >= h->block && b->number - h->block < h->length)
                fn(b, h, operation);
        }
    }
}

/* *is_near: whether they are in mapped memory; new ones will be if all others are. */
static far_wire_status reserve(far_peer *peer, const far_header *h, bool *is_near)
{
    far_wire_status status;
    lent_store     *s    = far_lent_store(peer, h, &status);
    uint64_t        need = 0;

    *is_near = h->slot_number == 1 && peer->lent_area != NULL;
    if (s == NULL)
        return status;
    if (h->length > s->count + (far_lend_available(peer->node) >> s->shift))
        return FAR_FULL;
    for (uint64_t i = 0; i < h->length; i++) {
        lent_block *b = block_find(s, h->block + i);

        if (b == NULL || !b->is_kept)
            need++;
        else if (!b->is_near)
            *is_near = false;
    }
    if (need > far_lend_available(peer->node) >> s->shift)
        return FAR_FULL;
    for (uint64_t i = 0; i < h->length; i++) {
        lent_block *b = far_lent_block(s, h->block + i, h->operation, &status);

        if (b == NULL) {
            blocks_each(s, h, undo_one, h->operation);
            return status;
        }
        if (b->operation < h->operation)
            b->operation = h->operation;
        if (*is_near)
            block_is_near(b);
    }
    return FAR_DONE;
}

static void forget(far_peer *peer, const far_header *h)
{
    lent_store *s = store_find(peer, h->store);

    if (s == NULL || s->closed_by != 0 || s->shift != h->shift)
        return;
    /* A store that was given up may still come, as long as older requests are awaited. */
    for (uint64_t i = 0; h->behind > 0 && i < h->length && h->length <= s->bucket_count; i++) {
        if (block_find(s, h->block + i) == NULL)
            (void)block_make(s, h->block + i);
    }
    blocks_each(s, h, forget_one, h->operation);
}

/* The store stays, empty, as a tombstone. */
static void close_store(far_peer *peer, const far_header *h)
{
    lent_store *s = store_find(peer, h->store);

    if (s == NULL && h->behind > 0)
        s = store_make(peer, h);
    if (s == NULL || s->closed_by != 0)
        return;
    store_empty(s);
    s->closed_by = h->operation;
}

static void undo(far_peer *peer, const far_header *h)
{
    lent_store *s = store_find(peer, h->store);

    if (s != NULL && s->shift == h->shift)
        blocks_each(s, h, undo_one, h->operation - h->offset);
}

static void serve(far_peer *peer, const far_header *h)
{
    lent_store *s = store_find(peer, h->store);
    lent_block *b = s != NULL && s->shift == h->shift ? block_find(s, h->block) : NULL;
    far_chunk  *c = NULL;
    size_t      at;

    if (b != NULL) {
        at = h->offset & (((size_t)1 << s->chunk_shift) - 1);
        if (at + h->length <= (size_t)1 << s->chunk_shift)
            c = b->parts[h->offset >> s->chunk_shift].chunk;
        if (c != NULL && far_serve(peer, h, c, at))
            return;
    }
    far_serve_nothing(peer, h);
}

/* Before a request is handled; after it was applied and not answered yet. */
static void request_point(const far_peer *peer, const far_header *h, bool is_done)
{
    if (h->op == FAR_OP_RESERVE)
        far_point(peer->node, is_done ? "die.lend.reserved" : "die.lend.reserve");
    else if (h->op == FAR_OP_FORGET)
        far_point(peer->node, is_done ? "die.lend.forgotten" : "die.lend.forget");
    else if (h->op == FAR_OP_CLOSE)
        far_point(peer->node, is_done ? "die.lend.closed" : "die.lend.close");
}

/* Requests that change nothing and failure answers do not depend on numbers.  A late fetch is
 * answered too, because that ends the receives which its borrower has in quarantine. */
void far_lend_request(far_peer *peer, const far_header *h)
{
    far_wire_status status  = FAR_DONE;
    bool            is_near = false;
    far_header      a       = *h;

    usm_add_relaxed(&peer->node->requests, 1);
    if (h->op == FAR_OP_FETCH) {
        far_point(peer->node, "die.lend.fetch");
        floor_raise(peer, h);
        serve(peer, h);
        return;
    }
    if (h->op == FAR_OP_STORE) {
        far_stage_announce(peer, h);
        return;
    }
    if (h->op == FAR_OP_NEAR) {
        far_near_lend(peer, h);
        return;
    }
    request_point(peer, h, false);
    if (peer->node->params.lend == 0)
        status = FAR_NO_STORE;
    else if (far_lent_is_stale(peer, h))
        status = FAR_STALE;
    else if (h->op == FAR_OP_RESERVE)
        status = reserve(peer, h, &is_near);
    else if (h->op == FAR_OP_CLOSE)
        close_store(peer, h);
    else if (h->op == FAR_OP_FORGET)
        forget(peer, h);
    else
        undo(peer, h);
    a.slot_number = is_near;
    request_point(peer, h, true);
    far_lent_answer(peer, &a, status);
    far_point(peer->node, "die.lend.answered");
}
