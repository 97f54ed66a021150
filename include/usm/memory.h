/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Allocation: malloc for host, device and shared memory.
 *
 * usm_alloc(n, kind) and its family need no set-up: they use the first device
 * that USM_DEVICE_SELECTOR leaves.  The forms with a queue or a context carry
 * SYCL's names and argument order (alignment first).
 *
 * Size 0 gives a unique pointer to be freed.  Alignment 0 is the default (at
 * least 16 on the host, 64 elsewhere), else a power of two up to 2 MiB.  On
 * failure the result is NULL, errno is ENOMEM and usm_last_error() tells why.
 * All functions are thread-safe; any thread frees any pointer. */
#ifndef USM_MEMORY_H
#define USM_MEMORY_H

#include <usm/types.h>

USM_BEGIN_DECLS

/** Frees memory of any kind, context and pool.  NULL is fine.  No queued work
 * may use the block (usm_free_blocking waits for it).  A pointer that is not
 * the start of a live block is refused and named in usm_last_error() and the
 * log; nothing is freed then.  USM_VALIDATION=1 names a block that queued work uses, and keeps it
 * until that has ended (docs/debugging.md). */
USM_API void usm_free(void *p);
/** Frees and tells: the named status of a pointer that was refused.
 *   USM_E_INVALID_POINTER, USM_E_DOUBLE_FREE, USM_E_INTERIOR_POINTER,
 *   USM_E_WRONG_CONTEXT when ctx is not NULL and not the block's */
USM_API usm_status usm_free_ctx(void *p, usm_context *ctx);
/** Waits for all work queued in the block's context, then frees. */
USM_API usm_status usm_free_blocking(void *p, usm_context *ctx);

/** A kind outside 1..3 is USM_E_KIND: were size and kind swapped? */
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_alloc(size_t size, usm_kind kind);
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_alloc_host(size_t size);
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_alloc_device(size_t size);
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_alloc_shared(size_t size);
/** Zeroed, on the device where the host may not write. */
USM_API USM_MALLOC USM_ALLOC_SIZE2(1, 2) void *usm_calloc(size_t n, size_t size, usm_kind kind);
USM_API USM_MALLOC USM_ALLOC_SIZE(2)
    USM_ALLOC_ALIGN(1) void *usm_aligned_alloc(size_t align, size_t size, usm_kind kind);
/** p NULL: usm_alloc.  Otherwise a block of p's context and device; kind
 * USM_UNKNOWN keeps p's.  Blocks for its copy.  On failure p stays valid.
 * size 0 gives a minimal block, as usm_alloc(0). */
USM_API USM_ALLOC_SIZE(2) void *usm_realloc(void *p, size_t size, usm_kind kind);
/** Bytes from p (interior pointers count) to the end of its block; 0 if none. */
USM_API size_t usm_usable_size(const void *p);

/* SYCL's own, on the queue's device and context. */
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
/* The (device, context) forms; dev is ignored for host and may be NULL: the
 * context's first; ctx NULL: the default context. */
USM_API USM_MALLOC USM_ALLOC_SIZE(1) void *usm_malloc_ctx(size_t size, usm_device *dev,
                                                          usm_context *ctx, usm_kind kind);
USM_API USM_MALLOC USM_ALLOC_SIZE(2)
    USM_ALLOC_ALIGN(1) void *usm_aligned_alloc_ctx(size_t align, size_t size, usm_device *dev,
                                                   usm_context *ctx, usm_kind kind);

/** The kind of the live block that p points into; USM_UNKNOWN for any other
 * pointer, freed blocks included.  ctx NULL: any context. */
USM_API usm_kind usm_get_pointer_type(const void *p, usm_context *ctx);
/** Device and shared memory: the device it was allocated for; host memory: the
 * context's first.   USM_E_INVALID_POINTER  not USM of ctx */
USM_API USM_NODISCARD usm_status usm_get_pointer_device(const void *p, usm_context *ctx,
                                                        usm_device **dev);
USM_API USM_NODISCARD usm_status usm_get_pointer_context(const void *p, usm_context **ctx);
/** Start and size of the block that p points into. */
USM_API USM_NODISCARD usm_status usm_get_address_range(const void *p, usm_context *ctx, void **base,
                                                       size_t *size);

/** Blocking copy that behaves as memmove; finds its queue by the pointers.
 * Pointers that are not libusm's are host memory. */
USM_API usm_status usm_copy(void *dst, const void *src, size_t n);
/** Blocking; rows of `width` bytes, `pitch` bytes apart, of two regions that
 * do not overlap. */
USM_API usm_status usm_copy_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                               size_t width, size_t height);
/** Blocking memset. */
USM_API usm_status usm_set(void *dst, int value, size_t n);

USM_END_DECLS
#endif
