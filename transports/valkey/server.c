/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The thread of a server: it takes what was submitted, sends it in batches, receives replies,
 * renews keys, and connects again when the connection is lost.
 *
 *     connected   commands go out as long as the server takes them; a server that has commands to
 *                 answer and neither answers nor takes any for the time limit has failed
 *     lost        transfers under way are sent again, in their order, on the next connection, at
 *                 most ATTEMPTS times: each of them can be repeated without harm
 *     failed      lost for the time limit: all transfers fail, later ones at once; the thread goes
 *                 on connecting, four times in a second
 *
 * A key lives for the store's ttl, and is renewed three times in that: a process that was killed
 * leaves nothing for longer.  Renewals go between transfers, some in each batch. */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define ATTEMPTS 3u
#define RETRY_NS (250 * NS_PER_MS)
#define RENEWALS 3u /* in the life of a key */
#define NEVER    UINT64_MAX

static void lock(usm_valkey_server *v)
{
    (void)pthread_mutex_lock(&v->lock);
}

static void unlock(usm_valkey_server *v)
{
    (void)pthread_mutex_unlock(&v->lock);
}

/* ---- the queue ---------------------------------------------------------------------------- */

static void ring(const usm_valkey_server *v)
{
    const uint64_t one = 1;

    (void)!write(v->bell, &one, sizeof(one));
}

void usm_valkey_server_ring(usm_valkey_server *v)
{
    bool sleeps;

    lock(v);
    sleeps    = v->sleeps;
    v->sleeps = false;
    unlock(v);
    if (sleeps)
        ring(v);
}

void usm_valkey_server_add(usm_valkey_server *v, usm_transfer *t)
{
    bool sleeps;

    t->next = NULL;
    lock(v);
    *v->tail  = t;
    v->tail   = &t->next;
    sleeps    = v->sleeps;
    v->sleeps = false;
    unlock(v);
    if (sleeps)
        ring(v);
}

/* Takes what was submitted; false: the store is being closed, and nothing is under way. */
static bool take(usm_valkey_server *v)
{
    bool goes_on;

    lock(v);
    v->sleeps = false;
    if (v->head) {
        *v->waiting_tail = v->head;
        v->waiting_tail  = v->tail;
        v->head          = NULL;
        v->tail          = &v->head;
    }
    goes_on = !v->stop;
    unlock(v);
    return goes_on;
}

/* Sleeps until a descriptor is ready, something was submitted, or the time has come.  Returns what
 * is ready at the connection. */
static short sleep_until(usm_valkey_server *v, uint64_t deadline)
{
    const short   events = (short)(POLLIN | (usm_valkey_is_sending(v) ? POLLOUT : 0));
    struct pollfd fds[2] = {{.fd = v->bell, .events = POLLIN},
                            {.fd = v->link ? v->link->fd : -1, .events = events}};
    uint64_t      rings;

    lock(v);
    if (v->head || v->stop)
        deadline = 0; /* only looks */
    else
        v->sleeps = true;
    unlock(v);
    (void)v->store->api->os->poll(fds, 2, deadline);
    if (fds[0].revents)
        (void)!read(v->bell, &rings, sizeof(rings));
    return fds[1].revents;
}

/* ---- connected ------------------------------------------------------------------------------- */

static void begin_renewal(usm_valkey_server *v, uint64_t now)
{
    if (now < v->renew_ns)
        return;
    if (v->renew_at == NEVER)
        v->renew_at = 0;
    v->renew_ns = now + (uint64_t)v->store->config.ttl_s * 1000 * NS_PER_MS / RENEWALS;
}

/* Sends until the server takes no more, or there is nothing more. */
static bool send_all(usm_valkey_server *v)
{
    do {
        if (!usm_valkey_is_sending(v))
            usm_valkey_fill(v);
        if (!usm_valkey_is_sending(v))
            return true;
        if (!usm_valkey_flush(v))
            return false;
    } while (!usm_valkey_is_sending(v));
    return true;
}

/* False: the connection is lost. */
static bool exchange(usm_valkey_server *v)
{
    const uint64_t now   = usm_valkey_now();
    uint64_t       until = v->renew_ns;
    short          ready;

    begin_renewal(v, now);
    if (usm_valkey_nsent(v) == 0)
        v->heard_ns = now;
    if (now >= v->hold_ns)
        v->hold_ns = 0;
    if (!send_all(v))
        return false;
    if (v->hold_ns > 0 && v->hold_ns < until)
        until = v->hold_ns;
    if (usm_valkey_nsent(v) > 0 && v->heard_ns + usm_valkey_timeout_ns(v) < until)
        until = v->heard_ns + usm_valkey_timeout_ns(v);
    ready = sleep_until(v, until);
    if (ready & ~POLLOUT && !usm_valkey_receive(v))
        return false;
    if (usm_valkey_nsent(v) == 0 || usm_valkey_now() < v->heard_ns + usm_valkey_timeout_ns(v))
        return true;
    (void)snprintf(v->why, sizeof(v->why), "no answer within %u ms",
                   (unsigned)v->store->config.timeout_ms);
    return false;
}

/* ---- lost ------------------------------------------------------------------------------------ */

static void fail_one(const usm_valkey_server *v, usm_transfer *t)
{
    usm_valkey_finish(
        t, v->store->api->report(USM_E_IO, "the server %s cannot be reached: %s", v->name, v->why));
}

static void fail_waiting(usm_valkey_server *v)
{
    usm_transfer *list = v->waiting, *next;

    v->waiting      = NULL;
    v->waiting_tail = &v->waiting;
    for (; list; list = next) {
        next = list->next;
        fail_one(v, list);
    }
}

/* Puts transfers under way before those that wait, in their order. */
static void lose(usm_valkey_server *v)
{
    const uint64_t now   = usm_valkey_now();
    usm_transfer  *again = NULL;
    usm_transfer **tail  = &again;
    const bool is_silent = usm_valkey_nsent(v) > 0 && now >= v->heard_ns + usm_valkey_timeout_ns(v);

    usm_store_relaxed(&v->is_connected, false);
    v->old_client_id = usm_valkey_nsent(v) > 0 ? v->client_id : v->old_client_id;
    usm_valkey_disconnect(v);
    v->store->api->log(USM_LOG_INFO, "the connection to the server %s is lost: %s", v->name,
                       v->why);
    while (usm_valkey_nsent(v) > 0) {
        usm_transfer *t = v->sent[v->sent_first++ % SENT_MAX].transfer;

        if (!t)
            continue;
        if (++usm_valkey_piece_of(t)->attempts >= ATTEMPTS) {
            fail_one(v, t);
            continue;
        }
        *tail = t;
        tail  = &t->next;
    }
    *tail = v->waiting;
    if (!v->waiting)
        v->waiting_tail = again ? tail : &v->waiting;
    v->waiting      = again ? again : v->waiting;
    v->flying       = 0;
    v->flying_bytes = v->block_left = v->kept = 0;
    v->end_left                               = 0;
    v->batch.nparts = v->batch.at = 0;
    v->batch.used                 = 0;
    v->reply                      = (usm_valkey_reply){0};
    v->refusal[0]                 = '\0';
    v->down_ns                    = is_silent ? v->heard_ns : now;
    v->retry_ns                   = now;
    usm_valkey_place_enter(v, USM_PLACE_SLOW);
}

static void set_connected(usm_valkey_server *v)
{
    v->heard_ns = usm_valkey_now();
    v->renew_ns = v->heard_ns; /* time has passed */
    v->renew_at = NEVER;
    usm_store_relaxed(&v->is_connected, true);
    if (v->is_reborn)
        usm_valkey_place_reborn(v);
    v->is_reborn = false;
    usm_valkey_places_settle(v->store);
}

/* What another server has by now goes there. */
static void pass_on(usm_valkey_server *v)
{
    usm_transfer *list = v->waiting, *next;

    if (!usm_load_relaxed(&v->store->is_cluster))
        return;
    usm_valkey_ask_others(v);
    usm_valkey_places_settle(
        v->store); /* a replica may have taken over, which is connected already */
    v->waiting      = NULL;
    v->waiting_tail = &v->waiting;
    for (; list; list = next) {
        const unsigned to = usm_valkey_route(v->store, usm_valkey_piece_of(list)->block);

        next = list->next;
        if (to != v->index) {
            usm_valkey_server_add(v->store->servers[to], list);
            continue;
        }
        list->next       = NULL;
        *v->waiting_tail = list;
        v->waiting_tail  = &list->next;
    }
}

static void give_up(usm_valkey_server *v)
{
    usm_valkey_place_enter(v, USM_PLACE_LEAVING);
    fail_waiting(v);
}

static void reconnect(usm_valkey_server *v)
{
    const uint64_t fails_ns = v->down_ns + usm_valkey_timeout_ns(v);
    uint64_t       now      = usm_valkey_now();

    if (now >= fails_ns)
        give_up(v);
    if (now >= v->retry_ns) {
        if (usm_valkey_connect(v) == USM_OK) {
            set_connected(v);
            return;
        }
        pass_on(v);
        now         = usm_valkey_now();
        v->retry_ns = now + RETRY_NS;
        if (now >= fails_ns)
            give_up(v);
    }
    (void)sleep_until(v, v->waiting && fails_ns < v->retry_ns ? fails_ns : v->retry_ns);
}

/* ---- start and end --------------------------------------------------------------------------- */

/* A server that is still loading its data is waited for. */
static usm_status connect_first(usm_valkey_server *v)
{
    const uint64_t until = usm_valkey_now() + usm_valkey_timeout_ns(v);
    usm_status     st    = usm_valkey_connect(v);

    while (st == USM_E_AGAIN && usm_valkey_now() < until) {
        (void)v->store->api->os->poll(NULL, 0, usm_valkey_now() + RETRY_NS / 5);
        st = usm_valkey_connect(v);
    }
    return st == USM_E_AGAIN ? USM_E_IO : st;
}

/* Waits for some reply to what was sent; false: none came in time, or the connection is lost. */
static bool await_reply(usm_valkey_server *v)
{
    const short   events = (short)(POLLIN | (usm_valkey_is_sending(v) ? POLLOUT : 0));
    struct pollfd fd     = {.fd = v->link->fd, .events = events};

    if (usm_valkey_nsent(v) == 0)
        return true;
    (void)v->store->api->os->poll(&fd, 1, v->heard_ns + usm_valkey_timeout_ns(v));
    if (fd.revents & ~POLLOUT)
        return usm_valkey_receive(v);
    return fd.revents != 0 || usm_valkey_now() < v->heard_ns + usm_valkey_timeout_ns(v);
}

/* Removes what is stored there, as far as the server answers; the rest goes with its ttl. */
static void remove_all(usm_valkey_server *v)
{
    uint64_t from = 0;
    bool     more = true;

    v->heard_ns = usm_valkey_now();
    while (more || usm_valkey_is_sending(v) || usm_valkey_nsent(v) > 0) {
        if (!usm_valkey_is_sending(v))
            more = usm_valkey_fill_removals(v, &from);
        if (!usm_valkey_flush(v) || !await_reply(v))
            return;
    }
}

static void serve(void *arg)
{
    usm_valkey_server *v  = arg;
    const usm_status   st = v->is_named ? connect_first(v) : USM_OK;

    lock(v);
    v->status = st;
    memcpy(v->reason, v->why, sizeof(v->reason));
    v->has_answer = true;
    (void)pthread_cond_broadcast(&v->changed);
    unlock(v);
    v->down_ns = usm_valkey_now();
    if (v->link)
        set_connected(v);
    while (st == USM_OK && take(v)) {
        if (!v->link)
            reconnect(v);
        else if (!exchange(v))
            lose(v);
    }
    if (v->link)
        remove_all(v);
    usm_valkey_disconnect(v);
    lock(v);
    v->has_thread = false;
    (void)pthread_cond_broadcast(&v->changed);
    unlock(v);
}

void usm_valkey_server_destroy(usm_valkey_server *v)
{
    const usm_host_api *api = v->store->api;

    (void)api->os->close(v->bell);
    (void)pthread_cond_destroy(&v->changed);
    (void)pthread_mutex_destroy(&v->lock);
    api->heap_free(v->chunk);
    api->heap_free(v);
}

static usm_valkey_server *create(usm_valkey_store *s, const char *name)
{
    usm_valkey_server *v = s->api->heap_alloc(sizeof(*v));

    if (!v)
        return NULL;
    v->store = s;
    (void)snprintf(v->name, sizeof(v->name), "%s", name);
    v->tail         = &v->head;
    v->waiting_tail = &v->waiting;
    v->renew_at     = NEVER;
    v->chunk        = s->api->heap_alloc(CHUNK_SIZE);
    if (!v->chunk)
        goto err_server;
    v->bell = s->api->os->event_fd();
    if (v->bell < 0)
        goto err_chunk;
    if (pthread_mutex_init(&v->lock, NULL) != 0)
        goto err_bell;
    if (pthread_cond_init(&v->changed, NULL) == 0)
        return v;
    (void)pthread_mutex_destroy(&v->lock);
err_bell:
    (void)s->api->os->close(v->bell);
err_chunk:
    s->api->heap_free(v->chunk);
err_server:
    s->api->heap_free(v);
    return NULL;
}

usm_status usm_valkey_server_create(usm_valkey_store *s, unsigned index, const char *name,
                                    usm_valkey_server **server)
{
    const usm_host_api *api = s->api;
    usm_valkey_server  *v   = create(s, name);
    char                room[128];
    int                 error;

    if (!v)
        return api->report(USM_E_NO_MEMORY, "no memory for a connection to the server %s", name);
    v->index      = index;
    v->is_named   = index < s->config.nhosts && strcmp(s->config.hosts[index], name) == 0;
    v->has_thread = true;
    error         = api->os->thread(serve, v, "usm-valkey");
    if (error) {
        usm_valkey_server_destroy(v);
        return api->report(error == ENOMEM ? USM_E_NO_MEMORY : USM_E_SYSTEM,
                           "the transport valkey has no thread: %s",
                           strerror_r(error, room, sizeof(room)));
    }
    *server = v;
    return USM_OK;
}

usm_status usm_valkey_server_await(usm_valkey_server *v)
{
    lock(v);
    while (!v->has_answer)
        (void)pthread_cond_wait(&v->changed, &v->lock);
    unlock(v);
    if (v->status == USM_OK)
        return USM_OK;
    return v->store->api->report(v->status, "the server %s cannot be used: %s", v->name, v->reason);
}

void usm_valkey_server_stop(usm_valkey_server *v)
{
    lock(v);
    v->stop = true;
    unlock(v);
    ring(v);
    lock(v);
    while (v->has_thread)
        (void)pthread_cond_wait(&v->changed, &v->lock);
    unlock(v);
}
