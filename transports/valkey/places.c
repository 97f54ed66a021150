/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Replica targets ("places"), where the engine makes copies: a server that dies takes one copy of a
 * block with it.  The engine says which place a block is in (block >> 48); without copies
 * (place_changed is NULL) the store deals blocks out itself.
 *
 * A shard is what fails alone: an independent server, or a master of a cluster with the slots it had
 * when the store was opened.  Its owner is the server that has it now: in a cluster that changes when a
 * replica takes over.  A place is the memory of a shard from one loss to the next:
 *
 *     connected                            UP
 *     connection lost                      SLOW: other copies are asked first
 *     not reached for the time limit       LEAVING: what it had is copied anew from elsewhere
 *     reached again, the same process      UP
 *     a replica has taken over             UP; what it had not got yet is found missing
 *     reached again, another process       LOST, as its memory is gone; the shard has a new place
 *
 * Inside the store a block has the number  slot * stride + place,  where the stride is the most
 * places there can be: rooms, keys and renewals go by that, and find the shard by the remainder.
 * Threads of servers change states under the store's lock.  One of them at a time notifies the engine,
 * without the lock, of all that has changed, so that the engine's last word is the last state. */
#include "internal.h"

#include <stdio.h>

#define SHIFT       48
#define LIVES       8u /* of each shard; one that comes back more often stays what it is */
#define SLOTS_LEAST (SLOTS / 256u) /* of a shard: keys are tried until one has a slot of it */

/* Before there are threads, or under the lock. */
static void add_place(usm_valkey_store *s, unsigned shard)
{
    const unsigned     n = usm_load_relaxed(&s->nplaces);
    usm_valkey_target *p = &s->places[n];

    usm_store_relaxed(&p->shard, (uint8_t)shard);
    usm_store_relaxed(&p->state, USM_PLACE_UP);
    s->shard_place[shard] = n;
    usm_store_release(&s->nplaces, n + 1); /* pairs with those who read the place */
}

static void set_shards(usm_valkey_store *s, unsigned n)
{
    const unsigned lives = n * LIVES < PLACES_MAX ? n * LIVES : PLACES_MAX;

    s->nshards = n;
    s->stride  = s->place_changed ? lives : n;
    usm_store_relaxed(&s->nplaces, 0u);
    for (unsigned i = 0; i < n; i++) {
        add_place(s, i);
        s->places[i].told = USM_PLACE_UP; /* the engine asks for the first ones */
    }
}

void usm_valkey_places_init(usm_valkey_store *s, const usm_transport_params *params)
{
    s->place_changed = params->place_changed;
    s->user          = params->user;
    for (unsigned i = 0; i < SLOTS; i++)
        usm_store_relaxed(&s->slots[i], (uint8_t)NOBODY);
    set_shards(s, (unsigned)s->config.nhosts);
}

/* The masters are those with slots.  Keys of one with very few would take long to find, and few blocks
 * belong there. */
static void find_shards(usm_valkey_store *s)
{
    unsigned count[NOBODY + 1] = {0}, shard[NOBODY + 1], n = 0;

    for (unsigned i = 0; i < SLOTS; i++)
        count[usm_load_relaxed(&s->slots[i])]++;
    for (unsigned server = 0; server <= NOBODY; server++)
        shard[server] = server < NOBODY && count[server] >= SLOTS_LEAST ? n++ : NOBODY;
    for (unsigned i = SLOTS; i-- > 0;) {
        const unsigned of = shard[usm_load_relaxed(&s->slots[i])];

        s->shard_of[i] = (uint8_t)of;
        if (of != NOBODY)
            s->shard_slot[of] = (uint16_t)i;
    }
    set_shards(s, n);
}

void usm_valkey_places_of_cluster(usm_valkey_store *s)
{
    (void)pthread_mutex_lock(&s->lock);
    if (!usm_load_relaxed(&s->is_cluster)) {
        if (s->place_changed)
            find_shards(s);
        usm_store_release(&s->is_cluster, true); /* pairs with usm_valkey_route() */
    }
    (void)pthread_mutex_unlock(&s->lock);
}

bool usm_valkey_number(const usm_valkey_store *s, uint64_t block, uint64_t *number)
{
    const uint64_t place = block >> SHIFT, slot = block & ((UINT64_C(1) << SHIFT) - 1);

    *number = s->place_changed ? slot * s->stride + place : block;
    return !s->place_changed || place < usm_load_acquire(&s->nplaces);
}

unsigned usm_valkey_shard_owner(const usm_valkey_store *s, unsigned shard)
{
    return usm_load_acquire(&s->is_cluster) ? usm_load_relaxed(&s->slots[s->shard_slot[shard]])
                                            : shard;
}

/* The server's name; of a long one the beginning and a hash (FNV-1a), as domains must differ. */
static void name_domain(const char *name, char domain[64])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (const char *at = name; *at; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    if (strlen(name) < 64 - sizeof("valkey "))
        (void)snprintf(domain, 64, "valkey %s", name);
    else
        (void)snprintf(domain, 64, "valkey %.36s...%016llx", name, (unsigned long long)hash);
}

uint32_t usm_valkey_places(void *store)
{
    const usm_valkey_store *s = store;

    return s->place_changed ? usm_load_acquire(&s->nplaces) : 1;
}

usm_status usm_valkey_place(void *store, uint32_t place, usm_transport_place *info)
{
    usm_valkey_store        *s = store;
    const usm_valkey_target *p;
    const usm_valkey_server *v;
    uint64_t                 maximum;

    if (place >= usm_valkey_places(s))
        return s->api->report(USM_E_INVALID, "the transport valkey has no place %u", place);
    p = &s->places[place];
    v = s->servers[s->place_changed ? usm_valkey_shard_owner(s, usm_load_relaxed(&p->shard)) : 0];
    maximum = s->place_changed ? usm_load_relaxed(&v->maximum) : 0;
    *info   = (usm_transport_place){.state     = usm_load_relaxed(&p->state),
                                    .capacity  = maximum ? maximum : UINT64_MAX,
                                    .available = maximum ? maximum : UINT64_MAX};
    name_domain(v->name, info->domain);
    return USM_OK;
}

/* ---- called by a server's thread ----------------------------------------------------------- */

/* A place whose state the engine has not heard of; nplaces: there is none.  pre: lock */
static unsigned untold(const usm_valkey_store *s)
{
    const unsigned n = usm_load_relaxed(&s->nplaces);
    unsigned       i = 0;

    while (i < n && s->places[i].told == usm_load_relaxed(&s->places[i].state))
        i++;
    return i;
}

static void notify(usm_valkey_store *s)
{
    (void)pthread_mutex_lock(&s->lock);
    for (unsigned i; !s->is_notifying && (i = untold(s)) < usm_load_relaxed(&s->nplaces);) {
        const usm_place_state state = usm_load_relaxed(&s->places[i].state);

        s->places[i].told = state;
        s->is_notifying   = true; /* another thread that has news leaves it to this one */
        (void)pthread_mutex_unlock(&s->lock);
        s->place_changed(s->user, i, state);
        (void)pthread_mutex_lock(&s->lock);
        s->is_notifying = false;
    }
    (void)pthread_mutex_unlock(&s->lock);
}

/* The shard's place enters the state; false: it was in it.  pre: lock */
static bool enter(usm_valkey_store *s, unsigned shard, usm_place_state state)
{
    usm_valkey_target *p = &s->places[s->shard_place[shard]];

    if (usm_load_relaxed(&p->state) == state)
        return false;
    usm_store_relaxed(&p->state, state);
    return true;
}

void usm_valkey_place_enter(usm_valkey_server *v, usm_place_state state)
{
    usm_valkey_store *s       = v->store;
    bool              is_news = false;

    if (!s->place_changed)
        return;
    (void)pthread_mutex_lock(&s->lock);
    for (unsigned i = 0; i < s->nshards; i++)
        if (usm_valkey_shard_owner(s, i) == v->index && enter(s, i, state))
            is_news = true;
    (void)pthread_mutex_unlock(&s->lock);
    if (!is_news)
        return;
    if (state == USM_PLACE_LEAVING)
        s->api->log(USM_LOG_WARN,
                    "the server %s cannot be reached: %s; what it had is read from other copies, "
                    "and new ones are made",
                    v->name, v->why);
    notify(s);
}

void usm_valkey_places_settle(usm_valkey_store *s)
{
    bool is_news = false;

    if (!s->place_changed)
        return;
    (void)pthread_mutex_lock(&s->lock);
    for (unsigned i = 0; i < s->nshards; i++) {
        const unsigned owner = usm_valkey_shard_owner(s, i);

        if (owner < usm_load_relaxed(&s->nservers) &&
            usm_load_relaxed(&s->servers[owner]->is_connected) && enter(s, i, USM_PLACE_UP))
            is_news = true;
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (is_news)
        notify(s);
}

/* The shard's place is lost, and it has a new one.  Returns the number of the one that is lost; nplaces:
 * there have been too many, and it stays what it is.  pre: lock */
static unsigned replace(usm_valkey_store *s, unsigned shard)
{
    const unsigned old = s->shard_place[shard];

    if (usm_load_relaxed(&s->nplaces) == s->stride)
        return s->stride;
    usm_store_relaxed(&s->places[old].state, USM_PLACE_LOST);
    add_place(s, shard);
    return old;
}

void usm_valkey_place_reborn(usm_valkey_server *v)
{
    usm_valkey_store *s = v->store;

    if (!s->place_changed)
        return;
    for (unsigned i = 0; i < s->nshards; i++) {
        unsigned old = s->stride;

        (void)pthread_mutex_lock(&s->lock);
        if (usm_valkey_shard_owner(s, i) == v->index)
            old = replace(s, i);
        (void)pthread_mutex_unlock(&s->lock);
        if (old < s->stride)
            usm_valkey_room_drop_place(s, old);
    }
    notify(s);
}
