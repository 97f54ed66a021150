/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes the bytes of a command accessible to its device: pins blocks in host memory, or gets runs
 * of device memory (locations.h); for all accessors of the command, or for none.  Called by
 * command.c and defer.c. */
#include "base/inline/bits.h"
#include "base/os.h"
#include "base/settings.h"
#include "base/text.h"
#include "buffer/command.h"
#include "buffer/pins.h"

#define INLINE_USES 8

/* Scratch lists, with one element for each use. */
typedef struct lists {
    usm__pin     *pins;
    usm__extent **held;
    usm__pin      first_pins[INLINE_USES];
    usm__extent  *first_held[INLINE_USES];
} lists;

static usm_status lists_init(lists *l, size_t n)
{
    l->pins = l->first_pins;
    l->held = l->first_held;
    if (n <= INLINE_USES)
        return USM_OK;
    l->pins = usm__heap_alloc(n * sizeof *l->pins);
    l->held = usm__heap_alloc(n * sizeof(usm__extent *));
    if (l->pins && l->held)
        return USM_OK;
    usm__heap_free(l->pins);
    usm__heap_free(l->held);
    return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu accessors", n);
}

static void lists_fini(lists *l)
{
    if (l->pins == l->first_pins)
        return;
    usm__heap_free(l->pins);
    usm__heap_free(l->held);
}

void usm__command_unplace(usm__command *c)
{
    for (size_t i = 0; i < c->nuses; i++) {
        usm__use *u = &c->uses[i];

        if (u->is_pinned)
            usm__pins_give(1, &u->pin);
        if (u->extent)
            usm__extent_unuse(u->extent);
        u->is_pinned = u->is_placed = false;
        u->extent                   = NULL;
    }
}

/* ---- in place ------------------------------------------------------------------------ */

static size_t in_root(const usm__use *u)
{
    return u->entry.begin - u->root->base;
}

static size_t size_of(const usm__use *u)
{
    return u->entry.end - u->entry.begin;
}

/* Without a lock: the commands before may wait for an event of the user's, and the thread that will
 * signal it may need the buffer first. */
static usm_status await_before(const usm__command *c, const usm__use *u)
{
    for (size_t i = 0; i < c->ndeps; i++)
        if (usm_event_wait(c->deps[i]) != USM_OK)
            return usm__fail(USM_E_DEPENDENCY, "a command that used \"%s\" before failed: %s",
                             u->root->space->name, usm_last_error());
    return USM_OK;
}

static usm_status bring_to_host(const usm__command *c, usm__use *u)
{
    usm__track *t  = usm__track_of(u->root);
    usm_status  st = await_before(c, u);

    if (st != USM_OK)
        return st;
    usm__mutex_lock(&t->lock);
    st = usm__locations_to_host(usm_load_acquire(&t->locations), in_root(u), size_of(u),
                                u->entry.mode);
    usm__mutex_unlock(&t->lock);
    return st;
}

/* Bytes that only devices have are copied into the blocks, which are therefore pinned for
 * writing. */
static usm_status want_pin(usm__use *u, bool may_wait)
{
    bool is_newest = usm__track_is_on_host(u->root, u->entry.begin, u->entry.end, u->entry.mode);

    u->pin = (usm__pin){u->root->space, u->entry.begin, size_of(u), u->entry.mode};
    if (!is_newest && !may_wait)
        return USM_E_AGAIN;
    u->is_placed = is_newest;
    if (!is_newest)
        u->pin.mode |= USM_WRITE;
    if (!may_wait)
        u->pin.mode |= USM_NO_WAIT;
    return USM_OK;
}

static void *address_of(const usm__use *u)
{
    return u->root->ptr + in_root(u);
}

static usm_status pin_all(usm__command *c, usm__pin *pins, bool may_wait)
{
    usm_status st = USM_OK;
    size_t     n  = 0;

    for (size_t i = 0; st == USM_OK && i < c->nuses; i++) {
        c->ptrs[i] = address_of(&c->uses[i]);
        if (c->uses[i].is_empty)
            continue;
        st = want_pin(&c->uses[i], may_wait);
        if (st == USM_OK)
            pins[n++] = c->uses[i].pin;
    }
    if (st == USM_OK)
        st = usm__pins_take(n, pins);
    for (size_t i = 0; st == USM_OK && i < c->nuses; i++)
        c->uses[i].is_pinned = !c->uses[i].is_empty;
    return st;
}

static usm_status place_on_host(usm__command *c, bool may_wait, lists *l)
{
    usm_status st = pin_all(c, l->pins, may_wait);

    for (size_t i = 0; st == USM_OK && i < c->nuses; i++) {
        usm__use *u = &c->uses[i];

        if (u->is_empty)
            continue;
        if (!u->is_placed)
            st = bring_to_host(c, u);
    }
    return st;
}

/* ---- on a device ------------------------------------------------------------------------- */

static usm_status locations_of(usm__use *u, usm__locations **locations)
{
    usm_buffer *root = u->root;
    usm__track *t    = usm__track_of(root);
    bool        has  = !(usm_load_relaxed(&root->flags) & USM__BUFFER_FRESH);
    usm_status  st   = USM_OK;

    *locations = usm_load_acquire(&t->locations);
    if (*locations)
        return USM_OK;
    st = usm__locations_create(root->space, root->base, root->size, has, locations);
    if (st == USM_OK)
        usm_store_release(&t->locations, *locations);
    return st;
}

/* Accessors of one command that overlap, one of which writes, share one run of memory: adds those
 * that belong to `hull` to it; returns whether there were any. */
static bool grow(const usm__command *c, usm__use *hull)
{
    bool has_grown = false;

    for (size_t i = 0; i < c->nuses; i++) {
        const usm__use *u = &c->uses[i];
        bool is_inside    = u->entry.begin >= hull->entry.begin && u->entry.end <= hull->entry.end;
        usm_access_mode both = hull->entry.mode | u->entry.mode;

        if (u->is_empty || u->root != hull->root ||
            !usm__track_order_conflict(&u->entry, &hull->entry))
            continue;
        if (is_inside && (both & USM_READ_WRITE) == (hull->entry.mode & USM_READ_WRITE) &&
            !(hull->entry.mode & ~u->entry.mode & USM_NO_INIT))
            continue;
        hull->entry.begin = usm_min_size(hull->entry.begin, u->entry.begin);
        hull->entry.end   = usm_max_size(hull->entry.end, u->entry.end);
        hull->entry.mode  = both & USM_READ_WRITE; /* one may read what another does not write  */
        has_grown         = true;
    }
    return has_grown;
}

static usm_status place_run(usm__command *c, usm__use *u, const usm__use *hull,
                            usm__locations_want *want, usm__locations_events *after)
{
    usm__track     *t         = usm__track_of(u->root);
    usm__locations *locations = NULL;
    void           *ptr       = NULL;
    usm_status      st;

    want->offset = in_root(hull);
    want->size   = size_of(hull);
    want->mode   = hull->entry.mode;
    usm__mutex_lock(&t->lock);
    st = locations_of(u, &locations);
    if (st == USM_OK)
        st = usm__locations_to_device(locations, want, &u->extent, &ptr, after);
    usm__mutex_unlock(&t->lock);
    for (size_t i = 0; st == USM_OK && i < c->nuses; i++) {
        usm__use *v = &c->uses[i];

        if (v->is_placed || v->root != u->root || v->entry.begin < hull->entry.begin ||
            v->entry.end > hull->entry.end ||
            (v != u && !usm__track_order_conflict(&v->entry, &hull->entry)))
            continue;
        v->is_placed = true;
        c->ptrs[i]   = (char *)ptr + (v->entry.begin - hull->entry.begin);
    }
    return st;
}

static usm_status place_on_device(usm__command *c, usm_queue *q, bool may_wait, lists *l,
                                  usm__locations_events *after)
{
    usm__locations_want want = {
        .q = q, .may_wait = may_wait, .ndeps = c->ndeps, .deps = c->deps, .held = l->held};
    usm_status st = USM_OK;

    for (size_t i = 0; st == USM_OK && i < c->nuses; i++) {
        usm__use *u    = &c->uses[i];
        usm__use  hull = {
             .root  = u->root, /* without its link, which other threads may write */
             .entry = {.begin = u->entry.begin, .end = u->entry.end, .mode = u->entry.mode}};

        if (u->is_empty) {
            c->ptrs[i]   = NULL;
            u->is_placed = true;
        }
        if (u->is_placed)
            continue;
        while (grow(c, &hull))
            ;
        st = place_run(c, u, &hull, &want, after);
        if (st == USM_OK)
            l->held[want.nheld++] = u->extent;
    }
    return st;
}

/* ---- whether a command ever fits ----------------------------------------------------------- */

/* Bytes in whole units that use i adds to those of the uses before it. */
static size_t adds(const usm__command *c, size_t i, size_t unit)
{
    const usm__use *u  = &c->uses[i];
    size_t          at = u->entry.begin / unit * unit, sum = 0;
    size_t          end = (u->entry.end + unit - 1) / unit * unit;

    while (at < end) {
        size_t from = end, covered = at;

        for (size_t j = 0; j < i; j++) {
            const usm__use *v = &c->uses[j];
            size_t          b = v->entry.begin / unit * unit;
            size_t          e = (v->entry.end + unit - 1) / unit * unit;

            if (v->is_empty || v->root->space != u->root->space || e <= at)
                continue;
            if (b <= at)
                covered = usm_max_size(covered, e);
            else
                from = usm_min_size(from, b);
        }
        if (covered == at) {
            sum += from - at;
            covered = from;
        }
        at = covered;
    }
    return sum;
}

/* In place: uses count if they take frames of that engine; foreign memory takes none. */
static bool counts(const usm__command *c, const usm__use *u, const usm__spill *spill)
{
    return !u->is_empty &&
           (!c->is_in_place || (u->root->space->spill == spill && !u->root->space->is_foreign));
}

static usm_status check_fits(const usm__command *c, const usm__spill *spill, size_t unit,
                             uint64_t most, const char *where)
{
    uint64_t sum = 0;
    char     needs[16], has[16];

    for (size_t i = 0; i < c->nuses; i++)
        sum += counts(c, &c->uses[i], spill) ? size_of(&c->uses[i]) + 2 * (unit - 1) : 0;
    if (sum <= most)
        return USM_OK;
    sum = 0;
    for (size_t i = 0; i < c->nuses; i++)
        sum += counts(c, &c->uses[i], spill) ? adds(c, i, unit) : 0;
    if (sum <= most)
        return USM_OK;
    return usm__fail(USM_E_BUDGET,
                     "a command over %s of buffers at once, of which %s may be in %s: access less "
                     "at a time, or raise USM_MEMORY_LIMIT",
                     usm__format_bytes(sum, needs, sizeof needs),
                     usm__format_bytes(most, has, sizeof has), where);
}

usm_status usm__command_check_fits(const usm__command *c, const usm_queue *q)
{
    usm_status st = USM_OK;

    if (!c->is_in_place)
        return check_fits(c, NULL, 1, usm__extents_most(q), q->dev->term);
    for (size_t i = 0; st == USM_OK && i < c->nuses; i++) {
        const usm__spill *spill = c->uses[i].root->space->spill;
        size_t            block, sector;

        if (i > 0 && spill == c->uses[i - 1].root->space->spill)
            continue;
        usm__spill_get_sizes(spill, &block, &sector);
        st = check_fits(c, spill, block, usm__spill_capacity(spill), "host memory");
    }
    return st;
}

/* ---- both ------------------------------------------------------------------------------- */

/* Statuses for memory that is not available now, or never: which of the two is known when nothing
 * else is under way. */
static bool is_memory(usm_status st)
{
    return st == USM_E_AGAIN || st == USM_E_BUDGET || st == USM_E_NO_MEMORY;
}

usm_status usm__command_place(usm__command *c, usm_queue *q, bool may_wait,
                              usm__locations_events *after)
{
    lists      l;
    usm_status st = lists_init(&l, c->nuses);

    if (st != USM_OK)
        return st;
    st = c->is_in_place ? place_on_host(c, may_wait, &l)
                        : place_on_device(c, q, may_wait, &l, after);
    lists_fini(&l);
    if (!may_wait && !c->is_in_place && is_memory(st))
        st = USM_E_AGAIN; /* on a processor, blocks in memory may have to be stored first */
    if (st != USM_OK) {
        usm__command_unplace(c);
        usm__locations_events_fini(after);
    }
    return st;
}

/* A command waits several times as long for memory that open accesses of the host hold as the host
 * itself would: a command that fails is lost work.  In the end it fails and names the accesses,
 * because the host may be waiting for the command. */
#define PATIENCE 5

typedef struct patience {
    unsigned tried;
    uint64_t until; /* 0: not set yet                                                           */
    uint64_t seen;  /* as of usm__spill_await_frames()                                          */
} patience;

/* In place the attempt itself has waited.  Otherwise this waits for frames, which copies need:
 * here, where the command holds nothing.  false: it has waited long enough. */
static bool wait_for_accesses(const usm__command *c, patience *p)
{
    uint64_t now = usm__os_now_ns(), ms = usm__setting_size("spill_wait");

    if (c->is_in_place)
        return p->tried++ < PATIENCE;
    if (p->until == 0)
        p->until = now + PATIENCE * ms * 1000000;
    if (now >= p->until)
        return false;
    usm__spill_await_frames(c->uses[0].root->space->spill, &p->seen,
                            (uint32_t)((p->until - now) / 1000000) + 1);
    return true;
}

usm_status usm__command_place_waiting(usm__command *c, usm_queue *q, usm__locations_events *after)
{
    patience p = {.seen = USM__SEEN_NOTHING};

    for (;;) {
        uint64_t   ended = usm__commands_ended();
        uint64_t   turn  = c->is_in_place ? 0 : usm__locations_turn(q);
        usm_status st    = usm__command_place(c, q, true, after);

        if (st == USM_E_BUSY)
            usm__locations_await_memory(q, turn);
        else if (!is_memory(st))
            return st;
        else if (!usm__commands_await_end(ended) &&
                 (st != USM_E_AGAIN || !wait_for_accesses(c, &p)))
            return st;
    }
}
