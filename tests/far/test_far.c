/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What far memory does, one behaviour a case (what all of it does under faults in all combinations
 * is in far_model.c). */
#include "far_fixture.h"

/* ---- cases ---------------------------------------------------------------------------------- */

static void what_is_stored_is_fetched(void)
{
    world_begin(64 << 20);
    CHECK_INT(reserve(0, 8), USM_OK);
    for (unsigned b = 0; b < 3; b++) {
        fill(data[b], b);
        CHECK_INT(job_run(USM_TRANSFER_STORE, b, data[b]), USM_OK);
    }
    for (unsigned b = 0; b < 3; b++) {
        memset(data[3], 0, BLOCK);
        CHECK_INT(job_run(USM_TRANSFER_FETCH, b, data[3]), USM_OK);
        CHECK(memcmp(data[3], data[b], BLOCK) == 0);
    }
    CHECK_INT(stats(1).kept, 3 * BLOCK);
    CHECK_INT(stats(1).borrowers, 1);
    CHECK_INT(stats(0).stored, 3 * BLOCK);
    CHECK_INT(stats(0).fetched, 3 * BLOCK);
    world_end();
}

static void a_part_is_stored_into_the_rest(void)
{
    job j = {0};

    world_begin(64 << 20);
    fill(data[0], 1);
    fill(data[1], 2);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 5, data[0]), USM_OK);
    j.t.offset = PIECE - 4096; /* across two chunks */
    j.t.size   = 8192;
    job_start(&j, USM_TRANSFER_STORE, 5, data[1]);
    step_all();
    CHECK_INT(j.ended, 1);
    CHECK_INT(j.status, USM_OK);
    memcpy(data[0] + PIECE - 4096, data[1], 8192);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 5, data[2]), USM_OK);
    CHECK(memcmp(data[2], data[0], BLOCK) == 0);
    world_end();
}

static void what_is_forgotten_is_freed(void)
{
    world_begin(64 << 20);
    fill(data[0], 1);
    for (unsigned b = 0; b < 4; b++)
        CHECK_INT(job_run(USM_TRANSFER_STORE, b, data[0]), USM_OK);
    far_forget(store, 1, 0, 2);
    far_forget(store, 1, 2, 1);
    step_all();
    CHECK_INT(stats(1).kept, BLOCK);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 1, data[1]), USM_E_IO);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 3, data[1]), USM_OK);
    far_store_close(store);
    store = NULL;
    step_all();
    CHECK_INT(stats(1).kept, 0);
    CHECK_INT(stats(1).borrowers, 0);
    world_end();
}

static void a_full_lender_says_so(void)
{
    far_member m[NODES];

    world_begin(4 * BLOCK);
    CHECK_INT(reserve(0, 5), USM_E_SPILL_FULL);
    CHECK_INT(reserve(0, 3), USM_OK);
    CHECK_INT(reserve(0, 4), USM_OK); /* three of them are there */
    CHECK_INT(reserve(4, 1), USM_E_SPILL_FULL);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 9, data[0]), USM_E_SPILL_FULL);
    CHECK_INT(far_members(at[0].node, m, NODES), NODES - 1);
    CHECK_INT(m[0].lends, 4 * BLOCK);
    CHECK_INT(m[0].available, 0);
    CHECK_STR(m[0].domain, "there");
    far_forget(store, 1, 1, 2);
    step_all();
    CHECK_INT(reserve(7, 2), USM_OK);
    world_end();
}

static void who_does_not_lend_takes_nothing(void)
{
    world_begin(0);
    CHECK_INT(reserve(0, 1), USM_E_SPILL_FULL);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_E_SPILL_FULL);
    CHECK_INT(stats(0).quarantined, 0);
    world_end();
}

static void a_silent_lender_ends_transfers_in_time(void)
{
    job      j[8] = {0};
    uint64_t began;

    world_begin(64 << 20);
    pass_ms(20);
    net.links[1].is_silent = true;
    began                  = net.now;
    for (int i = 0; i < 8; i++)
        job_start(&j[i], i % 2 ? USM_TRANSFER_STORE : USM_TRANSFER_FETCH, (uint64_t)i, data[i % 4]);
    while (j[7].ended == 0 && net.now - began < 5000u * (uint64_t)MS)
        pass_ms(20);
    CHECK(net.now - began <= 1200u * (uint64_t)MS);
    for (int i = 0; i < 8; i++) {
        CHECK_INT(j[i].ended, 1);
        CHECK_INT(j[i].status, USM_E_IO);
    }
    pass_ms(600);
    CHECK_INT(at[0].state[1], FAR_SLOW);
    pass_ms(1700);
    CHECK_INT(at[0].state[1], FAR_LOST);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[0]), USM_E_IO);
    CHECK_INT(reserve(0, 1), USM_E_IO);
    world_end();
}

static verdict hold_bytes(const packet *l)
{
    return l->from == 1 && l->tag >= FAR_TAG_STORE ? HOLD : PASS;
}

static void a_late_answer_is_dropped_and_ends_the_quarantine(void)
{
    world_begin(64 << 20);
    fill(data[0], 1);
    fill(data[1], 2);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 1, data[1]), USM_OK);
    net.judge = hold_bytes;
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[2]), USM_E_IO);
    CHECK_INT(at[0].state[1], FAR_UP); /* it gave signs of life */
    CHECK_INT(stats(0).quarantined, 4 * PIECE);
    net.judge = NULL;
    memset(data[3], 0xee, BLOCK);
    memcpy(data[2], data[3], BLOCK);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 1, data[2]), USM_OK); /* through other slots */
    CHECK(memcmp(data[2], data[1], BLOCK) == 0);
    release();
    step_all();
    CHECK_INT(stats(0).quarantined, 0);
    CHECK_INT(stats(0).late, 4);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[3]), USM_OK);
    CHECK(memcmp(data[3], data[0], BLOCK) == 0);
    world_end();
}

static verdict double_all(const packet *l)
{
    (void)l;
    return DOUBLE;
}

static void doubled_messages_do_no_harm(void)
{
    world_begin(64 << 20);
    net.judge = double_all;
    for (unsigned round = 0; round < 20; round++) {
        fill(data[0], round);
        CHECK_INT(job_run(USM_TRANSFER_STORE, round % 3, data[0]), USM_OK);
        memset(data[1], 0, BLOCK);
        CHECK_INT(job_run(USM_TRANSFER_FETCH, round % 3, data[1]), USM_OK);
        CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    }
    far_forget(store, 1, 0, 3);
    pass_ms(2000);
    CHECK_INT(stats(1).kept, 0);
    world_end();
}

static int stores_to_hold;

static verdict hold_some_stores(const packet *l)
{
    bool is_store = l->from == 0 && l->tag >= FAR_TAG_STORE && l->tag < FAR_TAG_FETCH;

    return is_store && stores_to_hold-- > 0 ? HOLD : PASS;
}

static void an_old_store_is_stale(void)
{
    world_begin(64 << 20);
    fill(data[0], 1);
    fill(data[1], 2);
    stores_to_hold = 4;
    net.judge      = hold_some_stores;
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_E_IO);
    net.judge = NULL;
    release(); /* they come before the announcement of the next, on tags of their own */
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[1]), USM_OK);
    step_all();
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[2]), USM_OK);
    CHECK(memcmp(data[2], data[1], BLOCK) == 0);
    world_end();
}

static usm_status store_first_piece(void *from)
{
    job j = {.t.size = PIECE};

    job_start(&j, USM_TRANSFER_STORE, 0, from);
    for (int i = 0; i < 500 && j.ended == 0; i++)
        pass_ms(20);
    CHECK_INT(j.ended, 1);
    return j.status;
}

/* The newer one goes through another slot: what came by the old one's would come first. */
static void an_old_store_that_comes_last_is_stale(void)
{
    world_begin(64 << 20);
    for (unsigned i = 0; i < 3; i++)
        fill(data[i], i);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    stores_to_hold = 1;
    net.judge      = hold_some_stores;
    CHECK_INT(store_first_piece(data[1]), USM_E_IO);
    net.judge = NULL;
    CHECK_INT(store_first_piece(data[2]), USM_OK);
    release();
    step_all();
    memcpy(data[0], data[2], PIECE);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[3]), USM_OK);
    CHECK(memcmp(data[3], data[0], BLOCK) == 0);
    world_end();
}

static void a_store_that_comes_after_the_forgetting_is_stale(void)
{
    world_begin(64 << 20);
    fill(data[0], 1);
    stores_to_hold = 4;
    net.judge      = hold_some_stores;
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_E_IO);
    net.judge = NULL;
    far_forget(store, 1, 0, 1);
    step_all();
    release();
    step_all();
    CHECK_INT(stats(1).stale, 4);
    CHECK_INT(stats(1).kept, 0);
    CHECK_INT(stats(1).borrowers, 0);
    world_end();
}

static void a_given_up_reserve_is_undone(void)
{
    far_member m[NODES];

    world_begin(8 * BLOCK);
    net.links[1].is_silent = true;
    CHECK_INT(reserve(0, 8), USM_E_IO);
    net.links[1].is_silent = false;
    pass_ms(2500);
    CHECK_INT(at[0].state[1], FAR_UP);
    CHECK_INT(far_members(at[0].node, m, NODES), NODES - 1);
    CHECK_INT(m[0].available, 8 * BLOCK);
    world_end();
}

static void a_wrong_key_is_refused(void)
{
    far_params p0, p1;

    world_clear();
    p0     = params_of(0, 0);
    p1     = params_of(1, 64 << 20);
    p0.key = "one", p0.key_size = 3, p0.hmac = sum;
    p1.key = "two", p1.key_size = 3, p1.hmac = sum;
    start(0, &p0);
    start(1, &p1);
    pass_ms(1000);
    CHECK_INT(at[0].state[1], FAR_JOINING);
    CHECK_INT(at[1].state[0], FAR_JOINING);
    CHECK(at[0].refused[1]);
    CHECK(at[1].refused[0]);
    CHECK(stats(1).refused > 0);
    CHECK_INT(far_store_open(at[0].node, BLOCK, &store), USM_OK);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_E_IO);
    CHECK_INT(stats(1).kept, 0);
    world_end();
}

static void no_key_is_refused_by_who_has_one(void)
{
    far_params p0, p1;

    world_clear();
    p0     = params_of(0, 0);
    p1     = params_of(1, 64 << 20);
    p1.key = "two", p1.key_size = 3, p1.hmac = sum;
    start(0, &p0);
    start(1, &p1);
    pass_ms(1000);
    CHECK_INT(at[1].state[0], FAR_JOINING);
    CHECK_INT(at[0].state[1], FAR_JOINING);
    CHECK(at[1].refused[0]);
    world_end();
}

static void the_same_key_joins(void)
{
    far_params p0, p1;

    world_clear();
    p0     = params_of(0, 0);
    p1     = params_of(1, 64 << 20);
    p0.key = "one", p0.key_size = 3, p0.hmac = sum;
    p1.key = "one", p1.key_size = 3, p1.hmac = sum;
    start(0, &p0);
    start(1, &p1);
    pass_ms(500);
    CHECK_INT(at[0].state[1], FAR_UP);
    CHECK_INT(at[1].state[0], FAR_UP);
    CHECK_INT(stats(0).refused + stats(1).refused, 0);
    CHECK_INT(module.secret, 6); /* no dump has the keys */
    world_end();
    CHECK_INT(module.secret, 0);
}

static void blocks_of_a_dead_borrower_are_freed_after_a_while(void)
{
    world_begin(64 << 20);
    fill(data[0], 1);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    net.links[0].is_silent = true;
    pass_ms(5000);
    CHECK_INT(at[1].state[0], FAR_LOST);
    CHECK_INT(stats(1).kept, BLOCK); /* it may only have been stopped */
    pass_ms(6000);
    CHECK_INT(at[1].state[0], FAR_LOST);
    CHECK_INT(stats(1).kept, 0);
    CHECK_INT(stats(1).borrowers, 0);
    world_end();
}

/* The borrower is not stepped for so long. */
static void stop_borrower(unsigned ms)
{
    far_node *borrower = at[0].node;

    at[0].node = NULL;
    pass_ms(ms);
    CHECK_INT(at[1].state[0], FAR_LOST);
    at[0].node = borrower;
}

static void a_borrower_that_was_stopped_claims_what_it_had(void)
{
    far_member m[NODES];

    world_begin(64 << 20);
    fill(data[0], 1);
    CHECK_INT(far_send(at[0].node, 1, 7, "a", 1), USM_OK);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    for (unsigned i = 1; i <= 2; i++) {
        stop_borrower(6000);
        pass_ms(2000);
        CHECK_INT(at[0].state[1], FAR_UP);
        CHECK_INT(at[0].lost, 0); /* for good */
        CHECK_INT(at[1].state[0], FAR_UP);
        CHECK_INT(at[1].lost, i);
        CHECK_INT(far_members(at[0].node, m, NODES), NODES - 1);
        CHECK_INT(m[0].joined, 1);
        CHECK_INT(stats(1).kept, BLOCK);
        CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[1]), USM_OK);
        CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    }
    far_forget(store, 1, 0, 1);
    pass_ms(500);
    CHECK_INT(stats(1).kept, 0);
    world_end();
}

static void a_borrower_that_was_stopped_for_too_long_finds_nothing(void)
{
    far_member m[NODES];

    world_begin(64 << 20);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    stop_borrower(11000);
    CHECK_INT(stats(1).kept, 0);
    pass_ms(2000);
    CHECK_INT(at[0].state[1], FAR_UP);
    CHECK_INT(at[0].lost, 1);
    CHECK_INT(far_members(at[0].node, m, NODES), NODES - 1);
    CHECK_INT(m[0].joined, 2);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[1]), USM_E_IO);
    world_end();
}

static verdict drop_joining(const packet *l)
{
    far_header h;

    return l->tag == FAR_TAG_MESSAGE && far_header_decode(l->bytes, l->size, &h) &&
                   h.op == FAR_OP_JOIN
               ? DROP
               : PASS;
}

/* What it has to say meanwhile is said when it is back: forgetting, and transfers. */
static void what_is_asked_while_a_claim_is_open_is_done_later(void)
{
    job j = {0};

    world_begin(64 << 20);
    fill(data[0], 1);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 1, data[0]), USM_OK);
    stop_borrower(6000);
    net.judge = drop_joining;
    pass_ms(300);
    CHECK_INT(at[0].state[1], FAR_LOST);
    CHECK_INT(at[0].lost, 0);
    far_forget(store, 1, 1, 1);
    job_start(&j, USM_TRANSFER_FETCH, 0, data[1]);
    pass_ms(300);
    CHECK_INT(stats(1).kept, 2 * BLOCK);
    net.judge = NULL;
    pass_ms(1000);
    CHECK_INT(j.ended, 1);
    CHECK_INT(j.status, USM_OK);
    CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    CHECK_INT(stats(1).kept, BLOCK);
    world_end();
}

static void a_claim_that_nobody_answers_ends(void)
{
    job j = {0};

    world_begin(64 << 20);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    stop_borrower(6000);
    net.judge = drop_joining;
    pass_ms(300);
    CHECK_INT(at[0].lost, 0);
    job_start(&j, USM_TRANSFER_FETCH, 0, data[1]);
    pass_ms(8000);
    CHECK_INT(at[0].lost, 1);
    CHECK_INT(j.ended, 1);
    CHECK_INT(j.status, USM_E_IO);
    net.judge = NULL;
    pass_ms(20000);
    CHECK_INT(at[0].state[1], FAR_UP);
    CHECK_INT(stats(1).kept, 0); /* it came without a claim */
    world_end();
}

static verdict hold_forgetting(const packet *l)
{
    far_header h;

    return l->tag == FAR_TAG_HEADER && far_header_decode(l->bytes, l->size, &h) &&
                   h.op == FAR_OP_FORGET
               ? HOLD
               : PASS;
}

static void forgetting_that_comes_after_the_next_reserve_is_stale(void)
{
    far_member m[NODES];

    world_begin(4 * BLOCK);
    CHECK_INT(reserve(0, 4), USM_OK);
    net.judge = hold_forgetting;
    far_forget(store, 1, 0, 1);
    step_all();
    net.judge = NULL;
    CHECK_INT(reserve(0, 4), USM_OK);
    release();
    pass_ms(1000);
    CHECK_INT(far_members(at[0].node, m, NODES), NODES - 1);
    CHECK_INT(m[0].available, 0);
    world_end();
}

static void who_is_stepped_seldom_is_not_lost(void)
{
    far_params p0, p1;
    far_node  *borrower;

    world_clear();
    p0                   = params_of(0, 0);
    p1                   = params_of(1, 64 << 20);
    p0.is_stepped_seldom = true;
    start(0, &p0);
    start(1, &p1);
    pass_ms(100);
    CHECK_INT(far_store_open(at[0].node, BLOCK, &store), USM_OK);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    borrower   = at[0].node;
    at[0].node = NULL;
    pass_ms(60000);
    CHECK_INT(at[1].state[0], FAR_UP);
    at[0].node = borrower;
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[1]), USM_OK);
    world_end();
}

static void who_was_lost_joins_anew_with_nothing(void)
{
    far_member m[NODES];

    world_begin(64 << 20);
    fill(data[0], 1);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    net.links[0].is_silent = net.links[1].is_silent = true;
    pass_ms(14000);
    CHECK_INT(at[0].state[1], FAR_LOST);
    CHECK_INT(stats(1).kept, 0);
    net.links[0].is_silent = net.links[1].is_silent = false;
    pass_ms(60000);
    CHECK_INT(at[0].state[1], FAR_UP);
    CHECK_INT(far_members(at[0].node, m, NODES), NODES - 1);
    CHECK_INT(m[0].joined, 2);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[1]), USM_E_IO);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[1]), USM_OK);
    CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    world_end();
}

static void a_restarted_lender_is_another_one(void)
{
    far_params p1;

    world_begin(64 << 20);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    far_node_destroy_closed(at[1].node);
    net.links[1] = (test_link){.base = {&link_ops}, .self = 1};
    p1           = params_of(1, 64 << 20);
    p1.seed      = 99;
    start(1, &p1);
    pass_ms(3000);
    CHECK_INT(at[0].state[1], FAR_UP);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[1]), USM_E_IO);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    world_end();
}

static int held_message;

static verdict hold_the_second(const packet *l)
{
    return l->tag == FAR_TAG_MESSAGE && l->from == 0 && ++held_message == 2 ? HOLD : PASS;
}

static void messages_come_in_order_and_once(void)
{
    world_begin(0);
    held_message = 0;
    net.judge    = hold_the_second;
    CHECK_INT(far_send(at[0].node, 1, 7, "a", 1), USM_OK);
    step_all();
    CHECK_INT(far_send(at[0].node, 1, 7, "b", 1), USM_OK);
    CHECK_INT(far_send(at[0].node, 1, 8, "c", 1), USM_OK);
    step_all();
    CHECK_STR(at[1].text, "0/7:a ");
    net.judge = double_all;
    release();
    CHECK_INT(far_send(at[0].node, 1, 9, "d", 1), USM_OK);
    CHECK_INT(far_send(at[0].node, 0, 1, "self", 4), USM_OK);
    step_all();
    CHECK_STR(at[1].text, "0/7:a 0/7:b 0/8:c 0/9:d ");
    CHECK_STR(at[0].text, "0/1:self ");
    CHECK_INT(far_send(at[0].node, 1, 9, data, 65536 + 64 + 1), USM_E_INVALID);
    world_end();
}

static void a_message_that_stays_away_makes_its_sender_lost(void)
{
    world_begin(0);
    held_message = 1;
    net.judge    = hold_the_second;
    CHECK_INT(far_send(at[0].node, 1, 7, "a", 1), USM_OK);
    step_all();
    CHECK_INT(far_send(at[0].node, 1, 7, "b", 1), USM_OK);
    pass_ms(900);
    CHECK_INT(at[1].lost, 0);
    pass_ms(300);
    CHECK_INT(at[1].lost, 1); /* whether or not it has joined anew */
    CHECK_STR(at[1].text, "");
    world_end();
}

static void who_leaves_says_so_and_is_freed(void)
{
    bool left = false;

    world_begin(64 << 20);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    CHECK_INT(far_send(at[0].node, 1, 7, "last", 4), USM_OK);
    (void)far_step(at[0].node, NULL);
    far_leave(at[0].node, &left);
    pass_ms(100);
    CHECK(left);
    CHECK_STR(at[1].text, "0/7:last ");
    CHECK_INT(at[1].state[0], FAR_LEFT);
    CHECK_INT(stats(1).kept, 0);
    world_end();
}

static void leaving_waits_for_nobody_dead(void)
{
    bool left = false;

    world_begin(64 << 20);
    net.links[1].is_silent = true;
    far_leave(at[0].node, &left);
    pass_ms(900);
    CHECK(!left);
    pass_ms(200);
    CHECK(left);
    world_end();
}

static void buffers_of_a_send_that_does_not_end_are_not_used_again(void)
{
    world_begin(64 << 20);
    net.links[0].is_stuck  = true;
    net.links[1].is_silent = true;
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_E_IO);
    CHECK_INT(stats(0).quarantined, 4 * PIECE);
    pass_ms(4000);
    CHECK_INT(stats(0).quarantined, 4 * PIECE);
    net.links[0].is_stuck = false;
    step_all();
    CHECK_INT(stats(0).quarantined, 0);
    world_end();
}

static usm_status run_page(usm_transfer_op op, uint64_t block, void *bytes)
{
    job j = {.t = {.offset = 8192, .size = 4096}};

    job_start(&j, op, block, bytes);
    for (int i = 0; i < 500 && j.ended == 0; i++)
        pass_ms(20);
    CHECK_INT(j.ended, 1);
    return j.status;
}

static void small_fetches_come_late_and_doubled_too(void)
{
    world_begin(64 << 20);
    fill(data[0], 1);
    fill(data[1], 2);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 1, data[1]), USM_OK);
    net.judge = hold_bytes;
    CHECK_INT(run_page(USM_TRANSFER_FETCH, 0, data[2]), USM_E_IO);
    net.judge = double_all;
    release();
    for (unsigned i = 0; i < 20; i++) {
        CHECK_INT(run_page(USM_TRANSFER_FETCH, i % 2, data[2]), USM_OK);
        CHECK(memcmp(data[2], data[i % 2] + 8192, 4096) == 0);
        CHECK_INT(job_run(USM_TRANSFER_FETCH, i % 2, data[3]), USM_OK);
        CHECK(memcmp(data[3], data[i % 2], BLOCK) == 0);
        CHECK_INT(run_page(USM_TRANSFER_FETCH, 7, data[2]), USM_E_IO);
    }
    CHECK_INT(stats(0).quarantined, 0);
    world_end();
}

static unsigned fetches_sent, messages_sent;

static verdict count_fetches(const packet *l)
{
    far_header h;

    messages_sent += l->tag == FAR_TAG_HEADER;
    for (size_t i = 0; l->tag == FAR_TAG_HEADER && i < l->size; i += FAR_HEADER)
        fetches_sent += far_header_decode(l->bytes + i, FAR_HEADER, &h) && h.op == FAR_OP_FETCH;
    return PASS;
}

static void many_small_pieces_are_in_flight(void)
{
    static job j[40];
    bool       busy = false;

    world_begin(64 << 20);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    net.judge    = count_fetches;
    fetches_sent = messages_sent = 0;
    memset(j, 0, sizeof(j));
    for (int i = 0; i < 40; i++) {
        j[i].t.size = 4096;
        job_start(&j[i], USM_TRANSFER_FETCH, 0, data[1]);
    }
    (void)far_step(at[0].node, &busy);
    CHECK(busy);
    CHECK_INT(fetches_sent, 16);
    CHECK_INT(messages_sent, 1);
    step_all();
    CHECK_INT(j[39].ended, 1);
    (void)far_step(at[0].node, &busy);
    CHECK(!busy);
    world_end();
}

static void a_death_that_is_told_is_believed_at_once(void)
{
    job j = {0};

    world_begin(64 << 20);
    net.links[1].is_silent = true;
    job_start(&j, USM_TRANSFER_FETCH, 0, data[0]);
    step_all();
    CHECK_INT(j.ended, 0);
    far_peer_died(at[0].node, 1);
    CHECK_INT(j.ended, 1);
    CHECK_INT(j.status, USM_E_IO);
    CHECK_INT(at[0].state[1], FAR_LOST);
    world_end();
}

static void blocks_of_a_borrower_whose_death_is_told_are_freed_at_once(void)
{
    world_begin(64 << 20);
    fill(data[0], 1);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    CHECK_INT(stats(1).kept, BLOCK);
    far_peer_died(at[1].node, 0);
    CHECK_INT(at[1].state[0], FAR_LOST);
    CHECK_INT(stats(1).kept, 0);
    CHECK_INT(stats(1).borrowers, 0);
    world_end();
}

static const plain_case cases[] = {
    CASE(what_is_stored_is_fetched),
    CASE(a_part_is_stored_into_the_rest),
    CASE(what_is_forgotten_is_freed),
    CASE(a_full_lender_says_so),
    CASE(who_does_not_lend_takes_nothing),
    CASE(a_silent_lender_ends_transfers_in_time),
    CASE(a_late_answer_is_dropped_and_ends_the_quarantine),
    CASE(doubled_messages_do_no_harm),
    CASE(an_old_store_is_stale),
    CASE(an_old_store_that_comes_last_is_stale),
    CASE(a_store_that_comes_after_the_forgetting_is_stale),
    CASE(a_given_up_reserve_is_undone),
    CASE(a_wrong_key_is_refused),
    CASE(no_key_is_refused_by_who_has_one),
    CASE(the_same_key_joins),
    CASE(blocks_of_a_dead_borrower_are_freed_after_a_while),
    CASE(a_borrower_that_was_stopped_claims_what_it_had),
    CASE(a_borrower_that_was_stopped_for_too_long_finds_nothing),
    CASE(what_is_asked_while_a_claim_is_open_is_done_later),
    CASE(a_claim_that_nobody_answers_ends),
    CASE(forgetting_that_comes_after_the_next_reserve_is_stale),
    CASE(who_is_stepped_seldom_is_not_lost),
    CASE(who_was_lost_joins_anew_with_nothing),
    CASE(a_restarted_lender_is_another_one),
    CASE(messages_come_in_order_and_once),
    CASE(a_message_that_stays_away_makes_its_sender_lost),
    CASE(who_leaves_says_so_and_is_freed),
    CASE(leaving_waits_for_nobody_dead),
    CASE(buffers_of_a_send_that_does_not_end_are_not_used_again),
    CASE(small_fetches_come_late_and_doubled_too),
    CASE(many_small_pieces_are_in_flight),
    CASE(a_death_that_is_told_is_believed_at_once),
    CASE(blocks_of_a_borrower_whose_death_is_told_are_freed_at_once),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
