/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Independent servers as replica targets ("places"), where the engine makes copies: a server that
 * dies takes one copy of a block with it.  The engine says which place a block is in (block >> 48);
 * without copies (place_changed is NULL) the store deals blocks out itself.  A cluster is one
 * place: its own replicas are for that.
 *
 *     connected                            UP
 *     connection lost                      SLOW: other copies are asked first
 *     not reached for the time limit       LEAVING: what it had is copied anew from elsewhere
 *     reached again, the same process      UP
 *     reached again, another process       LOST, as its memory is gone; the server is a new place
 *
 * Inside the store a block has the number  slot * stride + place,  where the stride is the most
 * places there can be: rooms, keys and renewals go by that, and find the server by the remainder.
 * All state here is changed by the threads of servers, each its own's. */
#include "internal.h"

#include <stdio.h>

#define SHIFT 48
#define LIVES 8u /* of each server; one that comes back more often stays what it is */

void usm_valkey_places_init(usm_valkey_store *s, const usm_transport_params *params)
{
    const unsigned n = (unsigned)s->config.nhosts;

    s->place_changed = params->place_changed;
    s->user          = params->user;
    s->stride        = s->place_changed ? n * LIVES : n;
    for (unsigned i = 0; i < n; i++)
        usm_store_relaxed(&s->place_server[i], (uint8_t)i);
    usm_store_release(&s->nplaces, n);
}

bool usm_valkey_number(const usm_valkey_store *s, uint64_t block, uint64_t *number)
{
    const uint64_t place = block >> SHIFT, slot = block & ((UINT64_C(1) << SHIFT) - 1);

    *number = s->place_changed ? slot * s->stride + place : block;
    return !s->place_changed || place < usm_load_acquire(&s->nplaces);
}

static bool has_places(const usm_valkey_store *s)
{
    return s->place_changed && !usm_load_acquire(&s->is_cluster);
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

    return has_places(s) ? usm_load_acquire(&s->nplaces) : 1;
}

usm_status usm_valkey_place(void *store, uint32_t place, usm_transport_place *info)
{
    usm_valkey_store        *s = store;
    const usm_valkey_server *v;
    uint64_t                 maximum;

    if (place >= usm_valkey_places(s))
        return s->api->report(USM_E_INVALID, "the transport valkey has no place %u", place);
    v       = s->servers[usm_load_relaxed(&s->place_server[place])];
    maximum = has_places(s) ? usm_load_relaxed(&v->maximum) : 0;
    *info   = (usm_transport_place){.state     = USM_PLACE_UP,
                                    .capacity  = maximum ? maximum : UINT64_MAX,
                                    .available = maximum ? maximum : UINT64_MAX};
    name_domain(v->name, info->domain);
    if (has_places(s))
        info->state = usm_load_acquire(&v->place) == place ? usm_load_relaxed(&v->place_state)
                                                           : USM_PLACE_LOST;
    return USM_OK;
}

/* ---- called by a server's thread ----------------------------------------------------------- */

void usm_valkey_place_enter(usm_valkey_server *v, usm_place_state state)
{
    usm_valkey_store *s = v->store;

    if (!v->is_named || !has_places(s) || usm_load_relaxed(&v->place_state) == state)
        return;
    if (state == USM_PLACE_LEAVING)
        s->api->log(USM_LOG_WARN,
                    "the server %s cannot be reached: %s; what it had is read from other copies, "
                    "and new ones are made",
                    v->name, v->why);
    usm_store_relaxed(&v->place_state, state);
    s->place_changed(s->user, usm_load_relaxed(&v->place), state);
}

/* The place that the server is from now on; false: there have been too many. */
static bool add_place(usm_valkey_server *v)
{
    usm_valkey_store *s = v->store;
    unsigned          n;

    (void)pthread_mutex_lock(&s->lock);
    n = usm_load_relaxed(&s->nplaces);
    if (n < s->stride) {
        usm_store_relaxed(&s->place_server[n], (uint8_t)v->index);
        usm_store_release(&v->place, n);
        usm_store_release(&s->nplaces, n + 1); /* pairs with those who read place_server */
    }
    (void)pthread_mutex_unlock(&s->lock);
    return n < s->stride;
}

void usm_valkey_place_reborn(usm_valkey_server *v)
{
    usm_valkey_store *s   = v->store;
    const unsigned    old = usm_load_relaxed(&v->place);

    if (!v->is_named || !has_places(s) || !add_place(v))
        return;
    usm_valkey_room_drop_place(s, old);
    usm_store_relaxed(&v->place_state, USM_PLACE_UP);
    s->place_changed(s->user, old, USM_PLACE_LOST);
    s->place_changed(s->user, usm_load_relaxed(&v->place), USM_PLACE_UP);
}
