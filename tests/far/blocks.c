/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What every block must hold, and the transfers that prove it.
 *
 * A store puts its own stamp into every page.  Once it has ended well, a fetch of the page gives
 * that stamp and no other; once it has failed, the page holds that stamp or one it could hold
 * before, until it is stored again.  So late, doubled and torn stores are found whenever the page
 * is read.  What a lost lender had is known no more. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum { SETTLE_TURNS = 2000 };

#define SPREAD 0x9E3779B97F4A7C15u

/* ---- contents ------------------------------------------------------------------------ */

static uint64_t word_of(uint64_t stamp, unsigned at, unsigned i)
{
    return ((stamp << 16 | (uint64_t)at << 9) + i) * SPREAD;
}

static void fill(transfer *x)
{
    uint64_t *words = x->t.data;

    for (unsigned p = 0; p < x->n; p++)
        for (unsigned i = 0; i < PAGE / 8; i++)
            *words++ = word_of(x->stamp, x->first + p, i);
}

static bool holds(const uint64_t *words, uint64_t stamp, unsigned at)
{
    for (unsigned i = 0; i < PAGE / 8; i++)
        if (words[i] != word_of(stamp, at, i))
            return false;
    return true;
}

static bool fits(const page *p, const uint64_t *words, unsigned index)
{
    for (unsigned i = 0; i < p->n; i++)
        if (holds(words, p->stamps[i], index))
            return true;
    return p->is_unknown;
}

static void now_surely(page *p, uint64_t stamp)
{
    *p = (page){.stamps = {stamp}, .n = 1};
}

static void now_perhaps(page *p, uint64_t stamp)
{
    if (p->n == STAMPS_MAX)
        p->is_unknown = true;
    if (!p->is_unknown)
        p->stamps[p->n++] = stamp;
}

static void forget_content(block *b)
{
    for (unsigned i = 0; i < PAGES_MAX; i++)
        b->pages[i] = (page){.is_unknown = true};
}

void blocks_lost(member *m, uint32_t peer)
{
    m->life[peer]++;
    for (unsigned s = 0; s < STORES; s++)
        for (unsigned i = 0; m->keeps[s] && i < BLOCKS; i++) {
            block *b = &m->keeps[s]->blocks[peer][i];

            m->w->counts->lost += b->is_reserved;
            b->is_reserved = false;
            forget_content(b);
        }
}

/* ---- what a fetch gave ----------------------------------------------------------------- */

static void wrong_content(const transfer *x, unsigned i)
{
    const world    *w     = x->m->w;
    const uint64_t *words = (const uint64_t *)x->t.data + (size_t)i * (PAGE / 8);
    const page     *p     = &x->k->blocks[x->peer][x->block].pages[x->first + i];
    uint64_t        was   = words[0] * 0xF1DE83E19937733Du; /* the inverse of SPREAD */
    unsigned        same  = 0;

    while (same < PAGE / 8 && words[same] == word_of(was >> 16, (was >> 9) & 127, same))
        same++;
    found(w,
          "node %u fetched page %u of block %u at lender %u: it begins with stamp %llu of page %u "
          "(%u of %u words), and should hold stamp %llu (%u are possible)",
          x->m->index, x->first + i, x->block, x->peer, (unsigned long long)(was >> 16),
          (unsigned)(was >> 9) & 127, same, PAGE / 8, (unsigned long long)p->stamps[0], p->n);
}

static void look(transfer *x)
{
    world *w = x->m->w;
    block *b = &x->k->blocks[x->peer][x->block];
    bool   hurts =
        net_hurt_data(w->n, x->m->index, x->peer) || net_hurt_data(w->n, x->peer, x->m->index);

    for (unsigned i = 0; i < x->n; i++) {
        if (fits(&b->pages[x->first + i], (uint64_t *)x->t.data + (size_t)i * (PAGE / 8),
                 x->first + i))
            continue;
        if (!hurts)
            wrong_content(x, i);
        w->counts->damaged++; /* what the checksums of the engine are for */
        b->pages[x->first + i] = (page){.is_unknown = true};
    }
    w->counts->bytes += x->t.size;
}

/* ---- transfers --------------------------------------------------------------------------- */

static uint32_t bits(const transfer *x)
{
    return ((1u << x->n) - 1) << x->first;
}

static void stored(transfer *x)
{
    block *b = &x->k->blocks[x->peer][x->block];

    b->stored &= ~bits(x);
    if (x->life != x->m->life[x->peer])
        return;
    for (unsigned i = x->first; i < x->first + x->n; i++)
        if (x->status == USM_OK)
            now_surely(&b->pages[i], x->stamp);
        else
            now_perhaps(&b->pages[i], x->stamp);
}

static void fetched(transfer *x)
{
    block *b = &x->k->blocks[x->peer][x->block];

    for (unsigned i = x->first; i < x->first + x->n; i++)
        b->fetches[i]--;
    b->fetched--;
    if (x->status == USM_OK && x->life == x->m->life[x->peer])
        look(x);
}

static void failed(const transfer *x)
{
    const world *w = x->m->w;

    w->counts->failures++;
    if (!is_excused(w, x->m->index, x->peer))
        found(w, "node %u: a %s of block %u at lender %u failed with %s, and nothing was wrong",
              x->m->index, x->t.op == USM_TRANSFER_STORE ? "store" : "fetch", x->block, x->peer,
              usm_status_name(x->status));
    if (x->status == USM_E_SPILL_FULL && x->life == x->m->life[x->peer] &&
        !is_orphaned(w, x->m->index, x->peer))
        found(w, "node %u: no room for block %u at lender %u, which was reserved", x->m->index,
              x->block, x->peer);
}

static void done(usm_transfer *t, usm_status status)
{
    transfer *x    = (transfer *)t;
    world    *w    = x->m->w;
    uint64_t  took = net_now(w->n) - x->began;

    if (!runs(x->m))
        return;
    if (x->is_done)
        found(w, "node %u: a transfer has ended twice", x->m->index);
    x->is_done           = true;
    x->status            = status;
    x->m->ended[x->peer] = net_now(w->n);
    x->k->under_way--;
    notify(w, "node %u: %s of %u+%u of block %u.%u at %u, stamp %llu: %s", x->m->index,
           t->op == USM_TRANSFER_STORE ? "store" : "fetch", x->first, x->n, x->k->number, x->block,
           x->peer, (unsigned long long)x->stamp, usm_status_name(status));
    if (status != USM_OK)
        failed(x);
    if (status != USM_OK && x->is_needed && x->life == x->m->life[x->peer])
        found(w, "node %u: a store at lender %u failed with %s, long after all faults", x->m->index,
              x->peer, usm_status_name(status));
    if (took > w->counts->longest_ns && !x->m->was_hung)
        w->counts->longest_ns = took;
    if (t->op == USM_TRANSFER_STORE)
        stored(x);
    else
        fetched(x);
    if (is_planted("twice") && one_in(w, 20))
        t->done(t, status);
    if (t->op == USM_TRANSFER_FETCH) /* nobody may write there any more */
        memset(t->data, 0x5A, t->size);
}

/* Frees those that have ended, when nobody is in far any more. */
static void sweep(member *m)
{
    for (transfer **at = &m->transfers; *at;) {
        transfer            *x = *at;
        const unsigned char *p = x->t.data;

        if (!x->is_done || x->is_final) {
            at = &x->next;
            continue;
        }
        if (x->t.op == USM_TRANSFER_FETCH && (p[0] != 0x5A || memcmp(p, p + 1, x->t.size - 1) != 0))
            found(m->w, "node %u: memory of a transfer that had ended was written", m->index);
        *at = x->next;
        free(x->t.data);
        free(x);
    }
}

transfer *blocks_transfer(member *m, keep *k, uint32_t peer, usm_transfer_op op, unsigned which,
                          unsigned first, unsigned n)
{
    transfer *x;
    block    *b    = &k->blocks[peer][which];
    uint32_t  want = ((1u << n) - 1) << first;
    bool      used = false;

    sweep(m);
    for (unsigned i = first; i < first + n; i++)
        used |= b->fetches[i] > 0;
    if ((b->stored & want) || (op == USM_TRANSFER_STORE && used))
        return NULL;
    x = calloc(1, sizeof *x);
    if (!x)
        abort();
    *x              = (transfer){.m     = m,
                                 .k     = k,
                                 .peer  = peer,
                                 .life  = m->life[peer],
                                 .block = which,
                                 .first = first,
                                 .n     = n,
                                 .began = net_now(m->w->n)};
    x->t.op         = op;
    x->t.block      = (uint64_t)peer << 48 | which;
    x->t.offset     = (size_t)first * PAGE;
    x->t.size       = (size_t)n * PAGE;
    x->t.registered = SIZE_MAX;
    x->t.is_awaited = m->w->hosts > 0 && one_in(m->w, 2);
    x->t.done       = done;
    x->t.data       = aligned_alloc(PAGE, x->t.size);
    if (!x->t.data)
        abort();
    x->next      = m->transfers;
    m->transfers = x;
    if (op == USM_TRANSFER_STORE) {
        x->stamp = ++m->w->stamps;
        b->stored |= want;
        fill(x);
        m->w->counts->stores++;
    } else {
        for (unsigned i = first; i < first + n; i++)
            b->fetches[i]++;
        b->fetched++;
        memset(x->t.data, 0xFE, x->t.size);
        m->w->counts->fetches++;
    }
    k->under_way++;
    notify(m->w, "node %u: begins a %s of %u+%u of block %u.%u at %u, stamp %llu", m->index,
           op == USM_TRANSFER_STORE ? "store" : "fetch", first, n, k->number, which, peer,
           (unsigned long long)x->stamp);
    far_submit(k->store, peer, &x->t);
    return x;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Those of one lender may wait for each other, and a piece may take four deadlines. */
void blocks_check_deadlines(world *w)
{
    uint64_t pieces = w->block_size > w->piece ? w->block_size / w->piece : 1;
    uint64_t turns  = (pieces + w->depth - 1) / w->depth;
    uint64_t most   = (4 * turns + 1) * w->deadline_ns + w->lease_ns / 4;

    for (uint32_t i = 0; i < w->nmembers; i++) {
        member *m = &w->members[i];

        if (!runs(m) || net_is_hung(w->n, i))
            continue;
        for (transfer *x = m->transfers; x; x = x->next)
            if (!x->is_done &&
                net_now(w->n) - later(x->began, m->ended[x->peer]) > most + m->stopped_ns)
                found(w, "node %u: a transfer of block %u at lender %u has not ended after %llu us",
                      i, x->block, x->peer, (unsigned long long)(net_now(w->n) - x->began) / 1000);
        for (asking *a = m->asked; a; a = a->next)
            if (net_now(w->n) - later(a->began, m->ended[a->peer]) > most + m->stopped_ns)
                found(w, "node %u: room at lender %u has been asked for since %llu us", i, a->peer,
                      (unsigned long long)(net_now(w->n) - a->began) / 1000);
    }
}

/* ---- stores, and room in them -------------------------------------------------------------- */

keep *keep_open(member *m)
{
    keep *k = calloc(1, sizeof *k);

    if (!k || far_store_open(m->node, m->w->block_size, &k->store) != USM_OK)
        found(m->w, "a store did not open");
    k->number = m->w->nkeeps++;
    for (unsigned i = 0; i < NET_NODES_MAX; i++)
        for (unsigned b = 0; b < BLOCKS; b++)
            forget_content(&k->blocks[i][b]);
    return k;
}

void keep_close(member *m, unsigned which)
{
    sweep(m);
    notify(m->w, "node %u: closes store %u", m->index, m->keeps[which]->number);
    far_store_close(m->keeps[which]->store);
    for (transfer *x = m->transfers; x; x = x->next)
        x->k = x->k == m->keeps[which] ? NULL : x->k;
    free(m->keeps[which]);
    m->keeps[which] = NULL;
}

static bool is_idle(const keep *k, uint32_t peer, unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++)
        if (k->blocks[peer][i].stored || k->blocks[peer][i].fetched || k->blocks[peer][i].is_asked)
            return false;
    return true;
}

static void reserved(void *asking_, usm_status st)
{
    asking  *a    = asking_;
    member  *m    = a->m;
    block   *b    = a->k->blocks[a->peer] + a->first;
    uint64_t took = net_now(m->w->n) - a->began;

    if (!runs(m))
        return;
    notify(m->w, "node %u: room for %u.%u+%u at %u: %s", m->index, a->k->number, a->first, a->n,
           a->peer, usm_status_name(st));
    a->k->under_way--;
    m->ended[a->peer] = net_now(m->w->n);
    m->w->counts->full += st == USM_E_SPILL_FULL;
    m->w->counts->reserved += st == USM_OK ? a->n : 0;
    if (took > m->w->counts->longest_ns && !m->was_hung)
        m->w->counts->longest_ns = took;
    if (st != USM_OK && st != USM_E_SPILL_FULL && !is_excused(m->w, m->index, a->peer))
        found(m->w, "node %u: room at lender %u was refused with %s", m->index, a->peer,
              usm_status_name(st));
    for (unsigned i = 0; i < a->n; i++) {
        b[i].is_asked    = false;
        b[i].is_reserved = st == USM_OK && a->life == m->life[a->peer];
        forget_content(&b[i]);
    }
    if (st != USM_OK)
        far_forget(a->k->store, a->peer, a->first, a->n);
    *a->at = a->next;
    if (a->next)
        a->next->at = a->at;
    free(a);
}

void blocks_reserve(member *m, keep *k, uint32_t peer, unsigned first, unsigned n)
{
    asking *a;

    for (unsigned i = first; i < first + n; i++)
        if (k->blocks[peer][i].is_reserved)
            return;
    if (!is_idle(k, peer, first, n))
        return;
    a = calloc(1, sizeof *a);
    if (!a)
        abort();
    *a = (asking){m->asked, &m->asked, m, k, peer, m->life[peer], first, n, net_now(m->w->n)};
    if (a->next)
        a->next->at = &a->next;
    m->asked = a;
    k->under_way++;
    for (unsigned i = first; i < first + n; i++)
        k->blocks[peer][i].is_asked = true;
    notify(m->w, "node %u: wants room for %u+%u at %u", m->index, first, n, peer);
    far_reserve_start(k->store, peer, first, n, reserved, a);
}

void blocks_forget(member *m, keep *k, uint32_t peer, unsigned first, unsigned n)
{
    if (!is_idle(k, peer, first, n))
        return;
    notify(m->w, "node %u: forget %u.%u+%u at %u", m->index, k->number, first, n, peer);
    far_forget(k->store, peer, first, n);
    for (unsigned i = first; i < first + n; i++) {
        k->blocks[peer][i].is_reserved = false;
        forget_content(&k->blocks[peer][i]);
    }
}

/* ---- the last look --------------------------------------------------------------------------- */

static void verify_block(member *m, keep *k, uint32_t peer, unsigned which)
{
    const block *b     = &k->blocks[peer][which];
    unsigned     pages = (unsigned)(m->w->block_size / PAGE);
    unsigned     first = 0;

    while (first < pages) {
        unsigned  n = 0;
        transfer *x;

        while (first + n < pages && !b->pages[first + n].is_unknown)
            n++;
        if (n == 0) {
            first++;
            continue;
        }
        x = blocks_transfer(m, k, peer, USM_TRANSFER_FETCH, which, first, n);
        if (!x)
            found(m->w, "node %u: a transfer has not ended long after all faults", m->index);
        x->is_final = true;
        first += n;
    }
}

static unsigned verify_round(world *w, unsigned round)
{
    unsigned failures = 0;

    for (uint32_t i = 0; i < w->nmembers; i++)
        for (transfer *x = w->members[i].transfers; x && runs(&w->members[i]); x = x->next) {
            if (!x->is_final)
                continue;
            x->is_final = false;
            if (x->status == USM_OK || x->life != x->m->life[x->peer] ||
                is_orphaned(w, x->m->index, x->peer) || !runs(&w->members[x->peer]))
                continue;
            failures++;
            if (round == 3)
                found(w, "node %u: block %u at lender %u is lost (%s), and the lender is not",
                      x->m->index, x->block, x->peer, usm_status_name(x->status));
        }
    return failures;
}

static void verify_all(member *m)
{
    for (unsigned s = 0; s < STORES && runs(m); s++)
        for (uint32_t peer = 0; m->keeps[s] && peer < m->w->nmembers; peer++)
            for (unsigned b = 0; b < BLOCKS; b++)
                if (runs(&m->w->members[peer]))
                    verify_block(m, m->keeps[s], peer, b);
}

static bool is_anything_under_way(const world *w)
{
    for (uint32_t i = 0; i < w->nmembers; i++) {
        const member *m = &w->members[i];

        for (unsigned s = 0; s < STORES && runs(m); s++)
            if (m->keeps[s] && m->keeps[s]->under_way > 0)
                return true;
    }
    return false;
}

/* A deadline that has passed is found meanwhile. */
void blocks_settle(world *w)
{
    for (unsigned i = 0; is_anything_under_way(w); i++) {
        world_run(w, w->deadline_ns / 2);
        blocks_check_deadlines(w);
        if (i == SETTLE_TURNS)
            found(w, "transfers are still under way long after all faults");
    }
}

void blocks_verify(world *w)
{
    for (unsigned round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < w->nmembers; i++)
            verify_all(&w->members[i]);
        blocks_settle(w);
        if (verify_round(w, round) == 0)
            return;
    }
}

void blocks_free(member *m)
{
    while (m->transfers) {
        transfer *x = m->transfers;

        m->transfers = x->next;
        free(x->t.data);
        free(x);
    }
    while (m->asked) {
        asking *a = m->asked;

        m->asked = a->next;
        free(a);
    }
    for (unsigned s = 0; s < STORES; s++)
        free(m->keeps[s]);
}
