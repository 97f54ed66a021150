/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Homes: files (over the test's transport, or with USM_TEST_REAL=1 over the real one), functions of
 * the user, memory.  What a commit to a file promises is in test_journal.c and test_power_loss.c.
 */
#include "home_fixture.h"

#include <stdatomic.h>

#define BLOCKS 6

static bool is_real; /* the transport is the module */

static _Alignas(4096) char data[BLOCK];

/* Reads sectors; the rest of `data` stays as it was. */
static usm_status read_sectors(usm__home *home, uint64_t block, uint32_t first, uint32_t count)
{
    awaited a;

    memset(data, 0x5a, sizeof(data));
    start_read(&a, home, block, first, count, data);
    return await(&a);
}

/* --- files --------------------------------------------------------------------------- */

static void sectors_of_a_file_come_and_zeros_behind_it(void)
{
    static const uint64_t leads[] = {0, 4096, 100};
    static char           want[BLOCK];

    for (size_t i = 0; i < 3; i++) {
        test_file  f;
        usm__home *home;

        make_file(&f, "sectors.raw", leads[i], BLOCKS * BLOCK - 5000);
        CHECK_INT(open_home(&f, USM_READ, &home), USM_OK);
        for (uint64_t b = 0; b < BLOCKS; b++) {
            memset(want, 0, sizeof(want));
            fill_block(want, size_of_block_in(&f, b), b, 0);
            CHECK_INT(read_sectors(home, b, 0, 2), USM_OK);
            CHECK(memcmp(data, want, BLOCK) == 0);
            CHECK_INT(read_sectors(home, b, 1, 1), USM_OK);
            CHECK(memcmp(data, want + 4096, 4096) == 0 && data[4096] == 0x5a);
        }
        usm__home_close(home);
    }
}

static void size_0_means_to_the_end_of_the_file(void)
{
    test_file  f;
    usm__home *home;
    size_t     size = 0;

    make_file(&f, "end.raw", 0, 3 * BLOCK + 17);
    CHECK_INT(usm__home_open_file(f.path, 100, &size, USM_READ, BLOCK, &home), USM_OK);
    CHECK(size == 3 * BLOCK + 17 - 100);
    usm__home_close(home);
    size = 0;
    CHECK_INT(usm__home_open_file(f.path, f.size, &size, USM_READ, BLOCK, &home), USM_E_SIZE);
    CHECK(size == 0);
    size = f.size + 1;
    CHECK_INT(usm__home_open_file(f.path, 0, &size, USM_READ_WRITE, BLOCK, &home), USM_E_SIZE);
    CHECK_IN("USM_NO_INIT", usm_last_error());
    size = SIZE_MAX;
    CHECK_INT(usm__home_open_file(f.path, 5, &size, USM_READ_WRITE_NO_INIT, BLOCK, &home),
              USM_E_SIZE);
}

static void no_init_makes_the_file_and_makes_it_longer(void)
{
    const char    *path = plain_path("fresh.raw");
    usm__home     *home;
    struct stat    st;
    size_t         size   = 0;
    const uint64_t list[] = {1};

    CHECK_INT(usm__home_open_file(path, 0, &size, USM_READ_WRITE_NO_INIT, BLOCK, &home),
              USM_E_SIZE);
    CHECK(access(path, F_OK) != 0); /* what was made for nothing is gone */
    size = 2 * BLOCK;
    CHECK_INT(usm__home_open_file(path, 0, &size, USM_READ_WRITE, BLOCK, &home), USM_E_IO);
    CHECK_IN("No such file", usm_last_error());
    CHECK_INT(usm__home_open_file(path, 0, &size, USM_READ_WRITE_NO_INIT, BLOCK, &home), USM_OK);
    CHECK_INT(commit_blocks(home, list, 1, 7), USM_OK);
    usm__home_close(home);
    CHECK(stat(path, &st) == 0 && st.st_size == (off_t)size);
    size = 4 * BLOCK;
    CHECK_INT(usm__home_open_file(path, 0, &size, USM_READ_WRITE_NO_INIT, BLOCK, &home), USM_OK);
    CHECK(stat(path, &st) == 0 && st.st_size == (off_t)size);
    CHECK_INT(read_sectors(home, 1, 0, 2), USM_OK);
    CHECK_INT(version_of(data, BLOCK, 1, 9), 7);
    usm__home_close(home);
}

static void what_is_no_file_of_the_users_is_refused_by_name(void)
{
    usm__home *home;
    size_t     size = BLOCK;
    test_file  f;

    make_file(&f, "modes.raw", 0, BLOCK);
    CHECK_INT(usm__home_open_file(f.path, 0, &size, USM_WRITE, BLOCK, &home), USM_E_INVALID);
    CHECK_INT(usm__home_open_file(f.path, 0, &size, USM_READ | USM_NO_WAIT, BLOCK, &home),
              USM_E_INVALID);
    CHECK_INT(usm__home_open_file(plain.folder, 0, &size, USM_READ, BLOCK, &home), USM_E_IO);
    CHECK_IN("not a regular file", usm_last_error());
    CHECK_INT(mkfifo(plain_path("pipe"), 0600), 0);
    CHECK_INT(usm__home_open_file(plain_path("pipe"), 0, &size, USM_READ, BLOCK, &home), USM_E_IO);
    CHECK_INT(usm__home_open_file("/dev/null", 0, &size, USM_READ, BLOCK, &home), USM_E_IO);
}

static void a_commit_is_read_again_from_the_home(void)
{
    static const uint64_t list[] = {0, 3, 5};
    test_file             f;
    usm__home            *home;

    make_file(&f, "again.raw", 300, BLOCKS * BLOCK - 100);
    CHECK_INT(open_home(&f, USM_READ_WRITE, &home), USM_OK);
    for (uint64_t version = 1; version <= 3; version++) {
        CHECK_INT(commit_blocks(home, list, 3, version), USM_OK);
        for (uint64_t b = 0; b < BLOCKS; b++) {
            bool is_new = b == 0 || b == 3 || b == 5;

            CHECK_INT(read_sectors(home, b, 0, 2), USM_OK);
            CHECK_INT(version_of(data, size_of_block_in(&f, b), b, 9), is_new ? (int)version : 0);
        }
    }
    usm__home_close(home);
}

static void a_read_that_fails_is_made_again_and_told_in_the_end(void)
{
    test_file      f;
    usm__home     *home;
    usm_tier_stats stats;
    awaited        a;

    if (is_real)
        return; /* it has faults of its own, which its own test makes */
    make_file(&f, "retry.raw", 0, BLOCKS * BLOCK);
    CHECK_INT(open_home(&f, USM_READ, &home), USM_OK);
    small_refusals = 2;
    CHECK_INT(read_sectors(home, 1, 0, 2), USM_OK);
    CHECK_INT(version_of(data, BLOCK, 1, 0), 0);
    small_refusals = 3;
    start_read(&a, home, 1, 0, 2, data);
    CHECK_INT(await(&a), USM_E_IO);
    CHECK_IN("does not like it", a.reason); /* on the thread that calls done() */
    CHECK_INT(read_sectors(home, 1, 0, 2), USM_OK);
    usm__home_get_stats(home, &stats);
    CHECK(stats.errors == 1 && stats.reads == 2 && stats.read == 2 * BLOCK && stats.written == 0);
    CHECK_STR(stats.name, "home:retry.raw");
    CHECK(stats.read_p50_ns > 0 && stats.read_p99_ns >= stats.read_p50_ns && stats.read_ns > 0);
    usm__home_close(home);
}

static void a_file_that_became_shorter_fails_by_name(void)
{
    test_file  f;
    usm__home *home;

    make_file(&f, "shorter.raw", 0, BLOCKS * BLOCK);
    CHECK_INT(open_home(&f, USM_READ, &home), USM_OK);
    CHECK_INT(truncate(f.path, 2 * BLOCK), 0);
    CHECK_INT(read_sectors(home, 1, 0, 2), USM_OK);
    CHECK_INT(read_sectors(home, 4, 0, 2), USM_E_IO);
    usm__home_close(home);
}

static void a_commit_into_a_shorter_file_is_refused(void)
{
    static const uint64_t blocks[] = {0, 5};
    test_file             f;
    usm__home            *home;
    struct stat           st;

    make_file(&f, "cut.raw", 0, BLOCKS * BLOCK);
    CHECK_INT(open_home(&f, USM_READ_WRITE, &home), USM_OK);
    CHECK_INT(truncate(f.path, 2 * BLOCK), 0);
    CHECK_INT(commit_blocks(home, blocks, 2, 1), USM_E_IO);
    CHECK_IN("the file was truncated", usm_last_error());
    CHECK_INT(stat(f.path, &st), 0);
    CHECK_INT(st.st_size, 2 * BLOCK);
    CHECK_INT(truncate(f.path, BLOCKS * BLOCK), 0);
    CHECK_INT(commit_blocks(home, blocks, 2, 2), USM_OK);
    usm__home_close(home);
}

/* --- commits of several threads ---------------------------------------------------------- */

static usm__home *busy_home;

static void *commit_often(void *arg)
{
    static const uint64_t even[] = {0, 2, 4}, odd[] = {1, 3, 5};
    bool                  is_even = *(bool *)arg;

    for (uint64_t version = 1; version <= 5; version++)
        CHECK_INT(commit_blocks(busy_home, is_even ? even : odd, 3, version), USM_OK);
    return NULL;
}

static void commits_of_two_threads_come_one_after_the_other(void)
{
    static bool is_even[2] = {true, false};
    test_file   f;
    pthread_t   threads[2];
    int         got[BLOCKS];

    make_file(&f, "threads.raw", 0, BLOCKS * BLOCK);
    CHECK_INT(open_home(&f, USM_READ_WRITE, &busy_home), USM_OK);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, commit_often, &is_even[i]) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    usm__home_close(busy_home);
    CHECK(read_versions(&f, 9, got));
    for (int b = 0; b < BLOCKS; b++)
        CHECK_INT(got[b], 5);
}

/* --- functions of the user ------------------------------------------------------------------ */

static struct {
    char            image[BLOCKS * BLOCK];
    pthread_mutex_t lock;
    pthread_cond_t  met;
    int             inside, wanted; /* read() waits until so many are in it                   */
    usm_status      read, write, flush;
    bool            tells;
    atomic_int      flushes, closes, most;
} user = {.lock = PTHREAD_MUTEX_INITIALIZER, .met = PTHREAD_COND_INITIALIZER};

static usm_status user_fails(usm_status status)
{
    return status != USM_OK && user.tells ? usm_home_fail(status, "plate %d is broken", 17)
                                          : status;
}

static usm_status user_read(void *home, uint64_t offset, void *to, size_t size)
{
    CHECK(home == &user && offset + size <= BLOCKS * BLOCK - 100);
    (void)pthread_mutex_lock(&user.lock);
    if (++user.inside >= user.wanted)
        (void)pthread_cond_broadcast(&user.met);
    while (user.inside < user.wanted)
        (void)pthread_cond_wait(&user.met, &user.lock);
    (void)pthread_mutex_unlock(&user.lock);
    memcpy(to, user.image + offset, size);
    return user_fails(user.read);
}

static usm_status user_write(void *home, uint64_t offset, const void *from, size_t size)
{
    CHECK(home == &user && offset + size <= BLOCKS * BLOCK - 100);
    if (user.write == USM_OK)
        memcpy(user.image + offset, from, size);
    return user_fails(user.write);
}

static usm_status user_flush(void *home)
{
    CHECK(home == &user);
    user.flushes++;
    return user_fails(user.flush);
}

static void user_close(void *home)
{
    CHECK(home == &user);
    user.closes++;
}

static const usm_home_ops     user_ops    = {sizeof(user_ops), user_read, user_write, user_flush,
                                             user_close};
static const usm__home_params user_params = {BLOCK, 4096, BLOCKS *BLOCK - 100};

static usm__home *user_home(void)
{
    usm__home *home = NULL;

    user.inside = user.wanted = 0;
    user.read = user.write = user.flush = USM_OK;
    user.tells                          = true;
    user.flushes = user.closes = 0;
    for (uint64_t b = 0; b < BLOCKS; b++)
        fill_block(user.image + b * BLOCK, BLOCK, b, 0);
    CHECK_INT(usm__home_open_user(&user_ops, &user, &user_params, &home), USM_OK);
    return home;
}

static void functions_read_several_parts_at_a_time(void)
{
    enum { N = 40 };
    static _Alignas(4096) char parts[N][4096];
    static awaited             list[N];
    usm__home                 *home = user_home();

    user.wanted = 4; /* each waits until four are there: one at a time would never end */
    for (uint32_t i = 0; i < N; i++)
        start_read(&list[i], home, i % (BLOCKS - 1), i % 2, 1, parts[i]);
    for (uint32_t i = 0; i < N; i++) {
        CHECK_INT(await(&list[i]), USM_OK);
        CHECK(memcmp(parts[i], user.image + i % (BLOCKS - 1) * BLOCK + i % 2 * (size_t)4096,
                     4096) == 0);
    }
    user.wanted = 0;
    CHECK_INT(read_sectors(home, BLOCKS - 1, 0, 2), USM_OK); /* the last is short */
    CHECK(memcmp(data, user.image + (BLOCKS - 1) * BLOCK, BLOCK - 100) == 0 &&
          data[BLOCK - 100] == 0 && data[BLOCK - 1] == 0);
    usm__home_close(home);
    CHECK_INT(user.closes, 1);
}

static void functions_that_fail_are_told_with_their_words(void)
{
    usm__home     *home = user_home();
    usm_tier_stats stats;
    awaited        a;

    user.read = USM_E_CORRUPT;
    start_read(&a, home, 0, 0, 2, data);
    CHECK_INT(await(&a), USM_E_CORRUPT);
    CHECK_IN("plate 17 is broken", a.reason);
    user.tells = false;
    user.read  = USM_E_IO;
    start_read(&a, home, 0, 0, 2, data);
    CHECK_INT(await(&a), USM_E_IO);
    CHECK_IN("did not say why", a.reason);
    user.read = (usm_status)5;
    start_read(&a, home, 0, 0, 2, data);
    CHECK_INT(await(&a), USM_E_IO);
    CHECK_IN("which is not a status", a.reason);
    user.read = USM_OK;
    CHECK_INT(read_sectors(home, 0, 0, 2), USM_OK);
    usm__home_get_stats(home, &stats);
    CHECK(stats.errors == 3 && stats.reads == 1);
    usm__home_close(home);
}

static void a_commit_calls_write_for_each_block_and_then_flush(void)
{
    static const uint64_t list[] = {0, 2, BLOCKS - 1};
    usm__home            *home   = user_home();

    CHECK(usm__home_is_writable(home));
    user.write = USM_E_IO;
    CHECK_INT(commit_blocks(home, list, 3, 1), USM_E_IO);
    CHECK_IN("plate 17 is broken", usm_last_error());
    CHECK_INT(user.flushes, 0);
    user.write = USM_OK;
    user.flush = USM_E_IO;
    CHECK_INT(commit_blocks(home, list, 3, 1), USM_E_IO);
    user.flush = USM_OK;
    CHECK_INT(commit_blocks(home, list, 3, 2), USM_OK);
    CHECK_INT(user.flushes, 2);
    CHECK_INT(version_of(user.image, BLOCK, 0, 9), 2);
    CHECK_INT(version_of(user.image + 2 * BLOCK, BLOCK, 2, 9), 2);
    CHECK_INT(version_of(user.image + 5 * BLOCK, BLOCK - 100, 5, 9), 2);
    CHECK_INT(version_of(user.image + BLOCK, BLOCK, 1, 9), 0);
    usm__home_close(home);
}

static void without_write_it_is_read_only_and_without_read_refused(void)
{
    usm_home_ops ops  = user_ops;
    usm__home   *home = NULL;

    ops.write = NULL;
    ops.flush = NULL;
    ops.close = NULL;
    CHECK_INT(usm__home_open_user(&ops, &user, &user_params, &home), USM_OK);
    CHECK(!usm__home_is_writable(home));
    CHECK_INT(commit_blocks(home, (const uint64_t[]){0}, 1, 1), USM_E_READ_ONLY);
    usm__home_close(home);
    ops.read = NULL;
    CHECK_INT(usm__home_open_user(&ops, &user, &user_params, &home), USM_E_INVALID);
    ops             = user_ops;
    ops.struct_size = 8;
    CHECK_INT(usm__home_open_user(&ops, &user, &user_params, &home), USM_E_INVALID);
}

/* --- memory -------------------------------------------------------------------------------- */

static void memory_is_copied_and_never_written(void)
{
    static char            image[2 * BLOCK + 5];
    const usm__home_params params = {BLOCK, 4096, sizeof(image)};
    usm__home             *home;

    for (uint64_t b = 0; b < 3; b++)
        fill_block(image + b * BLOCK, b < 2 ? BLOCK : 5, b, 4);
    CHECK_INT(usm__home_open_memory(image, &params, &home), USM_OK);
    CHECK_INT(read_sectors(home, 1, 1, 1), USM_OK);
    CHECK(memcmp(data, image + BLOCK + 4096, 4096) == 0 && data[4096] == 0x5a);
    CHECK_INT(read_sectors(home, 2, 0, 2), USM_OK);
    CHECK(memcmp(data, image + 2 * BLOCK, 5) == 0 && data[5] == 0 && data[BLOCK - 1] == 0);
    CHECK_INT(read_sectors(home, 2, 1, 1), USM_OK);
    CHECK(data[0] == 0 && data[4095] == 0);
    CHECK_INT(commit_blocks(home, (const uint64_t[]){0}, 1, 1), USM_E_READ_ONLY);
    usm__home_close(home);
    usm__home_close(NULL);
}

static void no_memory_is_an_ordinary_answer(void)
{
    const usm__home_params params = {BLOCK, 4096, BLOCK};
    usm__home             *home   = NULL;

    CHECK(usm__fault_arm("heap.alloc", 1, true, USM_OK));
    CHECK_INT(usm__home_open_memory(data, &params, &home), USM_E_NO_MEMORY);
    CHECK_INT(usm__home_open_user(&user_ops, &user, &params, &home), USM_E_NO_MEMORY);
    usm__fault_disarm_all();
    CHECK(home == NULL);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(sectors_of_a_file_come_and_zeros_behind_it),
        CASE(size_0_means_to_the_end_of_the_file),
        CASE(no_init_makes_the_file_and_makes_it_longer),
        CASE(what_is_no_file_of_the_users_is_refused_by_name),
        CASE(a_commit_is_read_again_from_the_home),
        CASE(a_read_that_fails_is_made_again_and_told_in_the_end),
        CASE(a_file_that_became_shorter_fails_by_name),
        CASE(a_commit_into_a_shorter_file_is_refused),
        CASE(commits_of_two_threads_come_one_after_the_other),
        CASE(functions_read_several_parts_at_a_time),
        CASE(functions_that_fail_are_told_with_their_words),
        CASE(a_commit_calls_write_for_each_block_and_then_flush),
        CASE(without_write_it_is_read_only_and_without_read_refused),
        CASE(memory_is_copied_and_never_written),
        CASE(no_memory_is_an_ordinary_answer),
        {NULL, NULL},
    };

    is_real = getenv("USM_TEST_REAL") != NULL;
    if (is_real)
        CHECK_INT(usm__start(), USM_OK);
    else
        small_transport_use();
    return plain_main(argc, argv, cases);
}
