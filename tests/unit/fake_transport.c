/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Transports in memory with faults: see the header.  One lock for each; `done` is called without.
 */
#include "fake_transport.h"

#include "device/registry.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE        4096u
#define PLACE_SHIFT 48

typedef struct fake_page_block {
    unsigned char *data; /* NULL: holds nothing                                             */
    bool           reserved;
    unsigned       readers, writers; /* transfers under way                                 */
} fake_page_block;

typedef struct fake_space {
    fake_page_block *blocks;
    uint64_t         nblocks;
    /* places */
    usm_transport_place info;
    uint64_t            capacity, reserved; /* blocks                                       */
    unsigned            store_eio, fetch_eio;
} fake_space;

typedef struct fake {
    const char *name;
    bool        by_progress, has_places;
    fake_plan   plan;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    fake_counts     counts;
    uint64_t        random;
    uint64_t        stores_seen, fetches_seen;
    size_t          block_size;
    fake_space      spaces[FAKE_PLACES]; /* the first alone, unless it has places            */
    uint32_t        nplaces;
    void (*place_changed)(void *user, uint32_t place, usm_place_state state);
    void         *user;
    usm_transfer *queue;
    bool          stop, has_thread;
    pthread_t     thread;
} fake;

#define FAKE(text, progress, places)                                                               \
    {                                                                                              \
        .name = (text), .by_progress = (progress), .has_places = (places),                         \
        .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER                        \
    }

static fake fakes[FAKE_COUNT] = {FAKE("fake_a", false, false), FAKE("fake_b", false, false),
                                 FAKE("fake_p", true, false),  FAKE("fake_q", true, false),
                                 FAKE("fake_m", false, true),  FAKE("fake_n", true, true)};

static const usm_host_api *host;

uint64_t fake_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Lock held in all of these. */
static bool happens(fake *f, unsigned rate)
{
    return rate > 0 && fake_random(&f->random) % 1000 < rate;
}

static void violate(fake *f, const char *what, uint64_t block)
{
    if (f->counts.violations++ == 0)
        (void)snprintf(f->counts.violation, sizeof f->counts.violation, "%s: %s, block %llu",
                       f->name, what, (unsigned long long)block);
}

static fake_space *space_of(fake *f, uint64_t block)
{
    uint32_t place = (uint32_t)(block >> PLACE_SHIFT);

    if (place >= (f->has_places ? f->nplaces : 1)) {
        violate(f, "a place that there is not", block);
        place = 0;
    }
    return &f->spaces[place];
}

static bool is_lost(fake *f, uint64_t block)
{
    return f->has_places && space_of(f, block)->info.state == USM_PLACE_LOST;
}

static fake_page_block *block_at(fake *f, uint64_t number)
{
    fake_space *s     = space_of(f, number);
    uint64_t    block = number & ((UINT64_C(1) << PLACE_SHIFT) - 1);

    if (block >= s->nblocks) {
        uint64_t         n    = block + 1 > 2 * s->nblocks ? block + 1 : 2 * s->nblocks;
        fake_page_block *more = realloc(s->blocks, n * sizeof *more);

        if (!more)
            abort();
        memset(more + s->nblocks, 0, (n - s->nblocks) * sizeof *more);
        s->blocks  = more;
        s->nblocks = n;
    }
    return &s->blocks[block];
}

static void drop(fake *f, fake_page_block *b)
{
    f->counts.blocks -= b->data != NULL;
    free(b->data);
    b->data = NULL;
}

/* Its room, zeroed when it is new. */
static unsigned char *room_of(fake *f, fake_page_block *b)
{
    if (!b->data) {
        b->data = calloc(1, f->block_size);
        if (!b->data)
            abort();
        f->counts.blocks++;
    }
    return b->data;
}

/* ---- transfers ------------------------------------------------------------------------ */

static bool counted(uint64_t seen, uint64_t at, uint64_t n)
{
    return at > 0 && seen >= at && seen - at < (n ? n : 1);
}

static void stray(fake *f, const usm_transfer *x)
{
    fake_space *s     = space_of(f, x->block);
    uint64_t    other = f->counts.blocks > 1 ? fake_random(&f->random) % s->nblocks : x->block;

    for (uint64_t i = 0; i < s->nblocks; i++) {
        fake_page_block *b = &s->blocks[(other + i) % s->nblocks];

        if ((other + i) % s->nblocks == x->block || !b->data || b->readers || b->writers)
            continue;
        memcpy(b->data + x->offset, x->data, x->size);
        f->counts.stray++;
        return;
    }
}

static usm_status store_bytes(fake *f, const usm_transfer *x)
{
    unsigned char *to = room_of(f, block_at(f, x->block)) + x->offset;

    if (happens(f, f->plan.lost)) {
        f->counts.lost++;
        return USM_OK;
    }
    if (happens(f, f->plan.torn)) {
        f->counts.torn++;
        memcpy(to, x->data, x->size / 2);
        return USM_OK;
    }
    memcpy(to, x->data, x->size);
    if (happens(f, f->plan.stray))
        stray(f, x);
    return USM_OK;
}

static usm_status store(fake *f, const usm_transfer *x)
{
    uint64_t n = ++f->stores_seen;

    f->counts.stores++;
    if (is_lost(f, x->block)) {
        f->counts.eio++;
        return USM_E_IO;
    }
    if (counted(n, f->plan.store_eio_at, f->plan.store_eio_for) || happens(f, f->plan.store_eio) ||
        happens(f, space_of(f, x->block)->store_eio)) {
        /* The medium may have anything now. */
        memset(room_of(f, block_at(f, x->block)) + x->offset, 0xee, x->size / 2);
        f->counts.eio++;
        return USM_E_IO;
    }
    if (happens(f, f->plan.store_full)) {
        f->counts.full++;
        return USM_E_SPILL_FULL;
    }
    return store_bytes(f, x);
}

static usm_status fetch(fake *f, const usm_transfer *x)
{
    const fake_page_block *b = block_at(f, x->block);
    uint64_t               n = ++f->fetches_seen;

    f->counts.fetches++;
    if (is_lost(f, x->block) || counted(n, f->plan.fetch_eio_at, f->plan.fetch_eio_for) ||
        happens(f, f->plan.fetch_eio) || happens(f, space_of(f, x->block)->fetch_eio)) {
        f->counts.eio++;
        return USM_E_IO;
    }
    if (!b->data) {
        violate(f, "fetched what was never stored", x->block);
        return USM_E_IO;
    }
    memcpy(x->data, b->data + x->offset, x->size);
    if (happens(f, f->plan.flip)) {
        uint64_t r = fake_random(&f->random);

        ((unsigned char *)x->data)[r % x->size] ^= (unsigned char)(1u << (r >> 32) % 8);
        f->counts.flips++;
    }
    return USM_OK;
}

/* Lock held, given back meanwhile. */
static void perform(fake *f, usm_transfer *x)
{
    usm_status       st = x->op == USM_TRANSFER_STORE ? store(f, x) : fetch(f, x);
    fake_page_block *b  = block_at(f, x->block);

    b->writers -= x->op == USM_TRANSFER_STORE;
    b->readers -= x->op == USM_TRANSFER_FETCH;
    pthread_mutex_unlock(&f->lock);
    if (st != USM_OK)
        (void)host->report(st, "%s: a planned fault at block %llu", f->name,
                           (unsigned long long)x->block);
    x->done(x, st);
    pthread_mutex_lock(&f->lock);
}

static void watch(fake *f, const usm_transfer *x)
{
    fake_page_block *b        = block_at(f, x->block);
    bool             is_store = x->op == USM_TRANSFER_STORE;

    if (!is_store && x->op != USM_TRANSFER_FETCH)
        violate(f, "a transfer that is none", x->block);
    if (x->size == 0 || x->size % PAGE || x->offset % PAGE || (uintptr_t)x->data % PAGE ||
        x->offset + x->size > f->block_size)
        violate(f, "a bad size, offset or address", x->block);
    if (is_store && !b->reserved && !is_lost(f, x->block))
        violate(f, "stored where nothing is reserved", x->block);
    /* Parts of one block may move together; whole blocks, as those of codecs, may not. */
    if (x->size == f->block_size && (b->writers || (is_store && b->readers)))
        violate(f, "two transfers of one block together", x->block);
    b->writers += is_store;
    b->readers += !is_store;
}

/* The next to end: the first, or any.  pre: there is one. */
static usm_transfer *pick(fake *f)
{
    usm_transfer **at = &f->queue;
    usm_transfer  *x;
    uint64_t       n = 0;

    for (usm_transfer *it = f->queue; it; it = it->next)
        n++;
    for (n = f->plan.shuffle ? fake_random(&f->random) % n : 0; n > 0; n--)
        at = &(*at)->next;
    x   = *at;
    *at = x->next;
    return x;
}

static void *thread_main(void *arg)
{
    fake *f = arg;

    pthread_mutex_lock(&f->lock);
    while (!f->stop || f->queue) {
        if (f->queue)
            perform(f, pick(f));
        else
            pthread_cond_wait(&f->wake, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void enqueue(fake *f, usm_transfer *x)
{
    usm_transfer **at = &f->queue;

    while (*at)
        at = &(*at)->next;
    x->next = NULL;
    *at     = x;
    pthread_cond_signal(&f->wake);
}

static void fake_submit(void *store, usm_transfer *list)
{
    fake *f = store;

    pthread_mutex_lock(&f->lock);
    while (list) {
        usm_transfer *x = list;

        list = x->next; /* x is its owner's after done */
        watch(f, x);
        if (f->by_progress || f->has_thread)
            enqueue(f, x);
        else
            perform(f, x);
    }
    pthread_mutex_unlock(&f->lock);
}

static usm_status fake_progress(void *store, uint32_t timeout_ms)
{
    fake *f = store;

    (void)timeout_ms; /* what waits can end at once */
    pthread_mutex_lock(&f->lock);
    if (f->queue)
        perform(f, pick(f));
    pthread_mutex_unlock(&f->lock);
    return USM_OK;
}

static int fake_wait_fd(void *store)
{
    (void)store;
    return -1;
}

/* ---- room ----------------------------------------------------------------------------- */

static usm_status fake_reserve(void *store, uint64_t first, uint64_t n)
{
    fake       *f     = store;
    uint64_t    fresh = 0;
    usm_status  st    = USM_OK;
    fake_space *s;

    pthread_mutex_lock(&f->lock);
    s = space_of(f, first);
    for (uint64_t i = first; i < first + n; i++)
        fresh += !block_at(f, i)->reserved;
    f->counts.asked++;
    if (fresh != n)
        violate(f, "reserved twice", first);
    if (is_lost(f, first))
        st = host->report(USM_E_IO, "%s: the place is lost", f->name);
    else if (f->counts.reserved + fresh > f->plan.capacity)
        st = host->report(USM_E_SPILL_FULL, "%s holds %llu blocks and no more", f->name,
                          (unsigned long long)f->plan.capacity);
    else if (f->has_places && s->reserved + fresh > s->capacity)
        st = host->report(USM_E_SPILL_FULL, "a place of %s holds %llu blocks and no more", f->name,
                          (unsigned long long)s->capacity);
    for (uint64_t i = first; st == USM_OK && i < first + n; i++)
        block_at(f, i)->reserved = true;
    if (st == USM_OK) {
        f->counts.reserved += fresh;
        f->counts.reserves += n;
        s->reserved += fresh;
    }
    pthread_mutex_unlock(&f->lock);
    if (st == USM_E_SPILL_FULL && f->plan.full_us > 0)
        (void)usleep(f->plan.full_us);
    return st;
}

static void fake_forget(void *store, uint64_t first, uint64_t n)
{
    fake *f = store;

    pthread_mutex_lock(&f->lock);
    for (uint64_t i = first; i < first + n; i++) {
        fake_page_block *b = block_at(f, i);

        if (b->readers || b->writers)
            violate(f, "forgot what is under way", i);
        f->counts.reserved -= b->reserved;
        space_of(f, i)->reserved -= b->reserved;
        b->reserved = false;
        drop(f, b);
    }
    f->counts.forgets += n;
    pthread_mutex_unlock(&f->lock);
}

static usm_status fake_capacity(void *store, usm_transport_capacity *c)
{
    fake *f = store;

    memset(c, 0, sizeof *c);
    pthread_mutex_lock(&f->lock);
    c->total     = f->plan.capacity > UINT64_MAX / f->block_size ? UINT64_MAX
                                                                 : f->plan.capacity * f->block_size;
    c->used      = f->counts.reserved * f->block_size;
    c->available = c->total == UINT64_MAX ? UINT64_MAX : c->total - c->used;
    c->depth     = 8;
    pthread_mutex_unlock(&f->lock);
    return USM_OK;
}

/* ---- open and close --------------------------------------------------------------------- */

static usm_status open_fake(fake *f, const usm_transport_params *params, void **store)
{
    if (f->plan.open != USM_OK)
        return host->report(f->plan.open, "%s does not open", f->name);
    pthread_mutex_lock(&f->lock);
    if (f->counts.opened++ > 0)
        violate(f, "opened twice", 0);
    f->block_size    = params->block_size;
    f->random        = f->plan.seed;
    f->stop          = false;
    f->user          = params->user;
    f->place_changed = params->place_changed;
    f->has_thread    = !f->by_progress && f->plan.thread;
    pthread_mutex_unlock(&f->lock);
    if (f->has_thread && pthread_create(&f->thread, NULL, thread_main, f) != 0)
        abort();
    *store = f;
    return USM_OK;
}

static void fake_close(void *store)
{
    fake *f = store;

    pthread_mutex_lock(&f->lock);
    if (f->queue)
        violate(f, "closed with transfers under way", 0);
    f->stop = true;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
    if (f->has_thread)
        pthread_join(f->thread, NULL);
    pthread_mutex_lock(&f->lock);
    for (unsigned p = 0; p < FAKE_PLACES; p++) {
        fake_space *s = &f->spaces[p];

        for (uint64_t i = 0; i < s->nblocks; i++)
            drop(f, &s->blocks[i]);
        free(s->blocks);
        s->blocks   = NULL;
        s->nblocks  = 0;
        s->reserved = 0;
    }
    f->place_changed   = NULL;
    f->counts.reserved = 0;
    f->counts.opened--;
    f->has_thread = false;
    pthread_mutex_unlock(&f->lock);
}

static usm_status fake_sync(void *store)
{
    (void)store;
    return USM_OK;
}

static void fake_describe(void *store, char *text, size_t cap)
{
    const fake *f = store;

    (void)snprintf(text, cap, "%s, in memory", f->name);
}

/* ---- places ----------------------------------------------------------------------------- */

static uint32_t fake_places(void *store)
{
    fake    *f = store;
    uint32_t n;

    pthread_mutex_lock(&f->lock);
    n = f->nplaces;
    pthread_mutex_unlock(&f->lock);
    return n;
}

static usm_status fake_place(void *store, uint32_t place, usm_transport_place *info)
{
    fake      *f  = store;
    usm_status st = USM_OK;

    pthread_mutex_lock(&f->lock);
    if (place < f->nplaces)
        *info = f->spaces[place].info;
    else
        st = host->report(USM_E_INVALID, "%s has no place %u", f->name, (unsigned)place);
    pthread_mutex_unlock(&f->lock);
    return st;
}

static void tell_place(fake *f, uint32_t place, usm_place_state state)
{
    void (*notify)(void *, uint32_t, usm_place_state);
    void *user;

    pthread_mutex_lock(&f->lock);
    notify = f->place_changed;
    user   = f->user;
    pthread_mutex_unlock(&f->lock);
    if (notify)
        notify(user, place, state);
}

uint32_t fake_place_add(fake_name name, const char *domain, uint64_t capacity)
{
    fake       *f = &fakes[name];
    fake_space *s;
    uint32_t    place;

    pthread_mutex_lock(&f->lock);
    if (f->nplaces == FAKE_PLACES)
        abort();
    place = f->nplaces;
    s     = &f->spaces[place];
    memset(s, 0, sizeof *s);
    s->capacity      = capacity;
    s->info.state    = USM_PLACE_UP;
    s->info.capacity = (capacity ? capacity : 1) << 20;
    (void)snprintf(s->info.domain, sizeof s->info.domain, "%s", domain);
    f->nplaces++;
    pthread_mutex_unlock(&f->lock);
    tell_place(f, place, USM_PLACE_UP);
    return place;
}

static void lose(fake *f, fake_space *s)
{
    for (uint64_t i = 0; i < s->nblocks; i++) {
        f->counts.reserved -= s->blocks[i].reserved;
        s->blocks[i].reserved = false;
        drop(f, &s->blocks[i]);
    }
    s->reserved = 0;
}

void fake_place_set(fake_name name, uint32_t place, usm_place_state state)
{
    fake *f = &fakes[name];

    pthread_mutex_lock(&f->lock);
    f->spaces[place].info.state = state;
    if (state == USM_PLACE_LOST)
        lose(f, &f->spaces[place]);
    pthread_mutex_unlock(&f->lock);
    tell_place(f, place, state);
}

void fake_place_fail(fake_name name, uint32_t place, unsigned store_eio, unsigned fetch_eio)
{
    fake *f = &fakes[name];

    pthread_mutex_lock(&f->lock);
    f->spaces[place].store_eio = store_eio;
    f->spaces[place].fetch_eio = fetch_eio;
    pthread_mutex_unlock(&f->lock);
}

void fake_place_room(fake_name name, uint32_t place, uint64_t capacity)
{
    fake *f = &fakes[name];

    pthread_mutex_lock(&f->lock);
    f->spaces[place].capacity = capacity;
    pthread_mutex_unlock(&f->lock);
}

uint64_t fake_place_blocks(fake_name name, uint32_t place)
{
    fake    *f = &fakes[name];
    uint64_t n = 0;

    pthread_mutex_lock(&f->lock);
    for (uint64_t i = 0; i < f->spaces[place].nblocks; i++)
        n += f->spaces[place].blocks[i].data != NULL;
    pthread_mutex_unlock(&f->lock);
    return n;
}

uint64_t fake_place_rot(fake_name name, uint32_t place, uint64_t every, uint64_t *random)
{
    fake    *f = &fakes[name];
    uint64_t n = 0, seen = 0;

    pthread_mutex_lock(&f->lock);
    for (uint64_t i = 0; i < f->spaces[place].nblocks; i++) {
        fake_page_block *b = &f->spaces[place].blocks[i];
        uint64_t         r = fake_random(random);

        if (!b->data || b->readers || b->writers || seen++ % every != 0)
            continue;
        b->data[r % f->block_size] ^= (unsigned char)(1u << (r >> 40) % 8);
        n++;
    }
    pthread_mutex_unlock(&f->lock);
    return n;
}

/* A table, its open() and its entry for each: an entry is given no name. */
#define FAKE_TABLE(packet, index, capabilities)                                                    \
    static usm_status open_##packet(const usm_transport_params *params, void **store)              \
    {                                                                                              \
        return open_fake(&fakes[index], params, store);                                            \
    }                                                                                              \
    static const usm_transport_ops *entry_##packet(const usm_host_api *api)                        \
    {                                                                                              \
        static const usm_transport_ops ops = {                                                     \
            .abi         = USM_MODULE_ABI,                                                         \
            .struct_size = sizeof ops,                                                             \
            .name        = "fake_" #packet,                                                        \
            .caps        = (capabilities),                                                         \
            .open        = open_##packet,                                                          \
            .close       = fake_close,                                                             \
            .capacity    = fake_capacity,                                                          \
            .reserve     = fake_reserve,                                                           \
            .forget      = fake_forget,                                                            \
            .submit      = fake_submit,                                                            \
            .sync        = fake_sync,                                                              \
            .describe    = fake_describe,                                                          \
            .progress    = (capabilities)&USM_TRANSPORT_CAP_PROGRESS ? fake_progress : NULL,       \
            .wait_fd     = (capabilities)&USM_TRANSPORT_CAP_PROGRESS ? fake_wait_fd : NULL,        \
            .places      = (capabilities)&USM_TRANSPORT_CAP_PLACES ? fake_places : NULL,           \
            .place       = (capabilities)&USM_TRANSPORT_CAP_PLACES ? fake_place : NULL,            \
        };                                                                                         \
        host = api;                                                                                \
        return &ops;                                                                               \
    }

FAKE_TABLE(a, FAKE_A, 0)
FAKE_TABLE(b, FAKE_B, 0)
FAKE_TABLE(p, FAKE_P, USM_TRANSPORT_CAP_PROGRESS)
FAKE_TABLE(q, FAKE_Q, USM_TRANSPORT_CAP_PROGRESS)
FAKE_TABLE(m, FAKE_M, USM_TRANSPORT_CAP_PLACES)
FAKE_TABLE(n, FAKE_N, USM_TRANSPORT_CAP_PLACES | USM_TRANSPORT_CAP_PROGRESS)

/* ---- for tests ---------------------------------------------------------------------------- */

void fake_reset(void)
{
    static bool registered;

    for (unsigned i = 0; i < FAKE_COUNT; i++) {
        fake *f = &fakes[i];

        memset(&f->plan, 0, sizeof f->plan);
        memset(&f->counts, 0, sizeof f->counts);
        f->plan.capacity = UINT64_MAX;
        f->nplaces       = 0;
        f->stores_seen = f->fetches_seen = 0;
    }
    if (registered)
        return;
    registered = true;
    usm__registry_add_transport("fake_a", entry_a);
    usm__registry_add_transport("fake_b", entry_b);
    usm__registry_add_transport("fake_p", entry_p);
    usm__registry_add_transport("fake_q", entry_q);
    usm__registry_add_transport("fake_m", entry_m);
    usm__registry_add_transport("fake_n", entry_n);
}

fake_plan *fake_plan_of(fake_name name)
{
    fakes[name].stores_seen = fakes[name].fetches_seen = 0;
    return &fakes[name].plan;
}

fake_counts fake_counts_of(fake_name name)
{
    fake       *f = &fakes[name];
    fake_counts counts;

    pthread_mutex_lock(&f->lock);
    counts = f->counts;
    pthread_mutex_unlock(&f->lock);
    return counts;
}

const char *fake_name_of(fake_name name)
{
    return fakes[name].name;
}

unsigned char *fake_block(fake_name name, uint64_t block)
{
    const fake_space *s = &fakes[name].spaces[block >> PLACE_SHIFT];
    uint64_t          i = block & ((UINT64_C(1) << PLACE_SHIFT) - 1);

    return i < s->nblocks ? s->blocks[i].data : NULL;
}

uint64_t fake_nth(fake_name name, uint64_t n)
{
    for (uint64_t p = 0; p < FAKE_PLACES; p++)
        for (uint64_t i = 0; i < fakes[name].spaces[p].nblocks; i++)
            if (fakes[name].spaces[p].blocks[i].data && n-- == 0)
                return p << PLACE_SHIFT | i;
    return UINT64_MAX;
}
