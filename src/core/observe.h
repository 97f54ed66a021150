/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The observed path: what happens around a block while somebody looks.  Hooks (trace), USM_TRACE,
 * tags, USM_DEBUG (red zones, poison, leaks), USM_VALIDATION, valgrind and AddressSanitizer.  While
 * nobody does, blocks are served from thread caches and nothing here runs: being observed closes
 * the caches of the threads concerned (core/magazine.h), so the hit path needs no branch for it.
 *
 * A block that has a record (core/watch.h) is in the state USM_BLOCK_WATCHED where its pool has
 * spans: the hit path of a free accepts only USM_BLOCK_LIVE, so its free comes here whichever
 * thread makes it.
 *
 * core/pool.c calls these instead of its plain functions when usm__observed(),
 * usm__observed_free(). */
#ifndef USM_CORE_OBSERVE_H
#define USM_CORE_OBSERVE_H

#include "core/watch.h"

/* Why every thread is observed. Fixed before any block exists. A thread with a tag is observed for
 * that alone (usm__thread.tag_depth > 0). */
typedef enum usm__observe_flag {
    USM__OBSERVE_HOOKS    = 1u << 0, /* USM_HOOKS has trace                            */
    USM__OBSERVE_TRACE    = 1u << 1, /* USM_TRACE                                      */
    USM__OBSERVE_DEBUG    = 1u << 2, /* USM_DEBUG                                      */
    USM__OBSERVE_VALIDATE = 1u << 3, /* USM_VALIDATION                                 */
    USM__OBSERVE_CHECKER  = 1u << 4  /* valgrind or AddressSanitizer wants to be told  */
} usm__observe_flag;

extern atomic_uint usm__observing;

/* Sets usm__observing by the settings; once.  Called where hooks are started: before the first
 * call of a backend, so that usm_config_set() before that counts. */
void usm__observe_start(void);
void usm__observe_fork(int phase);

/* Whether the calling thread is. */
static inline bool usm__observed(void)
{
    const usm__thread *t = usm__self.block;

    return usm_load_relaxed(&usm__observing) != 0 || (t && t->tag_depth > 0);
}

/* Whether a free or a query of a block must come here: also while blocks of other threads are
 * watched. */
static inline bool usm__observed_free(void)
{
    return usm__observed() || usm__watch_count() > 0;
}

/* As usm__pool_alloc_plain() and so on, with everything around.  NULL, errno and a story. */
void      *usm__observe_alloc(usm_pool *pool, size_t align, size_t size);
usm_status usm__observe_free(usm__area *area, void *p);
/* The block as the program sees it: without red zones. */
usm_status usm__observe_block(usm__area *area, const void *p, usm_block *block);

/* Whether a block for the calling thread has a record: it must come from usm__observe_alloc(). */
bool usm__observe_wants_record(void);
/* A block without a record was served again, or freed, by who keeps it from its pool meanwhile
 * (src/async): the trace and the hooks are told. */
void usm__observe_served(usm_pool *pool, const void *p, size_t size);
void usm__observe_freed(usm_pool *pool, const void *p);

/* The pool was reset, or went back to a mark: blocks that are gone are forgotten. */
void usm__observe_reset(usm_pool *pool);
/* The pool ends: lists what is out (USM_DEBUG=leaks, USM_VALIDATION), and forgets it.  Before the
 * pool's own destroy. */
void usm__observe_leaks(usm_pool *pool);

void usm__observe_give_back_slow(void *base, size_t size);
/* Memory [base, base + size) of that kind goes back to its driver, or is unmapped. */
static inline void usm__observe_give_back(usm_kind kind, void *base, size_t size)
{
    if (kind != USM_DEVICE && usm_load_relaxed(&usm__observing) & USM__OBSERVE_CHECKER)
        usm__observe_give_back_slow(base, size);
}

#endif
