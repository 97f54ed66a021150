/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which server a block is on.  Independent servers get blocks in turn, or are places
 * (places.c).  In a cluster the key decides: it belongs to one of 16384 slots (CRC16), each slot to a
 * server, and the store has a map of that.  A block of a place has a key with a further number, the
 * first with which the key's slot is one of the place's master: a key never changes.
 *
 *     learned whole    from CLUSTER SLOTS: by the first connection, and when a server is lost, from
 *                      another one, because a replica may have taken its place
 *     by one slot      from MOVED: the slot has another server now
 *     not learned      from ASK: the slot is on its way to another server, which has this key already
 *
 * Servers that the user did not name are added as they are heard of.  The map is read without a
 * lock: a stale entry costs one MOVED. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

/* CRC16 as in XMODEM: polynomial 0x1021, most significant bit first; goes on from `crc`. */
static unsigned crc_add(unsigned crc, const char *key, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)(unsigned char)key[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000u ? crc << 1 ^ 0x1021u : crc << 1;
    }
    return crc & 0xffffu;
}

/* Appends ":number" to the n bytes of a key, the first number that makes it one of the shard's.  Returns
 * the length of that: a shard has one slot in 256 at least. */
static size_t end_key(const usm_valkey_store *s, unsigned shard, char *key, size_t n)
{
    const unsigned begin = crc_add(0, key, n);

    for (unsigned i = 0;; i++) {
        const size_t more = (size_t)snprintf(key + n, KEY_ROOM - n, ":%x", i);

        if (s->shard_of[crc_add(begin, key + n, more) & (SLOTS - 1)] == shard)
            return more;
    }
}

size_t usm_valkey_key(const usm_valkey_store *s, uint64_t block, char key[KEY_ROOM])
{
    const size_t n = (size_t)snprintf(key, KEY_ROOM, "%s:%016llx:%llx", s->config.prefix,
                                      (unsigned long long)s->id, (unsigned long long)block);

    if (!s->place_changed || !usm_load_acquire(&s->is_cluster))
        return n;
    return n + end_key(s, usm_load_relaxed(&s->places[block % s->stride].shard), key, n);
}

unsigned usm_valkey_route(usm_valkey_store *s, uint64_t block)
{
    char     key[KEY_ROOM];
    size_t   n;
    unsigned slot, server;

    if (!usm_load_acquire(&s->is_cluster))
        return usm_load_relaxed(&s->places[block % s->stride].shard);
    n      = usm_valkey_key(s, block, key);
    slot   = crc_add(0, key, n) & (SLOTS - 1);
    server = usm_load_relaxed(&s->slots[slot]);
    return server == NOBODY ? 0 : server; /* which says that the cluster is down, or who has it */
}

usm_valkey_server *usm_valkey_server_of(usm_valkey_store *s, const char *name)
{
    usm_valkey_server *v = NULL;
    unsigned           n;

    (void)pthread_mutex_lock(&s->lock);
    n = usm_load_relaxed(&s->nservers);
    for (unsigned i = 0; i < n && !v; i++)
        if (strcmp(s->servers[i]->name, name) == 0)
            v = s->servers[i];
    if (!v && n < SERVERS_MAX && !s->is_closing &&
        usm_valkey_server_create(s, n, name, &v) == USM_OK) {
        s->servers[n] = v;
        usm_store_release(&s->nservers, n + 1); /* pairs with those who walk the list */
    }
    (void)pthread_mutex_unlock(&s->lock);
    return v;
}

/* "host:port"; an address of IPv6 in brackets. */
static void name_of(const char *host, size_t n, long port, char name[HOST_ROOM])
{
    const bool is_v6 = memchr(host, ':', n) != NULL;

    (void)snprintf(name, HOST_ROOM, "%s%.*s%s:%ld", is_v6 ? "[" : "", (int)n, host,
                   is_v6 ? "]" : "", port);
}

/* The slot and the address in "MOVED 3999 127.0.0.1:6381"; SLOTS: it is another error. */
static unsigned long parse_redirect(const char *words, char name[HOST_ROOM])
{
    const bool    is_moved = strncmp(words, "MOVED ", 6) == 0;
    const char   *at, *colon;
    char         *end;
    unsigned long slot;

    if (!is_moved && strncmp(words, "ASK ", 4) != 0)
        return SLOTS;
    slot  = strtoul(words + (is_moved ? 6 : 4), &end, 10);
    at    = end + strspn(end, " ");
    colon = strrchr(at, ':');
    if (slot >= SLOTS || !colon || colon == at)
        return SLOTS;
    name_of(at, (size_t)(colon - at), strtol(colon + 1, NULL, 10), name);
    return slot;
}

bool usm_valkey_moved_to(const char *words, char name[HOST_ROOM])
{
    return parse_redirect(words, name) < SLOTS;
}

usm_valkey_server *usm_valkey_redirect(usm_valkey_store *s, const char *words)
{
    char                name[HOST_ROOM];
    const unsigned long slot = parse_redirect(words, name);
    usm_valkey_server  *v    = slot < SLOTS ? usm_valkey_server_of(s, name) : NULL;

    if (v && strncmp(words, "MOVED ", 6) == 0)
        usm_store_relaxed(&s->slots[slot], (uint8_t)v->index);
    return v;
}

/* A range of CLUSTER SLOTS: first, last, and its master as host, port.  `asked`: the server that
 * answers, which may not know its own address. */
static bool learn_range(usm_valkey_store *s, const redisReply *range, const char *asked)
{
    const redisReply        *master = range->elements >= 3 ? range->element[2] : NULL;
    const usm_valkey_server *v;
    char                     host[HOST_ROOM], name[HOST_ROOM];
    int                      port;

    if (!master || master->elements < 2 || range->element[0]->integer < 0 ||
        range->element[1]->integer >= SLOTS)
        return false;
    if (master->element[0]->str && master->element[0]->len > 0)
        (void)snprintf(host, sizeof(host), "%.200s", master->element[0]->str);
    else if (!usm_valkey_split(asked, host, sizeof(host), &port))
        return false;
    name_of(host, strlen(host), (long)master->element[1]->integer, name);
    v = usm_valkey_server_of(s, name);
    for (long long i = range->element[0]->integer; v && i <= range->element[1]->integer; i++)
        usm_store_relaxed(&s->slots[i], (uint8_t)v->index);
    return v != NULL;
}

bool usm_valkey_learn(usm_valkey_store *s, const redisReply *reply, const char *asked)
{
    bool ok = reply->type == REDIS_REPLY_ARRAY && reply->elements > 0;

    for (size_t i = 0; i < reply->elements && ok; i++)
        ok = learn_range(s, reply->element[i], asked);
    return ok;
}
