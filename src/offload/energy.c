/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The 0/1 knapsack of the policy "energy", exact for up to 64 items.
 *
 * Watts are rounded up to whole tenths, so that sums are exact.  The search is branch and bound.
 * It takes items in the order of value per watt, best first, with and then without each.  It leaves
 * a branch when even fractions of the remaining items could not reach a better value.  Once an item
 * is left out, no item that draws as much or more and is worth as much or less can be in a better
 * set: this ends the branches of devices that are alike.  Inputs that still need too many branches
 * are easy for a table over all sums of watts. */
#include "offload/schedule.h"

#include "base/os.h"

#define ITEMS_MAX    64
#define BRANCHES_MAX 4096 /* after so many, the table is used */

typedef struct item {
    double   value;
    uint64_t tenths;
    uint64_t better; /* items before it, by rank, without which it is in no better set */
    uint32_t index;
} item;

typedef struct search {
    item     items[ITEMS_MAX];
    size_t   n;
    double   best;
    uint64_t best_set; /* by rank */
    uint32_t branches;
} search;

static bool is_before(const item *a, const item *b)
{
    double x = a->value * (double)b->tenths, y = b->value * (double)a->tenths;

    return x > y || (x == y && a->tenths < b->tenths);
}

/* Collects the items that have a value and fit alone, sorted. */
static uint64_t collect(search *s, size_t n, const double *value, const double *watts,
                        uint64_t tenths)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n && i < ITEMS_MAX; i++) {
        item   it = {.value = value[i], .index = (uint32_t)i};
        size_t k  = s->n;

        if (!(value[i] > 0) || !(watts[i] >= 0) || watts[i] * 10 > (double)tenths + 1e-6)
            continue;
        it.tenths = (uint64_t)(watts[i] * 10 - 1e-6);
        it.tenths += (double)it.tenths < watts[i] * 10 - 1e-6;
        for (; k > 0 && is_before(&it, &s->items[k - 1]); k--)
            s->items[k] = s->items[k - 1];
        s->items[k] = it;
        s->n++;
        sum += it.tenths;
    }
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < i; k++)
            if (s->items[k].tenths <= s->items[i].tenths && s->items[k].value >= s->items[i].value)
                s->items[i].better |= 1ull << k;
    return sum;
}

/* An upper bound for what the items from `i` on may add. */
static double bound(const search *s, size_t i, uint64_t room)
{
    double sum = 0;

    for (; i < s->n; i++) {
        const item *it = &s->items[i];

        if (it->tenths > room)
            return sum + it->value * (double)room / (double)it->tenths;
        sum += it->value;
        room -= it->tenths;
    }
    return sum;
}

static void branch(search *s, size_t i, uint64_t room, uint64_t set, double value)
{
    if (value > s->best) {
        s->best     = value;
        s->best_set = set;
    }
    if (i == s->n || s->branches == BRANCHES_MAX || value + bound(s, i, room) <= s->best)
        return;
    s->branches++;
    if (s->items[i].tenths <= room && (s->items[i].better & ~set) == 0)
        branch(s, i + 1, room - s->items[i].tenths, set | 1ull << i, value + s->items[i].value);
    branch(s, i + 1, room, set, value);
}

/* For each sum of tenths, the best set within that sum. */
typedef struct cell {
    double   value;
    uint64_t set;
} cell;

static bool fill_table(search *s, uint64_t cap)
{
    cell *cells = usm__heap_alloc((size_t)(cap + 1) * sizeof(*cells));

    if (cells == NULL)
        return false;
    for (size_t i = 0; i < s->n; i++) {
        const item *it = &s->items[i];

        for (uint64_t c = cap; c + 1 > it->tenths; c--) {
            double value = cells[c - it->tenths].value + it->value;

            if (value > cells[c].value)
                cells[c] = (cell){value, cells[c - it->tenths].set | 1ull << i};
            if (c == 0)
                break;
        }
    }
    s->best_set = cells[cap].set;
    usm__heap_free(cells);
    return true;
}

uint64_t usm__knapsack(size_t n, const double *value, const double *watts, double cap)
{
    search   s = {.n = 0};
    uint64_t tenths, sum, set = 0;

    if (!(cap >= 0))
        return 0;
    tenths = cap < 1e12 ? (uint64_t)(cap * 10 + 1e-6) : (uint64_t)1e13;
    sum    = collect(&s, n, value, watts, tenths);
    if (sum <= tenths) {
        s.best_set = s.n == ITEMS_MAX ? UINT64_MAX : (1ull << s.n) - 1;
    } else {
        branch(&s, 0, tenths, 0, 0);
        if (s.branches == BRANCHES_MAX)
            (void)fill_table(&s, tenths);
    }
    for (size_t i = 0; i < s.n; i++)
        if ((s.best_set >> i & 1) != 0)
            set |= 1ull << s.items[i].index;
    return set;
}
