/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes what nodes of far memory read from each other.  Called by libFuzzer.
 *
 * The input is read three ways: as a header and as the body of a joining, as they come; as a
 * header's fields, with a checksum that is right; and as a script of messages that come to a node
 * from a member it knows, in the middle of transfers both ways: records of RECORD bytes, which are
 * put together to headers of their session (most of them), or sent as they are, on all its tags,
 * while time goes on.  Checked beyond "no sanitizer speaks": what is decoded encodes to the same;
 * the node lends no more than it has, every transfer ends once and in time, and the memory that the
 * link has is left alone (net.h). */
#include "far/far.h"
#include "far/net.h"
#include "far/wire.h"

#include "device/registry.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORD = 24, RECORDS_MAX = 200, PAGE = 4096, BLOCKS = 4, MS = 1000000, LEND = 256 * 1024 };

typedef struct bench {
    net          *n;
    far_node     *nodes[2];
    far_store    *stores[2];
    uint64_t      wakes[2];
    far_header    last; /* of the member: its session                                         */
    usm_transfer  transfers[2][BLOCKS];
    unsigned      ended[2][BLOCKS];
    unsigned char memory[2][BLOCKS][2 * PAGE];
} bench;

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* ---- headers ------------------------------------------------------------------------- */

static void read_header(const uint8_t *data, size_t size)
{
    unsigned char bytes[FAR_HEADER];
    far_header    h, again;

    if (!far_header_decode(data, size, &h))
        return;
    far_header_encode(&h, bytes);
    must(memcmp(bytes, data, sizeof bytes) == 0);
    must(far_header_decode(bytes, sizeof bytes, &again));
}

static void read_join(const uint8_t *data, size_t size)
{
    unsigned char bytes[FAR_JOIN_BODY];
    far_join      j, again;

    if (!far_join_decode(data, size, &j))
        return;
    must(memchr(j.domain, 0, sizeof j.domain) != NULL);
    far_join_encode(&j, bytes);
    must(far_join_decode(bytes, sizeof bytes, &again));
    must(again.lends == j.lends && memcmp(again.domain, j.domain, sizeof j.domain) == 0);
}

static uint64_t take(const uint8_t *at, unsigned bytes)
{
    uint64_t v = 0;

    memcpy(&v, at, bytes);
    return v;
}

/* A header of the session, from the RECORD bytes. */
static far_header header_of(const bench *b, const uint8_t *r)
{
    far_header h = {.op          = (far_wire_op)(r[1] % FAR_OP_END),
                    .status      = (far_wire_status)(r[2] % FAR_STATUS_END),
                    .slot_number = r[3] & 0x80 ? (uint16_t)take(r + 3, 2) : r[3] & 7,
                    .shift       = r[5] & 0x80 ? r[5] & 63 : 13};

    h.from      = r[0] & 0x40 ? take(r + 6, 8) : b->last.from;
    h.to        = r[0] & 0x40 ? take(r + 7, 8) : b->last.to;
    h.operation = r[6] & 0x80 ? take(r + 6, 8) : b->last.operation + r[6] - 8;
    h.behind    = r[7] & 0x80 ? (uint32_t)take(r + 8, 4) : r[7] & 15;
    h.store     = r[9] & 0x80 ? (uint32_t)take(r + 9, 4) : r[9] & 3;
    h.block     = r[10] & 0x80 ? take(r + 12, 8) : r[10] & 15;
    h.offset    = r[11] & 0x80 ? (uint32_t)take(r + 16, 4) : (r[11] & 3u) * (r[11] & 4 ? PAGE : 1);
    h.length    = r[20] & 0x80 ? (uint32_t)take(r + 20, 4) : (r[20] & 7u) * (r[20] & 8 ? PAGE : 1);
    if (h.op == FAR_OP_JOIN)
        h.length = FAR_JOIN_BODY;
    return h;
}

static void read_fields(const uint8_t *data, size_t size)
{
    static const bench none;
    unsigned char      bytes[FAR_HEADER];
    far_header         h, again;

    if (size < RECORD)
        return;
    h = header_of(&none, data);
    far_header_encode(&h, bytes);
    if (far_header_decode(bytes, sizeof bytes, &again))
        must(again.op == h.op && again.operation == h.operation && again.block == h.block &&
             again.offset == h.offset && again.length == h.length && again.from == h.from &&
             (again.op < FAR_OP_FETCH || again.op > FAR_OP_STORE ||
              (uint64_t)again.offset + again.length <= (uint64_t)1 << again.shift));
}

/* ---- a node and a member --------------------------------------------------------------- */

static void sniff(void *b_, uint32_t from, uint32_t tag, const void *bytes, size_t size)
{
    bench     *b = b_;
    far_header h;

    (void)tag;
    if (from == 1 && far_header_decode(bytes, size, &h) && h.op != FAR_OP_JOIN)
        b->last = h;
}

static void notice(void *b, uint32_t node)
{
    ((bench *)b)->wakes[node] = 0;
}

static void wake(void *at)
{
    *(uint64_t *)at = 0;
}

static void misuse(void *b, const char *what)
{
    (void)b;
    (void)what;
    abort();
}

static void nothing(void *b, uint64_t number)
{
    (void)b;
    (void)number;
}

static void no_message(void *user, uint32_t from, uint32_t tag, const void *data, size_t size)
{
    (void)user;
    (void)tag;
    must(from < 2 && size <= FAR_MESSAGE_MAX && (size == 0 || data));
}

static void no_change(void *user, const far_member *m)
{
    (void)user;
    must(m->peer < 2 && memchr(m->domain, 0, sizeof m->domain) != NULL);
}

static void run(bench *b, uint64_t ns)
{
    uint64_t end = net_now(b->n) + ns;

    net_at(b->n, end, nothing, b, 0);
    while (net_now(b->n) < end && net_run_one(b->n))
        for (unsigned i = 0; i < 2; i++)
            if (b->wakes[i] <= net_now(b->n)) {
                bool busy = false;

                b->wakes[i] = far_step(b->nodes[i], &busy);
                if (busy || b->wakes[i] <= net_now(b->n))
                    b->wakes[i] = net_now(b->n) + 10000;
                net_at(b->n, b->wakes[i], nothing, b, 0);
            }
}

static void done(usm_transfer *t, usm_status status)
{
    unsigned *ended = (unsigned *)(uintptr_t)t->registered;

    (void)status;
    must(++*ended == 1);
}

static void submit(bench *b, unsigned node, usm_transfer_op op)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        usm_transfer *t = &b->transfers[node][i];

        b->ended[node][i] = 0;
        *t = (usm_transfer){.op = op, .block = i, .size = sizeof b->memory[0][0], .done = done};
        t->data       = b->memory[node][i];
        t->registered = (size_t)(uintptr_t)&b->ended[node][i];
        far_submit(b->stores[node], 1 - node, t);
    }
}

static bool have_ended(const bench *b)
{
    for (unsigned node = 0; node < 2; node++)
        for (unsigned i = 0; i < BLOCKS; i++)
            if (b->ended[node][i] == 0)
                return false;
    return true;
}

/* Within four deadlines each piece, two at a time. */
static void let_end(bench *b)
{
    for (unsigned i = 0; i < 30 && !have_ended(b); i++)
        run(b, 4 * MS);
    must(have_ended(b));
}

static void reserved(void *arg, usm_status status)
{
    (void)arg;
    (void)status;
}

static void open_bench(bench *b)
{
    net_params network = {.count      = 2,
                          .seed       = 1,
                          .latency_ns = 1000,
                          .late_ns    = MS,
                          .eager      = 64,
                          .notice     = notice,
                          .found      = misuse,
                          .user       = b};
    far_params p       = {.struct_size = sizeof p,
                          .api         = &usm__registry_api,
                          .domain      = "d",
                          .lend        = LEND,
                          .lease_ns    = 20 * MS,
                          .deadline_ns = 5 * MS,
                          .orphan_ns   = 40 * MS,
                          .piece       = PAGE,
                          .depth       = 2};

    b->n = net_create(&network);
    net_sniff(b->n, sniff, b);
    for (unsigned i = 0; i < 2; i++) {
        p.link           = net_link(b->n, i);
        p.seed           = i + 1;
        p.wake           = wake;
        p.message        = no_message;
        p.member_changed = no_change;
        p.user           = &b->wakes[i];
        must(far_node_create(&p, &b->nodes[i]) == USM_OK);
        must(far_store_open(b->nodes[i], 2 * PAGE, &b->stores[i]) == USM_OK);
    }
    run(b, 2 * MS);
    for (unsigned i = 0; i < 2; i++) {
        far_reserve_start(b->stores[i], 1 - i, 0, BLOCKS, reserved, NULL);
        run(b, 2 * MS);
        submit(b, i, USM_TRANSFER_STORE);
    }
    let_end(b);
    for (unsigned i = 0; i < 2; i++)
        submit(b, i, USM_TRANSFER_FETCH);
}

static void close_bench(bench *b)
{
    far_stats s;

    run(b, 2 * MS);
    let_end(b);
    far_get_stats(b->nodes[0], &s);
    must(s.kept <= LEND);
    net_check(b->n);
    for (unsigned i = 0; i < 2; i++)
        far_store_close(b->stores[i]);
    run(b, 2 * MS);
    for (unsigned i = 0; i < 2; i++)
        far_node_destroy_closed(b->nodes[i]);
    net_destroy(b->n);
    free(b);
}

static void one_record(bench *b, const uint8_t *r)
{
    static const uint32_t tags[] = {FAR_TAG_HEADER, FAR_TAG_MESSAGE, FAR_TAG_STORE, FAR_TAG_FETCH};
    unsigned char         bytes[FAR_HEADER + 3 * PAGE] = {0};
    uint32_t              tag                          = tags[r[0] & 3];
    size_t                size                         = FAR_HEADER;
    far_header            h                            = header_of(b, r);

    memcpy(bytes + FAR_HEADER, r, RECORD);
    if (tag == FAR_TAG_MESSAGE && h.length <= sizeof bytes - FAR_HEADER && !(r[22] & 4))
        h.operation = far_body_sum(bytes + FAR_HEADER, h.length);
    if (r[0] & 0x80 && r[0] & 0x20)
        memcpy(bytes, r, RECORD);
    else
        far_header_encode(&h, bytes);
    if (tag != FAR_TAG_HEADER)
        size += r[22] & 0x80 ? (size_t)r[22] * 48 : r[22] & 1 ? PAGE : FAR_JOIN_BODY;
    if (tag >= FAR_TAG_STORE)
        tag += h.slot_number & 7u;
    if (tag >= FAR_TAG_STORE && r[22] & 2)
        size -= FAR_HEADER;
    net_inject(b->n, 1, 0, tag, bytes, size);
    if (r[23] & 1)
        run(b, (uint64_t)r[23] << (r[23] & 2 ? 16 : 10));
    if (r[23] == 0xFC) /* what was there has ended long ago */
        run(b, 60 * MS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bench *b;

    read_header(data, size);
    read_join(data, size);
    read_fields(data, size);
    if (size < RECORD)
        return 0;
    b = calloc(1, sizeof *b);
    must(b != NULL);
    open_bench(b);
    for (size_t i = 0; i < RECORDS_MAX && (i + 1) * RECORD <= size; i++)
        one_record(b, data + i * RECORD);
    close_bench(b);
    return 0;
}
