/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes what the transport over Valkey and Redis servers reads from a server.  Called by
 * libFuzzer.
 *
 * Input: flags, how many commands there are, a byte for each, and the bytes that the server
 * answers, where 1 and 2 stand for a page and for a block of other bytes.  They arrive in pieces.
 * Checked beyond "no sanitizer speaks": each transfer ends once at most; one that has fetched has
 * bytes that the server sent in one run, and wrote nothing beside them; the counts of what is under
 * way hold. */
#include "../../transports/valkey/internal.h"

#include "device/registry.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 2 * 4096, PAGE = 4096, COMMANDS_MAX = 16, GUARD = 64, CLUSTER = 1 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct work {
    usm_transfer  t;
    unsigned      ended;
    usm_status    status;
    unsigned char bytes[GUARD + BLOCK + GUARD];
} work;

static struct { /* guarded by there being one thread */
    unsigned char *stream;
    size_t         size, at;
    uint32_t       pieces; /* a generator of their sizes */
    work           works[COMMANDS_MAX];
    unsigned       nworks;
} run;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_valkey_reply: not so: %s\n", what);
    abort();
}

/* ---- what is around the parser ------------------------------------------------------------- */

ssize_t usm_valkey_send(usm_valkey_server *v, struct iovec *parts, unsigned n)
{
    size_t sum = 0;

    (void)v;
    for (unsigned i = 0; i < n; i++)
        sum += parts[i].iov_len;
    return (ssize_t)sum;
}

ssize_t usm_valkey_recv(usm_valkey_server *v, struct iovec *parts, unsigned n)
{
    size_t most, sum = 0;

    (void)v;
    run.pieces = run.pieces * 1664525u + 1013904223u;
    most       = run.pieces >> 30 == 0 ? 3 * PAGE : (run.pieces >> 16 & 63u) + 1;
    if (run.at == run.size) {
        errno = EAGAIN;
        return -1;
    }
    for (unsigned i = 0; i < n && sum < most && run.at < run.size; i++) {
        size_t here = usm_min_size(usm_min_size(parts[i].iov_len, most - sum), run.size - run.at);

        memcpy(parts[i].iov_base, run.stream + run.at, here);
        run.at += here;
        sum += here;
    }
    must(sum > 0, "there is room to receive into");
    return (ssize_t)sum;
}

bool usm_valkey_has_more(const usm_valkey_server *v)
{
    (void)v;
    return false;
}

/* The transfer goes on elsewhere. */
void usm_valkey_server_add(usm_valkey_server *v, usm_transfer *t)
{
    (void)v;
    usm_valkey_finish(t, USM_E_AGAIN);
}

usm_status usm_valkey_server_create(usm_valkey_store *s, unsigned index, const char *name,
                                    usm_valkey_server **server)
{
    usm_valkey_server *v = calloc(1, sizeof(*v));

    must(v != NULL && strlen(name) < HOST_ROOM, "a server has a name");
    v->store = s;
    v->index = index;
    (void)snprintf(v->name, sizeof(v->name), "%s", name);
    *server = v;
    return USM_OK;
}

/* ---- transfers ---------------------------------------------------------------------------------
 * */

static unsigned char pattern(const work *w)
{
    return (unsigned char)(0xE0 + (w - run.works));
}

static void done(usm_transfer *t, usm_status status)
{
    work *w = (work *)(void *)t; /* t comes first */

    must(w->ended++ == 0, "a transfer ends once");
    w->status = status;
    must(status == USM_OK || status == USM_E_AGAIN || usm_last_error()[0] != 0,
         "a failure has words");
}

static void add(usm_valkey_server *v, unsigned kind)
{
    work      *w      = &run.works[run.nworks];
    const bool is_two = kind & 2;

    *w = (work){.t = {.op    = kind & 1 ? USM_TRANSFER_STORE : USM_TRANSFER_FETCH,
                      .block = run.nworks,
                      .size  = is_two ? BLOCK : PAGE,
                      .done  = done}};
    memset(w->bytes, pattern(w), sizeof(w->bytes));
    w->t.data = w->bytes + GUARD;
    if (!is_two && kind & 4)
        w->t.offset = PAGE;
    *usm_valkey_piece_of(&w->t) = (usm_valkey_piece){.block = run.nworks++, .asks = kind & 8};
    *v->waiting_tail            = &w->t;
    v->waiting_tail             = &w->t.next;
}

static void check_work(const work *w)
{
    const size_t  size = w->t.op == USM_TRANSFER_FETCH ? w->t.size : 0;
    unsigned char sent[16 + BLOCK]; /* the end of the line that says the size, and the bytes */
    size_t        n;

    for (size_t i = 0; i < sizeof(w->bytes); i++)
        if (i < GUARD || i >= GUARD + size)
            must(w->bytes[i] == pattern(w), "nothing is written beside a transfer's bytes");
    if (!w->ended || w->status != USM_OK || size == 0)
        return;
    n = (size_t)snprintf((char *)sent, 16, "%zu\r\n", size);
    memcpy(sent + n, w->bytes + GUARD, size);
    must(memmem(run.stream, run.at, sent, n + size) != NULL,
         "what was fetched is what the server sent as a value of that size");
}

/* ---- a connection ------------------------------------------------------------------------------
 * */

static usm_valkey_store *make_store(bool is_cluster)
{
    usm_valkey_store  *s = calloc(1, sizeof(*s));
    usm_valkey_server *v = NULL;

    must(s != NULL, "there is memory");
    s->api        = &usm__registry_api;
    s->block_size = BLOCK;
    must(usm_valkey_parse(s->api, "server", &s->config) == USM_OK, "it is a server");
    usm_valkey_places_init(s, &(usm_transport_params){.struct_size = sizeof(usm_transport_params)});
    must(pthread_mutex_init(&s->lock, NULL) == 0 && usm_valkey_room_init(s) == USM_OK, "locks");
    must(usm_valkey_server_of(s, "server:1") != NULL, "the first server");
    v        = s->servers[0];
    v->chunk = malloc(CHUNK_SIZE);
    v->link  = calloc(1, sizeof(*v->link));
    must(v->chunk && v->link, "there is memory");
    v->functions    = usm_valkey_reply_functions;
    v->link->reader = redisReaderCreateWithFunctions(&v->functions);
    must(v->link->reader != NULL, "there is memory");
    v->link->reader->privdata = v;
    v->waiting_tail           = &v->waiting;
    v->renew_at               = UINT64_MAX;
    s->is_cluster             = is_cluster;
    must(usm_valkey_reserve(s, 0, (uint64_t)2 * COMMANDS_MAX, 1) == USM_OK, "there is room");
    return s;
}

static void free_store(usm_valkey_store *s)
{
    usm_valkey_server *v = s->servers[0];

    redisReaderFree(v->link->reader);
    free(v->link);
    free(v->chunk);
    for (unsigned i = 0; i < s->nservers; i++)
        free(s->servers[i]);
    usm_valkey_room_fini(s);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

static void check_counts(const usm_valkey_server *v)
{
    size_t   bytes = 0;
    unsigned n     = 0;

    must(usm_valkey_nsent(v) <= SENT_MAX, "replies match commands");
    for (unsigned i = v->sent_first; i != v->sent_end; i++)
        if (v->sent[i % SENT_MAX].transfer) {
            n++;
            bytes += v->sent[i % SENT_MAX].transfer->size;
        }
    must(n == v->flying && bytes == v->flying_bytes, "what is under way is counted");
    must(v->kept < CHUNK_SIZE, "there is room for more");
}

/* Commands: 0 to 15 transfers; 16: one that is renewed; 17: one that is removed. */
static void answer(usm_valkey_store *s, const uint8_t *commands, unsigned n)
{
    usm_valkey_server *v     = s->servers[0];
    bool               stale = false;

    for (unsigned i = 0; i < n; i++) {
        if (commands[i] % 18 < 16)
            add(v, commands[i] % 18);
        else if (commands[i] % 18 == 16)
            v->renew_at = 0;
        else
            (void)usm_valkey_note_store(s, COMMANDS_MAX + i, &stale),
                (void)usm_valkey_forget(s, COMMANDS_MAX + i, 1, 1);
    }
    for (bool ok = true; ok && run.at < run.size;) {
        usm_valkey_fill(v);
        ok = usm_valkey_flush(v) && usm_valkey_receive(v);
        must(ok || v->why[0] != 0, "a broken connection has a reason");
        if (ok)
            check_counts(v);
    }
}

static void expand(const uint8_t *data, size_t size)
{
    run.stream = malloc(size * BLOCK + 1);
    must(run.stream != NULL, "there is memory");
    run.size = run.at = 0;
    for (size_t i = 0; i < size; i++) {
        const size_t n = data[i] == 1 ? PAGE : data[i] == 2 ? BLOCK : 1;

        for (size_t k = 0; k < n; k++)
            run.stream[run.size++] = n == 1 ? data[i] : (unsigned char)(i * 31 + k % 251);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usm_valkey_store *s;
    unsigned          n;

    if (size < 3 || size > 2000)
        return 0;
    n = data[1] % (COMMANDS_MAX + 1u);
    if (size < 3u + n)
        return 0;
    run.nworks = 0;
    run.pieces = data[2];
    expand(data + 3 + n, size - 3 - n);
    s = make_store(data[0] & CLUSTER);
    answer(s, data + 3, n);
    for (unsigned i = 0; i < run.nworks; i++)
        check_work(&run.works[i]);
    free_store(s);
    free(run.stream);
    return 0;
}
