/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Area sources: pools of libusm over memory that the program, or another
 * runtime, allocates in large pieces with functions of its own.
 *
 *     usm_area_source source = USM_AREA_SOURCE_INIT;
 *     usm_native_desc desc   = USM_NATIVE_DESC_INIT;
 *
 *     source.alloc = my_alloc;
 *     source.free  = my_free;
 *     desc.backend = "source";
 *     desc.handle  = &source;
 *     usm_context_from_native(&desc, &ctx);
 *     usm_pool_create(ctx, NULL, USM_DEVICE, NULL, &pool);
 *
 * Such a context has memory and pools, and no queues: what moves data is the
 * runtime that the memory belongs to.  libusm never touches device memory of a
 * source; it may touch host and shared memory (usm_calloc()). */
#ifndef USM_SOURCE_H
#define USM_SOURCE_H

#include <usm/types.h>

USM_BEGIN_DECLS

/** The kinds of memory that a source has. */
typedef enum usm_source_kinds {
    USM_SOURCE_HOST   = 1,
    USM_SOURCE_DEVICE = 2,
    USM_SOURCE_SHARED = 4
} usm_source_kinds;

/** A source of areas.  It stays the caller's, and unchanged, until its context
 * has been destroyed. */
typedef struct usm_area_source {
    size_t   struct_size;
    void    *user;        /**< passed to the functions                          */
    uint32_t kinds;       /**< usm_source_kinds, or-ed                          */
    uint64_t memory_size; /**< bytes that there are; 0: unknown                 */
    size_t   max_align;   /**< largest alignment in bytes that alloc() can make */
    /** Allocates `size` bytes (> 0) at an address that is a multiple of `align`
     * (a power of two, at most max_align): *p.  Any thread may call; no lock of
     * libusm is held.  The function may use libusm, but not this context.
     *   USM_E_NO_MEMORY  the memory is full: the pool frees what it can and asks
     *                    again */
    usm_status (*alloc)(void *user, usm_kind kind, size_t size, size_t align, void **p);
    /** Frees what alloc() returned for that size. */
    usm_status (*free)(void *user, usm_kind kind, void *p, size_t size);
} usm_area_source;
#define USM_AREA_SOURCE_INIT                                                                       \
    {                                                                                              \
        sizeof(usm_area_source), NULL, USM_SOURCE_DEVICE, 0, 4096, NULL, NULL                      \
    }

USM_END_DECLS
#endif
