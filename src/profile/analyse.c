/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counting what a trace shows.
 *
 * One pass over the records in their order.  If a thread made a driver call for a pool, its next
 * allocation there counts as no hit.  Lives of blocks come from blocks.c.  Each block is charged to
 * its pool, its size (powers of two), its tag and, if its stack was sampled, to its call site.
 * Samples are scaled by 1 / (1 - exp(-size / mean)), the inverse of the probability of being
 * sampled. */
#include "profile/analyse.h"

#include "base/os.h"
#include "base/status.h"
#include "base/text.h"
#include "profile/blocks.h"
#include "profile/sites.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES 65 /* class k: sizes of (2^(k-1), 2^k] */

typedef struct work {
    const usm__profile  *t;
    usm__analysis       *a;
    usm__profile_blocks *found;
    uint32_t            *first, *next; /* blocks that end at a record: lists by index            */
    uint32_t            *pending;      /* by thread: pool for which it made a driver call, or 0  */
    usm__profile_sites   sites;        /* their rows have the same order                         */
    uint32_t             nthreads;
    uint32_t             block; /* the next block to be allocated */
    usm__usage          *classes;
    uint64_t            *pool_class; /* (npools + 1) x CLASSES: allocations, blocks now, peak    */
} work;

double usm__percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* --- one row ------------------------------------------------------------------ */

static unsigned class_of(uint64_t size)
{
    return size > 1 ? 64 - (unsigned)__builtin_clzll(size - 1) : 0;
}

static void count_alloc(usm__usage *u, const usm__profile_event *e, bool hit)
{
    u->allocations++;
    u->bytes += e->size;
    u->hits += hit;
    u->live += e->usable;
    u->blocks++;
    if (u->live > u->live_peak)
        u->live_peak = u->live;
    if (u->blocks > u->blocks_peak)
        u->blocks_peak = u->blocks;
}

static void count_end(usm__usage *u, const usm__profile_event *e, uint64_t life)
{
    u->live -= e->usable;
    u->blocks--;
    u->ended++;
    u->brief += life < USM__BRIEF_NS;
    u->life_ns += (double)life;
}

/* --- the pass ------------------------------------------------------------------- */

static usm__profile_pool *pool_of(work *w, const usm__profile_event *e)
{
    return e->pool ? &w->a->pools[e->pool - 1] : NULL;
}

/* Allocations, blocks now, most blocks of one size in one pool. */
static uint64_t *pool_class(work *w, const usm__profile_event *e)
{
    return &w->pool_class[((size_t)e->pool * CLASSES + class_of(e->size)) * 3];
}

static usm__usage *site_of(work *w, const usm__profile_event *e)
{
    return e->extra && w->sites.n > 0 ? &w->a->sites.rows[w->sites.of[e->extra]] : NULL;
}

static void site_alloc(work *w, const usm__profile_record *r, bool hit)
{
    usm__usage *site   = site_of(w, &r->e);
    double      weight = site ? usm__profile_weight(w->t, r) : 0;

    if (site == NULL)
        return;
    count_alloc(site, &r->e, hit);
    site->samples++;
    /* count_alloc() has added one of each */
    site->allocations += (uint64_t)llround(weight) - 1;
    site->bytes += (uint64_t)llround((weight - 1) * (double)r->e.size);
    site->hits += hit ? (uint64_t)llround(weight) - 1 : 0;
}

static void on_alloc(work *w, const usm__profile_record *r)
{
    const usm__profile_event *e   = &r->e;
    usm__profile_pool        *p   = pool_of(w, e);
    uint64_t                 *pc  = pool_class(w, e);
    bool                      hit = w->pending[r->thread] != e->pool || e->pool == 0;

    w->pending[r->thread] = 0;
    count_alloc(&w->a->all, e, hit);
    count_alloc(&w->classes[class_of(e->size)], e, hit);
    count_alloc(&w->a->tags.rows[e->tag], e, hit);
    if (p != NULL)
        count_alloc(&p->u, e, hit);
    site_alloc(w, r, hit);
    pc[0]++;
    if (++pc[1] > pc[2])
        pc[2] = pc[1];
}

static void end_block(work *w, const usm__profile_block *b, uint64_t now)
{
    const usm__profile_event *e    = &w->t->records[b->born].e;
    uint64_t                  life = now - e->time_ns;
    usm__profile_pool        *p    = pool_of(w, e);
    usm__usage               *site = site_of(w, e);

    count_end(&w->a->all, e, life);
    count_end(&w->classes[class_of(e->size)], e, life);
    count_end(&w->a->tags.rows[e->tag], e, life);
    if (p != NULL)
        count_end(&p->u, e, life);
    if (site != NULL)
        count_end(site, e, life);
    pool_class(w, e)[1]--;
}

static void on_failed(work *w, const usm__profile_event *e)
{
    usm__profile_pool *p = pool_of(w, e);

    w->a->all.failed++;
    w->classes[class_of(e->size)].failed++;
    w->a->tags.rows[e->tag].failed++;
    if (p != NULL)
        p->u.failed++;
}

static void on_driver(work *w, const usm__profile_record *r)
{
    usm__profile_pool *p     = pool_of(w, &r->e);
    bool               takes = r->e.type == USM__EVENT_TAKE || r->e.type == USM__EVENT_MAP;

    w->a->driver_ns += r->e.extra;
    if (takes)
        w->pending[r->thread] = r->e.pool;
    if (p == NULL)
        return;
    p->driver_ns += r->e.extra;
    p->refused += r->e.address == 0;
    if (r->e.address == 0)
        return;
    p->takes += takes;
    p->gives += !takes;
}

static void pass(work *w)
{
    const usm__profile *t = w->t;

    for (uint32_t i = 0; i < t->nrecords; i++) {
        const usm__profile_record *r = &t->records[i];

        for (uint32_t b = w->first[i]; b != USM__NEVER; b = w->next[b])
            end_block(w, &w->found->blocks[b], r->e.time_ns);
        if (r->e.type == USM__EVENT_ALLOC && r->e.address != 0)
            on_alloc(w, r);
        else if (r->e.type == USM__EVENT_FAILED)
            on_failed(w, &r->e);
        else if (r->e.type >= USM__EVENT_TAKE)
            on_driver(w, r);
    }
}

/* --- peaks of pools ---------------------------------------------------------------- */

static void on_level(void *user, uint32_t record, uint32_t pool, const usm__profile_level *levels)
{
    work              *w = user;
    usm__profile_pool *p = pool ? &w->a->pools[pool - 1] : NULL;

    (void)record;
    if (p == NULL)
        return;
    p->reserved = levels[pool].reserved;
    if (p->reserved > p->reserved_peak) {
        p->reserved_peak = p->reserved;
        p->live_then     = 0;
    }
    if (p->reserved == p->reserved_peak && levels[pool].live > p->live_then)
        p->live_then = levels[pool].live; /* the most that was in use at the peak  */
}

static uint64_t more_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void peaks_of_caches(work *w)
{
    for (size_t i = 0; i < w->t->ncaches; i++) {
        const usm__profile_cache_record *r = &w->t->caches[i];
        usm__profile_pool               *p = &w->a->pools[r->pool - 1];

        p->caches_peak  = more_of(p->caches_peak, r->room);
        p->caches_limit = more_of(p->caches_limit, r->limit);
    }
}

/* --- medians, what was avoided -------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Of the durations of granted calls; `takes`: of those that take memory, else of those that return
 * it. 0: none. */
static bool median(const usm__profile *t, bool takes, uint64_t *out)
{
    uint32_t *all = usm__heap_alloc(t->nrecords * sizeof(*all));
    size_t    n   = 0;

    if (all == NULL)
        return false;
    for (size_t i = 0; i < t->nrecords; i++) {
        const usm__profile_event *e = &t->records[i].e;

        if (e->address != 0 && e->type >= USM__EVENT_TAKE &&
            takes == (e->type == USM__EVENT_TAKE || e->type == USM__EVENT_MAP))
            all[n++] = e->extra;
    }
    qsort(all, n, sizeof(*all), by_number);
    *out = n > 0 ? all[n / 2] : 0;
    usm__heap_free(all);
    return true;
}

static uint64_t beyond(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void sum_up_pools(work *w)
{
    usm__analysis *a = w->a;

    for (size_t i = 0; i < a->npools; i++) {
        usm__profile_pool *p     = &a->pools[i];
        uint64_t           takes = beyond(p->u.allocations, p->takes);
        uint64_t           gives = beyond(p->u.ended, p->gives);

        p->avoided    = takes + gives;
        p->avoided_ns = takes * a->take_ns + gives * a->give_ns;
        for (size_t k = 0; k < CLASSES; k++) {
            const uint64_t *pc = &w->pool_class[((i + 1) * CLASSES + k) * 3];

            p->repeats += pc[0] - pc[2];
        }
        a->takes += p->takes;
        a->gives += p->gives;
        a->avoided += p->avoided;
        a->avoided_ns += p->avoided_ns;
    }
}

/* --- rows --------------------------------------------------------------------------- */

static void name_classes(usm__usage *rows)
{
    char low[32], high[32];

    for (unsigned k = 0; k < CLASSES; k++) {
        rows[k].low  = k ? (uint64_t)1 << (k - 1) : 0;
        rows[k].high = k < 64 ? (uint64_t)1 << k : UINT64_MAX;
        (void)snprintf(rows[k].name, sizeof(rows[k].name), "%s..%s",
                       usm__format_bytes(rows[k].low, low, sizeof(low)),
                       usm__format_bytes(rows[k].high, high, sizeof(high)));
    }
}

/* Removes rows without counts; keeps the order. */
static void drop_empty(usm__usages *u)
{
    size_t n = 0;

    for (size_t i = 0; i < u->n; i++)
        if (u->rows[i].allocations || u->rows[i].failed)
            u->rows[n++] = u->rows[i];
    u->n = n;
}

static int by_bytes(const void *a, const void *b)
{
    const usm__usage *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->name, y->name);
}

static void sort_rows(usm__usages *u)
{
    drop_empty(u);
    if (u->n > 1)
        qsort(u->rows, u->n, sizeof(*u->rows), by_bytes);
}

static bool rows_init(usm__usages *u, size_t n)
{
    u->n    = n;
    u->rows = usm__heap_alloc(n * sizeof(*u->rows));
    return u->rows != NULL;
}

static bool init_pools(work *w)
{
    const usm__profile *t = w->t;

    w->a->npools = t->npools;
    w->a->pools  = usm__heap_alloc(t->npools * sizeof(*w->a->pools));
    for (size_t i = 0; i < t->npools && w->a->pools != NULL; i++) {
        const usm__profile_pool_info *p       = &t->pools[i];
        usm__profile_pool            *u       = &w->a->pools[i];
        static const char *const      kinds[] = {"", "host", "device", "shared"};

        u->id     = p->id;
        u->kind   = p->kind;
        u->source = p->source;
        memcpy(u->pool, p->name, sizeof(u->pool));
        memcpy(u->device, p->device, sizeof(u->device));
        (void)snprintf(u->u.name, sizeof(u->u.name), "%u %s %s%s%s", p->id, p->name, kinds[p->kind],
                       p->device[0] ? " " : "", p->device);
    }
    return w->a->pools != NULL;
}

static bool init_tags(work *w)
{
    if (!rows_init(&w->a->tags, w->t->ntags))
        return false;
    for (size_t i = 0; i < w->t->ntags; i++)
        (void)snprintf(w->a->tags.rows[i].name, sizeof(w->a->tags.rows[i].name), "%s",
                       i ? w->t->tags[i] : "(no tag)");
    return true;
}

static bool init_sites(work *w)
{
    usm__usages *rows = &w->a->sites;

    if (!usm__profile_sites_find(w->t, &w->sites) || !rows_init(rows, w->sites.n))
        return false;
    for (size_t i = 0; i < rows->n; i++)
        memcpy(rows->rows[i].name, w->sites.names[i], sizeof(rows->rows[i].name));
    return true;
}

/* --- all of it ---------------------------------------------------------------------------- */

static bool init_endings(work *w)
{
    const usm__profile *t = w->t;
    size_t              n = w->found->nblocks;

    for (size_t i = 0; i < t->nrecords; i++)
        if (t->records[i].thread > w->nthreads)
            w->nthreads = t->records[i].thread;
    w->first      = usm__heap_alloc((t->nrecords + 1) * sizeof(*w->first));
    w->next       = usm__heap_alloc((n + 1) * sizeof(*w->next));
    w->pending    = usm__heap_alloc(((size_t)w->nthreads + 1) * sizeof(*w->pending));
    w->pool_class = usm__heap_alloc((t->npools + 1) * CLASSES * 3 * sizeof(*w->pool_class));
    if (!w->first || !w->next || !w->pending || !w->pool_class)
        return false;
    memset(w->first, 0xff, (t->nrecords + 1) * sizeof(*w->first));
    for (size_t i = n; i-- > 0;) {
        uint32_t died = w->found->blocks[i].died;

        if (died == USM__NEVER)
            continue;
        w->next[i]     = w->first[died];
        w->first[died] = (uint32_t)i;
    }
    return true;
}

static int run(work *w)
{
    usm__analysis *a     = w->a;
    int            error = usm__profile_blocks_find(w->t, &w->found);

    if (error != 0)
        return error;
    if (!init_endings(w) || !init_pools(w) || !init_tags(w) || !init_sites(w) ||
        !rows_init(&a->classes, CLASSES) || !median(w->t, true, &a->take_ns) ||
        !median(w->t, false, &a->give_ns))
        return ENOMEM;
    w->classes = a->classes.rows;
    name_classes(w->classes);
    pass(w);
    error = usm__profile_walk(w->t, w->found, on_level, w);
    if (error != 0)
        return error;
    peaks_of_caches(w);
    sum_up_pools(w);
    a->duration_ns = usm__profile_duration_ns(w->t);
    (void)snprintf(a->all.name, sizeof(a->all.name), "all");
    drop_empty(&a->classes);
    sort_rows(&a->sites);
    sort_rows(&a->tags);
    if (!usm__profile_spill_count(w->t, &a->spill) || !usm__profile_work_count(w->t, &a->work) ||
        !usm__profile_energy_count(w->t, &a->energy))
        return ENOMEM;
    return usm__advise(w->t, a) ? 0 : ENOMEM;
}

usm_status usm__analyse(const usm__profile *t, usm__analysis **out)
{
    work w     = {.t = t, .a = usm__heap_alloc(sizeof(*w.a))};
    int  error = w.a != NULL ? run(&w) : ENOMEM;

    usm__profile_blocks_free(w.found);
    usm__heap_free(w.first);
    usm__heap_free(w.next);
    usm__heap_free(w.pending);
    usm__heap_free(w.pool_class);
    usm__profile_sites_free(&w.sites);
    if (error == 0) {
        *out = w.a;
        return USM_OK;
    }
    usm__analysis_free(w.a);
    if (error == EFBIG)
        return usm__fail(USM_E_SIZE, "a trace of %zu events is more than can be analysed",
                         t->nrecords);
    return usm__fail(USM_E_NO_MEMORY, "no memory to analyse a trace of %zu events", t->nrecords);
}

void usm__analysis_free(usm__analysis *a)
{
    if (a == NULL)
        return;
    for (size_t i = 0; i < a->nadvice; i++)
        usm__heap_free(a->advice[i]);
    usm__heap_free(a->advice);
    usm__profile_spill_usages_free(&a->spill);
    usm__profile_work_usages_free(&a->work);
    usm__profile_energy_free(&a->energy);
    usm__heap_free(a->pools);
    usm__heap_free(a->classes.rows);
    usm__heap_free(a->sites.rows);
    usm__heap_free(a->tags.rows);
    usm__heap_free(a);
}
