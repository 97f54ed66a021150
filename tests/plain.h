/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a test program in plain C needs: checks, a table of cases, skips,
 * children, a folder.  A program is one file:
 *
 *     static void blocks_are_reused(void) { CHECK(...); }
 *     static const plain_case cases[] = {CASE(blocks_are_reused), {NULL, NULL},};
 *     int main(int argc, char **argv) { return plain_main(argc, argv, cases); }
 *
 * Cases run one after the other in one process, so that leak checkers see them.
 * With arguments only the cases so named run.  Exit status: 0 all passed, 1 one
 * failed, 2 no such case, 77 all were skipped (with USM_TEST_NO_SKIP=1: any). */
#ifndef PLAIN_H
#define PLAIN_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLAIN_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PLAIN_SANITIZED 1
#endif
#endif
#ifndef PLAIN_SANITIZED
#define PLAIN_SANITIZED 0
#endif

/* ThreadSanitizer lets no child of a process with threads start one. */
#if defined(__SANITIZE_THREAD__)
#define PLAIN_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PLAIN_TSAN 1
#endif
#endif
#ifndef PLAIN_TSAN
#define PLAIN_TSAN 0
#endif

#define PLAIN_ASAN (PLAIN_SANITIZED && !PLAIN_TSAN)

typedef struct plain_case {
    const char *name; /* a sentence */
    void (*run)(void);
} plain_case;

#define CASE(function)                                                                             \
    {                                                                                              \
#function, function                                                                        \
    }

/* A failed check ends the case; in another thread or a child, the process. */
#define CHECK(expr)     ((expr) ? (void)0 : plain_fail(__FILE__, __LINE__, #expr))
#define CHECK_INT(a, b) plain_check_int((long long)(a), (long long)(b), __FILE__, __LINE__, #a)
#define CHECK_STR(a, b) plain_check_str((a), (b), __FILE__, __LINE__, #a)
/* `part` occurs in `whole`. */
#define CHECK_IN(part, whole) plain_check_in((part), (whole), __FILE__, __LINE__)
/* Ends the case, for a reason that lies in the machine. */
#define SKIP(reason) plain_skip(reason)

enum { PLAIN_FAILED = 1, PLAIN_SKIPPED = 2 };

static struct {
    jmp_buf     end_of_case;
    pthread_t   runner;
    bool        in_child;
    const char *skip_reason;
    char        folder[256];
} plain;

_Noreturn static inline void plain_end(void)
{
    (void)fflush(stdout);
    if (plain.in_child || !pthread_equal(plain.runner, pthread_self()))
        _exit(1);
    longjmp(plain.end_of_case, PLAIN_FAILED);
}

_Noreturn static inline void plain_fail(const char *file, int line, const char *what)
{
    printf("# %s:%d: failed: %s\n", file, line, what);
    plain_end();
}

static inline void plain_check_int(long long a, long long b, const char *file, int line,
                                   const char *what)
{
    if (a == b)
        return;
    printf("# %s:%d: %s is %lld, not %lld\n", file, line, what, a, b);
    plain_end();
}

static inline void plain_check_str(const char *a, const char *b, const char *file, int line,
                                   const char *what)
{
    if (a != NULL && strcmp(a, b) == 0)
        return;
    printf("# %s:%d: %s is \"%s\", not \"%s\"\n", file, line, what, a != NULL ? a : "(null)", b);
    plain_end();
}

static inline void plain_check_in(const char *part, const char *whole, const char *file, int line)
{
    if (whole != NULL && strstr(whole, part) != NULL)
        return;
    printf("# %s:%d: \"%s\" is not in \"%s\"\n", file, line, part,
           whole != NULL ? whole : "(null)");
    plain_end();
}

/* pre: called by the case itself, not by a child or thread of it. */
_Noreturn static inline void plain_skip(const char *reason)
{
    plain.skip_reason = reason;
    longjmp(plain.end_of_case, PLAIN_SKIPPED);
}

/* The path of `name` in a folder of the program's own, which is removed at its
 * end. Up to four paths can be used at a time. */
static inline const char *plain_path(const char *name)
{
    static char     paths[4][512];
    static unsigned n;
    const char     *tmp  = getenv("TMPDIR");
    char           *path = paths[n++ % 4];

    if (plain.folder[0] == '\0') {
        (void)snprintf(plain.folder, sizeof(plain.folder), "%.200s/usm-plain.XXXXXX",
                       tmp != NULL ? tmp : "/tmp");
        if (mkdtemp(plain.folder) == NULL) {
            perror(plain.folder);
            exit(1);
        }
    }
    (void)snprintf(path, sizeof(paths[0]), "%s/%.200s", plain.folder, name);
    return path;
}

/* The file's text, at most size - 1 bytes; "" when it is not there. */
static inline const char *plain_read(const char *path, char *text, size_t size)
{
    FILE  *file = fopen(path, "re");
    size_t n    = 0;

    if (file != NULL) {
        n = fread(text, 1, size - 1, file);
        (void)fclose(file);
    }
    text[n] = '\0';
    return text;
}

/* Until the thread (gettid()) sleeps in a system call. */
static inline void plain_await_sleep(int tid)
{
    char path[64], text[512] = "";

    (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    while (strstr(text, ") S ") == NULL) {
        (void)usleep(100);
        CHECK(plain_read(path, text, sizeof text)[0] != '\0');
    }
}

#if PLAIN_ASAN
static inline bool plain_others_sleep(void)
{
    DIR *tasks = opendir("/proc/self/task");
    bool sleep = true;

    for (struct dirent *d; tasks != NULL && (d = readdir(tasks)) != NULL;) {
        char path[64], text[512];

        if (d->d_name[0] == '.' || atoi(d->d_name) == gettid())
            continue;
        (void)snprintf(path, sizeof path, "/proc/self/task/%.16s/stat", d->d_name);
        (void)plain_read(path, text, sizeof text);
        sleep = sleep && (text[0] == '\0' || strstr(text, ") S ") != NULL);
    }
    if (tasks != NULL)
        (void)closedir(tasks);
    return sleep;
}

/* AddressSanitizer of GCC 12 does not keep its heap from a fork(): a thread that is in malloc() at
 * that moment, or ends, leaves the child a lock that nobody opens.  A thread that sleeps is in no
 * malloc().  One that never sleeps gets 50 ms. */
static inline void plain_before_fork(void)
{
    for (int i = 0; i < 500 && !plain_others_sleep(); i++)
        (void)usleep(100);
}

__attribute__((constructor)) static inline void plain_guard_forks(void)
{
    (void)pthread_atfork(plain_before_fork, NULL, NULL);
}
#endif

static inline void plain_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK(fclose(file) == 0);
}

/* Runs `fn` in a child whose stderr goes to the file `errors` (NULL: stays); the
 * wait status: 0 when it came back, WIFSIGNALED when it died. */
static inline int plain_child(void (*fn)(void), const char *errors)
{
    int   status = -1;
    pid_t pid;

    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        plain.in_child = true;
        (void)alarm(100); /* a child that hangs is a failure too */
        if (errors != NULL && dup2(creat(errors, 0600), STDERR_FILENO) < 0)
            _exit(1);
        fn();
        (void)fflush(NULL);
        _exit(0);
    }
    CHECK(pid > 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static inline int plain_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline bool plain_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc == 1;
}

static inline int plain_run(const plain_case *c)
{
    int end = setjmp(plain.end_of_case);

    if (end == 0)
        c->run();
    return end;
}

/* By hand, all drivers of the machine play a part, and the folders of the user. */
static inline void plain_tell_of_runtimes(const char *program)
{
    if (getenv("USM_TEST_ID") == NULL)
        printf("# not run as CTest does: tests/with-runtime.sh RUNTIME %s [case]...\n"
               "# RUNTIME: what stands behind the @ of the test's name in `ctest -N`, else none\n",
               program);
}

static inline int plain_main(int argc, char **argv, const plain_case *cases)
{
    const char *no_skip  = getenv("USM_TEST_NO_SKIP");
    int         count[3] = {0, 0, 0};
    int         n        = 0;

    plain.runner = pthread_self();
    for (; cases->name != NULL; cases++) {
        int end;

        if (!plain_wanted(cases->name, argc, argv))
            continue;
        end = plain_run(cases);
        count[end]++;
        printf("%s %d %s%s%s\n", end == PLAIN_FAILED ? "not ok" : "ok", ++n, cases->name,
               end == PLAIN_SKIPPED ? " # SKIP " : "",
               end == PLAIN_SKIPPED ? plain.skip_reason : "");
        (void)fflush(stdout);
    }
    printf("1..%d\n# %d passed, %d failed, %d skipped\n", n, count[0], count[PLAIN_FAILED],
           count[PLAIN_SKIPPED]);
    if (plain.folder[0] != '\0')
        (void)nftw(plain.folder, plain_remove, 16, FTW_DEPTH | FTW_PHYS);
    if (n == 0)
        return 2;
    if (count[PLAIN_FAILED] > 0) {
        plain_tell_of_runtimes(argv[0]);
        return 1;
    }
    if (count[PLAIN_SKIPPED] == n)
        return 77;
    return no_skip != NULL && strcmp(no_skip, "1") == 0 && count[PLAIN_SKIPPED] > 0 ? 77 : 0;
}

#endif
