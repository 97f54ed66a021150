/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes what ranks say to each other of a launch.  Called by libFuzzer.
 *
 * The input is read twice: as a message as it comes, which must encode to what it was decoded from;
 * and as a script for a master with RANKS ranks and for one worker: records of a length, a rank and
 * a message that is told to one of them, a rank that ends, time that passes.  Whatever the others
 * say, nothing is touched that is not the machine's, and what is sent can be read. */
#include "offload/ranks_state.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANKS = 3, MEMBERS = 2, TOTAL = 100, STEPS_MAX = 300, HEAD = 4 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void read_message(const uint8_t *data, size_t size)
{
    unsigned char header[USM__WIRE_HEADER];
    usm__wire     msg;

    if (!usm__wire_decode(data, size, &msg))
        return;
    must(msg.size == size - USM__WIRE_HEADER);
    usm__wire_encode(&msg, header);
    must(memcmp(header, data, USM__WIRE_HEADER - 4) == 0);
}

static void on_send(void *arg, uint32_t to, const usm__wire *msg)
{
    size_t         size  = USM__WIRE_HEADER + msg->size;
    unsigned char *bytes = malloc(size);
    usm__wire      again;

    (void)arg;
    must(to < RANKS && bytes != NULL);
    usm__wire_encode(msg, bytes);
    if (msg->size > 0)
        memcpy(bytes + USM__WIRE_HEADER, msg->bytes, msg->size);
    must(usm__wire_decode(bytes, size, &again) && again.op == msg->op);
    free(bytes);
}

static uint64_t policy(const usm_policy_state *state, uint32_t member)
{
    (void)member;
    return state->total / 16;
}

/* A message whose bytes are the script's; its op and numbers are small, so that it means something.
 */
static void notify(usm__master *m, usm__worker *w, const uint8_t *r, const uint8_t *bytes,
                   size_t size, uint64_t now)
{
    unsigned char message[USM__WIRE_HEADER + 256];
    usm__chunk    chunk;
    usm__wire     msg = {.op     = r[0] % USM__WIRE_OPS,
                         .flags  = r[1] & 3,
                         .status = r[1] & 4 ? USM_E_PEER : USM_OK,
                         .index  = r[1] >> 4,
                         .a      = r[2] % 32,
                         .size   = (uint32_t)size};

    usm__wire_encode(&msg, message);
    memcpy(message + USM__WIRE_HEADER, bytes, size);
    if (!usm__wire_decode(message, USM__WIRE_HEADER + size, &msg))
        return;
    usm__master_receive(m, r[3] % (RANKS + 1), &msg, now);
    (void)usm__worker_receive(w, r[3] % RANKS, &msg);
    if (!usm__worker_take(w, r[2] % MEMBERS, &chunk))
        return;
    must(chunk.count > 0 && chunk.first < TOTAL && chunk.count <= TOTAL - chunk.first);
    if (r[2] & 8)
        usm__worker_failed(w, r[2] % MEMBERS, chunk.id, USM_E_INVALID, r[2] & 16, "it failed");
    else
        usm__worker_done(w, r[2] % MEMBERS, chunk.id, 1, UINT64_MAX);
    usm__worker_flush(w, now);
}

static void play(usm__master *m, usm__worker *w, const uint8_t *data, size_t size)
{
    uint64_t now = 0, next;

    for (unsigned step = 0; step < STEPS_MAX && size >= HEAD + 1; step++) {
        size_t n = data[HEAD] < size - HEAD - 1 ? data[HEAD] : size - HEAD - 1;

        now += (uint64_t)data[3] * 10000000;
        if (data[0] == 255)
            usm__master_lost(m, data[1] % (RANKS + 1), now);
        else
            notify(m, w, data, data + HEAD + 1, n, now);
        usm__master_tick(m, now, &next);
        usm__worker_tick(w, now, &next);
        data += HEAD + 1 + n;
        size -= HEAD + 1 + n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char shape[USM__WIRE_SHAPE] = {0}, parts[MEMBERS] = {1, 1};
    static const uint32_t      members[RANKS] = {MEMBERS, MEMBERS, MEMBERS};
    usm__master_params         mp             = {.nranks      = RANKS,
                                                 .home        = 1,
                                                 .nmembers    = members,
                                                 .shape       = shape,
                                                 .has_copies  = true,
                                                 .depth       = 2,
                                                 .progress_ms = 20,
                                                 .send        = on_send};
    usm__worker_params         wp             = {.nmembers   = MEMBERS,
                                                 .home       = 1,
                                                 .shape      = shape,
                                                 .takes_part = parts,
                                                 .total      = TOTAL,
                                                 .send       = on_send};
    usm__master                m;
    usm__worker                w;

    read_message(data, size);
    mp.ledger = (usm__schedule_params){
        .total = TOTAL, .multiple = 1, .policy = policy, .may_repeat = size % 2 == 0};
    must(usm__master_init(&m, &mp) == USM_OK && usm__worker_init(&w, &wp) == USM_OK);
    usm__worker_start(&w, 0);
    play(&m, &w, data, size);
    usm__master_fini(&m);
    usm__worker_fini(&w);
    return 0;
}
