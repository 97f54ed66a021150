/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The observed path: the work around a block while a hook (trace), USM_TRACE, a tag, USM_DEBUG (red
 * zones, poison, leaks), USM_VALIDATION, valgrind or AddressSanitizer is active.  While none is,
 * blocks come from thread caches and nothing here runs.  Observing a thread closes its caches
 * (heap/magazine.h), so the fast path needs no branch for it.
 *
 * A block that has a record (observe/watch.h) is in the state USM_BLOCK_WATCHED if its pool has
 * spans. The fast path of a free accepts only USM_BLOCK_LIVE, so the free of such a block comes
 * here, on any thread.
 *
 * heap/recover.c and heap/serve.c call these functions instead of the plain ones if usm__observed()
 * or usm__observed_free(). */
#ifndef USM_OBSERVE_OBSERVE_H
#define USM_OBSERVE_OBSERVE_H

#include "observe/watch.h"

/* The reasons to observe every thread.  Fixed before any block exists.  A thread with a tag is
 * observed for that reason alone (usm__thread.tag_depth > 0). */
typedef enum usm__observe_flag {
    USM__OBSERVE_HOOKS    = 1u << 0, /* USM_HOOKS has trace                     */
    USM__OBSERVE_TRACE    = 1u << 1, /* USM_TRACE                               */
    USM__OBSERVE_DEBUG    = 1u << 2, /* USM_DEBUG                               */
    USM__OBSERVE_VALIDATE = 1u << 3, /* USM_VALIDATION                          */
    USM__OBSERVE_CHECKER  = 1u << 4  /* valgrind or AddressSanitizer is present */
} usm__observe_flag;

extern atomic_uint usm__observing;

/* Sets usm__observing from the settings; once.  Called where hooks are started: before the first
 * call of a backend, so that an earlier usm_config_set() has its effect. */
void usm__observe_start(void);
void usm__observe_fork(int phase);

/* True if the calling thread is observed. */
static inline bool usm__observed(void)
{
    const usm__thread *t = usm__self.block;

    return usm_load_relaxed(&usm__observing) != 0 || (t && t->tag_depth > 0);
}

/* True if a free or query of a block must come here: also while blocks of other threads are
 * tracked. */
static inline bool usm__observed_free(void)
{
    return usm__observed() || usm__watch_count() > 0;
}

/* As usm__pool_serve() and so on, with the work around them.  On failure NULL with an error
 * message. */
void      *usm__observe_alloc(usm_pool *pool, size_t align, size_t size);
usm_status usm__observe_free(usm__area *area, void *p);
/* The block as the program sees it: without red zones. */
usm_status usm__observe_block(usm__area *area, const void *p, usm_block *block);

/* An allocation of the calling thread failed for lack of memory, for good. */
void usm__observe_failed(usm_pool *pool, size_t size);

/* True if a block for the calling thread needs a record: it must come from usm__observe_alloc(). */
bool usm__observe_wants_record(void);
/* For src/async, which keeps freed blocks of a pool: reports to the trace and the hooks that a
 * block without a record was allocated again, or freed. */
void usm__observe_served(usm_pool *pool, const void *p, size_t size);
void usm__observe_freed(usm_pool *pool, const void *p);

/* The pool was reset, or rewound to a mark: drops the records of blocks that are gone. */
void usm__observe_reset(usm_pool *pool);
/* The pool is being destroyed: lists the live blocks (USM_DEBUG=leaks, USM_VALIDATION), and drops
 * their records.  Called before the pool's own destroy. */
void usm__observe_leaks(usm_pool *pool);

void usm__observe_give_back_slow(void *base, size_t size);
/* Memory [base, base + size) of that kind returns to its driver, or is unmapped. */
static inline void usm__observe_give_back(usm_kind kind, void *base, size_t size)
{
    if (kind != USM_DEVICE && usm_load_relaxed(&usm__observing) & USM__OBSERVE_CHECKER)
        usm__observe_give_back_slow(base, size);
}

#endif
