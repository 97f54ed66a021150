/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The blocks of a store: which are reserved, which have a key at a server, and which keys are to be
 * removed.  Also here: the quota.  A server promises no room, so a reservation compares with the
 * quota and with what the servers may hold (maxmemory); a server that is full nevertheless, because
 * it has other clients, refuses the store (USM_E_SPILL_FULL).
 *
 * Removing is late: forget() only marks a block, and the server's thread sends UNLINK with what it
 * sends anyway.  A block that is stored again before that needs none. */
#include "internal.h"

static bool has(const uint64_t *bits, uint64_t i)
{
    return bits[i / 64] >> (i % 64) & 1u;
}

static void set(uint64_t *bits, _Atomic(uint64_t) *count, uint64_t block, bool on)
{
    const uint64_t bit = UINT64_C(1) << (block % 64);

    if (has(bits, block) == on)
        return;
    bits[block / 64] ^= bit;
    if (on)
        (void)usm_add_relaxed(count, 1u);
    else
        (void)usm_sub_relaxed(count, 1u);
}

/* Makes bits for blocks [0, n). */
static bool cover(usm_valkey_store *s, uint64_t n)
{
    usm_valkey_room *r     = &s->room;
    uint64_t         more  = r->nbits ? r->nbits : 1024;
    uint64_t **const all[] = {&r->used, &r->stored, &r->stale};
    uint64_t        *fresh;

    if (n <= r->nbits)
        return true;
    if (n > UINT64_MAX / 2 / s->block_size)
        return false;
    while (more < n)
        more *= 2;
    fresh = s->api->heap_alloc(3 * (more / 8));
    if (!fresh)
        return false;
    for (size_t i = 0; i < 3; i++)
        if (r->nbits)
            memcpy(fresh + i * (more / 64), *all[i], r->nbits / 8);
    s->api->heap_free(r->used); /* which the other two are a part of */
    for (size_t i = 0; i < 3; i++)
        *all[i] = fresh + i * (more / 64);
    r->nbits = more;
    return true;
}

uint64_t usm_valkey_limit(usm_valkey_store *s)
{
    const unsigned n   = usm_load_acquire(&s->nservers);
    uint64_t       sum = 0;

    if (usm_load_relaxed(&s->is_cluster))
        return s->config.quota; /* the keys of others are not spread as evenly as ours */
    for (unsigned i = 0; i < n; i++) {
        const uint64_t maximum = usm_load_relaxed(&s->servers[i]->maximum);

        if (maximum == 0)
            return s->config.quota;
        sum += maximum;
    }
    return sum < s->config.quota ? sum : s->config.quota;
}

usm_status usm_valkey_reserve(usm_valkey_store *s, uint64_t first, uint64_t n, uint64_t step)
{
    usm_valkey_room *r    = &s->room;
    const uint64_t   most = usm_valkey_limit(s);
    uint64_t         more = 0;
    usm_status       st   = USM_OK;

    (void)pthread_mutex_lock(&r->lock);
    if (n > (UINT64_MAX - first) / step || !cover(s, first + n * step)) {
        st = s->api->report(USM_E_NO_MEMORY, "no memory for the table of a store");
    } else {
        for (uint64_t i = 0; i < n; i++)
            more += !has(r->used, first + i * step);
        if (more > 0 && (usm_load_relaxed(&r->nused) + more) > most / s->block_size)
            st = s->api->report(USM_E_SPILL_FULL,
                                "%llu MiB are all that the quota and the servers allow; raise "
                                "quota= of USM_SPILL, or maxmemory of the servers",
                                (unsigned long long)(most >> 20));
        else
            for (uint64_t i = 0; i < n; i++)
                set(r->used, &r->nused, first + i * step, true);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return st;
}

bool usm_valkey_forget(usm_valkey_store *s, uint64_t first, uint64_t n, uint64_t step)
{
    usm_valkey_room *r       = &s->room;
    bool             is_news = false;

    (void)pthread_mutex_lock(&r->lock);
    for (uint64_t i = first; i < r->nbits && n > 0; i += step, n--) {
        set(r->used, &r->nused, i, false);
        if (!has(r->stored, i))
            continue;
        set(r->stored, &r->nstored, i, false);
        set(r->stale, &r->nstale, i, true);
        is_news = true;
    }
    (void)pthread_mutex_unlock(&r->lock);
    return is_news;
}

void usm_valkey_room_drop_place(usm_valkey_store *s, unsigned place)
{
    usm_valkey_room *r = &s->room;

    (void)pthread_mutex_lock(&r->lock);
    for (uint64_t i = place; i < r->nbits; i += s->stride) {
        set(r->used, &r->nused, i, false);
        set(r->stored, &r->nstored, i, false);
        set(r->stale, &r->nstale, i, false);
    }
    (void)pthread_mutex_unlock(&r->lock);
}

bool usm_valkey_note_store(usm_valkey_store *s, uint64_t block, bool *is_stale)
{
    usm_valkey_room *r = &s->room;
    bool             had;

    (void)pthread_mutex_lock(&r->lock);
    had       = block < r->nbits && has(r->stored, block);
    *is_stale = block < r->nbits && has(r->stale, block);
    if (block < r->nbits) {
        set(r->stored, &r->nstored, block, true);
        set(r->stale, &r->nstale, block, false);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return had;
}

void usm_valkey_drop(usm_valkey_store *s, uint64_t block)
{
    (void)pthread_mutex_lock(&s->room.lock);
    if (block < s->room.nbits)
        set(s->room.stale, &s->room.nstale, block, true);
    (void)pthread_mutex_unlock(&s->room.lock);
}

/* The lock is held. */
static bool next(usm_valkey_store *s, const uint64_t *bits, unsigned server, uint64_t *block)
{
    for (uint64_t i = *block; i < s->room.nbits; i++) {
        if (bits[i / 64] >> (i % 64) == 0)
            i |= 63; /* none is left in this word */
        else if (has(bits, i) && usm_valkey_route(s, i) == server) {
            *block = i;
            return true;
        }
    }
    return false;
}

bool usm_valkey_next_stale(usm_valkey_store *s, unsigned server, uint64_t *block)
{
    usm_valkey_room *r = &s->room;
    bool             found;

    if (usm_load_relaxed(&r->nstale) == 0)
        return false;
    (void)pthread_mutex_lock(&r->lock);
    found = next(s, r->stale, server, block);
    if (found)
        set(r->stale, &r->nstale, *block, false);
    (void)pthread_mutex_unlock(&r->lock);
    return found;
}

bool usm_valkey_next_stored(usm_valkey_store *s, unsigned server, uint64_t *block)
{
    bool found;

    (void)pthread_mutex_lock(&s->room.lock);
    found = next(s, s->room.stored, server, block);
    (void)pthread_mutex_unlock(&s->room.lock);
    return found;
}

usm_status usm_valkey_room_init(usm_valkey_store *s)
{
    const int error = pthread_mutex_init(&s->room.lock, NULL);

    return error ? s->api->report(USM_E_SYSTEM, "no lock could be made: error %d", error) : USM_OK;
}

void usm_valkey_room_fini(usm_valkey_store *s)
{
    s->api->heap_free(s->room.used);
    (void)pthread_mutex_destroy(&s->room.lock);
}
