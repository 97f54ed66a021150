/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Replica targets ("places"): the parts of a tier that fail independently.  The list of them, the
 * choice of one for a copy, and the reaction when one is added, is slow, leaves or is lost.
 *
 * A target that is lost stays in the list, because its number is not used again.  Its copies are
 * found through its own list, some at a time, so that the lock is never held for long.  Called by
 * tier.c, by transports (usm__target_changed), replica_write.c and replica_repair.c. */
#include "spill/replica.h"

#include "base/inline/plural.h"
#include "base/log.h"
#include "base/os.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CHUNK          64u /* copies that are processed without releasing the lock              */
#define FULL_NS        UINT64_C(1000000000) /* time after which a full target is asked again   */
#define WEIGHT_UNKNOWN ((uint64_t)1 << 30)

/* ---- room ------------------------------------------------------------------------------ */

/* Neighbouring blocks need not be together in memory, and the target's owner lends memory to others
 * as well: a target is filled densely, as if for one key. */
usm_status usm__target_take(usm__target *p, uint64_t *slot)
{
    return usm__room_take((usm__room){p->tier, &p->slots, p->base}, 0, slot);
}

void usm__target_note_full(usm__target *p)
{
    p->is_full = true;
    p->full_ns = usm__os_now_ns();
}

void usm__target_give(usm__target *p, uint64_t slot)
{
    usm__tiers    *t = p->tier->tiers;
    usm__slots_run run;
    bool           is_lost;

    usm__mutex_lock(&t->lock);
    is_lost = p->state == USM_PLACE_LOST;
    if (is_lost) { /* the transport need not be told to forget the slot */
        usm__slots_free(&p->slots, slot, &run);
        if (run.n > 0)
            usm__slots_forgotten(&p->slots, run);
    } else if (p->is_full) {
        p->is_full = false;
        usm__repair_retry(t);
    }
    usm__mutex_unlock(&t->lock);
    if (!is_lost)
        usm__room_give((usm__room){p->tier, &p->slots, p->base}, slot);
}

/* ---- the list ---------------------------------------------------------------------------- */

static void free_place(usm__target *p)
{
    usm__slots_fini(&p->slots);
    usm__heap_free(p);
}

static void name_place(usm__target *p, bool is_only)
{
    if (is_only)
        (void)snprintf(p->title, sizeof p->title, "%s", p->tier->title);
    else
        (void)snprintf(p->title, sizeof p->title, "replica target %u (%s) of tier %s",
                       (unsigned)p->index, p->domain_name, p->tier->name);
}

static usm__target *make_place(usm__tier *tier, uint32_t index, const usm_transport_place *info)
{
    usm__target *p = usm__heap_alloc(sizeof *p);

    if (!p)
        return NULL;
    p->tier  = tier;
    p->index = index;
    p->base  = (uint64_t)index << USM__PLACE_SHIFT;
    p->state = info->state;
    (void)snprintf(p->domain_name, sizeof p->domain_name, "%.63s", info->domain);
    p->domain = usm__placement_domain(p->domain_name);
    usm_list_init(&p->locations);
    usm__slots_init(&p->slots);
    return p;
}

/* pre: lock; the target is the next one.  False: no memory. */
static bool add_place(usm__tier *tier, usm__target *p, uint64_t weight)
{
    size_t          n = (size_t)tier->nplaces + 1;
    usm__target   **places;
    usm__candidate *candidates;

    places = usm__heap_realloc(tier->places, n * sizeof(usm__target *));
    if (!places)
        return false;
    tier->places = places;
    candidates   = usm__heap_realloc(tier->candidates, n * sizeof *candidates);
    if (!candidates)
        return false;
    tier->candidates                = candidates;
    tier->candidates[tier->nplaces] = (usm__candidate){p->domain, weight};
    tier->places[tier->nplaces++]   = p;
    return true;
}

static uint64_t weight_of(const usm_transport_place *info)
{
    return info->capacity == UINT64_MAX ? WEIGHT_UNKNOWN : info->capacity;
}

/* Asks for target `index` and adds it if it is new; lock not held. */
static usm_status know_place(usm__tier *tier, uint32_t index)
{
    usm__tiers         *t    = tier->tiers;
    usm_transport_place info = {.state = USM_PLACE_UP};
    usm__target        *p;
    usm_status          st = tier->ops->place(tier->store, index, &info);

    if (st != USM_OK)
        return st;
    info.domain[sizeof info.domain - 1] = '\0';
    p                                   = make_place(tier, index, &info);
    if (!p)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the replica targets of tier %s",
                         tier->name);
    name_place(p, false);
    usm__mutex_lock(&t->lock);
    if (tier->nplaces == index && add_place(tier, p, weight_of(&info))) {
        p = NULL;
        t->replicas->epoch++;
        usm__repair_retry(t);
    }
    usm__mutex_unlock(&t->lock);
    if (p)
        free_place(p);
    return USM_OK;
}

/* Adds all targets that exist by now; lock not held. */
static usm_status know_all(usm__tier *tier)
{
    uint32_t n = tier->ops->places(tier->store), have;

    usm__mutex_lock(&tier->tiers->lock);
    have = tier->nplaces;
    usm__mutex_unlock(&tier->tiers->lock);
    for (uint32_t i = have; i < n; i++) {
        usm_status st = know_place(tier, i);

        if (st != USM_OK)
            return st;
    }
    return USM_OK;
}

usm_status usm__targets_open(usm__tier *tier)
{
    usm__tiers         *t    = tier->tiers;
    usm_transport_place only = {.state = USM_PLACE_UP};
    usm__target        *p;
    bool                ok;

    if (tier->is_driven) {
        usm__mutex_lock(&t->lock);
        t->replicas->has_progress = true;
        pthread_cond_signal(&t->replicas->wake); /* the thread ends */
        usm__mutex_unlock(&t->lock);
    }
    if (tier->ops->caps & USM_TRANSPORT_CAP_PLACES)
        return know_all(tier);
    /* A domain of its own: when this node is lost, nobody needs its blocks any more.  Its name is
     * that of no target of another tier. */
    (void)snprintf(only.domain, sizeof only.domain, "tier %u: %.40s", tier->index, tier->name);
    p = make_place(tier, 0, &only);
    if (!p)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for tier %s", tier->name);
    name_place(p, true);
    usm__mutex_lock(&t->lock);
    ok = add_place(tier, p, WEIGHT_UNKNOWN);
    usm__repair_retry(t);
    usm__mutex_unlock(&t->lock);
    if (ok)
        return USM_OK;
    free_place(p);
    return usm__fail(USM_E_NO_MEMORY, "no host memory for tier %s", tier->name);
}

void usm__targets_close(usm__tier *tier)
{
    for (uint32_t i = 0; i < tier->nplaces; i++)
        free_place(tier->places[i]);
    usm__heap_free(tier->places);
    usm__heap_free(tier->candidates);
    tier->places     = NULL;
    tier->candidates = NULL;
    tier->nplaces    = 0;
}

uint64_t usm__targets_used(const usm__tier *tier)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < tier->nplaces; i++)
        if (tier->places[i]->state != USM_PLACE_LOST)
            n += tier->places[i]->slots.used;
    return n;
}

/* ---- the choice -------------------------------------------------------------------------- */

typedef enum health {
    PASS_UP,   /* targets that are up                 */
    PASS_SLOW, /* silent for a while, but do not fail */
    PASS_ALL,
    PASSES
} health;

typedef struct look {
    const usm__tier   *tier;
    const usm__choice *choice;
    health             pass;
    uint64_t           now;
} look;

static bool may_take(void *arg, size_t index)
{
    const look  *l = arg;
    usm__target *p = l->tier->places[index];

    if (p->state != USM_PLACE_UP && p->state != USM_PLACE_SLOW)
        return false;
    if (l->pass == PASS_UP && p->state != USM_PLACE_UP)
        return false;
    if (l->pass != PASS_ALL && usm__target_is_failing(p))
        return false;
    if (l->pass != PASS_ALL && p->is_full && l->now - p->full_ns < FULL_NS)
        return false;
    for (size_t i = 0; i < l->choice->ntried; i++)
        if (l->choice->tried[i] == p)
            return false;
    return true;
}

static usm__target *choose_in(usm__tier *tier, const usm__choice *c, health pass)
{
    look           l = {tier, c, pass, usm__os_now_ns()};
    usm__placement p = {
        .key = c->key, .avoid = c->avoid, .navoid = c->navoid, .may_take = may_take, .arg = &l};
    usm__target *best = NULL;
    size_t       i;

    usm__mutex_lock(&tier->tiers->lock);
    p.list = tier->candidates;
    p.n    = tier->nplaces;
    i      = usm__placement_best(&p);
    if (i != USM__PLACEMENT_NONE)
        best = tier->places[i];
    usm__mutex_unlock(&tier->tiers->lock);
    return best;
}

usm__target *usm__target_choose(usm__tiers *t, const usm__choice *c, usm_status *st)
{
    bool is_open[USM__SPILL_TIERS_MAX] = {false};

    for (int pass = PASS_UP; pass < (c->healthy ? PASS_ALL : PASSES); pass++)
        for (unsigned i = 0; i < t->n; i++) {
            usm_status   answer = is_open[i] ? USM_OK : usm__tier_open(&t->list[i]);
            usm__target *p      = NULL;

            is_open[i] = answer == USM_OK;
            if (is_open[i])
                p = choose_in(&t->list[i], c, (health)pass);
            else if (*st == USM_OK || answer == USM_E_NO_MEMORY)
                *st = answer;
            if (p)
                return p;
        }
    return NULL;
}

/* ---- reports ------------------------------------------------------------------------------ */

void usm__target_notify(usm__target *p, unsigned notified, usm_status st, const char *format, ...)
{
    usm__tiers *t = p->tier->tiers;
    char        sentence[512];
    bool        is_news;
    va_list     args;

    usm__mutex_lock(&t->lock);
    is_news = !(p->notified & notified);
    p->notified |= notified;
    usm__mutex_unlock(&t->lock);
    if (!is_news)
        return;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    usm__tiers_notify(t, st, "%s", sentence);
}

/* ---- states -------------------------------------------------------------------------------- */

static usm__spread *spread_of_location(usm__location *l)
{
    return usm_container_of(l - l->index, usm__spread, at[0]);
}

/* pre: lock.  Returns whether the block had no other copy. */
static bool lose(usm__tiers *t, usm__location *l, usm__gives *g)
{
    usm__spread *s = spread_of_location(l);

    s->gone = l->place;
    usm__location_drop(s, l, USM__LOCATION_GONE, g);
    if (usm__spread_is_readable(s)) {
        usm__repair_queue(t, s);
        return false;
    }
    usm__repair_unqueue(t, s);
    memset(s->stored, 0, sizeof s->stored);
    if (!s->copy->is_stored || s->is_lost)
        return false;
    s->is_lost = true;
    t->replicas->lost++;
    return true;
}

static uint64_t lose_all(usm__tiers *t, usm__target *p)
{
    uint64_t   lost = 0;
    usm__gives g    = {0};
    usm_list  *it   = &p->locations;

    while (it) {
        usm__mutex_lock(&t->lock);
        for (unsigned i = 0; i < USM__LOCATIONS; i++) {
            it = p->locations.next == &p->locations ? NULL : p->locations.next;
            if (!it)
                break;
            lost += lose(t, usm_container_of(it, usm__location, link), &g);
        }
        usm__mutex_unlock(&t->lock);
        usm__give_now(&g);
    }
    return lost;
}

static void notify_lost(usm__tiers *t, const usm__target *p, uint64_t copies, uint64_t lost)
{
    if (lost > 0)
        usm__tiers_notify(t, USM_E_IO,
                          "%s is lost with the only copy of %llu %s fail with "
                          "USM_E_IO; USM_SPILL_REPLICAS=%u keeps copies in other fault domains",
                          p->title, (unsigned long long)lost,
                          usm__plural(lost, "block: accesses to it", "blocks: accesses to them"),
                          t->replicas->wanted < USM__REPLICAS_MAX ? t->replicas->wanted + 1
                                                                  : USM__REPLICAS_MAX);
    else if (copies > 0)
        usm__warn("%s is lost; the %llu %s other copies; new copies are made", p->title,
                  (unsigned long long)copies,
                  usm__plural(copies, "block it had is read from its",
                              "blocks it had are read from their"));
}

/* Queues all blocks with copies there for new copies, a few at a time: processed copies move to the
 * end of the list. */
static void leave_all(usm__tiers *t, usm__target *p)
{
    uint64_t left;

    usm__mutex_lock(&t->lock);
    left = p->nlocations;
    while (left > 0) {
        for (unsigned i = 0; i < CHUNK && left > 0; i++, left--) {
            usm_list *it = usm_list_pop(&p->locations);

            if (!it)
                break;
            usm_list_append(&p->locations, it);
            usm__repair_queue(t, spread_of_location(usm_container_of(it, usm__location, link)));
        }
        usm__mutex_unlock(&t->lock);
        usm__mutex_lock(&t->lock);
        left = left < p->nlocations ? left : p->nlocations;
    }
    usm__mutex_unlock(&t->lock);
}

static void enter_state(usm__tiers *t, usm__target *p, usm_place_state state)
{
    usm_place_state before;
    uint64_t        copies;

    usm__mutex_lock(&t->lock);
    before = p->state;
    copies = p->nlocations;
    if (before != USM_PLACE_LOST)
        p->state = state;
    if (state == USM_PLACE_UP && before != USM_PLACE_LOST) {
        usm_store_relaxed(&p->failures, 0u);
        p->is_full = false;
        usm__repair_retry(t);
    }
    usm__mutex_unlock(&t->lock);
    if (before == USM_PLACE_LOST || before == state)
        return;
    usm__info("%s: state %d", p->title, (int)state);
    if (state == USM_PLACE_LOST)
        notify_lost(t, p, copies, lose_all(t, p));
    else if (state == USM_PLACE_LEAVING)
        leave_all(t, p);
}

/* While the tier is being opened, usm__targets_open() handles this. */
void usm__target_changed(void *arg, uint32_t index, usm_place_state state)
{
    usm__tier   *tier = arg;
    usm__tiers  *t    = tier->tiers;
    usm__target *p    = NULL;
    bool         is_open;

    usm__mutex_lock(&t->lock);
    is_open = tier->store != NULL;
    usm__mutex_unlock(&t->lock);
    if (!is_open || know_all(tier) != USM_OK)
        return;
    usm__mutex_lock(&t->lock);
    if (index < tier->nplaces)
        p = tier->places[index];
    usm__mutex_unlock(&t->lock);
    if (p)
        enter_state(t, p, state);
}

size_t usm__tiers_get_places(usm__tiers *t, size_t index, usm__target_stats *list, size_t cap)
{
    usm__tier *tier = index < t->n && t->replicas ? &t->list[index] : NULL;
    size_t     n;

    if (!tier)
        return 0;
    usm__mutex_lock(&t->lock);
    n = tier->nplaces;
    for (size_t i = 0; i < n && i < cap; i++) {
        const usm__target *p = tier->places[i];

        list[i].state  = p->state;
        list[i].copies = p->nlocations;
        memcpy(list[i].domain, p->domain_name, sizeof list[i].domain);
    }
    usm__mutex_unlock(&t->lock);
    return n;
}
