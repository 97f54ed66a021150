/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lives of blocks and areas, found in one pass over a trace's records.
 *
 * A table by address holds the last block at each address, freed or not, so that a free finds its
 * block and an allocation finds the block whose address it reuses.  The areas that a pool holds at
 * the moment are in a list sorted by (source, address), each with the number of its live blocks.
 * When an area is returned with blocks in it (their pool or context ended), these blocks end.
 * Addresses of two processes are unrelated: `source` is part of every key. */
#include "profile/blocks.h"

#include "base/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An area held at the current record. */
typedef struct holding {
    uint32_t area;
    uint32_t live;  /* blocks in it, at least one too many after a split */
    uint32_t first; /* no earlier block is in it                         */
} holding;

typedef struct finder {
    const usm__profile  *t;
    usm__profile_blocks *found;
    uint32_t            *table; /* of block indices; USM__NEVER: empty   */
    size_t               mask;
    holding             *held;
    size_t               nheld, held_cap, areas_cap;
} finder;

static uint32_t source_of(const finder *f, uint32_t record)
{
    return f->t->records[record].source;
}

/* The entry of the address's last block, or where it would be inserted. */
static uint32_t *slot_of(finder *f, uint32_t source, uint64_t address)
{
    size_t at = (size_t)((address >> 4) * 0x9e3779b97f4a7c15u >> 20) + (size_t)source * 0x9e3779b1u;

    for (;; at++) {
        uint32_t                 *slot = &f->table[at & f->mask];
        const usm__profile_block *b    = &f->found->blocks[*slot == USM__NEVER ? 0 : *slot];

        if (*slot == USM__NEVER || (b->address == address && source_of(f, b->born) == source))
            return slot;
    }
}

/* Index of the first held area that is not below (source, address). */
static size_t held_at(const finder *f, uint32_t source, uint64_t address)
{
    size_t low = 0, high = f->nheld;

    while (low < high) {
        size_t                   mid = low + (high - low) / 2;
        const usm__profile_area *a   = &f->found->areas[f->held[mid].area];
        uint32_t                 s   = source_of(f, a->took);

        if (s < source || (s == source && a->address < address))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The held area that contains the address, or NULL. */
static holding *holder_of(finder *f, uint32_t source, uint64_t address)
{
    size_t                   at = held_at(f, source, address + 1);
    const usm__profile_area *a;

    if (at == 0)
        return NULL;
    a = &f->found->areas[f->held[at - 1].area];
    if (source_of(f, a->took) != source || address - a->address >= a->size)
        return NULL;
    return &f->held[at - 1];
}

static void end_block(finder *f, usm__profile_block *b, uint32_t record, bool freed)
{
    holding *h = holder_of(f, source_of(f, b->born), b->address);

    b->died  = record;
    b->freed = freed;
    if (h && h->live)
        h->live--;
}

static void on_alloc(finder *f, uint32_t i)
{
    const usm__profile_record *r    = &f->t->records[i];
    uint32_t                  *slot = slot_of(f, r->source, r->e.address);
    usm__profile_block        *b    = &f->found->blocks[f->found->nblocks];
    holding                   *h;

    *b = (usm__profile_block){.address = r->e.address,
                              .size    = r->e.size,
                              .usable  = r->e.usable > r->e.size ? r->e.usable : r->e.size,
                              .born    = i,
                              .died    = USM__NEVER,
                              .reused  = USM__NEVER};
    if (*slot != USM__NEVER) {
        usm__profile_block *before = &f->found->blocks[*slot];

        if (before->died == USM__NEVER)
            end_block(f, before, i, false);
        b->reused = *slot;
    }
    *slot = (uint32_t)f->found->nblocks++;
    h     = holder_of(f, r->source, r->e.address);
    if (h)
        h->live++;
}

static void on_free(finder *f, uint32_t i)
{
    const usm__profile_record *r    = &f->t->records[i];
    uint32_t                  *slot = slot_of(f, r->source, r->e.address);
    usm__profile_block        *b    = *slot == USM__NEVER ? NULL : &f->found->blocks[*slot];

    if (b && b->died == USM__NEVER)
        end_block(f, b, i, true);
    else if (b && !b->freed)
        b->freed = true; /* `direct` returns the area before its free is written    */
    else
        f->found->unmatched++;
}

/* Room for one more element in both lists. */
static bool make_room(finder *f)
{
    return usm__heap_room(&f->found->areas, f->found->nareas, &f->areas_cap,
                          sizeof *f->found->areas) &&
           usm__heap_room(&f->held, f->nheld, &f->held_cap, sizeof *f->held);
}

static int hold(finder *f, uint32_t i, uint64_t address, uint64_t size, holding what)
{
    size_t at;

    if (!make_room(f))
        return ENOMEM;
    what.area = (uint32_t)f->found->nareas++;
    f->found->areas[what.area] =
        (usm__profile_area){.address = address, .size = size, .took = i, .gave = USM__NEVER};
    at = held_at(f, source_of(f, i), address);
    memmove(&f->held[at + 1], &f->held[at], (f->nheld - at) * sizeof *f->held);
    f->held[at] = what;
    f->nheld++;
    return 0;
}

static int on_take(finder *f, uint32_t i)
{
    const usm__profile_event *e = &f->t->records[i].e;

    if (e->size == 0 || e->address + e->size < e->address)
        return 0; /* no driver provided that area */
    return hold(f, i, e->address, e->size, (holding){.first = (uint32_t)f->found->nblocks});
}

/* Blocks in [address, address + size) that were not freed end with their area. */
static void end_blocks(finder *f, const holding *h, uint32_t i, uint64_t address, uint64_t size)
{
    uint32_t left = h->live;

    for (size_t k = h->first; left && k < f->found->nblocks; k++) {
        usm__profile_block *b = &f->found->blocks[k];

        if (b->died == USM__NEVER && b->address - address < size &&
            source_of(f, b->born) == source_of(f, i)) {
            b->died  = i;
            b->freed = false;
            left--;
        }
    }
}

/* Returns [address, address + size) out of the held area at index `at`; the rest stays. */
static int give_part(finder *f, uint32_t i, size_t at, uint64_t address, uint64_t size)
{
    holding           h = f->held[at], rest = {.live = h.live + 1, .first = h.first};
    usm__profile_area a   = f->found->areas[h.area];
    uint64_t          end = a.address + a.size, cut = address + size;

    end_blocks(f, &h, i, address, size);
    f->found->areas[h.area].gave = i;
    memmove(&f->held[at], &f->held[at + 1], (f->nheld - at - 1) * sizeof *f->held);
    f->nheld--;
    if (address > a.address && hold(f, i, a.address, address - a.address, rest) != 0)
        return ENOMEM;
    return cut < end ? hold(f, i, cut, end - cut, rest) : 0;
}

static int on_give(finder *f, uint32_t i)
{
    const usm__profile_record *r       = &f->t->records[i];
    uint64_t                   address = r->e.address, end = address + r->e.size;

    do {
        holding                 *h = holder_of(f, r->source, address);
        const usm__profile_area *a;
        uint64_t                 stop;

        if (!h)
            return 0; /* the record of its start was lost */
        a    = &f->found->areas[h->area];
        stop = a->address + a->size;
        if (r->e.size && end < stop)
            stop = end;
        if (give_part(f, i, (size_t)(h - f->held), address, stop - address) != 0)
            return ENOMEM;
        address = stop;
    } while (address < end);
    return 0;
}

static int follow(finder *f, uint32_t i)
{
    const usm__profile_event *e = &f->t->records[i].e;

    switch (e->address ? e->type : 0) { /* no address: a call that failed */
    case USM__EVENT_ALLOC:
        on_alloc(f, i);
        return 0;
    case USM__EVENT_FREE:
        on_free(f, i);
        return 0;
    case USM__EVENT_TAKE:
    case USM__EVENT_MAP:
        return on_take(f, i);
    case USM__EVENT_GIVE:
    case USM__EVENT_UNMAP:
        return on_give(f, i);
    default:
        return 0;
    }
}

/* Blocks and a table for as many as there are allocations. */
static int prepare(finder *f)
{
    size_t n = 0, cap = 16;

    for (size_t i = 0; i < f->t->nrecords; i++)
        n += f->t->records[i].e.type == USM__EVENT_ALLOC;
    while (cap < n * 2)
        cap *= 2;
    f->found->blocks = calloc(n + 1, sizeof *f->found->blocks);
    f->table         = malloc(cap * sizeof *f->table);
    f->mask          = cap - 1;
    if (!f->found->blocks || !f->table)
        return ENOMEM;
    memset(f->table, 0xff, cap * sizeof *f->table);
    return make_room(f) ? 0 : ENOMEM;
}

int usm__profile_blocks_find(const usm__profile *t, usm__profile_blocks **found)
{
    finder f = {.t = t};
    int    status;

    if (t->nrecords >= USM__NEVER)
        return EFBIG;
    f.found = calloc(1, sizeof *f.found);
    if (!f.found)
        return ENOMEM;
    status = prepare(&f);
    for (size_t i = 0; !status && i < t->nrecords; i++)
        status = follow(&f, (uint32_t)i);
    free(f.table);
    free(f.held);
    if (status)
        usm__profile_blocks_free(f.found);
    else
        *found = f.found;
    return status;
}

void usm__profile_blocks_free(usm__profile_blocks *found)
{
    if (!found)
        return;
    free(found->blocks);
    free(found->areas);
    free(found);
}

/* For each record the blocks and areas that end with it: lists by index. */
typedef struct endings {
    uint32_t *first, *next;
} endings;

static int endings_init(endings *e, size_t nrecords, size_t n)
{
    e->first = malloc((nrecords + 1) * sizeof *e->first);
    e->next  = malloc((n + 1) * sizeof *e->next);
    if (!e->first || !e->next)
        return ENOMEM;
    memset(e->first, 0xff, (nrecords + 1) * sizeof *e->first);
    return 0;
}

static void endings_add(endings *e, uint32_t record, uint32_t what)
{
    if (record == USM__NEVER)
        return;
    e->next[what]    = e->first[record];
    e->first[record] = what;
}

static void endings_fini(endings *e)
{
    free(e->first);
    free(e->next);
}

typedef struct walker {
    const usm__profile        *t;
    const usm__profile_blocks *found;
    endings                    blocks, areas;
    usm__profile_level        *levels;      /* by pool, npools + 1 */
    size_t                     block, area; /* next to begin */
} walker;

/* Applies what ends with the record; true: something did. */
static bool walk_ends(walker *w, uint32_t i)
{
    const usm__profile_record *r       = w->t->records;
    bool                       changed = false;
    usm__profile_level        *level;

    for (uint32_t k = w->blocks.first[i]; k != USM__NEVER; k = w->blocks.next[k]) {
        const usm__profile_block *b = &w->found->blocks[k];

        level = &w->levels[r[b->born].e.pool];
        level->live -= b->size;
        level->usable -= b->usable;
        level->blocks--;
        changed = true;
    }
    for (uint32_t k = w->areas.first[i]; k != USM__NEVER; k = w->areas.next[k]) {
        const usm__profile_area *a = &w->found->areas[k];

        w->levels[r[a->took].e.pool].reserved -= a->size;
        changed = true;
    }
    return changed;
}

static bool walk_begins(walker *w, uint32_t i)
{
    usm__profile_level *level   = &w->levels[w->t->records[i].e.pool];
    bool                changed = false;

    for (; w->block < w->found->nblocks && w->found->blocks[w->block].born == i; w->block++) {
        level->live += w->found->blocks[w->block].size;
        level->usable += w->found->blocks[w->block].usable;
        level->blocks++;
        changed = true;
    }
    for (; w->area < w->found->nareas && w->found->areas[w->area].took == i; w->area++) {
        level->reserved += w->found->areas[w->area].size;
        changed = true;
    }
    return changed;
}

int usm__profile_walk(const usm__profile *t, const usm__profile_blocks *found,
                      usm__profile_visit *visit, void *user)
{
    walker w      = {.t = t, .found = found};
    int    status = ENOMEM;

    w.levels = calloc(t->npools + 1, sizeof *w.levels);
    if (!w.levels || endings_init(&w.blocks, t->nrecords, found->nblocks) != 0 ||
        endings_init(&w.areas, t->nrecords, found->nareas) != 0)
        goto out;
    for (uint32_t k = 0; k < found->nblocks; k++)
        endings_add(&w.blocks, found->blocks[k].died, k);
    for (uint32_t k = 0; k < found->nareas; k++)
        endings_add(&w.areas, found->areas[k].gave, k);
    for (uint32_t i = 0; i < t->nrecords; i++) {
        bool ended = walk_ends(&w, i), began = walk_begins(&w, i);

        if (ended || began)
            visit(user, i, t->records[i].e.pool, w.levels);
    }
    status = 0;
out:
    endings_fini(&w.blocks);
    endings_fini(&w.areas);
    free(w.levels);
    return status;
}

typedef struct weight {
    double   bytes_ns;
    uint32_t block;
} weight;

static int by_weight(const void *a, const void *b)
{
    const weight *x = a, *y = b;

    if (x->bytes_ns != y->bytes_ns)
        return x->bytes_ns < y->bytes_ns ? 1 : -1;
    return (x->block > y->block) - (x->block < y->block);
}

static int by_number(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static int choose_heaviest(const usm__profile *t, const usm__profile_blocks *found, size_t max,
                           uint32_t *list)
{
    weight *weights = malloc(found->nblocks * sizeof *weights);

    if (!weights)
        return ENOMEM;
    for (uint32_t k = 0; k < found->nblocks; k++) {
        const usm__profile_block *b = &found->blocks[k];
        uint64_t life = usm__profile_time_ns(t, b->died) - usm__profile_time_ns(t, b->born);

        weights[k] = (weight){((double)b->size + 1) * ((double)life + 1), k};
    }
    qsort(weights, found->nblocks, sizeof *weights, by_weight);
    for (size_t i = 0; i < max; i++)
        list[i] = weights[i].block;
    qsort(list, max, sizeof *list, by_number);
    free(weights);
    return 0;
}

int usm__profile_blocks_choose(const usm__profile *t, const usm__profile_blocks *found, size_t max,
                               uint32_t **list, size_t *n)
{
    size_t    count  = found->nblocks < max ? found->nblocks : max;
    uint32_t *chosen = malloc((count + 1) * sizeof *chosen);
    int       status = chosen ? 0 : ENOMEM;

    if (!status && count < found->nblocks)
        status = choose_heaviest(t, found, count, chosen);
    else
        for (uint32_t k = 0; !status && k < count; k++)
            chosen[k] = k;
    if (status) {
        free(chosen);
        return status;
    }
    *list = chosen;
    *n    = count;
    return 0;
}

uint64_t usm__profile_duration_ns(const usm__profile *t)
{
    uint64_t last = t->nrecords ? t->records[t->nrecords - 1].e.time_ns : 0;

    if (t->nspills && t->spills[t->nspills - 1].time_ns > last)
        last = t->spills[t->nspills - 1].time_ns;
    if (t->nworks && t->works[t->nworks - 1].time_ns > last)
        last = t->works[t->nworks - 1].time_ns;
    return last;
}

uint64_t usm__profile_time_ns(const usm__profile *t, uint32_t record)
{
    return record == USM__NEVER ? usm__profile_duration_ns(t) : t->records[record].e.time_ns;
}
