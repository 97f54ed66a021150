/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes what ranks say to each other of shared buffers.  Called by libFuzzer.
 *
 * The input is read twice: as a message as it comes, which must encode to what it was decoded from;
 * and as a script for one rank of RANKS, records of RECORD bytes: a message from some rank, an
 * access that begins or ends, bytes that have been sent, a rank that ends.  Whatever the others
 * say, nothing is touched that is not the machine's, and every step comes to an end. */
#include "cluster/shared.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORD = 10, RECORDS_MAX = 400, RANKS = 4, BLOCKS = 3, ACCESSES = 8, GIVES = 16 };

typedef struct bench {
    usm__shared_machine machine;
    usm__shared_waiter  waiters[ACCESSES];
    uint64_t            blocks[ACCESSES];
    bool                is_asked[ACCESSES], is_open[ACCESSES];
    usm__shared_give    gives[GIVES];
    size_t              ngives;
    usm__shared_message own[RECORDS_MAX]; /* to itself                                       */
    size_t              nown;
} bench;

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void read_message(const uint8_t *data, size_t size)
{
    unsigned char       header[USM__SHARED_HEADER];
    usm__shared_message msg, again;
    uint64_t            id, id_again;

    if (!usm__shared_decode(data, size, &id, &msg))
        return;
    must(usm__shared_length(&msg) <= size);
    if (msg.serial == 0)
        msg.size = 0;
    usm__shared_encode(id, &msg, header);
    must(usm__shared_decode(header, sizeof header, &id_again, &again) && id == id_again);
    must(again.op == msg.op && again.block == msg.block && again.request == msg.request &&
         again.txn == msg.txn && again.rank == msg.rank && again.status == msg.status &&
         again.mode == msg.mode && again.flags == msg.flags && again.offset == msg.offset &&
         again.slot == msg.slot && again.serial == msg.serial);
}

static void on_send(void *arg, uint32_t to, const usm__shared_message *msg)
{
    bench *b = arg;

    must(to < RANKS && msg->block < BLOCKS);
    if (to == b->machine.self && b->nown < RECORDS_MAX)
        b->own[b->nown++] = *msg;
}

static void on_give(void *arg, const usm__shared_give *give)
{
    bench *b = arg;

    must(give->to < RANKS && give->block < BLOCKS);
    if (b->ngives < GIVES)
        b->gives[b->ngives++] = *give;
}

static void on_wake(void *arg, usm__shared_waiter *waiter)
{
    bench *b = arg;
    size_t i = (size_t)(waiter - b->waiters);

    must(i < ACCESSES && b->is_asked[i]);
    b->is_asked[i] = false;
    b->is_open[i]  = waiter->status == USM_OK;
}

static void on_content(void *arg, uint64_t block, bool is_blank)
{
    (void)arg;
    (void)is_blank;
    must(block < BLOCKS);
}

static void begin_or_end(bench *b, const uint8_t *r)
{
    size_t          i    = r[1] % ACCESSES;
    usm_access_mode mode = r[3] % 3 == 0   ? USM_READ
                           : r[3] % 3 == 1 ? USM_READ_WRITE
                                           : USM_WRITE_NO_INIT;
    usm_status      st;

    if (b->is_asked[i])
        return;
    if (b->is_open[i]) {
        b->is_open[i] = false;
        usm__shared_end(&b->machine, b->blocks[i], b->waiters[i].mode);
        return;
    }
    b->blocks[i]       = r[2] % BLOCKS;
    b->is_asked[i]     = true;
    b->waiters[i].mode = mode;
    st                 = usm__shared_begin(&b->machine, b->blocks[i], mode, &b->waiters[i]);
    b->is_open[i]      = st == USM_OK;
    b->is_asked[i]     = st == USM_E_NOT_READY;
}

static void hear(bench *b, const uint8_t *r)
{
    const usm__shared_message msg = {.op      = r[1] % (USM__SHARED_OPS + 1),
                                     .mode    = r[2] & 7,
                                     .flags   = r[3] & 7,
                                     .status  = r[4] & 1 ? USM_E_PEER : USM_OK,
                                     .rank    = r[5] % (RANKS + 1),
                                     .block   = r[6] % (BLOCKS + 1),
                                     .request = r[7] % 16,
                                     .txn     = r[8] % 16};

    usm__shared_receive(&b->machine, r[9] % (RANKS + 1), &msg);
}

static void play(bench *b, const uint8_t *r)
{
    switch (r[0] % 8) {
    case 0:
    case 1:
        if (r[3] & 128)
            usm__shared_want(&b->machine, r[2] % BLOCKS, r[3] & 1 ? USM_WRITE_NO_INIT : USM_READ);
        begin_or_end(b, r);
        break;
    case 2:
        if (b->ngives > 0)
            usm__shared_sent(&b->machine, &b->gives[--b->ngives], r[1] & 1 ? USM_OK : USM_E_IO);
        break;
    case 3:
        if (r[1] == 0)
            usm__shared_rank_lost(&b->machine, r[2] % (RANKS + 1));
        break;
    case 4:
        for (size_t i = 0; i < b->nown; i++) /* it may grow meanwhile */
            usm__shared_receive(&b->machine, b->machine.self, &b->own[i]);
        b->nown = 0;
        break;
    default:
        hear(b, r);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const usm__shared_ops ops = {on_send, on_give, on_wake, on_content};
    bench                       *b   = calloc(1, sizeof *b);

    must(b != NULL);
    read_message(data, size);
    b->machine =
        (usm__shared_machine){.ops = &ops, .arg = b, .self = 1, .ranks = RANKS, .blocks = BLOCKS};
    must(usm__shared_init(&b->machine) == USM_OK);
    for (size_t i = 0; i < RECORDS_MAX && (i + 1) * RECORD <= size; i++)
        play(b, data + i * RECORD);
    usm__shared_fini(&b->machine);
    free(b);
    return 0;
}
