/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The little that rank 0 and the lenders say to each other.  Lending itself needs no call of
 * theirs: a thread of libusm serves.
 *
 * They sleep between looks, for MPI waits by spinning; and nobody waits in a collective call, for
 * those do not end when a rank has died. */
#include "far_memory.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { TAG = 77, DONE = 1, DIE = 2 };

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

void lender_wait(MPI_Comm comm)
{
    int what = 0, has_come = 0;

    while (!has_come) {
        sleep_ms(20);
        if (MPI_Iprobe(0, TAG, comm, &has_come, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return; /* rank 0 has died, and this MPI tells */
    }
    MPI_Recv(&what, 1, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE);
    if (what == DIE)
        (void)kill(getpid(), SIGKILL);
}

/* To a living rank: so few bytes leave at once. */
static void tell(MPI_Comm comm, int rank, int what)
{
    MPI_Send(&what, 1, MPI_INT, rank, TAG, comm);
}

void lender_kill(job *j, int rank)
{
    tell(j->comm, rank, DIE);
    j->dead = rank;
}

void lenders_release(const job *j)
{
    for (int r = 1; r < j->size; r++)
        if (r != j->dead)
            tell(j->comm, r, DONE);
}
