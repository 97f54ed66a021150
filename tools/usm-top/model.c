/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The processes that usm-top shows: their pages, what changed between two samples, their order. */
#include "top.h"

#include "base/os.h"

#include <string.h>

#define STALE_NS 2000000000u /* a sample that is older says nothing of the present */

static const char *const order_names[] = {"live",  "reserved", "allocations", "commands",
                                          "depth", "spill",    "pid",         "program"};

const char *top_order_name(top_order order)
{
    return order_names[order];
}

top_order top_order_of(const char *name)
{
    top_order order = TOP_BY_LIVE;

    while (order < TOP_ORDERS && strcmp(order_names[order], name) != 0)
        order++;
    return order;
}

/* ---- sums and rates ---------------------------------------------------------------------- */

static void add_pool(top_sums *s, const usm__monitor_pool *p, bool is_sampled)
{
    uint64_t live = is_sampled ? p->live : top_least(p);

    s->live += live;
    s->reserved += top_load(&p->held.reserved);
    s->reserved_peak += top_load(&p->held.reserved_peak);
    s->blocks += p->blocks;
    s->cached += p->thread_cached + p->depot_cached;
    if (p->kind < 4)
        s->by_kind[p->kind] += live;
}

static uint64_t allocations_of(const usm__monitor_page *page)
{
    uint64_t n = 0;

    for (size_t i = 0; i < USM__MONITOR_POOLS; i++)
        n += top_is_pool(&page->pools[i]) ? page->pools[i].allocations : 0;
    return n;
}

static uint64_t commands_of(const usm__monitor_page *page)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < page->ndevices; i++)
        n += page->devices[i].commands;
    return n;
}

static uint64_t moved_of(const usm__monitor_page *page, bool is_read)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < page->ntiers; i++)
        n += is_read ? page->tiers[i].read : page->tiers[i].written;
    return n;
}

/* A page may say anything: without a bound the sum of two depths would be none. */
static uint64_t depth_of(const usm__monitor_page *page)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < page->ndevices; i++)
        n += page->devices[i].depth < UINT32_MAX ? page->devices[i].depth : UINT32_MAX;
    return n;
}

/* The part of the time between two samples in which a device had commands in flight. */
static double use_of(const top_process *p, uint32_t i)
{
    const usm__monitor_device *now = &p->now.devices[i], *before = &p->before.devices[i];
    double                     passed, busy;

    if (p->before.samples == 0 || p->now.sampled_ns <= p->before.sampled_ns ||
        i >= p->before.ndevices || strcmp(now->term, before->term) != 0)
        return -1;
    passed = (double)(p->now.sampled_ns - p->before.sampled_ns);
    busy   = now->busy_ns > before->busy_ns ? (double)(now->busy_ns - before->busy_ns) : 0;
    return busy < passed ? busy / passed : 1;
}

static void sum_use(top_process *p)
{
    p->sums.most_use = -1;
    for (uint32_t i = 0; i < p->now.ndevices; i++) {
        p->sums.use[i] = use_of(p, i);
        if (top_has_queues(&p->now.devices[i]) && p->sums.use[i] > p->sums.most_use)
            p->sums.most_use = p->sums.use[i];
    }
}

#define MOST_RATE 1e18 /* of a page that may say anything: two of them fit in 64 bits */

/* A pool or queue that went takes its count along: that is no rate. */
static double rate(uint64_t before, uint64_t now, double seconds)
{
    double in_a_second = seconds > 0 && now > before ? (double)(now - before) / seconds : 0;

    return in_a_second < MOST_RATE ? in_a_second : MOST_RATE;
}

void top_sum(top_process *p)
{
    top_sums *s       = &p->sums;
    double    seconds = 0;

    *s = (top_sums){0};
    for (size_t i = 0; i < USM__MONITOR_POOLS; i++)
        if (top_is_pool(&p->now.pools[i]))
            add_pool(s, &p->now.pools[i], p->is_sampled);
    s->commands = commands_of(&p->now);
    s->depth    = depth_of(&p->now);
    sum_use(p);
    for (uint32_t i = 0; i < p->now.ntiers; i++)
        s->spilled += p->now.tiers[i].used;
    if (p->before.samples != 0 && p->now.sampled_ns > p->before.sampled_ns)
        seconds = (double)(p->now.sampled_ns - p->before.sampled_ns) * 1e-9;
    s->allocations_rate = rate(allocations_of(&p->before), allocations_of(&p->now), seconds);
    s->commands_rate    = rate(commands_of(&p->before), s->commands, seconds);
    s->read_rate        = rate(moved_of(&p->before, true), moved_of(&p->now, true), seconds);
    s->written_rate     = rate(moved_of(&p->before, false), moved_of(&p->now, false), seconds);
}

/* A level that stays, or falls, is none that leaks. */
static void follow(const top_process *p, top_growth *g, uint64_t key, uint64_t live)
{
    if (g->key != key)
        *g = (top_growth){.key = key, .live = live};
    if (live > g->live) {
        g->rises++;
        g->grown += live - g->live;
    } else {
        g->rises = 0;
        g->grown = 0;
    }
    g->live       = live;
    g->is_growing = g->rises > 0 && g->rises >= p->grows_after;
}

static uint64_t hash(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */

    for (; *name != '\0'; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
    return h;
}

/* Tags that allocate for the first time come between others: a tag is known by its name. */
static void follow_tags(top_process *p)
{
    top_growth before[USM__MONITOR_TAGS];

    memcpy(before, p->tags, sizeof before);
    for (uint32_t i = 0; i < p->now.ntags; i++) {
        uint64_t key = hash(p->now.tags[i].name);

        for (size_t k = 0; p->tags[i].key != key && k < USM__MONITOR_TAGS; k++)
            if (before[k].key == key)
                p->tags[i] = before[k];
        follow(p, &p->tags[i], key, p->now.tags[i].live);
    }
}

/* ---- how busy members were -------------------------------------------------------------------- */

static char mark_of(uint64_t busy_ns, uint64_t of_ns)
{
    double part = of_ns > 0 ? (double)busy_ns / (double)of_ns : 0;

    return " -=#"[part < 0.01 ? 0 : part < 0.34 ? 1 : part < 0.67 ? 2 : 3];
}

static void begin_strip(top_strip *s, uint64_t start_ns)
{
    *s = (top_strip){.start_ns = start_ns};
    for (size_t i = 0; i < USM__MONITOR_MEMBERS; i++)
        memset(s->marks[i], ' ', TOP_MARKS);
}

/* The launch's strip, which is begun in the place of one that has gone. */
static top_strip *strip_for(top_process *p, const usm__monitor_launch *l)
{
    top_strip *spare = &p->strips[0];

    for (size_t i = 0; i < USM__MONITOR_LAUNCHES; i++) {
        bool is_there = false;

        if (p->strips[i].start_ns == l->start_ns)
            return &p->strips[i];
        for (uint32_t k = 0; k < p->now.nlaunches; k++)
            is_there |= p->now.launches[k].start_ns == p->strips[i].start_ns;
        spare = is_there ? spare : &p->strips[i];
    }
    begin_strip(spare, l->start_ns);
    return spare;
}

static void mark_launch(top_process *p, const usm__monitor_launch *l)
{
    top_strip *s    = strip_for(p, l);
    uint64_t   from = p->before.sampled_ns > l->start_ns ? p->before.sampled_ns : l->start_ns;
    uint64_t   ns   = p->now.sampled_ns > from ? p->now.sampled_ns - from : 0;

    for (uint32_t i = 0; i < l->nmembers; i++) {
        uint64_t busy = l->members[i].busy_ns;

        memmove(s->marks[i], s->marks[i] + 1, TOP_MARKS - 1);
        s->marks[i][TOP_MARKS - 1] = mark_of(busy > s->busy_ns[i] ? busy - s->busy_ns[i] : 0, ns);
        s->busy_ns[i]              = busy;
    }
}

void top_follow(top_process *p)
{
    for (uint32_t i = 0; i < p->now.nlaunches; i++)
        mark_launch(p, &p->now.launches[i]);
    follow_tags(p);
    for (size_t i = 0; i < USM__MONITOR_POOLS; i++)
        follow(p, &p->pools[i], top_load(&p->now.pools[i].serial), p->now.pools[i].live);
}

/* ---- processes ----------------------------------------------------------------------------- */

static top_process *find(const top_model *m, uint32_t pid)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->list[i]->pid == pid)
            return m->list[i];
    return NULL;
}

static void update(const top_model *m, top_process *p, const usm__monitor_page *page)
{
    if (p->now.start_ticks != page->start_ticks || p->now.stack_start != page->stack_start) {
        uint32_t pid = p->pid;

        memset(p, 0, sizeof *p); /* another process, or another program of this one */
        p->pid         = pid;
        p->grows_after = m->grows_after ? m->grows_after : TOP_GROWS;
        p->now         = *page;
        top_follow(p);
    } else if (page->samples != p->now.samples) {
        p->before = p->now;
        p->now    = *page;
        top_follow(p);
    } else {
        p->now = *page;
    }
    /* A page may say anything: a sample of the future is as good as one of now. */
    p->is_sampled = p->now.samples > 0 &&
                    (p->now.sampled_ns >= m->now_ns || m->now_ns - p->now.sampled_ns < STALE_NS);
    top_sum(p);
}

static bool is_wanted(const top_model *m, const usm__monitor_page *page)
{
    return !m->filter || strstr(page->program, m->filter) != NULL;
}

/* Reads one page into a process that was known or is new.  NULL: it is not to be shown, or there is no
 * memory. */
static top_process *take_one(top_model *m, uint32_t pid, bool *is_ok)
{
    static usm__monitor_page page; /* guarded by being of one thread; too large for a stack */
    char                     why[USM__MONITOR_WHY] = "";
    usm__monitor_found       found                 = usm__monitor_read(&m->reader, pid, &page, why);
    top_process             *p                     = find(m, pid);

    if (found == USM__MONITOR_GONE || (found == USM__MONITOR_LIVES && !is_wanted(m, &page)))
        return NULL;
    if (!p) {
        p = usm__heap_alloc(sizeof *p);
        if (!p) {
            *is_ok = false;
            return NULL;
        }
        p->pid = pid;
    }
    p->is_refused = found == USM__MONITOR_REFUSED;
    memcpy(p->why, why, sizeof p->why);
    if (!p->is_refused)
        update(m, p, &page);
    return p;
}

/* ---- order --------------------------------------------------------------------------------- */

static double value_of(const top_process *p, top_order order)
{
    switch (order) {
    case TOP_BY_LIVE:
        return (double)p->sums.live;
    case TOP_BY_RESERVED:
        return (double)p->sums.reserved;
    case TOP_BY_ALLOCATIONS:
        return p->sums.allocations_rate;
    case TOP_BY_COMMANDS:
        return p->sums.commands_rate;
    case TOP_BY_DEPTH:
        return (double)p->sums.depth;
    case TOP_BY_SPILL:
        return p->sums.read_rate + p->sums.written_rate;
    case TOP_BY_PID:
    case TOP_BY_PROGRAM:
    case TOP_ORDERS:
        break;
    }
    return 0;
}

/* The largest first, names from A to Z; among equals by process id. */
static bool comes_before(const top_model *m, const top_process *a, const top_process *b)
{
    double x = value_of(a, m->order), y = value_of(b, m->order);
    int    name = m->order == TOP_BY_PROGRAM ? strcmp(a->now.program, b->now.program) : 0;
    int    sign = x > y ? -1 : x < y ? 1 : name;

    if (sign == 0)
        sign = a->pid < b->pid ? -1 : 1;
    return m->is_reversed ? sign > 0 : sign < 0;
}

static void insert(top_model *m, top_process **list, size_t n, top_process *p)
{
    size_t at = n;

    for (; at > 0 && comes_before(m, p, list[at - 1]); at--)
        list[at] = list[at - 1];
    list[at] = p;
}

bool top_take(top_model *m)
{
    uint32_t     pids[TOP_PROCESSES];
    top_process *list[TOP_PROCESSES];
    size_t       found, n = 0;
    bool         is_ok = true;

    usm__monitor_announce(&m->reader);
    m->now_ns   = usm__os_now_ns();
    found       = usm__monitor_list(&m->reader, pids, TOP_PROCESSES);
    m->left_out = found > TOP_PROCESSES ? found - TOP_PROCESSES : 0;
    found -= m->left_out;
    for (size_t i = 0; i < found; i++) {
        top_process *p =
            m->only_pid == 0 || m->only_pid == pids[i] ? take_one(m, pids[i], &is_ok) : NULL;
        if (p)
            insert(m, list, n++, p);
    }
    m->gone = 0;
    for (size_t i = 0; i < m->n; i++) {
        size_t k = 0;

        while (k < n && list[k] != m->list[i])
            k++;
        if (k == n) {
            usm__monitor_identity unused;

            m->gone +=
                !usm__monitor_identify(m->list[i]->pid, &unused); /* else it is filtered out */
            usm__heap_free(m->list[i]);
        }
    }
    memcpy(m->list, list, n * sizeof *list);
    m->n = n;
    return is_ok;
}

void top_drop(top_model *m)
{
    for (size_t i = 0; i < m->n; i++)
        usm__heap_free(m->list[i]);
    m->n = 0;
}
