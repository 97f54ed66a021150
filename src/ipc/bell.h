/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A bell in memory that processes share: they sleep until something has changed, and look again.
 *
 *     who waits                                  who changes something
 *     word = usm__bell_ready(b);                 change it
 *     if (what it waits for is not there)        usm__bell_ring(b);
 *         usm__bell_wait(b, word, deadline);
 *
 * Nothing is missed: who waits sets `sleeps`, then reads `word`, then looks; who rings changes,
 * then counts `word` up, then takes `sleeps`.  So either the change is seen, or the word is old and
 * the wait comes back at once, or somebody is found asleep and woken.  Ringing goes back to no
 * system call once nobody sleeps; one that was killed asleep costs one.  Called by barrier.c,
 * cell.c and their like. */
#ifndef USM_IPC_BELL_H
#define USM_IPC_BELL_H

#include "base/inline/atomic.h"
#include "base/os_wait.h"

typedef struct usm__bell {
    _Atomic(uint32_t) word;   /* changes at each ring; slept on                            */
    _Atomic(uint32_t) sleeps; /* 1: somebody may                                           */
} usm__bell;

static inline uint32_t usm__bell_ready(usm__bell *b)
{
    atomic_store(&b->sleeps, 1u);
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
    if (atomic_load(&b->sleeps) != 0 && atomic_exchange(&b->sleeps, 0u) != 0)
        usm__os_futex_wake_all(&b->word);
}

#endif
