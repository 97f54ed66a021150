/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-replay --spill: runs a workload through the engine's policy and prefetcher.  They make the
 * decisions, in the engine's order (src/spill: pin, load, frame, store, ahead).  Only time is
 * modelled: transfers share the device's bandwidth one after the other, each also takes its
 * latency, and at most `depth` are in progress.  One thread accesses, and works for a while at each
 * access. */
#include "spill.h"

#include "spill/policy.h"
#include "spill/prefetch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE        UINT32_MAX
#define GUESSES_MAX 64

typedef struct frame {
    uint32_t block; /* NONE: free */
    double   ready; /* when the transfer in progress for it ends */
    bool     used, dirty, is_guess;
} frame;

typedef struct machine {
    const spill_workload *w;
    const spill_options  *o;
    spill_counts         *counts; /* of the phase */
    usm__policy          *policy;
    usm__prefetch       **prefetch; /* by range; NULL: no readahead */
    frame                *frames;
    uint32_t             *frame_of; /* by block, + 1 */
    bool                 *exists;   /* by block: it has content; otherwise it is zeros and costs
                                     nothing */
    uint32_t              filled;
    double                now, device_free;
    double               *slots; /* [depth]: when each transfer slot becomes free */
} machine;

/* ---- the device ------------------------------------------------------------------------- */

static uint32_t first_slot(const machine *m)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < m->o->depth; i++)
        if (m->slots[i] < m->slots[best])
            best = i;
    return best;
}

static bool is_device_busy(const machine *m)
{
    return m->slots[first_slot(m)] > m->now;
}

/* When the transfer of a block that is requested now will have ended. */
static double transfer(machine *m)
{
    uint32_t slot  = first_slot(m);
    double   bytes = (double)m->w->block_size / (double)m->o->bandwidth * 1e9;

    m->device_free = fmax(fmax(m->now, m->slots[slot]), m->device_free) + bytes;
    m->slots[slot] = m->device_free + m->o->latency_ns;
    return m->slots[slot];
}

/* ---- frames ------------------------------------------------------------------------------ */

static usm__policy_look glance(void *arg, uint32_t at)
{
    machine *m = arg;
    frame   *f = &m->frames[at];

    if (f->ready > m->now)
        return USM__LOOK_PINNED;
    if (f->used)
        return USM__LOOK_USED;
    return f->dirty ? USM__LOOK_DIRTY : USM__LOOK_IDLE;
}

static usm__policy_look look(void *arg, uint32_t at)
{
    machine         *m    = arg;
    usm__policy_look seen = glance(arg, at);

    if (seen == USM__LOOK_USED)
        m->frames[at].used = false;
    return seen;
}

static usm__prefetch *prefetch_of(const machine *m, uint32_t block, uint32_t *first)
{
    size_t low = 0, high = m->w->nranges;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (m->w->ranges[middle].first <= block)
            low = middle;
        else
            high = middle;
    }
    *first = m->w->ranges[low].first;
    return m->prefetch ? m->prefetch[low] : NULL;
}

static void leave(machine *m, uint32_t at)
{
    frame         *f     = &m->frames[at];
    uint32_t       first = 0;
    usm__prefetch *guess = prefetch_of(m, f->block, &first);

    if (f->is_guess) {
        m->counts->wasted++;
        usm__prefetch_wasted(guess, f->block - first);
    }
    usm__policy_remove(m->policy, at, true);
    m->frame_of[f->block] = 0;
    f->block              = NONE;
}

static void store(machine *m, uint32_t at)
{
    m->exists[m->frames[at].block] = true;
    m->frames[at].dirty = false; /* from the start of the write-back: a write meanwhile makes the
                                    block dirty again */
    m->frames[at].ready = transfer(m);
    m->counts->writes++;
}

/* Waits until the first of the transfers in progress ends. */
static void wait_for_any(machine *m)
{
    double first = INFINITY;

    for (uint32_t i = 0; i < m->o->depth; i++)
        if (m->slots[i] > m->now && m->slots[i] < first)
            first = m->slots[i];
    if (first < INFINITY)
        m->now = first;
}

/* A free frame; NONE: the caller would have to wait for one. */
static uint32_t get_frame(machine *m, bool may_wait)
{
    uint32_t at;

    if (m->filled < m->o->frames)
        return m->filled++;
    for (;;) {
        at = usm__policy_victim(m->policy, false, look, m);
        if (at != USM__NO_FRAME)
            break;
        if (!may_wait)
            return NONE;
        at = usm__policy_victim(m->policy, true, look, m);
        if (at != USM__NO_FRAME && m->frames[at].dirty && !is_device_busy(m))
            store(m, at);
        else if (at != USM__NO_FRAME && !m->frames[at].dirty)
            break;
        else
            wait_for_any(m);
    }
    leave(m, at);
    return at;
}

static void enter(machine *m, uint32_t at, uint32_t block, usm__policy_hint hint)
{
    m->frames[at]      = (frame){.block = block, .is_guess = hint == USM__HINT_PREFETCH};
    m->frame_of[block] = at + 1;
    usm__policy_insert(m->policy, at, block, hint);
}

/* ---- ahead of the program -------------------------------------------------------------------- */

/* A pass that overwrites everything is followed, but nothing is read ahead for it. */
static void bring_ahead(machine *m, const spill_access *a, bool was_guess)
{
    uint32_t       guesses[GUESSES_MAX], first = 0;
    usm__prefetch *p    = prefetch_of(m, a->block, &first);
    size_t         room = usm__policy_readahead_room(m->policy), n;

    if (!p)
        return;
    room = (a->mode & USM_NO_INIT) != 0 ? 0 : room;
    n    = usm__prefetch_next(p, a->block - first, was_guess, guesses,
                           room < GUESSES_MAX ? room : GUESSES_MAX);
    for (size_t i = 0; i < n; i++) {
        uint32_t at;

        if (m->frame_of[first + guesses[i]] || !m->exists[first + guesses[i]])
            continue;
        at = get_frame(m, false);
        if (at == NONE)
            return;
        enter(m, at, first + guesses[i], USM__HINT_PREFETCH);
        m->frames[at].ready = transfer(m);
        m->counts->reads++;
        m->counts->ahead++;
    }
}

/* Writes back as many blocks as the device takes beside the transfers in progress. */
static void clean_ahead(machine *m)
{
    uint32_t list[8], busy = 0;
    size_t   n;

    if (m->filled < m->o->frames)
        return;
    for (uint32_t i = 0; i < m->o->depth; i++)
        busy += m->slots[i] > m->now;
    if (busy >= (m->o->depth + 1) / 2)
        return;
    n = usm__policy_clean_ahead(m->policy, list, sizeof list / sizeof list[0], glance, m);
    for (size_t i = 0; i < n && !is_device_busy(m); i++)
        store(m, list[i]);
}

/* ---- accesses ------------------------------------------------------------------------------ */

static void wait_until(machine *m, double when)
{
    if (when <= m->now)
        return;
    m->now = when;
    m->counts->waited++;
}

static void miss(machine *m, const spill_access *a)
{
    double   before = m->now;
    uint32_t at     = get_frame(m, true);

    m->counts->missed++;
    m->counts->waited += m->now > before && (a->mode & USM_NO_INIT) != 0;
    enter(m, at, a->block, USM__HINT_DEMAND);
    if ((a->mode & USM_NO_INIT) == 0 && m->exists[a->block]) {
        m->frames[at].ready = transfer(m);
        m->counts->reads++;
    }
    bring_ahead(m, a, false);
    wait_until(m, m->frames[at].ready);
}

static void use(machine *m, const spill_access *a)
{
    frame *f = &m->frames[m->frame_of[a->block] - 1];

    if (!f->is_guess) {
        m->counts->hits++;
        return; /* the block is being stored, which does not prevent accesses */
    }
    f->is_guess = false;
    m->counts->guessed++;
    usm__policy_used(m->policy, m->frame_of[a->block] - 1);
    bring_ahead(m, a, true);
    wait_until(m, f->ready);
}

static void access_block(machine *m, const spill_access *a)
{
    frame *f;

    m->counts->accesses++;
    if (m->frame_of[a->block])
        use(m, a);
    else
        miss(m, a);
    f       = &m->frames[m->frame_of[a->block] - 1];
    f->used = true;
    f->dirty |= (a->mode & USM_WRITE) != 0;
    m->now += m->o->work_ns;
    clean_ahead(m);
}

/* ---- the whole run ------------------------------------------------------------------------- */

static bool make_prefetch(machine *m)
{
    uint32_t window =
        m->o->window ? m->o->window : usm__prefetch_usual(m->o->frames, m->w->block_size);

    m->prefetch = calloc(m->w->nranges, sizeof *m->prefetch);
    for (size_t i = 0; m->prefetch && i < m->w->nranges; i++) {
        m->prefetch[i] = calloc(1, usm__prefetch_size(m->w->ranges[i].blocks));
        if (!m->prefetch[i])
            return false;
        usm__prefetch_init(m->prefetch[i], m->w->ranges[i].blocks, window);
    }
    return m->prefetch != NULL;
}

static bool make_machine(machine *m, bool with_guesses)
{
    m->policy   = calloc(1, usm__policy_size(m->o->frames));
    m->frames   = calloc(m->o->frames, sizeof *m->frames);
    m->frame_of = calloc(m->w->blocks, sizeof *m->frame_of);
    m->exists   = calloc(m->w->blocks, sizeof *m->exists);
    m->slots    = calloc(m->o->depth, sizeof *m->slots);
    if (!m->policy || !m->frames || !m->frame_of || !m->exists || !m->slots)
        return false;
    /* Blocks that are not overwritten first existed before. */
    for (size_t i = m->w->n; i-- > 0;)
        m->exists[m->w->accesses[i].block] = (m->w->accesses[i].mode & USM_NO_INIT) == 0;
    usm__policy_init(m->policy, m->o->frames);
    return !with_guesses || make_prefetch(m);
}

static void free_machine(machine *m)
{
    for (size_t i = 0; m->prefetch && i < m->w->nranges; i++)
        free(m->prefetch[i]);
    free(m->prefetch);
    free(m->policy);
    free(m->frames);
    free(m->frame_of);
    free(m->exists);
    free(m->slots);
}

bool spill_run(const spill_workload *w, const spill_options *o, bool with_guesses,
               spill_counts *counts)
{
    machine m    = {.w = w, .o = o, .counts = counts};
    bool    good = make_machine(&m, with_guesses);
    double  then = 0;

    for (size_t i = 0, phase = 0; good && i < w->n; i++) {
        phase    = spill_phase_of(w, i, phase);
        m.counts = &counts[phase];
        then     = m.now;
        access_block(&m, &w->accesses[i]);
        m.counts->ns += m.now - then;
        m.counts->has_io = true;
    }
    free_machine(&m);
    return good;
}
