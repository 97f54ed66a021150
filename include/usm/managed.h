/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Managed memory: plain pointers to memory that may be larger than memory.
 *
 *     double *x = usm_alloc_managed(n * sizeof *x);
 *     for (size_t i = 0; i < n; i++)
 *         x[i] = f(i);
 *     usm_free(x);
 *
 * The memory reads as zeros until it is written.  It is cut into blocks.  Blocks that do not fit in
 * USM_MEMORY_LIMIT are evicted to the tiers of USM_SPILL, as those of buffers, and come back when
 * a thread touches them.
 *
 *  - Any thread may touch it at any time, as memory of malloc().
 *  - System calls and drivers may be given parts that are pinned.  Whether a system call may also be
 *    given others depends on the machine: docs/managed.md.
 *  - A touch that cannot be served, because the tiers are full or a block is corrupt, ends in SIGBUS
 *    for the thread; a line of the log, or the program's error callback, says why.
 *  - A child of fork() does not have the memory.
 *
 * Linux only, by userfaultfd.  Sizes are bytes.  Thread-safe. */
#ifndef USM_MANAGED_H
#define USM_MANAGED_H

#include <usm/buffer.h>
#include <usm/memory.h>

USM_BEGIN_DECLS

/** Allocates memory, aligned to 2 MiB; usm_free() frees it.  NULL, with errno ENOMEM and the reason
 * in usm_last_error(): the machine does not allow it, or there are no addresses left. */
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_alloc_managed(size_t size);
/** The same in the context of the queue, as a buffer of it: a context with a host_limit has frames
 * and tiers of its own for it.  The context stays until the memory is freed.
 * Before an access ends in SIGBUS, the context's on_error is called, on another thread, with the
 * address and the reason, instead of the line of the log; it must not touch managed memory. */
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_malloc_managed(size_t size, usm_queue *q);

/** Brings the blocks of [p, p + size) into memory and keeps them there until usm_managed_unpin() of
 * the same bytes and mode; calls nest.  USM_READ: nobody writes to them through the pin.  The modes
 * USM_NO_INIT and USM_NO_WAIT are ignored.
 *   USM_E_INVALID_POINTER  the bytes are not in one block of managed memory
 *   USM_E_BUDGET           they are more than USM_MEMORY_LIMIT
 *   USM_E_AGAIN            other pins and accesses hold the memory
 *   USM_E_SPILL_FULL, USM_E_IO, USM_E_CORRUPT  as usm_access_begin() */
USM_API usm_status usm_managed_pin(const void *p, size_t size, usm_access_mode mode);
/** Ends a pin. */
USM_API usm_status usm_managed_unpin(const void *p, size_t size, usm_access_mode mode);

/** Says how [p, p + size) will be used; see usm_buffer_advice.
 *   USM_E_INVALID_POINTER  as usm_managed_pin()
 *   USM_E_NOT_SUPPORTED    USM_BUFFER_DISCARD */
USM_API usm_status usm_managed_advise(const void *p, size_t size, usm_buffer_advice advice);

USM_END_DECLS

#endif
