/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What usm-top shows, as OpenMetrics 1.0 text, which Prometheus reads: for the textfile collector of
 * its node_exporter, or whoever serves it. */
#include "top.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct family {
    const char *name, *unit, *help; /* the unit ends the name; "": none */
    bool        is_counter;
    size_t      at; /* offset of the number; of seconds: of nanoseconds */
} family;

#define POOL(member)   offsetof(usm__monitor_pool, member)
#define TAG(member)    offsetof(usm__monitor_tag, member)
#define DEVICE(member) offsetof(usm__monitor_device, member)
#define QUEUE(member)  offsetof(usm__monitor_queue, member)
#define TIER(member)   offsetof(usm__monitor_tier, member)
#define SPILL(member)  offsetof(usm__monitor_spill, member)

static const family of_pools[] = {
    {"usm_pool_reserved_bytes", "bytes", "Taken from the driver.", false, POOL(held.reserved)},
    {"usm_pool_reserved_peak_bytes", "bytes", "The most that was taken from the driver.", false,
     POOL(held.reserved_peak)},
    {"usm_pool_large_bytes", "bytes", "In large blocks of the program.", false,
     POOL(held.large_bytes)},
    {"usm_pool_driver_allocs", "", "Calls of the driver that took memory.", true,
     POOL(held.driver_allocs)},
    {"usm_pool_driver_frees", "", "Calls of the driver that gave memory back.", true,
     POOL(held.driver_frees)},
};
static const family of_sampled_pools[] = {
    {"usm_pool_live_bytes", "bytes", "In blocks of the program.", false, POOL(live)},
    {"usm_pool_live_peak_bytes", "bytes", "The most that was in blocks of the program.", false,
     POOL(live_peak)},
    {"usm_pool_blocks", "", "Blocks of the program.", false, POOL(blocks)},
    {"usm_pool_cached_bytes", "bytes", "Free, in the caches of threads.", false,
     POOL(thread_cached)},
    {"usm_pool_queued_bytes", "bytes", "Freed in the order of queues.", false, POOL(queued)},
    {"usm_pool_allocations", "", "Blocks allocated.", true, POOL(allocations)},
    {"usm_pool_frees", "", "Blocks freed.", true, POOL(frees)},
};
static const family of_tags[] = {
    {"usm_tag_live_bytes", "bytes", "In blocks of the tag.", false, TAG(live)},
    {"usm_tag_live_peak_bytes", "bytes", "The most that was in blocks of the tag.", false,
     TAG(live_peak)},
    {"usm_tag_blocks", "", "Blocks of the tag.", false, TAG(blocks)},
    {"usm_tag_allocations", "", "Blocks allocated with the tag.", true, TAG(allocations)},
};
static const family of_devices[] = {
    {"usm_device_memory_bytes", "bytes", "Memory of the device.", false, DEVICE(memory)},
    {"usm_device_reserved_bytes", "bytes", "Taken from it by the process.", false,
     DEVICE(reserved)},
    {"usm_device_limit_bytes", "bytes", "The most that may be taken; 0: no limit.", false,
     DEVICE(limit)},
    {"usm_device_depth", "", "Commands in flight in queues of the device.", false, DEVICE(depth)},
    {"usm_device_busy_seconds", "seconds", "Time, while somebody read, with commands in flight.",
     true, DEVICE(busy_ns)},
};
static const family of_queues[] = {
    {"usm_queue_commands", "", "Commands submitted.", true, QUEUE(submitted)},
    {"usm_queue_depth", "", "Commands in flight.", false, QUEUE(depth)},
    {"usm_queue_depth_peak", "", "The most commands in flight in a sample.", false,
     QUEUE(depth_peak)},
};
static const family of_tiers[] = {
    {"usm_tier_used_bytes", "bytes", "Of buffers, on the tier.", false, TIER(used)},
    {"usm_tier_read_bytes", "bytes", "Read from the tier.", true, TIER(read)},
    {"usm_tier_written_bytes", "bytes", "Written to the tier.", true, TIER(written)},
    {"usm_tier_errors", "", "Transfers that failed.", true, TIER(errors)},
};
static const family of_launches[] = {
    {"usm_launch_total", "", "Indices of the launch.", false, offsetof(usm__monitor_launch, total)},
    {"usm_launch_done", "", "Those that are computed.", false, offsetof(usm__monitor_launch, done)},
};
static const family of_spill[] = {
    {"usm_buffers_resident_bytes", "bytes", "Of buffers, in memory.", false, SPILL(resident)},
    {"usm_buffers_pinned_bytes", "bytes", "Of buffers, kept in memory by accesses.", false,
     SPILL(pinned)},
    {"usm_buffers_misses", "", "Blocks that an access waited for.", true, SPILL(misses)},
};

static void put_escaped(usm__out *o, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"')
            usm__out_bytes(o, "\\", 1);
        usm__out_bytes(o, text, 1);
    }
}

static void put_label(usm__out *o, const char *name, const char *text)
{
    usm__out_put(o, ",%s=\"", name);
    put_escaped(o, text);
    usm__out_put(o, "\"");
}

static void put_head(usm__out *o, const family *f)
{
    usm__out_put(o, "# TYPE %s %s\n", f->name, f->is_counter ? "counter" : "gauge");
    if (f->unit[0] != '\0')
        usm__out_put(o, "# UNIT %s %s\n", f->name, f->unit);
    usm__out_put(o, "# HELP %s %s\n", f->name, f->help);
}

static void begin(usm__out *o, const family *f, const top_process *p)
{
    usm__out_put(o, "%s%s{pid=\"%u\"", f->name, f->is_counter ? "_total" : "", p->pid);
    put_label(o, "program", p->now.program);
    if (p->now.ranks > 0)
        usm__out_put(o, ",rank=\"%u\"", p->now.rank);
}

static unsigned long long value_of(const family *f, const void *object)
{
    uint64_t value;

    memcpy(&value, (const char *)object + f->at, sizeof value);
    return value;
}

static void end(usm__out *o, const family *f, const void *object)
{
    unsigned long long value = value_of(f, object);

    if (strcmp(f->unit, "seconds") == 0)
        usm__out_put(o, "} %llu.%09llu\n", value / 1000000000, value % 1000000000);
    else
        usm__out_put(o, "} %llu\n", value);
}

static void put_pools(usm__out *o, const family *f, const top_process *p)
{
    static const char *const kinds[] = {"unknown", "host", "device", "shared"};

    for (size_t i = 0; i < USM__MONITOR_POOLS; i++) {
        const usm__monitor_pool *pool = &p->now.pools[i];

        if (!top_is_pool(pool))
            continue;
        begin(o, f, p);
        usm__out_put(o, ",id=\"%llu\"", (unsigned long long)top_load(&pool->serial));
        put_label(o, "pool", pool->name);
        put_label(o, "kind", kinds[pool->kind < 4 ? pool->kind : 0]);
        put_label(o, "device", pool->device);
        end(o, f, pool);
    }
}

static void put_tags(usm__out *o, const family *f, const top_process *p)
{
    for (uint32_t i = 0; i < p->now.ntags; i++) {
        begin(o, f, p);
        put_label(o, "tag", p->now.tags[i].name);
        end(o, f, &p->now.tags[i]);
    }
}

static void put_devices(usm__out *o, const family *f, const top_process *p)
{
    for (uint32_t i = 0; i < p->now.ndevices; i++) {
        begin(o, f, p);
        put_label(o, "device", p->now.devices[i].term);
        end(o, f, &p->now.devices[i]);
    }
}

static void put_queues(usm__out *o, const family *f, const top_process *p)
{
    for (uint32_t i = 0; i < p->now.nqueues; i++) {
        const usm__monitor_queue *q = &p->now.queues[i];

        if (value_of(f, q) == USM__MONITOR_UNKNOWN)
            continue;
        begin(o, f, p);
        usm__out_put(o, ",id=\"%llu\"", (unsigned long long)q->serial);
        put_label(o, "device",
                  q->device < p->now.ndevices ? p->now.devices[q->device].term : "unknown");
        end(o, f, q);
    }
}

static void put_tiers(usm__out *o, const family *f, const top_process *p)
{
    for (uint32_t i = 0; i < p->now.ntiers; i++) {
        begin(o, f, p);
        usm__out_put(o, ",index=\"%u\"", i); /* two tiers may have one name */
        put_label(o, "tier", p->now.tiers[i].name);
        end(o, f, &p->now.tiers[i]);
    }
}

static void put_spill(usm__out *o, const family *f, const top_process *p)
{
    if (!p->now.has_spill)
        return;
    begin(o, f, p);
    end(o, f, &p->now.spill);
}

static void put_launches(usm__out *o, const family *f, const top_process *p)
{
    for (uint32_t i = 0; i < p->now.nlaunches; i++) {
        begin(o, f, p);
        usm__out_put(o, ",index=\"%u\"", i);
        put_label(o, "kernel", p->now.launches[i].kernel);
        end(o, f, &p->now.launches[i]);
    }
}

typedef void put_fn(usm__out *o, const family *f, const top_process *p);

/* All lines of a family are together. */
static void put_families(usm__out *o, const top_model *m, const family *list, size_t n,
                         bool is_sampled, put_fn *put)
{
    for (size_t i = 0; i < n; i++) {
        put_head(o, &list[i]);
        for (size_t k = 0; k < m->n; k++)
            if (!m->list[k]->is_refused && (m->list[k]->is_sampled || !is_sampled))
                put(o, &list[i], m->list[k]);
    }
}

#define PUT(list, is_sampled, put)                                                                 \
    put_families(o, m, (list), sizeof(list) / sizeof *(list), (is_sampled), (put))

void top_put_openmetrics(usm__out *o, const top_model *m)
{
    PUT(of_pools, false, put_pools);
    PUT(of_sampled_pools, true, put_pools);
    PUT(of_tags, true, put_tags);
    PUT(of_devices, true, put_devices);
    PUT(of_queues, true, put_queues);
    PUT(of_launches, true, put_launches);
    PUT(of_spill, true, put_spill);
    PUT(of_tiers, true, put_tiers);
    usm__out_put(o, "# EOF\n");
}
