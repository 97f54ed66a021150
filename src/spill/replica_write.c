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

static void plan_and_go(usm__replicated *replicated);

/* ---- records of replicated writes ------------------------------------------------------ */

/* NULL: none is free, the io waits in the queue. */
static usm__replicated *take_replicated(usm__tiers *t, usm__io *io)
{
    usm__replicas   *r = t->replicas;
    usm__replicated *replicated;

    usm__mutex_lock(&t->lock);
    replicated = r->idle;
    if (replicated) {
        r->idle = replicated->next;
    } else {
        usm__io_queue_append(&r->queue, io);
    }
    usm__mutex_unlock(&t->lock);
    return replicated;
}

static void start_replicated(usm__tiers *t, usm__replicated *replicated, usm__io *io)
{
    replicated->t      = t;
    replicated->io     = io;
    replicated->ntried = 0;
    replicated->worst  = USM_OK;
    plan_and_go(replicated);
}

void usm__replicas_write(usm__tiers *t, usm__io *io)
{
    usm__replicated *replicated = take_replicated(t, io);

    if (replicated)
        start_replicated(t, replicated, io);
}

/* Passes the record to the next io, if one waits. */
static void end_replicated(usm__replicated *replicated, usm_status st)
{
    usm__tiers    *t  = replicated->t;
    usm__replicas *r  = t->replicas;
    usm__io       *io = replicated->io;
    usm__io       *next;

    usm__mutex_lock(&t->lock);
    next = usm__io_queue_pop(&r->queue);
    if (!next) {
        replicated->next = r->idle;
        r->idle          = replicated;
    }
    usm__mutex_unlock(&t->lock);
    usm__io_finish(t, io, st);
    if (next) /* its io is under way: the tiers are not destroyed */
        start_replicated(t, replicated, next);
}

/* ---- a write: the choice of targets -------------------------------------------------------- */

static bool has_tried(const usm__replicated *replicated, const usm__target *p)
{
    for (unsigned i = 0; i < replicated->ntried; i++)
        if (replicated->tried[i] == p)
            return true;
    return false;
}

/* After so many, no other target is asked: see place_fresh(). */
static void note_tried(usm__replicated *replicated, usm__target *p)
{
    if (replicated->ntried < USM__TRIED_MAX && !has_tried(replicated, p))
        replicated->tried[replicated->ntried++] = p;
}

static usm__subwrite *add_subwrite(usm__replicated *replicated, usm__target *place, uint64_t slot,
                                   int at)
{
    usm__subwrite *subwrite = &replicated->subwrite[replicated->n++];

    subwrite->replicated = replicated;
    subwrite->place      = place;
    subwrite->slot       = slot;
    subwrite->at         = at;
    subwrite->attempts   = 0;
    subwrite->status     = USM_OK;
    return subwrite;
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
static bool may_use(const usm__replicated *replicated, const usm__location *l, selection which)
{
    usm__target *p = l->place;

    if (!usm__location_is_readable(l))
        return false;
    if (which == WHICH_ALL)
        return true;
    if (has_tried(replicated, p))
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
static void use_copies(usm__replicated *replicated, selection which, const ideal *best)
{
    usm__tiers  *t = replicated->t;
    usm__spread *s = usm__spread_of(t, replicated->io->copy);

    usm__mutex_lock(&t->lock);
    for (int i = 0; i < (int)USM__LOCATIONS && replicated->n < USM__REPLICAS_MAX; i++) {
        usm__location *l = &s->at[i];

        if (!may_use(replicated, l, which) || !is_ideal(best, l->place))
            continue;
        if (which != WHICH_ALL && replicated->n == t->replicas->wanted)
            break;
        l->flying++;
        (void)add_subwrite(replicated, l->place, l->slot, i);
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
    usm__target_notify(
        p, USM__TOLD_FULL, USM_E_SPILL_FULL,
        "%s is full with %s: %s; blocks go elsewhere, if they can, or stay in memory", p->title,
        used, words);
}

static void note_worst(usm__replicated *replicated, usm_status st)
{
    /* A failing medium is a worse answer than a full one; a tier that is not available is the
     * least. */
    if (replicated->worst == USM_OK || (st == USM_E_SPILL_FULL && replicated->worst != USM_E_IO) ||
        st == USM_E_IO)
        replicated->worst = st;
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
static bool place_fresh(usm__replicated *replicated, bool healthy)
{
    uint64_t    avoid[USM__REPLICAS_MAX], slot = 0;
    usm__choice c = {
        .key = replicated->io->key, .avoid = avoid, .tried = replicated->tried, .healthy = healthy};

    for (unsigned i = 0; i < replicated->n; i++)
        avoid[c.navoid++] = replicated->subwrite[i].place->domain;
    while (replicated->ntried < USM__TRIED_MAX) {
        usm_status   st = USM_OK, answer;
        usm__target *p;

        c.ntried = replicated->ntried;
        p        = usm__target_choose(replicated->t, &c, &st);
        if (!p && st != USM_OK)
            note_worst(replicated, st);
        if (!p)
            return false;
        answer = usm__target_take(p, &slot);
        if (answer == USM_OK) {
            (void)add_subwrite(replicated, p, slot, -1);
            return true;
        }
        note_worst(replicated, answer);
        if (answer == USM_E_SPILL_FULL)
            note_full(p);
        else
            keep_reason(p, answer);
        note_tried(replicated, p);
    }
    return false;
}

static void fill_up(usm__replicated *replicated, bool healthy)
{
    while (replicated->n < replicated->t->replicas->wanted && place_fresh(replicated, healthy))
        ;
}

/* The new slots of a block without copies become its copies at once, because writes of other parts
 * of it may be under way, too; the first of them decides the targets. */
static void settle(usm__replicated *replicated)
{
    usm__tiers  *t = replicated->t;
    usm__spread *s = usm__spread_of(t, replicated->io->copy);
    usm__gives   g = {0};
    bool         is_late;

    usm__mutex_lock(&t->lock);
    is_late = usm__spread_is_readable(s);
    for (unsigned i = 0; i < replicated->n; i++) {
        usm__subwrite *subwrite = &replicated->subwrite[i];
        usm__location *l        = NULL;

        if (!is_late && subwrite->place->state != USM_PLACE_LOST)
            l = usm__spread_add(s, subwrite->place, subwrite->slot);
        if (l) {
            l->flying++;
            subwrite->at = l->index;
        } else {
            usm__give_later(&g, subwrite->place, subwrite->slot);
            *subwrite = replicated->subwrite[--replicated->n];
            i--;
        }
    }
    usm__mutex_unlock(&t->lock);
    usm__give_now(&g);
    if (is_late)
        use_copies(replicated, WHICH_ALL, NULL);
}

/* Whether targets were added since the block was last written whole: then some of its copies may
 * belong there.  They move now, when the block is written anyway, and never otherwise. */
static bool may_move(usm__replicated *replicated)
{
    usm__tiers  *t = replicated->t;
    usm__spread *s = usm__spread_of(t, replicated->io->copy);
    bool         may;

    usm__mutex_lock(&t->lock);
    may      = s->epoch != t->replicas->epoch && usm__spread_is_readable(s);
    s->epoch = t->replicas->epoch;
    usm__mutex_unlock(&t->lock);
    return may;
}

static void find_ideal(const usm__replicated *replicated, ideal *best)
{
    usm_status  st = USM_OK;
    usm__choice c  = {.key = replicated->io->key, .avoid = best->domains, .healthy = true};

    best->n = 0;
    while (best->n < replicated->t->replicas->wanted) {
        usm__target *p;

        c.navoid = best->n;
        p        = usm__target_choose(replicated->t, &c, &st);
        if (!p)
            return;
        best->domains[best->n] = p->domain;
        best->list[best->n++]  = p;
    }
}

static void plan_whole(usm__replicated *replicated)
{
    ideal best;
    bool  moves = may_move(replicated);

    if (moves)
        find_ideal(replicated, &best);
    use_copies(replicated, WHICH_HEALTHY, moves ? &best : NULL);
    fill_up(replicated, true);
    if (replicated->n == 0)
        use_copies(replicated, WHICH_LAST, NULL);
    if (replicated->n == 0)
        fill_up(replicated, false);
}

static void plan_part(usm__replicated *replicated)
{
    if (replicated->ntried > 0) /* it has failed where the rest of the block is   */
        return;
    use_copies(replicated, WHICH_ALL, NULL);
    for (unsigned i = 0; i < 2 && replicated->n == 0; i++) {
        fill_up(replicated, i == 0);
        if (replicated->n > 0)
            settle(replicated);
    }
}

/* All targets have failed. */
static usm_status fail_everywhere(usm__replicated *replicated)
{
    usm__tiers *t  = replicated->t;
    usm_status  st = replicated->worst == USM_OK ? USM_E_SPILL_FULL : replicated->worst;
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
static void warn_alone(usm__replicated *replicated)
{
    usm__tiers    *t = replicated->t;
    usm__replicas *r = t->replicas;
    bool           is_news;

    usm__mutex_lock(&t->lock);
    is_news           = replicated->n < r->wanted && replicated->ntried == 0 && !r->notified_alone;
    r->notified_alone = r->notified_alone || is_news;
    usm__mutex_unlock(&t->lock);
    if (is_news)
        usm__tiers_notify(t, USM_E_NOT_SUPPORTED,
                          "USM_SPILL_REPLICAS asks for %u %s of each block, but there is room in "
                          "%u fault domain%s only (%s): blocks have fewer copies until there is "
                          "more, and are lost with the last one; add a further tier, as in "
                          "USM_SPILL=mpi;file:/var/tmp, or lenders in other domains",
                          r->wanted, usm__plural(r->wanted, "copy", "copies"), replicated->n,
                          replicated->n == 1 ? "" : "s", replicated->subwrite[0].place->title);
}

/* ---- a write: the sub-writes ----------------------------------------------------------------- */

static void subwrite_done(usm_transfer *x, usm_status st);

static void submit_subwrite(usm__subwrite *subwrite)
{
    usm__replicated *replicated = subwrite->replicated;
    usm__target     *p          = subwrite->place;
    usm__tier       *tier       = p->tier;
    usm__tiers      *t          = replicated->t;

    usm__io_fill(t, replicated->io, p->base + subwrite->slot, &subwrite->t);
    subwrite->t.done       = subwrite_done;
    subwrite->t.is_awaited = subwrite->t.is_awaited && t->replicas->wanted == 1;
    subwrite->attempts++;
    subwrite->start_ns = usm__os_now_ns();
    usm__mutex_lock(&t->lock);
    usm__flow_begin(&tier->writes, subwrite->start_ns);
    if (tier->ops->caps & USM_TRANSPORT_CAP_PROGRESS)
        pthread_cond_broadcast(&t->changed); /* for usm__tiers_destroy() */
    usm__mutex_unlock(&t->lock);
    tier->ops->submit(tier->store, &subwrite->t);
}

static void plan_and_go(usm__replicated *replicated)
{
    usm__io *io = replicated->io;
    unsigned n;

    replicated->n = 0;
    if (usm__io_is_whole(replicated->t, io))
        plan_whole(replicated);
    else
        plan_part(replicated);
    n = replicated->n;
    if (n == 0) {
        end_replicated(replicated, fail_everywhere(replicated));
        return;
    }
    warn_alone(replicated);
    replicated->pending = n;
    /* The record lives until the last sub-write has ended, which is not before the last was
     * submitted. */
    for (unsigned i = 0; i < n; i++)
        submit_subwrite(&replicated->subwrite[i]);
}

/* Whether the copy has the bytes of this write.  pre: lock */
static bool has_it(const usm__spread *s, const usm__subwrite *subwrite)
{
    if (subwrite->status != USM_OK || subwrite->place->state == USM_PLACE_LOST)
        return false;
    return subwrite->at < 0 || usm__location_is_readable(&s->at[subwrite->at]);
}

/* The write succeeds: locations that missed it are no longer copies, those that have it are. pre:
 * lock */
static void enter_good(usm__replicated *replicated, usm__spread *s, usm__gives *g)
{
    usm__io *io                  = replicated->io;
    bool     whole               = usm__io_is_whole(replicated->t, io);
    bool     has[USM__LOCATIONS] = {false};

    for (unsigned i = 0; i < replicated->n; i++)
        if (replicated->subwrite[i].at >= 0)
            has[replicated->subwrite[i].at] = has_it(s, &replicated->subwrite[i]);
    for (unsigned i = 0; i < replicated->n; i++)
        if (replicated->subwrite[i].at >= 0)
            s->at[replicated->subwrite[i].at]
                .flying--; /* landed: below, or with the others            */
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
    for (unsigned i = 0; i < replicated->n; i++) {
        const usm__subwrite *subwrite = &replicated->subwrite[i];

        if (subwrite->at < 0 &&
            (!has_it(s, subwrite) || !usm__spread_add(s, subwrite->place, subwrite->slot)))
            usm__give_later(g, subwrite->place, subwrite->slot);
    }
    usm__spread_mark(s, io->first, io->count, true);
    if (whole)
        s->is_lost = false;
    if (usm__spread_firm(s) < replicated->t->replicas->wanted)
        s->must_repair = true;
}

/* pre: lock */
static void enter_bad(usm__replicated *replicated, usm__spread *s, usm__gives *g)
{
    usm__io *io = replicated->io;

    for (unsigned i = 0; i < replicated->n; i++) {
        usm__subwrite *subwrite = &replicated->subwrite[i];

        if (subwrite->at >= 0)
            usm__location_landed(s, &s->at[subwrite->at], g);
        else
            usm__give_later(g, subwrite->place, subwrite->slot);
        note_tried(replicated, subwrite->place);
    }
    usm__spread_mark(s, io->first, io->count, false);
}

static void conclude(usm__replicated *replicated)
{
    usm__tiers  *t        = replicated->t;
    usm__io     *io       = replicated->io;
    usm__spread *s        = usm__spread_of(t, io->copy);
    usm__gives   g        = {0};
    usm_status   odd      = USM_OK;
    usm__tier   *tier     = NULL;
    bool         is_first = false;

    usm__mutex_lock(&t->lock);
    for (unsigned i = 0; i < replicated->n; i++) {
        usm__subwrite *subwrite = &replicated->subwrite[i];

        if (!tier && has_it(s, subwrite)) {
            tier           = subwrite->place->tier;
            io->copy->tier = usm__tier_code(tier->index);
            io->copy->slot = subwrite->place->base + subwrite->slot;
        }
        if (subwrite->status != USM_OK && subwrite->status != USM_E_IO &&
            subwrite->status != USM_E_SPILL_FULL)
            odd = subwrite->status;
    }
    if (tier) {
        is_first            = !t->has_spilled;
        t->has_spilled      = true;
        io->copy->is_stored = true;
        enter_good(replicated, s, &g);
    } else {
        enter_bad(replicated, s, &g);
    }
    usm__mutex_unlock(&t->lock);
    usm__give_now(&g);
    if (is_first)
        usm__tiers_notify_first(t, tier);
    if (tier)
        end_replicated(replicated, USM_OK);
    else if (odd != USM_OK)
        end_replicated(replicated,
                       usm__fail(odd, "it cannot be stored: %s", usm_status_string(odd)));
    else
        plan_and_go(replicated);
}

/* pre: the error message is the failure's */
static void subwrite_failed(usm__subwrite *subwrite, usm_status st)
{
    usm__target *p = subwrite->place;

    keep_reason(p, st);
    if (st == USM_E_IO) {
        usm_add_relaxed(&p->failures, 1);
        usm__target_notify(
            p, USM__TOLD_FAILING, st,
            "%s fails to write: %s; what could not be written there is kept elsewhere", p->title,
            usm__words_of(st));
    } else if (st == USM_E_SPILL_FULL) {
        note_full(p);
    }
}

static void subwrite_done(usm_transfer *x, usm_status st)
{
    usm__subwrite   *subwrite   = usm_container_of(x, usm__subwrite, t);
    usm__replicated *replicated = subwrite->replicated;
    usm__tiers      *t          = replicated->t;
    usm__tier       *tier       = subwrite->place->tier;
    bool             is_last, is_lost;

    usm__mutex_lock(&t->lock);
    usm__flow_end(&tier->writes, usm__os_now_ns(), subwrite->start_ns, x->size, st == USM_OK);
    tier->errors += st != USM_OK;
    if (st == USM_OK && replicated->io->scratch) {
        tier->encoded_in += t->block_size;
        tier->encoded_out += replicated->io->copy->encoded;
    }
    is_lost = subwrite->place->state == USM_PLACE_LOST;
    usm__mutex_unlock(&t->lock);
    if (st == USM_E_IO && subwrite->attempts < WRITES && !is_lost &&
        !usm__target_is_failing(subwrite->place)) {
        submit_subwrite(subwrite);
        return;
    }
    subwrite->status = st;
    if (st == USM_OK)
        usm_store_relaxed(&subwrite->place->failures, 0u);
    else
        subwrite_failed(subwrite, st);
    usm__mutex_lock(&t->lock);
    if (st != USM_OK)
        note_worst(replicated, st);
    is_last = --replicated->pending == 0;
    usm__mutex_unlock(&t->lock);
    if (is_last)
        conclude(replicated);
}
