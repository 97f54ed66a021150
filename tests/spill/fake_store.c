/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See fake_store.h.  Called by libusm's tiers, as any transport, and by the tests. */
#include "fake_store.h"

#include "device/registry.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS_MAX (1u << 20)

const char *const fake_fault_names[FAKE_FAULTS] = {
    "read EIO",  "bad block", "write EIO",     "late write EIO", "short write",
    "disk full", "bit flip",  "swapped block", "stale block"};

typedef struct block {
    unsigned char *right;       /* what was stored; NULL: nothing                                 */
    unsigned char *shown;       /* instead, since it was damaged; NULL: right                     */
    unsigned       bad_fetches; /* to come; UINT32_MAX: until healed                        */
    bool           is_stored;   /* and not only reserved                                    */
} block;

typedef struct store {
    struct store *next;
    size_t        block_size;
    uint64_t      quota;     /* blocks                                                          */
    bool          is_lifted; /* the quota does not count now                                */
    uint64_t      held;
    uint64_t      nblocks; /* of the table                                                  */
    block        *blocks;
} store;

typedef struct pending {
    usm_transfer *t;
    store        *s;
    unsigned      delay;   /* rounds it lets others go first                                */
    bool          is_late; /* and fails                                                     */
} pending;

static struct {
    pthread_mutex_t lock;
    uint64_t        random;
    unsigned        chance[FAKE_FAULTS];
    unsigned        lose_every, stores_seen;
    bool            verbose;
    fake_counts     counts;
    store          *stores;
    pending        *list;
    size_t          n, cap;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .random = 88172645463325252u};

/* ---- chance -------------------------------------------------------------------------- */

static uint64_t next_random(void)
{
    fake.random ^= fake.random << 13;
    fake.random ^= fake.random >> 7;
    fake.random ^= fake.random << 17;
    return fake.random;
}

static size_t pick(size_t n)
{
    return (size_t)(next_random() >> 11) % n;
}

static bool hits(fake_fault fault)
{
    bool hit = fake.chance[fault] > 0 && pick(10000) < fake.chance[fault];

    fake.counts.injected[fault] += hit;
    return hit;
}

/* ---- blocks -------------------------------------------------------------------------- */

static void *must_have(void *p)
{
    if (p == NULL) {
        perror("fake store");
        abort();
    }
    return p;
}

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fake store: not as usm/transport.h says: %s\n", what);
    abort();
}

static block *block_of(store *s, uint64_t number)
{
    must(number < BLOCKS_MAX, "block numbers are small");
    if (number >= s->nblocks) {
        uint64_t n = number + 64;

        s->blocks = must_have(realloc(s->blocks, n * sizeof(block)));
        memset(s->blocks + s->nblocks, 0, (n - s->nblocks) * sizeof(block));
        s->nblocks = n;
    }
    return &s->blocks[number];
}

static void set_damage(block *b, unsigned char *shown)
{
    fake.counts.damaged += shown != NULL;
    fake.counts.damaged -= b->shown != NULL;
    free(b->shown);
    b->shown = shown;
}

static unsigned char *copy_of(const store *s, const unsigned char *bytes)
{
    unsigned char *copy = must_have(malloc(s->block_size));

    memcpy(copy, bytes, s->block_size);
    return copy;
}

static const unsigned char *shown_of(const block *b)
{
    return b->shown != NULL ? b->shown : b->right;
}

static void forget_block(store *s, block *b)
{
    if (b->right == NULL)
        return;
    set_damage(b, NULL);
    free(b->right);
    fake.counts.stored -= b->is_stored;
    *b = (block){NULL, NULL, 0, false};
    s->held--;
    fake.counts.blocks--;
}

static block *any_other(store *s, const block *b)
{
    for (int tries = 0; tries < 8; tries++) {
        block *other = &s->blocks[pick(s->nblocks)];

        if (other != b && other->right != NULL)
            return other;
    }
    return NULL;
}

static void make(store *s, block *b)
{
    if (b->right != NULL)
        return;
    b->right = must_have(calloc(1, s->block_size));
    /* What was on the medium before. */
    memset(b->right, 0xdb, s->block_size);
    s->held++;
    fake.counts.blocks++;
}

static void put_bytes(block *b, size_t offset, const void *data, size_t size)
{
    memcpy(b->right + offset, data, size);
    if (b->shown != NULL)
        memcpy(b->shown + offset, data, size);
}

static void damage_after_store(store *s, block *b, const usm_transfer *t)
{
    block *other;

    if (hits(FAKE_FLIP)) {
        unsigned char *shown = copy_of(s, shown_of(b));

        shown[t->offset + pick(t->size)] ^= (unsigned char)(1u << pick(8));
        set_damage(b, shown);
    }
    other = fake.chance[FAKE_SWAP] > 0 ? any_other(s, b) : NULL;
    if (other != NULL && hits(FAKE_SWAP)) {
        unsigned char *mine   = copy_of(s, shown_of(other));
        unsigned char *theirs = copy_of(s, shown_of(b));

        set_damage(b, mine);
        set_damage(other, theirs);
    }
}

static usm_status store_block(store *s, const usm_transfer *t)
{
    block *b = block_of(s, t->block);

    fake.counts.stores++;
    if (hits(FAKE_WRITE_EIO))
        return USM_E_IO;
    if (b->right == NULL && hits(FAKE_FULL))
        return USM_E_SPILL_FULL;
    make(s, b);
    fake.counts.stored += !b->is_stored;
    b->is_stored = true;
    if (hits(FAKE_WRITE_SHORT)) {
        put_bytes(b, t->offset, t->data, pick(t->size));
        return USM_E_IO;
    }
    if (fake.lose_every > 0 && ++fake.stores_seen % fake.lose_every == 0)
        return USM_OK;
    if (hits(FAKE_STALE)) {
        unsigned char *before = copy_of(s, shown_of(b));

        memcpy(b->right + t->offset, t->data, t->size);
        set_damage(b, before);
        return USM_OK;
    }
    put_bytes(b, t->offset, t->data, t->size);
    damage_after_store(s, b, t);
    return USM_OK;
}

static usm_status fetch_block(store *s, const usm_transfer *t)
{
    block *b = block_of(s, t->block);

    fake.counts.fetches++;
    must(b->is_stored, "what was never stored, or was forgotten, is not fetched");
    if (b->bad_fetches == 0 && hits(FAKE_READ_EIO))
        b->bad_fetches = 1 + (unsigned)pick(3);
    if (b->bad_fetches == 0 && hits(FAKE_READ_BAD))
        b->bad_fetches = UINT32_MAX;
    if (b->bad_fetches > 0) {
        if (b->bad_fetches != UINT32_MAX)
            b->bad_fetches--;
        memset(t->data, 0xee, t->size); /* a transfer that failed leaves anything */
        return USM_E_IO;
    }
    memcpy(t->data, shown_of(b) + t->offset, t->size);
    return USM_OK;
}

/* ---- transfers ----------------------------------------------------------------------- */

static void check_transfer(const store *s, const usm_transfer *t)
{
    must(t->size > 0 && t->size % 4096 == 0 && t->offset % 4096 == 0, "whole 4 KiB");
    must(t->offset < s->block_size && t->size <= s->block_size - t->offset, "inside the block");
    must(((uintptr_t)t->data & 4095) == 0, "data is aligned to 4 KiB");
    for (size_t i = 0; i < fake.n; i++) {
        const usm_transfer *o = fake.list[i].t;

        must(fake.list[i].s != s || o->block != t->block || o->offset >= t->offset + t->size ||
                 t->offset >= o->offset + o->size ||
                 (o->op == USM_TRANSFER_FETCH && t->op == USM_TRANSFER_FETCH),
             "no store is under way together with another transfer of the same bytes");
    }
}

static void notify(const pending *p, usm_status st)
{
    uint64_t damaged = fake.counts.damaged;

    if (fake.verbose)
        printf("          %s block %llu [%zu, +%zu): %s; %llu damaged\n",
               p->t->op == USM_TRANSFER_STORE ? "store" : "fetch", (unsigned long long)p->t->block,
               p->t->offset, p->t->size, usm_status_name(st), (unsigned long long)damaged);
}

/* Ends one, chosen by chance.  pre: locked, n > 0; unlocked meanwhile. */
static void end_one(void)
{
    size_t     i = pick(fake.n);
    pending    p;
    usm_status st;

    for (size_t tries = 0; fake.list[i].delay > 0 && tries < 16; tries++) {
        fake.list[i].delay--;
        i = pick(fake.n);
    }
    p            = fake.list[i];
    fake.list[i] = fake.list[--fake.n];
    st           = p.t->op == USM_TRANSFER_STORE ? store_block(p.s, p.t) : fetch_block(p.s, p.t);
    if (st == USM_OK && p.is_late)
        st = USM_E_IO;
    notify(&p, st);
    (void)pthread_mutex_unlock(&fake.lock);
    p.t->done(p.t, st);
    (void)pthread_mutex_lock(&fake.lock);
}

static void submit_one(store *s, usm_transfer *t)
{
    bool is_late;

    check_transfer(s, t);
    is_late = t->op == USM_TRANSFER_STORE && hits(FAKE_WRITE_LATE);
    if (fake.n == fake.cap) {
        fake.cap  = fake.cap ? 2 * fake.cap : 64;
        fake.list = must_have(realloc(fake.list, fake.cap * sizeof(pending)));
    }
    fake.list[fake.n++] = (pending){t, s, is_late ? 64 : 0, is_late};
}

static void fake_submit(void *store_, usm_transfer *list)
{
    (void)pthread_mutex_lock(&fake.lock);
    while (list != NULL) {
        usm_transfer *next = list->next; /* done() may reuse the transfer */

        submit_one(store_, list);
        list = next;
    }
    while (fake.n > 0 && pick(8) == 0)
        end_one();
    (void)pthread_mutex_unlock(&fake.lock);
}

static usm_status fake_progress(void *store_, uint32_t timeout_ms)
{
    (void)store_;
    (void)timeout_ms; /* something ends at once, or nothing is under way */
    (void)pthread_mutex_lock(&fake.lock);
    if (fake.n > 0)
        end_one();
    while (fake.n > 0 && pick(3) == 0)
        end_one();
    (void)pthread_mutex_unlock(&fake.lock);
    return USM_OK;
}

static int fake_wait_fd(void *store_)
{
    (void)store_;
    return -1;
}

/* ---- stores -------------------------------------------------------------------------- */

static usm_status fake_open(const usm_transport_params *params, void **out)
{
    store      *s     = must_have(calloc(1, sizeof(store)));
    const char *quota = strstr(params->config, "quota=");

    must(params->home == NULL, "no homes were promised");
    must(params->block_size >= 4096 && (params->block_size & (params->block_size - 1)) == 0,
         "the block size is a power of two");
    s->block_size = params->block_size;
    s->quota      = quota != NULL ? strtoull(quota + 6, NULL, 10) : UINT64_MAX;
    (void)pthread_mutex_lock(&fake.lock);
    s->next     = fake.stores;
    fake.stores = s;
    (void)pthread_mutex_unlock(&fake.lock);
    *out = s;
    return USM_OK;
}

static void fake_close(void *store_)
{
    store *s = store_, **at = &fake.stores;

    (void)pthread_mutex_lock(&fake.lock);
    for (size_t i = 0; i < fake.n; i++)
        must(fake.list[i].s != s, "no transfer is under way when a store is closed");
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    for (uint64_t i = 0; i < s->nblocks; i++)
        forget_block(s, &s->blocks[i]);
    (void)pthread_mutex_unlock(&fake.lock);
    free(s->blocks);
    free(s);
}

static usm_status fake_capacity(void *store_, usm_transport_capacity *c)
{
    const store *s = store_;

    (void)pthread_mutex_lock(&fake.lock);
    *c = (usm_transport_capacity){
        .total     = s->quota == UINT64_MAX ? UINT64_MAX : s->quota * s->block_size,
        .used      = s->held * s->block_size,
        .available = s->quota == UINT64_MAX ? UINT64_MAX
                     : s->held < s->quota   ? (s->quota - s->held) * s->block_size
                                            : 0,
        .depth     = 8};
    (void)pthread_mutex_unlock(&fake.lock);
    return USM_OK;
}

static usm_status fake_reserve(void *store_, uint64_t first, uint64_t n)
{
    store     *s  = store_;
    usm_status st = USM_OK;

    (void)pthread_mutex_lock(&fake.lock);
    if (!s->is_lifted && s->held + n > s->quota) {
        fake.counts.refused++;
        st = USM_E_SPILL_FULL;
    } else if (hits(FAKE_FULL)) {
        st = USM_E_SPILL_FULL;
    }
    for (uint64_t i = 0; st == USM_OK && i < n; i++)
        make(s, block_of(s, first + i));
    (void)pthread_mutex_unlock(&fake.lock);
    if (st != USM_OK)
        return usm__registry_api.report(st, "the fake store has no room for %llu blocks",
                                        (unsigned long long)n);
    return st;
}

static void fake_forget(void *store_, uint64_t first, uint64_t n)
{
    store *s = store_;

    (void)pthread_mutex_lock(&fake.lock);
    for (uint64_t i = first; i < first + n; i++) {
        for (size_t k = 0; k < fake.n; k++)
            must(fake.list[k].s != s || fake.list[k].t->block != i,
                 "nothing of a block that is forgotten is under way");
        forget_block(s, block_of(s, i));
        fake.counts.forgotten++;
    }
    (void)pthread_mutex_unlock(&fake.lock);
}

static usm_status fake_sync(void *store_)
{
    (void)store_;
    return USM_OK;
}

static void fake_describe(void *store_, char *text, size_t cap)
{
    (void)store_;
    (void)snprintf(text, cap, "memory of a test");
}

static const usm_transport_ops fake_ops = {.abi         = USM_MODULE_ABI,
                                           .struct_size = sizeof(usm_transport_ops),
                                           .name        = "fake",
                                           .caps        = USM_TRANSPORT_CAP_PROGRESS,
                                           .open        = fake_open,
                                           .close       = fake_close,
                                           .capacity    = fake_capacity,
                                           .reserve     = fake_reserve,
                                           .forget      = fake_forget,
                                           .submit      = fake_submit,
                                           .sync        = fake_sync,
                                           .describe    = fake_describe,
                                           .progress    = fake_progress,
                                           .wait_fd     = fake_wait_fd};

static const usm_transport_ops *fake_entry(const usm_host_api *api)
{
    (void)api;
    return &fake_ops;
}

/* ---- for the tests ------------------------------------------------------------------- */

void fake_register(void)
{
    usm__registry_add_transport("fake", fake_entry);
}

void fake_seed(uint64_t seed)
{
    fake.random = (seed + 1) * 0x9E3779B97F4A7C15u | 1;
    for (int i = 0; i < 4; i++)
        (void)next_random();
}

void fake_set_fault(fake_fault fault, unsigned chance)
{
    (void)pthread_mutex_lock(&fake.lock);
    fake.chance[fault] = chance;
    (void)pthread_mutex_unlock(&fake.lock);
}

bool fake_hits(fake_fault fault)
{
    bool hit;

    (void)pthread_mutex_lock(&fake.lock);
    hit = hits(fault);
    (void)pthread_mutex_unlock(&fake.lock);
    return hit;
}

void fake_no_faults(void)
{
    for (int i = 0; i < FAKE_FAULTS; i++)
        fake_set_fault((fake_fault)i, 0);
}

void fake_heal(void)
{
    (void)pthread_mutex_lock(&fake.lock);
    for (store *s = fake.stores; s != NULL; s = s->next) {
        s->is_lifted = true;
        for (uint64_t i = 0; i < s->nblocks; i++) {
            set_damage(&s->blocks[i], NULL);
            s->blocks[i].bad_fetches = 0;
        }
    }
    (void)pthread_mutex_unlock(&fake.lock);
}

void fake_enforce_quotas(void)
{
    (void)pthread_mutex_lock(&fake.lock);
    for (store *s = fake.stores; s != NULL; s = s->next)
        s->is_lifted = false;
    (void)pthread_mutex_unlock(&fake.lock);
}

fake_counts fake_get_counts(void)
{
    fake_counts c;

    (void)pthread_mutex_lock(&fake.lock);
    c         = fake.counts;
    c.pending = fake.n;
    (void)pthread_mutex_unlock(&fake.lock);
    return c;
}

void fake_set_verbose(bool verbose)
{
    fake.verbose = verbose;
}

void fake_plant_loss(unsigned every)
{
    fake.lose_every = every;
}
