/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What usm-top shows, as JSON. */
#include "top.h"

static const char *const kinds[] = {"unknown", "host", "device", "shared"};

static const char *const states[] = {"unknown", "well", "aside", "lost"}; /* usm_member_state */

static void put_growth(usm__json *j, const top_growth *g)
{
    usm__json_number(j, "rises", g->rises);
    usm__json_number(j, "grown", g->grown);
    usm__json_bool(j, "growing", g->is_growing);
}

static void put_pool(usm__json *j, const top_process *p, size_t i)
{
    const usm__monitor_pool *pool = &p->now.pools[i];

    usm__json_object_begin(j, NULL);
    usm__json_number(j, "id", top_load(&pool->serial));
    usm__json_text(j, "pool", pool->name);
    usm__json_text(j, "kind", kinds[pool->kind < 4 ? pool->kind : 0]);
    usm__json_text(j, "device", pool->device);
    usm__json_bool(j, "default", pool->is_default != 0);
    usm__json_number(j, "reserved", top_load(&pool->held.reserved));
    usm__json_number(j, "reserved_peak", top_load(&pool->held.reserved_peak));
    usm__json_number(j, "driver_allocs", top_load(&pool->held.driver_allocs));
    usm__json_number(j, "driver_frees", top_load(&pool->held.driver_frees));
    usm__json_number(j, "live_least", top_least(pool));
    usm__json_number(j, "live", pool->live);
    usm__json_number(j, "live_peak", pool->live_peak);
    usm__json_number(j, "blocks", pool->blocks);
    usm__json_number(j, "allocations", pool->allocations);
    usm__json_number(j, "frees", pool->frees);
    usm__json_number(j, "largest_free", pool->largest_free);
    usm__json_number(j, "thread_cached", pool->thread_cached);
    usm__json_number(j, "depot_cached", pool->depot_cached);
    usm__json_number(j, "threads", pool->threads);
    usm__json_number(j, "queued", pool->queued);
    put_growth(j, &p->pools[i]);
    usm__json_object_end(j);
}

static void put_tag(usm__json *j, const top_process *p, uint32_t i)
{
    const usm__monitor_tag *t = &p->now.tags[i];

    usm__json_object_begin(j, NULL);
    usm__json_text(j, "name", t->name);
    usm__json_number(j, "live", t->live);
    usm__json_number(j, "live_peak", t->live_peak);
    usm__json_number(j, "blocks", t->blocks);
    usm__json_number(j, "allocations", t->allocations);
    put_growth(j, &p->tags[i]);
    usm__json_object_end(j);
}

static void put_known(usm__json *j, const char *key, uint64_t value)
{
    if (value == USM__MONITOR_UNKNOWN)
        usm__json_null(j, key);
    else
        usm__json_number(j, key, value);
}

static void put_device(usm__json *j, const top_process *p, uint32_t i)
{
    const usm__monitor_device *d = &p->now.devices[i];

    usm__json_object_begin(j, NULL);
    usm__json_text(j, "device", d->term);
    usm__json_text(j, "name", d->name);
    usm__json_number(j, "memory", d->memory);
    usm__json_number(j, "reserved", d->reserved);
    usm__json_number(j, "limit", d->limit);
    usm__json_number(j, "commands", d->commands);
    usm__json_number(j, "depth", d->depth);
    usm__json_number(j, "busy_ns", d->busy_ns);
    if (p->sums.use[i] < 0)
        usm__json_null(j, "use");
    else
        usm__json_real(j, "use", p->sums.use[i], 3);
    usm__json_object_end(j);
}

static void put_queue(usm__json *j, const top_process *p, const usm__monitor_queue *q)
{
    usm__json_object_begin(j, NULL);
    usm__json_number(j, "id", q->serial);
    usm__json_text(j, "device",
                   q->device < p->now.ndevices ? p->now.devices[q->device].term : NULL);
    usm__json_number(j, "submitted", q->submitted);
    usm__json_number(j, "ended", q->ended);
    put_known(j, "depth", q->depth);
    put_known(j, "depth_peak", q->depth_peak);
    usm__json_object_end(j);
}

static void put_tier(usm__json *j, const usm__monitor_tier *t)
{
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "name", t->name);
    usm__json_number(j, "used", t->used);
    put_known(j, "capacity", t->capacity);
    usm__json_number(j, "read", t->read);
    usm__json_number(j, "written", t->written);
    usm__json_number(j, "reads", t->reads);
    usm__json_number(j, "writes", t->writes);
    usm__json_number(j, "errors", t->errors);
    usm__json_object_end(j);
}

static void put_spill(usm__json *j, const top_process *p)
{
    const usm__monitor_spill *s = &p->now.spill;

    if (!p->now.has_spill) {
        usm__json_null(j, "buffers");
        return;
    }
    usm__json_object_begin(j, "buffers");
    usm__json_number(j, "limit", s->limit);
    usm__json_number(j, "resident", s->resident);
    usm__json_number(j, "resident_peak", s->resident_peak);
    usm__json_number(j, "pinned", s->pinned);
    usm__json_number(j, "dirty", s->dirty);
    usm__json_number(j, "misses", s->misses);
    usm__json_number(j, "wait_ns", s->wait_ns);
    usm__json_number(j, "prefetched", s->prefetched);
    usm__json_number(j, "prefetch_hits", s->prefetch_hits);
    usm__json_number(j, "evicted_clean", s->evicted_clean);
    usm__json_number(j, "evicted_dirty", s->evicted_dirty);
    usm__json_array_begin(j, "tiers");
    for (uint32_t i = 0; i < p->now.ntiers; i++)
        put_tier(j, &p->now.tiers[i]);
    usm__json_array_end(j);
    usm__json_object_end(j);
}

static void put_launch(usm__json *j, const usm__monitor_launch *l)
{
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "kernel", l->kernel);
    usm__json_number(j, "start_ns", l->start_ns);
    usm__json_number(j, "total", l->total);
    usm__json_number(j, "done", l->done);
    usm__json_bool(j, "over", l->is_over != 0);
    usm__json_number(j, "rescheduled", l->rescheduled);
    usm__json_array_begin(j, "members");
    for (uint32_t i = 0; i < l->nmembers; i++) {
        usm__json_object_begin(j, NULL);
        usm__json_text(j, "name", l->members[i].name);
        usm__json_number(j, "chunks", l->members[i].chunks);
        usm__json_number(j, "items", l->members[i].items);
        usm__json_number(j, "busy_ns", l->members[i].busy_ns);
        usm__json_number(j, "under_way", l->members[i].under_way);
        usm__json_text(j, "state", states[l->members[i].state < 4 ? l->members[i].state : 0]);
        usm__json_text(j, "why", l->members[i].why);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
    usm__json_object_end(j);
}

static void put_sampled(usm__json *j, const top_process *p)
{
    usm__json_array_begin(j, "tags");
    for (uint32_t i = 0; i < p->now.ntags; i++)
        put_tag(j, p, i);
    usm__json_array_end(j);
    usm__json_array_begin(j, "devices");
    for (uint32_t i = 0; i < p->now.ndevices; i++)
        put_device(j, p, i);
    usm__json_array_end(j);
    usm__json_array_begin(j, "queues");
    for (uint32_t i = 0; i < p->now.nqueues; i++)
        put_queue(j, p, &p->now.queues[i]);
    usm__json_array_end(j);
    usm__json_array_begin(j, "launches");
    for (uint32_t i = 0; i < p->now.nlaunches; i++)
        put_launch(j, &p->now.launches[i]);
    usm__json_array_end(j);
    put_spill(j, p);
}

static void put_process(usm__json *j, const top_process *p)
{
    usm__json_object_begin(j, NULL);
    usm__json_number(j, "pid", p->pid);
    if (p->is_refused) {
        usm__json_text(j, "error", p->why);
        usm__json_object_end(j);
        return;
    }
    usm__json_text(j, "program", p->now.program);
    usm__json_text(j, "host", p->now.host);
    if (p->now.ranks > 0) {
        usm__json_number(j, "rank", p->now.rank);
        usm__json_number(j, "ranks", p->now.ranks);
    }
    usm__json_bool(j, "sampled", p->is_sampled);
    usm__json_number(j, "samples", p->now.samples);
    usm__json_number(j, "live", p->sums.live);
    usm__json_number(j, "reserved", p->sums.reserved);
    usm__json_array_begin(j, "pools");
    for (size_t i = 0; i < USM__MONITOR_POOLS; i++)
        if (top_is_pool(&p->now.pools[i]))
            put_pool(j, p, i);
    usm__json_array_end(j);
    put_sampled(j, p);
    usm__json_object_end(j);
}

void top_put_json(usm__json *j, const top_model *m)
{
    usm__json_object_begin(j, NULL);
    usm__json_number(j, "schema", 1);
    usm__json_number(j, "time_ns", m->now_ns);
    usm__json_array_begin(j, "processes");
    for (size_t i = 0; i < m->n; i++)
        put_process(j, m->list[i]);
    usm__json_array_end(j);
    usm__json_object_end(j);
}
