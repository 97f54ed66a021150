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
 *   column c is marked    <=>  first[r][c] != NULL */
#include "heap/page_heap_private.h"

#define LOOK         16
#define LOOK_LARGEST 64

struct place {
    unsigned row, column;
};

static struct place place_of(size_t size)
{
    size_t   pages = size >> SLAB_PAGE_SHIFT;
    unsigned log   = 63 - (unsigned)__builtin_clzl(pages | 1);

    if (log < 5)
        return (struct place){0, (unsigned)pages};
    return (struct place){log - 4, (unsigned)(pages >> (log - 5)) & 31};
}

void slab_bins_insert(slab_bins *bins, slab_block *b)
{
    struct place p     = place_of(b->span.size);
    slab_block **first = &bins->first[p.row][p.column];

    usm_list_init(&b->link);
    if (*first)
        usm_list_append(&(*first)->link, &b->link);
    else
        bins->columns[p.row] |= 1u << p.column;
    bins->rows |= 1u << p.row;
    *first = b;
}

void slab_bins_remove(slab_bins *bins, slab_block *b)
{
    struct place p     = place_of(b->span.size);
    slab_block **first = &bins->first[p.row][p.column];

    if (*first == b)
        *first = b->link.next == &b->link ? NULL : SLAB_BLOCK_OF(b->link.next);
    usm_list_remove(&b->link);
    if (*first)
        return;
    bins->columns[p.row] &= ~(1u << p.column);
    if (!bins->columns[p.row])
        bins->rows &= ~(1u << p.row);
}

/* The first bin at or after p that is not empty. */
static bool next_bin(const slab_bins *bins, struct place *p)
{
    uint32_t columns = p->column < 32 ? bins->columns[p->row] & (~0u << p->column) : 0;
    uint32_t rows;

    if (!columns) {
        rows = p->row < 31 ? bins->rows & (~0u << (p->row + 1)) : 0;
        if (!rows)
            return false;
        p->row  = (unsigned)__builtin_ctz(rows);
        columns = bins->columns[p->row];
    }
    p->column = (unsigned)__builtin_ctz(columns);
    return true;
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

static slab_block *best_in_bin(slab_block *first, size_t size, size_t align)
{
    slab_block *best = NULL, *b = first;
    unsigned    looked = 0;

    do {
        if (fits(b, size, align) && is_better(b, best))
            best = b;
        b = SLAB_BLOCK_OF(b->link.next);
    } while (b != first && ++looked < LOOK);
    return best;
}

slab_block *slab_bins_find(const slab_bins *bins, size_t size, size_t align)
{
    struct place p    = place_of(size);
    slab_block  *best = NULL;

    while (!best && next_bin(bins, &p)) {
        best = best_in_bin(bins->first[p.row][p.column], size, align);
        p.column++;
    }
    return best;
}

slab_block *slab_bins_largest(const slab_bins *bins)
{
    unsigned    row, column, looked = 0;
    slab_block *first, *best, *b;

    if (!bins->rows)
        return NULL;
    row    = 31 - (unsigned)__builtin_clz(bins->rows);
    column = 31 - (unsigned)__builtin_clz(bins->columns[row]);
    first = best = b = bins->first[row][column];
    while ((b = SLAB_BLOCK_OF(b->link.next)) != first && ++looked < LOOK_LARGEST)
        if (b->span.size > best->span.size)
            best = b;
    return best;
}

slab_block *slab_bins_highest(const slab_bins *bins, size_t size,
                              bool (*is_wanted)(const slab_heap *, const slab_block *),
                              const slab_heap *h)
{
    struct place p    = place_of(size);
    slab_block  *best = NULL;

    for (; next_bin(bins, &p); p.column++) {
        slab_block *first = bins->first[p.row][p.column], *b = first;

        do {
            if ((!best || b->span.base > best->span.base) && is_wanted(h, b))
                best = b;
            b = SLAB_BLOCK_OF(b->link.next);
        } while (b != first);
    }
    return best;
}

bool slab_bins_is_in(const slab_block *b, unsigned row, unsigned column)
{
    struct place p = place_of(b->span.size);

    return p.row == row && p.column == column;
}
