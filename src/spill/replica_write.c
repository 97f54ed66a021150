/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Replicated writes of blocks that have several copies: one sub-write ("leg") to each replica
 * target, all under way together ("fan").  A sub-write that fails is tried once more.  When all
 * have ended, the write succeeds if at least one copy has the bytes; a copy that missed the write
 * is stale from that moment on, and never read again.  If no copy has the bytes, a write of a whole
 * block tries other targets, and a write of a part fails.  Reads: replica_read.c.
 *
 * The state of the copies is changed under the lock, when the last sub-write has ended.  Example:
 * two parts of one block are written together to two copies, and each copy misses one of the
 * writes.  The first write to end makes the copy that missed it stale.  The second write then finds
 * that the only copy with its bytes is stale, and fails.  So there is always a copy that has every
 * write that was acknowledged.
 *
 * The records of replicated writes are allocated once: a write never fails for lack of memory, it
 * waits until a record is free.  Called by tier_io.c. */
#include "spill/replica.h"

#include "base/assert.h"
#include "base/inline/plural.h"
#include "base/os.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define WRITES 2u /* attempts of a sub-write                                               */

static void plan_and_go(usm__fan *fan);

/* ---- records of replicated writes ------------------------------------------------------ */

/* NULL: none is free, the io waits in the queue. */
static usm__fan *take_fan(usm__tiers *t, usm__io *io)
{
    usm__replicas *r = t->replicas;
    usm__fan      *fan;

    usm__mutex_lock(&t->lock);
    fan = r->idle;
    if (fan) {
        r->idle = fan->next;
    } else {
        usm__io_queue_append(&r->queue, io);
    }
    usm__mutex_unlock(&t->lock);
    return fan;
}

static void start_fan(usm__tiers *t, usm__fan *fan, usm__io *io)
{
    fan->t      = t;
    fan->io     = io;
    fan->ntried = 0;
    fan->worst  = USM_OK;
    plan_and_go(fan);
}

void usm__replicas_write(usm__tiers *t, usm__io *io)
{
    usm__fan *fan = take_fan(t, io);

    if (fan)
        start_fan(t, fan, io);
}

/* Passes the record to the next io, if one waits. */
static void end_fan(usm__fan *fan, usm_status st)
{
    usm__tiers    *t  = fan->t;
    usm__replicas *r  = t->replicas;
    usm__io       *io = fan->io;
    usm__io       *next;

    usm__mutex_lock(&t->lock);
    next = usm__io_queue_pop(&r->queue);
    if (!next) {
        fan->next = r->idle;
        r->idle   = fan;
    }
    usm__mutex_unlock(&t->lock);
    usm__io_finish(t, io, st);
    if (next) /* its io is under way: the tiers are not destroyed */
        start_fan(t, fan, next);
}

/* ---- a write: the choice of targets -------------------------------------------------------- */

static bool has_tried(const usm__fan *fan, const usm__target *p)
{
    for (unsigned i = 0; i < fan->ntried; i++)
        if (fan->tried[i] == p)
            return true;
    return false;
}

/* After so many, no other target is asked: see place_fresh(). */
static void note_tried(usm__fan *fan, usm__target *p)
{
    if (fan->ntried < USM__TRIED_MAX && !has_tried(fan, p))
        fan->tried[fan->ntried++] = p;
}

static usm__leg *add_leg(usm__fan *fan, usm__target *place, uint64_t slot, int at)
{
    usm__leg *leg = &fan->leg[fan->n++];

    leg->fan      = fan;
    leg->place    = place;
    leg->slot     = slot;
    leg->at       = at;
    leg->attempts = 0;
    leg->status   = USM_OK;
    return leg;
}

typedef enum selection {
    WHICH_ALL,     /* every copy, because none may miss the write of a part                   */
    WHICH_HEALTHY, /* on targets that stay and do not fail                                    */
    WHICH_LAST     /* any that was not tried                                                  */
} selection;

/* The targets that the block would get if it were new. */
typedef struct ideal {
    usm__target *list[USM__REPLICAS_MAX];
    uint64_t     domains[USM__REPLICAS_MAX];
    unsigned     n;
} ideal;

/* pre: lock. */
static bool may_use(const usm__fan *fan, const usm__location *l, selection which)
{
    usm__target *p = l->place;

    if (!usm__location_is_readable(l))
        return false;
    if (which == WHICH_ALL)
        return true;
    if (has_tried(fan, p))
        return false;
    return which == WHICH_LAST ||
           ((p->state == USM_PLACE_UP || p->state == USM_PLACE_SLOW) && !usm__target_is_failing(p));
}

/* A target without room for more keeps what it has. */
static bool is_ideal(const ideal *best, const usm__target *p)
{
    for (unsigned i = 0; best && i < best->n; i++)
        if (best->list[i] == p)
            return true;
    return !best || p->is_full;
}

/* Sub-writes to the existing copies; best NULL: wherever they are. */
static void use_copies(usm__fan *fan, selection which, const ideal *best)
{
    usm__tiers  *t = fan->t;
    usm__spread *s = usm__spread_of(t, fan->io->copy);

    usm__mutex_lock(&t->lock);
    for (int i = 0; i < (int)USM__LOCATIONS && fan->n < USM__REPLICAS_MAX; i++) {
        usm__location *l = &s->at[i];

        if (!may_use(fan, l, which) || !is_ideal(best, l->place))
            continue;
        if (which != WHICH_ALL && fan->n == t->replicas->wanted)
            break;
        l->flying++;
        (void)add_leg(fan, l->place, l->slot, i);
    }
    usm__mutex_unlock(&t->lock);
}

static void note_full(usm__target *p)
{
    usm__tier  *tier = p->tier;
    usm__tiers *t    = tier->tiers;
    char        words[sizeof tier->reason], used[24];

    (void)snprintf(words, sizeof words, "%.*s", (int)sizeof words - 1,
                   usm__words_of(USM_E_SPILL_FULL));
    usm__mutex_lock(&t->lock);
    usm__target_note_full(p);
    memcpy(tier->reason, words, sizeof words);
    (void)usm__format_bytes(p->slots.used * t->block_size, used, sizeof used);
    usm__mutex_unlock(&t->lock);
    usm__target_tell(p, USM__TOLD_FULL, USM_E_SPILL_FULL,
                     "%s is full with %s: %s; blocks go elsewhere, if they can, or stay in memory",
                     p->title, used, words);
}

static void note_worst(usm__fan *fan, usm_status st)
{
    /* A failing medium is a worse answer than a full one; a tier that is not available is the
     * least. */
    if (fan->worst == USM_OK || (st == USM_E_SPILL_FULL && fan->worst != USM_E_IO) ||
        st == USM_E_IO)
        fan->worst = st;
}

static void keep_reason(usm__target *p, usm_status st)
{
    usm__tier *tier = p->tier;
    char       reason[sizeof tier->reason];

    (void)snprintf(reason, sizeof reason, "%.*s", (int)sizeof reason - 1, usm__words_of(st));
    usm__mutex_lock(&tier->tiers->lock);
    memcpy(tier->reason, reason, sizeof reason);
    usm__mutex_unlock(&tier->tiers->lock);
}

/* Adds a sub-write to a new slot.  False: there is no target for it. */
static bool place_fresh(usm__fan *fan, bool healthy)
{
    uint64_t    avoid[USM__REPLICAS_MAX], slot = 0;
    usm__choice c = {.key = fan->io->key, .avoid = avoid, .tried = fan->tried, .healthy = healthy};

    for (unsigned i = 0; i < fan->n; i++)
        avoid[c.navoid++] = fan->leg[i].place->domain;
    while (fan->ntried < USM__TRIED_MAX) {
        usm_status   st = USM_OK, answer;
        usm__target *p;

        c.ntried = fan->ntried;
        p        = usm__target_choose(fan->t, &c, &st);
        if (!p && st != USM_OK)
            note_worst(fan, st);
        if (!p)
            return false;
        answer = usm__target_take(p, &slot);
        if (answer == USM_OK) {
            (void)add_leg(fan, p, slot, -1);
            return true;
        }
        note_worst(fan, answer);
        if (answer == USM_E_SPILL_FULL)
            note_full(p);
        else
            keep_reason(p, answer);
        note_tried(fan, p);
    }
    return false;
}

static void fill_up(usm__fan *fan, bool healthy)
{
    while (fan->n < fan->t->replicas->wanted && place_fresh(fan, healthy))
        ;
}

/* The new slots of a block without copies become its copies at once, because writes of other parts
 * of it may be under way, too; the first of them decides the targets. */
static void settle(usm__fan *fan)
{
    usm__tiers  *t = fan->t;
    usm__spread *s = usm__spread_of(t, fan->io->copy);
    usm__gives   g = {0};
    bool         is_late;

    usm__mutex_lock(&t->lock);
    is_late = usm__spread_is_readable(s);
    for (unsigned i = 0; i < fan->n; i++) {
        usm__leg      *leg = &fan->leg[i];
        usm__location *l   = NULL;

        if (!is_late && leg->place->state != USM_PLACE_LOST)
            l = usm__spread_add(s, leg->place, leg->slot);
        if (l) {
            l->flying++;
            leg->at = l->index;
        } else {
            usm__give_later(&g, leg->place, leg->slot);
            *leg = fan->leg[--fan->n];
            i--;
        }
    }
    usm__mutex_unlock(&t->lock);
    usm__give_now(&g);
    if (is_late)
        use_copies(fan, WHICH_ALL, NULL);
}

/* Whether targets were added since the block was last written whole: then some of its copies may
 * belong there.  They move now, when the block is written anyway, and never otherwise. */
static bool may_move(usm__fan *fan)
{
    usm__tiers  *t = fan->t;
    usm__spread *s = usm__spread_of(t, fan->io->copy);
    bool         may;

    usm__mutex_lock(&t->lock);
    may      = s->epoch != t->replicas->epoch && usm__spread_is_readable(s);
    s->epoch = t->replicas->epoch;
    usm__mutex_unlock(&t->lock);
    return may;
}

static void find_ideal(const usm__fan *fan, ideal *best)
{
    usm_status  st = USM_OK;
    usm__choice c  = {.key = fan->io->key, .avoid = best->domains, .healthy = true};

    best->n = 0;
    while (best->n < fan->t->replicas->wanted) {
        usm__target *p;

        c.navoid = best->n;
        p        = usm__target_choose(fan->t, &c, &st);
        if (!p)
            return;
        best->domains[best->n] = p->domain;
        best->list[best->n++]  = p;
    }
}

static void plan_whole(usm__fan *fan)
{
    ideal best;
    bool  moves = may_move(fan);

    if (moves)
        find_ideal(fan, &best);
    use_copies(fan, WHICH_HEALTHY, moves ? &best : NULL);
    fill_up(fan, true);
    if (fan->n == 0)
        use_copies(fan, WHICH_LAST, NULL);
    if (fan->n == 0)
        fill_up(fan, false);
}

static void plan_part(usm__fan *fan)
{
    if (fan->ntried > 0) /* it has failed where the rest of the block is   */
        return;
    use_copies(fan, WHICH_ALL, NULL);
    for (unsigned i = 0; i < 2 && fan->n == 0; i++) {
        fill_up(fan, i == 0);
        if (fan->n > 0)
            settle(fan);
    }
}

/* All targets have failed. */
static usm_status fail_everywhere(usm__fan *fan)
{
    usm__tiers *t  = fan->t;
    usm_status  st = fan->worst == USM_OK ? USM_E_SPILL_FULL : fan->worst;
    char        all[USM__STORY_SIZE - 128];
    size_t      n = 0;

    if (t->n == 0)
        return usm__fail(USM_E_SPILL_FULL,
                         "with USM_SPILL=off nothing is evicted: raise USM_MEMORY_LIMIT, or name a "
                         "tier, as in USM_SPILL=file:/var/tmp");
    all[0] = '\0';
    usm__mutex_lock(&t->lock);
    for (unsigned i = 0; i < t->n && n < sizeof all; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s: %s", n ? "; " : "", t->list[i].name,
                              t->list[i].reason[0]
                                  ? t->list[i].reason
                                  : "none of its replica targets accepts blocks now");
    usm__mutex_unlock(&t->lock);
    return usm__fail(st, "no tier takes it: %s", all);
}

/* Reports, once, that there are fewer copies than wanted, and no target in another domain. */
static void warn_alone(usm__fan *fan)
{
    usm__tiers    *t = fan->t;
    usm__replicas *r = t->replicas;
    bool           is_news;

    usm__mutex_lock(&t->lock);
    is_news       = fan->n < r->wanted && fan->ntried == 0 && !r->told_alone;
    r->told_alone = r->told_alone || is_news;
    usm__mutex_unlock(&t->lock);
    if (is_news)
        usm__tiers_tell(t, USM_E_NOT_SUPPORTED,
                        "USM_SPILL_REPLICAS asks for %u %s of each block, but there is room in "
                        "%u fault domain%s only (%s): blocks have fewer copies until there is "
                        "more, and are lost with the last one; add a further tier, as in "
                        "USM_SPILL=mpi;file:/var/tmp, or lenders in other domains",
                        r->wanted, usm__plural(r->wanted, "copy", "copies"), fan->n,
                        fan->n == 1 ? "" : "s", fan->leg[0].place->title);
}

/* ---- a write: the sub-writes ----------------------------------------------------------------- */

static void leg_done(usm_transfer *x, usm_status st);

static void submit_leg(usm__leg *leg)
{
    usm__fan    *fan  = leg->fan;
    usm__target *p    = leg->place;
    usm__tier   *tier = p->tier;
    usm__tiers  *t    = fan->t;

    usm__io_fill(t, fan->io, p->base + leg->slot, &leg->t);
    leg->t.done       = leg_done;
    leg->t.is_awaited = leg->t.is_awaited && t->replicas->wanted == 1;
    leg->attempts++;
    leg->start_ns = usm__os_now_ns();
    usm__mutex_lock(&t->lock);
    usm__flow_begin(&tier->writes, leg->start_ns);
    if (tier->ops->caps & USM_TRANSPORT_CAP_PROGRESS)
        pthread_cond_broadcast(&t->changed); /* for usm__tiers_destroy() */
    usm__mutex_unlock(&t->lock);
    tier->ops->submit(tier->store, &leg->t);
}

static void plan_and_go(usm__fan *fan)
{
    usm__io *io = fan->io;
    unsigned n;

    fan->n = 0;
    if (usm__io_is_whole(fan->t, io))
        plan_whole(fan);
    else
        plan_part(fan);
    n = fan->n;
    if (n == 0) {
        end_fan(fan, fail_everywhere(fan));
        return;
    }
    warn_alone(fan);
    fan->pending = n;
    /* The record lives until the last sub-write has ended, which is not before the last was
     * submitted. */
    for (unsigned i = 0; i < n; i++)
        submit_leg(&fan->leg[i]);
}

/* Whether the copy has the bytes of this write.  pre: lock */
static bool has_it(const usm__spread *s, const usm__leg *leg)
{
    if (leg->status != USM_OK || leg->place->state == USM_PLACE_LOST)
        return false;
    return leg->at < 0 || usm__location_is_readable(&s->at[leg->at]);
}

/* The write succeeds: locations that missed it are no longer copies, those that have it are. pre:
 * lock */
static void enter_good(usm__fan *fan, usm__spread *s, usm__gives *g)
{
    usm__io *io                  = fan->io;
    bool     whole               = usm__io_is_whole(fan->t, io);
    bool     has[USM__LOCATIONS] = {false};

    for (unsigned i = 0; i < fan->n; i++)
        if (fan->leg[i].at >= 0)
            has[fan->leg[i].at] = has_it(s, &fan->leg[i]);
    for (unsigned i = 0; i < fan->n; i++)
        if (fan->leg[i].at >= 0)
            s->at[fan->leg[i].at].flying--; /* landed: below, or with the others            */
    for (unsigned i = 0; i < USM__LOCATIONS; i++) {
        usm__location *l = &s->at[i];

        if (l->state == USM__LOCATION_NONE)
            continue;
        if (!has[i] && l->state != USM__LOCATION_GONE)
            usm__location_drop(s, l, USM__LOCATION_STALE, g);
        else if (!has[i])
            usm__location_drop(s, l, USM__LOCATION_GONE, g);
        else if (whole)
            l->state = USM__LOCATION_GOOD;
    }
    for (unsigned i = 0; i < fan->n; i++) {
        const usm__leg *leg = &fan->leg[i];

        if (leg->at < 0 && (!has_it(s, leg) || !usm__spread_add(s, leg->place, leg->slot)))
            usm__give_later(g, leg->place, leg->slot);
    }
    usm__spread_mark(s, io->first, io->count, true);
    if (whole)
        s->is_lost = false;
    if (usm__spread_firm(s) < fan->t->replicas->wanted)
        s->must_mend = true;
}

/* pre: lock */
static void enter_bad(usm__fan *fan, usm__spread *s, usm__gives *g)
{
    usm__io *io = fan->io;

    for (unsigned i = 0; i < fan->n; i++) {
        usm__leg *leg = &fan->leg[i];

        if (leg->at >= 0)
            usm__location_landed(s, &s->at[leg->at], g);
        else
            usm__give_later(g, leg->place, leg->slot);
        note_tried(fan, leg->place);
    }
    usm__spread_mark(s, io->first, io->count, false);
}

static void conclude(usm__fan *fan)
{
    usm__tiers  *t        = fan->t;
    usm__io     *io       = fan->io;
    usm__spread *s        = usm__spread_of(t, io->copy);
    usm__gives   g        = {0};
    usm_status   odd      = USM_OK;
    usm__tier   *tier     = NULL;
    bool         is_first = false;

    usm__mutex_lock(&t->lock);
    for (unsigned i = 0; i < fan->n; i++) {
        usm__leg *leg = &fan->leg[i];

        if (!tier && has_it(s, leg)) {
            tier           = leg->place->tier;
            io->copy->tier = usm__tier_code(tier->index);
            io->copy->slot = leg->place->base + leg->slot;
        }
        if (leg->status != USM_OK && leg->status != USM_E_IO && leg->status != USM_E_SPILL_FULL)
            odd = leg->status;
    }
    if (tier) {
        is_first            = !t->has_spilled;
        t->has_spilled      = true;
        io->copy->is_stored = true;
        enter_good(fan, s, &g);
    } else {
        enter_bad(fan, s, &g);
    }
    usm__mutex_unlock(&t->lock);
    usm__give_now(&g);
    if (is_first)
        usm__tiers_tell_first(t, tier);
    if (tier)
        end_fan(fan, USM_OK);
    else if (odd != USM_OK)
        end_fan(fan, usm__fail(odd, "it cannot be stored: %s", usm_status_string(odd)));
    else
        plan_and_go(fan);
}

/* pre: the error message is the failure's */
static void leg_failed(usm__leg *leg, usm_status st)
{
    usm__target *p = leg->place;

    keep_reason(p, st);
    if (st == USM_E_IO) {
        usm_add_relaxed(&p->failures, 1);
        usm__target_tell(p, USM__TOLD_FAILING, st,
                         "%s fails to write: %s; what could not be written there is kept elsewhere",
                         p->title, usm__words_of(st));
    } else if (st == USM_E_SPILL_FULL) {
        note_full(p);
    }
}

static void leg_done(usm_transfer *x, usm_status st)
{
    usm__leg   *leg  = usm_container_of(x, usm__leg, t);
    usm__fan   *fan  = leg->fan;
    usm__tiers *t    = fan->t;
    usm__tier  *tier = leg->place->tier;
    bool        is_last, is_lost;

    usm__mutex_lock(&t->lock);
    usm__flow_end(&tier->writes, usm__os_now_ns(), leg->start_ns, x->size, st == USM_OK);
    tier->errors += st != USM_OK;
    if (st == USM_OK && fan->io->scratch) {
        tier->encoded_in += t->block_size;
        tier->encoded_out += fan->io->copy->encoded;
    }
    is_lost = leg->place->state == USM_PLACE_LOST;
    usm__mutex_unlock(&t->lock);
    if (st == USM_E_IO && leg->attempts < WRITES && !is_lost &&
        !usm__target_is_failing(leg->place)) {
        submit_leg(leg);
        return;
    }
    leg->status = st;
    if (st == USM_OK)
        usm_store_relaxed(&leg->place->failures, 0u);
    else
        leg_failed(leg, st);
    usm__mutex_lock(&t->lock);
    if (st != USM_OK)
        note_worst(fan, st);
    is_last = --fan->pending == 0;
    usm__mutex_unlock(&t->lock);
    if (is_last)
        conclude(fan);
}
