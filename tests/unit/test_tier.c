/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What src/spill/tier.h promises when nothing fails: blocks come back, room is found and given
 * back, figures add up, threads do not disturb each other.  Failures: test_tier_faults.c. */
#include "tier_fixture.h"

#include "base/fork.h"
#include "base/os.h"

/* ---- the ordinary ---------------------------------------------------------------------- */

static void round_trip(const char *spec, uint64_t n)
{
    block *b = calloc(n, sizeof *b);

    start(spec);
    for (uint64_t i = 0; i < n; i++)
        block_init(&b[i], 1000 + i);
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t s = 0; s < SECTORS; s++)
            fill(&b[i], s, 1);
    for (uint64_t i = 0; i < n; i++)
        begin(&b[i], true, 0, SECTORS);
    for (uint64_t i = 0; i < n; i++)
        CHECK_INT(end(&b[i]), USM_OK);
    for (uint64_t i = 0; i < n; i++) {
        memset(b[i].data, 0, BLOCK);
        begin(&b[i], false, 0, SECTORS);
    }
    for (uint64_t i = 0; i < n; i++) {
        CHECK_INT(end(&b[i]), USM_OK);
        CHECK(holds_all(&b[i]));
    }
    for (uint64_t i = 0; i < n; i++) {
        fill(&b[i], 3, 2);
        CHECK_INT(write_part(&b[i], 3, 1), USM_OK);
        CHECK_INT(read_part(&b[i], 2, 3), USM_OK);
        CHECK(holds_all(&b[i]));
    }
    CHECK_INT(stats_of(0).used, n * BLOCK);
    for (uint64_t i = 0; i < n; i++)
        block_fini(&b[i]);
    CHECK_INT(stats_of(0).used, 0);
    CHECK_INT(fake_counts_of(FAKE_A).reserved + fake_counts_of(FAKE_P).reserved, 0);
    stop();
    free(b);
}

static void blocks_come_back_that_end_inside_submit(void)
{
    fake_reset();
    round_trip("fake_a", 100);
}

static void blocks_come_back_that_end_by_a_thread_out_of_order(void)
{
    fake_reset();
    fake_plan_of(FAKE_A)->thread  = true;
    fake_plan_of(FAKE_A)->shuffle = true;
    round_trip("fake_a", 100);
}

static void blocks_come_back_that_end_in_progress(void)
{
    fake_reset();
    fake_plan_of(FAKE_P)->shuffle = true;
    round_trip("fake_p", 100);
}

static void parts_may_be_written_first_and_together(void)
{
    block b, c;

    fake_reset();
    fake_plan_of(FAKE_P)->shuffle = true;
    start("fake_p");
    block_init(&b, 7);
    c      = b; /* another transfer of the same block */
    c.data = b.data;
    fill(&b, 1, 4);
    fill(&b, 9, 5);
    begin(&b, true, 1, 1);
    begin(&c, true, 9, 1);
    CHECK_INT(end(&b), USM_OK);
    CHECK_INT(end(&c), USM_OK);
    CHECK_INT(read_part(&b, 1, 1), USM_OK);
    CHECK_INT(read_part(&b, 9, 1), USM_OK);
    CHECK(holds(&b, 1) && holds(&b, 9));
    CHECK_INT(fake_counts_of(FAKE_P).blocks, 1);
    block_fini(&b);
    stop();
}

static void nothing_is_opened_before_the_first_write(void)
{
    block b;

    fake_reset();
    start("fake_a;fake_b");
    CHECK_INT(fake_counts_of(FAKE_A).opened, 0);
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_OK);
    CHECK_INT(fake_counts_of(FAKE_A).opened, 1);
    CHECK_INT(fake_counts_of(FAKE_B).opened, 0);
    CHECK_INT(events.n, 1);
    CHECK_INT(events.status[0], USM_OK);
    CHECK_IN("256 MiB", events.sentence[0]);
    CHECK_IN("USM_MEMORY_LIMIT", events.sentence[0]);
    CHECK_IN("fake_a", events.sentence[0]);
    CHECK_INT(write_new(&b, 2), USM_OK);
    CHECK_INT(events.n, 1);
    block_fini(&b);
    stop();
}

static void specs_are_checked(void)
{
    static const char *const bad[]  = {"",      ";",           "FILE:/tmp",       "file:/x;;mpi",
                                       ":/tmp", "off;file:/x", "a;b;c;d;e;f;g;h", "f/../x:y"};
    static const char *const good[] = {"off", "file", "file:/var/tmp,quota=20G", "mpi ; file:/a:/b",
                                       "a;b;c;d;e;f;g"};
    usm__tiers_params        params = {.block_size = BLOCK, .sector_size = SECTOR};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        params.spec = bad[i];
        CHECK_INT(usm__tiers_create(&params, &tiers), USM_E_SETTING);
        CHECK_IN("USM_SPILL", usm_last_error());
        CHECK_INT(usm__settings_set("spill", bad[i]), USM_E_SETTING);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        params.spec = good[i];
        CHECK_INT(usm__tiers_create(&params, &tiers), USM_OK);
        CHECK_INT(usm__tiers_are_off(tiers), i == 0);
        usm__tiers_destroy(tiers);
        CHECK_INT(usm__settings_set("spill", good[i]), USM_OK);
    }
    CHECK_INT(usm__settings_set("spill", NULL), USM_OK);
    CHECK_STR(usm__setting_text("spill"), "file:/var/tmp");
}

static void off_keeps_everything_in_memory(void)
{
    block b;

    fake_reset();
    start("off");
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_E_SPILL_FULL);
    CHECK_IN("USM_SPILL=off", b.reason);
    CHECK_INT(b.copy->tier, 0);
    block_fini(&b);
    stop();
}

/* ---- room -------------------------------------------------------------------------------- */

static void neighbours_lie_beside_each_other(void)
{
    enum { N = 200 };
    block    b[N];
    uint64_t random = 5;
    unsigned order[N];

    fake_reset();
    start("fake_a");
    for (unsigned i = 0; i < N; i++)
        order[i] = i;
    for (unsigned i = N - 1; i > 0; i--) {
        unsigned k = (unsigned)(fake_random(&random) % (i + 1)), x = order[i];

        order[i] = order[k];
        order[k] = x;
    }
    for (unsigned i = 0; i < N; i++)
        block_init(&b[i], 640 + i);
    for (unsigned i = 0; i < N; i++)
        CHECK_INT(write_new(&b[order[i]], 1), USM_OK);
    for (unsigned i = 1; i < N; i++) /* but where a group of 64 ends */
        if (i % 64 != 0)
            CHECK_INT(b[i].copy->slot, b[i - 1].copy->slot + 1);
    for (unsigned i = 0; i < N; i++)
        block_fini(&b[i]);
    stop();
}

static void scattered_blocks_do_not_reserve_everything(void)
{
    enum { N = 2000 };
    block   *b = calloc(N, sizeof *b);
    uint64_t reserved;

    fake_reset();
    start("fake_a");
    for (unsigned i = 0; i < N; i++) {
        block_init(&b[i], UINT64_C(1000) * i);
        CHECK_INT(write_new(&b[i], 1), USM_OK);
    }
    reserved = fake_counts_of(FAKE_A).reserved;
    CHECK(reserved >= N && reserved <= 2 * N + 256 + 64);
    for (unsigned i = 0; i < N; i++) {
        CHECK_INT(read_part(&b[i], 0, SECTORS), USM_OK);
        CHECK(holds_all(&b[i]));
        block_fini(&b[i]);
    }
    CHECK_INT(fake_counts_of(FAKE_A).reserved, 0);
    stop();
    free(b);
}

/* Blocks come and go at random under little room: everything that fits is taken. */
static void all_room_is_used(uint64_t seed)
{
    enum { N = 300, ROOM = 150 };
    block    b[N];
    unsigned live = 0;

    fake_reset();
    fake_plan_of(FAKE_A)->capacity = ROOM;
    start("fake_a");
    for (unsigned i = 0; i < N; i++)
        block_init(&b[i], i * (1 + seed % 5));
    for (unsigned step = 0; step < 3000; step++) {
        block *it = &b[fake_random(&seed) % N];

        if (it->copy->tier) {
            usm__tiers_forget(tiers, it->copy);
            live--;
        } else {
            usm_status st = write_new(it, step);

            CHECK_INT(st, live < ROOM ? USM_OK : USM_E_SPILL_FULL);
            live += st == USM_OK;
        }
        CHECK(usm__slots_are_valid(&tiers->list[0].slots));
        CHECK_INT(tiers->list[0].slots.used, live);
        CHECK_INT(tiers->list[0].slots.reserved, fake_counts_of(FAKE_A).reserved);
    }
    for (unsigned i = 0; i < N; i++)
        block_fini(&b[i]);
    CHECK_INT(fake_counts_of(FAKE_A).reserved, 0);
    stop();
}

static void all_room_is_used_and_all_is_given_back(void)
{
    enum { SEEDS = PLAIN_SANITIZED ? 2 : 10 };

    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        all_room_is_used(seed);
    printf("# %d cases, nothing lost\n", SEEDS * 3000);
}

/* Every access to a full disk that asks it again pays for its answer: a ninth of the time at most
 * goes into that. */
static void a_full_tier_is_not_asked_by_each_write(void)
{
    enum { N = 20000, TAKES_US = 1000 };
    block    first, b;
    uint64_t asked, began;

    fake_reset();
    fake_plan_of(FAKE_A)->capacity = 1;
    fake_plan_of(FAKE_A)->full_us  = TAKES_US;
    start("fake_a");
    block_init(&first, 0);
    block_init(&b, 100);
    CHECK_INT(write_new(&first, 1), USM_OK);
    CHECK_INT(write_new(&b, 1), USM_E_SPILL_FULL); /* it was asked for longer runs, too */
    began = usm__os_now_ns();
    asked = fake_counts_of(FAKE_A).asked;
    for (unsigned i = 0; i < N; i++) {
        CHECK_INT(write_new(&b, 1), USM_E_SPILL_FULL);
        CHECK_IN("fake_a holds 1 blocks and no more", b.reason); /* as the transport said */
    }
    asked = fake_counts_of(FAKE_A).asked - asked;
    printf("# asked %llu times in %d writes\n", (unsigned long long)asked, N);
    CHECK(asked >= 1);
    CHECK((asked - 1) * 9 * TAKES_US <= (usm__os_now_ns() - began) / 1000);
    /* What is given back can be had at once. */
    usm__tiers_forget(tiers, first.copy);
    CHECK_INT(write_new(&b, 1), USM_OK);
    block_fini(&b);
    block_fini(&first);
    stop();
}

static void a_full_tier_hands_on_and_says_so_once(void)
{
    enum { N = 40 };
    block b[N];

    fake_reset();
    fake_plan_of(FAKE_A)->capacity = 10;
    fake_plan_of(FAKE_B)->capacity = 20;
    start("fake_a;fake_b");
    for (unsigned i = 0; i < N; i++) {
        block_init(&b[i], i);
        CHECK_INT(write_new(&b[i], 1), i < 30 ? USM_OK : USM_E_SPILL_FULL);
    }
    CHECK_IN("fake_a holds 10 blocks and no more", b[N - 1].reason);
    CHECK_IN("fake_b holds 20 blocks and no more", b[N - 1].reason);
    CHECK_INT(events_of(USM_E_SPILL_FULL), 2);
    for (unsigned i = 0; i < 30; i++) {
        CHECK_INT(read_part(&b[i], 0, SECTORS), USM_OK);
        CHECK(holds_all(&b[i]));
    }
    usm__tiers_forget(tiers, b[0].copy);
    CHECK_INT(write_new(&b[35], 1), USM_OK);
    CHECK_INT(b[35].copy->tier, 1);
    for (unsigned i = 0; i < N; i++)
        block_fini(&b[i]);
    stop();
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4 };

static void *thread_main(void *arg)
{
    uint64_t seed = 77 + *(unsigned *)arg;
    block    b[8];

    for (unsigned i = 0; i < 8; i++)
        block_init(&b[i], (uint64_t) * (unsigned *)arg * 1000 + i);
    for (unsigned step = 0; step < 300; step++) {
        block *it = &b[fake_random(&seed) % 8];

        if (fake_random(&seed) % 8 == 0) {
            usm__tiers_forget(tiers, it->copy);
        } else if (!it->copy->tier || fake_random(&seed) % 2 == 0) {
            usm_status st = write_new(it, step);

            CHECK(st == USM_OK || st == USM_E_IO || st == USM_E_SPILL_FULL);
            if (st != USM_OK)
                usm__tiers_forget(tiers, it->copy);
        } else {
            usm_status st = read_part(it, 0, SECTORS);

            CHECK(st == USM_E_IO || (st == USM_OK && holds_all(it)));
        }
    }
    for (unsigned i = 0; i < 8; i++)
        block_fini(&b[i]);
    return NULL;
}

static void threads_do_not_disturb_each_other(void)
{
    pthread_t threads[THREADS];
    unsigned  number[THREADS];

    fake_reset();
    for (unsigned k = FAKE_A; k <= FAKE_B; k++) {
        fake_plan *p = fake_plan_of((fake_name)k);

        p->thread    = true;
        p->shuffle   = true;
        p->capacity  = 12;
        p->store_eio = 50;
        p->fetch_eio = 50;
    }
    start("fake_a;fake_b");
    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        CHECK_INT(pthread_create(&threads[i], NULL, thread_main, &number[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK_INT(stats_of(0).used, 0);
    CHECK_INT(fake_counts_of(FAKE_A).reserved + fake_counts_of(FAKE_B).reserved, 0);
    stop();
}

static void the_end_waits_for_what_is_under_way(void)
{
    enum { N = 50 };
    block b[N];

    fake_reset();
    fake_plan_of(FAKE_A)->thread    = true;
    fake_plan_of(FAKE_P)->store_eio = 1000;
    for (unsigned round = 0; round < 2; round++) {
        start(round ? "fake_p;fake_a" : "fake_a");
        for (unsigned i = 0; i < N; i++) {
            block_init(&b[i], i);
            begin(&b[i], true, 0, SECTORS);
        }
        stop();
        for (unsigned i = 0; i < N; i++) {
            CHECK_INT(atomic_load(&b[i].status), USM_OK);
            free(b[i].copy);
            free(b[i].data);
        }
    }
}

static void a_child_leaves_the_tiers_alone(void)
{
    block b, c;
    int   status = 0;
    pid_t pid;

    fake_reset();
    start("fake_a");
    block_init(&b, 1);
    block_init(&c, 2);
    CHECK_INT(write_new(&b, 1), USM_OK);
    (void)fflush(NULL);
    usm__tiers_fork(tiers, USM_FORK_PREPARE);
    pid = fork();
    usm__tiers_fork(tiers, pid ? USM_FORK_PARENT : USM_FORK_CHILD);
    if (pid == 0) {
        plain.in_child = true;
        CHECK_INT(read_part(&b, 0, SECTORS), USM_E_FORKED);
        CHECK_INT(write_new(&c, 1), USM_E_FORKED);
        CHECK_INT(c.copy->tier, 0);
        usm__tiers_forget(tiers, b.copy);
        CHECK_INT(fake_counts_of(FAKE_A).blocks, 1); /* the parent's */
        usm__tiers_destroy(tiers);
        CHECK_INT(fake_counts_of(FAKE_A).opened, 1);
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK_INT(read_part(&b, 0, SECTORS), USM_OK);
    CHECK(holds_all(&b));
    block_fini(&b);
    block_fini(&c);
    stop();
}

static void the_depth_is_a_guess_until_a_tier_is_open(void)
{
    block b;

    fake_reset();
    start("fake_a");
    CHECK_INT(usm__tiers_depth(tiers), 16);
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_OK);
    CHECK_INT(usm__tiers_depth(tiers), 8);
    block_fini(&b);
    stop();
}

/* ---- figures --------------------------------------------------------------------------------- */

static void figures_add_up(void)
{
    block          b;
    usm_tier_stats s;

    fake_reset();
    fake_plan_of(FAKE_A)->capacity = 64;
    start("fake_a:/some/where,quota=4M");
    block_init(&b, 1);
    CHECK_INT(write_new(&b, 1), USM_OK);
    CHECK_INT(write_part(&b, 0, 2), USM_OK);
    CHECK_INT(read_part(&b, 4, 3), USM_OK);
    s = stats_of(0);
    CHECK_STR(s.name, "fake_a:/some/where");
    CHECK_INT(s.capacity, 64 * BLOCK);
    CHECK_INT(s.used, BLOCK);
    CHECK_INT(s.written, BLOCK + 2 * SECTOR);
    CHECK_INT(s.writes, 2);
    CHECK_INT(s.read, 3 * SECTOR);
    CHECK_INT(s.reads, 1);
    CHECK(s.write_p50_ns > 0 && s.write_p50_ns <= s.write_p99_ns && s.read_p99_ns > 0);
    CHECK(s.write_ns > 0 && s.read_ns > 0);
    block_fini(&b);
    stop();
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void percentiles_are_right_to_an_eighth(void)
{
    enum { N = 10000 };
    usm__times h      = {0};
    uint64_t   random = 4, list[N];

    CHECK_INT(usm__times_quantile(&h, 0.5), 0);
    for (unsigned i = 0; i < N; i++) {
        list[i] = fake_random(&random) >> (24 + fake_random(&random) % 40);
        usm__times_add(&h, list[i]);
    }
    qsort(list, N, sizeof list[0], compare);
    for (unsigned q = 0; q < 100; q++) {
        double exact = (double)list[N * q / 100];
        double ours  = (double)usm__times_quantile(&h, q / 100.0);

        CHECK(ours >= exact * 0.93 - 1 && ours <= exact * 1.07 + 1);
    }
    usm__times_add(&h, UINT64_MAX); /* has a bucket, too */
    CHECK(usm__times_quantile(&h, 1.0 - 1e-9) > 0);
}

static void time_under_way_counts_once(void)
{
    usm__flow f = {0};

    usm__flow_begin(&f, 100);
    usm__flow_begin(&f, 150);
    usm__flow_end(&f, 200, 100, 10, true);
    CHECK_INT(usm__flow_busy(&f, 260), 160);
    usm__flow_end(&f, 300, 150, 10, false);
    CHECK_INT(usm__flow_busy(&f, 900), 200);
    usm__flow_begin(&f, 1000);
    usm__flow_end(&f, 1010, 1000, 5, true);
    CHECK_INT(usm__flow_busy(&f, 5000), 210);
    CHECK_INT(f.bytes, 15);
    CHECK_INT(f.transfers, 2);
}

static void sums_depend_on_whose_bytes_they_are(void)
{
    unsigned char *page = aligned_alloc(4096, SECTOR);
    uint32_t       sum;

    memset(page, 7, SECTOR);
    sum = usm__sector_sum(page, SECTOR, 5, 3);
    CHECK(sum == usm__sector_sum(page, SECTOR, 5, 3));
    CHECK(sum != usm__sector_sum(page, SECTOR, 5, 4));
    CHECK(sum != usm__sector_sum(page, SECTOR, 6, 3));
    CHECK(sum != usm__sector_sum(page, SECTOR / 2, 5, 3));
    page[SECTOR - 1] ^= 1;
    CHECK(sum != usm__sector_sum(page, SECTOR, 5, 3));
    free(page);
}

static const plain_case cases[] = {
    CASE(blocks_come_back_that_end_inside_submit),
    CASE(blocks_come_back_that_end_by_a_thread_out_of_order),
    CASE(blocks_come_back_that_end_in_progress),
    CASE(parts_may_be_written_first_and_together),
    CASE(nothing_is_opened_before_the_first_write),
    CASE(specs_are_checked),
    CASE(off_keeps_everything_in_memory),
    CASE(neighbours_lie_beside_each_other),
    CASE(scattered_blocks_do_not_reserve_everything),
    CASE(all_room_is_used_and_all_is_given_back),
    CASE(a_full_tier_is_not_asked_by_each_write),
    CASE(a_full_tier_hands_on_and_says_so_once),
    CASE(threads_do_not_disturb_each_other),
    CASE(the_end_waits_for_what_is_under_way),
    CASE(a_child_leaves_the_tiers_alone),
    CASE(the_depth_is_a_guess_until_a_tier_is_open),
    CASE(figures_add_up),
    CASE(percentiles_are_right_to_an_eighth),
    CASE(time_under_way_counts_once),
    CASE(sums_depend_on_whose_bytes_they_are),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
