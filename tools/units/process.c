/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Starting and ending the command of a unit: see process.h. */
#include "units/process.h"

#include "base/os.h"
#include "base/os_ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int spawn(unit_process *p, const char *command, const int *to, const int *from)
{
    const char *const          argv[] = {"sh", "-c", command, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t          attr;
    sigset_t                   set;
    int                        error;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGPIPE); /* ignored here */
    (void)posix_spawnattr_init(&attr);
    (void)posix_spawnattr_setsigdefault(&attr, &set);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    (void)posix_spawn_file_actions_init(&actions);
    error = posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    if (!error)
        error = posix_spawn(&p->pid, "/bin/sh", &actions, &attr, (char *const *)(uintptr_t)argv,
                            environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attr);
    return error;
}

int unit_process_start(unit_process *p, const char *command)
{
    int to[2], from[2], error;

    *p = (unit_process){.in = -1, .out = -1};
    if (pipe2(to, O_CLOEXEC) != 0)
        return errno;
    if (pipe2(from, O_CLOEXEC) != 0) {
        error = errno;
        (void)close(to[0]);
        (void)close(to[1]);
        return error;
    }
    error = spawn(p, command, to, from);
    (void)close(to[0]);
    (void)close(from[1]);
    if (error) {
        (void)close(to[1]);
        (void)close(from[0]);
        p->pid = 0;
        return error;
    }
    p->in  = from[0];
    p->out = to[1];
    return 0;
}

/* Waits for its end, up to the deadline. */
static void await_end(int pid, uint64_t deadline_ns)
{
    struct pollfd fd    = {.fd = usm__os_pidfd(pid), .events = POLLIN};
    uint64_t      now   = usm__os_now_ns();
    int           ready = 0;

    if (fd.fd < 0) /* a kernel without them: it is killed at once */
        return;
    do {
        ready = poll(&fd, 1, deadline_ns > now ? (int)((deadline_ns - now) / 1000000) + 1 : 0);
        now   = usm__os_now_ns();
    } while (ready < 0 && errno == EINTR);
    (void)close(fd.fd);
}

void unit_process_end(unit_process *p, uint64_t deadline_ns, char *how, size_t room)
{
    int status = 0;

    *how = '\0';
    if (p->pid <= 0)
        return;
    await_end(p->pid, deadline_ns);
    (void)kill(-p->pid, SIGKILL); /* what it has started, too; its own number is not free yet */
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {}
    p->pid = 0;
    if (WIFEXITED(status))
        (void)snprintf(how, room, "status %d", WEXITSTATUS(status));
    else
        (void)snprintf(how, room, "signal %d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}
