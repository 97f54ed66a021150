/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The checker of stream order (USM_HOOKS=order; USM_VALIDATION=1 uses the same data).
 *
 * Every use of a block must come after its allocation and before its free, in the order that
 * queues, events and the host's waits define, whatever the moment at which it happens to run.  The
 * checker sees each call of a backend (device/backend.h), and each block that a pool allocates or
 * takes back, and derives which command comes before which: order_clock.h.  It logs one line for
 * each violation, counts them, and logs the sum at exit.
 *
 * There is one clock for the host: a completion that one thread has seen is known to all threads.
 * A program whose threads synchronise is therefore never accused wrongly.  Not detected are
 * accesses by the host itself, a free on one thread that only another thread's wait makes correct,
 * the order defined by foreign queues and native handles, and memory that a kernel reaches through
 * an undeclared pointer.  A program that learns of the end of a command only by reading what the
 * command wrote is accused wrongly.
 *
 * Called by device/backend.h, heap/serve.c, observe/observe.c, command/queue.c, command/event.c and
 * by src/async.  Any thread; takes a lock of its own (USM__RANK_ORDER_CHECK) and no other but the
 * log's. */
#ifndef USM_OBSERVE_ORDER_CHECK_H
#define USM_OBSERVE_ORDER_CHECK_H

#include <usm/program.h>
#include <usm/queue.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    USM__ORDER_CHECK    = 1, /* USM_HOOKS=order: violations are reported                          */
    USM__ORDER_VALIDATE = 2  /* USM_VALIDATION=1: frees by the host of blocks in use are deferred */
};
extern atomic_int usm__order_active;

/* Called by hooks.c, once, before the first call of a backend. */
void usm__order_start(bool is_hook);

static inline bool usm__order_on(void)
{
    return __builtin_expect(atomic_load_explicit(&usm__order_active, memory_order_relaxed), 0);
}

/* The number of violations so far. */
uint64_t usm__order_violations(void);
/* USM_FORK_*: the child has none of the parent's queues. */
void usm__order_fork(int phase);

/* ---- for src/async; each call behind usm__order_on(), with no lock of a rank above QUEUE held
 * -- */

/* usm_async_malloc() on q is about to return p, after the block has come from the pool or from a
 * list.  `native` is the backend's event of the _after form, on which uses must depend.  NULL: in
 * an in-order queue later commands may use the block, in an out-of-order queue any command may. */
void usm__order_async_alloc(usm_queue *q, void *p, size_t size, void *native);
/* usm_async_free() on q.  Called before p can be allocated again.  `position` is that of the block
 * in its list; 0: it is in no list, and no claim concerns it.  `native` is the event behind which
 * the block is free (the barrier of an out-of-order queue, the marker of the _after form); NULL:
 * the commands submitted to q so far. */
void usm__order_async_free(usm_queue *q, void *p, uint64_t position, void *native);
/* The caller claims that the first `position` commands of q have ended: every block that q freed up
 * to there must be known to be out of use, from a wait or a query.  Called where the position that
 * a queue has reached is raised. */
void usm__order_claim_complete(usm_queue *q, uint64_t position);

/* ---- for the core ---------------------------------------------------------------------------- */

/* A command that was queued. */
typedef struct usm__order_command {
    void             *q; /* the native handle */
    const char       *what;
    const void       *p[2]; /* the ranges that it accesses; NULL: none */
    size_t            n[2];
    const usm_launch *launch; /* or the arguments of a kernel */
    size_t            ndeps;
    void *const      *deps;
    void            **ev; /* NULL: no event was requested */
} usm__order_command;
void usm__order_submitted(const usm__order_command *c);

void usm__order_queue_made(void *native, uint32_t flags);
void usm__order_queue_named(void *native, uint64_t serial);
void usm__order_queue_gone(void *native);
/* A snapshot of the commands queued now; NULL: none, or no memory.  Passed to _waited after the
 * wait. */
void *usm__order_queue_snapshot(void *native);
void  usm__order_queue_waited(void *snapshot, usm_status st);
/* All commands of the queue are known to have ended. */
void usm__order_queue_ended(void *native);
void usm__order_event_made(void *native); /* a user event */
void usm__order_event_signalled(void *native);
/* The host has seen the event complete; st is the result of a query or wait. */
void usm__order_event_seen(void *native, usm_status st);
void usm__order_event_gone(void *native);
/* At the pool's interface: the pool allocates [p, p + size), takes it back. */
void usm__order_block_served(const void *p, size_t size);
void usm__order_block_back(const void *p);
void usm__order_range_gone(const void *p, size_t size);

/* USM_VALIDATION: true if the host frees p while a queued command that uses it is not known to have
 * ended.  Returns the native queue of one such command, and a message that names them all. */
bool usm__order_in_use(const void *p, void **native, char *story, size_t size);
/* Marks the block as reported: true the first time in its lifetime. */
bool usm__order_name(const void *p);

#endif
