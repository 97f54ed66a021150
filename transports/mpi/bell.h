/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A doorbell: the word on which a process's service thread sleeps.  Members of the job on the same
 * host have it mapped, and ring after MPI has taken a message for that process (bells.c).
 *
 *     the owner, in rounds                      who has something for it
 *     read the word                             MPI takes the message, or work is queued
 *     look for messages and work                count the message
 *     sleep, unless the word has changed        change the word
 *                                               wake the thread if it says that it sleeps
 *
 * No ring is missed: the word is read before the look, and the system compares it when the thread
 * falls asleep.  The thread says that it sleeps before it does; so either who rings sees that, or
 * the thread finds the word changed.
 *
 * MPI does not promise that a message can be received at once by a process that is woken for it.
 * So messages are counted by their senders, and the owner looks again until it has as many.
 *
 * A process that is killed between its message and its ring costs the owner one sleep, all of which
 * have an end.  One that is killed while it owns a bell leaves a word that others go on changing. */
#ifndef USM_MPI_BELL_H
#define USM_MPI_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Who must wake the owner's thread. */
typedef enum mpi_bell_sleep {
    MPI_BELL_AWAKE,     /* nobody */
    MPI_BELL_FOR_OWN,   /* its own process: another thread of it looks for messages meanwhile */
    MPI_BELL_FOR_PEERS, /* other processes, too */
} mpi_bell_sleep;

typedef struct mpi_bell {
    _Atomic uint32_t word;    /* changes at each ring; a futex */
    _Atomic uint32_t sleep;   /* mpi_bell_sleep */
    _Atomic uint32_t sent;    /* messages for the owner that MPI has taken from those that ring */
    _Atomic uint32_t ringers; /* number of members that ring */
} mpi_bell;

/* The owner's process has work for its thread. */
void mpi_bell_ring(mpi_bell *b);
/* MPI has taken a message for the owner. */
void mpi_bell_ring_for_message(mpi_bell *b);

typedef struct mpi_bell_rest {
    uint64_t until; /* of CLOCK_MONOTONIC, in ns; 0: the thread does not sleep */
    bool     for_own;
} mpi_bell_rest;

/* Looks for messages and work.  was_rung: the word has changed since the last round. */
typedef mpi_bell_rest mpi_bell_look(void *arg, bool was_rung);

/* One round of the owner's thread; *seen: the word of the last round. */
void mpi_bell_round(mpi_bell *b, uint32_t *seen, mpi_bell_look *look, void *arg);

#endif
