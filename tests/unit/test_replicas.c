/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Copies of blocks in several fault domains (src/spill/replica.h): places that are lost, slow,
 * full, leave and come, copies that miss a write or rot, and what is read all the while.  At
 * random: test_replicas_model.c; where copies lie: test_placement.c. */
#include "replica_fixture.h"

#include "base/fault.h"

/* ---- which there are ------------------------------------------------------------------------- */

static void a_block_has_two_copies_in_two_domains(void)
{
    enum { N = 200 };
    block    b[N];
    unsigned seen[3] = {0};

    fake_reset();
    add_racks(FAKE_M, 3);
    (void)fake_place_add(FAKE_M, "rack0", 1000); /* a second lender in a rack */
    start_copies("fake_m", NULL);                /* unset: two, for it consists of places */
    init_all(b, N);
    write_all(b, N, 1);
    for (unsigned i = 0; i < N; i++) {
        CHECK_INT(count_copies(&b[i]), 2);
        for (unsigned r = 0; r < 3; r++)
            seen[r] += lies_in(&b[i], racks[r]);
    }
    CHECK_INT(seen[0] + seen[1] + seen[2], 2 * N);
    CHECK(seen[0] > seen[1] && seen[0] > seen[2] && seen[1] > N / 4 && seen[2] > N / 4);
    read_all(b, N);
    write_all(b, N, 2); /* in place */
    CHECK_INT(stats_of(0).used, 2 * N * BLOCK);
    CHECK_INT(copies().missing, 0);
    CHECK_INT(copies().repaired, 0);
    CHECK_INT(copies().wanted, 2);
    read_all(b, N);
    fini_all(b, N);
    CHECK_INT(fake_counts_of(FAKE_M).reserved, 0);
    stop();
}

/* More than can be under way wait for their turn, and do so again after all of them had it. */
static void writes_that_wait_are_made_each_time(void)
{
    enum { N = 2 * USM__REPLICATED_WRITES };
    block b[N];

    fake_reset();
    add_racks(FAKE_N, 3);
    start_copies("fake_n", NULL);
    init_all(b, N);
    for (uint32_t version = 1; version <= 3; version++) {
        for (unsigned i = 0; i < N; i++) {
            for (uint32_t s = 0; s < SECTORS; s++)
                fill(&b[i], s, version);
            begin(&b[i], true, 0, SECTORS);
        }
        for (unsigned i = 0; i < N; i++)
            CHECK_INT(end(&b[i]), USM_OK);
    }
    read_all(b, N);
    fini_all(b, N);
    stop();
}

static void one_copy_costs_what_it_did(void)
{
    fake_reset();
    start_copies("fake_a;fake_b", NULL);
    CHECK(tiers->replicas == NULL);
    CHECK_INT(usm__tiers_copy_size(tiers), sizeof(usm__copy) + SECTORS * sizeof(uint32_t));
    CHECK_INT(usm__tiers_memory(tiers), 0);
    CHECK_INT(copies().wanted, 0);
    stop();
    start_copies("fake_a;fake_b", "1");
    CHECK(tiers->replicas == NULL);
    stop();
}

static void two_tiers_are_two_domains(void)
{
    block b;

    fake_reset();
    start_copies("fake_a;fake_b", "2");
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_OK);
    CHECK_INT(fake_counts_of(FAKE_A).blocks, 1);
    CHECK_INT(fake_counts_of(FAKE_B).blocks, 1);
    fake_plan_of(FAKE_A)->fetch_eio = 1000;
    CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
    CHECK(holds_all(&b));
    block_fini(&b);
    CHECK_INT(fake_counts_of(FAKE_A).reserved + fake_counts_of(FAKE_B).reserved, 0);
    stop();
}

static void three_copies_are_in_three_domains(void)
{
    enum { N = 50 };
    block b[N];

    fake_reset();
    add_racks(FAKE_M, 2);
    start_copies("fake_m;fake_a", "3");
    init_all(b, N);
    write_all(b, N, 1);
    for (unsigned i = 0; i < N; i++)
        CHECK_INT(count_copies(&b[i]), 3);
    CHECK_INT(fake_counts_of(FAKE_A).blocks, N);
    fake_place_set(FAKE_M, 0, USM_PLACE_LOST);
    fake_place_set(FAKE_M, 1, USM_PLACE_LOST);
    read_all(b, N);
    CHECK_INT(copies().lost, 0);
    fini_all(b, N);
    stop();
}

static void without_a_second_domain_the_next_tier_has_the_other_copy(void)
{
    enum { N = 20 };
    block b[N];

    fake_reset();
    (void)fake_place_add(FAKE_M, racks[0], 1000);
    (void)fake_place_add(FAKE_M, racks[0], 1000);
    start_copies("fake_m;fake_a", "2");
    init_all(b, N);
    write_all(b, N, 1);
    for (unsigned i = 0; i < N; i++)
        CHECK_INT(count_copies(&b[i]), 2);
    CHECK_INT(fake_counts_of(FAKE_M).blocks, N);
    CHECK_INT(fake_counts_of(FAKE_A).blocks, N);
    CHECK_INT(events_of(USM_E_NOT_SUPPORTED), 0);
    CHECK_INT(fake_counts_of(FAKE_A).fetches, 0);
    read_all(b, N);
    CHECK_INT(fake_counts_of(FAKE_A).fetches, 0); /* the first tier is asked */
    fini_all(b, N);
    stop();
}

static void with_one_domain_it_is_said_once_and_made_good_when_another_comes(void)
{
    enum { N = 20 };
    block b[N];

    fake_reset();
    add_racks(FAKE_M, 1);
    start_copies("fake_m", "2");
    init_all(b, N);
    write_all(b, N, 1);
    CHECK_INT(events_of(USM_E_NOT_SUPPORTED), 1);
    CHECK_IN("1 fault domain only", events.sentence[0]);
    CHECK_IN("USM_SPILL=mpi;file:/var/tmp", events.sentence[0]);
    settle_as_far_as_may_be();
    CHECK_INT(copies().missing, N);
    (void)fake_place_add(FAKE_M, racks[1], 1000);
    settle();
    CHECK_INT(copies().repaired, N);
    for (unsigned i = 0; i < N; i++)
        CHECK_INT(count_copies(&b[i]), 2);
    fake_place_set(FAKE_M, 0, USM_PLACE_LOST);
    read_all(b, N);
    fini_all(b, N);
    stop();
}

/* ---- reads ----------------------------------------------------------------------------------- */

static void a_read_goes_to_the_other_copy_when_one_fails(void)
{
    enum { N = 50 };
    block b[N];

    fake_reset();
    add_racks(FAKE_M, 3);
    start_copies("fake_m", "2");
    init_all(b, N);
    write_all(b, N, 1);
    fake_place_fail(FAKE_M, 1, 0, 1000);
    read_all(b, N);
    CHECK(fake_counts_of(FAKE_M).eio > 0);
    for (unsigned p = 0; p < 3; p++)
        fake_place_fail(FAKE_M, p, 0, 1000);
    CHECK_INT(read_part(&b[0], 0, SECTORS), USM_E_IO);
    CHECK_IN("replica target ", b[0].reason);
    CHECK_IN("of tier fake_m", b[0].reason);
    CHECK_IN("a planned fault", b[0].reason);
    fini_all(b, N);
    stop();
}

static void a_slow_place_is_asked_last(void)
{
    enum { N = 50 };
    block    b[N];
    unsigned slow = 0;

    fake_reset();
    add_racks(FAKE_M, 2);
    start_copies("fake_m", "2");
    init_all(b, N);
    write_all(b, N, 1);
    for (unsigned p = 0; p < 2; p++) {
        uint64_t before;

        fake_place_set(FAKE_M, p, USM_PLACE_SLOW);
        fake_place_fail(FAKE_M, p, 0, 1000); /* it would be noticed */
        before = fake_counts_of(FAKE_M).fetches;
        read_all(b, N);
        CHECK_INT(fake_counts_of(FAKE_M).fetches - before, N);
        fake_place_set(FAKE_M, p, USM_PLACE_UP);
        fake_place_fail(FAKE_M, p, 0, 0);
        slow++;
    }
    CHECK_INT(slow, 2);
    CHECK_INT(fake_counts_of(FAKE_M).eio, 0);
    fini_all(b, N);
    stop();
}

/* Reads everything at once; how many place 0 was asked for.  *firsts: of how many the first copy
 * was read. */
static unsigned read_at_once(block *b, unsigned n, unsigned *firsts)
{
    unsigned at_0 = 0;

    *firsts = 0;
    for (unsigned i = 0; i < n; i++) {
        usm__location *l = usm__spread_of(tiers, b[i].copy)->at;

        memset(b[i].data, 0x55, BLOCK);
        begin(&b[i], false, 0, SECTORS);
        at_0 += l[b[i].io.at].place->index == 0;
        *firsts += l[b[i].io.at].order <= l[1 - b[i].io.at].order;
    }
    for (unsigned i = 0; i < n; i++) {
        CHECK_INT(end(&b[i]), USM_OK);
        CHECK(holds_all(&b[i]));
    }
    CHECK_INT(usm__spread_of(tiers, b[0].copy)->at[0].place->reading, 0);
    return at_0;
}

static void the_first_copy_is_read_or_any_by_what_is_under_way(void)
{
    enum { N = 20 };
    block    b[N];
    unsigned firsts;

    for (unsigned any = 0; any < 2; any++) {
        fake_reset();
        add_racks(FAKE_N, 2);
        CHECK_INT(usm__settings_set("spill_read", any ? "any" : NULL), USM_OK);
        start_copies("fake_n", "2");
        init_all(b, N);
        write_all(b, N, 1);
        if (any) {
            CHECK_INT(read_at_once(b, N, &firsts), N / 2);
            CHECK(firsts < N);
        } else {
            (void)read_at_once(b, N, &firsts);
            CHECK_INT(firsts, N);
        }
        fake_place_set(FAKE_N, 0, USM_PLACE_SLOW); /* weighs more than what is under way */
        CHECK_INT(read_at_once(b, N, &firsts), 0);
        fini_all(b, N);
        stop();
    }
    CHECK_INT(usm__settings_set("spill_read", NULL), USM_OK);
}

static void a_corrupt_copy_is_read_elsewhere_and_made_anew(void)
{
    enum { N = 100 };
    block    b[N];
    uint64_t random = 9, rotten;

    fake_reset();
    add_racks(FAKE_M, 3);
    start_copies("fake_m", "2");
    init_all(b, N);
    write_all(b, N, 1);
    rotten = fake_place_rot(FAKE_M, 0, 1, &random);
    CHECK(rotten > N / 3);
    for (unsigned i = 0; i < 2; i++) /* the other copies are asked as well: see below */
        read_all(b, N);
    settle();
    CHECK(stats_of(0).corrupt > 0);
    CHECK_INT(events_of(USM_E_CORRUPT), 1);
    CHECK_IN("replica target 0 (rack0) of tier fake_m returned other bytes",
             events.sentence[events.n - 1]);
    /* Those in place 0 that are asked second are found when the first is lost. */
    fake_place_set(FAKE_M, 0, USM_PLACE_SLOW);
    read_all(b, N);
    fake_place_set(FAKE_M, 0, USM_PLACE_UP);
    for (unsigned p = 1; p < 3; p++)
        fake_place_set(FAKE_M, p, USM_PLACE_SLOW);
    read_all(b, N);
    settle();
    CHECK(copies().repaired >= rotten);
    CHECK_INT(stats_of(0).used, 2 * N * BLOCK);
    read_every_copy(FAKE_M, b, N, 3);
    fini_all(b, N);
    stop();
}

/* Each copy has another wrong sector: together they have everything. */
static void two_corrupt_copies_make_one_good_one(void)
{
    block          b;
    unsigned char *first, *second;

    fake_reset();
    add_racks(FAKE_M, 2);
    start_copies("fake_m", "2");
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_OK);
    first  = fake_block(FAKE_M, fake_nth(FAKE_M, 0));
    second = fake_block(FAKE_M, fake_nth(FAKE_M, 1));
    CHECK(first && second && first != second);
    first[3 * SECTOR + 5] ^= 1;
    second[7 * SECTOR + 5] ^= 1;
    CHECK_INT(read_part(&b, 3, 1), USM_OK); /* finds one of them */
    CHECK_INT(read_part(&b, 7, 1), USM_OK);
    settle();
    CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
    CHECK(holds_all(&b));
    settle();
    for (unsigned p = 0; p < 2; p++) {
        fake_place_set(FAKE_M, p, USM_PLACE_SLOW);
        CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
        CHECK(holds_all(&b));
        fake_place_set(FAKE_M, p, USM_PLACE_UP);
        settle();
    }
    CHECK(copies().repaired >= 1);
    block_fini(&b);
    stop();
}

static void every_flipped_bit_is_found_and_made_good(void)
{
    enum { N = 40, CASES = PLAIN_SANITIZED ? 1000 : 10000 };
    block    b[N];
    uint64_t random = 21, done = 0;
    unsigned p = 0;

    fake_reset();
    add_racks(FAKE_M, 2);
    start_copies("fake_m", "2");
    init_all(b, N);
    write_all(b, N, 1);
    while (done < CASES) {
        uint64_t before = stats_of(0).corrupt, n;

        fake_place_set(FAKE_M, 1 - p, USM_PLACE_SLOW); /* so that all of them are found */
        n = fake_place_rot(FAKE_M, p, 1, &random);
        CHECK(n >= N); /* and what was given up, and is not forgotten yet */
        read_all(b, N);
        CHECK_INT(stats_of(0).corrupt - before, N);
        fake_place_set(FAKE_M, 1 - p, USM_PLACE_UP);
        settle();
        done += N;
        CHECK_INT(copies().repaired, done);
        p = 1 - p;
    }
    printf("# %llu bit flips: %llu repaired, nothing lost\n", (unsigned long long)done,
           (unsigned long long)copies().repaired);
    fini_all(b, N);
    stop();
}

/* ---- writes ---------------------------------------------------------------------------------- */

static void a_copy_that_missed_a_part_is_not_read(void)
{
    enum { N = 40 };
    block b[N];

    fake_reset();
    add_racks(FAKE_M, 2);
    start_copies("fake_m", "2");
    init_all(b, N);
    write_all(b, N, 1);
    fake_place_fail(FAKE_M, 0, 1000, 0);
    for (unsigned i = 0; i < N; i++) {
        fill(&b[i], 5, 2);
        CHECK_INT(write_part(&b[i], 5, 1), USM_OK);
        CHECK_INT(count_copies(&b[i]), 1);
        CHECK(lies_in(&b[i], "rack1"));
    }
    read_all(b, N);
    fake_place_fail(FAKE_M, 0, 0, 0);
    fake_place_set(FAKE_M, 0, USM_PLACE_UP); /* it is well again */
    settle();
    for (unsigned i = 0; i < N; i++)
        CHECK_INT(count_copies(&b[i]), 2);
    fake_place_set(FAKE_M, 1, USM_PLACE_LOST);
    read_all(b, N);
    fini_all(b, N);
    stop();
}

/* Each of two parts that are under way together misses another copy: no copy would have both. */
static void of_two_parts_that_miss_different_copies_one_has_failed(void)
{
    block        b, c;
    usm__target *at[USM__LOCATIONS];

    fake_reset();
    add_racks(FAKE_N, 2);
    start_copies("fake_n", "2");
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_OK);
    CHECK_INT(places_of(&b, at), 2);
    c = b; /* another transfer of the same block */
    fill(&b, 1, 2);
    fill(&c, 9, 3);
    begin(&b, true, 1, 1);
    begin(&c, true, 9, 1);
    for (unsigned attempt = 0; attempt < 2; attempt++) {
        unsigned legs = attempt ? 2 : 4; /* b to 0, b to 1, c to 0, c to 1; then what has failed */

        for (unsigned i = 0; i < legs; i++) {
            bool fails = attempt || i == 0 || i == 3;

            for (unsigned k = 0; k < 2; k++)
                fake_place_fail(FAKE_N, at[k]->index, fails ? 1000 : 0, 0);
            CHECK(usm__tiers_progress(tiers, 0));
        }
    }
    for (unsigned k = 0; k < 2; k++)
        fake_place_fail(FAKE_N, at[k]->index, 0, 0);
    CHECK_INT(end(&b), USM_OK);
    CHECK_INT(end(&c), USM_E_IO);
    settle();
    for (unsigned p = 0; p < 2; p++) {
        fake_place_set(FAKE_N, p, USM_PLACE_SLOW);
        CHECK_INT(read_part(&b, 0, 9), USM_OK);
        CHECK_INT(read_part(&b, 10, SECTORS - 10), USM_OK);
        CHECK(holds(&b, 1) && holds(&b, 0) && holds(&b, 10));
        fake_place_set(FAKE_N, p, USM_PLACE_UP);
    }
    CHECK_INT(stats_of(0).corrupt, 0);
    block_fini(&b);
    stop();
}

static void a_write_that_no_place_takes_fails_and_harms_nothing_else(void)
{
    block b;

    fake_reset();
    add_racks(FAKE_M, 3);
    start_copies("fake_m", "2");
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_OK);
    for (unsigned p = 0; p < 3; p++)
        fake_place_fail(FAKE_M, p, 1000, 0);
    fill(&b, 5, 2);
    CHECK_INT(write_part(&b, 5, 1), USM_E_IO);
    CHECK_INT(read_part(&b, 0, 5), USM_OK);
    CHECK_INT(read_part(&b, 6, SECTORS - 6), USM_OK);
    CHECK(holds(&b, 4) && holds(&b, 6));
    CHECK_INT(write_new(&b, 3), USM_E_IO);
    CHECK_IN("no tier takes it: ", b.reason);
    for (unsigned p = 0; p < 3; p++)
        fake_place_fail(FAKE_M, p, 0, 0);
    CHECK_INT(write_new(&b, 4), USM_OK);
    CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
    CHECK(holds_all(&b));
    settle();
    CHECK_INT(count_copies(&b), 2);
    block_fini(&b);
    CHECK_INT(fake_counts_of(FAKE_M).reserved, 0);
    stop();
}

static void nothing_is_kept_of_a_block_that_was_never_stored(void)
{
    block b;

    fake_reset();
    add_racks(FAKE_M, 2);
    start_copies("fake_m", "2");
    block_init(&b, 1);
    for (unsigned p = 0; p < 2; p++)
        fake_place_fail(FAKE_M, p, 1000, 0);
    CHECK_INT(write_new(&b, 1), USM_E_IO);
    CHECK_INT(b.copy->tier, 0);
    CHECK_INT(write_part(&b, 2, 1), USM_E_IO);
    CHECK_INT(b.copy->tier, 0);
    CHECK_INT(fake_counts_of(FAKE_M).reserved, 0);
    block_fini(&b);
    stop();
}

static void full_places_hand_on(void)
{
    enum { N = 40 };
    block b[N];

    fake_reset();
    (void)fake_place_add(FAKE_M, racks[0], 10);
    (void)fake_place_add(FAKE_M, racks[1], 40);
    (void)fake_place_add(FAKE_M, racks[2], 40);
    start_copies("fake_m;fake_a", "2");
    init_all(b, N);
    write_all(b, N, 1);
    for (unsigned i = 0; i < N; i++)
        CHECK_INT(count_copies(&b[i]), 2);
    CHECK_INT(fake_counts_of(FAKE_M).blocks + fake_counts_of(FAKE_A).blocks, 2 * N);
    CHECK(fake_place_blocks(FAKE_M, 0) == 10);
    CHECK(events_of(USM_E_SPILL_FULL) > 0);
    read_all(b, N);
    fini_all(b, N);
    CHECK_INT(fake_counts_of(FAKE_M).reserved + fake_counts_of(FAKE_A).reserved, 0);
    stop();
}

static void a_place_that_has_room_again_is_found(void)
{
    enum { N = 8 };
    block b[N];

    fake_reset();
    (void)fake_place_add(FAKE_M, racks[0], 1000);
    (void)fake_place_add(FAKE_M, racks[1], 0); /* others have all of it */
    start_copies("fake_m", "2");
    init_all(b, N);
    write_all(b, N, 1);
    settle_as_far_as_may_be();
    CHECK_INT(copies().missing, N);
    fake_place_room(FAKE_M, 1, 1000); /* nobody tells of that */
    settle();
    for (unsigned i = 0; i < N; i++)
        CHECK_INT(count_copies(&b[i]), 2);
    fini_all(b, N);
    stop();
}

/* ---- places come and go ---------------------------------------------------------------------- */

static void what_a_lost_place_had_is_read_elsewhere_and_copied_anew(void)
{
    enum { N = 100 };
    block    b[N];
    unsigned had = 0;

    fake_reset();
    add_racks(FAKE_M, 4);
    start_copies("fake_m", "2");
    init_all(b, N);
    write_all(b, N, 1);
    for (unsigned i = 0; i < N; i++)
        had += lies_in(&b[i], racks[2]);
    CHECK(had > 20);
    fake_place_set(FAKE_M, 2, USM_PLACE_LOST);
    read_all(b, N);
    settle();
    CHECK_INT(copies().repaired, had);
    fake_place_set(FAKE_M, 0, USM_PLACE_LOST); /* one after the other */
    read_all(b, N);
    settle();
    for (unsigned i = 0; i < N; i++) {
        CHECK_INT(count_copies(&b[i]), 2);
        CHECK(lies_in(&b[i], racks[1]) && lies_in(&b[i], racks[3]));
    }
    fake_place_set(FAKE_M, 1, USM_PLACE_LOST);
    read_all(b, N);
    CHECK_INT(copies().lost, 0);
    CHECK_INT(events_of(USM_E_IO), 0);
    fini_all(b, N);
    stop();
}

static void of_two_places_lost_at_once_exactly_the_common_blocks_are_lost(void)
{
    enum { N = 120 };
    block    b[N];
    bool     common[N];
    unsigned n = 0;

    fake_reset();
    add_racks(FAKE_N, 4); /* moves only when it is asked to: nothing is mended in between */
    start_copies("fake_n", "2");
    init_all(b, N);
    write_all(b, N, 1);
    for (unsigned i = 0; i < N; i++) {
        common[i] = lies_in(&b[i], racks[1]) && lies_in(&b[i], racks[3]);
        n += common[i];
    }
    CHECK(n > 5 && n < N / 2);
    fake_place_set(FAKE_N, 3, USM_PLACE_LOST);
    fake_place_set(FAKE_N, 1, USM_PLACE_LOST);
    CHECK_INT(copies().lost, n);
    CHECK_INT(events_of(USM_E_IO), 1);
    CHECK_IN("replica target 1 (rack1) of tier fake_n is lost with the only copy of",
             events.sentence[events.n - 1]);
    for (unsigned i = 0; i < N; i++) {
        usm_status st = read_part(&b[i], 0, SECTORS);

        CHECK_INT(st, common[i] ? USM_E_IO : USM_OK);
        CHECK(common[i] || holds_all(&b[i]));
        if (common[i])
            CHECK_IN("is lost: its last copy was on replica target 1 (rack1) of tier fake_n",
                     b[i].reason);
    }
    settle();
    for (unsigned i = 0; i < N; i++) { /* a part of a lost block can be written, the rest is gone */
        if (!common[i])
            continue;
        fill(&b[i], 3, 9);
        CHECK_INT(write_part(&b[i], 3, 1), USM_OK);
        CHECK_INT(read_part(&b[i], 3, 1), USM_OK);
        CHECK(holds(&b[i], 3));
        CHECK_INT(read_part(&b[i], 3, 2), USM_E_IO);
        CHECK_INT(write_new(&b[i], 10), USM_OK);
    }
    settle();
    read_all(b, N);
    fini_all(b, N);
    stop();
}

static void with_one_copy_a_lost_place_takes_its_blocks_with_it(void)
{
    enum { N = 60 };
    block    b[N];
    unsigned lost = 0;

    fake_reset();
    add_racks(FAKE_M, 3);
    start_copies("fake_m", "1");
    init_all(b, N);
    write_all(b, N, 1);
    CHECK_INT(fake_counts_of(FAKE_M).blocks, N);
    fake_place_set(FAKE_M, 0, USM_PLACE_LOST);
    for (unsigned i = 0; i < N; i++) {
        usm_status st = read_part(&b[i], 0, SECTORS);

        CHECK(st == USM_OK ? holds_all(&b[i]) : st == USM_E_IO);
        if (st != USM_OK)
            CHECK_IN("USM_SPILL_REPLICAS=2", b[i].reason);
        lost += st != USM_OK;
    }
    CHECK(lost > N / 6 && lost < N / 2);
    CHECK_INT(copies().lost, lost);
    write_all(b, N, 2);
    read_all(b, N);
    fini_all(b, N);
    stop();
}

static void a_place_that_comes_gets_its_share_as_blocks_are_written_and_no_other_moves(void)
{
    enum { N = 200 };
    block        b[N];
    usm__target *before[N][USM__LOCATIONS], *after[USM__LOCATIONS];
    unsigned     moved = 0;

    fake_reset();
    add_racks(FAKE_M, 4);
    start_copies("fake_m", "2");
    init_all(b, N);
    write_all(b, N, 1);
    for (unsigned i = 0; i < N; i++)
        CHECK_INT(places_of(&b[i], before[i]), 2);
    (void)fake_place_add(FAKE_M, racks[4], 1000);
    settle();
    CHECK_INT(fake_place_blocks(FAKE_M, 4), 0);
    read_all(b, N);
    write_all(b, N, 2);
    for (unsigned i = 0; i < N; i++) {
        bool has_new = lies_in(&b[i], racks[4]);

        CHECK_INT(places_of(&b[i], after), 2);
        for (unsigned k = 0; k < 2; k++)
            CHECK(after[k]->index == 4 || after[k] == before[i][0] || after[k] == before[i][1]);
        moved += has_new;
    }
    CHECK(moved > N / 4 && moved < N * 11 / 20); /* two of five: 80 */
    CHECK_INT(stats_of(0).used, 2 * N * BLOCK);
    read_all(b, N);
    settle();
    CHECK_INT(copies().repaired, 0);
    fini_all(b, N);
    CHECK_INT(fake_counts_of(FAKE_M).reserved, 0);
    stop();
}

static void a_place_that_leaves_is_emptied(void)
{
    enum { N = 80 };
    block       b[N];
    time_t      last       = time(NULL) + SETTLE_S;
    const char *replicas[] = {"1", "2"};

    for (unsigned r = 0; r < 2; r++) {
        fake_reset();
        add_racks(FAKE_M, 3);
        start_copies("fake_m", replicas[r]);
        init_all(b, N);
        write_all(b, N, 1);
        CHECK(fake_place_blocks(FAKE_M, 1) > 0);
        fake_place_set(FAKE_M, 1, USM_PLACE_LEAVING);
        read_all(b, N);
        settle();
        while (fake_place_blocks(FAKE_M, 1) > 0) /* given back after the count */
            CHECK(time(NULL) < last && usleep(200) == 0);
        fake_place_set(FAKE_M, 1, USM_PLACE_LOST); /* it may go */
        read_all(b, N);
        CHECK_INT(copies().lost, 0);
        write_all(b, N, 2);
        CHECK_INT(fake_place_blocks(FAKE_M, 1), 0);
        read_all(b, N);
        fini_all(b, N);
        stop();
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void the_end_does_not_wait_for_what_can_not_be_mended(void)
{
    enum { N = 40 };
    block b[N];

    for (unsigned round = 0; round < 4; round++) {
        fake_name name = round % 2 ? FAKE_N : FAKE_M;

        fake_reset();
        add_racks(name, 3);
        fake_plan_of(FAKE_M)->thread = round < 2;
        start_copies(round % 2 ? "fake_n" : "fake_m", "2");
        init_all(b, N);
        write_all(b, N, 1);
        fake_place_set(name, 0, USM_PLACE_LOST);
        for (unsigned i = 0; i < N; i++)
            begin(&b[i], i % 2, 0, SECTORS);
        stop();
        for (unsigned i = 0; i < N; i++) {
            CHECK_INT(atomic_load(&b[i].status), USM_OK);
            free(b[i].copy);
            free(b[i].data);
        }
    }
}

static void a_child_mends_nothing(void)
{
    block b;
    int   status = 0;
    pid_t pid;

    fake_reset();
    add_racks(FAKE_M, 3);
    start_copies("fake_m", "2");
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_OK);
    (void)fflush(NULL);
    usm__tiers_fork(tiers, USM_FORK_PREPARE);
    pid = fork();
    usm__tiers_fork(tiers, pid ? USM_FORK_PARENT : USM_FORK_CHILD);
    if (pid == 0) {
        plain.in_child = true;
        fake_place_set(FAKE_M, 0, USM_PLACE_LOST);
        CHECK_INT(read_part(&b, 0, SECTORS), USM_E_FORKED);
        usm__tiers_forget(tiers, b.copy);
        usm__tiers_destroy(tiers);
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    fake_place_set(FAKE_M, 0, USM_PLACE_LOST);
    CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
    settle();
    block_fini(&b);
    stop();
}

/* A life with copies, as far as memory lets it; false: it was not there to the end. */
static bool live(void)
{
    usm__tiers_params params = {
        .block_size = BLOCK, .sector_size = SECTOR, .spec = "fake_n;fake_a"};
    block b[3];
    bool  went_well = true;

    fake_reset();
    add_racks(FAKE_N, 3);
    CHECK_INT(usm__settings_set("spill_replicas", "2"), USM_OK);
    if (usm__tiers_create(&params, &tiers) != USM_OK) {
        CHECK_INT(usm_last_status(), USM_E_NO_MEMORY);
        return false;
    }
    for (unsigned i = 0; i < 3; i++) {
        usm_status st;

        block_init(&b[i], 1000 * i);
        st = write_new(&b[i], 1);
        CHECK(st == USM_OK || st == USM_E_NO_MEMORY);
        if (st != USM_OK)
            usm__tiers_forget(tiers, b[i].copy);
        went_well &= st == USM_OK;
    }
    fake_place_set(FAKE_N, 0, USM_PLACE_LOST);
    for (unsigned i = 0; i < 100; i++)
        (void)usm__tiers_progress(tiers, 1);
    for (unsigned i = 0; i < 3; i++) {
        usm_status st = b[i].copy->tier ? read_part(&b[i], 0, SECTORS) : USM_E_NO_MEMORY;

        CHECK(st == USM_OK ? holds_all(&b[i]) : !went_well);
        block_fini(&b[i]);
    }
    stop();
    return went_well;
}

static void memory_that_runs_out_is_told_and_nothing_else_is_harmed(void)
{
    unsigned n    = 0;
    bool     done = false;

    while (!done) {
        CHECK(++n < 200);
        CHECK(usm__settings_set("spill_replicas", "2") == USM_OK);
        CHECK(usm__fault_arm("heap.alloc", n, false, USM_OK));
        done = live() && usm__fault_fired() == 0;
        usm__fault_disarm_all();
    }
    CHECK_INT(usm__settings_set("spill_replicas", NULL), USM_OK);
    printf("# %u cases, nothing lost\n", n);
    CHECK(n > 6);
}

static const plain_case cases[] = {
    CASE(a_block_has_two_copies_in_two_domains),
    CASE(writes_that_wait_are_made_each_time),
    CASE(one_copy_costs_what_it_did),
    CASE(two_tiers_are_two_domains),
    CASE(three_copies_are_in_three_domains),
    CASE(without_a_second_domain_the_next_tier_has_the_other_copy),
    CASE(with_one_domain_it_is_said_once_and_made_good_when_another_comes),
    CASE(a_read_goes_to_the_other_copy_when_one_fails),
    CASE(a_slow_place_is_asked_last),
    CASE(the_first_copy_is_read_or_any_by_what_is_under_way),
    CASE(a_corrupt_copy_is_read_elsewhere_and_made_anew),
    CASE(two_corrupt_copies_make_one_good_one),
    CASE(every_flipped_bit_is_found_and_made_good),
    CASE(a_copy_that_missed_a_part_is_not_read),
    CASE(of_two_parts_that_miss_different_copies_one_has_failed),
    CASE(a_write_that_no_place_takes_fails_and_harms_nothing_else),
    CASE(nothing_is_kept_of_a_block_that_was_never_stored),
    CASE(full_places_hand_on),
    CASE(a_place_that_has_room_again_is_found),
    CASE(what_a_lost_place_had_is_read_elsewhere_and_copied_anew),
    CASE(of_two_places_lost_at_once_exactly_the_common_blocks_are_lost),
    CASE(with_one_copy_a_lost_place_takes_its_blocks_with_it),
    CASE(a_place_that_comes_gets_its_share_as_blocks_are_written_and_no_other_moves),
    CASE(a_place_that_leaves_is_emptied),
    CASE(the_end_does_not_wait_for_what_can_not_be_mended),
    CASE(a_child_mends_nothing),
    CASE(memory_that_runs_out_is_told_and_nothing_else_is_harmed),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
