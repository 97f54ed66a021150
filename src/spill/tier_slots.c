/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The slots of a tier: bit masks in groups of 64, and the keys that each group is lent to.  The
 * group of a key is found in a hash table, a hole by a walk from the lowest group that may have
 * one.  Called by tier_place.c, under the tiers' lock. */
#include "spill/tier_slots.h"

#include "base/assert.h"
#include "base/os.h"

#include <string.h>

#define GROUP     64u
#define RUN       16u  /* slots that are freed together                             */
#define SLACK     256u /* slots that may be reserved beyond twice the number in use */
#define NO_GROUP  SIZE_MAX
#define FIRST_CAP 64u

void usm__slots_init(usm__slots *s)
{
    memset(s, 0, sizeof *s);
    s->step = GROUP;
}

void usm__slots_fini(usm__slots *s)
{
    usm__heap_free(s->groups);
    usm__heap_free(s->index);
    usm__slots_init(s);
}

static uint64_t mask_of(unsigned first, unsigned n)
{
    return (n == GROUP ? UINT64_MAX : (UINT64_C(1) << n) - 1) << first;
}

static unsigned lowest(uint64_t bits)
{
    return (unsigned)__builtin_ctzll(bits);
}

/* ---- groups and the keys that they are lent to ----------------------------------- */

static size_t place_of(const usm__slots *s, uint64_t owner)
{
    return (size_t)((owner * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (s->index_size - 1);
}

/* The entry of the owner's group, or the empty entry where it would be inserted. */
static size_t find_place(const usm__slots *s, uint64_t owner)
{
    size_t at = place_of(s, owner);

    while (s->index[at] != 0 && s->groups[s->index[at] - 1].owner != owner)
        at = (at + 1) & (s->index_size - 1);
    return at;
}

static size_t group_of(const usm__slots *s, uint64_t owner)
{
    size_t at;

    if (s->index_size == 0)
        return NO_GROUP;
    at = find_place(s, owner);
    return s->index[at] != 0 ? s->index[at] - 1 : NO_GROUP;
}

static bool grow_index(usm__slots *s)
{
    size_t    size = s->index_size ? s->index_size * 2 : FIRST_CAP;
    uint32_t *old  = s->index, *fresh;

    if (s->index_used * 2 < s->index_size)
        return true;
    fresh = usm__heap_alloc(size * sizeof *fresh);
    if (!fresh)
        return false;
    s->index      = fresh;
    s->index_size = size;
    for (size_t g = 0; g < s->ngroups; g++)
        if (s->groups[g].owner != 0)
            fresh[find_place(s, s->groups[g].owner)] = (uint32_t)g + 1;
    usm__heap_free(old);
    return true;
}

static void lend(usm__slots *s, size_t group, uint64_t owner)
{
    s->groups[group].owner         = owner;
    s->index[find_place(s, owner)] = (uint32_t)group + 1;
    s->index_used++;
}

/* Removes the group's entry and closes the gap: later entries that would not be found any more move
 * up. */
static void take_back(usm__slots *s, size_t group)
{
    size_t mask = s->index_size - 1;
    size_t gap, at;

    if (s->groups[group].owner == 0)
        return;
    gap = find_place(s, s->groups[group].owner);
    for (at = (gap + 1) & mask; s->index[at] != 0; at = (at + 1) & mask) {
        size_t home = place_of(s, s->groups[s->index[at] - 1].owner);

        if (((at - home) & mask) >= ((at - gap) & mask)) {
            s->index[gap] = s->index[at];
            gap           = at;
        }
    }
    s->index[gap] = 0;
    s->index_used--;
    s->groups[group].owner = 0;
}

/* ---- taking -------------------------------------------------------------------- */

static uint64_t take_bit(usm__slots *s, size_t group, unsigned bit)
{
    s->groups[group].used |= UINT64_C(1) << bit;
    s->used++;
    return (uint64_t)group * GROUP + bit;
}

static uint64_t holes(const usm__slots_group *g)
{
    return g->reserved & ~g->used;
}

/* The lowest slot that is reserved and free. */
static uint64_t take_hole(usm__slots *s)
{
    for (; s->low < s->ngroups; s->low++)
        if (holes(&s->groups[s->low]))
            return take_bit(s, s->low, lowest(holes(&s->groups[s->low])));
    return USM__SLOT_NONE;
}

static size_t add_group(usm__slots *s)
{
    if (s->ngroups == s->cap) {
        size_t            cap = s->cap ? s->cap * 2 : FIRST_CAP;
        usm__slots_group *groups;

        if (cap >= UINT32_MAX)
            return NO_GROUP;
        groups = usm__heap_realloc(s->groups, cap * sizeof *groups);
        if (!groups)
            return NO_GROUP;
        s->groups = groups;
        s->cap    = cap;
    }
    memset(&s->groups[s->ngroups], 0, sizeof *s->groups);
    return s->ngroups++;
}

/* The lowest group of which nothing is reserved; NO_GROUP: no memory. */
static size_t empty_group(usm__slots *s)
{
    if (s->reserved < (uint64_t)s->ngroups * GROUP)
        for (size_t g = 0; g < s->ngroups; g++)
            if (s->groups[g].reserved == 0 && s->groups[g].busy == 0)
                return g;
    return add_group(s);
}

/* The part of the group around `want` to reserve: at most `step` slots, up to the whole group. */
static usm__slots_run run_around(const usm__slots *s, size_t group, unsigned want)
{
    const usm__slots_group *g     = &s->groups[group];
    uint64_t                taken = g->reserved | g->busy;
    unsigned                first = want & ~(s->step - 1), n = 1;

    while (first < want && (taken & mask_of(first, want - first)) != 0)
        first++;
    while (first + n < GROUP && n < s->step && (taken >> (first + n) & 1) == 0)
        n++;
    return (usm__slots_run){(uint64_t)group * GROUP + first, n};
}

static usm__slots_answer reserve_in(usm__slots *s, size_t group, unsigned want, usm__slots_run *run)
{
    usm__slots_group *g = &s->groups[group];

    *run = run_around(s, group, want);
    s->nbusy += g->busy == 0;
    g->busy |= mask_of((unsigned)(run->first % GROUP), run->n);
    return USM__SLOT_RESERVE;
}

/* Takes a slot in the group that is lent to the key's neighbours. */
static bool take_near(usm__slots *s, size_t group, unsigned want, uint64_t *slot)
{
    const usm__slots_group *g = &s->groups[group];

    if (!(holes(g) >> want & 1))
        return false;
    *slot = take_bit(s, group, want);
    return true;
}

/* Reserves a part of an existing group: when whole groups are refused, and for a key whose own slot
 * is taken by another. */
static bool reserve_anywhere(usm__slots *s, unsigned want, usm__slots_run *run)
{
    for (size_t g = 0; g < s->ngroups; g++) {
        uint64_t open = ~(s->groups[g].reserved | s->groups[g].busy);

        if (open) {
            (void)reserve_in(s, g, (open >> want & 1) ? want : lowest(open), run);
            return true;
        }
    }
    return false;
}

static usm__slots_answer reserve_new(usm__slots *s, uint64_t owner, unsigned want,
                                     usm__slots_run *run)
{
    size_t group = grow_index(s) ? empty_group(s) : NO_GROUP;

    if (group == NO_GROUP)
        return USM__SLOT_MEMORY;
    if (group_of(s, owner) == NO_GROUP)
        lend(s, group, owner);
    return reserve_in(s, group, want, run);
}

usm__slots_answer usm__slots_take(usm__slots *s, uint64_t key, bool may_grow, uint64_t *slot,
                                  usm__slots_run *run)
{
    uint64_t owner = key / GROUP + 1;
    size_t   group = group_of(s, owner);
    unsigned want  = key % GROUP;
    bool     mine  = group != NO_GROUP && !(s->groups[group].used >> want & 1);

    if (mine && take_near(s, group, want, slot))
        return USM__SLOT_TAKEN;
    if (mine && (s->groups[group].busy >> want & 1))
        return USM__SLOT_WAIT; /* its own slot will be available soon */
    if (mine && may_grow)
        return reserve_in(s, group, want, run);
    /* A new group only while holes are few. */
    if (!may_grow || group != NO_GROUP || s->reserved > 2 * s->used + SLACK) {
        *slot = take_hole(s);
        if (*slot != USM__SLOT_NONE)
            return USM__SLOT_TAKEN;
    }
    if (!may_grow)
        return USM__SLOT_WAIT;
    if ((group != NO_GROUP || s->step < GROUP) && reserve_anywhere(s, want, run))
        return USM__SLOT_RESERVE;
    return reserve_new(s, owner, want, run);
}

static void end_busy(usm__slots *s, usm__slots_run run)
{
    usm__slots_group *g = &s->groups[run.first / GROUP];

    g->busy &= ~mask_of((unsigned)(run.first % GROUP), run.n);
    s->nbusy -= g->busy == 0;
}

bool usm__slots_reserved(usm__slots *s, usm__slots_run run, bool ok, uint64_t key, uint64_t *slot)
{
    size_t            group = (size_t)(run.first / GROUP);
    usm__slots_group *g     = &s->groups[group];
    unsigned          first = run.first % GROUP, want = key % GROUP;

    end_busy(s, run);
    if (!ok) {
        if (g->reserved == 0 && g->busy == 0)
            take_back(s, group);
        s->step = run.n == 1 ? 1 : 1u << (31 - __builtin_clz(run.n / 2));
        return run.n > 1;
    }
    if (s->step < GROUP)
        s->step *= 2;
    g->reserved |= mask_of(first, run.n);
    s->reserved += run.n;
    s->low = group < s->low ? group : s->low;
    *slot  = take_bit(s, group, want >= first && want < first + run.n ? want : first);
    return true;
}

/* ---- freeing ---------------------------------------------------------------------- */

static void give_run(usm__slots *s, size_t group, unsigned first, unsigned n, usm__slots_run *run)
{
    usm__slots_group *g = &s->groups[group];

    *run = (usm__slots_run){(uint64_t)group * GROUP + first, n};
    s->nbusy += g->busy == 0;
    g->reserved &= ~mask_of(first, n);
    g->busy |= mask_of(first, n);
    s->reserved -= n;
}

void usm__slots_free(usm__slots *s, uint64_t slot, usm__slots_run *run)
{
    size_t            group = (size_t)(slot / GROUP);
    usm__slots_group *g     = &s->groups[group];
    unsigned          first = slot % GROUP / RUN * RUN;

    usm_assert(group < s->ngroups && (g->used >> slot % GROUP & 1));
    g->used &= ~(UINT64_C(1) << slot % GROUP);
    s->used--;
    s->low  = group < s->low ? group : s->low;
    run->n  = 0;
    s->step = GROUP; /* there may be room again */
    if (g->used == 0 && g->busy == 0) {
        unsigned bottom = lowest(g->reserved);
        unsigned top    = GROUP - (unsigned)__builtin_clzll(g->reserved);

        take_back(s, group);
        /* Slots in between that were never reserved are forgotten with the rest: they hold
         * nothing. */
        s->reserved += (uint64_t)(top - bottom) - (unsigned)__builtin_popcountll(g->reserved);
        give_run(s, group, bottom, top - bottom, run);
    } else if ((g->used & mask_of(first, RUN)) == 0 && (g->busy & mask_of(first, RUN)) == 0 &&
               (g->reserved & mask_of(first, RUN)) == mask_of(first, RUN)) {
        give_run(s, group, first, RUN, run);
    }
}

void usm__slots_forgotten(usm__slots *s, usm__slots_run run)
{
    end_busy(s, run);
}

bool usm__slots_are_valid(const usm__slots *s)
{
    uint64_t used = 0, reserved = 0;
    size_t   busy = 0, lent = 0;

    for (size_t g = 0; g < s->ngroups; g++) {
        const usm__slots_group *it = &s->groups[g];

        if ((it->used & ~it->reserved) || (it->busy & it->reserved) || (g < s->low && holes(it)) ||
            (it->owner && group_of(s, it->owner) != g))
            return false;
        used += (unsigned)__builtin_popcountll(it->used);
        reserved += (unsigned)__builtin_popcountll(it->reserved);
        busy += it->busy != 0;
        lent += it->owner != 0;
    }
    return used == s->used && reserved == s->reserved && busy == s->nbusy && lent == s->index_used;
}
