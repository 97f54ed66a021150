/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-prof record: runs a program with USM_TRACE set, and looks for the trace files it has left.
 *
 * The file's name may contain %h, %r, %p, which the program's processes fill in.  So the files are
 * found by a pattern, among files that are newer than the start. */
#include "prof.h"

#include <usm/version.h>

#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Makes an absolute name, because the program may change its folder; % is doubled in the part that
 * is not the user's.  False: too long. */
static bool absolute(const char *file, char *out, size_t size)
{
    char   folder[2048];
    size_t n = 0;

    if (file[0] != '/') {
        if (getcwd(folder, sizeof(folder)) == NULL)
            return false;
        for (const char *c = folder; *c != '\0' && n + 2 < size; c++) {
            out[n++] = *c;
            if (*c == '%')
                out[n++] = '%';
        }
        out[n++] = '/';
    }
    return (size_t)snprintf(out + n, size - n, "%s", file) < size - n;
}

/* A pattern for what a name with %h, %r, %p may have become: * for each; characters special to
 * glob() are escaped. */
static void pattern_of(const char *name, char *out, size_t size)
{
    size_t n = 0;

    for (const char *c = name; *c != '\0' && n + 3 < size; c++) {
        if (*c == '%' && c[1] != '\0' && *++c != '%') {
            out[n++] = '*';
            continue;
        }
        if (strchr("*?[]\\", *c) != NULL)
            out[n++] = '\\';
        out[n++] = *c;
    }
    out[n] = '\0';
}

/* Whether the file is a trace, written since then. */
static bool is_new_trace(const char *path, const struct timespec *since)
{
    struct stat st;
    char        magic[8];
    FILE       *file = fopen(path, "re");
    bool        is   = file != NULL && fread(magic, 1, sizeof(magic), file) == sizeof(magic) &&
              memcmp(magic, USM__TRACE_MAGIC, sizeof(magic)) == 0 && fstat(fileno(file), &st) == 0;

    if (file != NULL)
        (void)fclose(file);
    return is && (st.st_mtim.tv_sec > since->tv_sec ||
                  (st.st_mtim.tv_sec == since->tv_sec && st.st_mtim.tv_nsec >= since->tv_nsec));
}

/* Prints the names of files written since; returns their number. */
static size_t show_files(const char *name, const struct timespec *since)
{
    char   pattern[8192];
    glob_t found;
    size_t n = 0;

    pattern_of(name, pattern, sizeof(pattern));
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (!is_new_trace(found.gl_pathv[i], since))
            continue;
        fprintf(stderr, "usm-prof: wrote %s\n", found.gl_pathv[i]);
        n++;
    }
    globfree(&found);
    return n;
}

static int wait_for(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return PROF_FAILED;
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    fprintf(stderr, "usm-prof: the program was ended by signal %d (%s)\n", WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    return 128 + WTERMSIG(status);
}

static bool set(const char *variable, const char *value)
{
    if (value == NULL || setenv(variable, value, 1) == 0)
        return true;
    fprintf(stderr, "usm-prof: %s cannot be set: %s\n", variable, strerror(errno));
    return false;
}

/* Interrupts are for the program: the tool must still print its report. */
static int spawn(char **argv, pid_t *pid)
{
    posix_spawnattr_t attr;
    sigset_t          usual;
    int               error = posix_spawnattr_init(&attr);

    if (error != 0)
        return error;
    (void)sigemptyset(&usual);
    (void)sigaddset(&usual, SIGINT);
    (void)sigaddset(&usual, SIGQUIT);
    (void)posix_spawnattr_setsigdefault(&attr, &usual);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGQUIT, SIG_IGN);
    error = posix_spawnp(pid, argv[0], NULL, &attr, argv, environ);
    (void)posix_spawnattr_destroy(&attr);
    return error;
}

int record(const record_options *options, char **argv)
{
    char            name[4096];
    struct timespec since;
    pid_t           pid = 0;
    int             error, status;

    if (!absolute(options->file, name, sizeof(name))) {
        fprintf(stderr, "usm-prof: the name %s is too long\n", options->file);
        return PROF_MISUSED;
    }
    if (!set("USM_TRACE", name) || !set("USM_TRACE_STACKS", options->stacks) ||
        !set("USM_TRACE_RING", options->ring))
        return PROF_NO_MEMORY;
    (void)clock_gettime(CLOCK_REALTIME_COARSE, &since); /* the clock that files' times use */
    error = spawn(argv, &pid);
    if (error != 0) {
        fprintf(stderr, "usm-prof: %s cannot be run: %s\n", argv[0], strerror(error));
        return 127;
    }
    status = wait_for(pid);
    if (show_files(name, &since) > 0)
        return status;
    fprintf(
        stderr,
        "usm-prof: no trace was written: the program does not use libusm (from version %s), never "
        "called it, or is setuid; its messages above may say more\n",
        USM_VERSION_STRING);
    return status ? status : PROF_FAILED;
}
