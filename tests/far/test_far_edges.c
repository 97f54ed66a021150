/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Far memory from several threads, and where memory is short; headers that are none; slots whose
 * requests nobody heard. */
#include "far_fixture.h"

#include <limits.h>

/* ---- threads -------------------------------------------------------------------------------- */

static atomic_bool is_over;

static void *stepper(void *arg)
{
    struct timespec t;

    (void)arg;
    while (!atomic_load(&is_over)) {
        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        net.now = (uint64_t)t.tv_sec * 1000u * MS + (uint64_t)t.tv_nsec;
        step_all();
        (void)usleep(50);
    }
    return NULL;
}

typedef struct shared_job {
    usm_transfer    t;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    bool            has_ended;
    usm_status      status;
} shared_job;

static void shared_done(usm_transfer *t, usm_status status)
{
    shared_job *j = (shared_job *)(void *)t;

    (void)pthread_mutex_lock(&j->lock);
    j->has_ended = true;
    j->status    = status;
    (void)pthread_cond_signal(&j->changed);
    (void)pthread_mutex_unlock(&j->lock);
}

static usm_status shared_run(usm_transfer_op op, uint64_t block, void *bytes)
{
    shared_job j = {
        .t       = {.op = op, .block = block, .size = BLOCK, .data = bytes, .done = shared_done},
        .lock    = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER};

    far_submit(store, 1, &j.t);
    (void)pthread_mutex_lock(&j.lock);
    while (!j.has_ended)
        (void)pthread_cond_wait(&j.changed, &j.lock);
    (void)pthread_mutex_unlock(&j.lock);
    return j.status;
}

static void *asker(void *arg)
{
    uint64_t       base = (uint64_t)(uintptr_t)arg * 100;
    unsigned char *mine = malloc((size_t)2 * BLOCK);
    far_member     m[NODES];

    CHECK(mine != NULL);
    for (unsigned i = 0; i < 50; i++) {
        fill(mine, (unsigned)base + i);
        CHECK_INT(far_reserve(store, 1, base + i, 1), USM_OK);
        CHECK_INT(shared_run(USM_TRANSFER_STORE, base + i, mine), USM_OK);
        CHECK_INT(shared_run(USM_TRANSFER_FETCH, base + i, mine + BLOCK), USM_OK);
        CHECK(memcmp(mine, mine + BLOCK, BLOCK) == 0);
        far_forget(store, 1, base + i, 1);
        (void)far_members(at[0].node, m, NODES);
        CHECK_INT(far_send(at[0].node, 2, 1, "to nobody", 9), USM_OK);
        (void)stats(1);
    }
    free(mine);
    return NULL;
}

static void any_thread_may_ask(void)
{
    pthread_t threads[4];

    world_begin(64 << 20);
    atomic_store(&is_over, false);
    CHECK_INT(pthread_create(&threads[0], NULL, stepper, NULL), 0);
    for (uintptr_t i = 1; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, asker, (void *)i), 0);
    for (int i = 1; i < 4; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    atomic_store(&is_over, true);
    CHECK_INT(pthread_join(threads[0], NULL), 0);
    step_all();
    CHECK_INT(stats(1).kept, 0);
    world_end();
}

/* ---- memory --------------------------------------------------------------------------------- */

static long allowed;    /* allocations that go well; then one fails, or                           */
static bool is_lasting; /* all do                                                              */

static bool is_refused(void)
{
    return is_lasting ? allowed-- <= 0 : allowed-- == 0;
}

static void *scarce_heap_alloc(size_t size)
{
    return is_refused() ? NULL : module_api.heap_alloc(size);
}

static void *scarce_map(size_t size, int prot)
{
    return is_refused() ? NULL : module_os.map(size, prot);
}

static void quiet_log(usm_log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}

/* All that there is to do; false: it was not so far as to begin. */
static bool scarce_scenario(const usm_host_api *api)
{
    far_params p0 = params_of(0, 0), p1 = params_of(1, 64 << 20);

    p0.api = p1.api = api;
    if (far_node_create(&p0, &at[0].node) != USM_OK || far_node_create(&p1, &at[1].node) != USM_OK)
        return false;
    pass_ms(1000);
    if (far_store_open(at[0].node, BLOCK, &store) != USM_OK)
        return false;
    fill(data[0], 1);
    (void)reserve(0, 100);
    for (unsigned b = 0; b < 2; b++) {
        usm_status s = job_run(USM_TRANSFER_STORE, b, data[0]);

        memset(data[1], 0, BLOCK);
        if (s == USM_OK && job_run(USM_TRANSFER_FETCH, b, data[1]) == USM_OK)
            CHECK(memcmp(data[0], data[1], BLOCK) == 0);
    }
    (void)far_send(at[0].node, 1, 3, "a", 1);
    far_forget(store, 1, 0, 50);
    pass_ms(1000);
    return true;
}

static void fail_each(bool lasting)
{
    usm_os_api   os  = module_os;
    usm_host_api api = module_api;
    long         n   = 0;
    bool         has_failed;

    os.map         = scarce_map;
    api.os         = &os;
    api.heap_alloc = scarce_heap_alloc;
    api.log        = quiet_log;
    do {
        world_clear();
        allowed    = n;
        is_lasting = lasting;
        if (scarce_scenario(&api)) {
            has_failed = allowed < 0;
            allowed    = LONG_MAX;
            pass_ms(20000);
            CHECK_INT(at[0].state[1], FAR_UP);
            CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
            CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[1]), USM_OK);
            CHECK(memcmp(data[0], data[1], BLOCK) == 0);
        } else {
            has_failed = true;
        }
        world_end();
        n++;
    } while (has_failed);
    CHECK(n > 60);
}

static void each_allocation_may_fail(void)
{
    fail_each(false);
}

static void memory_may_be_short_from_any_allocation_on(void)
{
    fail_each(true);
}

/* A lender copies a part of a chunk that is fetched; a slab has 2048 of 4 KiB. */
static void copies_of_parts_are_used_again(void)
{
    usm_os_api   os  = module_os;
    usm_host_api api = module_api;
    far_params   p0 = params_of(0, 0), p1 = params_of(1, 64 << 20);

    os.map         = scarce_map;
    api.os         = &os;
    api.heap_alloc = scarce_heap_alloc;
    p1.api         = &api;
    world_clear();
    allowed    = LONG_MAX;
    is_lasting = true;
    start(0, &p0);
    start(1, &p1);
    pass_ms(100);
    CHECK_INT(far_store_open(at[0].node, BLOCK, &store), USM_OK);
    fill(data[0], 1);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    for (unsigned i = 0; i < 3000; i++) {
        job j = {.t = {.offset = 4096, .size = 4096}};

        allowed = i < 10 ? LONG_MAX : 0;
        job_start(&j, USM_TRANSFER_FETCH, 0, data[1]);
        step_all();
        CHECK_INT(j.ended, 1);
        CHECK_INT(j.status, USM_OK);
    }
    CHECK(memcmp(data[1], data[0] + 4096, 4096) == 0);
    allowed = LONG_MAX;
    world_end();
}

static void damaged_headers_are_refused(void)
{
    far_header    h = {.op        = FAR_OP_FETCH,
                       .shift     = 16,
                       .from      = 3,
                       .to        = 4,
                       .operation = 9,
                       .offset    = 4096,
                       .length    = 8192,
                       .block     = 5,
                       .behind    = 2,
                       .store     = 1};
    far_header    d;
    unsigned char bytes[FAR_HEADER];

    far_header_encode(&h, bytes);
    CHECK(far_header_decode(bytes, sizeof(bytes), &d));
    CHECK_INT(d.operation, 9);
    CHECK_INT(d.length, 8192);
    CHECK(!far_header_decode(bytes, 63, &d));
    for (unsigned bit = 0; bit < FAR_HEADER * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CHECK(!far_header_decode(bytes, sizeof(bytes), &d));
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    h.length = 65536; /* beyond the block */
    far_header_encode(&h, bytes);
    CHECK(!far_header_decode(bytes, sizeof(bytes), &d));
}

static void damaged_bodies_have_another_sum(void)
{
    unsigned char body[600];
    uint64_t      sum;

    for (unsigned i = 0; i < sizeof(body); i++)
        body[i] = (unsigned char)(i * 7);
    for (size_t size = 0; size <= sizeof(body); size += size < 40 ? 1 : 140) {
        sum = far_body_sum(body, size);
        for (size_t bit = 0; bit < size * 8; bit++) {
            body[bit / 8] ^= (unsigned char)(1u << bit % 8);
            CHECK(far_body_sum(body, size) != sum);
            body[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        if (size > 0)
            CHECK(far_body_sum(body, size - 1) != sum);
    }
}

/* ---- slots that linger ---------------------------------------------------------------------- */

/* The rules drop or hold what is asked for with bytes. */
static verdict requests_to;

static verdict judge_requests(const packet *l)
{
    far_header h;

    return l->tag == FAR_TAG_HEADER && far_header_decode(l->bytes, l->size, &h) &&
                   (h.op == FAR_OP_FETCH || h.op == FAR_OP_STORE)
               ? requests_to
               : PASS;
}

static verdict drop_all(const packet *l)
{
    (void)l;
    return DROP;
}

/* Block 0 is stored; the requests of 32 pieces, 8 times the depth, are lost. */
static void world_begin_lingering(void)
{
    static job j[16];

    world_begin(64 << 20);
    fill(data[0], 1);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    net.judge   = judge_requests;
    requests_to = DROP;
    while (stats(0).quarantined < (uint64_t)32 * PIECE) {
        memset(j, 0, sizeof(j));
        for (int i = 0; i < 16; i++) {
            j[i].t.size = 4096;
            job_start(&j[i], USM_TRANSFER_FETCH, 0, data[3]);
        }
        for (int i = 0; i < 500 && j[15].ended == 0; i++)
            pass_ms(20);
        CHECK_INT(j[15].ended, 1);
        CHECK_INT(j[15].status, USM_E_IO);
    }
    CHECK_INT(at[0].lost, 0);
}

static void all_slot_numbers_linger_and_are_used_again(void)
{
    world_begin_lingering();
    fill(data[1], 2);
    net.judge = NULL;
    CHECK_INT(job_run(USM_TRANSFER_STORE, 1, data[1]), USM_OK); /* it waits for a slot */
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[2]), USM_OK);
    CHECK(memcmp(data[2], data[0], BLOCK) == 0);
    pass_ms(4000);
    CHECK_INT(stats(0).quarantined, 0);
    CHECK_INT(at[0].lost, 0);
    CHECK_INT(at[1].lost, 0);
    world_end();
}

static void who_gives_no_slot_number_back_is_lost(void)
{
    world_begin_lingering();
    CHECK_INT(job_run(USM_TRANSFER_STORE, 1, data[0]), USM_E_IO);
    CHECK_INT(at[0].lost, 1);
    CHECK_INT(stats(0).quarantined, 32 * PIECE);
    world_end();
}

/* Bytes of stores that have not been received. */
static int stores_under_way(void)
{
    int n = 0;

    for (const packet *l = net.packets; l != NULL; l = l->next)
        n += l->tag >= FAR_TAG_STORE && l->tag < FAR_TAG_FETCH;
    return n;
}

static int receives_of_stores(uint32_t i)
{
    int n = 0;

    for (const far_op *op = net.links[i].receives; op != NULL; op = op_next(op))
        n += op->tag >= FAR_TAG_STORE && op->tag < FAR_TAG_FETCH;
    return n;
}

static void slot_numbers_of_a_session_that_is_over_are_used_again(void)
{
    job stores = {.t = {.size = (size_t)2 * PIECE}}, fetches = stores;

    world_begin(64 << 20);
    fill(data[0], 1);
    fill(data[1], 2);
    CHECK_INT(job_run(USM_TRANSFER_STORE, 0, data[0]), USM_OK);
    net.links[0].is_stuck = true;
    net.judge             = judge_requests;
    requests_to           = HOLD;
    job_start(&stores, USM_TRANSFER_STORE, 1, data[1]);
    job_start(&fetches, USM_TRANSFER_FETCH, 0, data[2]);
    step_all();
    net.judge = drop_all;
    pass_ms(3500);
    CHECK_INT(at[1].state[0], FAR_LOST);
    CHECK_INT(stores.status, USM_E_IO);
    CHECK_INT(fetches.status, USM_E_IO);
    CHECK_INT(stats(0).quarantined, 4 * PIECE);
    release(); /* the requests come when there is no session */
    step_all();
    CHECK_INT(stores_under_way(), 2);
    net.judge = NULL;
    pass_ms(2000);
    CHECK_INT(at[0].state[1], FAR_UP);
    CHECK_INT(stores_under_way(), 0);
    CHECK_INT(receives_of_stores(1), 0); /* no more of them than there were */
    CHECK_INT(stats(0).quarantined, 2 * PIECE);
    net.links[0].is_stuck = false;
    step_all();
    CHECK_INT(stats(0).quarantined, 0);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 0, data[2]), USM_OK);
    CHECK(memcmp(data[2], data[0], BLOCK) == 0);
    CHECK_INT(job_run(USM_TRANSFER_FETCH, 1, data[2]), USM_E_IO); /* nothing was stored */
    CHECK_INT(at[0].lost, 0);
    world_end();
}

static const plain_case cases[] = {
    CASE(any_thread_may_ask),
    CASE(each_allocation_may_fail),
    CASE(memory_may_be_short_from_any_allocation_on),
    CASE(copies_of_parts_are_used_again),
    CASE(damaged_headers_are_refused),
    CASE(damaged_bodies_have_another_sum),
    CASE(all_slot_numbers_linger_and_are_used_again),
    CASE(who_gives_no_slot_number_back_is_lost),
    CASE(slot_numbers_of_a_session_that_is_over_are_used_again),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
