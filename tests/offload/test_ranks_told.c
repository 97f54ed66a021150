/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a rank makes of messages that are wrong, late or bad news: home's side of a launch
 * (ranks_home.c) and the two machines (ranks_state.h), told by hand, without a job. */
#include "plain.h"

#include "offload/ranks.h"

#include <string.h>

enum { TOTAL = 40000, OUT = 1000 };

/* ---- home: rank 0, which is the master and asks itself -------------------------------------- */

static struct {
    uint32_t            value;
    unsigned char       out[OUT + 64];
    uint32_t            sums[4];
    usm_split_arg       args[3];
    usm__plan           plan;
    usm__ranks          ranks;
    usm__ranks_launch   l;
    usm__ranks_transfer t;
} home;

static void begin(void)
{
    memset(&home, 0, sizeof home);
    home.args[0]         = (usm_split_arg)USM_SPLIT_VALUE(home.value);
    home.args[1]         = (usm_split_arg)USM_SPLIT_OUT(home.out, 1);
    home.args[1].size    = OUT;
    home.args[2]         = (usm_split_arg)USM_SPLIT_SUM(home.sums, 4, USM_ELEMENT_U32, 1);
    home.plan.desc.args  = home.args;
    home.plan.desc.nargs = 3;
    home.plan.total      = TOTAL;
    home.ranks.count     = 1;
    home.l.ranks         = &home.ranks;
    home.l.plan          = &home.plan;
    home.l.is_home       = true;
    usm_list_init(&home.l.in);
    usm_list_init(&home.l.out);
    usm_list_init(&home.l.transfers);
    (void)pthread_cond_init(&home.l.changed, NULL);
    (void)pthread_cond_init(&home.l.moved, NULL);
    CHECK_INT(usm__ranks_home_init(&home.l), USM_OK);
}

static void end(void)
{
    usm__ranks_home_fini(&home.l);
    (void)pthread_cond_destroy(&home.l.changed);
    (void)pthread_cond_destroy(&home.l.moved);
}

/* What is answered to a message. */
static usm_status notify(const usm__wire *msg, char *to)
{
    usm__wire w = *msg;

    home.t = (usm__ranks_transfer){.request = 1, .to = to, .flying = 1, .size = w.b, .asked = w.b};
    home.t.offset = w.a;
    w.request     = 1;
    usm_list_append(&home.l.transfers, &home.t.link);
    usm__ranks_home_receive(&home.l, 0, &w);
    usm_list_remove(&home.t.link);
    return home.t.status;
}

static void addresses_outside_an_argument_are_refused(void)
{
    static const struct {
        uint32_t arg;
        uint64_t offset, size;
    } bad[] = {{1, OUT, 1},        {1, OUT - 1, 2}, {1, UINT64_MAX, 2}, {1, UINT64_MAX - 1, 64},
               {0, 0, 4},          {3, 0, 1},       {UINT32_MAX, 0, 1}, {1, (uint64_t)1 << 63, 1},
               {1, 1, UINT32_MAX}, {2, 1, 4}};
    static const unsigned char bytes[64] = {1};
    char                       read[64];

    begin();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        usm__wire store = {.op    = USM__WIRE_STORE,
                           .index = bad[i].arg,
                           .a     = bad[i].offset,
                           .size  = (uint32_t)bad[i].size,
                           .bytes = bytes};
        usm__wire fetch = {
            .op = USM__WIRE_FETCH, .index = bad[i].arg, .a = bad[i].offset, .b = bad[i].size};

        CHECK_INT(notify(&store, NULL), USM_E_INVALID);
        CHECK_INT(notify(&fetch, read), USM_E_INVALID);
    }
    for (size_t i = 0; i < sizeof home.out; i++)
        CHECK_INT(home.out[i], 0);
    CHECK_INT(notify(
                  &(usm__wire){
                      .op = USM__WIRE_STORE, .index = 1, .a = OUT - 1, .size = 1, .bytes = bytes},
                  NULL),
              USM_OK);
    CHECK_INT(home.out[OUT - 1], 1);
    end();
}

static usm_status tell_copies(uint64_t first, uint64_t count, uint32_t piece, uint32_t size)
{
    static const unsigned char bytes[USM__WIRE_PIECE] = {1};

    return notify(&(usm__wire){.op    = USM__WIRE_COPIES,
                               .a     = 7,
                               .b     = first,
                               .c     = count,
                               .index = piece,
                               .size  = size,
                               .bytes = bytes},
                  NULL);
}

static bool is_read(unsigned op, int32_t status, uint32_t size)
{
    unsigned char   text[USM__WIRE_HEADER + 64] = {0};
    const usm__wire w    = {.op = (uint8_t)op, .status = status, .size = size};
    usm__wire       back = {0};

    usm__wire_encode(&w, text);
    return usm__wire_decode(text, USM__WIRE_HEADER + size, &back);
}

static void an_answer_has_bytes_or_a_failure(void)
{
    CHECK(is_read(USM__WIRE_DATA, USM_OK, 64));
    CHECK(is_read(USM__WIRE_DATA, USM_E_IO, 0));
    CHECK(!is_read(USM__WIRE_DATA, USM_OK, 0));
    CHECK(!is_read(USM__WIRE_DATA, USM_E_IO, 64));
}

/* Nobody waits for an answer then: the failure is the launch's. */
static void what_asks_for_no_answer_fails_the_launch(void)
{
    static const unsigned char bytes[64] = {1};
    usm__wire store = {.op = USM__WIRE_STORE, .index = 1, .a = OUT - 1, .size = 1, .bytes = bytes};

    begin();
    usm__ranks_home_receive(&home.l, 0, &store);
    CHECK_INT(home.l.home.status, USM_OK);
    CHECK_INT(home.out[OUT - 1], 1);
    store.a = OUT;
    usm__ranks_home_receive(&home.l, 0, &store);
    CHECK_INT(home.l.home.status, USM_E_INVALID);
    CHECK(strstr(home.l.home.reason, "rank 0") != NULL);
    CHECK_INT(home.out[OUT], 0);
    CHECK(usm_list_is_empty(&home.l.in) && usm_list_is_empty(&home.l.out));
    end();
}

static void copies_beyond_their_chunk_are_refused(void)
{
    begin();
    CHECK(tell_copies(TOTAL, 1, 0, 4) != USM_OK);
    CHECK(tell_copies(1, TOTAL, 0, 4) != USM_OK);
    CHECK(tell_copies(UINT64_MAX, 2, 0, 8) != USM_OK);
    CHECK(tell_copies(0, 0, 0, 4) != USM_OK);
    CHECK_INT(tell_copies(0, 2, 0, 12), USM_E_INVALID);
    CHECK_INT(tell_copies(0, 2, 0, 4), USM_OK);
    CHECK_INT(tell_copies(0, 2, UINT32_MAX, 4), USM_E_INVALID);
    end();
}

/* Two members of a rank do the same chunk, whose copies are two pieces. */
static void what_comes_of_a_chunk_that_has_counted_is_left(void)
{
    const uint32_t count = 2 * USM__WIRE_PIECE / 4;
    unsigned char  record[USM__WIRE_RECORD];

    begin();
    usm__wire_put_record(record, &(usm__wire_record){.id = 7});
    CHECK_INT(tell_copies(0, count, 0, USM__WIRE_PIECE), USM_OK);
    CHECK_INT(tell_copies(0, count, 0, USM__WIRE_PIECE), USM_OK);
    CHECK_INT(tell_copies(0, count, 1, USM__WIRE_PIECE), USM_OK);
    CHECK_INT(
        notify(&(usm__wire){.op = USM__WIRE_COUNTS, .size = sizeof record, .bytes = record}, NULL),
        USM_OK);
    CHECK_INT(home.l.home.status, USM_OK);
    CHECK_INT(tell_copies(0, count, 1, USM__WIRE_PIECE), USM_OK);
    CHECK(usm_list_is_empty(&home.l.home.copies));
    end();
}

/* ---- the machines --------------------------------------------------------------------------- */

static struct {
    usm__wire last; /* to rank 1                                                                 */
    char      reason[USM__RANKS_STORY];
} sent;

static void on_send(void *arg, uint32_t to, const usm__wire *msg)
{
    size_t head = USM__WIRE_FIGURES + (size_t)msg->index * USM__WIRE_MEMBER;

    (void)arg;
    if (to != 1 && msg->op == USM__WIRE_END)
        return;
    sent.last = *msg;
    if (msg->op == USM__WIRE_FAILED)
        (void)snprintf(sent.reason, sizeof sent.reason, "%.*s", (int)msg->size,
                       (const char *)msg->bytes);
    if (msg->op == USM__WIRE_END)
        (void)snprintf(sent.reason, sizeof sent.reason, "%.*s", (int)(msg->size - head),
                       (const char *)msg->bytes + head);
}

static void grants_outside_the_range_are_refused(void)
{
    static const unsigned char shape[USM__WIRE_SHAPE] = {0}, part[1] = {1};
    static const uint64_t      bad[][2] = {{0, 101}, {100, 1},        {99, 2},
                                           {0, 0},   {UINT64_MAX, 2}, {50, UINT64_MAX}};
    usm__worker_params         p        = {
                       .nmembers = 1, .shape = shape, .takes_part = part, .total = 100, .send = on_send};
    usm__worker     w;
    usm__chunk      chunk;
    unsigned char   record[USM__WIRE_RECORD];
    const usm__wire grant = {.op = USM__WIRE_GRANT, .size = sizeof record, .bytes = record};

    CHECK_INT(usm__worker_init(&w, &p), USM_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        usm__wire_put_record(record, &(usm__wire_record){.id = i, .a = bad[i][0], .b = bad[i][1]});
        (void)usm__worker_receive(&w, 0, &grant);
        CHECK(!usm__worker_take(&w, 0, &chunk));
        CHECK_INT(sent.last.op, USM__WIRE_FAILED);
        CHECK_INT(sent.last.status, USM_E_INVALID);
        CHECK(sent.last.flags & USM__WIRE_FATAL);
        CHECK_IN("does not have", sent.reason);
    }
    usm__wire_put_record(record, &(usm__wire_record){.id = 9, .a = 99, .b = 1});
    (void)usm__worker_receive(&w, 0, &grant);
    CHECK(usm__worker_take(&w, 0, &chunk));
    usm__worker_fini(&w);
}

static uint64_t policy(const usm_policy_state *state, uint32_t member)
{
    (void)member;
    return state->total / 4;
}

/* It has said that it takes part, and cannot go on: nobody waits for it. */
static void a_rank_that_cannot_go_on_ends_the_launch_for_all(void)
{
    static const unsigned char shape[USM__WIRE_SHAPE]      = {0};
    static const uint32_t      members[2]                  = {1, 1};
    unsigned char              bytes[USM__WIRE_SHAPE + 16] = {0};
    usm__master_params         p                           = {
                                          .nranks = 2, .nmembers = members, .shape = shape, .depth = 2, .send = on_send};
    usm__wire   ready = {.op = USM__WIRE_READY, .size = USM__WIRE_SHAPE + 1, .bytes = bytes};
    usm__master m;

    bytes[USM__WIRE_SHAPE] = 1;
    p.ledger               = (usm__schedule_params){.total = 100, .multiple = 1, .policy = policy};
    CHECK_INT(usm__master_init(&m, &p), USM_OK);
    usm__master_receive(&m, 0, &ready, 1);
    usm__master_receive(&m, 1, &ready, 2);
    CHECK_INT(m.phase, USM__MASTER_WORKS);
    CHECK_INT(sent.last.op, USM__WIRE_GRANT);
    ready.status = USM_E_NO_MEMORY;
    ready.size   = USM__WIRE_SHAPE + 9;
    memcpy(bytes + USM__WIRE_SHAPE, "no memory", 9);
    usm__master_receive(&m, 1, &ready, 3);
    CHECK_INT(m.phase, USM__MASTER_ENDED);
    CHECK_INT(sent.last.op, USM__WIRE_END);
    CHECK_INT(sent.last.status, USM_E_NO_MEMORY);
    CHECK_STR(sent.reason, "rank 1: no memory");
    usm__master_fini(&m);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(addresses_outside_an_argument_are_refused),
        CASE(an_answer_has_bytes_or_a_failure),
        CASE(what_asks_for_no_answer_fails_the_launch),
        CASE(copies_beyond_their_chunk_are_refused),
        CASE(what_comes_of_a_chunk_that_has_counted_is_left),
        CASE(grants_outside_the_range_are_refused),
        CASE(a_rank_that_cannot_go_on_ends_the_launch_for_all),
        {NULL, NULL},
    };

    return plain_main(argc, argv, cases);
}
