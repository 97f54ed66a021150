/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fills the sampled part of the monitor page: pools, tags, devices, queues, spill tiers,
 * launches.  Called by
 * the thread of monitor.c, under the locks that usm_pool_describe() takes. */
#include "monitor/monitor.h"

#include "base/inline/bits.h"
#include "base/os.h"
#include "command/queue.h"
#include "device/observer.h"
#include "heap/pool.h"
#include "monitor/folder.h"
#include "offload/launches.h"
#include "offload/ranks.h"
#include "spill/engine.h"

#include <string.h>

#define HOST_MEMORY "host memory"
#define LONGEST_NS  (10 * (uint64_t)USM__MONITOR_PERIOD) /* between two samples, on a busy machine */

static void put_text(char *to, size_t size, const char *text)
{
    size_t n = text ? strnlen(text, size - 1) : 0;

    memcpy(to, text ? text : "", n);
    to[n] = '\0';
}

/* ---- pools and tags ---------------------------------------------------------------------- */

static void put_pool(usm_pool *pool, void *arg)
{
    usm__monitor_page *page  = arg;
    usm_pool_stats     s     = USM_POOL_STATS_INIT;
    usm__pool_queued   after = {0};
    usm__monitor_pool *p;

    if (pool->held == &pool->own_held)
        return;
    p = &page->pools[((char *)pool->held - (char *)page->pools) / (ptrdiff_t)sizeof *p];
    usm__pool_stats(pool, &s);
    usm__parts_pool_figures(pool, &after);
    p->is_default    = pool->is_default;
    p->live          = s.live;
    p->live_peak     = s.live_peak;
    p->blocks        = s.blocks;
    p->allocations   = s.allocations;
    p->frees         = s.frees;
    p->largest_free  = s.largest_free;
    p->thread_cached = s.thread_cached;
    p->depot_cached  = s.depot_cached;
    p->threads       = s.threads;
    p->queued        = after.bytes;
}

static void put_tag(const usm_tag_stats *tag, void *arg)
{
    usm__monitor_page *page = arg;
    usm__monitor_tag  *t    = &page->tags[page->ntags];

    if (page->ntags == USM__MONITOR_TAGS) {
        page->left_out++;
        return;
    }
    page->ntags++;
    put_text(t->name, sizeof t->name, tag->name);
    t->live        = tag->live;
    t->live_peak   = tag->live_peak;
    t->blocks      = tag->blocks;
    t->allocations = tag->allocations;
}

/* ---- devices and queues ------------------------------------------------------------------ */

/* What the queues need to know of the sample before. */
typedef struct since {
    usm__monitor_page *page;
    uint64_t           serials[USM__MONITOR_QUEUES], peaks[USM__MONITOR_QUEUES];
} since;

static void begin_queues(since *before)
{
    usm__monitor_page *page = before->page;

    for (uint32_t i = 0; i < page->nqueues; i++) {
        before->serials[i] = page->queues[i].serial;
        before->peaks[i]   = page->queues[i].depth_peak;
    }
    for (uint32_t i = 0; i < page->ndevices; i++) {
        usm__monitor_device *d = &page->devices[i];

        d->reserved = d->limit = d->commands = d->depth = 0;
    }
    page->nqueues = 0;
}

static uint64_t peak_before(const since *before, uint64_t serial)
{
    for (size_t i = 0; i < USM__MONITOR_QUEUES; i++)
        if (before->serials[i] == serial)
            return before->peaks[i];
    return 0;
}

/* Returns its index, or UINT32_MAX. */
static uint32_t device_at(usm__monitor_page *page, const char *term)
{
    for (uint32_t i = 0; i < page->ndevices; i++)
        if (strcmp(page->devices[i].term, term) == 0)
            return i;
    if (page->ndevices == USM__MONITOR_DEVICES) {
        page->left_out++;
        return UINT32_MAX;
    }
    memset(&page->devices[page->ndevices], 0, sizeof page->devices[0]);
    put_text(page->devices[page->ndevices].term, USM__MONITOR_TEXT, term);
    return page->ndevices++;
}

static void put_host(usm__monitor_page *page)
{
    usm__monitor_device *d = &page->devices[device_at(page, HOST_MEMORY)];

    d->memory   = usm__quota_memory_total();
    d->reserved = usm__quota_host_reserved();
    d->limit    = usm__quota_host_limit();
}

static void put_device(usm__monitor_page *page, usm_device *dev)
{
    uint32_t             i = device_at(page, dev->term);
    usm__monitor_device *d = &page->devices[i];

    if (i == UINT32_MAX)
        return;
    put_text(d->name, sizeof d->name, dev->desc.name);
    d->memory   = dev->desc.memory_size;
    d->reserved = usm_load_relaxed(&dev->quota.reserved);
    d->limit    = usm_load_relaxed(&dev->quota.limit);
}

static void put_queue(const since *before, usm_queue *q)
{
    usm__monitor_page  *page     = before->page;
    uint32_t            at       = device_at(page, q->dev->term);
    usm__monitor_queue *to       = &page->queues[page->nqueues];
    uint64_t            ended    = usm_load_relaxed(&q->ended);
    uint64_t            n        = usm_load_relaxed(&q->submitted);
    uint64_t            depth    = n > ended ? n - ended : 0;
    bool                is_known = !usm_load_relaxed(&q->is_shared);

    if (at != UINT32_MAX) {
        page->devices[at].commands += n;
        page->devices[at].depth += is_known ? depth : 0;
    }
    if (page->nqueues == USM__MONITOR_QUEUES) {
        page->left_out++;
        return;
    }
    page->nqueues++;
    to->serial     = q->serial;
    to->submitted  = n;
    to->ended      = n - depth;
    to->depth      = is_known ? depth : USM__MONITOR_UNKNOWN;
    to->depth_peak = usm_max_size(to->depth, peak_before(before, q->serial));
    to->device     = at;
    to->flags      = q->flags;
}

static void put_context(usm_context *ctx, void *arg)
{
    const since *before = arg;

    usm__mutex_lock(&ctx->lock); /* of the queues' list */
    for (size_t i = 0; i < ctx->ndevices; i++)
        put_device(before->page, ctx->devices[i].dev);
    USM_LIST_FOREACH (it, &ctx->queues)
        put_queue(before, usm_container_of(it, usm_queue, link));
    usm__mutex_unlock(&ctx->lock);
}

/* What was between two samples is not known: a device counts as busy for all of a period at whose end
 * it is.  A period in which nobody read is none. */
static void put_use(usm__monitor_page *page, uint64_t now)
{
    uint64_t passed = now - page->sampled_ns;

    for (uint32_t i = 0; i < page->ndevices; i++)
        if (page->devices[i].depth > 0 && passed < LONGEST_NS)
            page->devices[i].busy_ns += passed;
}

/* ---- spilling ------------------------------------------------------------------------------ */

static void put_tier(usm__monitor_tier *to, const usm_tier_stats *t)
{
    put_text(to->name, sizeof to->name, t->name);
    to->used     = t->used;
    to->capacity = t->capacity;
    to->read     = t->read;
    to->written  = t->written;
    to->reads    = t->reads;
    to->writes   = t->writes;
    to->errors   = t->errors;
}

static void put_spill(usm__monitor_page *page)
{
    usm__spill     *engine = usm__spill_there(NULL);
    usm_spill_stats s;

    page->has_spill = engine != NULL;
    page->ntiers    = 0;
    if (!engine)
        return;
    usm__spill_get_figures(engine, &s);
    page->spill  = (usm__monitor_spill){.limit         = s.limit,
                                        .resident      = s.resident,
                                        .resident_peak = s.resident_peak,
                                        .pinned        = s.pinned,
                                        .dirty         = s.dirty,
                                        .misses        = s.misses,
                                        .wait_ns       = s.wait_ns,
                                        .prefetched    = s.prefetched,
                                        .prefetch_hits = s.prefetch_hits,
                                        .evicted_clean = s.evicted_clean,
                                        .evicted_dirty = s.evicted_dirty};
    page->ntiers = (uint32_t)usm_min_size(s.ntiers, USM__MONITOR_TIERS);
    for (uint32_t i = 0; i < page->ntiers; i++)
        put_tier(&page->tiers[i], &s.tiers[i]);
}

/* ---- launches ------------------------------------------------------------------------------ */

/* What this process knows of its own member. */
static void put_own(usm__monitor_member *to, const usm__member *m)
{
    put_text(to->name, sizeof to->name, m->name);
    put_text(to->why, sizeof to->why, m->why);
    to->state = (uint32_t)m->state;
}

static void put_member(usm__monitor_member *to, const usm_parallel_run *r, uint32_t i, uint64_t now)
{
    const usm__ledger_part *part = &r->parts[i];

    to->chunks    = part->chunks;
    to->items     = part->items;
    to->busy_ns   = part->busy_ns + (part->under_way > 0 ? now - part->since_ns : 0);
    to->under_way = part->under_way;
}

/* Over a job: the members of all ranks, on the one that grants chunks. */
static uint32_t put_ranks(usm__monitor_launch *to, usm_parallel_run *r, usm__schedule_stats *done)
{
    usm__ranks_figures f[USM__MONITOR_MEMBERS];
    uint32_t           n = usm__ranks_get_figures(r->launch, f, USM__MONITOR_MEMBERS, done);

    for (uint32_t i = 0; i < n; i++) {
        usm__monitor_member *m = &to->members[i];

        put_text(m->name, sizeof m->name, f[i].name);
        m->chunks    = f[i].chunks;
        m->items     = f[i].items;
        m->busy_ns   = f[i].busy_ns;
        m->under_way = (uint32_t)f[i].under_way;
        m->state     = (uint32_t)f[i].state;
    }
    return n;
}

static void put_members(usm__monitor_launch *to, usm_parallel_run *r, usm__schedule_stats *done)
{
    const uint64_t now = usm__os_now_ns();

    memset(to->members, 0, sizeof to->members);
    to->nmembers = r->launch ? put_ranks(to, r, done) : 0;
    if (to->nmembers > 0)
        return;
    to->nmembers = (uint32_t)usm_min_size(r->team->nmembers, USM__MONITOR_MEMBERS);
    for (uint32_t i = 0; i < to->nmembers; i++) {
        put_own(&to->members[i], &r->team->members[i]);
        if (r->parts)
            put_member(&to->members[i], r, i, now);
    }
}

static void put_launch(usm_parallel_run *r, void *arg)
{
    usm__monitor_page   *page = arg;
    usm__monitor_launch *to   = &page->launches[page->nlaunches];
    usm__schedule_stats  done = {0};

    if (page->nlaunches == USM__MONITOR_LAUNCHES) {
        page->left_out++;
        return;
    }
    page->nlaunches++;
    if (r->schedule)
        usm__schedule_get_stats(r->schedule, &done);
    put_members(to, r, &done);
    put_text(to->kernel, sizeof to->kernel, r->plan->desc.kernel->name);
    to->start_ns    = r->start_ns;
    to->total       = r->plan->total;
    to->done        = done.done;
    to->rescheduled = done.rescheduled;
    to->is_over     = r->is_over;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Readers copy the page and compare the sequence before and after: the fence keeps what is written
 * behind the odd value, the release before the even one. */
void usm__monitor_sample(usm__monitor_page *page)
{
    uint64_t         sequence = usm_load_relaxed(&page->sequence);
    since            before   = {.page = page};
    usm__monitor_map map; /* taken before, as it takes longer than readers wait */
    bool             has_map = usm__monitor_take_map(page, &map);

    usm_store_relaxed(&page->sequence, sequence + 1);
    atomic_thread_fence(memory_order_release);
    page->ntags = page->nlaunches = page->left_out = 0;
    begin_queues(&before);
    put_host(page);
    usm__pools_each(put_pool, page);
    usm__observer_each_tag(put_tag, page);
    usm__contexts_each(put_context, &before);
    put_use(page, usm__os_now_ns());
    put_spill(page);
    usm__launches_each(put_launch, page);
    if (has_map)
        page->map = map;
    page->sampled_ns = usm__os_now_ns();
    page->samples++;
    usm_store_release(&page->sequence, sequence + 2);
}
