/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page map: from any pointer to the span of blocks and to the area that it lies in, without a
 * lock.  One walk, and an answer for every pointer: an address that libusm does not have leads to
 * nothing.
 *
 *     half.leaf[addr >> 30]  -->  leaf.page[(addr >> 12) & (2^18 - 1)]  =  span, area, or 0
 *                                 leaf.mega[(addr >> 21) & 511]         =  area, or 0
 *     half.giga[addr >> 30]                                             =  area, or 0
 *
 * An area is entered for each GiB that it covers in `giga`, for each other 2 MiB that it covers in
 * `mega`, and for each other page in `page`, so a range of 64 GiB takes some hundred stores.  A
 * page of a span leads to the span, which knows its area.
 *
 * Invariant: the first entry of a page that is not 0, in the order page, mega, giga, is the page's
 * area, or a span in that area; a page of no area has none.
 *
 * The fast path of a free is two loads and a test, and looks at nothing but spans.  Areas are
 * tagged by the sign bit, so that one comparison rejects them and pages without an entry.  The low
 * half (user space) is static, zero pages until it is used, and addressed directly.  The addresses
 * of some GPUs are in the high half, which is handled out of line.
 *
 * A leaf is mapped when its GiB first needs one and lives as long as the process.  It takes 2 MiB
 * of addresses, and as much memory as its used pages need.  Entries for memory that was returned to
 * the driver cost no memory.
 *
 * Readers and writers: pages.c. */
#ifndef USM_HEAP_PAGES_H
#define USM_HEAP_PAGES_H

#include "base/inline/atomic.h"
#include "heap/area.h"
#include "heap/span.h"

#define USM__PAGE_SHIFT 12
#define USM__MEGA_SHIFT 21
#define USM__LEAF_BITS  18 /* pages in a leaf                               */
#define USM__ROOT_BITS  17 /* leaves in half of an address space of 48 bits */
#define USM__AREA_TAG   ((uintptr_t)1 << 63)

typedef _Atomic(uintptr_t) usm__page_entry;

typedef struct usm__page_leaf {
    usm__page_entry page[1u << USM__LEAF_BITS];
    usm__page_entry mega[1u << (USM__LEAF_BITS + USM__PAGE_SHIFT - USM__MEGA_SHIFT)];
    /* guarded by the map's lock: the number of areas in `page`, for each 2 MiB */
    uint32_t parts[1u << (USM__LEAF_BITS + USM__PAGE_SHIFT - USM__MEGA_SHIFT)];
} usm__page_leaf;

typedef struct usm__page_half {
    _Atomic(usm__page_leaf *) leaf[1u << USM__ROOT_BITS];
    usm__page_entry           giga[1u << USM__ROOT_BITS];
} usm__page_half;

/* Hidden, so that the fast path addresses it directly. */
extern usm__page_half usm__page_low __attribute__((visibility("hidden")));

/* NULL: the entry is an area's, or 0. */
static inline usm_span *usm__page_span(uintptr_t entry)
{
    return __builtin_expect((intptr_t)entry > 0, 1) ? (usm_span *)entry : NULL;
}

/* For addresses with a bit above 46 set. */
usm_span *usm__page_find_high(const void *p);

/* Returns the span of p's page, NULL for any other address.  The acquire loads pair with the
 * release stores of usm__pages_set: a thread that finds a span sees everything written into it
 * before. */
static inline usm_span *usm__page_find_low(const void *p)
{
    uintptr_t       page = (uintptr_t)p >> USM__PAGE_SHIFT;
    uintptr_t       root = page >> USM__LEAF_BITS;
    usm__page_leaf *leaf;
    uintptr_t       entry;

    if (__builtin_expect(root >= 1u << USM__ROOT_BITS, 0))
        return NULL;
    leaf = usm_load_acquire(&usm__page_low.leaf[root]);
    if (__builtin_expect(leaf == NULL, 0))
        return NULL;
    entry = usm_load_acquire(&leaf->page[page & ((1u << USM__LEAF_BITS) - 1)]);
    return usm__page_span(entry);
}

/* usm__page_find_low() covers the low half only, so that the fast path of a free calls no function
 * and saves no register. */
static inline usm_span *usm__page_find(const void *p)
{
    return (uintptr_t)p >> 47 ? usm__page_find_high(p) : usm__page_find_low(p);
}

static inline usm__area *usm__page_area(const usm_span *span)
{
    return usm_container_of(span->area, usm__area, view);
}

/* Finds the block around p by the span that p's page leads to; returns its state.  NULL: the span
 * describes other pages by now, because the block was freed meanwhile; a state would lie outside of
 * its table. */
static inline _Atomic(uint8_t) *usm__page_block_around(const usm_span *span, const void *p,
                                                       usm_block *block)
{
    uintptr_t offset = (uintptr_t)p - span->base;
    uintptr_t i      = offset * span->reciprocal >> USM_SPAN_SHIFT;

    *block = (usm_block){(void *)(span->base + i * span->size), span->size};
    return offset >> USM__PAGE_SHIFT < span->pages
               ? usm_span_states(span) + (i * span->size >> span->shift)
               : NULL;
}

/* Finds the live block around p from the page map alone; NULL: there is none, or it is tracked, or
 * only its pool can tell. */
static inline const usm_span *usm__page_find_live(const void *p, usm_block *block)
{
    const usm_span         *span  = usm__page_find(p);
    const _Atomic(uint8_t) *state = span ? usm__page_block_around(span, p, block) : NULL;

    return state && usm_load_relaxed(state) == USM_BLOCK_LIVE ? span : NULL;
}

/* Makes n pages from the address `at` on, which are in `area`, lead to `span`; NULL: to no span.  A
 * span must be complete when it is set.  The caller makes sure that no other thread sets the same
 * pages meanwhile.  Lock-free.
 *   USM_E_NO_MEMORY  only if span is not NULL */
usm_status usm__pages_set(usm_area *area, uintptr_t at, size_t n, usm_span *span);
/* No page of [at, at + size) leads to anything any more, or they all lie in one area and none leads
 * to a span: the memory of their entries returns to the system, where whole pages of it are free.
 * The caller owns the addresses, so no other thread sets their pages meanwhile. */
void usm__pages_discard(uintptr_t at, size_t size);

#endif
