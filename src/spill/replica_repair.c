/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Re-replication: blocks with too few copies get new ones in the background, after a replica target
 * was lost, leaves, or missed a write, and where a copy turned out to be corrupt.
 *
 *     mending --> a target in another  -> read what is stored --> store --> one more copy
 *        ^        domain                  | verified, sector by    |
 *        |          | none: stuck         | sector, from any copy  | the owner has written
 *        |          v until a target      |                        | meanwhile: again
 *        +--------- is added, or a <------+------------------------+
 *                   second has passed
 *
 * One block is repaired at a time, through one buffer of a block and a page: the owner's transfers
 * take precedence.  A thread does it, which is started when there is something to repair.  For
 * transports that make progress only when they are called there is no thread, and
 * usm__tiers_progress() does it.
 *
 * The owner's accesses continue meanwhile.  The owner's writes wait while the repair reads the
 * block; later writes raise the generation, and the repair then discards its new copy.  The owner
 * may forget the block at any time (m->s is NULL then): then the repair frees the slots that it has
 * under way.
 *
 * The functions of a repair under way (is_repairing) are called without the lock, and take it for
 * the moments in which they look at the block or its targets.  The rest of usm__repair is the
 * repair's. */
#include "spill/replica.h"

#include "base/log.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define RETRY_NS    UINT64_C(1000000000)
#define RETRIED     256u /* stuck blocks that are tried again at a time                         */
#define PROGRESS_MS 100u
#define ATTEMPTS    2u

/* ---- blocks to repair ---------------------------------------------------------------------- */

static void thread_main(void *arg);

static void wake(usm__tiers *t)
{
    usm__replicas *r = t->replicas;

    if (r->has_thread)
        pthread_cond_signal(&r->wake);
    else if (!r->has_progress && !r->must_end && !t->is_forked)
        r->has_thread = usm__os_thread(thread_main, t, "usm-mend") == 0;
}

static void enter_queue(usm__tiers *t, usm__spread *s, usm__queued queued)
{
    usm__replicas *r = t->replicas;

    if (s->queued != USM__QUEUED_NOT)
        usm_list_remove(&s->queue);
    else
        r->nqueued++;
    s->queued = (uint8_t)queued;
    usm_list_append(queued == USM__QUEUED_MEND ? &r->repairing : &r->stuck, &s->queue);
}

void usm__repair_queue(usm__tiers *t, usm__spread *s)
{
    if (s->writing > 0) {
        s->must_repair = true; /* when the writes have ended */
        return;
    }
    if (s->queued != USM__QUEUED_MEND)
        enter_queue(t, s, USM__QUEUED_MEND);
    wake(t);
}

void usm__repair_unqueue(usm__tiers *t, usm__spread *s)
{
    if (s->queued == USM__QUEUED_NOT)
        return;
    usm_list_remove(&s->queue);
    s->queued = USM__QUEUED_NOT;
    t->replicas->nqueued--;
}

static void unstick(usm__tiers *t, unsigned most)
{
    usm__replicas *r = t->replicas;

    for (unsigned i = 0; i < most && !usm_list_is_empty(&r->stuck); i++)
        enter_queue(t, usm_container_of(r->stuck.next, usm__spread, queue), USM__QUEUED_MEND);
    r->retry_ns = 0;
    if (!usm_list_is_empty(&r->repairing))
        wake(t);
}

void usm__repair_retry(usm__tiers *t)
{
    unstick(t, UINT32_MAX);
}

/* The block cannot be repaired now. */
static void stick(usm__tiers *t, usm__spread *s)
{
    usm__replicas *r = t->replicas;

    if (s->writing > 0) {
        s->must_repair = true;
        return;
    }
    enter_queue(t, s, USM__QUEUED_STUCK);
    if (r->retry_ns == 0)
        r->retry_ns = usm__os_now_ns() + RETRY_NS;
}

/* ---- one transfer --------------------------------------------------------------------------- */

static void move_done(usm_transfer *x, usm_status st)
{
    usm__repair *m = usm_container_of(x, usm__repair, t_now);
    usm__tiers  *t = m->t;

    usm__mutex_lock(&t->lock);
    m->status  = st;
    m->is_done = true;
    pthread_cond_broadcast(&t->replicas->ended);
    usm__mutex_unlock(&t->lock);
}

/* A transfer from the copy, or to the new one, which may be on the same target. */
static usm_status move(usm__repair *m, usm_transfer_op op, size_t offset, size_t size)
{
    bool         out  = op == USM_TRANSFER_STORE;
    usm__target *p    = out ? m->to : m->from;
    usm__tiers  *t    = m->t;
    usm__tier   *tier = p->tier;
    usm__flow   *flow = out ? &tier->writes : &tier->reads;
    uint64_t     start;
    usm_status   st;

    memset(&m->t_now, 0, sizeof m->t_now);
    m->t_now.op         = op;
    m->t_now.block      = p->base + (out ? m->to_slot : m->from_slot);
    m->t_now.offset     = offset;
    m->t_now.size       = size;
    m->t_now.data       = m->data + offset;
    m->t_now.registered = SIZE_MAX;
    m->t_now.done       = move_done;
    start               = usm__os_now_ns();
    usm__mutex_lock(&t->lock);
    m->is_done = false;
    usm__flow_begin(flow, start);
    usm__mutex_unlock(&t->lock);
    tier->ops->submit(tier->store, &m->t_now);
    usm__mutex_lock(&t->lock);
    while (!m->is_done) {
        if (!tier->is_driven) {
            (void)usm__mutex_wait(&t->lock, &t->replicas->ended, NULL);
            continue;
        }
        usm__mutex_unlock(&t->lock);
        (void)tier->ops->progress(tier->store, PROGRESS_MS);
        usm__mutex_lock(&t->lock);
    }
    usm__flow_end(flow, usm__os_now_ns(), start, size, m->status == USM_OK);
    st = m->status;
    tier->errors += st != USM_OK;
    usm__mutex_unlock(&t->lock);
    return st;
}

/* The next run of set bits from *at on; 0: there is none. */
static uint32_t next_run(const usm__tiers *t, const uint64_t *bits, uint32_t *at)
{
    uint32_t n = 0;

    while (*at < t->sectors && !(bits[*at / 64] >> *at % 64 & 1))
        (*at)++;
    while (*at + n < t->sectors && (bits[(*at + n) / 64] >> (*at + n) % 64 & 1))
        n++;
    return n;
}

static bool is_empty(const uint64_t *bits)
{
    uint64_t any = 0;

    for (unsigned i = 0; i < USM__SECTORS_MAX / 64; i++)
        any |= bits[i];
    return any == 0;
}

static size_t encoded_on_medium(const usm__repair *m)
{
    return m->encoded < m->t->block_size ? m->encoded : m->t->block_size;
}

static size_t page_up(size_t size)
{
    return (size + USM__PAGE - 1) & ~(size_t)(USM__PAGE - 1);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Removes the sectors that are right from those needed; returns how many are wrong. */
static uint32_t check_run(usm__repair *m, uint32_t first, uint32_t count)
{
    usm__tiers *t   = m->t;
    uint32_t    bad = 0;

    for (uint32_t i = first; i < first + count; i++) {
        const char *at = m->data + (size_t)i * t->sector_size;

        if (m->sums[i] == usm__sector_sum(at, t->sector_size, m->key, i))
            m->need[i / 64] &= ~(UINT64_C(1) << i % 64);
        else
            bad++;
    }
    return bad;
}

static usm_status fetch_encoded(usm__repair *m)
{
    size_t     size = encoded_on_medium(m);
    usm_status st   = move(m, USM_TRANSFER_FETCH, 0, page_up(size));

    if (st != USM_OK)
        return st;
    if (usm__sector_sum(m->data, size, m->key, 0) != m->sums[0])
        return USM_E_CORRUPT;
    memset(m->need, 0, sizeof m->need);
    return USM_OK;
}

/* Reads the needed sectors from one copy. */
static usm_status fetch_plain(usm__repair *m)
{
    usm_status worst = USM_OK;
    size_t     size  = m->t->sector_size;
    uint32_t   at    = 0, n;

    while ((n = next_run(m->t, m->need, &at)) > 0) {
        usm_status st = USM_E_IO;

        for (unsigned i = 0; i < ATTEMPTS && st != USM_OK; i++)
            st = move(m, USM_TRANSFER_FETCH, at * size, n * size);
        if (st != USM_OK)
            return st;
        if (check_run(m, at, n) > 0)
            worst = USM_E_CORRUPT;
        at += n;
    }
    return worst;
}

/* Chooses the best copy of those not tried, and holds it.  False: there is none. */
static bool pick(usm__repair *m, uint8_t *tried, uint8_t *at)
{
    usm__location *l;

    usm__mutex_lock(&m->t->lock);
    l = m->s ? usm__spread_pick(m->s, *tried) : NULL;
    if (l) {
        *at = l->index;
        *tried |= (uint8_t)(1u << l->index);
        l->flying++;
        m->from      = l->place;
        m->from_slot = l->slot;
    }
    usm__mutex_unlock(&m->t->lock);
    return l != NULL;
}

static void end_fetch(usm__repair *m, uint8_t at, usm_status st)
{
    usm__gives g = {0};

    usm__mutex_lock(&m->t->lock);
    if (st == USM_E_CORRUPT) {
        m->corrupt |= (uint8_t)(1u << at);
        m->from->tier->corrupt++;
    } else if (st != USM_OK) {
        usm_add_relaxed(&m->from->failures, 1);
    }
    if (m->s)
        usm__location_landed(m->s, &m->s->at[at], &g);
    else
        usm__give_later(&g, m->from, m->from_slot);
    usm__mutex_unlock(&m->t->lock);
    usm__give_now(&g);
}

/* Reads from the best copy, and the sectors that are wrong there from the others.  True: all
 * sectors were read. */
static bool fetch(usm__repair *m)
{
    uint8_t tried = 0, at;

    while (!is_empty(m->need) && pick(m, &tried, &at))
        end_fetch(m, at, m->encoded ? fetch_encoded(m) : fetch_plain(m));
    return is_empty(m->need);
}

/* Continues the owner's writes that waited for the read. */
static void unpark(usm__repair *m)
{
    usm__tiers   *t = m->t;
    usm_transfer *list;

    usm__mutex_lock(&t->lock);
    list           = m->parked;
    m->is_fetching = false;
    m->parked      = NULL;
    m->parked_end  = &m->parked;
    usm__mutex_unlock(&t->lock);
    while (list) {
        usm_transfer *x = list;

        list = x->next;
        usm__io_start(t, usm_container_of(x, usm__io, t));
    }
}

/* ---- storing --------------------------------------------------------------------------------- */

static usm_status store(usm__repair *m)
{
    usm__tiers *t  = m->t;
    usm_status  st = USM_OK;
    uint32_t    at = 0, n;

    if (m->encoded)
        return move(m, USM_TRANSFER_STORE, 0, page_up(encoded_on_medium(m)));
    while (st == USM_OK && (n = next_run(t, m->stored, &at)) > 0) {
        st = USM_E_IO;
        for (unsigned i = 0; i < ATTEMPTS && st == USM_E_IO; i++)
            st = move(m, USM_TRANSFER_STORE, at * t->sector_size, n * t->sector_size);
        at += n;
    }
    return st;
}

/* ---- one block ------------------------------------------------------------------------------- */

/* Takes a slot in a domain that has no copy on a target that stays; false: there is none. */
static bool find_room(usm__repair *m)
{
    usm__tiers  *t = m->t;
    usm__target *tried[USM__TRIED_MAX];
    uint64_t     avoid[USM__LOCATIONS];
    usm__choice  c = {.key = m->key, .avoid = avoid, .tried = tried, .healthy = true};
    usm_status   st;

    usm__mutex_lock(&t->lock);
    for (unsigned i = 0; m->s && i < USM__LOCATIONS; i++) {
        const usm__location *l = &m->s->at[i];

        if (l->state == USM__LOCATION_GOOD &&
            (l->place->state == USM_PLACE_UP || l->place->state == USM_PLACE_SLOW))
            avoid[c.navoid++] = l->place->domain;
    }
    usm__mutex_unlock(&t->lock);
    for (; c.ntried < USM__TRIED_MAX; tried[c.ntried++] = m->to) {
        st    = USM_OK;
        m->to = usm__target_choose(t, &c, &st);
        if (!m->to && c.healthy) { /* only an attempt shows that it works again    */
            c.healthy = false;
            m->to     = usm__target_choose(t, &c, &st);
        }
        if (m->to)
            st = usm__target_take(m->to, &m->to_slot);
        if (!m->to || st == USM_OK)
            return m->to != NULL;
        if (st == USM_E_SPILL_FULL) {
            usm__mutex_lock(&t->lock);
            usm__target_note_full(m->to);
            usm__mutex_unlock(&t->lock);
        } else {
            usm_add_relaxed(&m->to->failures, 1);
        }
    }
    return false;
}

/* Drops surplus copies: on targets that leave, second ones of a domain, and corrupt ones. */
static void drop_spare(usm__tiers *t, usm__spread *s, usm__gives *g)
{
    if (usm__spread_firm(s) < t->replicas->wanted)
        return;
    for (unsigned i = 0; i < USM__LOCATIONS; i++) {
        usm__location *l = &s->at[i];

        if (l->state == USM__LOCATION_CORRUPT || usm__location_is_doubled(s, l) ||
            (l->state == USM__LOCATION_GOOD && l->place->state == USM_PLACE_LEAVING))
            usm__location_drop(s, l, USM__LOCATION_STALE, g);
    }
}

static bool is_current(const usm__repair *m)
{
    return m->s && m->s->writing == 0 && m->s->copy->generation == m->generation;
}

/* Records the generation of the block that will be copied.  False: the owner is writing it.  Lock
 * held. */
static bool take_picture(usm__repair *m)
{
    usm__tiers *t = m->t;
    usm__copy  *copy;
    size_t      words = t->sectors > USM__COPY_WORDS ? t->sectors : USM__COPY_WORDS;

    if (!m->s || m->s->writing > 0)
        return false;
    copy          = m->s->copy;
    m->generation = copy->generation;
    m->encoded    = copy->codecs ? copy->encoded : 0;
    memcpy(m->stored, m->s->stored, sizeof m->stored);
    memcpy(m->need, m->stored, sizeof m->need);
    if (t->codecs.n == 0)
        words = t->sectors;
    memcpy(m->sums, copy->sums, words * sizeof *m->sums);
    m->is_fetching = true;
    return true;
}

/* If all entries are in use a corrupt copy is dropped: its content is in the new one. */
static void make_entry(usm__spread *s, usm__gives *g)
{
    usm__location *corrupt = NULL;

    for (unsigned i = 0; i < USM__LOCATIONS; i++) {
        if (s->at[i].state == USM__LOCATION_NONE)
            return;
        if (s->at[i].state == USM__LOCATION_CORRUPT && s->at[i].flying == 0)
            corrupt = &s->at[i];
    }
    if (corrupt)
        usm__location_drop(s, corrupt, USM__LOCATION_STALE, g);
}

/* Adds the new copy.  False: the block was written or forgotten meanwhile.  Lock held. */
static bool enter(usm__repair *m, usm__gives *g)
{
    usm__tiers  *t = m->t;
    usm__spread *s = m->s;

    if (!is_current(m) || (m->to->state != USM_PLACE_UP && m->to->state != USM_PLACE_SLOW))
        return false;
    make_entry(s, g);
    if (!usm__spread_add(s, m->to, m->to_slot))
        return false;
    for (unsigned i = 0; i < USM__LOCATIONS; i++)
        if ((m->corrupt >> i & 1) && s->at[i].state == USM__LOCATION_GOOD &&
            s->at[i].place != m->to)
            s->at[i].state = USM__LOCATION_CORRUPT;
    t->replicas->repaired++;
    drop_spare(t, s, g);
    return true;
}

static bool make_room(usm__repair *m)
{
    usm__tiers *t     = m->t;
    size_t      words = t->sectors > USM__COPY_WORDS ? t->sectors : USM__COPY_WORDS;

    if (!m->sums)
        m->sums = usm__heap_alloc(words * sizeof *m->sums);
    if (!m->data)
        m->data = usm__os_map(t->block_size + USM__PAGE, PROT_READ | PROT_WRITE);
    return m->sums && m->data;
}

/* Reads the block.  True: all of it, and its owner has not written it meanwhile. */
static bool read_block(usm__repair *m)
{
    usm__tiers *t = m->t;
    bool        is_taken, is_here;

    usm__mutex_lock(&t->lock);
    is_taken = take_picture(m);
    usm__mutex_unlock(&t->lock);
    if (!is_taken)
        return false;
    is_here = fetch(m);
    unpark(m);
    usm__mutex_lock(&t->lock);
    is_here = is_here && is_current(m);
    usm__mutex_unlock(&t->lock);
    return is_here;
}

/* pre: the buffers exist. */
static void repair(usm__repair *m)
{
    usm__tiers *t       = m->t;
    usm__gives  g       = {0};
    bool        is_done = false;

    if (!find_room(m))
        return;
    if (read_block(m)) {
        usm_status st = store(m);

        if (st == USM_OK)
            usm_store_relaxed(&m->to->failures, 0u);
        else
            usm_add_relaxed(&m->to->failures, 1);
        usm__mutex_lock(&t->lock);
        is_done = st == USM_OK && enter(m, &g);
        usm__mutex_unlock(&t->lock);
    }
    if (!is_done)
        usm__give_later(&g, m->to, m->to_slot);
    usm__give_now(&g);
}

static void begin_repair(usm__repair *m, usm__tiers *t, usm__spread *s)
{
    m->t          = t;
    m->s          = s;
    m->key        = s->key;
    m->generation = s->copy->generation;
    m->corrupt    = 0;
    m->parked     = NULL;
    m->parked_end = &m->parked;
    s->repair     = m;
}

/* Decides what happens to the block next, if its owner has not forgotten it.  Lock held. */
static void end_repair(usm__repair *m, bool is_repaired)
{
    usm__tiers  *t = m->t;
    usm__spread *s = m->s;

    m->s = NULL;
    pthread_cond_broadcast(&t->replicas->ended);
    if (!s)
        return;
    s->repair = NULL;
    if (!usm__spread_is_readable(s) || usm__spread_firm(s) >= t->replicas->wanted)
        return;
    if (is_repaired || s->writing > 0 || s->copy->generation != m->generation)
        usm__repair_queue(t, s);
    else if (s->queued == USM__QUEUED_NOT)
        stick(t, s);
}

/* Takes the first block from the queue.  True: it is to be repaired.  Lock held. */
static bool take_next(usm__tiers *t, usm__gives *g)
{
    usm__replicas *r = t->replicas;
    usm__spread   *s = usm_container_of(r->repairing.next, usm__spread, queue);

    usm__repair_unqueue(t, s);
    if (!usm__spread_is_readable(s))
        return false;
    if (s->writing > 0) {
        s->must_repair = true;
        return false;
    }
    drop_spare(t, s, g);
    if (usm__spread_firm(s) >= r->wanted)
        return false;
    begin_repair(&r->repair, t, s);
    r->is_repairing = true;
    return true;
}

/* Repairs the first block of the queue, if there is one. */
static void repair_next(usm__tiers *t)
{
    usm__replicas *r = t->replicas;
    usm__gives     g = {0};
    uint64_t       repaired;
    bool           is_taken;

    usm__mutex_lock(&t->lock);
    repaired = r->repaired;
    is_taken =
        !r->is_repairing && !r->must_end && !usm_list_is_empty(&r->repairing) && take_next(t, &g);
    usm__mutex_unlock(&t->lock);
    usm__give_now(&g);
    if (!is_taken)
        return;
    if (make_room(&r->repair))
        repair(&r->repair);
    usm__mutex_lock(&t->lock);
    r->is_repairing = false;
    end_repair(&r->repair, repaired != r->repaired);
    usm__mutex_unlock(&t->lock);
}

/* ---- the repair thread ---- */

/* Waits until there is something to do.  Lock held. */
static void doze(usm__replicas *r, usm__mutex *lock)
{
    struct timespec until;

    if (r->retry_ns == 0) {
        (void)usm__mutex_wait(lock, &r->wake, NULL);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    (void)usm__mutex_wait(lock, &r->wake, &until);
}

static void revive(usm__tiers *t)
{
    usm__replicas *r = t->replicas;

    if (r->retry_ns == 0 || usm__os_now_ns() < r->retry_ns)
        return;
    unstick(t, RETRIED);
    if (!usm_list_is_empty(&r->stuck))
        r->retry_ns = usm__os_now_ns() + RETRY_NS;
}

static void thread_main(void *arg)
{
    usm__tiers    *t = arg;
    usm__replicas *r = t->replicas;

    usm__mutex_lock(&t->lock);
    while (!r->must_end && !r->has_progress) {
        revive(t);
        if (usm_list_is_empty(&r->repairing)) {
            doze(r, &t->lock);
        } else if (
            r->is_repairing) { /* a thread of the program does a repair that it began earlier */
            (void)usm__mutex_wait(&t->lock, &r->ended, NULL);
        } else {
            usm__mutex_unlock(&t->lock);
            repair_next(t);
            usm__mutex_lock(&t->lock);
        }
    }
    r->has_thread = false;
    pthread_cond_broadcast(&r->ended);
    usm__mutex_unlock(&t->lock);
}

bool usm__replicas_progress(usm__tiers *t)
{
    usm__replicas *r       = t->replicas;
    bool           repairs = false;

    usm__mutex_lock(&t->lock);
    if (r->has_progress && !r->has_thread && !r->is_repairing && !r->must_end && !t->is_forked) {
        revive(t);
        repairs = !usm_list_is_empty(&r->repairing);
    }
    usm__mutex_unlock(&t->lock);
    if (repairs)
        repair_next(t);
    return repairs;
}

void usm__replicas_quit(usm__tiers *t)
{
    if (t->replicas)
        t->replicas->must_end = true;
}

void usm__replicas_stop(usm__tiers *t)
{
    usm__replicas *r = t->replicas;

    if (!r || t->is_forked)
        return;
    usm__mutex_lock(&t->lock);
    usm__replicas_quit(t);
    pthread_cond_broadcast(&r->wake);
    while (r->has_thread || r->is_repairing)
        (void)usm__mutex_wait(&t->lock, &r->ended, NULL);
    usm__mutex_unlock(&t->lock);
}
