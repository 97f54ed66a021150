/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What happens to buffers when the disk behind them fails, through the public functions and the
 * real file transport: full, EIO, short and interrupted calls, errors that come late, death at any
 * moment, and memory that others hold.  In all of it: the named status, no hang (each case is a
 * child with an alarm), and nothing is lost.  Damage in the file: spill_damage.c. */
#include "model.h"
#include "spill_case.h"

#include "base/fault.h"

#include <signal.h>
#include <time.h>

/* ---- no room ------------------------------------------------------------------------- */

/* How many of n blocks can be written before there is no room; what was written stays. */
static size_t fill_up(usm_buffer *buf, size_t n)
{
    size_t i = 0;

    while (i < n) {
        usm_status st = write_block(buf, i, 1);

        if (st == USM_E_SPILL_FULL)
            break;
        CHECK_INT(st, USM_OK);
        i++;
    }
    return i;
}

static void quota(void)
{
    usm_buffer *buf;
    size_t      n;

    start(",quota=1M"); /* 64 blocks, beside 32 in memory */
    buf = make("too much", BLOCKS);
    n   = fill_up(buf, BLOCKS);
    printf("# %zu blocks found room\n", n);
    CHECK(n >= 60 && n <= 64 + FRAMES);
    CHECK_IN("USM_SPILL", usm_last_error());
    read_all(buf, n, 1);
    /* Room comes back with what is given up. */
    CHECK_INT(usm_buffer_advise(buf, 0, (size_t)20 * BLOCK, USM_BUFFER_DISCARD), USM_OK);
    for (size_t i = n; i < n + 10; i++)
        CHECK_INT(again(write_block, buf, i, 1), USM_OK);
    for (size_t i = 20; i < n + 10; i++)
        CHECK_INT(again(read_block, buf, i, 1), USM_OK);
    usm_buffer_destroy(buf);
    usm_context_destroy(here.ctx);
}

static void a_quota_that_is_used_up_loses_nothing(void)
{
    in_child(quota);
}

static void arm(const char *name, uint64_t n, bool onwards, usm_status st)
{
    CHECK(usm__fault_arm(name, n, onwards, st));
}

static void full_disk(void)
{
    usm_buffer *buf;
    size_t      n;

    start("");
    buf = make("too much", BLOCKS);
    for (size_t i = 0; i < 80; i++)
        CHECK_INT(write_block(buf, i, 1), USM_OK);
    arm("file.store", 1, true, USM_E_SPILL_FULL);
    n = 80 + fill_up(buf, 0);
    for (; n < BLOCKS && write_block(buf, n, 1) == USM_OK; n++) {}
    CHECK(n < BLOCKS);
    CHECK(usm__fault_fired() > 0);
    for (size_t i = 0; i < n; i++) { /* as far as memory allows while nothing can leave */
        usm_status st = read_block(buf, i, 1);

        CHECK(st == USM_OK || st == USM_E_SPILL_FULL || st == USM_E_IO);
    }
    usm__fault_disarm_all();
    read_all(buf, n, 1);
    CHECK_INT(again(write_block, buf, n, 1), USM_OK);
    usm_buffer_destroy(buf);
    usm_context_destroy(here.ctx);
}

static void a_full_disk_loses_nothing(void)
{
    in_child(full_disk);
}

/* ---- errors of the medium ------------------------------------------------------------ */

static void bad_reads(void)
{
    usm_buffer *buf;
    size_t      failed = 0;

    start("");
    buf = make("read", BLOCKS);
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK_INT(write_block(buf, i, 1), USM_OK);
    arm("file.fetch", 1, true, USM_E_IO);
    for (size_t i = 0; i < BLOCKS; i++) {
        usm_status st = read_block(buf, i, 1);

        CHECK(st == USM_OK || st == USM_E_IO);
        if (st == USM_E_IO)
            CHECK_IN("\"read\"", usm_last_error());
        failed += st == USM_E_IO;
    }
    printf("# %zu of %d reads failed, as those must that are not in memory\n", failed, BLOCKS);
    CHECK(failed >= BLOCKS - FRAMES);
    usm__fault_disarm_all();
    read_all(buf, BLOCKS, 1);
    usm_buffer_destroy(buf);
    usm_context_destroy(here.ctx);
}

static void reads_that_fail_are_named_and_can_be_repeated(void)
{
    in_child(bad_reads);
}

/* Nothing is read for these blocks, yet each needs a frame, and none can be emptied. */
static void blocks_without_frames_have_a_story(usm_buffer *buf, size_t first)
{
    bool was_named = false;

    for (int i = 0; i < 4; i++) { /* the first may be told of a store that failed before */
        usm_access acc;
        usm_status st =
            usm_access_begin(buf, first * BLOCK, (size_t)2 * BLOCK, USM_WRITE_NO_INIT, &acc);

        CHECK_INT(st, USM_E_IO);
        CHECK_IN("\"late\"", usm_last_error());
        was_named = was_named || strstr(usm_last_error(), "there is no memory for block");
    }
    CHECK(was_named);
}

static void late_writes(void)
{
    usm_buffer *buf;
    size_t      failed = 0, n = 0;

    start("");
    buf = make("late", BLOCKS);
    arm("file.store", 1, true, USM_E_IO);
    for (; n < BLOCKS && failed == 0; n++) {
        usm_status st = write_block(buf, n, 1);

        CHECK(st == USM_OK || st == USM_E_IO);
        failed += st == USM_E_IO;
        n -= st == USM_E_IO;
    }
    CHECK(failed == 1); /* memory is full, and nothing can leave */
    blocks_without_frames_have_a_story(buf, n);
    for (int i = 0; i < 200 && atomic_load(&here.notified) == 0; i++)
        (void)nanosleep(&(struct timespec){0, 10000000}, NULL);
    CHECK(atomic_load(&here.notified) > 0);
    CHECK_INT(atomic_load(&here.told_status), USM_E_IO);
    usm__fault_disarm_all();
    read_all(buf, n, 1);
    for (size_t i = n; i < BLOCKS; i++)
        CHECK_INT(again(write_block, buf, i, 1), USM_OK);
    read_all(buf, BLOCKS, 1);
    usm_buffer_destroy(buf);
    usm_context_destroy(here.ctx);
}

static void late_write_errors_reach_the_callback_and_the_next_access(void)
{
    in_child(late_writes);
}

static void storm(const char *options)
{
    usm_buffer *buf;
    uint64_t    fired = 0;

    start(options);
    buf = make("storm", BLOCKS);
    for (unsigned version = 1; version <= 6; version++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            /* The next calls are interrupted or cut short, in any mix. */
            fired += usm__fault_fired();
            usm__fault_disarm_all();
            for (uint64_t k = 1; k <= 5; k++) {
                arm(pick(2) ? "file.store" : "file.fetch", k, false, USM_E_AGAIN);
                arm("file.short", k + pick(3), false, USM_OK);
            }
            CHECK_INT(write_block(buf, i, version), USM_OK);
            if (i % 3 == 0)
                CHECK_INT(read_block(buf, pick(i + 1), version), USM_OK);
        }
    }
    usm__fault_disarm_all();
    printf("# %llu calls interrupted or cut short\n", (unsigned long long)fired);
    CHECK(fired > 500);
    read_all(buf, BLOCKS, 6);
    usm_buffer_destroy(buf);
    usm_context_destroy(here.ctx);
}

static void storm_of_any(void)
{
    storm("");
}

static void interrupted_and_short_calls_are_not_noticed(void)
{
    in_child(storm_of_any);
}

static void storm_of_threads(void)
{
    storm(",engine=threads");
}

static void interrupted_and_short_calls_are_not_noticed_by_threads(void)
{
    in_child(storm_of_threads);
}

/* ---- the model, over a disk that fails now and then ---------------------------------- */

static const struct {
    const char *name;
    usm_status  status;
} points[] = {{"file.store", USM_E_IO},    {"file.store", USM_E_SPILL_FULL},
              {"file.fetch", USM_E_IO},    {"file.store", USM_E_AGAIN},
              {"file.fetch", USM_E_AGAIN}, {"file.short", USM_OK}};

static void faults_go_on(void)
{
    for (unsigned i = 0; i < 6; i++) {
        unsigned k = (unsigned)pick(sizeof points / sizeof points[0]);

        arm(points[k].name, 1 + pick(30), pick(8) == 0, points[k].status);
    }
}

static void faults_stop(void)
{
    usm__fault_disarm_all();
}

static void let_go_on(void)
{
    (void)nanosleep(&(struct timespec){0, 500000}, NULL);
}

static bool disk_may_fail(usm_status st)
{
    return st == USM_E_IO || st == USM_E_SPILL_FULL;
}

static void model_over_files(void)
{
    uint64_t operations = 0, failures = 0, bytes = 0;

    start("");
    for (uint64_t seed = 1; seed <= 12; seed++) {
        model_params p = {.seed       = seed,
                          .ctx        = here.ctx,
                          .block_size = BLOCK,
                          .frames     = FRAMES,
                          .most_bytes = (size_t)BLOCK * FRAMES * 4,
                          .let_go_on  = let_go_on,
                          .may_fail   = disk_may_fail,
                          .heal       = faults_stop,
                          .resume     = faults_go_on};
        model       *m = model_create(&p);
        model_counts c;

        for (int i = 0; i < 400; i++) {
            if (i % 20 == 0) {
                faults_stop();
                faults_go_on();
            }
            model_step(m);
        }
        faults_stop();
        model_check_all(m);
        c = model_get_counts(m);
        operations += c.operations;
        failures += c.failures;
        bytes += c.bytes_checked;
        model_destroy(m);
    }
    printf(
        "# 12 seeds, %llu operations, %llu failed as they may, %llu MiB compared, nothing lost\n",
        (unsigned long long)operations, (unsigned long long)failures,
        (unsigned long long)(bytes >> 20));
    usm_context_destroy(here.ctx);
}

static void random_operations_over_a_failing_disk_lose_nothing(void)
{
    in_child(model_over_files);
}

/* ---- death --------------------------------------------------------------------------- */

/* Tells through `ready` once blocks lie in the file. */
static void work_for_ever(int ready)
{
    usm_spill_stats stats       = {.struct_size = sizeof stats};
    model_params    p           = {.seed       = pick(UINT32_MAX),
                                   .block_size = BLOCK,
                                   .frames     = FRAMES,
                                   .most_bytes = (size_t)BLOCK * FRAMES * 4,
                                   .let_go_on  = let_go_on};
    bool            is_notified = false;
    model          *m;

    start("");
    p.ctx = here.ctx;
    m     = model_create(&p);
    for (;;) {
        model_step(m);
        if (is_notified || usm_spill_get_stats(here.ctx, &stats) != USM_OK || stats.ntiers == 0 ||
            stats.tiers[0].writes < 50)
            continue;
        is_notified = write(ready, "", 1) == 1;
    }
}

static void kill_one(void)
{
    int   status = 0, ends[2];
    char  byte;
    pid_t pid;

    (void)pick(2);
    CHECK_INT(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        plain.in_child = true;
        work_for_ever(ends[1]);
    }
    CHECK(pid > 0);
    (void)close(ends[1]);
    CHECK(read(ends[0], &byte, 1) == 1); /* 0: it ended by itself */
    (void)close(ends[0]);
    (void)nanosleep(&(struct timespec){0, (long)pick(20000000)}, NULL);
    CHECK_INT(kill(pid, SIGKILL), 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK_INT(files_in(here.folder), 0);
}

static void nothing_is_left_by_a_process_that_is_killed(void)
{
    here.folder = plain_path("killed");
    CHECK_INT(mkdir(here.folder, 0700), 0);
    for (int i = 0; i < 25; i++)
        kill_one();
    printf("# 25 processes killed while they spilled, no file left\n");
}

/* ---- memory that others hold --------------------------------------------------------- */

static void held(void)
{
    usm_access  acc[FRAMES], one;
    usm_buffer *greedy, *poor;
    usm_status  st;

    start("");
    CHECK_INT(usm_config_set("spill_wait", "100"), USM_OK);
    greedy = make("the greedy one", FRAMES);
    poor   = make("the poor one", 4);
    for (size_t i = 0; i < FRAMES; i++)
        CHECK_INT(usm_access_begin(greedy, i * BLOCK, BLOCK, USM_WRITE, &acc[i]), USM_OK);
    st = usm_access_begin(poor, 0, 100, USM_WRITE, &one);
    CHECK_INT(st, USM_E_AGAIN);
    CHECK_IN("the greedy one", usm_last_error());
    st = usm_access_begin(poor, 0, 100, (usm_access_mode)(USM_WRITE | USM_NO_WAIT), &one);
    CHECK_INT(st, USM_E_AGAIN);
    usm_access_end(&acc[3]);
    CHECK_INT(usm_access_begin(poor, 0, 100, USM_WRITE, &one), USM_OK);
    usm_access_end(&one);
    for (size_t i = 0; i < FRAMES; i++)
        if (i != 3)
            usm_access_end(&acc[i]);
    st =
        usm_access_begin(make("wide", 2 * FRAMES), 0, (size_t)(FRAMES + 1) * BLOCK, USM_READ, &one);
    CHECK_INT(st, USM_E_BUDGET);
    CHECK_IN("USM_MEMORY_LIMIT", usm_last_error());
}

static void memory_that_is_held_is_named_and_not_waited_for_without_end(void)
{
    in_child(held);
}

enum { THREADS = 4, WANTED = FRAMES / 2, ROUNDS = 40 };

static atomic_int        opened_twice, refused;
static pthread_barrier_t all_hold_half;

/* Half now, half later: with four threads more than there is, and nobody may hang. */
static void *in_two_halves(void *buf_)
{
    usm_buffer *buf = buf_;

    for (int i = 0; i < ROUNDS; i++) {
        usm_access a, b;
        size_t     half = (size_t)WANTED / 2 * BLOCK;

        while (usm_access_begin(buf, 0, half, USM_WRITE, &a) != USM_OK)
            CHECK_INT(usm_last_status(), USM_E_AGAIN);
        (void)pthread_barrier_wait(&all_hold_half); /* now nothing is left */
        if (usm_access_begin(buf, half, half, USM_WRITE, &b) == USM_OK) {
            memset(b.ptr, i, 64);
            usm_access_end(&b);
            atomic_fetch_add(&opened_twice, 1);
        } else {
            CHECK_INT(usm_last_status(), USM_E_AGAIN);
            atomic_fetch_add(&refused, 1);
        }
        usm_access_end(&a);
    }
    return NULL;
}

/* All at once or none: here nobody has to be refused. */
static void *all_at_once(void *buf_)
{
    usm_buffer *buf = buf_;

    for (int i = 0; i < ROUNDS; i++) {
        size_t           half   = (size_t)WANTED / 2 * BLOCK;
        usm_buffer_range list[] = {{buf, 0, half, USM_WRITE}, {buf, half, half, USM_READ_WRITE}};
        usm_access       acc[2];

        while (usm_access_many(2, list, acc) != USM_OK) {
            CHECK_INT(usm_last_status(), USM_E_AGAIN);
            atomic_fetch_add(&refused, 1);
        }
        memset(acc[0].ptr, i, 64);
        usm_access_end(&acc[0]);
        usm_access_end(&acc[1]);
        atomic_fetch_add(&opened_twice, 1);
    }
    return NULL;
}

static void run_threads(void *(*fn)(void *))
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, fn, make("of a thread", WANTED)), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
}

static void halves(void)
{
    start("");
    CHECK_INT(usm_config_set("spill_wait", "20"), USM_OK);
    CHECK_INT(pthread_barrier_init(&all_hold_half, NULL, THREADS), 0);
    run_threads(in_two_halves);
    printf("# %d times both halves, %d times refused\n", atomic_load(&opened_twice),
           atomic_load(&refused));
    CHECK_INT(atomic_load(&opened_twice) + atomic_load(&refused), THREADS * ROUNDS);
    CHECK(atomic_load(&refused) >= ROUNDS); /* one at least each time, or all would wait */
}

static void threads_that_hold_half_of_what_they_need_do_not_hang(void)
{
    in_child(halves);
}

static void at_once(void)
{
    start("");
    run_threads(all_at_once);
    printf("# %d times both halves, %d times refused\n", atomic_load(&opened_twice),
           atomic_load(&refused));
    CHECK_INT(atomic_load(&opened_twice), THREADS * ROUNDS);
}

static void threads_that_ask_for_all_at_once_all_get_it(void)
{
    in_child(at_once);
}

static const plain_case cases[] = {
    CASE(a_quota_that_is_used_up_loses_nothing),
    CASE(a_full_disk_loses_nothing),
    CASE(reads_that_fail_are_named_and_can_be_repeated),
    CASE(late_write_errors_reach_the_callback_and_the_next_access),
    CASE(interrupted_and_short_calls_are_not_noticed),
    CASE(interrupted_and_short_calls_are_not_noticed_by_threads),
    CASE(random_operations_over_a_failing_disk_lose_nothing),
    CASE(nothing_is_left_by_a_process_that_is_killed),
    CASE(memory_that_is_held_is_named_and_not_waited_for_without_end),
    CASE(threads_that_hold_half_of_what_they_need_do_not_hang),
    CASE(threads_that_ask_for_all_at_once_all_get_it),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
