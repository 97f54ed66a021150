/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Managed memory where something is against it: system calls that fail, blocks that come back
 * corrupt, kill -9, exit and signals while it is touched, and a program that locks, drops, unmaps or
 * moves pages.  Each runs in a process of its own: it ends well, or by the signal and the line that
 * docs/managed.md says. */
#include "base/fault.h"
#include "base/inline/atomic.h"

#include <plain.h>
#include <usm/usm.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB   ((size_t)1 << 10)
#define MIB   ((size_t)1 << 20)
#define BLOCK (64 * KIB)
#define LIMIT (2 * MIB)
#define SIZE  (8 * LIMIT)
#define WORDS (SIZE / sizeof(uint64_t))
#define STEP  512 /* words: one in each page */

enum { ENDED_WELL = 42, BY_SIGNAL = 43 };

static uint64_t value_of(size_t i, uint64_t salt)
{
    return (i + salt) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

/* volatile: the compiler may leave out what nobody reads. */
static void write_all(volatile uint64_t *x, uint64_t salt)
{
    for (size_t i = 0; i < WORDS; i += STEP)
        x[i] = value_of(i, salt);
}

static int has_all(const volatile uint64_t *x, uint64_t salt)
{
    for (size_t i = 0; i < WORDS; i += STEP)
        if (x[i] != value_of(i, salt))
            return 0;
    return 1;
}

static void end_at_signal(int signal)
{
    (void)signal;
    _exit(BY_SIGNAL);
}

/* An access that is not served ends the process with BY_SIGNAL.  SIGSEGV: before Linux 6.6. */
static uint64_t *begin(void)
{
    (void)signal(SIGBUS, end_at_signal);
    (void)signal(SIGSEGV, end_at_signal);
    return usm_alloc_managed(SIZE);
}

/* ---- the programs: what runs in a process of its own ------------------------------------------ */

/* A call fails once, at its n-th time; what was written is read, or the access is not served. */
static int fail_once(const char *point, const char *n)
{
    uint64_t *x = begin();

    usm__fault_arm(point, strtoull(n, NULL, 10), false, USM_OK);
    for (uint64_t pass = 0; pass < 3; pass++) {
        write_all(x, pass);
        if (!has_all(x, pass))
            return 1;
    }
    usm__fault_disarm_all();
    usm_free(x);
    return ENDED_WELL;
}

/* The tiers are full, and the block cannot be poisoned. */
static int fail_to_poison(const char *a, const char *b)
{
    uint64_t *x = begin();

    (void)a;
    (void)b;
    usm__fault_arm("os.uffd_poison", 1, true, USM_OK);
    write_all(x, 1);
    return 1;
}

/* Writes over each scratch file of this process. */
static int spoil_files(void)
{
    DIR *list    = opendir("/proc/self/fd");
    int  spoiled = 0;

    for (const struct dirent *e; list && (e = readdir(list)) != NULL;) {
        char    path[300], target[300] = "", *junk = calloc(1, SIZE);
        int     file;
        ssize_t n;

        (void)snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        n = readlink(path, target, sizeof target - 1);
        if (n > 0 && strstr(target, "(deleted)") && !strstr(target, "memfd:") && junk) {
            file = open(path, O_WRONLY);
            (void)memset(junk, 0x5a, SIZE);
            spoiled +=
                file >= 0 && pwrite(file, junk, SIZE, 0) == (ssize_t)SIZE && fsync(file) == 0;
            (void)close(file);
        }
        free(junk);
    }
    if (list)
        (void)closedir(list);
    return spoiled;
}

static int read_corrupt(const char *a, const char *b)
{
    uint64_t *x = begin();

    (void)a;
    (void)b;
    write_all(x, 1);
    if (spoil_files() == 0)
        return 2;
    return has_all(x, 1) ? 3 : 1; /* wrong data would be the worst */
}

static int fill_and_wait(const char *a, const char *b)
{
    uint64_t *x = begin();

    (void)a;
    (void)b;
    write_all(x, 1);
    if (write(STDERR_FILENO, "full", 4) == 4)
        (void)pause();
    return 1;
}

static void *touch_for_ever(void *arg)
{
    volatile uint64_t *x = arg;

    for (size_t i = 0;; i = (i + 37 * STEP) % WORDS)
        x[i] = x[i] + 1;
    return NULL;
}

static int exit_with_faults_pending(const char *a, const char *b)
{
    uint64_t *x = begin();
    pthread_t t;

    (void)a;
    (void)b;
    for (size_t i = 0; i < 4; i++)
        if (pthread_create(&t, NULL, touch_for_ever, x + i * 8) != 0)
            return 1;
    write_all(x + 64, 1);
    exit(ENDED_WELL);
}

static uint64_t *of_handler;
static size_t    runs_of_handler;

static void read_in_handler(int signal)
{
    const volatile uint64_t *x = of_handler;
    size_t                   i = runs_of_handler++ * 41 * STEP % WORDS;

    if (x[i] != value_of(i, 5))
        _exit(1);
    if (signal == SIGSEGV)
        _exit(ENDED_WELL);
}

/* A handler of a crash reads what is not in memory. */
static int crash_and_read(const char *a, const char *b)
{
    (void)a;
    (void)b;
    of_handler = begin();
    write_all(of_handler, 5);
    (void)signal(SIGSEGV, read_in_handler);
    (void)raise(SIGSEGV);
    return 1;
}

/* Signals come in the middle of accesses that wait, and their handler makes others. */
static int read_in_signals(const char *a, const char *b)
{
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    uint64_t              *y = begin();

    (void)a;
    (void)b;
    of_handler = usm_alloc_managed(SIZE);
    write_all(of_handler, 5);
    (void)signal(SIGALRM, read_in_handler);
    (void)setitimer(ITIMER_REAL, &often, NULL);
    for (uint64_t pass = 0; pass < 3; pass++) {
        write_all(y, pass);
        if (!has_all(y, pass))
            return 1;
    }
    (void)setitimer(ITIMER_REAL, &never, NULL);
    return runs_of_handler > 0 ? ENDED_WELL : 2;
}

/* All of it is locked in memory, which cannot be. */
static int lock_all(const char *a, const char *b)
{
    uint64_t *x = begin();

    (void)a;
    (void)b;
    write_all(x, 1);
    if (mlock(x, SIZE) != 0)
        return errno == EPERM || errno == ENOMEM ? ENDED_WELL : 1;
    for (uint64_t pass = 1; pass < 4; pass++) {
        if (!has_all(x, pass))
            return 2;
        write_all(x, pass + 1);
    }
    if (munlock(x, SIZE) != 0 || !has_all(x, 4))
        return 3;
    return usm_free_ctx(x, NULL) == USM_OK ? ENDED_WELL : 4;
}

/* The program drops pages that it has written.  An access to one of them ends by the signal and a
 * line, that of the library which is to store them too; what it reads is never wrong. */
static int drop_pages(const char *a, const char *b)
{
    uint64_t *x = begin();

    (void)a;
    (void)b;
    write_all(x, 1);
    write_all(x, 2);
    if (madvise(x + WORDS - 2 * BLOCK / 8, 4 * KIB, MADV_DONTNEED) != 0)
        return 1;
    return has_all(x, 2) ? 2 : 3;
}

/* Pages that were only read may be dropped: their content is stored. */
static int drop_clean_pages(const char *a, const char *b)
{
    uint64_t *x = begin();

    (void)a;
    (void)b;
    write_all(x, 1);
    for (size_t i = 0; i < WORDS; i += BLOCK / 8) {
        if (x[i] != value_of(i, 1))
            return 1;
        if (i % (WORDS / 2) == 0 && madvise(x + i, 4 * KIB, MADV_FREE) != 0)
            return 2;
    }
    if (!has_all(x, 1))
        return 3;
    return usm_free_ctx(x, NULL) == USM_OK ? ENDED_WELL : 4;
}

typedef struct program {
    const char *name;
    int (*run)(const char *a, const char *b);
} program;

static const program programs[] = {
    {"fail_once", fail_once},
    {"fail_to_poison", fail_to_poison},
    {"read_corrupt", read_corrupt},
    {"fill_and_wait", fill_and_wait},
    {"exit_with_faults_pending", exit_with_faults_pending},
    {"crash_and_read", crash_and_read},
    {"read_in_signals", read_in_signals},
    {"lock_all", lock_all},
    {"drop_pages", drop_pages},
    {"drop_clean_pages", drop_clean_pages},
};

/* ---- running them ------------------------------------------------------------------------------ */

/* Skips the case where the machine does not allow managed memory. */
static void need_managed(void)
{
    void *p = usm_alloc_managed(1);

    if (!p && usm_last_status() == USM_E_NOT_SUPPORTED)
        SKIP(usm_last_error());
    usm_free(p);
}

/* Starts a program; *out: its stderr. */
static pid_t start(const char *name, const char *a, const char *b, const char *spill, int *out)
{
    int   pipes[2];
    pid_t child;

    need_managed();
    CHECK_INT(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        (void)dup2(pipes[1], STDERR_FILENO);
        (void)setenv("USM_SPILL", spill, 1);
        (void)alarm(60);
        (void)execl("/proc/self/exe", "test_managed_edges", "--program", name, a, b, (char *)NULL);
        _exit(3);
    }
    (void)close(pipes[1]);
    *out = pipes[0];
    return child;
}

static char said[8192];

/* How a program ended; `said`: what it said. */
static int run(const char *name, const char *a, const char *b, const char *spill)
{
    size_t n = 0;
    int    out, status;
    pid_t  child = start(name, a, b, spill, &out);

    for (ssize_t got; n < sizeof said - 1 && (got = read(out, said + n, sizeof said - 1 - n)) > 0;)
        n += (size_t)got;
    said[n] = '\0';
    (void)close(out);
    CHECK_INT(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status))
        printf("# %s %s %s ended by signal %d: %s\n", name, a, b, WTERMSIG(status), said);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_call_that_fails_loses_nothing(void)
{
    static const char *const points[] = {"os.uffd_move", "os.uffd_copy", "os.uffd_protect",
                                         "os.uffd_poison", "os.madvise"};
    static const char *const counts[] = {"1", "2", "9", "50"};

    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            int ended = run("fail_once", points[i], counts[k], "file:/var/tmp");

            if (ended != ENDED_WELL)
                printf("# %s %s: %s\n", points[i], counts[k], said);
            CHECK(ended == ENDED_WELL || ended == BY_SIGNAL);
            if (ended == BY_SIGNAL)
                CHECK_IN("managed memory: the access to", said);
        }
}

static void a_block_that_cannot_be_poisoned_ends_the_access(void)
{
    CHECK_INT(run("fail_to_poison", "", "", "file:/var/tmp,quota=1M"), BY_SIGNAL);
    CHECK_IN("managed memory: the access to", said);
}

static void a_corrupt_block_ends_the_access(void)
{
    CHECK_INT(run("read_corrupt", "", "", "file:/var/tmp"), BY_SIGNAL);
    CHECK_IN("managed memory: the access to", said);
    CHECK_IN("the data read back is not what was stored", said);
}

static void a_killed_process_leaves_no_file(void)
{
    char  folder[] = "/var/tmp/usm-managed.XXXXXX", spill[64], text[4];
    int   out, status;
    pid_t child;

    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(spill, sizeof spill, "file:%s", folder);
    child = start("fill_and_wait", "", "", spill, &out);
    for (size_t n = 0; n < 4;) { /* messages come before "full" */
        ssize_t got = read(out, text, 1);

        CHECK(got == 1);
        n = text[0] == "full"[n] ? n + 1 : text[0] == 'f';
    }
    CHECK_INT(kill(child, SIGKILL), 0);
    CHECK_INT(waitpid(child, &status, 0), child);
    (void)close(out);
    CHECK_INT(rmdir(folder), 0); /* it is empty */
}

static void the_process_may_end_at_any_time(void)
{
    CHECK_INT(run("exit_with_faults_pending", "", "", "file:/var/tmp"), ENDED_WELL);
}

static void handlers_of_signals_may_touch_it(void)
{
    CHECK_INT(run("crash_and_read", "", "", "file:/var/tmp"), ENDED_WELL);
    CHECK_INT(run("read_in_signals", "", "", "file:/var/tmp"), ENDED_WELL);
}

static void it_may_be_locked(void)
{
    CHECK_INT(run("lock_all", "", "", "file:/var/tmp"), ENDED_WELL);
}

static void pages_that_the_program_drops_are_never_read_wrong(void)
{
    CHECK_INT(run("drop_pages", "", "", "file:/var/tmp"), BY_SIGNAL);
    CHECK_IN("the program has taken the page away", said);
    CHECK_INT(run("drop_clean_pages", "", "", "file:/var/tmp"), ENDED_WELL);
}

static const plain_case cases[] = {
    CASE(a_call_that_fails_loses_nothing),
    CASE(a_block_that_cannot_be_poisoned_ends_the_access),
    CASE(a_corrupt_block_ends_the_access),
    CASE(a_killed_process_leaves_no_file),
    CASE(the_process_may_end_at_any_time),
    CASE(handlers_of_signals_may_touch_it),
    CASE(it_may_be_locked),
    CASE(pages_that_the_program_drops_are_never_read_wrong),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    (void)setenv("USM_MEMORY_LIMIT", "host:2M", 1);
    (void)setenv("USM_SPILL_BLOCK", "64K", 1);
    (void)setenv("USM_SPILL_WAIT", "200", 1);
    (void)setenv("USM_LOG", "error", 1);
    for (size_t i = 0; argc == 5 && i < sizeof programs / sizeof *programs; i++)
        if (strcmp(argv[1], "--program") == 0 && strcmp(argv[2], programs[i].name) == 0)
            return programs[i].run(argv[3], argv[4]);
    return plain_main(argc, argv, cases);
}
