/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* join_cases CASE: a program that joins memory servers of other launches by USM_MPI_JOIN; every
 * rank runs the case.  names.sh starts it, the servers and the name server, and kills what is to be
 * killed.  The verdict is one line: "ok CASE: ..." or "not ok CASE: ...".
 *
 *     works          8 times the limit goes to the servers and comes back
 *     expects STATUS usm_mpi_attach() fails with it
 *     holds          keeps bytes at the servers until it is killed; the file $JOIN_HELD says that
 * they are there outlives       with two copies: the bytes are there after $JOIN_GO has come to
 * exist */
#include "far_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* names.sh waits for it. */
static void tell_held(void)
{
    const char *path = getenv("JOIN_HELD");
    FILE       *f    = path && job.rank == 0 ? fopen(path, "w") : NULL;

    NEED(job.rank != 0 || f != NULL, "JOIN_HELD is no file");
    if (f) {
        fputs("holds\n", f);
        fclose(f);
    }
}

static void say(const char *line)
{
    if (job.rank == 0 && write(STDOUT_FILENO, line, strlen(line)) < 0)
        _exit(3);
}

/* MPICH wants libusm's thread to be gone before MPI_Finalize() (docs/cluster.md). */
static void finish(void)
{
    MPI_Barrier(job.comm);
#ifdef MPICH_VERSION
    usm_mpi_detach();
#endif
    MPI_Finalize();
}

static void join(const char *replicas)
{
    job_begin(MPI_THREAD_MULTIPLE);
    job_borrows(replicas);
    NEED_STATUS(USM_MPI_ATTACH(job.comm), USM_OK);
}

static void works(void)
{
    usm_buffer *b;

    join("1");
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    NEED(tier_written("mpi") >= FAR_SIZE - FAR_LIMIT, "only %llu bytes went to the servers",
         (unsigned long long)tier_written("mpi"));
    (void)buffer_check(b, 1);
    buffer_write(b, 2);
    (void)buffer_check(b, 2);
    usm_buffer_destroy(b);
    finish();
    say("ok works: 8 times the limit, twice written and read, at servers of another launch\n");
}

static void expects(const char *status)
{
    job_begin(MPI_THREAD_MULTIPLE);
    job_borrows("1");
    for (int i = 0; i > -99; i--)
        if (strcmp(usm_status_name((usm_status)i), status) == 0)
            NEED_STATUS(USM_MPI_ATTACH(job.comm), (usm_status)i);
    NEED(usm_last_status() != USM_OK, "there is no status %s", status);
    MPI_Barrier(job.comm);
    MPI_Finalize();
    say("ok expects: the program is told, and goes on without\n");
}

static void holds(void)
{
    join("1");
    buffer_write(buffer_new(FAR_SIZE), 1);
    MPI_Barrier(job.comm);
    tell_held();
    for (;;)
        sleep_ms(100); /* launch.sh's time ends it at the latest */
}

static void outlives(void)
{
    const char *go = getenv("JOIN_GO");
    usm_buffer *b;

    NEED(go != NULL, "JOIN_GO is not set");
    join("2");
    b = buffer_new(FAR_SIZE);
    buffer_write(b, 1);
    MPI_Barrier(job.comm);
    tell_held();
    for (int i = 0; i < 300 && access(go, F_OK) != 0; i++)
        sleep_ms(100);
    (void)buffer_check(b, 1);
    buffer_write(b, 2);
    (void)buffer_check(b, 2);
    usm_buffer_destroy(b);
    finish();
    say("ok outlives: one of two launches of servers was killed, nothing was lost\n");
}

int main(int argc, char **argv)
{
    job.name = argc > 1 ? argv[1] : "";
    if (argc == 2 && strcmp(argv[1], "works") == 0)
        works();
    else if (argc == 3 && strcmp(argv[1], "expects") == 0)
        expects(argv[2]);
    else if (argc == 2 && strcmp(argv[1], "holds") == 0)
        holds();
    else if (argc == 2 && strcmp(argv[1], "outlives") == 0)
        outlives();
    else {
        fputs("usage: join_cases works | expects STATUS | holds | outlives\n", stderr);
        return 2;
    }
    return 0;
}
