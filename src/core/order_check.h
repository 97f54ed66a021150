/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The proof of stream order (USM_HOOKS=order; USM_VALIDATION=1 uses the same books).
 *
 * Every use of a block must come after its allocation and before its free, by the order that
 * queues, events and the host's waits make, not by the moment at which it happens to run.  The
 * checker sees each call of a backend (core/backend.h) and each block that a pool serves or takes
 * back, and keeps what happens before what: order_clock.h.  It speaks in the log, a line for each
 * violation, counts them, and sums up at exit.
 *
 * There is one clock for the host: what any thread has seen to be complete, all know.  So a program
 * whose threads tell each other is never accused; what it cannot see: accesses of the host itself,
 * a free on one thread that was lucky with another's wait, what foreign queues and native handles
 * order, and memory that a kernel reaches by a pointer nobody declared.  A program that learns of a
 * command's end by reading what the command wrote, and by nothing else, is accused wrongly.
 *
 * Called by core/backend.h, core/pool.c, core/observe.c, core/queue.c, core/event.c and by
 * src/async. Any thread; takes a lock of its own (USM__RANK_ORDER_CHECK) and no other but the
 * log's. */
#ifndef USM_CORE_ORDER_CHECK_H
#define USM_CORE_ORDER_CHECK_H

#include <usm/program.h>
#include <usm/queue.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    USM__ORDER_CHECK    = 1, /* USM_HOOKS=order: violations are reported                   */
    USM__ORDER_VALIDATE = 2  /* USM_VALIDATION=1: host frees of blocks in use are put off     */
};
extern atomic_int usm__order_active;

/* By hooks.c, once, before the first call of a backend. */
void usm__order_start(bool is_hook);

static inline bool usm__order_on(void)
{
    return __builtin_expect(atomic_load_explicit(&usm__order_active, memory_order_relaxed), 0);
}

/* Violations so far. */
uint64_t usm__order_violations(void);
/* USM_FORK_*: in a child no queue of the parent is left. */
void usm__order_fork(int phase);

/* ---- for src/async, each behind usm__order_on(), with no lock of a rank above QUEUE held ----- */

/* usm_async_malloc() on q is about to return p: after the block has come from the pool, or from a
 * list.  `native`: the backend's event of the _after form, which users must depend on; NULL: later
 * commands of an in-order queue may use it, of an out-of-order queue anything. */
void usm__order_async_alloc(usm_queue *q, void *p, size_t size, void *native);
/* usm_async_free() on q: before anybody can be given p.  `position`: that of the block in its list;
 * 0: it is in none, and no claim concerns it. `native`: the event behind which it is free (the
 * barrier of an out-of-order queue, the marker of the _after form); NULL: what was submitted to q
 * so far. */
void usm__order_async_free(usm_queue *q, void *p, uint64_t position, void *native);
/* The first `position` commands of q are said to have ended: every block that q freed up to there
 * must be known, from a wait or a query, to be out of use.  By whoever raises what is reached. */
void usm__order_claim_complete(usm_queue *q, uint64_t position);

/* ---- for the core ---------------------------------------------------------------------------- */

/* A command that was queued. */
typedef struct usm__order_command {
    void             *q; /* native                                                        */
    const char       *what;
    const void       *p[2]; /* memory it touches; NULL: none                                */
    size_t            n[2];
    const usm_launch *launch; /* or its arguments                                            */
    size_t            ndeps;
    void *const      *deps;
    void            **ev; /* NULL: nobody wants it                                         */
} usm__order_command;
void usm__order_submitted(const usm__order_command *c);

void usm__order_queue_made(void *native, uint32_t flags);
void usm__order_queue_named(void *native, uint64_t serial);
void usm__order_queue_gone(void *native);
/* Of what is queued now; NULL: nothing, or no memory.  Given to _waited when the wait is over. */
void *usm__order_queue_snapshot(void *native);
void  usm__order_queue_waited(void *snapshot, usm_status st);
/* All that was queued is known to have ended. */
void usm__order_queue_ended(void *native);
void usm__order_event_made(void *native); /* a user event */
void usm__order_event_signalled(void *native);
/* The host has seen that it is complete, or what a query or a wait answered. */
void usm__order_event_seen(void *native, usm_status st);
void usm__order_event_gone(void *native);
/* At the pool's door: [p, p + size) is served, is taken back. */
void usm__order_block_served(const void *p, size_t size);
void usm__order_block_back(const void *p);
void usm__order_range_gone(const void *p, size_t size);

/* USM_VALIDATION: whether the host's free of p comes while queued work is not known to have ended
 * that uses it.  The native queue of some such work and a sentence that names all of it. */
bool usm__order_in_use(const void *p, void **native, char *story, size_t size);
/* It is named as such: true the first time in the life of the block. */
bool usm__order_name(const void *p);

#endif
