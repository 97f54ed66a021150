/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The event rings: what happens to memory, written per thread without a lock and drained into the
 * file of USM_TRACE by a thread of its own.  Lossy under overload: what found no room is counted
 * and the count is written.  The file's format is trace_format.h's.
 *
 * Nothing here costs anything while usm__trace_on is 0: callers ask it first (block events are on
 * the observed path of core/pool.c, which hits of thread caches do not take). */
#ifndef USM_BASE_TRACE_H
#define USM_BASE_TRACE_H

#include <usm/pool.h>

#include <stdatomic.h>
#include <stdint.h>

extern atomic_int usm__trace_on;

/* What a driver was asked. */
typedef enum usm__trace_call {
    USM__TRACE_TAKE  = 1, /* mem_alloc                  */
    USM__TRACE_GIVE  = 2, /* mem_free                   */
    USM__TRACE_MAP   = 3, /* phys_create + vmem_map     */
    USM__TRACE_UNMAP = 4
} usm__trace_call;

/* Reads USM_TRACE and its companions and opens the file; the writer starts with the first event.
 * Called before each pool is made, so that usm_config_set() can set them before the first; further
 * calls do nothing.  A file that cannot be had is warned about and nothing is traced. */
void usm__trace_start(void);
/* All that was recorded is in the file; at usm_shutdown() and at the process's end. */
void usm__trace_flush(void);
void usm__trace_fork(
    int phase); /* the child writes a file of its own when %p is in the name, else nothing */
/* The calling thread ends: `ring` is its block's. */
void usm__trace_thread_end(void *ring);

/* A pool comes: names it for the file. Its id is > 0 and never reused; 0 when not tracing. */
uint32_t usm__trace_pool(const char *name, usm_kind kind, const char *device);
/* A tag's number in the file; 0 is none, or no more fit. Call it once a tag. */
uint32_t usm__trace_tag(const char *name);

/* After a block was had.  `size` is what was asked for, `usable` what the block has. */
void usm__trace_alloc(uint32_t pool, uint32_t tag, const void *p, size_t size, size_t usable);
/* Before a block is given back: afterwards another thread may have it. */
void usm__trace_free(uint32_t pool, const void *p);
/* An allocation that found no memory. */
void usm__trace_failed(uint32_t pool, uint32_t tag, size_t size);
/* start_ns: CLOCK_MONOTONIC before the call; the end is now. */
void usm__trace_driver(usm__trace_call call, uint32_t pool, const void *p, size_t size,
                       uint64_t start_ns, usm_status status);

/* The checks of the settings trace and trace_stacks. */
bool usm__trace_check_name(const char *value, char *why, size_t why_size);
bool usm__trace_check_stacks(const char *value, char *why, size_t why_size);

#endif
