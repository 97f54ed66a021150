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
 * Bytes are sent from where they lie, in one call with the text around them, and received to where
 * they belong.  hiredis parses all other replies, line by line; its functions for new objects are
 * replaced, so that it allocates none. */
#include "internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define ASIDE         16u /* commands of a batch that are not transfers                  */
#define TURNS         16  /* receives without a look at what is to be sent               */
#define REDIRECTS_MAX 16u /* of a transfer */
#define HOLD_NS       (50 * NS_PER_MS) /* before a cluster that is down is asked again */
#define KEPT_MAX      4096 /* bytes without a line end that are kept until there are more */

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
    char         key[KEY_ROOM];
    const size_t n = usm_valkey_key(v->store, block, key);

    put(b, "$%zu\r\n%s\r\n", n, key);
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
    if (!t)
        return;
    v->flying++;
    v->flying_bytes += t->size;
}

static bool fits(const usm_valkey_server *v)
{
    return v->batch.used + COMMAND_MAX <= TEXT_MAX && v->batch.nparts + 4 <= PARTS_MAX &&
           usm_valkey_nsent(v) + 8 <= SENT_MAX;
}

/* A server copies each value that it is to send before it sends the first of them, so many large
 * ones at a time are slower than a few. */
static bool has_window(const usm_valkey_server *v)
{
    return v->flying < WINDOW && (v->flying < 2 || v->flying_bytes < WINDOW_BYTES);
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
    put_key(v, &v->batch, usm_valkey_piece_of(t)->block);
    put_data(&v->batch, t);
    put(&v->batch, "$2\r\nEX\r\n");
    put_number(&v->batch, v->store->config.ttl_s);
    note_sent(v, USM_VALKEY_WHOLE, t);
}

static void put_part(usm_valkey_server *v, usm_transfer *t)
{
    put(&v->batch, "*1\r\n$5\r\nMULTI\r\n");
    put_expire(v, usm_valkey_piece_of(t)->block);
    put(&v->batch, "*4\r\n$8\r\nSETRANGE\r\n");
    put_key(v, &v->batch, usm_valkey_piece_of(t)->block);
    put_number(&v->batch, t->offset);
    put_data(&v->batch, t);
    put_expire(v, usm_valkey_piece_of(t)->block);
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
    const bool had = usm_valkey_note_store(v->store, usm_valkey_piece_of(t)->block, &is_stale);

    if (!piece->was_sent) /* a repetition does not know whether the first attempt made the key */
        piece->creates = !had;
    piece->was_sent = true;
    if (whole || (piece->creates && t->offset == 0)) {
        put_whole(v, t);
        return;
    }
    if (is_stale)
        put_remove(v, usm_valkey_piece_of(t)->block);
    put_part(v, t);
}

static void put_fetch(usm_valkey_server *v, usm_transfer *t)
{
    if (t->size == v->store->block_size) {
        put(&v->batch, "*2\r\n$3\r\nGET\r\n");
        put_key(v, &v->batch, usm_valkey_piece_of(t)->block);
    } else {
        put(&v->batch, "*4\r\n$8\r\nGETRANGE\r\n");
        put_key(v, &v->batch, usm_valkey_piece_of(t)->block);
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
    while (v->waiting && v->hold_ns == 0 && has_window(v) && fits(v)) {
        usm_transfer *t = v->waiting;

        v->waiting = t->next;
        if (!v->waiting)
            v->waiting_tail = &v->waiting;
        if (usm_valkey_piece_of(t)->asks) {
            put(&v->batch, "*1\r\n$6\r\nASKING\r\n");
            note_sent(v, USM_VALKEY_QUEUED, NULL);
            usm_valkey_piece_of(t)->asks = false;
        }
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
        ssize_t n = -1;

        if (v->store->api->fault("valkey.send", NULL))
            errno = EPIPE;
        else
            n = usm_valkey_send(v, b->parts + b->at, b->nparts - b->at);
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

static usm_status refuse(const usm_valkey_server *v, usm_transfer *t, const char *words)
{
    const usm_host_api *api      = v->store->api;
    const bool          is_store = t->op == USM_TRANSFER_STORE;

    if (is_store && strncmp(words, "OOM", 3) == 0)
        return api->report(USM_E_SPILL_FULL,
                           "the server %s has no room for %zu bytes more: %s; raise its maxmemory, "
                           "or name another tier in USM_SPILL",
                           v->name, t->size, words);
    return api->report(USM_E_IO, "the server %s refuses to %s %zu bytes of block %llu: %s", v->name,
                       is_store ? "store" : "fetch", t->size,
                       (unsigned long long)usm_valkey_piece_of(t)->block, words);
}

static usm_status lose(usm_valkey_server *v, usm_transfer *t)
{
    note_lost(v);
    return v->store->api->report(USM_E_IO,
                                 "the server %s no longer has block %llu: it evicted it, was "
                                 "restarted, or did not hear of this process for %u s",
                                 v->name, (unsigned long long)usm_valkey_piece_of(t)->block,
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
    usm_valkey_drop(v->store, usm_valkey_piece_of(t)->block);
    return lose(v, t);
}

/* Another server of the cluster has the block, or will: the transfer goes on there, or here a little
 * later.  False: the error has another reason. */
static bool goes_on(usm_valkey_server *v, usm_transfer *t, const char *words)
{
    usm_valkey_piece  *piece = usm_valkey_piece_of(t);
    usm_valkey_server *other = usm_valkey_redirect(v->store, words);
    const uint64_t     now   = usm_valkey_now();

    if (other && ++piece->redirects <= REDIRECTS_MAX) {
        piece->asks = strncmp(words, "ASK", 3) == 0;
        usm_valkey_server_add(other, t);
        return true;
    }
    if (strncmp(words, "CLUSTERDOWN", 11) != 0 && strncmp(words, "TRYAGAIN", 8) != 0)
        return false;
    if (piece->refused_ns == 0)
        piece->refused_ns = now;
    if (now - piece->refused_ns >= usm_valkey_timeout_ns(v))
        return false;
    v->hold_ns = now + HOLD_NS;
    usm_valkey_server_add(v, t);
    return true;
}

static void end_transfer(usm_valkey_server *v, const usm_valkey_sent *sent)
{
    char       words[REASON_ROOM];
    usm_status st = USM_OK;

    memcpy(words, v->refusal[0] ? v->refusal : v->reply.text, sizeof(words));
    v->flying--;
    v->flying_bytes -= sent->transfer->size;
    v->sent_first++;
    if (!words[0] || !usm_load_relaxed(&v->store->is_cluster) ||
        !goes_on(v, sent->transfer, words)) {
        st            = judge(v, sent);
        v->refusal[0] = '\0';
        v->reply      = (usm_valkey_reply){0};
        usm_valkey_finish(sent->transfer, st);
        return;
    }
    v->refusal[0] = '\0';
    v->reply      = (usm_valkey_reply){0};
}

static void on_reply(usm_valkey_server *v)
{
    const usm_valkey_sent sent = *oldest(v);

    if (sent.transfer) {
        end_transfer(v, &sent);
        return;
    }
    if (sent.kind == USM_VALKEY_QUEUED && v->reply.text[0])
        memcpy(v->refusal, v->reply.text, sizeof(v->refusal));
    if (sent.kind == USM_VALKEY_RENEW && v->reply.type == REDIS_REPLY_INTEGER &&
        v->reply.integer == 0)
        note_lost(v);
    if (sent.kind == USM_VALKEY_RENEW && v->reply.text[0])
        (void)usm_valkey_redirect(v->store, v->reply.text); /* for the next round */
    v->reply = (usm_valkey_reply){0};
    v->sent_first++;
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

/* ---- receiving ------------------------------------------------------------------------- */

/* Bytes that were received, from `at` on. */
typedef struct span {
    const char *at;
    size_t      size;
} span;

static void skip(span *s, size_t n)
{
    s->at += n;
    s->size -= n;
}

/* If a block of the size that is wanted begins here, its bytes go to where they belong, past
 * hiredis: those that are here by a copy, the others as they are received.  False: something else
 * begins here, or too little of it is here. */
static bool begin_block(usm_valkey_server *v, span *s)
{
    const usm_valkey_sent *sent = oldest(v);
    char                   head[32];
    int                    n;
    size_t                 here;

    if (!sent || sent->kind != USM_VALKEY_FETCH || v->link->reader->len > v->link->reader->pos)
        return false;
    n = snprintf(head, sizeof(head), "$%zu\r\n", sent->transfer->size);
    if (s->size < (size_t)n || memcmp(s->at, head, (size_t)n) != 0)
        return false;
    skip(s, (size_t)n);
    here = usm_min_size(s->size, sent->transfer->size);
    memcpy(sent->transfer->data, s->at, here);
    skip(s, here);
    v->block_left = sent->transfer->size - here;
    v->end_left   = 2;
    return true;
}

/* The line end behind a block. */
static void end_block(usm_valkey_server *v, span *s)
{
    const size_t n = usm_min_size(s->size, v->end_left);

    skip(s, n);
    v->end_left -= (unsigned)n;
    if (v->end_left > 0)
        return;
    v->reply.type = REDIS_REPLY_STRING;
    v->reply.size = oldest(v)->transfer->size;
    on_reply(v);
}

/* Hands a line to hiredis, so that what is behind it can be a block again.  False: the line's end
 * is not here; *rest: it will be looked at once there is more. */
static bool pass_line(usm_valkey_server *v, span *s, bool *rest)
{
    const char  *end = memchr(s->at, '\n', s->size);
    const size_t n   = end ? (size_t)(end - s->at) + 1 : s->size;

    *rest = !end && n < KEPT_MAX;
    if (*rest)
        return true;
    if (v->link->reader->len > v->store->block_size + KEPT_MAX) {
        (void)snprintf(v->why, sizeof(v->why), "its replies are longer than what was stored");
        return false;
    }
    if (redisReaderFeed(v->link->reader, s->at, n) != REDIS_OK)
        return fail(v, "receiving", ENOMEM);
    skip(s, n);
    return parse(v);
}

static bool take(usm_valkey_server *v, span s)
{
    bool rest = false;

    while (s.size > 0 && !rest) {
        if (v->end_left > 0)
            end_block(v, &s);
        else if (!begin_block(v, &s) && !pass_line(v, &s, &rest))
            return false;
        if (v->block_left > 0)
            break;
    }
    memmove(v->chunk, s.at, s.size);
    v->kept = s.size;
    return true;
}

/* Receives the rest of a block to its place, and what is behind it. */
static ssize_t receive_some(usm_valkey_server *v)
{
    const usm_transfer *t       = v->block_left > 0 ? oldest(v)->transfer : NULL;
    struct iovec        into[2] = {{v->chunk + v->kept, CHUNK_SIZE - v->kept}};

    if (t) {
        into[1] = into[0];
        into[0] = (struct iovec){(char *)t->data + t->size - v->block_left, v->block_left};
    }
    if (!v->store->api->fault("valkey.receive", NULL))
        return usm_valkey_recv(v, into, t ? 2 : 1);
    errno = ECONNRESET;
    return -1;
}

bool usm_valkey_receive(usm_valkey_server *v)
{
    for (int turn = 0; turn < TURNS || usm_valkey_has_more(v); turn++) {
        const ssize_t n = receive_some(v);
        size_t        block;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || fail(v, "receiving", errno);
        if (n == 0)
            return fail(v, "receiving", 0);
        v->heard_ns = usm_valkey_now();
        block       = usm_min_size((size_t)n, v->block_left);
        v->block_left -= block;
        if (!take(v, (span){v->chunk, v->kept + (size_t)n - block}))
            return false;
    }
    return true;
}
