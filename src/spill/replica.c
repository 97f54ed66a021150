/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The copies of a block as an object: entries are added, dropped and forgotten; whether a set of
 * tiers has copies at all; statistics.  Not here: transfers (replica_write.c, replica_read.c),
 * replica targets (replica_place.c), re-replication (replica_repair.c).  Called by tier.c,
 * tier_io.c and these.
 *
 * An entry that is no longer a copy is dropped at once, or, while a transfer is under way there,
 * after the last one: a transport is never asked to forget a slot that it transfers. */
#include "spill/replica.h"

#include "base/assert.h"
#include "base/os.h"
#include "base/settings.h"
#include "device/registry.h"

#include <string.h>

#define TRANSPORTS_MAX 16 /* transports that can be registered                               */

/* ---- entries ---------------------------------------------------------------------------- */

void usm__give_later(usm__gives *g, usm__target *place, uint64_t slot)
{
    usm_assert(g->n < sizeof g->list / sizeof g->list[0]);
    g->list[g->n].place  = place;
    g->list[g->n++].slot = slot;
}

void usm__give_now(usm__gives *g)
{
    while (g->n > 0) {
        g->n--;
        usm__target_give(g->list[g->n].place, g->list[g->n].slot);
    }
}

usm__location *usm__spread_add(usm__spread *s, usm__target *place, uint64_t slot)
{
    for (uint8_t i = 0; i < USM__LOCATIONS; i++) {
        usm__location *l = &s->at[i];

        if (l->state != USM__LOCATION_NONE)
            continue;
        l->place  = place;
        l->slot   = slot;
        l->index  = i;
        l->flying = 0;
        l->state  = USM__LOCATION_GOOD;
        l->order  = s->next_order++;
        usm_list_append(&place->locations, &l->link);
        place->nlocations++;
        return l;
    }
    return NULL;
}

/* The entry is free afterwards. */
static void end_location(usm__location *l, usm__gives *g)
{
    if (l->state != USM__LOCATION_GONE) {
        usm_list_remove(&l->link);
        l->place->nlocations--;
    }
    usm__give_later(g, l->place, l->slot);
    memset(l, 0, sizeof *l);
}

void usm__location_drop(usm__spread *s, usm__location *l, usm__location_state state, usm__gives *g)
{
    (void)s;
    if (state == USM__LOCATION_GONE && l->state != USM__LOCATION_GONE) {
        usm_list_remove(&l->link);
        l->place->nlocations--;
    }
    l->state = (uint8_t)state;
    if (l->flying == 0)
        end_location(l, g);
}

void usm__location_landed(usm__spread *s, usm__location *l, usm__gives *g)
{
    (void)s;
    usm_assert(l->flying > 0);
    if (--l->flying == 0 && (l->state == USM__LOCATION_STALE || l->state == USM__LOCATION_GONE))
        end_location(l, g);
}

bool usm__spread_is_readable(const usm__spread *s)
{
    for (unsigned i = 0; i < USM__LOCATIONS; i++)
        if (usm__location_is_readable(&s->at[i]))
            return true;
    return false;
}

static bool is_firm(const usm__location *l)
{
    return l->state == USM__LOCATION_GOOD &&
           (l->place->state == USM_PLACE_UP || l->place->state == USM_PLACE_SLOW);
}

bool usm__location_is_doubled(const usm__spread *s, const usm__location *l)
{
    for (const usm__location *o = s->at; is_firm(l) && o < l; o++)
        if (is_firm(o) && o->place->domain == l->place->domain)
            return true;
    return false;
}

unsigned usm__spread_firm(const usm__spread *s)
{
    unsigned n = 0;

    for (unsigned i = 0; i < USM__LOCATIONS; i++)
        n += is_firm(&s->at[i]) && !usm__location_is_doubled(s, &s->at[i]);
    return n;
}

void usm__spread_mark(usm__spread *s, uint32_t first, uint32_t count, bool is_stored)
{
    for (uint32_t i = first; i < first + count; i++) {
        uint64_t bit = UINT64_C(1) << i % 64;

        s->stored[i / 64] = is_stored ? s->stored[i / 64] | bit : s->stored[i / 64] & ~bit;
    }
}

bool usm__spread_has(const usm__spread *s, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++)
        if (!(s->stored[i / 64] >> i % 64 & 1))
            return false;
    return true;
}

/* ---- the owner's transfers begin and end ------------------------------------------------- */

bool usm__replicas_begin(usm__tiers *t, usm__io *io)
{
    usm__spread *s = usm__spread_of(t, io->copy);

    s->copy = io->copy;
    s->key  = io->key;
    if (!io->is_write)
        return true;
    s->writing++;
    if (!s->repair || !s->repair->is_fetching)
        return true;
    /* A slot must not be stored to while it is read: a transport is never asked for both at
     * once. */
    io->t.next             = NULL;
    *s->repair->parked_end = &io->t;
    s->repair->parked_end  = &io->t.next;
    return false;
}

/* Frees all slots of the block; a repair under way frees its own. */
static void release_all(usm__tiers *t, usm__spread *s, usm__gives *g)
{
    usm__repair_unqueue(t, s);
    for (unsigned i = 0; i < USM__LOCATIONS; i++) {
        usm__location *l = &s->at[i];

        if (l->state == USM__LOCATION_NONE)
            continue;
        if (l->flying == 0) {
            end_location(l, g);
        } else if (l->state != USM__LOCATION_GONE) {
            usm_list_remove(&l->link);
            l->place->nlocations--;
        }
    }
    if (s->repair)
        s->repair->s = NULL;
    memset(s, 0, sizeof *s);
}

/* A block of which nothing was ever stored keeps no slots. */
void usm__replicas_end(usm__tiers *t, usm__io *io)
{
    usm__spread *s = usm__spread_of(t, io->copy);
    usm__gives   g = {0};
    usm__message message;

    usm__mutex_lock(&t->lock);
    s->writing = (uint16_t)(s->writing - io->is_write);
    if (--io->copy->flying == 0 && !io->copy->is_stored) {
        release_all(t, s, &g);
        io->copy->tier = 0;
    } else if (s->writing == 0 && s->must_repair) {
        s->must_repair = false;
        usm__repair_queue(t, s);
    }
    usm__mutex_unlock(&t->lock);
    if (g.n == 0)
        return;
    usm__message_save(&message);
    usm__give_now(&g);
    usm__message_restore(&message);
}

void usm__replicas_forget(usm__tiers *t, usm__copy *copy)
{
    usm__gives g = {0};

    usm__mutex_lock(&t->lock);
    release_all(t, usm__spread_of(t, copy), &g);
    usm__mutex_unlock(&t->lock);
    usm__give_now(&g);
}

/* ---- creation ------------------------------------------------------------------------------- */

/* Whether it cannot be used without replica targets.  Without loading a module: the transports that
 * are built in or loaded are known, and "mpi" by its name. */
static bool needs_places(const char *name)
{
    usm__registry_store list[TRANSPORTS_MAX];
    size_t              n = usm__registry_transports(list, TRANSPORTS_MAX);

    if (strcmp(name, "mpi") == 0)
        return true;
    for (size_t i = 0; i < n && i < TRANSPORTS_MAX; i++)
        if (strcmp(list[i].name, name) == 0 && list[i].path[0] != '\0') {
            const usm_transport_ops *ops = usm__registry_transport(name);

            return ops && (ops->caps & USM_TRANSPORT_CAP_PLACES) &&
                   !(ops->caps & USM_TRANSPORT_CAP_SPREADS);
        }
    return false;
}

usm_status usm__replicas_create(usm__tiers *t)
{
    const char    *setting = usm__setting_text("spill_replicas");
    unsigned       wanted  = 1;
    bool           places  = false;
    usm__replicas *r;

    for (unsigned i = 0; i < t->n; i++)
        places |= needs_places(t->list[i].transport);
    if (setting && setting[0] >= '1' && setting[0] <= '0' + USM__REPLICAS_MAX)
        wanted = (unsigned)(setting[0] - '0');
    else if (places)
        wanted = 2;
    if (wanted == 1 && !places)
        return USM_OK;
    r = usm__heap_alloc(sizeof *r);
    if (!r)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for copies of spilled blocks");
    r->wanted    = wanted;
    r->reads_any = strcmp(usm__setting_text("spill_read"), "any") == 0;
    r->spread_at = (usm__tiers_copy_size(t) + 7) & ~(size_t)7; /* replicas is still NULL */
    for (unsigned i = 0; i < USM__REPLICATED_WRITES; i++) {
        r->writes[i].next = r->idle;
        r->idle           = &r->writes[i];
    }
    usm_list_init(&r->repairing);
    usm_list_init(&r->stuck);
    (void)pthread_cond_init(&r->wake, NULL);
    (void)pthread_cond_init(&r->ended, NULL);
    t->replicas = r;
    return USM_OK;
}

size_t usm__replicas_copy_size(const usm__tiers *t)
{
    return t->replicas->spread_at + sizeof(usm__spread);
}

void usm__replicas_destroy(usm__tiers *t)
{
    usm__replicas *r = t->replicas;

    if (!r)
        return;
    for (unsigned i = 0; i < t->n; i++)
        usm__targets_close(&t->list[i]);
    if (r->repair.data)
        (void)usm__os_unmap(r->repair.data, t->block_size + USM__PAGE);
    usm__heap_free(r->repair.sums);
    if (!t->is_forked) {
        pthread_cond_destroy(&r->wake);
        pthread_cond_destroy(&r->ended);
    }
    usm__heap_free(r);
    t->replicas = NULL;
}

void usm__replicas_fork_child(usm__tiers *t)
{
    if (t->replicas)
        t->replicas->has_thread = false; /* a thread does not survive fork() */
}

/* ---- figures -------------------------------------------------------------------------------- */

void usm__tiers_get_copies(usm__tiers *t, usm__tiers_copies *stats)
{
    memset(stats, 0, sizeof *stats);
    if (!t->replicas)
        return;
    usm__mutex_lock(&t->lock);
    stats->wanted   = t->replicas->wanted;
    stats->missing  = t->replicas->nqueued + (t->replicas->repair.s != NULL);
    stats->repaired = t->replicas->repaired;
    stats->lost     = t->replicas->lost;
    usm__mutex_unlock(&t->lock);
}
