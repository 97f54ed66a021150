/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The observer: one table of functions through which src/observe sees blocks, queues and events of
 * the rooms below it.  It is installed when a setting first asks for it (USM_HOOKS, USM_TRACE,
 * USM_DEBUG, USM_VALIDATION), when a checker such as valgrind is present, or with the first tag.
 * While nobody observes, blocks come from thread caches and nothing is called: observing a thread
 * closes its caches (heap/magazine.h), so the hit path needs no branch for it.  A thread that only
 * a trace observes misses there as well, and then has a hit path of its own (observe/traced.c). */
#ifndef USM_DEVICE_OBSERVER_H
#define USM_DEVICE_OBSERVER_H

#include "base/inline/atomic.h"
#include "base/thread.h"

#include <usm/pool_ops.h>
#include <usm/queue.h>
#include <usm/tag.h>

struct usm__area;

/* Calls fn for every tag with an allocation, in the order of their first push; no lock is held. */
typedef void usm__observer_tag_fn(const usm_tag_stats *tag, void *arg);

typedef struct usm__observer {
    /* ---- blocks of the program, for a caller for which usm__observed() or usm__observed_free() is
     * true; as usm__pool_serve() and so on, with the work around them. */
    /* On failure NULL with an error message. */
    void *(*alloc)(usm_pool *pool, size_t align, size_t size);
    /* An allocation of the calling thread failed for lack of memory, for good. */
    void (*failed)(usm_pool *pool, size_t size);
    usm_status (*free)(struct usm__area *area, void *p);
    /* The block as the program sees it: without red zones. */
    usm_status (*block)(struct usm__area *area, const void *p, usm_block *block);
    /* usm_pool_malloc(), usm_alloc(), usm_pool_free(), usm_free() after their hit path has missed,
     * for a thread for which usm__observed_by_trace() is true: a block that its cache serves or
     * takes is recorded, and all others go the slow way.  size: of usm_pool_free_sized(), or
     * NULL. */
    void *(*pool_malloc)(usm_pool *pool, size_t size);
    void *(*alloc_kind)(size_t size, usm_kind kind);
    void (*pool_free)(usm_pool *pool, void *p, const size_t *size);
    void (*free_any)(void *p);
    /* For src/async, which keeps freed blocks of a pool: reports that a block without a record was
     * allocated again, or freed. */
    void (*served)(usm_pool *pool, const void *p, size_t size);
    void (*freed)(usm_pool *pool, const void *p);

    /* ---- pools and memory */
    /* The pool was reset, or rewound to a mark: drops the records of blocks that are gone. */
    void (*pool_reset)(usm_pool *pool);
    /* The pool is being destroyed: lists its live blocks if a setting asks for that, and drops
     * their records.  Called before the pool's own destroy. */
    void (*pool_ended)(usm_pool *pool);
    /* Memory [base, base + size) that the host may access returns to its driver, or is unmapped. */
    void (*memory_gone)(void *base, size_t size);
    /* The innermost tag of the calling thread, for which usm__tagged is true; never freed. */
    const char *(*tag_name)(void);
    void (*each_tag)(usm__observer_tag_fn *fn, void *arg);

    /* ---- the order of commands, for a caller for which usm__observer_order_on() is true, with no
     * lock of a rank above QUEUE held; observe/order_check.h has the rules */
    /* The pool allocates [p, p + size), takes it back; the range returns to its driver. */
    void (*block_served)(const void *p, size_t size);
    void (*block_back)(const void *p);
    void (*range_gone)(const void *p, size_t size);
    void (*queue_named)(void *native, uint64_t serial);
    /* All commands of the queue are known to have ended. */
    void (*queue_ended)(void *native);
    /* The host has seen the event complete; st is the result of a query or wait. */
    void (*event_seen)(void *native, usm_status st);
    /* usm_async_malloc() on q is about to return p, after the block has come from the pool or from
     * a list. `native` is the backend's event of the _after form, on which uses must depend.  NULL:
     * in an in-order queue later commands may use the block, in an out-of-order queue any command
     * may. */
    void (*async_alloc)(usm_queue *q, void *p, size_t size, void *native);
    /* usm_async_free() on q.  Called before p can be allocated again.  `position` is that of the
     * block in its list; 0: it is in no list, and no claim concerns it. `native` is the event
     * behind which the block is free (the barrier of an out-of-order queue, the marker of the
     * _after form); NULL: the commands submitted to q so far. */
    void (*async_free)(usm_queue *q, void *p, uint64_t position, void *native);
    /* The caller claims that the first `position` commands of q have ended: every block that q
     * freed up to there must be known to be out of use, from a wait or a query.  Called where the
     * position that a queue has reached is raised. */
    void (*claim_complete)(usm_queue *q, uint64_t position);
} usm__observer;

/* The reasons to observe every thread.  A thread with a tag is observed for that reason alone
 * (usm__tagged).  Fixed before any block exists, except for ORDER, which is cleared
 * when there is no memory to go on. */
typedef enum usm__observer_flag {
    USM__OBSERVE_HOOKS    = 1u << 0, /* USM_HOOKS has trace                                 */
    USM__OBSERVE_TRACE    = 1u << 1, /* USM_TRACE                                           */
    USM__OBSERVE_DEBUG    = 1u << 2, /* USM_DEBUG                                           */
    USM__OBSERVE_VALIDATE = 1u << 3, /* USM_VALIDATION                                      */
    USM__OBSERVE_CHECKER  = 1u << 4, /* valgrind or AddressSanitizer is present             */
    USM__OBSERVE_ORDER    = 1u << 5  /* USM_HOOKS=order or USM_VALIDATION: order of commands */
} usm__observer_flag;

#define USM__OBSERVE_RECORDED (USM__OBSERVE_DEBUG | USM__OBSERVE_VALIDATE | USM__OBSERVE_CHECKER)

struct usm__backend_calls;

typedef struct usm__observer_state {
    /* NULL: nobody observed yet.  Set before a flag or usm__tagged is. */
    _Atomic(const usm__observer *) table;
    /* Shards of records (observe/tracked.h) that are not empty; unless it is 0, the free of any
     * block must look for a record.  It seldom changes, so that threads share the line. */
    atomic_uint tracking;
    atomic_uint flags; /* USM__OBSERVE_* */
    /* What backends' functions are called through (device/backend.h); NULL: nothing.  Set before
     * the first call of a backend. */
    _Atomic(const struct usm__backend_calls *) decorators;
} usm__observer_state;
extern usm__observer_state usm__observers __attribute__((visibility("hidden")));
/* The calling thread has pushed a tag. */
extern USM__THREAD_LOCAL bool usm__tagged;

/* pre: somebody observes, or did. */
static inline const usm__observer *usm__observer_get(void)
{
    return usm_load_acquire(&usm__observers.table);
}

static inline void usm__observer_each_tag(usm__observer_tag_fn *fn, void *arg)
{
    if (usm__observer_get())
        usm__observer_get()->each_tag(fn, arg);
}

/* True if the calling thread is observed. */
static inline bool usm__observed(void)
{
    return (usm_load_relaxed(&usm__observers.flags) & ~(unsigned)USM__OBSERVE_ORDER) != 0 ||
           usm__tagged;
}

/* True if the calling thread is observed, by nothing but a trace. */
static inline bool usm__observed_by_trace(void)
{
    return usm_load_relaxed(&usm__observers.flags) == USM__OBSERVE_TRACE && !usm__tagged;
}

/* True if a free or query of a block must go to the observer: also while blocks of other threads
 * have records. */
static inline bool usm__observed_free(void)
{
    return usm__observed() || usm_load_relaxed(&usm__observers.tracking) > 0;
}

/* True if a block for the calling thread needs a record: the observer must allocate it. */
static inline bool usm__observed_with_record(void)
{
    return usm_load_relaxed(&usm__observers.flags) & USM__OBSERVE_RECORDED || usm__tagged;
}

static inline bool usm__observer_order_on(void)
{
    return __builtin_expect((usm_load_relaxed(&usm__observers.flags) & USM__OBSERVE_ORDER) != 0, 0);
}

#endif
