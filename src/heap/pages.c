/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The writers of the page map, and its high half.  heap/pages.h describes the mechanism.
 *
 * Leaves are made when a span first needs one, and never unmapped, so a reader never reads unmapped
 * memory.  If two writers need the same leaf, both map one, and the slower one unmaps its own.
 * There is no lock, and therefore nothing to do at a fork. */
#include "heap/pages.h"

#include "base/os.h"
#include "base/status.h"

#define LEAF_PAGES ((size_t)1 << USM__LEAF_BITS)
#define ROOT_SIZE  ((size_t)1 << USM__ROOT_BITS)
#define HALF_SHIFT (USM__LEAF_BITS + USM__ROOT_BITS) /* of a page's number          */
#define HIGH_HALF  ((uintptr_t)0x1ffff)              /* all bits from 47 on are set */

usm__page_entry usm__page_root[ROOT_SIZE];

static _Atomic(usm__page_entry *) high_root; /* mapped at its first use */

/* The entry for a page's leaf; NULL outside both halves, or while the high half has no root. */
static usm__page_entry *entry_of(uintptr_t page)
{
    usm__page_entry *root = NULL;

    if (page >> HALF_SHIFT == 0)
        root = usm__page_root;
    else if (page >> HALF_SHIFT == HIGH_HALF)
        root = usm_load_acquire(&high_root); /* pairs with make_high_root */
    return root ? &root[(page >> USM__LEAF_BITS) & (ROOT_SIZE - 1)] : NULL;
}

usm_span *usm__page_find_high(const void *p)
{
    uintptr_t        page  = (uintptr_t)p >> USM__PAGE_SHIFT;
    usm__page_entry *entry = entry_of(page);
    usm__page_leaf  *leaf  = entry ? usm_load_acquire(entry) : NULL;

    return leaf ? usm_load_acquire(&leaf->span[page & (LEAF_PAGES - 1)]) : NULL;
}

static void make_high_root(void)
{
    usm__page_entry *none = NULL, *root;
    void            *pages;

    if (usm_load_acquire(&high_root))
        return;
    root = pages = usm__os_map_noreserve(ROOT_SIZE * sizeof *root);
    if (root && !usm_cas_acq_rel(&high_root, &none, root))
        (void)usm__os_unmap(pages, ROOT_SIZE * sizeof *root);
}

/* Returns the leaf of a page, which is made if necessary; NULL: no memory. */
static usm__page_leaf *make_leaf(uintptr_t page)
{
    usm__page_entry *entry;
    usm__page_leaf  *leaf, *mine;

    if (page >> HALF_SHIFT != 0)
        make_high_root();
    entry = entry_of(page);
    leaf  = entry ? usm_load_acquire(entry) : NULL;
    if (leaf || !entry)
        return leaf;
    mine = usm__os_map_noreserve(sizeof *mine);
    if (!mine)
        return usm_load_acquire(entry); /* another thread may have succeeded */
    if (usm_cas_acq_rel(entry, &leaf, mine))
        return mine;
    (void)usm__os_unmap(mine, sizeof *mine);
    return leaf;
}

/* The number of pages, of the n from `page` on, that are in its leaf. */
static size_t pages_in_leaf(uintptr_t page, size_t n)
{
    size_t left = LEAF_PAGES - (page & (LEAF_PAGES - 1));

    return n < left ? n : left;
}

/* All or none: no page is changed unless every leaf exists. */
static bool make_leaves(uintptr_t first, size_t n)
{
    for (size_t step; n > 0; first += step, n -= step) {
        step = pages_in_leaf(first, n);
        if (!make_leaf(first))
            return false;
    }
    return true;
}

usm_status usm__pages_set(usm_area *area, uintptr_t at, size_t n, usm_span *span)
{
    uintptr_t first = at >> USM__PAGE_SHIFT;

    (void)area;
    if (span && !make_leaves(first, n))
        return usm__fail(USM_E_NO_MEMORY,
                         "no host memory for the page map, in which libusm finds the block of %p",
                         (void *)at);
    for (size_t step; n > 0; first += step, n -= step) {
        usm__page_entry *entry = entry_of(first);
        usm__page_leaf  *leaf  = entry ? usm_load_acquire(entry) : NULL;

        step = pages_in_leaf(first, n);
        for (size_t i = 0; leaf && i < step; i++)
            usm_store_release(&leaf->span[(first + i) & (LEAF_PAGES - 1)], span);
    }
    return USM_OK;
}

void usm__pages_discard(uintptr_t at, size_t size)
{
    uintptr_t first = at >> USM__PAGE_SHIFT;

    for (size_t n = size >> USM__PAGE_SHIFT, step; n > 0; first += step, n -= step) {
        usm__page_entry *entry = entry_of(first);
        usm__page_leaf  *leaf  = entry ? usm_load_acquire(entry) : NULL;

        step = pages_in_leaf(first, n);
        if (leaf)
            usm__os_discard(&leaf->span[first & (LEAF_PAGES - 1)], step * sizeof leaf->span[0]);
    }
}
