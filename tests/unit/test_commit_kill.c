/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* SIGKILL at any moment of a commit: a child commits one version after the other and says which
 * were acknowledged; it is killed; the home is opened, and every block has one version, that of the
 * last acknowledged commit or of the one that was under way.
 *
 * COMMIT_KILL_ROUNDS: children; the default takes seconds. */
#include "home_fixture.h"

#include <signal.h>
#include <time.h>

#define BLOCKS 12

typedef struct shared_page {
    _Atomic(uint64_t) started, acked; /* versions                                            */
} shared_page;

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static usm_status get_numbered(void *arg, size_t index, uint64_t *block, const void **data)
{
    static char    bytes[BLOCK];
    const uint64_t version = *(const uint64_t *)arg;

    for (size_t at = 0; at < BLOCK; at += 8)
        memcpy(bytes + at, &version, 8);
    *block = index;
    *data  = bytes;
    return USM_OK;
}

static void put_nothing(void *arg, size_t index)
{
    (void)arg;
    (void)index;
}

_Noreturn static void commit_for_ever(const test_file *f, shared_page *page)
{
    usm__home              *home;
    uint64_t                version = atomic_load(&page->acked);
    const usm__dirty_blocks dirty   = {BLOCKS, get_numbered, put_nothing, &version};

    if (open_home(f, USM_READ_WRITE, &home) != USM_OK)
        _exit(2);
    for (;;) {
        version++;
        atomic_store(&page->started, version);
        if (usm__home_commit(home, &dirty) != USM_OK)
            _exit(3);
        atomic_store(&page->acked, version);
    }
}

/* Kills in the middle of commits, however slow the machine is: some have begun in this child. */
static void wait_for_commits(const shared_page *page, uint64_t from)
{
    const struct timespec moment = {0, (long)(next_random() % 6000000)};
    const uint64_t        until  = from + 1 + next_random() % 3;

    for (unsigned naps = 0; atomic_load(&page->started) < until; naps++) {
        CHECK(naps < 1000000);
        (void)usleep(50);
    }
    (void)nanosleep(&moment, NULL);
}

/* The version of all words of the file; UINT64_MAX: they differ. */
static uint64_t version_of_file(const test_file *f)
{
    static uint64_t words[BLOCKS * BLOCK / 8];
    int             fd = open(f->path, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0 && read(fd, words, sizeof(words)) == (ssize_t)sizeof(words) && close(fd) == 0);
    for (size_t i = 1; i < BLOCKS * BLOCK / 8; i++)
        if (words[i] != words[0])
            return UINT64_MAX;
    return words[0];
}

static void one_child(const test_file *f, shared_page *page)
{
    const uint64_t from = atomic_load(&page->started);
    int            status;
    pid_t          pid = fork();

    if (pid == 0)
        commit_for_ever(f, page);
    CHECK(pid > 0);
    wait_for_commits(page, from);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status)); /* it did not end by itself */
}

static void a_killed_commit_is_there_or_not(void)
{
    const char  *text   = getenv("COMMIT_KILL_ROUNDS");
    long         rounds = text != NULL ? strtol(text, NULL, 10) : 100, replays = 0, under_way = 0;
    shared_page *page = usm__os_map_fd(NULL, 4096, 3, usm__os_memfd("page", 4096));
    test_file    f    = {.size = BLOCKS * BLOCK};
    usm__home   *home;

    CHECK(page != NULL);
    random_state = (uint64_t)time(NULL) | 1;
    printf("# seed %llu\n", (unsigned long long)random_state);
    (void)snprintf(f.path, sizeof(f.path), "%s", plain_path("killed.raw"));
    CHECK_INT(open_home(&f, USM_READ_WRITE_NO_INIT, &home), USM_OK);
    usm__home_close(home);
    for (long i = 0; i < rounds; i++) {
        uint64_t version;

        one_child(&f, page);
        replays += journal_is_there(&f);
        CHECK_INT(open_home(&f, i % 2 ? USM_READ : USM_READ_WRITE, &home), USM_OK);
        usm__home_close(home);
        version = version_of_file(&f);
        CHECK(version == atomic_load(&page->acked) || version == atomic_load(&page->started));
        CHECK(!journal_is_there(&f));
        under_way += version != atomic_load(&page->acked);
        atomic_store(&page->acked, version);
        atomic_store(&page->started, version);
    }
    printf("# %ld children killed after %llu commits, %ld journals replayed, %ld commits that were "
           "not acknowledged are there: nothing lost\n",
           rounds, (unsigned long long)atomic_load(&page->acked), replays, under_way);
    CHECK(atomic_load(&page->acked) > 0);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(a_killed_commit_is_there_or_not),
        {NULL, NULL},
    };

    small_transport_use();
    return plain_main(argc, argv, cases);
}
