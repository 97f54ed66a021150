/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A bell in memory that processes share: they sleep until something has changed, and look again.
 *
 *     the waiting process                            the process that changes something
 *     usm__bell_enter(b);                            change it
 *     for (;;) {                                     usm__bell_ring(b);
 *         word = usm__bell_word(b);
 *         if (the condition holds) break;
 *         usm__bell_wait(b, word, deadline);
 *     }
 *     usm__bell_leave(b);
 *
 * No change is missed.  The waiting process adds itself to `in`, then reads the word, then looks.
 * The other one makes its change, then increments the word, then looks whether any process is in.
 * So either the waiting process sees the change, or its word is old and the wait returns at once,
 * or it is counted in and is woken.  If no process sleeps, ringing is no system call.
 *
 * Processes may be killed.  One that was in stays counted: from then on each ring is a system call,
 * nothing more.  (A flag that the ringing process clears before it wakes the others would be
 * cheaper, and wrong: if it is killed between the two, no later ring wakes the sleepers.)  A
 * process that is killed between its change and the wake-up leaves the others asleep until the next
 * ring; processes that wait for it ring when they are notified of its end.  Called by barrier.c,
 * event_slot_wait.c and others. */
#ifndef USM_IPC_BELL_H
#define USM_IPC_BELL_H

#include "base/inline/atomic.h"
#include "base/os_wait.h"

typedef struct usm__bell {
    _Atomic(uint32_t) word; /* changes at each ring; processes sleep on it */
    _Atomic(uint32_t) in;   /* number of processes that may sleep          */
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

/* Returns 0: look again; or ETIMEDOUT. */
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
