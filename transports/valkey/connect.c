/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A connection to a server: its address, the password, and what the server says of itself.  All of
 * it waits, for the time limit of the store at most in each step.  Called by the server's thread.
 *
 * The password is sent from memory that dumps leave out, by a call of its own: hiredis would keep a
 * copy in a buffer of the heap.
 *
 * A connection that was lost with commands under way may still be alive for the server, which would
 * carry out the rest of them later, after newer ones of the new connection.  So the server is asked
 * to close it first (CLIENT KILL). */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

USM_PRINTF(3, 4)
static usm_status fail(usm_valkey_server *v, usm_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(v->why, sizeof(v->why), format, args);
    va_end(args);
    return status;
}

static struct timeval time_limit(const usm_valkey_server *v)
{
    const uint32_t ms = v->store->config.timeout_ms;

    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
}

/* The connection's own error, in words. */
static usm_status fail_link(usm_valkey_server *v)
{
    const redisContext *c    = v->link;
    const bool          late = c->err == REDIS_ERR_IO && (errno == EAGAIN || errno == ETIMEDOUT);

    if (late)
        return fail(v, USM_E_IO, "no answer within %u ms", (unsigned)v->store->config.timeout_ms);
    return fail(v, USM_E_IO, "%s", c->errstr[0] ? c->errstr : "the connection is broken");
}

/* The same for the first answer: a server that expects TLS closes a connection that begins with a
 * command. */
static usm_status fail_first(usm_valkey_server *v)
{
    const usm_status st  = fail_link(v);
    const size_t     end = strlen(v->why);

    if (!v->store->config.tls && v->name[0] != '/')
        (void)snprintf(v->why + end, sizeof(v->why) - end, "; if it speaks TLS, add tls");
    return st;
}

/* ---- the password ---------------------------------------------------------------------- */

static bool send_wholly(usm_valkey_server *v, char *data, size_t size)
{
    while (size > 0) {
        struct iovec  part = {data, size};
        const ssize_t n    = usm_valkey_send(v, &part, 1);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static bool send_password(usm_valkey_server *v)
{
    const usm_valkey_store *s     = v->store;
    const char             *user  = s->config.user;
    const size_t            nuser = strlen(user);
    char                    end[] = "\r\n", text[256];
    int                     n;

    n = nuser ? snprintf(text, sizeof(text), "*3\r\n$4\r\nAUTH\r\n$%zu\r\n%s\r\n$%zu\r\n", nuser,
                         user, s->npassword)
              : snprintf(text, sizeof(text), "*2\r\n$4\r\nAUTH\r\n$%zu\r\n", s->npassword);
    return send_wholly(v, text, (size_t)n) && send_wholly(v, s->password, s->npassword) &&
           send_wholly(v, end, 2);
}

static usm_status authenticate(usm_valkey_server *v)
{
    redisReply *r = NULL;
    usm_status  st;

    if (!v->store->password)
        return USM_OK;
    if (!send_password(v))
        return fail(v, USM_E_IO, "the password could not be sent");
    if (redisGetReply(v->link, (void **)&r) != REDIS_OK)
        return fail_first(v);
    st = r->type == REDIS_REPLY_ERROR ? fail(v, USM_E_KEY, "%.200s", r->str) : USM_OK;
    freeReplyObject(r);
    return st;
}

/* ---- what the server is ------------------------------------------------------------------ */

/* The value of a line "name:value" of INFO; false: there is none. */
static bool find(const char *info, const char *name, char *value, size_t room)
{
    const size_t n = strlen(name);

    for (const char *at = info; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, n) != 0 || at[n] != ':')
            continue;
        (void)snprintf(value, room, "%.*s", (int)strcspn(at + n + 1, "\r\n"), at + n + 1);
        return true;
    }
    return false;
}

/* A server that evicts loses blocks: that is no failure, but it has to be known. */
static void look_at_memory(usm_valkey_server *v, const char *info)
{
    char text[64] = "";

    if (find(info, "maxmemory", text, sizeof(text)))
        usm_store_relaxed(&v->maximum, strtoull(text, NULL, 10));
    if (!find(info, "maxmemory_policy", text, sizeof(text)) || strcmp(text, "noeviction") == 0 ||
        v->warned_policy || usm_load_relaxed(&v->maximum) == 0)
        return;
    v->warned_policy = true;
    v->store->api->log(
        USM_LOG_WARN,
        "the server %s may evict blocks (maxmemory-policy %s): what is spilled there "
        "needs copies elsewhere (USM_SPILL_REPLICAS=2), or the policy noeviction",
        v->name, text);
}

/* Which server has which slots. */
static usm_status ask_for_slots(usm_valkey_server *v, const char *name)
{
    redisReply *r = redisCommand(v->link, "CLUSTER SLOTS");
    usm_status  st;

    if (!r)
        return fail_link(v);
    if (r->type == REDIS_REPLY_ERROR)
        st = fail(v, USM_E_IO, "%.200s", r->str);
    else if (usm_valkey_learn(v->store, r, name))
        st = USM_OK;
    else
        st = fail(v, USM_E_IO, "its cluster has not dealt out its slots");
    freeReplyObject(r);
    return st;
}

/* By default a cluster refuses all commands while a slot has no server: then copies on other masters
 * are of no use.  A user who may not ask is not warned. */
static usm_status look_at_coverage(usm_valkey_server *v)
{
    usm_valkey_store *s = v->store;
    redisReply       *r;

    if (!s->place_changed || usm_valkey_places(s) < 2)
        return USM_OK;
    r = redisCommand(v->link, "CONFIG GET cluster-require-full-coverage");
    if (!r)
        return fail_link(v);
    if (r->type == REDIS_REPLY_ARRAY && r->elements == 2 && r->element[1]->str &&
        strcmp(r->element[1]->str, "yes") == 0)
        s->api->log(USM_LOG_WARN,
                    "the cluster of the server %s refuses all commands once it has lost a master, "
                    "so copies on other masters cannot be read then: set "
                    "cluster-require-full-coverage to no",
                    v->name);
    freeReplyObject(r);
    return USM_OK;
}

/* The first node that answers says where the slots are; then blocks go by their keys. */
static usm_status join_cluster(usm_valkey_server *v)
{
    usm_valkey_store *s = v->store;
    usm_status        st;

    /* What a server had that was restarted may be another's by now. */
    if (usm_load_relaxed(&s->is_cluster) && !v->is_reborn)
        return USM_OK;
    if (!usm_load_relaxed(&s->is_cluster) && v->has_answer) /* blocks have other keys by now */
        return fail(v, USM_E_IO,
                    "it is a node of a cluster, which it was not when it was first used");
    st = ask_for_slots(v, v->name);
    if (st != USM_OK)
        return st;
    usm_valkey_places_of_cluster(s);
    return look_at_coverage(v);
}

/* Whether it is the process that it was at the last connection. */
static void look_at_life(usm_valkey_server *v, const char *info)
{
    char text[64] = "";

    if (!find(info, "run_id", text, sizeof(text)))
        return;
    if (v->run_id[0] && strcmp(v->run_id, text) != 0) {
        v->is_reborn = true;
        v->store->api->log(USM_LOG_WARN,
                           "the server %s was restarted: what was spilled there may be gone",
                           v->name);
    }
    (void)snprintf(v->run_id, sizeof(v->run_id), "%.47s", text);
}

static usm_status look_at_info(usm_valkey_server *v, const char *info)
{
    char text[64] = "";

    if (find(info, "loading", text, sizeof(text)) && strcmp(text, "1") == 0)
        return fail(v, USM_E_AGAIN, "it is loading its data");
    look_at_memory(v, info);
    look_at_life(v, info);
    if ((find(info, "redis_mode", text, sizeof(text)) ||
         find(info, "server_mode", text, sizeof(text))) && /* Valkey 8 */
        strcmp(text, "cluster") == 0)
        return join_cluster(v);
    if (usm_load_relaxed(&v->store->is_cluster))
        return fail(v, USM_E_IO, "it is no node of the cluster that other servers are nodes of");
    if (find(info, "role", text, sizeof(text)) && strcmp(text, "master") != 0)
        return fail(v, USM_E_IO, "it is a replica, which takes no stores; name its master");
    return USM_OK;
}

static usm_status refuse(usm_valkey_server *v, const char *words)
{
    if (strncmp(words, "LOADING", 7) == 0)
        return fail(v, USM_E_AGAIN, "%.200s", words);
    if (strncmp(words, "NOAUTH", 6) == 0)
        return fail(v, USM_E_KEY, "%.200s Set USM_VALKEY_PASSWORD or USM_VALKEY_PASSWORD_FILE",
                    words);
    return fail(v, USM_E_IO, "%.200s", words);
}

static usm_status ask(usm_valkey_server *v)
{
    redisReply *r = redisCommand(v->link, "INFO");
    usm_status  st;

    if (!r)
        return fail_first(v);
    if (r->type == REDIS_REPLY_STRING)
        st = look_at_info(v, r->str);
    else if (r->type == REDIS_REPLY_ERROR && strncmp(r->str, "NOPERM", 6) == 0)
        st = USM_OK; /* the user may not ask; then nothing is known, and it works */
    else
        st = refuse(v, r->type == REDIS_REPLY_ERROR ? r->str : "INFO has no answer");
    freeReplyObject(r);
    return st;
}

/* Ends the connection that was lost, in case the server has not noticed, and learns the number of
 * this one.  A user who may do neither has checksums alone against commands that come late. */
static usm_status take_over(usm_valkey_server *v)
{
    redisReply *r;

    if (v->old_client_id) {
        r = redisCommand(v->link, "CLIENT KILL ID %lld", v->old_client_id);
        if (!r)
            return fail_link(v);
        freeReplyObject(r);
        v->old_client_id = 0;
    }
    r = redisCommand(v->link, "CLIENT ID");
    if (!r)
        return fail_link(v);
    v->client_id = r->type == REDIS_REPLY_INTEGER ? r->integer : 0;
    freeReplyObject(r);
    return USM_OK;
}

/* ---- the connection ------------------------------------------------------------------------ */

static usm_status dial(usm_valkey_server *v, const char *name)
{
    char host[HOST_ROOM] = "";
    int  port            = 0;

    if (v->store->api->fault("valkey.connect", NULL))
        return fail(v, USM_E_IO, "Connection refused");
    if (name[0] == '/') {
        v->link = redisConnectUnixWithTimeout(name, time_limit(v));
    } else {
        (void)usm_valkey_split(name, host, sizeof(host), &port); /* checked when it was parsed */
        v->link = redisConnectWithTimeout(host, port, time_limit(v));
    }
    if (!v->link)
        return fail(v, USM_E_NO_MEMORY, "no memory for a connection");
    if (v->link->err)
        return fail_link(v);
    (void)fcntl(v->link->fd, F_SETFD, FD_CLOEXEC);
    if (redisSetTimeout(v->link, time_limit(v)) != REDIS_OK)
        return fail_link(v);
    return !v->store->config.tls || usm_valkey_tls_begin(v, host) ? USM_OK : USM_E_IO;
}

usm_status usm_valkey_connect(usm_valkey_server *v)
{
    usm_status st = dial(v, v->name);

    if (st == USM_OK)
        st = authenticate(v);
    if (st == USM_OK)
        st = ask(v);
    if (st == USM_OK)
        st = take_over(v);
    if (st != USM_OK) {
        usm_valkey_disconnect(v);
        return st;
    }
    (void)redisEnableKeepAlive(v->link);
    v->functions              = usm_valkey_reply_functions;
    v->link->reader->fn       = &v->functions;
    v->link->reader->privdata = v;
    v->link->reader->maxbuf   = 0; /* it keeps its buffer */
    v->link->flags &= ~REDIS_BLOCK;
    (void)fcntl(v->link->fd, F_SETFL, fcntl(v->link->fd, F_GETFL) | O_NONBLOCK);
    return USM_OK;
}

usm_status usm_valkey_meet(usm_valkey_server *v)
{
    usm_status  st = dial(v, v->name);
    redisReply *r;

    if (st == USM_OK)
        st = authenticate(v);
    if (st != USM_OK)
        return st;
    r = redisCommand(v->link, "PING");
    if (!r)
        return fail_first(v);
    if (r->type == REDIS_REPLY_ERROR && strncmp(r->str, "NOPERM", 6) != 0)
        st = refuse(v, r->str);
    freeReplyObject(r);
    return st;
}

void usm_valkey_disconnect(usm_valkey_server *v)
{
    if (v->link)
        redisFree(v->link);
    v->link = NULL;
    v->ssl  = NULL; /* which belonged to it */
}

void usm_valkey_ask_others(usm_valkey_server *v)
{
    usm_valkey_store *s  = v->store;
    const unsigned    n  = usm_load_acquire(&s->nservers);
    usm_status        st = USM_E_IO;
    char              why[REASON_ROOM];

    memcpy(why, v->why, sizeof(why)); /* of this server stays */
    for (unsigned i = 0; i < n && st != USM_OK; i++) {
        const usm_valkey_server *other = s->servers[i];

        if (other == v || !usm_load_relaxed(&other->is_connected))
            continue;
        st = dial(v, other->name);
        if (st == USM_OK)
            st = authenticate(v);
        if (st == USM_OK)
            st = ask_for_slots(v, other->name);
        usm_valkey_disconnect(v);
    }
    memcpy(v->why, why, sizeof(v->why));
}
