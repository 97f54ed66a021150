/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests of several processes that are children of one which never uses libusm: a page they share,
 * and what became of each.  Every wait ends. */
#ifndef GROUP_H
#define GROUP_H

#include "plain.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#define GROUP_MAX     16
#define GROUP_WAIT_MS 30000

/* LeakSanitizer's, when it is there: children end by _exit(), past its own check. */
/* NOLINTNEXTLINE(bugprone-reserved-identifier): it is its name */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* ThreadSanitizer's: no pause of a second at the end of each process. */
/* NOLINTNEXTLINE(bugprone-reserved-identifier): it is its name */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
/* NOLINTNEXTLINE(bugprone-reserved-identifier) */
const char *__tsan_default_options(void)
{
    return "atexit_sleep_ms=0";
}

typedef struct group_page {
    _Atomic(int)     ready, go;
    _Atomic(int)     step[GROUP_MAX];
    _Atomic(int64_t) value[GROUP_MAX][16];
    unsigned char    bytes[8192];
} group_page;

typedef struct group {
    group_page *page;
    int         n;
    pid_t       pid[GROUP_MAX];
    bool        has_ended[GROUP_MAX];
    int         status[GROUP_MAX];
    char        name[48]; /* of its own, for channels                                       */
} group;

static inline void group_sleep_ms(int ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

    (void)nanosleep(&t, NULL);
}

static inline void group_begin(group *g)
{
    static unsigned serial;

    *g = (group){.n = 0};
    g->page =
        mmap(NULL, sizeof *g->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(g->page != MAP_FAILED);
    (void)snprintf(g->name, sizeof g->name, "test-%d-%u", (int)getpid(), serial++);
}

/* One more child, which runs fn(g, its number); the number. */
static inline int group_add(group *g, void (*fn)(group *g, int rank))
{
    const int rank = g->n++;

    CHECK(rank < GROUP_MAX);
    (void)fflush(NULL);
    g->pid[rank] = fork();
    if (g->pid[rank] == 0) {
        plain.in_child = true;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(2 * GROUP_WAIT_MS / 1000); /* a child that hangs is a failure too */
        fn(g, rank);
        (void)fflush(NULL);
        _exit(__lsan_do_recoverable_leak_check != NULL && __lsan_do_recoverable_leak_check() ? 23
                                                                                             : 0);
    }
    CHECK(g->pid[rank] > 0);
    return rank;
}

static inline void group_start(group *g, int n, void (*fn)(group *g, int rank))
{
    group_begin(g);
    while (g->n < n)
        (void)group_add(g, fn);
}

/* Until *flag is at least that; false: not within the time. */
static inline bool group_wait_for(const _Atomic(int) *flag, int value)
{
    int ms = 0;

    for (; atomic_load(flag) < value && ms < GROUP_WAIT_MS; ms++)
        group_sleep_ms(1);
    return atomic_load(flag) >= value;
}

/* How one ended: wait()'s status; -1: it did not, and was killed. */
static inline int group_end_of(group *g, int rank)
{
    int ms = 0;

    while (!g->has_ended[rank]) {
        if (waitpid(g->pid[rank], &g->status[rank], WNOHANG) == g->pid[rank]) {
            g->has_ended[rank] = true;
        } else if (ms++ >= GROUP_WAIT_MS) {
            (void)kill(g->pid[rank], SIGKILL);
            (void)waitpid(g->pid[rank], NULL, 0);
            g->status[rank]    = -1;
            g->has_ended[rank] = true;
        } else {
            group_sleep_ms(1);
        }
    }
    return g->status[rank];
}

static inline void group_kill(group *g, int rank)
{
    CHECK(kill(g->pid[rank], SIGKILL) == 0);
    (void)group_end_of(g, rank);
}

/* All others ended well (killed ones by the signal): else the case fails. */
static inline void group_end(group *g)
{
    int bad = 0;

    for (int r = 0; r < g->n; r++) {
        const int status = group_end_of(g, r);

        if (status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && status != -1)) {
            printf("# process %d of %d ended with 0x%x\n", r, g->n, (unsigned)status);
            bad++;
        }
    }
    (void)munmap(g->page, sizeof *g->page);
    CHECK_INT(bad, 0);
}

/* Entries of a folder whose names have `part` in them; "": all. */
static inline int group_count(const char *folder, const char *part)
{
    DIR           *dir = opendir(folder);
    struct dirent *entry;
    int            n = 0;

    if (dir == NULL)
        return 0;
    while ((entry = readdir(dir)) != NULL) /* NOLINT(concurrency-mt-unsafe) */
        n += strstr(entry->d_name, part) != NULL;
    (void)closedir(dir);
    return n;
}

static inline int group_descriptors(void)
{
    return group_count("/proc/self/fd", "");
}

/* Mappings of memory files of libusm. */
static inline int group_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char  line[512];
    int   n = 0;

    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        n += strstr(line, "/memfd:usm") != NULL;
    (void)fclose(maps);
    return n;
}

#endif
