/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page map: from any pointer to the span of blocks that its page of 4 KiB belongs to.
 *
 *     root[addr >> 30] -> leaf[(addr >> 12) & (2^18 - 1)] -> usm_span
 *
 * Two loads and no lock, for any pointer: an address that no pool entered leads to NULL.  The root
 * of the low half (user space) is static and consists of zero pages until it is used.  A leaf
 * covers 1 GiB, takes 2 MiB of addresses and as much memory as its used pages need, and lives as
 * long as the process.  Entries for memory that was returned to the driver cost no memory.  The
 * addresses of some GPUs are in the high half, which has a root of its own and is handled out of
 * line.
 *
 * The address map (heap/map.c) knows the areas, and has an answer for every pointer.  This map has
 * what a free needs to take a block back without calling its pool.  Readers: heap/magazine.c and
 * the pools.  Writers: pools, through their usm_area_source. */
#ifndef USM_HEAP_PAGES_H
#define USM_HEAP_PAGES_H

#include "base/inline/atomic.h"
#include "heap/span.h"

#include <usm/pool_ops.h>

#include <stdint.h>

#define USM__PAGE_SHIFT 12
#define USM__LEAF_BITS  18 /* pages in a leaf                               */
#define USM__ROOT_BITS  17 /* leaves in half of an address space of 48 bits */

typedef struct usm__page_leaf {
    _Atomic(usm_span *) span[1u << USM__LEAF_BITS];
} usm__page_leaf;

typedef _Atomic(usm__page_leaf *) usm__page_entry; /* NULL: no page of that GiB was entered */

/* The root of the low half.  Hidden, so that the fast path addresses it directly. */
#pragma GCC visibility push(hidden)
extern usm__page_entry usm__page_root[1u << USM__ROOT_BITS];
#pragma GCC visibility pop

/* For addresses with a bit above 46 set. */
usm_span *usm__page_find_high(const void *p);

/* Returns the span of p's page, NULL for any other address.  The acquire loads pair with the
 * release stores of usm__pages_set: a thread that finds a span sees everything written into it
 * before. */
static inline usm_span *usm__page_find_low(const void *p)
{
    uintptr_t       page = (uintptr_t)p >> USM__PAGE_SHIFT;
    usm__page_leaf *leaf;

    if (__builtin_expect(page >> (USM__LEAF_BITS + USM__ROOT_BITS) != 0, 0))
        return NULL;
    leaf = usm_load_acquire(&usm__page_root[page >> USM__LEAF_BITS]);
    if (__builtin_expect(leaf == NULL, 0))
        return NULL;
    return usm_load_acquire(&leaf->span[page & ((1u << USM__LEAF_BITS) - 1)]);
}

/* usm__page_find_low() covers the low half only, so that the fast path of a free calls no function
 * and saves no register. */
static inline usm_span *usm__page_find(const void *p)
{
    return (uintptr_t)p >> 47 ? usm__page_find_high(p) : usm__page_find_low(p);
}

/* Makes n pages from the address `at` on, which are in `area`, lead to `span`; NULL: to no span.  A
 * span must be complete when it is set.  The caller makes sure that no other thread sets the same
 * pages meanwhile.  Lock-free once the tables exist.
 *   USM_E_NO_MEMORY  only if span is not NULL */
usm_status usm__pages_set(usm_area *area, uintptr_t at, size_t n, usm_span *span);
/* No page of [at, at + size) leads to a span any more: the memory of their entries returns to the
 * system, where whole pages of it are free.  The caller owns the addresses, so no other thread sets
 * their pages meanwhile. */
void usm__pages_discard(uintptr_t at, size_t size);

#endif
