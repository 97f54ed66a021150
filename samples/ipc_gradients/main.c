/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Workers that sum their gradients through each other's memory.
 *
 *     ipc_gradients [--workers N] [--size BYTES]... [--rounds N]
 *                   [--way star|all-to-all|ring|auto] [--kill RANK@ROUND]... [--no-mpi]
 *
 * Here: the processes, and the same once more under mpirun where that is.  worker.c has a worker,
 * share.c what they share, sum.c the three ways to sum. */
#include "../crew/crew.h"
#include "gradients.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 120 /* the longest that anything may take */

static int member_main(int rank, void *user)
{
    return worker_run(user, rank);
}

/* Those that --kill names are expected to be killed. */
static int verdict(const options *o, const int *status)
{
    int rc = 0;

    for (int r = 0; r < o->workers; r++) {
        bool is_expected = status[r] == 0;

        for (int k = 0; k < o->nkills; k++)
            if (o->kill_rank[k] == r)
                is_expected = status[r] == -9;
        if (!is_expected) {
            fprintf(stderr, "worker %d: %s %d\n", r, status[r] < 0 ? "signal" : "exit status",
                    abs(status[r]));
            rc = 1;
        }
    }
    return rc;
}

#ifdef MPIRUN
/* The program beside this one that is linked with MPI. */
static bool find_sibling(char *path, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 5);

    if (n <= 0)
        return false;
    memcpy(path + n, "_mpi", 5);
    return access(path, X_OK) == 0;
}

static void exec_mpirun(char *sibling, int argc, char **argv)
{
    static char timeout[] = "timeout", kill_after[] = "-k", five[] = "5", mpirun[] = MPIRUN,
                ranks[] = "-n";
    char *args[64], seconds[16], workers[16] = "4";
    int   n = 0, nothing = open("/dev/null", O_RDONLY);

    snprintf(seconds, sizeof seconds, "%d", SECONDS);
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--workers") == 0)
            snprintf(workers, sizeof workers, "%s", argv[i + 1]);
    /* Open MPI's own ideas of who may start it, and of how many fit on this machine.
     * NOLINTBEGIN(concurrency-mt-unsafe): there is one thread */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    /* NOLINTEND(concurrency-mt-unsafe) */
    (void)dup2(nothing, STDIN_FILENO);
    args[n++] = timeout;
    args[n++] = kill_after;
    args[n++] = five;
    args[n++] = seconds;
    args[n++] = mpirun;
    args[n++] = ranks;
    args[n++] = workers;
    args[n++] = sibling;
    for (int i = 1; i < argc && n < 63; i++)
        args[n++] = argv[i];
    args[n] = NULL;
    execvp(args[0], args);
    _exit(127);
}

static int beside_mpi(int argc, char **argv)
{
    char  sibling[4096];
    int   how = 0;
    pid_t pid;

    if (!find_sibling(sibling, sizeof sibling) || access(MPIRUN, X_OK) != 0) {
        puts("\n(No MPI here to compare with)");
        return 0;
    }
    puts("\nThe same workers, started by mpirun:\n");
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        exec_mpirun(sibling, argc, argv);
    if (pid == -1 || waitpid(pid, &how, 0) != pid || !WIFEXITED(how) || WEXITSTATUS(how) != 0) {
        fputs("ipc_gradients: the run under mpirun failed\n", stderr);
        return 1;
    }
    return 0;
}
#else
static int beside_mpi(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    puts("\n(Built without MPI: nothing to compare with)");
    return 0;
}
#endif

int main(int argc, char **argv)
{
    options o;
    int     status[MAX_WORKERS], rc;

    if (!options_parse(argc, argv, &o))
        return 2;
    o.run = (int)getpid();
    if (!crew_run(o.workers, SECONDS, member_main, &o, status)) {
        perror("ipc_gradients: fork");
        return 1;
    }
    rc = verdict(&o, status);
    if (rc == 0 && !o.no_mpi && o.nkills == 0)
        rc = beside_mpi(argc, argv);
    return rc;
}
