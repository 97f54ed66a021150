/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The journal beside a home file when calls fail, when it is damaged, when it is somebody else's,
 * and when there is no room.  Loss of power is in test_power_loss.c, SIGKILL in test_commit_kill.c.
 */
#include "home_fixture.h"

#include "spill/journal_format.h"

#include <sys/file.h>

#define BLOCKS 6

static long cases;

/* The machine's own syncs are left out (the linker's --wrap): they take long, and what they are for
 * is test_power_loss.c's.  That they fail is not. */
int __wrap_usm__os_fsync(int fd);                 /* NOLINT(bugprone-reserved-identifier) */
int __wrap_usm__os_fsync_dir(const char *folder); /* NOLINT(bugprone-reserved-identifier) */

static int fails(const char *call)
{
    errno = EIO;
    return usm__fault_hit(call, NULL) ? -1 : 0;
}

int __wrap_usm__os_fsync(int fd) /* NOLINT(bugprone-reserved-identifier) */
{
    (void)fd;
    return fails("os.fsync");
}

int __wrap_usm__os_fsync_dir(const char *folder) /* NOLINT(bugprone-reserved-identifier) */
{
    (void)folder;
    return fails("os.fsync_dir");
}

static const uint64_t some[] = {1, 2, 5}, others[] = {0, 1, 3};

/* --- small helpers ------------------------------------------------------------------- */

static const char *journal_of(const test_file *f)
{
    static char path[600];

    (void)snprintf(path, sizeof(path), "%s%s", f->path, USM__JOURNAL_SUFFIX);
    return path;
}

static bool has_leftovers(const test_file *f)
{
    char path[600];

    (void)snprintf(path, sizeof(path), "%s%s.new", f->path, USM__JOURNAL_SUFFIX);
    return journal_is_there(f) || access(path, F_OK) == 0;
}

/* Every block of `list` has `version`, the rest `before`. */
static bool holds(const test_file *f, const uint64_t *list, size_t n, int version, int before)
{
    int got[BLOCKS], want[BLOCKS];

    for (size_t i = 0; i < BLOCKS; i++)
        want[i] = before;
    for (size_t i = 0; i < n; i++)
        want[list[i]] = version;
    return read_versions(f, 9, got) && memcmp(got, want, sizeof(want)) == 0;
}

/* As if the program had died once the round was named: the journal is whole, and the home torn. */
static void make_cut_off(test_file *f, const char *name)
{
    usm__home *home;
    int        fd;

    make_file(f, name, 100, BLOCKS * BLOCK - 300);
    CHECK_INT(open_home(f, USM_READ_WRITE, &home), USM_OK);
    CHECK(usm__fault_arm("os.pread", 1, true, USM_OK)); /* the journal cannot be read back */
    CHECK_INT(commit_blocks(home, some, 3, 1), USM_E_IO);
    usm__fault_disarm_all();
    usm__home_close(home);
    CHECK(journal_is_there(f));
    fd = open(f->path, O_RDWR | O_CLOEXEC);
    CHECK(pwrite(fd, "torn", 4, (off_t)(100 + BLOCK + 512)) == 4 && close(fd) == 0);
}

static char *slurp(const char *path, size_t *size)
{
    struct stat st;
    int         fd = open(path, O_RDONLY | O_CLOEXEC);
    char       *data;

    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    *size = (size_t)st.st_size;
    data  = malloc(*size + 1);
    CHECK(data != NULL && read(fd, data, *size) == st.st_size && close(fd) == 0);
    return data;
}

static void spew(const char *path, const char *data, size_t size)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT, 0644);

    CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    CHECK(pwrite(fd, data, size, 0) == (ssize_t)size && close(fd) == 0);
}

static usm_status reopen(const test_file *f, usm_access_mode mode)
{
    usm__home *home;
    usm_status status = open_home(f, mode, &home);

    if (status == USM_OK)
        usm__home_close(home);
    return status;
}

/* --- what a commit does ----------------------------------------------------------------- */

static void a_commit_changes_its_blocks_and_leaves_no_journal(void)
{
    test_file  f;
    usm__home *home;

    make_file(&f, "plain.raw", 0, BLOCKS * BLOCK);
    CHECK_INT(open_home(&f, USM_READ_WRITE, &home), USM_OK);
    CHECK_INT(commit_blocks(home, some, 3, 1), USM_OK);
    CHECK(holds(&f, some, 3, 1, 0) && !has_leftovers(&f));
    CHECK_INT(commit_blocks(home, some, 0, 2), USM_OK); /* nothing is dirty */
    CHECK_INT(commit_blocks(home, some, 3, 3), USM_OK);
    CHECK(holds(&f, some, 3, 3, 0) && !has_leftovers(&f));
    usm__home_close(home);
}

static void a_block_that_cannot_be_had_leaves_all_as_it_was(void)
{
    test_file               f;
    usm__home              *home;
    test_commit             c     = {some, 1, 0, 2, {0}};
    const usm__dirty_blocks dirty = {3, commit_get, commit_put, &c};

    make_file(&f, "corrupt.raw", 0, BLOCKS * BLOCK);
    CHECK_INT(open_home(&f, USM_READ_WRITE, &home), USM_OK);
    CHECK_INT(usm__home_commit(home, &dirty), USM_E_CORRUPT);
    CHECK_IN("block 2 is gone", usm_last_error());
    CHECK(holds(&f, some, 0, 0, 0) && !has_leftovers(&f) && c.held == 0);
    usm__home_close(home);
}

static void a_home_for_reading_takes_no_commit(void)
{
    test_file  f;
    usm__home *home;

    make_file(&f, "reading.raw", 0, BLOCKS * BLOCK);
    CHECK_INT(open_home(&f, USM_READ, &home), USM_OK);
    CHECK_INT(commit_blocks(home, some, 3, 1), USM_E_READ_ONLY);
    CHECK(!usm__home_is_writable(home));
    usm__home_close(home);
}

/* --- each call fails ------------------------------------------------------------------- */

/* A read of a clean block, while a commit has failed. */
static void still_reads(usm__home *home)
{
    static _Alignas(4096) char data[BLOCK];

    CHECK_INT(read_block_of(home, 4, data), USM_OK);
    CHECK_INT(version_of(data, BLOCK, 4, 9), 0);
}

/* Blocks 0, 1 and 3 were committed as version 1; then 1, 2 and 5 as `version`, 0: not at all. */
static bool has_versions(const test_file *f, int version)
{
    int want[BLOCKS] = {1, 1, 0, 1, 0, 0}, got[BLOCKS] = {0};

    if (version != 0)
        want[1] = want[2] = want[5] = version;
    return read_versions(f, 9, got) && memcmp(got, want, sizeof(want)) == 0;
}

/* A commit with a fault at the n-th call; then either the same home commits again, or it is opened
 * anew.  true: there was no n-th call. */
static bool commit_with_fault(const char *call, uint64_t n, bool onwards, bool repeats)
{
    test_file  f;
    usm__home *home;
    usm_status status;

    make_file(&f, "faulty.raw", 100, BLOCKS * BLOCK - 300);
    CHECK_INT(open_home(&f, USM_READ_WRITE, &home), USM_OK);
    CHECK_INT(commit_blocks(home, others, 3, 1), USM_OK);
    CHECK(usm__fault_arm(call, n, onwards, USM_OK));
    status = commit_blocks(home, some, 3, 2);
    usm__fault_disarm_all();
    cases++;
    CHECK(status == USM_OK || status == USM_E_IO || status == USM_E_SPILL_FULL ||
          status == USM_E_NO_MEMORY);
    CHECK(status == USM_OK || strlen(usm_last_error()) > 0);
    still_reads(home);
    if (repeats) {
        CHECK_INT(commit_blocks(home, some, 3, 3), USM_OK);
        CHECK(!has_leftovers(&f));
    }
    usm__home_close(home);
    CHECK_INT(reopen(&f, USM_READ_WRITE), USM_OK);
    CHECK(!has_leftovers(&f));
    CHECK(repeats ? has_versions(&f, 3) : has_versions(&f, 2) || status != USM_OK);
    CHECK(repeats || status == USM_OK || has_versions(&f, 2) || has_versions(&f, 0));
    return status == USM_OK && usm__fault_fired() == 0;
}

static void sweep_commit(const char *call)
{
    for (int variant = 0; variant < 4; variant++) {
        uint64_t n = 1;

        while (!commit_with_fault(call, n, variant & 1, variant & 2))
            CHECK(++n < 1000);
        CHECK(n > 1); /* the call is made at all */
    }
}

static void every_call_of_a_commit_fails_once_or_for_good(void)
{
    static const char *const calls[] = {"os.*",         "heap.alloc", "os.pwrite",    "os.fsync",
                                        "os.fsync_dir", "os.link",    "os.fallocate", "os.unlink"};

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        sweep_commit(calls[i]);
}

static void short_and_interrupted_calls_are_no_failures(void)
{
    static const struct {
        const char *call;
        usm_status  status;
    } list[] = {{"os.pwrite.short", USM_OK}, {"os.pread.short", USM_OK}};
    test_file  f;
    usm__home *home;

    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        make_file(&f, "short.raw", 100, BLOCKS * BLOCK - 300);
        CHECK_INT(open_home(&f, USM_READ_WRITE, &home), USM_OK);
        CHECK(usm__fault_arm(list[i].call, 1, true, list[i].status));
        CHECK_INT(commit_blocks(home, some, 3, 1), USM_OK);
        CHECK(usm__fault_fired() > 0);
        usm__fault_disarm_all();
        usm__home_close(home);
        CHECK(holds(&f, some, 3, 1, 0) && !has_leftovers(&f));
        cases++;
    }
    /* Every other call is interrupted: each is made again. */
    for (uint64_t n = 1; n <= 12; n++) {
        make_file(&f, "interrupted.raw", 100, BLOCKS * BLOCK - 300);
        CHECK_INT(open_home(&f, USM_READ_WRITE, &home), USM_OK);
        CHECK(usm__fault_arm("os.pwrite", n, false, USM_E_AGAIN));
        CHECK(usm__fault_arm("os.pread", n, false, USM_E_AGAIN));
        CHECK(usm__fault_arm("os.fallocate", n, false, USM_E_AGAIN));
        CHECK_INT(commit_blocks(home, some, 3, 1), USM_OK);
        usm__fault_disarm_all();
        usm__home_close(home);
        CHECK(holds(&f, some, 3, 1, 0));
        cases++;
    }
}

/* Opening with a journal there: it fails by name, or has replayed; the next opening always has. */
static void every_call_of_an_opening_fails_once(void)
{
    static const char *const     calls[] = {"os.*", "heap.alloc"};
    static const usm_access_mode modes[] = {USM_READ, USM_READ_WRITE};

    for (int i = 0; i < 4; i++) {
        usm_status status = USM_E_IO;

        for (uint64_t n = 1; status != USM_OK || usm__fault_fired() > 0; n++) {
            test_file f;

            make_cut_off(&f, "open.raw");
            CHECK(usm__fault_arm(calls[i % 2], n, false, USM_OK));
            status = reopen(&f, modes[i / 2]);
            usm__fault_disarm_all();
            cases++;
            CHECK(status == USM_OK || status == USM_E_IO || status == USM_E_NO_MEMORY ||
                  status == USM_E_SPILL_FULL || status == USM_E_BUSY);
            CHECK_INT(reopen(&f, modes[1 - i / 2]), USM_OK);
            CHECK(holds(&f, some, 3, 1, 0) && !has_leftovers(&f));
            CHECK(n < 1000);
        }
    }
}

static void a_full_disk_is_told_before_anything_changes(void)
{
    test_file  f;
    usm__home *home;

    make_file(&f, "full.raw", 0, BLOCKS * BLOCK);
    CHECK_INT(open_home(&f, USM_READ_WRITE, &home), USM_OK);
    for (uint64_t n = 1; n <= 2; n++) { /* for the journal; for holes in the home */
        CHECK(usm__fault_arm("os.fallocate", n, true, USM_OK));
        CHECK_INT(commit_blocks(home, some, 3, 1), USM_E_SPILL_FULL);
        CHECK_IN("make room and commit again", usm_last_error());
        usm__fault_disarm_all();
        CHECK(holds(&f, some, 0, 0, 0) && !has_leftovers(&f));
        cases++;
    }
    CHECK_INT(commit_blocks(home, some, 3, 1), USM_OK);
    CHECK(holds(&f, some, 3, 1, 0));
    usm__home_close(home);
}

/* --- a journal that cannot be believed ---------------------------------------------------- */

/* One opening over a changed journal: refused with the home untouched, or wholly replayed. */
static bool is_refused(const test_file *f, const char *home_image, size_t home_size)
{
    usm_status status = reopen(f, USM_READ);
    size_t     size;
    char      *now;

    cases++;
    if (status == USM_OK) {
        CHECK(holds(f, some, 3, 1, 0) && !journal_is_there(f));
        return false;
    }
    CHECK_INT(status, USM_E_FORMAT);
    CHECK_IN("cannot be used", usm_last_error());
    now = slurp(f->path, &size);
    CHECK(size == home_size && memcmp(now, home_image, size) == 0);
    free(now);
    return true;
}

static void a_flipped_bit_is_never_applied(void)
{
    test_file f;
    size_t    home_size, size, at = 0;
    char     *home, *journal;
    long      refused = 0, flips = 0;

    make_cut_off(&f, "flip.raw");
    home    = slurp(f.path, &home_size);
    journal = slurp(journal_of(&f), &size);
    while (at < size) {
        char kept = journal[at];

        journal[at] = (char)(kept ^ (1 << at % 8)); /* NOLINT(bugprone-narrowing-conversions) */
        spew(f.path, home, home_size);
        spew(journal_of(&f), journal, size);
        refused += is_refused(&f, home, home_size);
        flips++;
        journal[at] = kept;
        /* Every byte of the header and of the table, and a sample of the rest. */
        at += at < 256 || (at >= 4096 && at < 4300) ? 1 : 37;
    }
    /* What may be flipped without harm is padding. */
    CHECK(refused > flips / 2 && refused < flips);
    printf("# %ld flipped bits: %ld refused, the rest in padding\n", flips, refused);
    free(home);
    free(journal);
}

static void a_journal_that_was_cut_is_never_applied(void)
{
    test_file f;
    size_t    home_size, size;
    char     *home, *journal;

    make_cut_off(&f, "cut.raw");
    home    = slurp(f.path, &home_size);
    journal = slurp(journal_of(&f), &size);
    for (size_t cut = 0; cut < size; cut += cut < 300 ? 1 : 509) {
        spew(f.path, home, home_size);
        spew(journal_of(&f), journal, cut);
        CHECK(is_refused(&f, home, home_size));
    }
    spew(journal_of(&f), journal, size);
    CHECK(!is_refused(&f, home, home_size));
    free(home);
    free(journal);
}

/* An inode is given to another file once its first one is gone: the time of birth differs then. */
static void a_journal_of_an_earlier_file_with_the_inode_is_refused(void)
{
    test_file            f;
    size_t               home_size, size;
    char                *home, *journal;
    usm__journal_header *h;

    make_cut_off(&f, "reborn.raw");
    home    = slurp(f.path, &home_size);
    journal = slurp(journal_of(&f), &size);
    h       = (usm__journal_header *)(void *)journal;
    if (h->birth_ns != 0) { /* else the file system has none */
        h->birth_ns++;
        usm__journal_seal(h, (usm__journal_entry *)(void *)(journal + USM__JOURNAL_PAGE));
        spew(journal_of(&f), journal, size);
        CHECK(is_refused(&f, home, home_size));
        h->birth_ns--;
        usm__journal_seal(h, (usm__journal_entry *)(void *)(journal + USM__JOURNAL_PAGE));
        spew(journal_of(&f), journal, size);
    }
    CHECK(!is_refused(&f, home, home_size));
    free(home);
    free(journal);
}

static void a_journal_of_another_file_is_refused(void)
{
    test_file f;
    size_t    size, home_size;
    char     *home;
    char      aside[600];

    make_cut_off(&f, "mine.raw");
    home = slurp(f.path, &home_size);
    (void)snprintf(aside, sizeof(aside), "%s.aside", f.path);
    CHECK(rename(f.path, aside) == 0);
    spew(f.path, home, home_size); /* the same bytes in another file */
    CHECK_INT(reopen(&f, USM_READ), USM_E_FORMAT);
    CHECK_IN("another file of that name", usm_last_error());
    CHECK(unlink(f.path) == 0);
    CHECK_INT(reopen(&f, USM_READ_WRITE_NO_INIT), USM_E_FORMAT);
    CHECK(access(f.path, F_OK) != 0); /* none is made */
    CHECK(rename(aside, f.path) == 0);
    CHECK_INT(truncate(f.path, (off_t)home_size - 500), 0);
    CHECK_INT(reopen(&f, USM_READ_WRITE_NO_INIT), USM_E_FORMAT);
    CHECK_IN("shorter", usm_last_error());
    spew(f.path, home, home_size);
    CHECK_INT(reopen(&f, USM_READ_WRITE_NO_INIT), USM_OK);
    CHECK(holds(&f, some, 3, 1, 0));
    free(home);
    (void)size;
}

static void a_journal_of_another_user_is_refused(void)
{
    test_file f;

    if (geteuid() != 0)
        SKIP("only root can give files away");
    make_cut_off(&f, "owner.raw");
    CHECK_INT(chown(journal_of(&f), 12345, 12345), 0);
    CHECK_INT(reopen(&f, USM_READ), USM_E_FORMAT);
    CHECK_IN("neither this user nor the file's owner", usm_last_error());
    CHECK_INT(chown(f.path, 12345, 12345), 0);
    CHECK_INT(reopen(&f, USM_READ), USM_OK);
    CHECK(holds(&f, some, 3, 1, 0));
}

static void a_link_or_a_folder_is_no_journal(void)
{
    test_file f;

    make_file(&f, "link.raw", 0, BLOCKS * BLOCK);
    CHECK_INT(symlink(f.path, journal_of(&f)), 0);
    CHECK_INT(reopen(&f, USM_READ), USM_E_IO);
    CHECK_INT(unlink(journal_of(&f)), 0);
    CHECK_INT(mkfifo(journal_of(&f), 0600), 0);
    CHECK_INT(reopen(&f, USM_READ), USM_E_FORMAT); /* and does not wait for a writer */
    CHECK_INT(unlink(journal_of(&f)), 0);
    CHECK_INT(reopen(&f, USM_READ), USM_OK);
}

/* --- who may not write ------------------------------------------------------------------- */

static test_file shared;

static void as_nobody_refused(void)
{
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK_INT(reopen(&shared, USM_READ), USM_E_READ_ONLY);
    CHECK_IN("must be completed", usm_last_error());
    CHECK_INT(reopen(&shared, USM_READ_WRITE), USM_E_IO);
}

static void who_cannot_replay_does_not_read_half_a_commit(void)
{
    if (geteuid() != 0)
        SKIP("only root can become somebody else");
    make_cut_off(&shared, "shared.raw");
    CHECK_INT(chmod(plain.folder, 0755), 0);
    CHECK_INT(chmod(shared.path, 0644), 0);
    CHECK_INT(chmod(journal_of(&shared), 0644), 0);
    CHECK_INT(plain_child(as_nobody_refused, NULL), 0);
    CHECK(journal_is_there(&shared));
    CHECK_INT(reopen(&shared, USM_READ), USM_OK);
    CHECK(holds(&shared, some, 3, 1, 0));
}

static void as_nobody_marked(void)
{
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK_INT(reopen(&shared, USM_READ), USM_OK);
}

/* The name cannot be removed: the journal says by itself that it is done, and is never replayed
 * over what others write later. */
static void where_names_stay_the_journal_is_marked(void)
{
    int fd;

    if (geteuid() != 0)
        SKIP("only root can become somebody else");
    make_cut_off(&shared, "marked.raw");
    CHECK_INT(chmod(plain.folder, 0755), 0);
    CHECK_INT(chmod(shared.path, 0666), 0);
    CHECK_INT(chmod(journal_of(&shared), 0666), 0);
    CHECK_INT(plain_child(as_nobody_marked, NULL), 0);
    CHECK(journal_is_there(&shared));
    CHECK(holds(&shared, some, 3, 1, 0));
    fd = open(shared.path, O_RDWR | O_CLOEXEC);
    CHECK(pwrite(fd, "mine", 4, 100) == 4 && close(fd) == 0);
    CHECK_INT(reopen(&shared, USM_READ_WRITE), USM_OK);
    CHECK(!journal_is_there(&shared));
    fd = open(shared.path, O_RDONLY | O_CLOEXEC);
    {
        char mine[4];

        CHECK(pread(fd, mine, 4, 100) == 4 && memcmp(mine, "mine", 4) == 0 && close(fd) == 0);
    }
}

static void the_journal_is_no_more_open_than_its_home(void)
{
    test_file   f;
    struct stat st;
    usm__home  *home;

    make_file(&f, "private.raw", 0, BLOCKS * BLOCK);
    CHECK_INT(chmod(f.path, 0640), 0);
    CHECK_INT(open_home(&f, USM_READ_WRITE, &home), USM_OK);
    CHECK(usm__fault_arm("os.pread", 1, true, USM_OK));
    CHECK_INT(commit_blocks(home, some, 3, 1), USM_E_IO);
    usm__fault_disarm_all();
    CHECK(stat(journal_of(&f), &st) == 0);
    CHECK((st.st_mode & 07777 & ~0640) == 0);
    usm__home_close(home);
}

/* --- one writer ---------------------------------------------------------------------------- */

static void as_another_process(void)
{
    usm__home *home;

    CHECK_INT(open_home(&shared, USM_READ_WRITE, &home), USM_E_BUSY);
    CHECK_INT(open_home(&shared, USM_READ, &home), USM_E_BUSY);
    CHECK_IN("one writer", usm_last_error());
}

static void as_another_reader(void)
{
    usm__home *home;

    CHECK_INT(open_home(&shared, USM_READ_WRITE, &home), USM_E_BUSY);
    CHECK_INT(open_home(&shared, USM_READ, &home), USM_OK);
}

static void a_file_has_one_writer_or_many_readers(void)
{
    usm__home *home, *second;
    char       name[600];

    make_file(&shared, "one.raw", 0, BLOCKS * BLOCK);
    (void)snprintf(name, sizeof(name), "%s.link", shared.path);
    CHECK_INT(symlink(shared.path, name), 0);
    CHECK_INT(open_home(&shared, USM_READ_WRITE, &home), USM_OK);
    CHECK_INT(open_home(&shared, USM_READ, &second), USM_E_BUSY);
    CHECK_INT(plain_child(as_another_process, NULL), 0);
    usm__home_close(home);
    CHECK_INT(open_home(&shared, USM_READ, &home), USM_OK);
    CHECK_INT(open_home(&shared, USM_READ, &second), USM_OK);
    CHECK_INT(plain_child(as_another_reader, NULL), 0);
    usm__home_close(home);
    usm__home_close(second);
    /* By another name the journal is the same. */
    make_cut_off(&shared, "one.raw");
    memcpy(shared.path, name, sizeof(shared.path));
    CHECK_INT(reopen(&shared, USM_READ), USM_OK);
    CHECK(holds(&shared, some, 3, 1, 0));
}

static void so_many_cases(void)
{
    printf("# journal: %ld cases, nothing lost\n", cases);
    CHECK(cases > 500);
}

int main(int argc, char **argv)
{
    static const plain_case list[] = {
        CASE(a_commit_changes_its_blocks_and_leaves_no_journal),
        CASE(a_block_that_cannot_be_had_leaves_all_as_it_was),
        CASE(a_home_for_reading_takes_no_commit),
        CASE(every_call_of_a_commit_fails_once_or_for_good),
        CASE(short_and_interrupted_calls_are_no_failures),
        CASE(every_call_of_an_opening_fails_once),
        CASE(a_full_disk_is_told_before_anything_changes),
        CASE(a_flipped_bit_is_never_applied),
        CASE(a_journal_that_was_cut_is_never_applied),
        CASE(a_journal_of_an_earlier_file_with_the_inode_is_refused),
        CASE(a_journal_of_another_file_is_refused),
        CASE(a_journal_of_another_user_is_refused),
        CASE(a_link_or_a_folder_is_no_journal),
        CASE(who_cannot_replay_does_not_read_half_a_commit),
        CASE(where_names_stay_the_journal_is_marked),
        CASE(the_journal_is_no_more_open_than_its_home),
        CASE(a_file_has_one_writer_or_many_readers),
        CASE(so_many_cases),
        {NULL, NULL},
    };

    small_transport_use();
    return plain_main(argc, argv, list);
}
