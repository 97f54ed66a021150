/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which thread may call MPI, in a server process that has several jobs (hall.c), each with a
 * thread.
 *
 * MPI_THREAD_MULTIPLE allows all of them at once, but Open MPI 4.1.4 over TCP loses messages then:
 * of ten runs with two jobs in a server six lost a member that was alive, with turns none of ten.
 *
 * A turn is short, except when a program is admitted: MPI_Comm_accept() may hang if the program
 * dies at that moment.  A thread that has waited too long goes on without its turn.  A process with
 * one job takes no turns. */
#include "internal.h"

#include <time.h>

#define PATIENCE_S 1

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool    has_several;

static _Thread_local unsigned within; /* turns of this thread, taken or not needed */

void mpi_turns_needed(void)
{
    usm_store_release(&has_several, true);
}

bool mpi_turn_begin(void)
{
    struct timespec end;

    within++;
    if (!usm_load_acquire(&has_several))
        return false;
    if (pthread_mutex_trylock(&turn) == 0)
        return true;
    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    return pthread_mutex_timedlock(&turn, &end) == 0;
}

void mpi_turn_end(bool has_begun)
{
    within--;
    if (has_begun)
        (void)pthread_mutex_unlock(&turn);
}

bool mpi_is_our_turn(void)
{
    return within > 0;
}
