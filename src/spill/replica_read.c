/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads of blocks that have several copies: from the first good copy (USM_SPILL_READ=any: from the
 * one whose target has the fewest reads under way), and from the others if that fails or returns
 * wrong bytes; a copy with wrong bytes is then replaced.  Sums are verified as for a single copy.
 * Writes: replica_write.c.  Called by tier_io.c. */
#include "spill/replica.h"

#include "base/os.h"

#include <stdio.h>

#define ROUNDS 3u   /* over all copies                                                     */
#define ORDERS 256u /* of usm__location.order                                              */

static void read_done(usm_transfer *x, usm_status st);

/* The rank of a copy among those to read; the least is read first: by its state, then by the reads
 * that its target has under way if any copy will do, then by its order. */
static unsigned lateness(const usm__location *l)
{
    usm__target *p    = l->place;
    unsigned     late = l->order;

    if (p->tier->tiers->replicas->reads_any)
        late += ORDERS * (p->reading < ORDERS ? p->reading : ORDERS - 1);
    if (l->state == USM__LOCATION_CORRUPT)
        return late + 4 * ORDERS * ORDERS;
    if (p->state == USM_PLACE_SLOW)
        return late + 3 * ORDERS * ORDERS;
    if (usm__target_is_failing(p))
        return late + 2 * ORDERS * ORDERS;
    return p->state == USM_PLACE_LEAVING ? late + ORDERS * ORDERS : late;
}

usm__location *usm__spread_pick(usm__spread *s, uint8_t tried)
{
    usm__location *best = NULL;

    for (unsigned i = 0; i < USM__LOCATIONS; i++) {
        usm__location *l = &s->at[i];

        if (usm__location_is_readable(l) && !(tried >> i & 1) &&
            (!best || lateness(l) < lateness(best)))
            best = l;
    }
    return best;
}

static void submit_read(usm__tiers *t, usm__io *io, usm__target *p)
{
    usm__io_fill(t, io, p->base + io->slot, &io->t);
    io->t.done = read_done;
    io->attempts++;
    io->start_ns = usm__os_now_ns();
    usm__mutex_lock(&t->lock);
    usm__flow_begin(&p->tier->reads, io->start_ns);
    if (p->tier->ops->caps & USM_TRANSPORT_CAP_PROGRESS)
        pthread_cond_broadcast(&t->changed);
    usm__mutex_unlock(&t->lock);
    p->tier->ops->submit(p->tier->store, &io->t);
}

static usm_status fail_lost(usm__tiers *t, const usm__target *gone)
{
    return usm__fail(USM_E_IO,
                     "it is lost: its last copy was on %s, which is gone; "
                     "USM_SPILL_REPLICAS=%u keeps copies in other fault domains",
                     gone ? gone->title : "a place",
                     t->replicas->wanted < USM__REPLICAS_MAX ? t->replicas->wanted + 1
                                                             : USM__REPLICAS_MAX);
}

/* The next copy to read; NULL: none is left, and *gone tells why.  The io now has a transfer under
 * way there: the slot is not forgotten before read_done(). */
static usm__target *next_copy(usm__tiers *t, usm__io *io, usm__target **gone, bool *is_lost)
{
    usm__spread   *s = usm__spread_of(t, io->copy);
    usm__location *l = NULL;
    usm__target   *p = NULL;

    usm__mutex_lock(&t->lock);
    *gone = s->gone;
    *is_lost =
        (s->is_lost && !usm__spread_has(s, io->first, io->count)) || !usm__spread_is_readable(s);
    if (!*is_lost)
        l = usm__spread_pick(s, io->tried);
    if (l) {
        l->flying++;
        l->place->reading++;
        p            = l->place;
        io->at       = l->index;
        io->slot     = l->slot;
        io->tier     = usm__tier_code(p->tier->index);
        io->attempts = 0;
    }
    usm__mutex_unlock(&t->lock);
    return p;
}

void usm__replicas_read(usm__tiers *t, usm__io *io)
{
    usm__target *gone, *p;
    bool         is_lost;

    p = next_copy(t, io, &gone, &is_lost);
    if (p)
        submit_read(t, io, p);
    else
        usm__io_finish(t, io, fail_lost(t, gone));
}

/* A wrong sum that came twice: the block is read from another copy, which replaces this one.  If
 * there is no other copy, this one is kept.  pre: lock */
static void doubt(usm__tiers *t, usm__spread *s, usm__location *l)
{
    if (l->state != USM__LOCATION_GOOD)
        return;
    for (unsigned i = 0; i < USM__LOCATIONS; i++)
        if (&s->at[i] != l && s->at[i].state == USM__LOCATION_GOOD &&
            s->at[i].place->state != USM_PLACE_LOST) {
            l->state = USM__LOCATION_CORRUPT;
            usm__repair_queue(t, s);
            return;
        }
}

static void note_corrupt(usm__target *p, bool is_counted)
{
    usm__message message;

    usm__message_save(&message);
    if (is_counted) {
        usm__mutex_lock(&p->tier->tiers->lock);
        p->tier->corrupt++;
        usm__mutex_unlock(&p->tier->tiers->lock);
    }
    usm__target_notify(p, USM__TOLD_CORRUPT, USM_E_CORRUPT, "%s: check its medium", message.text);
    usm__message_restore(&message);
}

static void read_message(const usm__io *io, const usm__target *p, usm_status st)
{
    char words[400];

    (void)snprintf(words, sizeof words, "%.399s", usm__words_of(st));
    (void)usm__fail(st, "%s, slot %llu: %s", p->title, (unsigned long long)io->slot, words);
}

/* With the error message of this copy's failure in place: reads the next copy, all of them once
 * more, or ends the io. */
static void read_elsewhere(usm__tiers *t, usm__io *io, usm_status st)
{
    usm__target *gone, *p;
    bool         is_lost;

    io->tried |= (uint8_t)(1u << io->at);
    p = next_copy(t, io, &gone, &is_lost);
    if (!p && !is_lost && st == USM_E_IO && ++io->rounds < ROUNDS) {
        io->tried = 0;
        p         = next_copy(t, io, &gone, &is_lost);
    }
    if (p)
        submit_read(t, io, p);
    else
        usm__io_finish(t, io, is_lost ? fail_lost(t, gone) : st);
}

static void read_failed(usm__tiers *t, usm__io *io, usm__target *p, usm_status st)
{
    usm__spread *s = usm__spread_of(t, io->copy);
    usm__gives   g = {0};
    usm__message message;

    usm__mutex_lock(&t->lock);
    if (st == USM_E_CORRUPT)
        doubt(t, s, &s->at[io->at]);
    p->reading--;
    usm__location_landed(s, &s->at[io->at], &g);
    usm__mutex_unlock(&t->lock);
    if (st == USM_E_IO)
        usm_add_relaxed(&p->failures, 1);
    if (g.n > 0) {
        usm__message_save(&message);
        usm__give_now(&g);
        usm__message_restore(&message);
    }
    read_elsewhere(t, io, st);
}

static void read_done(usm_transfer *x, usm_status st)
{
    usm__io     *io = usm_container_of(x, usm__io, t);
    usm__tiers  *t  = io->owner;
    usm__spread *s  = usm__spread_of(t, io->copy);
    usm__gives   g  = {0};
    usm__target *p;

    usm__mutex_lock(&t->lock);
    p = s->at[io->at].place;
    usm__flow_end(&p->tier->reads, usm__os_now_ns(), io->start_ns, x->size, st == USM_OK);
    p->tier->errors += st != USM_OK;
    usm__mutex_unlock(&t->lock);
    if (st == USM_OK)
        st = usm__io_verify(t, io, p->title);
    else if (st != USM_E_CORRUPT)
        read_message(io, p, st);
    if (st == USM_E_CORRUPT) {
        note_corrupt(p, io->attempts == 1);
        /* After a wrong sum once more: it may have happened on the way. */
        if (io->attempts < 2) {
            submit_read(t, io, p);
            return;
        }
    }
    if (st != USM_OK) {
        read_failed(t, io, p, st);
        return;
    }
    usm_store_relaxed(&p->failures, 0u);
    usm__mutex_lock(&t->lock);
    p->reading--;
    usm__location_landed(s, &s->at[io->at], &g);
    usm__mutex_unlock(&t->lock);
    usm__give_now(&g);
    usm__io_finish(t, io, USM_OK);
}
