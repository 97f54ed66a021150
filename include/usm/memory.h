/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Allocation: malloc for host, device and shared memory.
 *
 * usm_alloc(n, kind) and its family need no set-up: they use the first device
 * that USM_DEVICE_SELECTOR selects.  The forms with a queue or a context have
 * SYCL's names and argument order (alignment first).
 *
 * Sizes and alignments are bytes.  Size 0 returns a unique pointer, which must
 * be freed.  Alignment 0 stands for the default (at least 16 on the host, 64
 * elsewhere); any other alignment is a power of two up to 2 MiB.  On failure an
 * allocation returns NULL and sets errno to ENOMEM; usm_last_error() gives the
 * cause.  All functions are thread-safe; any thread may free any block. */
#ifndef USM_MEMORY_H
#define USM_MEMORY_H

#include <usm/types.h>

USM_BEGIN_DECLS

/** Frees a block of any kind, context and pool.  p may be NULL.  No queued
 * command may still use the block (usm_free_blocking() waits for such
 * commands).  A pointer that is not the start of a live block is rejected:
 * nothing is freed, and usm_last_error() and the log name the pointer.  With
 * USM_VALIDATION=1 the library reports a block that queued commands still use,
 * and frees it only when they have ended (docs/debugging.md). */
USM_API void usm_free(void *p);
/** Frees a block, and returns a status when it rejects the pointer.  `ctx` NULL:
 * any context.
 *   USM_E_INVALID_POINTER   p is not in live memory of libusm
 *   USM_E_DOUBLE_FREE       the block was freed before
 *   USM_E_INTERIOR_POINTER  p is inside a block, not at its start
 *   USM_E_WRONG_CONTEXT     ctx is not NULL and is not the block's context */
USM_API usm_status usm_free_ctx(void *p, usm_context *ctx);
/** Waits for all commands queued in the block's context, then frees the block.
 * Returns what usm_free_ctx() returns. */
USM_API usm_status usm_free_blocking(void *p, usm_context *ctx);

/** USM_E_KIND: the kind is not 1, 2 or 3 (were size and kind swapped?). */
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_alloc(size_t size, usm_kind kind);
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_alloc_host(size_t size);
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_alloc_device(size_t size);
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_alloc_shared(size_t size);
/** Allocates n * size bytes and zeroes them; on the device, where the host may
 * not write. */
USM_API USM_MALLOC USM_ALLOC_SIZE2(1, 2) void *usm_calloc(size_t n, size_t size, usm_kind kind);
USM_API USM_MALLOC USM_ALLOC_SIZE(2)
    USM_ALLOC_ALIGN(1) void *usm_aligned_alloc(size_t align, size_t size, usm_kind kind);
/** Resizes a block.  p NULL: as usm_alloc().  Otherwise the new block belongs to
 * p's context and device; a kind of USM_UNKNOWN keeps p's kind.  The function
 * blocks until the content is copied.  On failure p stays valid.  Size 0
 * returns a minimal block, as usm_alloc(0) does. */
USM_API USM_ALLOC_SIZE(2) void *usm_realloc(void *p, size_t size, usm_kind kind);
/** Returns the number of bytes from p, which may be an interior pointer, to the
 * end of its block; 0 if p is not in a live block. */
USM_API size_t usm_usable_size(const void *p);

/* SYCL's functions: memory of the queue's device and context. */
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_malloc(size_t size, usm_queue *q, usm_kind kind);
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_malloc_device(size_t size, usm_queue *q);
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_malloc_host(size_t size, usm_queue *q);
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_malloc_shared(size_t size, usm_queue *q);
USM_API USM_MALLOC USM_ALLOC_SIZE(2)
    USM_ALLOC_ALIGN(1) void *usm_aligned_alloc_device(size_t align, size_t size, usm_queue *q);
USM_API USM_MALLOC USM_ALLOC_SIZE(2)
    USM_ALLOC_ALIGN(1) void *usm_aligned_alloc_host(size_t align, size_t size, usm_queue *q);
USM_API USM_MALLOC USM_ALLOC_SIZE(2)
    USM_ALLOC_ALIGN(1) void *usm_aligned_alloc_shared(size_t align, size_t size, usm_queue *q);
/* SYCL's forms with device and context.  For host memory `dev` is ignored.
 * `dev` NULL: the context's first device.  `ctx` NULL: the default context. */
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_malloc_ctx(size_t size, usm_device *dev,
                                                          usm_context *ctx, usm_kind kind);
USM_API USM_MALLOC USM_ALLOC_SIZE(2)
    USM_ALLOC_ALIGN(1) void *usm_aligned_alloc_ctx(size_t align, size_t size, usm_device *dev,
                                                   usm_context *ctx, usm_kind kind);

/** Returns the kind of the live block that p points into; USM_UNKNOWN for any
 * other pointer, including one into a freed block.  `ctx` NULL: any context. */
USM_API usm_kind usm_get_pointer_type(const void *p, usm_context *ctx);
/** Returns the device that a block of device or shared memory was allocated for;
 * for host memory, the context's first device.
 *   USM_E_INVALID_POINTER  p is not in a live block of ctx */
USM_API USM_NODISCARD usm_status usm_get_pointer_device(const void *p, usm_context *ctx,
                                                        usm_device **dev);
USM_API USM_NODISCARD usm_status usm_get_pointer_context(const void *p, usm_context **ctx);
/** Returns start and size of the block that p points into. */
USM_API USM_NODISCARD usm_status usm_get_address_range(const void *p, usm_context *ctx, void **base,
                                                       size_t *size);

/** Copies n bytes and blocks until the copy is complete.  The ranges may
 * overlap, as for memmove().  The function finds a queue from the pointers; a
 * pointer that is not libusm's is host memory. */
USM_API usm_status usm_copy(void *dst, const void *src, size_t n);
/** Copies `height` rows of `width` bytes and blocks until the copy is complete.
 * The pitches are the distances between two rows, in bytes.  The two regions
 * must not overlap. */
USM_API usm_status usm_copy_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                               size_t width, size_t height);
/** As memset(), on any memory; blocks until it is complete. */
USM_API usm_status usm_set(void *dst, int value, size_t n);

USM_END_DECLS
#endif
