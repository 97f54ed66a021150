/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The shortcut to lenders of the same host (transports/far/near.c), one behaviour a case; under
 * faults in all combinations it runs in far_model.c. */
#include "far_fixture.h"

#include "near_sim.h"

#include <pthread.h>

static near_sim nears[NODES];

/* As world_begin(), with shared memory; `hosts`: of nodes 0 and 1. */
static void near_begin(uint64_t lend, uint64_t host_0, uint64_t host_1)
{
    far_params p0, p1;

    world_clear();
    near_sim_init(&nears[0], 0, host_0);
    near_sim_init(&nears[1], 1, host_1);
    p0             = params_of(0, 0);
    p1             = params_of(1, lend);
    p0.near_memory = &nears[0].base;
    p1.near_memory = &nears[1].base;
    start(0, &p0);
    start(1, &p1);
    pass_ms(100);
    CHECK_INT(at[0].state[1], FAR_UP);
    CHECK_INT(far_store_open(at[0].node, BLOCK, &store), USM_OK);
}

static void near_end(void)
{
    world_end();
    CHECK_INT(nears[0].mapped, 0);
    CHECK_INT(nears[1].lent, 0);
    near_sim_free_all();
}

/* No step: the link has no part in it. */
static usm_status near_run(usm_transfer_op op, uint64_t block, void *bytes)
{
    job j = {0};

    job_start(&j, op, block, bytes);
    CHECK_INT(j.ended, 0);
    while (far_near_run(at[0].node)) {}
    CHECK_INT(j.ended, 1);
    return j.status;
}

static usm_status near_awaited(usm_transfer_op op, uint64_t block, void *bytes)
{
    job j = {.t = {.op         = op,
                   .block      = block,
                   .size       = BLOCK,
                   .data       = bytes,
                   .registered = SIZE_MAX,
                   .is_awaited = true,
                   .done       = job_done}};

    far_submit(store, 1, &j.t);
    CHECK_INT(j.ended, 1);
    return j.status;
}

static bool is_near(void)
{
    far_member m[NODES];

    CHECK_INT(far_members(at[0].node, m, NODES), NODES - 1);
    return m[0].is_near;
}

/* ---- cases ---------------------------------------------------------------------------------- */

static void bytes_go_through_shared_memory(void)
{
    near_begin(64 << 20, 1, 1);
    CHECK(!is_near());
    CHECK_INT(reserve(0, 8), USM_OK);
    CHECK(is_near());
    for (unsigned b = 0; b < 3; b++) {
        fill(data[b], b);
        CHECK_INT(near_run(USM_TRANSFER_STORE, b, data[b]), USM_OK);
    }
    for (unsigned b = 0; b < 3; b++) {
        memset(data[3], 0, BLOCK);
        CHECK_INT(near_run(USM_TRANSFER_FETCH, b, data[3]), USM_OK);
        CHECK(memcmp(data[3], data[b], BLOCK) == 0);
    }
    CHECK_INT(stats(0).near_stored, 3 * BLOCK);
    CHECK_INT(stats(0).near_fetched, 3 * BLOCK);
    CHECK_INT(stats(0).fetched, 3 * BLOCK);
    CHECK_INT(stats(1).kept, 8 * BLOCK); /* reserved: it counts whole */
    CHECK_INT(stats(1).borrowers, 1);
    CHECK_INT(stats(1).served, 0);
    CHECK_INT(nears[0].copied, 6 * BLOCK);
    near_end();
}

static void what_is_awaited_has_ended_when_submit_returns(void)
{
    near_begin(64 << 20, 1, 1);
    CHECK_INT(reserve(0, 1), USM_OK);
    fill(data[0], 5);
    CHECK_INT(near_awaited(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    CHECK_INT(near_awaited(USM_TRANSFER_FETCH, 0, data[1]), USM_OK);
    CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    near_end();
}

static void a_part_goes_into_the_rest(void)
{
    job j = {0};

    near_begin(64 << 20, 1, 1);
    CHECK_INT(reserve(5, 1), USM_OK);
    fill(data[0], 1);
    fill(data[1], 2);
    CHECK_INT(near_run(USM_TRANSFER_STORE, 5, data[0]), USM_OK);
    j.t.offset = PIECE - 4096;
    j.t.size   = 8192;
    job_start(&j, USM_TRANSFER_STORE, 5, data[1]);
    CHECK(far_near_run(at[0].node));
    CHECK_INT(j.status, USM_OK);
    memcpy(data[0] + PIECE - 4096, data[1], 8192);
    CHECK_INT(near_run(USM_TRANSFER_FETCH, 5, data[2]), USM_OK);
    CHECK(memcmp(data[2], data[0], BLOCK) == 0);
    near_end();
}

/* Stored and fetched over the link all the same. */
static void goes_over_the_link(void)
{
    CHECK_INT(reserve(0, 4), USM_OK);
    CHECK(!is_near());
    fill(data[0], 7);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 2, data[0]), USM_OK);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 2, data[1]), USM_OK);
    CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    CHECK_INT(stats(0).near_stored, 0);
    CHECK_INT(stats(1).kept, BLOCK);
}

static void another_host_is_reached_over_the_link(void)
{
    near_begin(64 << 20, 1, 2);
    goes_over_the_link();
    near_end();
}

static void what_cannot_be_mapped_is_reached_over_the_link(void)
{
    near_begin(64 << 20, 1, 1);
    nears[0].cannot_map = true;
    goes_over_the_link();
    near_end();
    near_begin(64 << 20, 1, 1);
    nears[1].cannot_lend = true;
    goes_over_the_link();
    near_end();
}

static verdict drop_near(const packet *l)
{
    far_header h;

    return l->tag == FAR_TAG_HEADER && far_header_decode(l->bytes, l->size, &h) &&
                   (h.op == FAR_OP_NEAR || (h.op == FAR_OP_ANSWER && h.offset == FAR_OP_NEAR))
               ? DROP
               : PASS;
}

static void a_question_without_an_answer_holds_a_reserve_up_for_a_deadline_only(void)
{
    uint64_t began;

    near_begin(64 << 20, 1, 1);
    net.judge = drop_near;
    began     = net.now;
    CHECK_INT(reserve(0, 4), USM_OK);
    CHECK(net.now - began <= 1200u * (uint64_t)MS);
    CHECK(!is_near());
    net.judge = NULL;
    near_end();
}

static void what_lies_over_the_link_stays_there(void)
{
    near_begin(64 << 20, 1, 1);
    fill(data[0], 3);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK); /* before anything is mapped */
    CHECK_INT(reserve(0, 2), USM_OK);
    CHECK(is_near());
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[1]), USM_OK);
    CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    CHECK_INT(stats(0).near_fetched, 0);
    far_forget(store, 1, 0, 2);
    step_all();
    CHECK_INT(stats(1).kept, 0);
    CHECK_INT(reserve(0, 2), USM_OK);
    CHECK_INT(near_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    near_end();
}

static void what_was_never_stored_has_no_content(void)
{
    near_begin(64 << 20, 1, 1);
    CHECK_INT(reserve(0, 1), USM_OK);
    CHECK_INT(near_awaited(USM_TRANSFER_FETCH, 0, data[0]), USM_E_IO);
    near_end();
}

static void a_full_lender_says_so(void)
{
    near_begin(4 * BLOCK, 1, 1);
    CHECK_INT(reserve(0, 5), USM_E_SPILL_FULL);
    CHECK_INT(reserve(0, 3), USM_OK);
    CHECK_INT(reserve(3, 2), USM_E_SPILL_FULL);
    CHECK_INT(reserve(3, 1), USM_OK);
    CHECK_INT(stats(1).kept, 4 * BLOCK);
    near_end();
}

static void what_is_forgotten_is_given_back(void)
{
    near_begin(64 << 20, 1, 1);
    fill(data[0], 1);
    CHECK_INT(reserve(0, 200), USM_OK);
    for (unsigned b = 0; b < 200; b++)
        CHECK_INT(near_run(USM_TRANSFER_STORE, b, data[0]), USM_OK);
    far_forget(store, 1, 0, 190);
    step_all();
    CHECK_INT(stats(1).kept, 10 * BLOCK);
    pass_ms(4000); /* some is kept warm: 32 MiB and an eighth of what is used */
    CHECK(nears[0].given_back >= (uint64_t)190 * BLOCK - (33u << 20));
    CHECK(nears[0].given_back < (uint64_t)190 * BLOCK);
    CHECK_INT(near_run(USM_TRANSFER_FETCH, 195, data[1]), USM_OK);
    CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    CHECK_INT(reserve(0, 190), USM_OK);
    CHECK_INT(near_run(USM_TRANSFER_FETCH, 195, data[2]), USM_OK);
    CHECK(memcmp(data[0], data[2], BLOCK) == 0);
    far_store_close(store);
    store = NULL;
    pass_ms(1000);
    CHECK_INT(stats(1).kept, 0);
    CHECK(nears[0].given_back >= (uint64_t)200 * BLOCK); /* nothing is used: all of it */
    CHECK_INT(nears[0].mapped, 1);
    near_end();
}

/* Places are used again and again, in whichever size: an area does not run full. */
static void places_are_used_again(void)
{
    far_store *small;
    usm_status s;

    near_begin(64 * BLOCK, 1, 1);
    CHECK_INT(far_store_open(at[0].node, 4096, &small), USM_OK);
    for (unsigned turn = 0; turn < 40; turn++) {
        CHECK_INT(reserve(0, 60), USM_OK);
        CHECK_INT(near_run(USM_TRANSFER_STORE, 30, data[0]), USM_OK);
        far_forget(store, 1, 0, 60);
        s = USM_E_NOT_READY;
        far_reserve_start(small, 1, 0, 3000, reserved, &s);
        for (int i = 0; i < 100 && s == USM_E_NOT_READY; i++)
            pass_ms(20);
        CHECK_INT(s, USM_OK);
        far_forget(small, 1, 0, 3000);
        step_all();
        CHECK_INT(stats(1).kept, 0);
    }
    far_store_close(small);
    near_end();
}

static verdict drop_reserve_answers(const packet *l)
{
    far_header h;

    return l->tag == FAR_TAG_HEADER && far_header_decode(l->bytes, l->size, &h) &&
                   h.op == FAR_OP_ANSWER && h.offset == FAR_OP_RESERVE
               ? DROP
               : PASS;
}

static void a_reserve_that_was_given_up_leaves_nothing(void)
{
    near_begin(64 << 20, 1, 1);
    CHECK_INT(reserve(0, 1), USM_OK);
    net.judge = drop_reserve_answers;
    CHECK_INT(reserve(1, 8), USM_E_IO);
    net.judge = NULL;
    pass_ms(2000);
    CHECK_INT(stats(1).kept, BLOCK);
    CHECK_INT(reserve(1, 8), USM_OK);
    CHECK_INT(near_run(USM_TRANSFER_STORE, 3, data[0]), USM_OK);
    near_end();
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void a_dead_lenders_blocks_are_there_until_it_is_lost(void)
{
    near_begin(64 << 20, 1, 1);
    CHECK_INT(reserve(0, 2), USM_OK);
    fill(data[0], 9);
    CHECK_INT(near_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    net.links[1].is_silent = true;
    pass_ms(1000);
    CHECK_INT(near_run(USM_TRANSFER_FETCH, 0, data[1]), USM_OK);
    CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    pass_ms(2500); /* a lease: it may have stood still, and come back */
    CHECK_INT(at[0].state[1], FAR_LOST);
    CHECK_INT(near_run(USM_TRANSFER_FETCH, 0, data[2]), USM_OK);
    CHECK(memcmp(data[0], data[2], BLOCK) == 0);
    pass_ms(12000); /* as long as orphans are kept: for good */
    CHECK_INT(at[0].state[1], FAR_LOST);
    CHECK(!is_near());
    CHECK_INT(nears[0].mapped, 0);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[1]), USM_E_IO);
    near_end();
}

static void middle_dies(void *user, uint32_t lender)
{
    (void)user;
    CHECK_INT(lender, 1);
    far_peer_died(at[1].node, 0);
    CHECK_INT(nears[1].lent, 0);
}

static void what_is_taken_back_in_the_middle_of_a_copy_is_not_believed(void)
{
    for (int is_store = 0; is_store < 2; is_store++) {
        usm_transfer_op op = is_store ? USM_TRANSFER_STORE : USM_TRANSFER_FETCH;

        near_begin(64 << 20, 1, 1);
        CHECK_INT(reserve(0, 2), USM_OK);
        CHECK_INT(near_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
        nears[0].middle = middle_dies;
        CHECK_INT(near_awaited(op, 0, data[1]), USM_E_IO);
        nears[0].middle = NULL;
        CHECK_INT(near_run(op, 0, data[1]), USM_E_IO);
        CHECK_INT(stats(1).kept, 0);
        near_end();
    }
}

static void middle_lost(void *user, uint32_t lender)
{
    (void)user;
    far_peer_died(at[0].node, lender);
}

static void a_mapping_lasts_until_its_last_copy_has_ended(void)
{
    near_begin(64 << 20, 1, 1);
    CHECK_INT(reserve(0, 2), USM_OK);
    CHECK_INT(near_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    nears[0].middle = middle_lost;
    CHECK_INT(near_awaited(USM_TRANSFER_FETCH, 0, data[1]), USM_E_IO);
    nears[0].middle = NULL;
    CHECK_INT(nears[0].mapped, 0);
    near_end();
}

static void transfers_that_wait_end_when_the_lender_is_lost(void)
{
    job j[4] = {0};

    near_begin(64 << 20, 1, 1);
    CHECK_INT(reserve(0, 4), USM_OK);
    for (unsigned i = 0; i < 4; i++)
        job_start(&j[i], USM_TRANSFER_STORE, i, data[i]);
    far_peer_died(at[0].node, 1);
    CHECK_INT(nears[0].mapped, 1);
    while (far_near_run(at[0].node)) {}
    for (unsigned i = 0; i < 4; i++) {
        CHECK_INT(j[i].ended, 1);
        CHECK_INT(j[i].status, USM_E_IO);
    }
    CHECK_INT(nears[0].mapped, 0);
    near_end();
}

/* Longer than the lease: it is fenced, joins anew and claims what it has, which never was away. */
static void who_stood_still_goes_on_with_his_area(void)
{
    near_begin(64 << 20, 1, 1);
    CHECK_INT(reserve(0, 2), USM_OK);
    fill(data[0], 6);
    CHECK_INT(near_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    for (unsigned ms = 0; ms < 5000; ms += 20) { /* node 0 is not stepped */
        net.now += (uint64_t)20 * MS;
        (void)far_step(at[1].node, NULL);
    }
    CHECK_INT(at[1].state[0], FAR_LOST);
    CHECK_INT(near_run(USM_TRANSFER_FETCH, 0, data[1]), USM_OK);
    CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    fill(data[0], 7);
    CHECK_INT(near_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    pass_ms(4000);
    CHECK_INT(at[0].state[1], FAR_UP);
    CHECK(is_near());
    CHECK_INT(reserve(2, 2), USM_OK);
    CHECK_INT(near_run(USM_TRANSFER_STORE, 3, data[0]), USM_OK);
    CHECK_INT(near_run(USM_TRANSFER_FETCH, 0, data[1]), USM_OK);
    CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    CHECK_INT(nears[1].lent, 1);
    near_end();
}

static void after_a_loss_another_area_is_mapped(void)
{
    near_begin(64 << 20, 1, 1);
    CHECK_INT(reserve(0, 2), USM_OK);
    CHECK_INT(near_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    net.links[0].is_silent = true;
    pass_ms(16000); /* for longer than orphans are kept */
    CHECK_INT(stats(1).kept, 0);
    CHECK_INT(nears[1].lent, 0);
    net.links[0].is_silent = false;
    pass_ms(20000);
    CHECK_INT(at[0].state[1], FAR_UP);
    CHECK_INT(reserve(0, 2), USM_OK);
    CHECK(is_near());
    CHECK_INT(near_awaited(USM_TRANSFER_FETCH, 0, data[1]), USM_E_IO); /* nothing of the old one */
    fill(data[0], 4);
    CHECK_INT(near_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    CHECK_INT(near_run(USM_TRANSFER_FETCH, 0, data[1]), USM_OK);
    CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    CHECK_INT(nears[1].lent, 1);
    near_end();
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 3, TURNS = 300 };

static _Atomic int results[2]; /* OK, USM_E_IO */

static void *copy_often(void *number)
{
    static _Thread_local unsigned char bytes[BLOCK];
    uint64_t                           block = (uint64_t)(uintptr_t)number;

    for (unsigned i = 0; i < TURNS; i++) {
        usm_status s;

        memset(bytes, (int)i, BLOCK);
        s = near_awaited(USM_TRANSFER_STORE, block, bytes);
        if (s == USM_OK)
            s = near_awaited(USM_TRANSFER_FETCH, block, bytes);
        CHECK(s == USM_OK || s == USM_E_IO);
        for (unsigned k = 0; s == USM_OK && k < BLOCK; k += 512)
            CHECK_INT(bytes[k], i & 255);
        atomic_fetch_add(&results[s != USM_OK], 1);
        if (s != USM_OK) /* later ones would wait for steps */
            break;
    }
    return NULL;
}

static void threads_copy_while_the_lender_is_lost(void)
{
    pthread_t threads[THREADS];

    near_begin(64 << 20, 1, 1);
    CHECK_INT(reserve(0, THREADS), USM_OK);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, copy_often, (void *)i), 0);
    while (atomic_load(&results[0]) < TURNS)
        (void)far_step(at[0].node, NULL);
    far_peer_died(at[1].node, 0); /* the word is cleared, the mapping stays */
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK(atomic_load(&results[0]) >= TURNS);
    near_end();
}

static const plain_case cases[] = {
    CASE(bytes_go_through_shared_memory),
    CASE(what_is_awaited_has_ended_when_submit_returns),
    CASE(a_part_goes_into_the_rest),
    CASE(another_host_is_reached_over_the_link),
    CASE(what_cannot_be_mapped_is_reached_over_the_link),
    CASE(a_question_without_an_answer_holds_a_reserve_up_for_a_deadline_only),
    CASE(what_lies_over_the_link_stays_there),
    CASE(what_was_never_stored_has_no_content),
    CASE(a_full_lender_says_so),
    CASE(what_is_forgotten_is_given_back),
    CASE(places_are_used_again),
    CASE(a_reserve_that_was_given_up_leaves_nothing),
    CASE(a_dead_lenders_blocks_are_there_until_it_is_lost),
    CASE(what_is_taken_back_in_the_middle_of_a_copy_is_not_believed),
    CASE(a_mapping_lasts_until_its_last_copy_has_ended),
    CASE(transfers_that_wait_end_when_the_lender_is_lost),
    CASE(who_stood_still_goes_on_with_his_area),
    CASE(after_a_loss_another_area_is_mapped),
    CASE(threads_copy_while_the_lender_is_lost),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
