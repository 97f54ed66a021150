/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Starting a crew: fork(), and two promises of the kernel that nobody is left over. */
#include "crew.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void be_member(pid_t parent, int rank, unsigned seconds, crew_fn *fn, void *user)
{
    int rc;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* die with the parent ... */
    if (getppid() != parent)                /* ... which may have died before that call */
        _exit(1);
    (void)alarm(seconds); /* nobody catches SIGALRM, so it kills */
    (void)setvbuf(stdout, NULL, _IOLBF,
                  BUFSIZ); /* what was said is said, even by one that is killed */
    rc = fn(rank, user);
    if (fflush(stdout) != 0 && rc == 0)
        rc = 1;
    exit(rc); /* NOLINT(concurrency-mt-unsafe): the library has no part in it */
}

static int wait_for(pid_t pid)
{
    int how = 0;

    while (waitpid(pid, &how, 0) == -1)
        ;
    return WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
}

bool crew_run(int n, unsigned seconds, crew_fn *fn, void *user, int *status)
{
    pid_t pids[CREW_MAX], parent = getpid();
    int   started = 0;

    fflush(NULL); /* or each member writes it again */
    while (started < n && started < CREW_MAX) {
        pids[started] = fork();
        if (pids[started] == 0)
            be_member(parent, started, seconds, fn, user);
        if (pids[started] == -1)
            break;
        started++;
    }
    for (int i = 0; i < started && started < n; i++)
        (void)kill(pids[i], SIGKILL);
    for (int i = 0; i < started; i++)
        status[i] = wait_for(pids[i]);
    return started == n;
}
