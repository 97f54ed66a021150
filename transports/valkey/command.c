/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands of a connection: how transfers are written, how the text and the blocks' bytes are sent,
 * and how replies find what they answer.  Called by the server's thread alone (server.c).
 *
 *     a whole block          SET key bytes EX ttl;  GET key
 *     a part of a block      MULTI; EXPIRE key ttl; SETRANGE key offset bytes; EXPIRE; EXEC
 *                            GETRANGE key first last
 *     removed, renewed       UNLINK key;  EXPIRE key ttl
 *
 * The first EXPIRE of a part tells whether the key was there.  If the server has evicted it,
 * SETRANGE makes one that has zeros elsewhere: the transfer fails, and the key is removed (the second
 * EXPIRE removes it should this process not live to do so).  A key that is not there is never taken for a block: GET answers nil, GETRANGE
 * nothing.
 *
 * Bytes are sent from where they lie, in one call with the text around them.  hiredis parses the
 * replies; its functions for new objects are replaced, so that a block's bytes are copied out of
 * its buffer straight to their destination. */
#include "internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

#define ASIDE 16u /* commands of a batch that are not transfers */

/* ---- writing ------------------------------------------------------------------------- */

static void add_part(usm_valkey_batch *b, void *data, size_t size)
{
    struct iovec *last = b->nparts > 0 ? &b->parts[b->nparts - 1] : NULL;

    if (last && (char *)last->iov_base + last->iov_len == data)
        last->iov_len += size;
    else
        b->parts[b->nparts++] = (struct iovec){data, size};
}

USM_PRINTF(2, 3) static void put(usm_valkey_batch *b, const char *format, ...)
{
    char   *at = b->text + b->used;
    va_list args;
    int     n;

    va_start(args, format);
    n = vsnprintf(at, TEXT_MAX - b->used, format, args);
    va_end(args);
    b->used += (size_t)n; /* fits(): there is room for all of a transfer's commands */
    add_part(b, at, (size_t)n);
}

static void put_number(usm_valkey_batch *b, uint64_t number)
{
    char digits[24];
    int  n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);

    put(b, "$%d\r\n%s\r\n", n, digits);
}

static void put_key(const usm_valkey_server *v, usm_valkey_batch *b, uint64_t block)
{
    char key[KEY_ROOM];
    int  n = snprintf(key, sizeof(key), "%s:%016llx:%llx", v->store->config.prefix,
                      (unsigned long long)v->store->id, (unsigned long long)block);

    put(b, "$%d\r\n%s\r\n", n, key);
}

static void put_data(usm_valkey_batch *b, const usm_transfer *t)
{
    put(b, "$%zu\r\n", t->size);
    add_part(b, t->data, t->size);
    put(b, "\r\n");
}

static void put_expire(usm_valkey_server *v, uint64_t block)
{
    put(&v->batch, "*3\r\n$6\r\nEXPIRE\r\n");
    put_key(v, &v->batch, block);
    put_number(&v->batch, v->store->config.ttl_s);
}

static void note_sent(usm_valkey_server *v, usm_valkey_kind kind, usm_transfer *t)
{
    v->sent[v->sent_end++ % SENT_MAX] = (usm_valkey_sent){t, kind};
    v->flying += t != NULL;
}

static bool fits(const usm_valkey_server *v)
{
    return v->batch.used + COMMAND_MAX <= TEXT_MAX && v->batch.nparts + 4 <= PARTS_MAX &&
           usm_valkey_nsent(v) + 8 <= SENT_MAX;
}

static void put_remove(usm_valkey_server *v, uint64_t block)
{
    put(&v->batch, "*2\r\n$6\r\nUNLINK\r\n");
    put_key(v, &v->batch, block);
    note_sent(v, USM_VALKEY_REMOVE, NULL);
}

static void put_whole(usm_valkey_server *v, usm_transfer *t)
{
    put(&v->batch, "*5\r\n$3\r\nSET\r\n");
    put_key(v, &v->batch, t->block);
    put_data(&v->batch, t);
    put(&v->batch, "$2\r\nEX\r\n");
    put_number(&v->batch, v->store->config.ttl_s);
    note_sent(v, USM_VALKEY_WHOLE, t);
}

static void put_part(usm_valkey_server *v, usm_transfer *t)
{
    put(&v->batch, "*1\r\n$5\r\nMULTI\r\n");
    put_expire(v, t->block);
    put(&v->batch, "*4\r\n$8\r\nSETRANGE\r\n");
    put_key(v, &v->batch, t->block);
    put_number(&v->batch, t->offset);
    put_data(&v->batch, t);
    put_expire(v, t->block);
    put(&v->batch, "*1\r\n$4\r\nEXEC\r\n");
    for (int i = 0; i < 4; i++)
        note_sent(v, USM_VALKEY_QUEUED, NULL);
    note_sent(v, USM_VALKEY_PART, t);
}

static void put_store(usm_valkey_server *v, usm_transfer *t)
{
    usm_valkey_piece *piece = usm_valkey_piece_of(t);
    const bool        whole = t->size == v->store->block_size;
    bool              is_stale;
    const bool        had = usm_valkey_note_store(v->store, t->block, &is_stale);

    if (!piece->was_sent) /* a repetition does not know whether the first attempt made the key */
        piece->creates = !had;
    piece->was_sent = true;
    if (whole || (piece->creates && t->offset == 0)) {
        put_whole(v, t);
        return;
    }
    if (is_stale)
        put_remove(v, t->block);
    put_part(v, t);
}

static void put_fetch(usm_valkey_server *v, usm_transfer *t)
{
    if (t->size == v->store->block_size) {
        put(&v->batch, "*2\r\n$3\r\nGET\r\n");
        put_key(v, &v->batch, t->block);
    } else {
        put(&v->batch, "*4\r\n$8\r\nGETRANGE\r\n");
        put_key(v, &v->batch, t->block);
        put_number(&v->batch, t->offset);
        put_number(&v->batch, t->offset + t->size - 1);
    }
    note_sent(v, USM_VALKEY_FETCH, t);
}

static void put_renewals(usm_valkey_server *v)
{
    for (unsigned n = 0; n < ASIDE && v->renew_at != UINT64_MAX && fits(v); n++) {
        if (!usm_valkey_next_stored(v->store, v->index, &v->renew_at)) {
            v->renew_at = UINT64_MAX;
            return;
        }
        put_expire(v, v->renew_at++);
        note_sent(v, USM_VALKEY_RENEW, NULL);
    }
}

void usm_valkey_fill(usm_valkey_server *v)
{
    uint64_t block = 0;

    for (unsigned n = 0; n < ASIDE && fits(v) && usm_valkey_next_stale(v->store, v->index, &block);
         n++)
        put_remove(v, block);
    put_renewals(v);
    while (v->waiting && v->flying < WINDOW && fits(v)) {
        usm_transfer *t = v->waiting;

        v->waiting = t->next;
        if (!v->waiting)
            v->waiting_tail = &v->waiting;
        if (t->op == USM_TRANSFER_STORE)
            put_store(v, t);
        else
            put_fetch(v, t);
    }
}

bool usm_valkey_fill_removals(usm_valkey_server *v, uint64_t *from)
{
    uint64_t block = 0;

    while (fits(v) && usm_valkey_next_stale(v->store, v->index, &block))
        put_remove(v, block);
    while (fits(v)) {
        if (!usm_valkey_next_stored(v->store, v->index, from))
            return false;
        put_remove(v, (*from)++);
    }
    return true;
}

/* ---- sending --------------------------------------------------------------------------- */

static bool fail(usm_valkey_server *v, const char *what, int error)
{
    char room[128];

    (void)snprintf(v->why, sizeof(v->why), "%s: %s", what,
                   error ? strerror_r(error, room, sizeof(room)) : "the server has closed it");
    return false;
}

/* `n` bytes of the batch have gone. */
static void advance(usm_valkey_batch *b, size_t n)
{
    while (n > 0) {
        struct iovec *part = &b->parts[b->at];
        const size_t  most = usm_min_size(n, part->iov_len);

        part->iov_base = (char *)part->iov_base + most;
        part->iov_len -= most;
        n -= most;
        b->at += part->iov_len == 0;
    }
}

bool usm_valkey_flush(usm_valkey_server *v)
{
    usm_valkey_batch *b = &v->batch;

    while (b->at < b->nparts) {
        const struct msghdr m = {.msg_iov = b->parts + b->at, .msg_iovlen = b->nparts - b->at};
        ssize_t             n = -1;

        if (v->store->api->fault("valkey.send", NULL))
            errno = EPIPE;
        else
            n = sendmsg(v->link->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || fail(v, "sending", errno);
        v->heard_ns = usm_valkey_now(); /* it takes what it is sent */
        advance(b, (size_t)n);
    }
    b->nparts = b->at = 0;
    b->used           = 0;
    return true;
}

/* ---- replies --------------------------------------------------------------------------- */

static usm_valkey_sent *oldest(usm_valkey_server *v)
{
    return usm_valkey_nsent(v) > 0 ? &v->sent[v->sent_first % SENT_MAX] : NULL;
}

static void *on_string(const redisReadTask *task, char *text, size_t size)
{
    usm_valkey_server     *v    = task->privdata;
    usm_valkey_reply      *r    = &v->reply;
    const usm_valkey_sent *sent = oldest(v);

    if (task->type == REDIS_REPLY_ERROR)
        (void)snprintf(r->text, sizeof(r->text), "%.*s", (int)usm_min_size(size, REASON_ROOM),
                       text);
    else if (sent && sent->kind == USM_VALKEY_FETCH && size == sent->transfer->size)
        memcpy(sent->transfer->data, text, size);
    if (!task->parent) {
        r->type = task->type;
        r->size = size;
    }
    return v;
}

static void *on_integer(const redisReadTask *task, long long value)
{
    usm_valkey_server *v = task->privdata;

    if (!task->parent) {
        v->reply.type    = REDIS_REPLY_INTEGER;
        v->reply.integer = value;
    } else if (task->idx == 0) {
        v->reply.first = value;
    }
    return v;
}

#if HIREDIS_MAJOR >= 1
static void *on_array(const redisReadTask *task, size_t size)
#else
static void *on_array(const redisReadTask *task, int size)
#endif
{
    usm_valkey_server *v = task->privdata;

    (void)size;
    if (!task->parent)
        v->reply.type = REDIS_REPLY_ARRAY;
    return v;
}

static void *on_nil(const redisReadTask *task)
{
    usm_valkey_server *v = task->privdata;

    if (!task->parent)
        v->reply.type = REDIS_REPLY_NIL;
    return v;
}

static void free_nothing(void *object)
{
    (void)object;
}

const redisReplyObjectFunctions usm_valkey_reply_functions = {
    .createString  = on_string,
    .createArray   = on_array,
    .createInteger = on_integer,
    .createNil     = on_nil,
    .freeObject    = free_nothing,
};

static void note_lost(usm_valkey_server *v)
{
    (void)usm_add_relaxed(&v->lost, 1u);
    if (v->warned_lost)
        return;
    v->warned_lost = true;
    v->store->api->log(USM_LOG_WARN,
                       "the server %s no longer has all blocks that were stored there: it evicts, "
                       "was restarted, or did not hear of this process for %u s",
                       v->name, (unsigned)v->store->config.ttl_s);
}

static usm_status refuse(const usm_valkey_server *v, const usm_transfer *t, const char *words)
{
    const usm_host_api *api      = v->store->api;
    const bool          is_store = t->op == USM_TRANSFER_STORE;

    if (is_store && strncmp(words, "OOM", 3) == 0)
        return api->report(USM_E_SPILL_FULL,
                           "the server %s has no room for %zu bytes more: %s; raise its maxmemory, "
                           "or name another tier in USM_SPILL",
                           v->name, t->size, words);
    return api->report(USM_E_IO, "the server %s refuses to %s %zu bytes of block %llu: %s", v->name,
                       is_store ? "store" : "fetch", t->size, (unsigned long long)t->block, words);
}

static usm_status lose(usm_valkey_server *v, const usm_transfer *t)
{
    note_lost(v);
    return v->store->api->report(USM_E_IO,
                                 "the server %s no longer has block %llu: it evicted it, was "
                                 "restarted, or did not hear of this process for %u s",
                                 v->name, (unsigned long long)t->block,
                                 (unsigned)v->store->config.ttl_s);
}

/* The result of the transfer that the reply ends. */
static usm_status judge(usm_valkey_server *v, const usm_valkey_sent *sent)
{
    const usm_valkey_reply *r      = &v->reply;
    usm_transfer           *t      = sent->transfer;
    usm_status              status = USM_E_IO;

    if (v->store->api->fault(t->op == USM_TRANSFER_STORE ? "valkey.store" : "valkey.fetch",
                             &status))
        return v->store->api->report(status, "the server %s failed as a test asked for", v->name);
    if (v->refusal[0])
        return refuse(v, t, v->refusal);
    if (r->text[0])
        return refuse(v, t, r->text);
    if (sent->kind == USM_VALKEY_FETCH)
        return r->type == REDIS_REPLY_STRING && r->size == t->size ? USM_OK : lose(v, t);
    if (r->type != (sent->kind == USM_VALKEY_PART ? REDIS_REPLY_ARRAY : REDIS_REPLY_STATUS))
        return refuse(v, t, "its reply makes no sense");
    if (sent->kind != USM_VALKEY_PART || r->first == 1 || usm_valkey_piece_of(t)->creates)
        return USM_OK;
    usm_valkey_drop(v->store, t->block);
    return lose(v, t);
}

static void on_reply(usm_valkey_server *v)
{
    const usm_valkey_sent sent = *oldest(v);
    usm_status            st   = USM_OK;

    if (sent.kind == USM_VALKEY_QUEUED && v->reply.text[0])
        memcpy(v->refusal, v->reply.text, sizeof(v->refusal));
    if (sent.kind == USM_VALKEY_RENEW && v->reply.type == REDIS_REPLY_INTEGER &&
        v->reply.integer == 0)
        note_lost(v);
    if (sent.transfer) {
        st            = judge(v, &sent);
        v->refusal[0] = '\0';
    }
    v->reply = (usm_valkey_reply){0};
    v->sent_first++;
    if (!sent.transfer)
        return;
    v->flying--;
    usm_valkey_finish(sent.transfer, st);
}

/* Everything that hiredis has got is parsed. */
static bool parse(usm_valkey_server *v)
{
    void *object = NULL;

    for (;;) {
        if (redisReaderGetReply(v->link->reader, &object) != REDIS_OK) {
            (void)snprintf(v->why, sizeof(v->why), "its replies make no sense: %.128s",
                           v->link->reader->errstr);
            return false;
        }
        if (!object)
            return true;
        if (usm_valkey_nsent(v) == 0) {
            (void)snprintf(v->why, sizeof(v->why), "it answers what was not asked: %.128s",
                           v->reply.text);
            return false;
        }
        on_reply(v);
    }
}

bool usm_valkey_receive(usm_valkey_server *v)
{
    ssize_t n;

    do {
        n = -1;
        if (v->store->api->fault("valkey.receive", NULL))
            errno = ECONNRESET;
        else
            n = recv(v->link->fd, v->chunk, CHUNK_SIZE, MSG_DONTWAIT);
        if (n < 0 && errno != EINTR)
            return errno == EAGAIN || errno == EWOULDBLOCK || fail(v, "receiving", errno);
        if (n == 0)
            return fail(v, "receiving", 0);
        if (n < 0)
            continue;
        v->heard_ns = usm_valkey_now();
        if (redisReaderFeed(v->link->reader, v->chunk, (size_t)n) != REDIS_OK)
            return fail(v, "receiving", ENOMEM);
        if (!parse(v))
            return false;
    } while (n < 0 || (size_t)n == CHUNK_SIZE);
    return true;
}
