/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Large blocks from a pool of libusm.  Any thread may call.  Called by malloc.c. */
#ifndef USM_INSIDE_MALLOC_LARGE_H
#define USM_INSIDE_MALLOC_LARGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Blocks of so many bytes and more are large; SIZE_MAX: none is.  Relaxed: it changes at the start of
 * the process, in a forked child, and when the pool cannot be made, and a thread that sees it late
 * gets a block of the other allocator, which is as good. */
extern _Atomic(size_t) large_least;

static inline bool large_is(size_t size)
{
    return __builtin_expect(size >= atomic_load_explicit(&large_least, memory_order_relaxed), 0);
}

/* From now on blocks of `least` bytes and more are large; is_managed: they are managed memory, not of
 * a pool. */
void large_begin(size_t least, bool is_managed);

/* Allocates at a multiple of `align`, and of 4096; pre: large_is(size).  `caller` is the address that
 * the allocation returns to.  NULL: either memory is short (*is_refused, and errno is ENOMEM), or
 * the block is not for the pool: the C library is to serve it. */
void *large_alloc(size_t align, size_t size, const void *caller, bool *is_refused);

/* True if p is the start of a live large block, of *size bytes. */
bool large_find(const void *p, size_t *size);

/* Both of a block that large_find() found. */
void large_free(void *p, size_t size);
void large_zero(void *p, size_t size);

#endif
