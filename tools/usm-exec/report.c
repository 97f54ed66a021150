/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-exec --report: the program runs with USM_TRACE in a scratch folder, and usm-prof makes one report
 * of the traces of all its processes. */
#include "exec.h"

#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static volatile pid_t child; /* for pass_on() */

/* Signals from the terminal reach the program by themselves: it is of the same process group. */
static void pass_on(int number)
{
    if (child > 0)
        (void)kill(child, number);
}

static const int passed[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

#define PASSED (sizeof passed / sizeof *passed)

static int spawn(char **argv)
{
    posix_spawnattr_t attr;
    sigset_t          usual;
    pid_t             pid = 0;
    int               error;

    (void)sigemptyset(&usual);
    for (size_t i = 0; i < PASSED; i++)
        (void)sigaddset(&usual, passed[i]);
    (void)sigaddset(&usual, SIGINT);
    (void)sigaddset(&usual, SIGQUIT);
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGQUIT, SIG_IGN);
    for (size_t i = 0; i < PASSED; i++)
        (void)signal(passed[i], pass_on);
    error = posix_spawnattr_init(&attr);
    if (error != 0)
        return error;
    (void)posix_spawnattr_setsigdefault(&attr, &usual);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
    error = posix_spawnp(&pid, argv[0], NULL, &attr, argv, environ);
    (void)posix_spawnattr_destroy(&attr);
    if (error == 0)
        child = pid;
    return error;
}

static int wait_for_child(void)
{
    int status = 0;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    child = 0;
    return status;
}

/* ---- the report ------------------------------------------------------------------------------- */

/* Runs usm-prof; its messages and tables go to stderr, for stdout is the program's. */
static bool run_prof(char **argv)
{
    posix_spawn_file_actions_t actions;
    bool                       is_fine = false;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return false;
    if (posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO) == 0) {
        pid_t pid    = 0;
        int   status = 0;

        if (posix_spawn(&pid, argv[0], &actions, NULL, argv, environ) == 0 &&
            waitpid(pid, &status, 0) == pid)
            is_fine = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return is_fine;
}

static void print_report(const char *prof, char **traces, size_t n, const char *scratch)
{
    char   verb[] = "merge", report[] = "report", output[] = "-o";
    char   merged[4200];
    char  *one[] = {(char *)(uintptr_t)prof, report, traces[0], NULL};
    char **many;

    if (n > 1) {
        many = calloc(n + 5, sizeof *many);
        (void)snprintf(merged, sizeof merged, "%s/all", scratch);
        if (!many)
            return;
        many[0] = one[0];
        many[1] = verb;
        memcpy(many + 2, traces, n * sizeof *traces);
        many[n + 2] = output;
        many[n + 3] = merged;
        one[2]      = run_prof(many) ? merged : traces[0];
        free(many);
    }
    (void)fflush(stdout);
    (void)run_prof(one);
}

static void report(const char *prof, const char *scratch)
{
    char   pattern[4200];
    glob_t found;

    (void)snprintf(pattern, sizeof pattern, "%s/*.trace", scratch);
    if (glob(pattern, 0, NULL, &found) != 0) {
        (void)fprintf(stderr, "usm-exec: the program allocated nothing through libusm\n");
        return;
    }
    print_report(prof, found.gl_pathv, found.gl_pathc, scratch);
    globfree(&found);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* Ends as the program did. */
static int end_as(int status)
{
    const struct rlimit no_core = {0, 0};

    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    (void)setrlimit(RLIMIT_CORE, &no_core); /* the program has written its own */
    (void)signal(WTERMSIG(status), SIG_DFL);
    (void)raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

int exec_with_report(const char *prof, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    char        scratch[4096], trace[4200];
    int         error, status;

    (void)snprintf(scratch, sizeof scratch, "%s/usm-exec.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(scratch)) {
        (void)fprintf(stderr, "usm-exec: %s cannot be made: %s\n", scratch, strerror(errno));
        return EXEC_FAILED;
    }
    (void)snprintf(trace, sizeof trace, "%s/%%p.trace", scratch);
    (void)setenv("USM_TRACE", trace, 1);
    (void)setenv("USM_TRACE_STACKS", "on", 0);
    error = spawn(argv);
    if (error == 0)
        status = wait_for_child();
    (void)unsetenv("USM_TRACE");
    (void)unsetenv("LD_PRELOAD");
    if (error == 0)
        report(prof, scratch);
    else
        (void)fprintf(stderr, "usm-exec: %s cannot be run: %s\n", argv[0], strerror(error));
    (void)nftw(scratch, remove_entry, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    if (error != 0)
        return error == ENOENT ? EXEC_NOT_FOUND : EXEC_NOT_RUN;
    return end_as(status);
}
