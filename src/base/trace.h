/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The event rings: records of what happens to memory, written by each thread without a lock, and
 * drained into the file of USM_TRACE by a thread of their own.  Events are lost under overload:
 * those that found no room are counted, and the count is written.  trace_format.h has the file
 * format.
 *
 * Nothing here costs anything while usm__trace_on is 0: callers test it first (events of blocks are
 * recorded by src/observe, which the fast path of thread caches does not call). */
#ifndef USM_BASE_TRACE_H
#define USM_BASE_TRACE_H

#include <usm/pool_ops.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern atomic_int usm__trace_on; /* stays 0 in a library without tracing */

/* True if the caller should read clocks for an event. */
static inline bool usm__trace_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&usm__trace_on, memory_order_relaxed) != 0, 0);
}

/* The driver calls that are recorded. */
typedef enum usm__trace_call {
    USM__TRACE_TAKE  = 1, /* mem_alloc                  */
    USM__TRACE_GIVE  = 2, /* mem_free                   */
    USM__TRACE_MAP   = 3, /* phys_create + vmem_map     */
    USM__TRACE_UNMAP = 4
} usm__trace_call;

/* What the core calls of the rings: it is built without them where USM_PARTS leaves out `observe`.
 * */
typedef struct usm__tracer {
    /* Writes everything recorded so far to the file; called by usm_shutdown() and at the end of the
     * process. */
    void (*flush)(void);
    /* The child writes a file of its own if the name has %p, otherwise nothing. */
    void (*fork)(usm_fork_phase phase);
    /* The calling thread ends; `ring` is that of its block. */
    void (*thread_end)(void *ring);
    /* Called when a pool is created: writes its name to the file.  Its id is > 0, at most 255, and
     * never reused, but the last one is shared; 0 if tracing is off. */
    uint32_t (*pool)(const char *name, usm_kind kind, const char *device);
    /* start_ns: CLOCK_MONOTONIC before the call; the end is now. */
    void (*driver)(usm__trace_call call, uint32_t pool, const void *p, size_t size,
                   uint64_t start_ns, usm_status status);
    /* The thread caches of the pool may hold `room` bytes from now on; their budget is `limit`. */
    void (*caches)(uint32_t pool, uint64_t room, uint64_t limit);
} usm__tracer;

extern const usm__tracer        usm__trace_table; /* of trace.c */
extern const usm__tracer *const usm__tracer_now;  /* that table, or NULL: there are no rings */

/* Reads USM_TRACE and related settings and opens the file; the writer starts with the first event.
 * Called before each pool is created, so that usm_config_set() works until the first; later calls
 * do nothing.  If the file cannot be opened, a warning is logged and nothing is traced. */
void usm__trace_start(void);
/* The functions of the table above, where src/observe is built in. */
void     usm__trace_flush(void);
void     usm__trace_fork(usm_fork_phase phase);
void     usm__trace_thread_end(void *ring);
uint32_t usm__trace_pool(const char *name, usm_kind kind, const char *device);
/* Returns a tag's number in the file; 0: tracing is off, or there are too many.  Called once for
 * each tag. */
uint32_t usm__trace_tag(const char *name);

/* Called after an allocation.  `size` is the requested size, `usable` that of the block. */
void usm__trace_alloc(uint32_t pool, uint32_t tag, const void *p, size_t size, size_t usable);
/* Called before a block is freed, because another thread may get it afterwards. */
void usm__trace_free(uint32_t pool, const void *p);
/* Called when an allocation found no memory. */
void usm__trace_failed(uint32_t pool, uint32_t tag, size_t size);
void usm__trace_driver(usm__trace_call call, uint32_t pool, const void *p, size_t size,
                       uint64_t start_ns, usm_status status);
void usm__trace_caches(uint32_t pool, uint64_t room, uint64_t limit);

/* Check texts for the settings trace and trace_stacks. */
bool usm__trace_check_name(const char *value, char *why, size_t why_size);
bool usm__trace_check_stacks(const char *value, char *why, size_t why_size);

#endif
