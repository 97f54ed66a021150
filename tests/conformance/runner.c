/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The runner of the conformance suite (runner.h).
 *
 *     conformance [--list] [--each-alone] [PATTERN...]
 *
 * Runs the tests whose "suite/name" matches one of the shell patterns, all without any.  --list
 * names them.  --each-alone gives each test a process of its own, for drivers that a crash in one
 * test is expected of.  Output and exit status are those of tests/plain.h: 0 all passed, 1 one
 * failed, 2 no such test, 77 all were skipped.
 *
 * Parent and child share one page: the child writes there which test it is in and how each ended,
 * and the parent reads it when the child is dead. */
#include "runner.h"

#include <fnmatch.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <usm/usm.h>

/* Seconds that a test may take.  Sanitizers and busy machines are slow. */
#define LIMIT_S 240

#define MAX_TESTS 1000

typedef enum outcome { PASSED, FAILED, SKIPPED, OUTCOMES } outcome;

typedef struct progress {
    size_t  next;    /* the index of the test after the last that began */
    bool    running; /* that one has not ended */
    outcome last;    /* how it ended */
    int     count[OUTCOMES];
} progress;

static test_case *first, **end_of_list = &first;

static const test_case
             *tests[MAX_TESTS]; /* to be run: those that share a process, then the others */
static size_t ntests, nshared;

static progress        *shared; /* with the parent */
static const test_case *current;
static pid_t            runner; /* the process that runs tests */
static jmp_buf          end_of_test;
static const char      *skip_reason;

void test_add(test_case *t)
{
    *end_of_list = t;
    end_of_list  = &t->next;
}

const test_case *test_current(void)
{
    return current;
}

/* `why`: of a skip or a death, else "". */
static void end_test(const test_case *t, outcome o, const char *why)
{
    static const char *const status[] = {"PASSED", "FAILED", "SKIPPED"};

    shared->running = false;
    shared->last    = o;
    shared->count[o]++;
    printf("%s %zu %s/%s%s%s\n", o == FAILED ? "not ok" : "ok", shared->next, t->suite, t->name,
           o == SKIPPED ? " # SKIP "
           : *why       ? " # "
                        : "",
           why);
    (void)fflush(stdout);
    record_end(t, status[o], o == FAILED && *why ? "crashed" : "");
}

void test_fail(const char *file, int line, const char *format, ...)
{
    char    text[2048];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("# %s:%d: failed: %s\n", file, line, text);
    (void)fflush(stdout);
    if (getpid() == runner && shared->running)
        end_test(current, FAILED, "");
    _exit(1);
}

void test_skip(const char *reason)
{
    skip_reason = reason;
    longjmp(end_of_test, 1);
}

/* --- the child -------------------------------------------------------------------------------- */

static void run(const test_case *t, bool is_last)
{
    current         = t;
    shared->running = true;
    (void)alarm(LIMIT_S);
    if (setjmp(end_of_test)) {
        end_test(t, SKIPPED, skip_reason);
    } else {
        t->run();
        if (!is_last)
            usm_shutdown(); /* the default context is the test's, and so is a crash in its end */
        end_test(t, PASSED, "");
    }
    (void)alarm(0);
}

_Noreturn static void run_tests(size_t begin, size_t end)
{
    runner = getpid();
    for (size_t i = begin; i < end; i++) {
        shared->next = i + 1;
        if (i > begin && usm_init()) /* as before the first use: started, with no default context */
            abort();
        run(tests[i], i + 1 == end);
    }
    exit(0); /* with destructors and leak checkers */
}

/* --- the parent ------------------------------------------------------------------------------- */

static void describe(int status, char *text, size_t size)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        (void)snprintf(text, size, "hangs: no end after %d s", LIMIT_S);
    else if (WIFSIGNALED(status))
        (void)snprintf(text, size, "died: signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    else
        (void)snprintf(text, size, "died: exit status %d", WEXITSTATUS(status));
}

/* What the child did not report itself. */
static void child_ended(int status, bool each_alone)
{
    const test_case *t = tests[shared->next - 1];
    char             why[128];

    describe(status, why, sizeof why);
    if (shared->running) {
        end_test(t, FAILED, why);
    } else if (status != 0 && shared->last != FAILED) {
        printf("# the process exited after %s/%s, and:\n", t->suite, t->name);
        if (each_alone) { /* a driver that is expected to crash does so in its destructors too */
            printf("# %s\n", why);
        } else {
            shared->count[shared->last]--;
            end_test(t, FAILED, why);
        }
    }
}

static void run_all(bool each_alone)
{
    while (shared->next < ntests) {
        size_t begin  = shared->next;
        int    status = 0;
        pid_t  child;

        (void)fflush(NULL);
        child = fork();
        if (child == 0)
            run_tests(begin, begin < nshared ? nshared : begin + 1);
        if (child < 0 || waitpid(child, &status, 0) != child) {
            perror("conformance: no process for tests");
            exit(1);
        }
        child_ended(status, each_alone);
    }
}

static bool is_wanted(const test_case *t, char **patterns)
{
    char name[512];

    (void)snprintf(name, sizeof name, "%s/%s", t->suite, t->name);
    for (char **pattern = patterns; *pattern; pattern++)
        if (!fnmatch(*pattern, name, 0))
            return true;
    return !*patterns;
}

static void choose(char **patterns, bool each_alone)
{
    for (int alone = 0; alone <= 1; alone++) {
        for (const test_case *t = first; t; t = t->next)
            if ((t->alone || each_alone) == alone && is_wanted(t, patterns) && ntests < MAX_TESTS)
                tests[ntests++] = t;
        if (!alone)
            nshared = ntests;
    }
}

int main(int argc, char **argv)
{
    bool list = false, each_alone = false;
    int  i = 1;

    for (; i < argc && !strncmp(argv[i], "--", 2); i++) {
        list       = list || !strcmp(argv[i], "--list");
        each_alone = each_alone || !strcmp(argv[i], "--each-alone");
    }
    choose(argv + i, each_alone);
    if (list) {
        for (size_t t = 0; t < ntests; t++)
            printf("%s/%s\n", tests[t]->suite, tests[t]->name);
        return 0;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("conformance: no memory shared with a child");
        return 1;
    }
    record_begin();
    run_all(each_alone);
    printf("1..%zu\n# %d passed, %d failed, %d skipped\n", ntests, shared->count[PASSED],
           shared->count[FAILED], shared->count[SKIPPED]);
    if (ntests == 0)
        return 2;
    if (shared->count[FAILED] > 0)
        return 1;
    return (size_t)shared->count[SKIPPED] == ntests ? 77 : 0;
}
