/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ringing a doorbell, and the rounds of the thread that sleeps on it (bell.h).  Knows no MPI: who
 * maps whose bell is bells.c. */
#include "bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000u

/* `least`: who rings. */
static void ring(mpi_bell *b, mpi_bell_sleep least)
{
    (void)atomic_fetch_add(&b->word, 1u);
    if (atomic_load(&b->sleep) >= (uint32_t)least)
        (void)syscall(SYS_futex, &b->word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void mpi_bell_ring(mpi_bell *b)
{
    ring(b, MPI_BELL_FOR_OWN);
}

void mpi_bell_ring_for_message(mpi_bell *b)
{
    (void)atomic_fetch_add(&b->sent, 1u);
    ring(b, MPI_BELL_FOR_PEERS);
}

/* Returns at once if the word is not `word` any more. */
static void sleep_on(mpi_bell *b, uint32_t word, const mpi_bell_rest *rest)
{
    const struct timespec until = {(time_t)(rest->until / NS_PER_S),
                                   (long)(rest->until % NS_PER_S)};

    atomic_store(&b->sleep, rest->for_own ? MPI_BELL_FOR_OWN : MPI_BELL_FOR_PEERS);
    (void)syscall(SYS_futex, &b->word, FUTEX_WAIT_BITSET, word, &until, NULL,
                  FUTEX_BITSET_MATCH_ANY);
    atomic_store(&b->sleep, MPI_BELL_AWAKE);
}

void mpi_bell_round(mpi_bell *b, uint32_t *seen, mpi_bell_look *look, void *arg)
{
    const uint32_t      word = atomic_load(&b->word);
    const mpi_bell_rest rest = look(arg, word != *seen);

    *seen = word;
    if (rest.until)
        sleep_on(b, word, &rest);
}
