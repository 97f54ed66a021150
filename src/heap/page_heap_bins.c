/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Free blocks by size, as in TLSF: rows are powers of two, columns are 32 steps within one, and
 * bitmaps record the bins that are not empty, so a block is found by two bit scans.
 *
 *     pages     1 2 3 .. 31 | 32 33 .. 63 | 64,65  66,67 .. 126,127 | 128-131 ..
 *     row                 0 |           1 |                       2 |       3 ..
 *
 * Below 64 pages a bin has blocks of one size; above, of sizes that differ by up to 1/32.  Only the
 * first LOOK blocks of a bin are examined for the best.
 *
 *   row r is marked       <=>  columns[r] != 0
 *   column c is marked    <=>  blocks[32 r + c] is not empty */
#include "heap/page_heap_private.h"

#define LOOK         16
#define LOOK_LARGEST 64
#define NO_BIN       (SLAB_BIN_ROWS * 32u)

/* The number of the bin: 32 r + c. */
static unsigned bin_of(size_t size)
{
    size_t   pages = size >> SLAB_PAGE_SHIFT;
    unsigned step  = 58 - (unsigned)__builtin_clzl(pages | 32); /* log2 of the sizes in a bin */

    return step * 32 + (unsigned)(pages >> step);
}

void slab_bins_init(slab_bins *bins)
{
    for (unsigned bin = 0; bin < NO_BIN; bin++)
        usm_list_init(&bins->blocks[bin]);
}

void slab_bins_insert(slab_bins *bins, slab_block *b)
{
    unsigned bin = bin_of(b->span.size);

    b->bin = (uint16_t)bin;
    usm_list_append(bins->blocks[bin].next, &b->link); /* to the front */
    bins->columns[bin / 32] |= 1u << bin % 32;
    bins->rows |= 1u << bin / 32;
}

/* Without branches: which bins have other blocks is not to be foreseen. */
void slab_bins_remove(slab_bins *bins, slab_block *b)
{
    unsigned bin = b->bin, row = bin / 32;

    usm_list_remove(&b->link);
    bins->columns[row] &= ~((uint32_t)usm_list_is_empty(&bins->blocks[bin]) << bin % 32);
    bins->rows &= ~((uint32_t)(bins->columns[row] == 0) << row);
}

void slab_bins_resize(slab_bins *bins, slab_block *b, size_t size)
{
    b->span.size = size;
    if (bin_of(size) == b->bin)
        return;
    slab_bins_remove(bins, b);
    slab_bins_insert(bins, b);
}

/* The first bin from `bin` on that is not empty; NO_BIN: there is none. */
static unsigned next_bin(const slab_bins *bins, unsigned bin)
{
    unsigned row = bin / 32;
    uint32_t columns, rows;

    if (row >= SLAB_BIN_ROWS)
        return NO_BIN;
    columns = bins->columns[row] & (~0u << bin % 32);
    if (columns)
        return row * 32 + (unsigned)__builtin_ctz(columns);
    rows = bins->rows & (~1u << row);
    if (!rows)
        return NO_BIN;
    row = (unsigned)__builtin_ctz(rows);
    return row * 32 + (unsigned)__builtin_ctz(bins->columns[row]);
}

static bool fits(const slab_block *b, size_t size, size_t align)
{
    size_t skipped = usm_align_up_ptr(b->span.base, align) - b->span.base;

    return b->span.size >= size && b->span.size - size >= skipped;
}

static bool is_better(const slab_block *b, const slab_block *than)
{
    if (!than || b->span.size != than->span.size)
        return !than || b->span.size < than->span.size;
    return b->span.base < than->span.base;
}

static slab_block *best_in_bin(const usm_list *bin, size_t size, size_t align)
{
    slab_block *best   = NULL;
    unsigned    looked = 0;

    for (usm_list *it = bin->next; it != bin && looked < LOOK; it = it->next, looked++) {
        slab_block *b = SLAB_BLOCK_OF(it);

        if (fits(b, size, align) && is_better(b, best))
            best = b;
    }
    return best;
}

slab_block *slab_bins_find(const slab_bins *bins, size_t size, size_t align)
{
    slab_block *best = NULL;

    for (unsigned bin = next_bin(bins, bin_of(size)); bin != NO_BIN && !best;
         bin          = next_bin(bins, bin + 1))
        best = best_in_bin(&bins->blocks[bin], size, align);
    return best;
}

slab_block *slab_bins_largest(const slab_bins *bins)
{
    unsigned        row, looked = 0;
    const usm_list *bin;
    slab_block     *best = NULL;

    if (!bins->rows)
        return NULL;
    row = 31 - (unsigned)__builtin_clz(bins->rows);
    bin = &bins->blocks[row * 32 + 31 - (unsigned)__builtin_clz(bins->columns[row])];
    for (usm_list *it = bin->next; it != bin && looked < LOOK_LARGEST; it = it->next, looked++)
        if (!best || SLAB_BLOCK_OF(it)->span.size > best->span.size)
            best = SLAB_BLOCK_OF(it);
    return best;
}

slab_block *slab_bins_highest(const slab_bins *bins, size_t size,
                              bool (*is_wanted)(const slab_heap *, const slab_block *),
                              const slab_heap *h)
{
    slab_block *best = NULL;

    for (unsigned bin = next_bin(bins, bin_of(size)); bin != NO_BIN; bin = next_bin(bins, bin + 1))
        USM_LIST_FOREACH (it, &bins->blocks[bin]) {
            slab_block *b = SLAB_BLOCK_OF(it);

            if ((!best || b->span.base > best->span.base) && is_wanted(h, b))
                best = b;
        }
    return best;
}

bool slab_bins_is_in(const slab_block *b, unsigned row, unsigned column)
{
    return b->bin == row * 32 + column && b->bin == bin_of(b->span.size);
}
