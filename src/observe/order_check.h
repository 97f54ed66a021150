/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The checker of stream order (USM_HOOKS=order; USM_VALIDATION=1 uses the same data).
 *
 * Every use of a block must come after its allocation and before its free, in the order that
 * queues, events and the host's waits define, whatever the moment at which it happens to run.  The
 * checker sees each call of a backend (order_calls.c), and each block that a pool allocates or
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
 * Called by order_calls.c, observe.c, and through the observer's table.  Any thread; takes a lock
 * of its own (USM__RANK_ORDER_CHECK) and no other but the log's. */
#ifndef USM_OBSERVE_ORDER_CHECK_H
#define USM_OBSERVE_ORDER_CHECK_H

#include <usm/pool_ops.h>
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

/* Called by hooks.c, once, before the first call of a backend. */
void usm__order_start(bool is_hook);

/* The number of violations so far. */
uint64_t usm__order_violations(void);
/* USM_FORK_*: the child has none of the parent's queues. */
void usm__order_fork(usm_fork_phase phase);

/* ---- members of the observer's table (device/observer.h) ---- */

void usm__order_block_served(const void *p, size_t size);
void usm__order_block_back(const void *p);
void usm__order_range_gone(const void *p, size_t size);
void usm__order_queue_named(void *native, uint64_t serial);
void usm__order_queue_ended(void *native);
void usm__order_event_seen(void *native, usm_status st);
void usm__order_async_alloc(usm_queue *q, void *p, size_t size, void *native);
void usm__order_async_free(usm_queue *q, void *p, uint64_t position, void *native);
void usm__order_claim_complete(usm_queue *q, uint64_t position);

/* ---- for the decorators of a backend (order_calls.c) ---- */

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
void usm__order_queue_gone(void *native);
/* A snapshot of the commands queued now; NULL: none, or no memory.  Passed to _waited after the
 * wait. */
void *usm__order_queue_snapshot(void *native);
void  usm__order_queue_waited(void *snapshot, usm_status st);
void  usm__order_event_made(void *native); /* a user event */
void  usm__order_event_signalled(void *native);
void  usm__order_event_gone(void *native);

/* USM_VALIDATION: true if the host frees p while a queued command that uses it is not known to have
 * ended.  Returns the native queue of one such command, and a message that names them all. */
bool usm__order_in_use(const void *p, void **native, char *message, size_t size);
/* Marks the block as reported: true the first time in its lifetime. */
bool usm__order_name(const void *p);

#endif
