/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Values under names of the user (USM_TRANSPORT_CAP_OBJECTS): what other programs have put into a
 * server, and what they will take from it.  One connection, used by the caller's thread, without
 * the threads and the keys of a store.
 *
 *     size    STRLEN key
 *     read    WATCH key; STRLEN key; GETRANGE key, piece by piece; MULTI; EXEC
 *     write   SET temporary; APPEND, EXPIRE, piece by piece; MULTI; RENAME; PERSIST; EXEC
 *
 * Pieces of 1 MiB, a few ahead of the replies, so neither side holds a second copy of a large
 * value. EXEC answers nil if the key was changed since WATCH: a value is never put together from
 * two.  A value that is written appears whole, or not at all: until then its bytes are under a
 * temporary name, which lives for ttl= if this process does not.
 *
 * A connection that a server closed while it was idle is made again once.  A node of a cluster that
 * has not the key's slot says which one has (MOVED); that one is asked from then on. */
#include "internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>

#define PIECE     ((size_t)1 << 20)
#define AHEAD     4u             /* pieces whose replies have not come */
#define TURNS_MAX 4u             /* of an operation: redirections, a connection that was closed */
#define NAME_ROOM ((size_t)1024) /* of a temporary name, which may have the key twice */
#define KEY_MAX   255u
#define ARGS_MAX  5

typedef struct usm_valkey_objects {
    usm_valkey_store  store;  /* its configuration and password: it has no threads and no blocks */
    usm_valkey_server server; /* the connection                                                  */
    char moved[REASON_ROOM];  /* the server's words, if the key is at another; else "" */
    bool is_broken;           /* the connection, by the last command                   */
} usm_valkey_objects;

/* A value, and what is done with it. */
typedef struct value {
    usm_valkey_objects *o;
    const char         *key;
    uint64_t            size;
    char               *into; /* where it is read to    */
    const char         *from; /* where it is written from */
} value;

/* ---- SIGPIPE ------------------------------------------------------------------------- */

/* hiredis and OpenSSL raise it at the thread that sends to a server which has gone. */
typedef struct quiet {
    sigset_t before, pipe;
    bool     was_pending;
} quiet;

static void quiet_begin(quiet *q)
{
    sigset_t pending;

    (void)sigemptyset(&q->pipe);
    (void)sigaddset(&q->pipe, SIGPIPE);
    q->was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &q->pipe, &q->before);
}

static void quiet_end(const quiet *q)
{
    const struct timespec now = {0, 0};

    while (!q->was_pending && sigtimedwait(&q->pipe, NULL, &now) < 0 && errno == EINTR)
        continue;
    (void)pthread_sigmask(SIG_SETMASK, &q->before, NULL);
}

/* ---- commands ------------------------------------------------------------------------- */

/* Appends a command; each argument is a text and its length. */
typedef struct words {
    int         n;
    const char *text[ARGS_MAX];
    size_t      size[ARGS_MAX];
} words;

static void add(words *w, const char *text, size_t size)
{
    w->text[w->n]   = text;
    w->size[w->n++] = size;
}

static words say(const char *command, const char *key)
{
    words w = {0};

    add(&w, command, strlen(command));
    if (key)
        add(&w, key, strlen(key));
    return w;
}

/* The connection is broken, and another may be made. */
static usm_status broken(usm_valkey_objects *o, const char *why)
{
    o->is_broken = true;
    return o->store.api->report(USM_E_IO, "the server %s cannot be reached: %s", o->server.name,
                                why);
}

static usm_status silent(usm_valkey_objects *o)
{
    return o->store.api->report(USM_E_IO, "the server %s gives no answer within %u ms",
                                o->server.name, (unsigned)o->store.config.timeout_ms);
}

static usm_status put(usm_valkey_objects *o, words *w)
{
    if (o->store.api->fault("valkey.object", NULL))
        return broken(o, "Connection reset by peer");
    if (redisAppendCommandArgv(o->server.link, w->n, w->text, w->size) == REDIS_OK)
        return USM_OK;
    return o->store.api->report(USM_E_NO_MEMORY, "no memory for a command to the server %s",
                                o->server.name);
}

static usm_status refused(usm_valkey_objects *o, const char *why)
{
    return o->store.api->report(strncmp(why, "NOAUTH", 6) == 0 ? USM_E_KEY : USM_E_IO,
                                "the server %s refuses it: %.200s", o->server.name, why);
}

/* The next reply, which the caller frees; *reply stays NULL if there is none, or an error. */
static usm_status receive(usm_valkey_objects *o, redisReply **reply)
{
    redisContext *link = o->server.link;
    redisReply   *r    = NULL;
    usm_status    st   = USM_OK;

    errno = 0;
    if (redisGetReply(link, (void **)&r) != REDIS_OK || !r)
        return errno == EAGAIN || errno == ETIMEDOUT
                   ? silent(o)
                   : broken(o, link->errstr[0] ? link->errstr : "the connection is broken");
    if (r->type == REDIS_REPLY_ERROR) {
        if (strncmp(r->str, "MOVED ", 6) == 0)
            (void)snprintf(o->moved, sizeof(o->moved), "%.200s", r->str);
        st = refused(o, r->str);
        freeReplyObject(r);
        return st;
    }
    *reply = r;
    return USM_OK;
}

/* Sends a command and takes its reply; `type` is the one that makes sense. */
static usm_status ask(usm_valkey_objects *o, words w, int type, long long *number)
{
    redisReply *r  = NULL;
    usm_status  st = put(o, &w);

    if (st == USM_OK)
        st = receive(o, &r);
    if (!r)
        return st;
    if (r->type != type)
        st = o->store.api->report(USM_E_IO, "the server %s answers what was not asked",
                                  o->server.name);
    else if (number)
        *number = r->integer;
    freeReplyObject(r);
    return st;
}

/* ---- reading --------------------------------------------------------------------------- */

static usm_status stale(const value *v)
{
    return v->o->store.api->report(USM_E_IO,
                                   "the value of '%.200s' at the server %s was changed "
                                   "while it was read: read it again",
                                   v->key, v->o->server.name);
}

static usm_status get_size(value *v)
{
    long long  size = 0;
    usm_status st   = ask(v->o, say("STRLEN", v->key), REDIS_REPLY_INTEGER, &size);
    long long  any  = size;

    if (st == USM_OK && size == 0) /* an empty value, or none */
        st = ask(v->o, say("EXISTS", v->key), REDIS_REPLY_INTEGER, &any);
    if (st != USM_OK)
        return st;
    if (any == 0)
        return v->o->store.api->report(USM_E_IO, "the server %s has no key '%.200s'",
                                       v->o->server.name, v->key);
    v->size = (uint64_t)size;
    return USM_OK;
}

static usm_status send_range(const value *v, uint64_t at)
{
    const uint64_t last = at + PIECE < v->size ? at + PIECE - 1 : v->size - 1;
    words          w    = say("GETRANGE", v->key);
    char           text[2][24];

    add(&w, text[0], (size_t)snprintf(text[0], 24, "%llu", (unsigned long long)at));
    add(&w, text[1], (size_t)snprintf(text[1], 24, "%llu", (unsigned long long)last));
    return put(v->o, &w);
}

static usm_status take_piece(const value *v, uint64_t at)
{
    const size_t want = v->size - at < PIECE ? (size_t)(v->size - at) : PIECE;
    redisReply  *r    = NULL;
    usm_status   st   = receive(v->o, &r);

    if (!r)
        return st;
    if (r->type != REDIS_REPLY_STRING || r->len != want)
        st = stale(v);
    else
        memcpy(v->into + at, r->str, want);
    freeReplyObject(r);
    return st;
}

static usm_status get_pieces(const value *v)
{
    uint64_t   sent = 0, taken = 0;
    usm_status st = USM_OK;

    while (st == USM_OK && taken < v->size) {
        if (sent < v->size && sent - taken < AHEAD * PIECE) {
            st = send_range(v, sent);
            sent += PIECE;
        } else {
            st = take_piece(v, taken);
            taken += PIECE;
        }
    }
    return st;
}

/* EXEC answers nil if nothing was done, or an array, whose first element is the first command's. */
static usm_status execute(const value *v, usm_status (*failed)(const value *))
{
    words       exec = say("EXEC", NULL);
    redisReply *r    = NULL;
    usm_status  st   = put(v->o, &exec);

    if (st == USM_OK)
        st = receive(v->o, &r);
    if (!r)
        return st;
    if (r->type != REDIS_REPLY_ARRAY ||
        (r->elements > 0 && r->element[0]->type == REDIS_REPLY_ERROR))
        st = failed(v);
    freeReplyObject(r);
    return st;
}

static usm_status read_value(value *v)
{
    const uint64_t want = v->size;
    usm_status     st   = ask(v->o, say("WATCH", v->key), REDIS_REPLY_STATUS, NULL);

    if (st == USM_OK)
        st = get_size(v);
    if (st == USM_OK && v->size != want)
        st = v->o->store.api->report(USM_E_IO,
                                     "the value of '%.200s' at the server %s has %llu bytes, not "
                                     "%llu: it was changed meanwhile",
                                     v->key, v->o->server.name, (unsigned long long)v->size,
                                     (unsigned long long)want);
    v->size = want;
    if (st == USM_OK)
        st = get_pieces(v);
    if (st == USM_OK)
        st = ask(v->o, say("MULTI", NULL), REDIS_REPLY_STATUS, NULL);
    return st == USM_OK ? execute(v, stale) : st;
}

/* ---- writing --------------------------------------------------------------------------- */

/* A name that is on the same node of a cluster and begins with the key, as access lists want it. */
static bool name_temporary(const char *key, char name[NAME_ROOM])
{
    const char *open   = strchr(key, '{');
    const char *close  = open ? strchr(open, '}') : NULL;
    const bool  tagged = close && close > open + 1;
    uint64_t    number;

    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return false;
    (void)snprintf(name, NAME_ROOM, "%s:usm-%016llx%s%s%s", key, (unsigned long long)number,
                   tagged ? "" : ":{", tagged ? "" : key, tagged ? "" : "}");
    return true;
}

static size_t write_ttl(const value *v, char text[16])
{
    return (size_t)snprintf(text, 16, "%u", (unsigned)v->o->store.config.ttl_s);
}

static usm_status dropped(const value *v)
{
    return v->o->store.api->report(USM_E_IO,
                                   "the server %s has dropped a part of '%.200s' while it was "
                                   "written: it evicts, or was emptied",
                                   v->o->server.name, v->key);
}

/* APPEND answers how long the value is by now: less than that if the server has dropped it. */
static usm_status take_length(const value *v, uint64_t length)
{
    redisReply *r  = NULL;
    usm_status  st = receive(v->o, &r);
    bool        is_ok;

    if (!r)
        return st;
    is_ok = r->type == REDIS_REPLY_INTEGER && (uint64_t)r->integer == length;
    freeReplyObject(r);
    r  = NULL;
    st = receive(v->o, &r); /* of EXPIRE */
    if (!r)
        return st;
    freeReplyObject(r);
    return is_ok ? USM_OK : dropped(v);
}

/* The temporary name has a life at any time, also if the server dropped it and APPEND makes it
 * anew. */
static usm_status send_piece(const value *v, const char *temporary, uint64_t at, size_t n)
{
    words      append = say("APPEND", temporary), expire = say("EXPIRE", temporary);
    char       ttl[16];
    usm_status st;

    add(&append, v->from + at, n);
    add(&expire, ttl, write_ttl(v, ttl));
    st = put(v->o, &append);
    return st == USM_OK ? put(v->o, &expire) : st;
}

static usm_status put_pieces(const value *v, const char *temporary)
{
    uint64_t   sent = 0, taken = 0;
    usm_status st = USM_OK;

    while (st == USM_OK && taken < v->size) {
        const uint64_t left = v->size - sent;

        if (left > 0 && sent - taken < AHEAD * PIECE) {
            const size_t n = left < PIECE ? (size_t)left : PIECE;

            st = send_piece(v, temporary, sent, n);
            sent += n;
        } else {
            taken = v->size - taken < PIECE ? v->size : taken + PIECE;
            st    = take_length(v, taken);
        }
    }
    return st;
}

static usm_status begin_write(const value *v, const char *temporary)
{
    words w = say("SET", temporary);
    char  ttl[16];

    add(&w, "", 0);
    add(&w, "EX", 2);
    add(&w, ttl, write_ttl(v, ttl));
    return ask(v->o, w, REDIS_REPLY_STATUS, NULL);
}

/* From now on the value is the key's, and stays. */
static usm_status end_write(const value *v, const char *temporary)
{
    words      rename = say("RENAME", temporary);
    usm_status st     = ask(v->o, say("MULTI", NULL), REDIS_REPLY_STATUS, NULL);

    add(&rename, v->key, strlen(v->key));
    if (st == USM_OK)
        st = ask(v->o, rename, REDIS_REPLY_STATUS, NULL);
    if (st == USM_OK)
        st = ask(v->o, say("PERSIST", v->key), REDIS_REPLY_STATUS, NULL);
    return st == USM_OK ? execute(v, dropped) : st;
}

static usm_status write_value(value *v)
{
    char       temporary[NAME_ROOM];
    usm_status st;

    if (!name_temporary(v->key, temporary))
        return v->o->store.api->report(USM_E_SYSTEM, "the system gives no random number");
    st = begin_write(v, temporary);
    if (st != USM_OK)
        return st;
    st = put_pieces(v, temporary);
    return st == USM_OK ? end_write(v, temporary) : st;
}

/* ---- the connection --------------------------------------------------------------------- */

static usm_status connect_to(usm_valkey_objects *o, const char *name)
{
    usm_valkey_server *v = &o->server;
    usm_status         st;

    (void)snprintf(v->name, sizeof(v->name), "%s", name);
    st = usm_valkey_meet(v);
    if (st == USM_OK)
        return USM_OK;
    usm_valkey_disconnect(v);
    st = st == USM_E_AGAIN ? USM_E_IO : st;
    return o->store.api->report(st, "the server %s cannot be used: %s", v->name, v->why);
}

/* The first server that answers; one that refuses the password ends the search. */
static usm_status connect_any(usm_valkey_objects *o)
{
    usm_status st = USM_E_IO;

    for (size_t i = 0; i < o->store.config.nhosts && st == USM_E_IO; i++)
        st = connect_to(o, o->store.config.hosts[i]);
    return st;
}

/* Goes where the words of MOVED say. */
static bool follow(usm_valkey_objects *o)
{
    char name[HOST_ROOM];

    if (!usm_valkey_moved_to(o->moved, name))
        return false;
    usm_valkey_disconnect(&o->server);
    return connect_to(o, name) == USM_OK;
}

/* Whether an operation that failed is begun again. */
static bool goes_on(usm_valkey_objects *o, bool was_idle)
{
    if (o->moved[0])
        return follow(o);
    return o->is_broken && was_idle;
}

static usm_status operate(value *v, usm_status (*operation)(value *))
{
    usm_valkey_objects *o  = v->o;
    usm_status          st = USM_E_IO;
    quiet               q;

    if (strlen(v->key) == 0 || strlen(v->key) > KEY_MAX)
        return o->store.api->report(USM_E_INVALID, "'%.64s' is no key of 1 to %u bytes", v->key,
                                    KEY_MAX);
    quiet_begin(&q);
    for (unsigned turn = 0; turn < TURNS_MAX; turn++) {
        const bool was_idle = o->server.link && turn == 0;

        o->moved[0]  = '\0';
        o->is_broken = false;
        st           = o->server.link ? USM_OK : connect_any(o);
        if (st == USM_OK)
            st = operation(v);
        if (st == USM_OK || !goes_on(o, was_idle))
            break;
        if (o->is_broken)
            usm_valkey_disconnect(&o->server);
    }
    if (st != USM_OK) /* replies that are on their way, WATCH and MULTI end with it */
        usm_valkey_disconnect(&o->server);
    quiet_end(&q);
    return st;
}

/* ---- the table --------------------------------------------------------------------------- */

static usm_status prepare(usm_valkey_objects *o, const char *config)
{
    usm_valkey_store *s  = &o->store;
    usm_status        st = usm_valkey_parse(s->api, config ? config : "", &s->config);

    if (st != USM_OK)
        return st;
    o->server.store = s;
    st              = usm_valkey_tls_init(s);
    if (st != USM_OK)
        return st;
    st = usm_valkey_password_take(s);
    if (st != USM_OK)
        usm_valkey_tls_fini(s);
    return st;
}

usm_status usm_valkey_objects_open(const usm_transport_params *params, void **objects)
{
    const usm_host_api *api = params->api;
    usm_valkey_objects *o;
    usm_status          st;
    quiet               q;

    if (params->struct_size != sizeof(*params))
        return api->report(USM_E_ABI, "the transport valkey was built for another libusm");
    o = api->heap_alloc(sizeof(*o));
    if (!o)
        return api->report(USM_E_NO_MEMORY, "no memory for a connection to a server");
    o->store.api = api;
    st           = prepare(o, params->config);
    if (st != USM_OK) {
        api->heap_free(o);
        return st;
    }
    quiet_begin(&q);
    st = connect_any(o);
    quiet_end(&q);
    if (st != USM_OK)
        usm_valkey_objects_close(o);
    else
        *objects = o;
    return st;
}

void usm_valkey_objects_close(void *objects)
{
    usm_valkey_objects *o = objects;

    if (!o)
        return;
    usm_valkey_disconnect(&o->server);
    usm_valkey_password_drop(&o->store);
    usm_valkey_tls_fini(&o->store);
    o->store.api->heap_free(o);
}

usm_status usm_valkey_object_size(void *objects, const char *name, uint64_t *size)
{
    value      v  = {.o = objects, .key = name};
    usm_status st = operate(&v, get_size);

    if (st == USM_OK)
        *size = v.size;
    return st;
}

usm_status usm_valkey_object_read(void *objects, const char *name, void *data, size_t size)
{
    value v = {.o = objects, .key = name, .size = size, .into = data};

    return operate(&v, read_value);
}

usm_status usm_valkey_object_write(void *objects, const char *name, const void *data, size_t size)
{
    value v = {.o = objects, .key = name, .size = size, .from = data};

    return operate(&v, write_value);
}
