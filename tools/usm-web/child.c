/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The other tools as children: see web.h.  A child has a group of its own, so that what it starts
 * ends with it; it ends when this program does, however that comes. */
#include "web.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARGS_MAX = 20 };

/* A file in memory that holds the child's input: unlike a pipe it is never full. */
static int open_input(const child_plan *plan)
{
    int    fd   = memfd_create("input", MFD_CLOEXEC);
    size_t done = 0;

    while (fd >= 0 && done < plan->in_size) {
        ssize_t n = write(fd, plan->in + done, plan->in_size - done);

        if (n < 0 && errno != EINTR) {
            (void)close(fd);
            return -1;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0)
        (void)lseek(fd, 0, SEEK_SET);
    return fd;
}

/* In the child of a program with threads: only calls that are safe in signal handlers. */
static _Noreturn void enter(const child_plan *plan, const char *path, char *const *argv, int in,
                            const int *out, const int *err)
{
    const struct rlimit memory = {plan->memory, plan->memory}, no_core = {0, 0};
    sigset_t            none;

    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    if (plan->memory)
        (void)setrlimit(RLIMIT_DATA, &memory);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out[1], STDOUT_FILENO) >= 0 &&
        dup2(err[1], STDERR_FILENO) >= 0 && (plan->folder < 0 || fchdir(plan->folder) == 0))
        (void)execv(path, argv);
    _exit(127);
}

static void close_pair(const int *fds)
{
    if (fds[0] >= 0)
        (void)close(fds[0]);
    if (fds[1] >= 0)
        (void)close(fds[1]);
}

int child_start(const web *w, const child_plan *plan, child *c)
{
    char  path[PATH_MAX];
    char *argv[ARGS_MAX + 2] = {path};
    int   in = open_input(plan), out[2] = {-1, -1}, err[2] = {-1, -1}, error = 0;

    (void)snprintf(path, sizeof path, "%s/%s", w->tools, plan->program);
    for (size_t i = 0; i < ARGS_MAX && plan->args[i]; i++)
        memcpy(&argv[i + 1], &plan->args[i], sizeof *argv); /* execv() does not write to them */
    if (in < 0 || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC) || access(path, X_OK)) {
        error = errno;
        goto out;
    }
    c->pid = fork();
    if (c->pid == 0)
        enter(plan, path, argv, in, out, err);
    if (c->pid < 0) {
        error = errno;
        goto out;
    }
    (void)setpgid(c->pid, c->pid); /* whoever is first: it may be killed as a group from now on */
    c->out = out[0];
    c->err = err[0];
    out[0] = err[0] = -1;
    (void)fcntl(c->out, F_SETFL, O_NONBLOCK);
    (void)fcntl(c->err, F_SETFL, O_NONBLOCK);
out:
    if (in >= 0)
        (void)close(in);
    close_pair(out);
    close_pair(err);
    return error;
}

static void take(int fd, child_text *t)
{
    char    buf[8192];
    ssize_t n;

    while ((n = read(fd, buf, sizeof buf)) > 0) {
        size_t fits = t->max - t->size < (size_t)n ? t->max - t->size : (size_t)n;
        char  *more = realloc(t->text, t->size + fits + 1);

        t->is_cut |= !more || fits < (size_t)n;
        if (!more)
            continue;
        memcpy(more + t->size, buf, fits);
        t->text       = more;
        t->size       = t->size + fits;
        more[t->size] = '\0';
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        t->is_ended = true;
}

bool child_read(child *c, child_text *out, child_text *err, int ms)
{
    struct pollfd fds[2] = {{out->is_ended ? -1 : c->out, POLLIN, 0},
                            {err->is_ended ? -1 : c->err, POLLIN, 0}};

    if (out->is_ended && err->is_ended)
        return false;
    if (poll(fds, 2, ms) > 0) {
        if (fds[0].revents)
            take(c->out, out);
        if (fds[1].revents)
            take(c->err, err);
    }
    return true;
}

int child_end(child *c)
{
    int status = 0;

    (void)close(c->out);
    (void)close(c->err);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

size_t child_add_stores(const web *w, const char **args, size_t n)
{
    for (size_t i = 0; i < w->nstores; i++) {
        args[n++] = "--store";
        args[n++] = w->stores[i];
    }
    return n;
}

int child_run(const web *w, const child_plan *plan, int seconds, child_text *out, child_text *err,
              int *status)
{
    int64_t deadline = now_ms() + (int64_t)seconds * 1000;
    bool    is_late  = false;
    child   c        = {.pid = -1, .out = -1, .err = -1};
    int     error    = child_start(w, plan, &c);

    if (error)
        return error;
    while (!is_late && child_read(&c, out, err, (int)(deadline - now_ms())))
        is_late = now_ms() >= deadline;
    if (is_late)
        (void)kill(-c.pid, SIGKILL);
    *status = child_end(&c);
    return is_late ? ETIMEDOUT : 0;
}

const char *child_end_text(int status, char *text, size_t size)
{
    if (WIFSIGNALED(status))
        (void)snprintf(text, size, "was killed: %s", strsignal(WTERMSIG(status)));
    else
        (void)snprintf(text, size, "ended with exit status %d", WEXITSTATUS(status));
    return text;
}
