/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What src/spill/tier.h promises when something fails: whatever a transport does, content that was
 * acknowledged comes back as it was, or its loss is told. */
#include "tier_fixture.h"

#include "base/fault.h"

/* ---- transports that fail ------------------------------------------------------------------ */

static void a_tier_that_does_not_open_is_passed_over(void)
{
    block b, c;

    fake_reset();
    fake_plan_of(FAKE_A)->open = USM_E_INVALID;
    start("fake_a;fake_b");
    block_init(&b, 1);
    block_init(&c, 2);
    CHECK_INT(write_new(&b, 1), USM_OK);
    CHECK_INT(write_new(&c, 1), USM_OK);
    CHECK_INT(b.copy->tier, 2);
    CHECK_INT(events_of(USM_E_INVALID), 1);
    CHECK_IN("fake_a does not open", events.sentence[0]);
    block_fini(&b);
    block_fini(&c);
    stop();

    start("fake_a;there_is_none");
    block_init(&b, 1);
    CHECK(write_new(&b, 1) != USM_OK);
    CHECK_IN("fake_a does not open", b.reason);
    CHECK_IN("libusm_transport_there_is_none.so", b.reason);
    block_fini(&b);
    stop();
}

static void a_store_that_fails_is_tried_again_then_elsewhere(void)
{
    block b;

    fake_reset();
    start("fake_a;fake_b");
    block_init(&b, 1);
    fake_plan_of(FAKE_A)->store_eio_at = 1; /* once */
    CHECK_INT(write_new(&b, 1), USM_OK);
    CHECK_INT(b.copy->tier, 1);
    CHECK_INT(stats_of(0).errors, 1);
    fake_plan_of(FAKE_A)->store_eio = 1000;
    CHECK_INT(write_new(&b, 2), USM_OK); /* moves */
    CHECK_INT(b.copy->tier, 2);
    CHECK_INT(fake_counts_of(FAKE_A).reserved, 0); /* the old place is given back */
    CHECK_INT(events_of(USM_E_IO), 1);
    CHECK_IN("fake_a fails to write: fake_a: a planned fault", events.sentence[1]);
    CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
    CHECK(holds_all(&b));
    fake_plan_of(FAKE_B)->store_eio = 1000;
    CHECK_INT(write_new(&b, 3), USM_E_IO);
    CHECK_IN("fake_a: ", b.reason);
    CHECK_IN("fake_b: ", b.reason);
    CHECK_INT(tiers->list[0].slots.used, 0); /* that was of no use */
    fake_plan_of(FAKE_B)->store_eio = 0;
    CHECK_INT(write_new(&b, 3), USM_OK);
    CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
    CHECK(holds_all(&b));
    block_fini(&b);
    stop();
}

static void a_part_stays_where_the_rest_is(void)
{
    block b;

    fake_reset();
    start("fake_a;fake_b");
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_OK);
    fake_plan_of(FAKE_A)->store_eio = 1000;
    fill(&b, 5, 2);
    CHECK_INT(write_part(&b, 5, 1), USM_E_IO);
    CHECK_INT(b.copy->tier, 1);
    fake_plan_of(FAKE_A)->store_eio = 0;
    CHECK_INT(read_part(&b, 0, 5), USM_OK); /* the others are as they were */
    CHECK_INT(read_part(&b, 6, SECTORS - 6), USM_OK);
    fill(&b, 5, 2);
    CHECK_INT(write_part(&b, 5, 1), USM_OK);
    CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
    CHECK(holds_all(&b));
    block_fini(&b);
    stop();
}

static void a_copy_is_known_to_have_what_was_stored_whole(void)
{
    block b;

    fake_reset();
    start("fake_a");
    block_init(&b, 1);
    CHECK(!is_known(&b));
    CHECK_INT(write_new(&b, 1), USM_OK);
    CHECK(is_known_to_the_bit(&b));
    fill(&b, 5, 2);
    CHECK_INT(write_part(&b, 5, 1), USM_OK);
    CHECK(!is_known(&b));
    CHECK_INT(write_new(&b, 3), USM_OK);
    CHECK(is_known_to_the_bit(&b));
    fake_plan_of(FAKE_A)->store_eio = 1000;
    CHECK_INT(write_new(&b, 4), USM_E_IO);
    CHECK(!is_known(&b)); /* the sums are the new ones, the bytes are not */
    fake_plan_of(FAKE_A)->store_eio = 0;
    CHECK_INT(write_part(&b, 0, SECTORS), USM_OK);
    CHECK(is_known_to_the_bit(&b));
    block_fini(&b);
    stop();
}

static void nothing_is_kept_of_a_block_that_could_not_be_stored(void)
{
    block b;

    fake_reset();
    start("fake_a");
    block_init(&b, 1);
    fake_plan_of(FAKE_A)->store_eio = 1000;
    CHECK_INT(write_new(&b, 1), USM_E_IO);
    CHECK_INT(b.copy->tier, 0);
    CHECK_INT(write_part(&b, 2, 1), USM_E_IO);
    CHECK_INT(b.copy->tier, 0);
    CHECK_INT(fake_counts_of(FAKE_A).reserved, 0);
    block_fini(&b);
    stop();
}

static void a_tier_that_keeps_failing_is_asked_last_until_it_works(void)
{
    enum { N = 20 };
    block       b[N];
    fake_counts before;

    fake_reset();
    fake_plan_of(FAKE_B)->capacity = 10;
    start("fake_a;fake_b");
    for (unsigned i = 0; i < N; i++)
        block_init(&b[i], i);
    fake_plan_of(FAKE_A)->store_eio = 1000;
    for (unsigned i = 0; i < 3; i++)
        CHECK_INT(write_new(&b[i], 1), USM_OK);
    before = fake_counts_of(FAKE_A);
    CHECK_INT(before.stores, 3 * 2);
    for (unsigned i = 3; i < 10; i++)
        CHECK_INT(write_new(&b[i], 1), USM_OK);
    CHECK_INT(fake_counts_of(FAKE_A).stores, before.stores); /* not asked */
    CHECK_INT(write_new(&b[10], 1), USM_E_IO);               /* asked, once */
    CHECK_INT(fake_counts_of(FAKE_A).stores, before.stores + 1);
    fake_plan_of(FAKE_A)->store_eio = 0;
    CHECK_INT(write_new(&b[10], 1), USM_OK);
    CHECK_INT(b[10].copy->tier, 1);
    CHECK_INT(write_new(&b[11], 1), USM_OK); /* the first again */
    CHECK_INT(b[11].copy->tier, 1);
    for (unsigned i = 0; i < N; i++)
        block_fini(&b[i]);
    stop();
}

static void a_disk_that_is_full_in_spite_of_all_is_left(void)
{
    block b;

    fake_reset();
    start("fake_a;fake_b");
    block_init(&b, 1);
    fake_plan_of(FAKE_A)->store_full = 1000;
    CHECK_INT(write_new(&b, 1), USM_OK);
    CHECK_INT(b.copy->tier, 2);
    fake_plan_of(FAKE_B)->store_full = 1000;
    CHECK_INT(write_new(&b, 2), USM_E_SPILL_FULL);
    fake_plan_of(FAKE_B)->store_full = 0;
    CHECK_INT(write_new(&b, 2), USM_OK);
    CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
    CHECK(holds_all(&b));
    block_fini(&b);
    stop();
}

static void a_fetch_that_fails_is_tried_three_times(void)
{
    block b;

    fake_reset();
    start("fake_a");
    block_init(&b, 9);
    CHECK_INT(write_new(&b, 1), USM_OK);
    *fake_plan_of(FAKE_A) =
        (fake_plan){.capacity = UINT64_MAX, .fetch_eio_at = 1, .fetch_eio_for = 2};
    CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
    CHECK(holds_all(&b));
    *fake_plan_of(FAKE_A) =
        (fake_plan){.capacity = UINT64_MAX, .fetch_eio_at = 1, .fetch_eio_for = 3};
    CHECK_INT(read_part(&b, 0, SECTORS), USM_E_IO);
    CHECK_IN("tier fake_a, slot ", b.reason);
    CHECK_IN("a planned fault", b.reason);
    CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
    CHECK(holds_all(&b));
    block_fini(&b);
    stop();
}

/* ---- wrong bytes ----------------------------------------------------------------------------- */

typedef enum damage { FLIP, SWAP, STALE, TORN, DAMAGES } damage;

/* Damages a block behind the tiers' back; the sectors that are wrong now. */
static void inflict(damage what, block *b, const block *other, uint64_t r, uint32_t *first,
                    uint32_t *count)
{
    unsigned char *mine = fake_block(FAKE_A, b->copy->slot);
    unsigned char  old[BLOCK];

    *first = (uint32_t)(r % SECTORS);
    *count = 1;
    switch (what) {
    case FLIP:
        mine[r % BLOCK] ^= (unsigned char)(1u << (r >> 40) % 8);
        *first = (uint32_t)(r % BLOCK / SECTOR);
        break;
    case SWAP: /* the same place of another block */
        memcpy(mine + *first * SECTOR, fake_block(FAKE_A, other->copy->slot) + *first * SECTOR,
               SECTOR);
        break;
    case STALE: /* as before the last write of this sector */
        memcpy(old, mine, BLOCK);
        fill(b, *first, b->version[*first] + 1);
        CHECK_INT(write_part(b, *first, 1), USM_OK);
        memcpy(mine, old, BLOCK);
        break;
    case TORN: /* half of the last write */
    case DAMAGES:
        memcpy(old, mine, BLOCK);
        for (uint32_t i = 0; i < SECTORS; i++)
            fill(b, i, b->version[i] + 1);
        CHECK_INT(write_part(b, 0, SECTORS), USM_OK);
        memcpy(mine + (*first * SECTOR | 512), old + (*first * SECTOR | 512),
               BLOCK - (*first * SECTOR | 512));
        *count = SECTORS - *first;
        break;
    }
}

static void wrong_bytes_never_come_back_unnoticed(void)
{
    enum { N = 16, CASES = PLAIN_SANITIZED ? 2000 : 10000 };
    block    b[N];
    uint64_t random = 11, detected = 0, of[DAMAGES] = {0};

    fake_reset();
    start("fake_a");
    for (unsigned i = 0; i < N; i++) {
        block_init(&b[i], 50 + i);
        CHECK_INT(write_new(&b[i], 1), USM_OK);
    }
    for (unsigned i = 0; i < CASES; i++) {
        uint64_t r    = fake_random(&random);
        block   *it   = &b[r % N];
        damage   what = (damage)(i % DAMAGES);
        uint32_t first, count;

        inflict(what, it, &b[(r + 1) % N], fake_random(&random), &first, &count);
        if (read_part(it, first, count) == USM_E_CORRUPT) {
            detected++;
            of[what]++;
            CHECK_IN("returned other bytes than were stored", it->reason);
        }
        CHECK_INT(write_new(it, i + 2), USM_OK); /* whole again */
    }
    printf("# %d corruptions: %llu detected (bits %llu, swapped %llu, stale %llu, torn %llu)\n",
           (int)CASES, (unsigned long long)detected, (unsigned long long)of[FLIP],
           (unsigned long long)of[SWAP], (unsigned long long)of[STALE],
           (unsigned long long)of[TORN]);
    CHECK_INT(detected, CASES);
    CHECK_INT(stats_of(0).corrupt, CASES);
    CHECK_INT(events_of(USM_E_CORRUPT), 1);
    for (unsigned i = 0; i < N; i++)
        block_fini(&b[i]);
    stop();
}

static void a_bit_that_flips_on_the_way_is_read_again(void)
{
    block    b;
    unsigned good = 0, bad = 0;

    fake_reset();
    fake_plan_of(FAKE_A)->seed = 3;
    start("fake_a");
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_OK);
    fake_plan_of(FAKE_A)->flip = 300;
    for (unsigned i = 0; i < 1000; i++) {
        usm_status st = read_part(&b, 0, SECTORS);

        CHECK(st == USM_OK ? holds_all(&b) : st == USM_E_CORRUPT);
        good += st == USM_OK;
        bad += st == USM_E_CORRUPT;
    }
    CHECK(fake_counts_of(FAKE_A).flips > 300);
    CHECK(bad > 30 && bad < 200); /* both attempts: nine in a hundred */
    CHECK_INT(good + bad, 1000);
    block_fini(&b);
    stop();
}

/* ---- memory that runs out
 * ------------------------------------------------------------------------ */

/* A life of tiers, as far as memory lets it; false: it was not there to the end. */
static bool live(void)
{
    usm__tiers_params params = {
        .block_size = BLOCK, .sector_size = SECTOR, .spec = "fake_a;fake_b"};
    block b[3];
    bool  went_well = true;

    if (usm__tiers_create(&params, &tiers) != USM_OK) {
        CHECK_INT(usm_last_status(), USM_E_NO_MEMORY);
        return false;
    }
    for (unsigned i = 0; i < 3; i++) {
        usm_status st;

        block_init(&b[i], 1000 * i);
        st = write_new(&b[i], 1);
        CHECK(st == USM_OK || st == USM_E_NO_MEMORY);
        if (st == USM_OK) {
            CHECK_INT(read_part(&b[i], 0, SECTORS), USM_OK);
            CHECK(holds_all(&b[i]));
        }
        went_well &= st == USM_OK;
    }
    for (unsigned i = 0; i < 3; i++)
        block_fini(&b[i]);
    stop();
    return went_well;
}

static void memory_that_runs_out_is_told_and_nothing_else_is_harmed(void)
{
    unsigned n    = 0;
    bool     done = false;

    while (!done) {
        CHECK(++n < 100);
        fake_reset();
        CHECK(usm__fault_arm("heap.alloc", n, false, USM_OK));
        done = live();
        CHECK(done == (usm__fault_fired() == 0));
        usm__fault_disarm_all();
    }
    printf("# %u cases, nothing lost\n", n);
    CHECK(n > 4);
}

/* ---- everything together, against a model ---------------------------------------------------- */

#define MODEL_BLOCKS 24

/* What is known of a sector's stored content: version + 1 of an acknowledged write; 0: nothing. */
typedef struct model {
    block    b[MODEL_BLOCKS];
    uint32_t stored[MODEL_BLOCKS][SECTORS];
    uint32_t version;
    uint64_t random, reads, told_lost;
} model;

static void model_write(model *m, unsigned i, uint32_t first, uint32_t count)
{
    block     *b = &m->b[i];
    usm_status st;

    m->version++;
    for (uint32_t s = first; s < first + count; s++)
        fill(b, s, m->version);
    st = write_part(b, first, count);
    CHECK(st == USM_OK || st == USM_E_IO || st == USM_E_SPILL_FULL);
    for (uint32_t s = first; s < first + count; s++)
        m->stored[i][s] = st == USM_OK ? m->version + 1 : 0;
}

static void model_read(model *m, unsigned i, uint32_t first, uint32_t count)
{
    block     *b = &m->b[i];
    usm_status st;

    for (uint32_t s = first; s < first + count; s++)
        if (m->stored[i][s] == 0)
            return; /* the owner knows that nothing is there */
    for (uint32_t s = first; s < first + count; s++)
        b->version[s] = m->stored[i][s] - 1;
    st = read_part(b, first, count);
    CHECK(st == USM_OK || st == USM_E_IO || st == USM_E_CORRUPT);
    m->reads++;
    m->told_lost += st != USM_OK;
    for (uint32_t s = first; st == USM_OK && s < first + count; s++)
        CHECK(holds(b, s));
}

static void model_step(model *m)
{
    unsigned i     = (unsigned)(fake_random(&m->random) % MODEL_BLOCKS);
    uint32_t first = (uint32_t)(fake_random(&m->random) % SECTORS);
    uint32_t count = 1 + (uint32_t)(fake_random(&m->random) % (SECTORS - first));
    uint64_t what  = fake_random(&m->random) % 16;

    if (what == 0) {
        usm__tiers_forget(tiers, m->b[i].copy);
        memset(m->stored[i], 0, sizeof m->stored[i]);
    } else if (what < 5) {
        model_write(m, i, 0, SECTORS);
    } else if (what < 8) {
        model_write(m, i, first, count);
    } else {
        model_read(m, i, first, count);
    }
}

/* `lies`: the transports tell that they stored what they did not. */
static uint64_t run_model(uint64_t seed, bool lies)
{
    model    m = {.random = seed};
    uint64_t r = seed;

    fake_reset();
    for (unsigned k = 0; k < FAKE_COUNT; k++) {
        fake_plan *p = fake_plan_of((fake_name)k);

        p->seed       = fake_random(&r);
        p->shuffle    = true;
        p->capacity   = 8 + fake_random(&r) % 16;
        p->store_eio  = (unsigned)(fake_random(&r) % 300);
        p->store_full = (unsigned)(fake_random(&r) % 50);
        p->fetch_eio  = (unsigned)(fake_random(&r) % 300);
        p->flip       = lies ? (unsigned)(fake_random(&r) % 100) : 0;
        p->lost       = lies ? (unsigned)(fake_random(&r) % 100) : 0;
        p->torn       = lies ? (unsigned)(fake_random(&r) % 100) : 0;
        p->stray      = lies ? (unsigned)(fake_random(&r) % 100) : 0;
    }
    start(seed % 2 ? "fake_a;fake_p" : "fake_q;fake_b");
    for (unsigned i = 0; i < MODEL_BLOCKS; i++)
        block_init(&m.b[i], seed * 100 + i);
    for (unsigned step = 0; step < 300; step++)
        model_step(&m);
    for (unsigned i = 0; i < MODEL_BLOCKS; i++)
        block_fini(&m.b[i]);
    stop();
    return m.reads;
}

static void whatever_fails_no_read_gives_wrong_bytes(void)
{
    uint64_t reads = 0;

    for (uint64_t seed = 1; seed <= (PLAIN_SANITIZED ? 20 : 100); seed++)
        reads += run_model(seed, seed % 4 < 2);
    printf("# %llu cases, nothing lost\n", (unsigned long long)reads);
    CHECK(reads > 1000);
}

static const plain_case cases[] = {
    CASE(a_tier_that_does_not_open_is_passed_over),
    CASE(a_store_that_fails_is_tried_again_then_elsewhere),
    CASE(a_part_stays_where_the_rest_is),
    CASE(a_copy_is_known_to_have_what_was_stored_whole),
    CASE(nothing_is_kept_of_a_block_that_could_not_be_stored),
    CASE(a_tier_that_keeps_failing_is_asked_last_until_it_works),
    CASE(a_disk_that_is_full_in_spite_of_all_is_left),
    CASE(a_fetch_that_fails_is_tried_three_times),
    CASE(wrong_bytes_never_come_back_unnoticed),
    CASE(a_bit_that_flips_on_the_way_is_read_again),
    CASE(memory_that_runs_out_is_told_and_nothing_else_is_harmed),
    CASE(whatever_fails_no_read_gives_wrong_bytes),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
