/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See peaks.h. */
#include "profile/peaks.h"

#include "base/os.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- rows ------------------------------------------------------------------------------------ */

static const char *host_of(const usm__profile *t, uint32_t pool)
{
    return t->sources[t->pools[pool - 1].source].header.host;
}

static bool has_several_hosts(const usm__profile *t)
{
    for (size_t i = 1; i < t->nsources; i++)
        if (strcmp(t->sources[i].header.host, t->sources[0].header.host) != 0)
            return true;
    return false;
}

static uint32_t row_of(const usm__profile_peaks *p, const usm__profile_pool_info *pool)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const usm__profile_pool_info *first = &p->t->pools[p->rows[i].first - 1];

        if (first->kind == pool->kind && strcmp(first->device, pool->device) == 0 &&
            strcmp(host_of(p->t, first->id), host_of(p->t, pool->id)) == 0)
            return i;
    }
    return USM__NEVER;
}

static void add_pools(usm__profile_peaks *p, uint32_t only_pool)
{
    static const char *const kinds[] = {"", "host ", "device ", "shared "};
    bool                     hosts   = has_several_hosts(p->t);

    for (size_t i = 0; i < p->t->npools; i++) {
        const usm__profile_pool_info *pool = &p->t->pools[i];
        uint32_t                      row  = row_of(p, pool);
        usm__profile_peak            *peak = &p->rows[p->n];

        if (only_pool != 0 && pool->id != only_pool) {
            p->row_of[pool->id] = USM__NEVER;
            continue;
        }
        p->row_of[pool->id] = row == USM__NEVER ? (uint32_t)p->n : row;
        if (row != USM__NEVER)
            continue;
        *peak = (usm__profile_peak){.kind = pool->kind, .first = pool->id};
        (void)snprintf(peak->name, sizeof(peak->name), "%smemory%s%s%s%s", kinds[pool->kind],
                       pool->device[0] ? " of " : "", pool->device, hosts ? " on " : "",
                       hosts ? host_of(p->t, pool->id) : "");
        p->n++;
    }
}

/* --- the walk -------------------------------------------------------------------------------- */

typedef struct walk {
    usm__profile_peaks *p;
    usm__profile_level *last; /* by pool id: its levels when it was visited last */
} walk;

static uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void on_level(void *user, uint32_t record, uint32_t pool, const usm__profile_level *levels)
{
    walk                     *w    = user;
    const usm__profile_level *now  = &levels[pool];
    usm__profile_level       *last = &w->last[pool];
    usm__profile_peak        *peak;

    if (pool == 0 || w->p->row_of[pool] == USM__NEVER)
        return;
    peak = &w->p->rows[w->p->row_of[pool]];
    peak->live += now->usable - last->usable;
    peak->blocks += now->blocks - last->blocks;
    peak->reserved += now->reserved - last->reserved;
    *last = *now;
    if (peak->live > peak->live_peak)
        peak->live_at = record;
    peak->live_peak     = most_of(peak->live_peak, peak->live);
    peak->blocks_peak   = most_of(peak->blocks_peak, peak->blocks);
    peak->reserved_peak = most_of(peak->reserved_peak, peak->reserved);
}

/* Rows keep their numbers while they are walked over; after that empty ones go. */
static void drop_empty(usm__profile_peaks *p)
{
    size_t n = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        bool     is_kept = p->rows[i].blocks_peak > 0 || p->rows[i].reserved_peak > 0;
        uint32_t becomes = is_kept ? (uint32_t)n : USM__NEVER;

        for (size_t id = 1; id <= p->t->npools; id++)
            if (p->row_of[id] == i)
                p->row_of[id] = becomes;
        if (is_kept)
            p->rows[n++] = p->rows[i];
    }
    p->n = n;
}

int usm__profile_peaks_find(const usm__profile *t, uint32_t only_pool, usm__profile_peaks *p)
{
    walk w      = {.p = p};
    int  status = ENOMEM;

    *p        = (usm__profile_peaks){.t = t};
    p->rows   = usm__heap_alloc((t->npools + 1) * sizeof(*p->rows));
    p->row_of = usm__heap_alloc((t->npools + 1) * sizeof(*p->row_of));
    w.last    = usm__heap_alloc((t->npools + 1) * sizeof(*w.last));
    if (p->rows != NULL && p->row_of != NULL && w.last != NULL)
        status = usm__profile_blocks_find(t, &p->found);
    if (status == 0) {
        p->row_of[0] = USM__NEVER;
        add_pools(p, only_pool);
        status = usm__profile_walk(t, p->found, on_level, &w);
    }
    usm__heap_free(w.last);
    if (status == 0)
        drop_empty(p);
    else
        usm__profile_peaks_free(p);
    return status;
}

void usm__profile_peaks_free(usm__profile_peaks *p)
{
    usm__profile_blocks_free(p->found);
    usm__heap_free(p->rows);
    usm__heap_free(p->row_of);
    *p = (usm__profile_peaks){0};
}

/* --- holders --------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    const usm__profile_holder *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->name, y->name);
}

/* Sites first, then tags. */
static void name_holders(const usm__profile *t, const usm__profile_sites *sites,
                         usm__profile_holder *list)
{
    for (size_t i = 0; i < sites->n; i++)
        memcpy(list[i].name, sites->names[i], sizeof(list[i].name));
    for (size_t i = 0; i < t->ntags; i++)
        (void)snprintf(list[sites->n + i].name, sizeof(list->name), "%s%s",
                       i ? "tag " : "(no call site: usm-prof record --stacks=all has them)",
                       i ? t->tags[i] : "");
}

static void charge(const usm__profile_peaks *p, const usm__profile_block *b,
                   const usm__profile_sites *sites, usm__profile_holder *list)
{
    const usm__profile_record *r      = &p->t->records[b->born];
    bool                       has    = sites->n > 0 && r->e.extra != 0;
    bool                       all    = p->t->sources[r->source].header.stack_bytes <= 1;
    double                     weight = has ? usm__profile_weight(p->t, r) : 1;
    usm__profile_holder       *h      = &list[has ? sites->of[r->e.extra] : sites->n + r->e.tag];

    if (!has && !all)
        return; /* the blocks that were sampled stand for it */
    h->bytes += (uint64_t)llround(weight * (double)b->usable);
    h->blocks += (uint64_t)llround(weight);
}

int usm__profile_peaks_holders(const usm__profile_peaks *p, size_t row, uint32_t at,
                               usm__profile_holder **list, size_t *n)
{
    usm__profile_sites   sites = {0};
    usm__profile_holder *all   = NULL;
    size_t               nall;

    if (!usm__profile_sites_find(p->t, &sites))
        return ENOMEM;
    nall = sites.n + p->t->ntags;
    all  = usm__heap_alloc((nall + 1) * sizeof(*all));
    if (all != NULL) {
        name_holders(p->t, &sites, all);
        for (size_t i = 0; i < p->found->nblocks; i++) {
            const usm__profile_block *b = &p->found->blocks[i];

            if (b->born <= at && b->died > at && p->row_of[p->t->records[b->born].e.pool] == row)
                charge(p, b, &sites, all);
        }
        qsort(all, nall, sizeof(*all), by_bytes);
        for (*n = 0; *n < nall && all[*n].blocks > 0;)
            ++*n;
        *list = all;
    }
    usm__profile_sites_free(&sites);
    return all != NULL ? 0 : ENOMEM;
}
