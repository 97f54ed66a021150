/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sets of bytes as sorted intervals (buffer/valid.h). */
#include "buffer/valid.h"

#include "base/assert.h"
#include "base/inline/bits.h"
#include "base/os.h"

#include <string.h>

#define INLINE (sizeof((usm__valid *)0)->first / sizeof(usm__interval))

void usm__valid_init(usm__valid *v)
{
    v->n   = 0;
    v->cap = INLINE;
    v->at  = v->first;
}

void usm__valid_fini(usm__valid *v)
{
    if (v->at != v->first)
        usm__heap_free(v->at);
    usm__valid_init(v);
}

bool usm__valid_reserve(usm__valid *v, size_t n)
{
    size_t         cap = usm_max_size(2 * v->cap, v->n + n);
    usm__interval *grown;

    if (v->cap - v->n >= n)
        return true;
    grown = usm__heap_alloc(cap * sizeof *grown);
    if (!grown)
        return false;
    memcpy(grown, v->at, v->n * sizeof *grown);
    if (v->at != v->first)
        usm__heap_free(v->at);
    v->at  = grown;
    v->cap = cap;
    return true;
}

/* Index of the first interval that ends at or behind `at` (beyond: only behind it). */
static size_t find(const usm__valid *v, size_t at, bool beyond)
{
    size_t lo = 0, hi = v->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (beyond ? v->at[mid].end > at : v->at[mid].end >= at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* Replaces the intervals [first, last) by n others (n <= 2). */
static void replace(usm__valid *v, size_t first, size_t last, const usm__interval *with, size_t n)
{
    size_t behind = v->n - last;

    usm_assert(v->n - (last - first) + n <= v->cap);
    memmove(&v->at[first + n], &v->at[last], behind * sizeof *v->at);
    for (size_t i = 0; i < n; i++)
        v->at[first + i] = with[i];
    v->n = first + n + behind;
}

void usm__valid_add(usm__valid *v, size_t start, size_t end)
{
    size_t        first = find(v, start, false), last = first;
    usm__interval all = {start, end};

    usm_assert(start < end);
    for (; last < v->n && v->at[last].start <= end; last++) {
        all.start = usm_min_size(all.start, v->at[last].start);
        all.end   = usm_max_size(all.end, v->at[last].end);
    }
    replace(v, first, last, &all, 1);
}

void usm__valid_remove(usm__valid *v, size_t start, size_t end)
{
    size_t        first = find(v, start, true), last = first, n = 0;
    usm__interval left[2];

    usm_assert(start < end);
    for (; last < v->n && v->at[last].start < end; last++) {
        if (v->at[last].start < start)
            left[n++] = (usm__interval){v->at[last].start, start};
        if (v->at[last].end > end)
            left[n++] = (usm__interval){end, v->at[last].end};
    }
    if (last > first)
        replace(v, first, last, left, n);
}

bool usm__valid_next(const usm__valid *v, size_t from, size_t to, usm__interval *found)
{
    size_t i = find(v, from, true);

    if (from >= to || i == v->n || v->at[i].start >= to)
        return false;
    found->start = usm_max_size(v->at[i].start, from);
    found->end   = usm_min_size(v->at[i].end, to);
    return true;
}

bool usm__valid_next_gap(const usm__valid *v, size_t from, size_t to, usm__interval *found)
{
    size_t i = find(v, from, true);

    if (i < v->n && v->at[i].start <= from)
        from = v->at[i++].end;
    if (from >= to)
        return false;
    found->start = from;
    found->end   = i < v->n ? usm_min_size(v->at[i].start, to) : to;
    return true;
}

bool usm__valid_has_all(const usm__valid *v, size_t start, size_t end)
{
    usm__interval gap;

    return !usm__valid_next_gap(v, start, end, &gap);
}

bool usm__valid_has_any(const usm__valid *v, size_t start, size_t end)
{
    usm__interval piece;

    return usm__valid_next(v, start, end, &piece);
}

size_t usm__valid_size(const usm__valid *v)
{
    size_t sum = 0;

    for (size_t i = 0; i < v->n; i++)
        sum += v->at[i].end - v->at[i].start;
    return sum;
}
