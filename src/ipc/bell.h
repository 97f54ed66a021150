/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A bell in memory that processes share: they sleep until something has changed, and look again.
 *
 *     who waits                                      who changes something
 *     usm__bell_enter(b);                            change it
 *     for (;;) {                                     usm__bell_ring(b);
 *         word = usm__bell_word(b);
 *         if (what it waits for is there) break;
 *         usm__bell_wait(b, word, deadline);
 *     }
 *     usm__bell_leave(b);
 *
 * Nothing is missed: who waits counts itself in, then reads the word, then looks; who rings
 * changes, then counts the word up, then looks whether anybody is in.  So the change is seen, or
 * the word is old and the wait comes back at once, or the sleeper is counted and woken.  Without
 * sleepers ringing is no system call.
 *
 * Processes are killed.  One that was in stays counted: from then on each ring is a system call, no
 * more.  (A flag that who rings takes back before waking would be cheaper and wrong: who is killed
 * between the two leaves sleepers that no later ring wakes.)  One that is killed between its change
 * and waking others leaves them asleep until the next ring, which those that wait for it make when
 * they hear of its end.  Called by barrier.c, turns.c and their like. */
#ifndef USM_IPC_BELL_H
#define USM_IPC_BELL_H

#include "base/inline/atomic.h"
#include "base/os_wait.h"

typedef struct usm__bell {
    _Atomic(uint32_t) word; /* changes at each ring; slept on                              */
    _Atomic(uint32_t) in;   /* how many may sleep                                         */
} usm__bell;

static inline void usm__bell_enter(usm__bell *b)
{
    (void)atomic_fetch_add(&b->in, 1u);
}

static inline void usm__bell_leave(usm__bell *b)
{
    (void)atomic_fetch_sub(&b->in, 1u);
}

static inline uint32_t usm__bell_word(usm__bell *b)
{
    return atomic_load(&b->word);
}

/* 0: look again; ETIMEDOUT. */
static inline int usm__bell_wait(usm__bell *b, uint32_t word, uint64_t deadline)
{
    return usm__os_futex_wait(&b->word, word, deadline);
}

static inline void usm__bell_ring(usm__bell *b)
{
    (void)atomic_fetch_add(&b->word, 1u);
    if (atomic_load(&b->in) != 0)
        usm__os_futex_wake_all(&b->word);
}

#endif
