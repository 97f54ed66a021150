/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The text of usm-top: the list of processes, and the details of one.  Lines are cut at the width of the
 * terminal; columns that find no room are left out, the least important first. */
#include "top.h"

#include "base/inline/plural.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINE  512
#define GROWS "  grows: " /* screen.c looks for it */

/* ---- lines ------------------------------------------------------------------------------- */

/* Bytes of the first `width` characters. */
static size_t cut_at(const char *text, unsigned width)
{
    size_t at = 0;

    for (unsigned n = 0; text[at] != '\0' && n < width; n++)
        do
            at++;
        while (((unsigned char)text[at] & 0xc0) == 0x80);
    return at;
}

static void put_line(usm__out *o, unsigned width, const char *format, ...) USM_PRINTF(3, 4);
static void put_line(usm__out *o, unsigned width, const char *format, ...)
{
    char    line[LINE];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    usm__out_bytes(o, line, cut_at(line, width));
    usm__out_bytes(o, "\n", 1);
}

static const char *rate_text(double rate, char *text, size_t size)
{
    static const char units[] = " kMGT";
    size_t            unit    = 0;

    for (; rate >= 999.5 && unit + 2 < sizeof units; unit++)
        rate /= 1000;
    (void)snprintf(text, size, unit == 0 ? "%.0f" : "%.1f%c", rate, units[unit]);
    return text;
}

#define RATE_TEXT(rate) rate_text((rate), (char[32]){0}, 32)

/* "12.3M": the same as USM__SIZE_TEXT(), for columns. */
static const char *short_size(uint64_t bytes, char *text, size_t size)
{
    static const char units[] = "BKMGTPE";
    double            value   = (double)bytes;
    size_t            unit    = 0;

    for (; value >= 999.5; unit++)
        value /= 1024;
    (void)snprintf(text, size,
                   unit == 0      ? "%.0f%c"
                   : value < 9.95 ? "%.1f%c"
                                  : "%.0f%c",
                   value, units[unit]);
    return text;
}

#define SHORT(bytes) short_size((bytes), (char[32]){0}, 32)

/* ---- the list ---------------------------------------------------------------------------- */

typedef enum column {
    PID,
    RANK,
    LIVE,
    RESERVED,
    PEAK,
    HOST,
    DEVICE,
    SHARED,
    ALLOCATIONS,
    COMMANDS,
    DEPTH,
    USE,
    SPILL,
    COLUMNS
} column;

static const struct {
    const char *title;
    unsigned    width;
    unsigned    from; /* the narrowest terminal that has it */
    bool        is_sampled;
} columns[COLUMNS] = {
    [PID]         = {"PID", 7, 0, false},
    [RANK]        = {"RANK", 5, 60, false},
    [LIVE]        = {"LIVE", 6, 0, false},
    [RESERVED]    = {"HELD", 6, 36, false},
    [PEAK]        = {"PEAK", 6, 50, false},
    [HOST]        = {"HOST", 6, 72, false},
    [DEVICE]      = {"DEVICE", 6, 72, false},
    [SHARED]      = {"SHARED", 6, 72, false},
    [ALLOCATIONS] = {"ALLOC/s", 8, 80, true},
    [COMMANDS]    = {"CMD/s", 7, 90, true},
    [DEPTH]       = {"DEPTH", 6, 98, true},
    [USE]         = {"USE", 4, 104, true},
    [SPILL]       = {"SPILL/s", 8, 112, true},
};

void top_put_title(usm__out *o, const top_model *m, unsigned width)
{
    uint64_t live = 0, reserved = 0;
    char     left_out[48] = "";

    for (size_t i = 0; i < m->n; i++) {
        live += m->list[i]->sums.live;
        reserved += m->list[i]->sums.reserved;
    }
    if (m->left_out)
        (void)snprintf(left_out, sizeof left_out, ", %zu more are not shown", m->left_out);
    put_line(o, width, "usm-top: %zu %s, live %s of %s taken from drivers%s", m->n,
             usm__plural(m->n, "process", "processes"), USM__SIZE_TEXT(live),
             USM__SIZE_TEXT(reserved), left_out);
}

void top_put_head(usm__out *o, const top_model *m, unsigned width)
{
    char   line[LINE] = "";
    size_t n          = 0;

    (void)m;
    for (int i = 0; i < COLUMNS; i++)
        if (width >= columns[i].from)
            n += (size_t)snprintf(line + n, sizeof line - n, "%*s ", (int)columns[i].width,
                                  columns[i].title);
    put_line(o, width, "%sPROGRAM", line);
}

static const char *use_text(double use, char *text, size_t size)
{
    if (use < 0)
        (void)snprintf(text, size, "-");
    else
        (void)snprintf(text, size, "%.0f%%", 100 * use);
    return text;
}

/* "12M+": there may be more. */
static const char *size_of(const top_process *p, uint64_t bytes, char *text, size_t size)
{
    (void)snprintf(text, size, "%s%s", SHORT(bytes), p->is_sampled ? "" : "+");
    return text;
}

static const char *value_of(const top_process *p, column c, char *text, size_t size)
{
    const top_sums *s = &p->sums;

    if (columns[c].is_sampled && !p->is_sampled)
        return "-";
    switch (c) {
    case PID:
        (void)snprintf(text, size, "%u", p->pid);
        return text;
    case RANK:
        (void)snprintf(text, size, p->now.ranks > 0 ? "%u" : "-", p->now.rank);
        return text;
    case LIVE:
        return size_of(p, s->live, text, size);
    case RESERVED:
        return short_size(s->reserved, text, size);
    case PEAK:
        return short_size(s->reserved_peak, text, size);
    case HOST:
    case DEVICE:
    case SHARED:
        return size_of(p, s->by_kind[c - HOST + 1], text, size);
    case ALLOCATIONS:
        return rate_text(s->allocations_rate, text, size);
    case COMMANDS:
        return rate_text(s->commands_rate, text, size);
    case DEPTH:
        return rate_text((double)s->depth, text, size);
    case USE:
        return use_text(s->most_use, text, size);
    case SPILL:
        return short_size((uint64_t)(s->read_rate + s->written_rate), text, size);
    case COLUMNS:
        break;
    }
    return "";
}

/* The tag that grew most; without one the pool. */
static const char *what_grows(const top_process *p, char *text, size_t size)
{
    const char *name = NULL;
    uint64_t    most = 0;

    for (size_t i = 0; i < USM__MONITOR_POOLS; i++)
        if (top_is_pool(&p->now.pools[i]) && p->pools[i].is_growing && p->pools[i].grown > most) {
            name = p->now.pools[i].name;
            most = p->pools[i].grown;
        }
    most = 0;
    for (uint32_t i = 0; i < p->now.ntags; i++)
        if (p->tags[i].is_growing && p->tags[i].grown > most) {
            name = p->now.tags[i].name;
            most = p->tags[i].grown;
        }
    text[0] = '\0';
    if (name)
        (void)snprintf(text, size, GROWS "%s", name);
    return text;
}

void top_put_row(usm__out *o, const top_process *p, unsigned width)
{
    char   line[LINE] = "", text[32], grown[USM__MONITOR_TEXT + sizeof GROWS];
    size_t n          = 0;

    if (p->is_refused) {
        put_line(o, width, "%7u %s", p->pid, p->why);
        return;
    }
    for (int i = 0; i < COLUMNS; i++)
        if (width >= columns[i].from)
            n += (size_t)snprintf(line + n, sizeof line - n, "%*s ", (int)columns[i].width,
                                  value_of(p, (column)i, text, sizeof text));
    put_line(o, width, "%s%s%s", line, p->now.program, what_grows(p, grown, sizeof grown));
}

/* ---- details ------------------------------------------------------------------------------ */

/* [|||||:::    '   ] : used, held, and the most there was, of `whole`. */
static const char *bar(char *text, unsigned width, uint64_t used, uint64_t held, uint64_t peak,
                       uint64_t whole)
{
    double scale   = whole > 0 ? (double)width / (double)whole : 0;
    double at_peak = (double)peak * scale; /* rounding may put it a little behind the end */

    for (unsigned i = 0; i < width; i++) {
        double at = (double)i;

        text[i] = ' ';
        if (at < (double)held * scale)
            text[i] = ':';
        if (at < (double)used * scale)
            text[i] = '|';
    }
    if (peak > held && at_peak >= 1)
        text[at_peak < (double)width ? (unsigned)at_peak - 1 : width - 1] = '\'';
    text[width] = '\0';
    return text;
}

static unsigned bar_width(unsigned width)
{
    return width < 56 ? 10 : width < 80 ? 20 : width < 120 ? 30 : 40;
}

static const char *grows(const top_growth *g, char *text, size_t size)
{
    if (!g->is_growing)
        return "";
    (void)snprintf(text, size, GROWS "+%s in %u %s", SHORT(g->grown), g->rises,
                   usm__plural(g->rises, "sample", "samples"));
    return text;
}

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {"?", "host", "device", "shared"};

    return names[kind < 4 ? kind : 0];
}

static void put_pool(usm__out *o, const top_process *p, size_t i, uint64_t whole, unsigned width)
{
    const usm__monitor_pool *pool = &p->now.pools[i];
    uint64_t                 held = top_load(&pool->held.reserved);
    uint64_t                 peak = top_load(&pool->held.reserved_peak);
    uint64_t                 live = p->is_sampled ? pool->live : top_least(pool);
    char                     text[64], grown[64], used[40];

    (void)bar(text, bar_width(width), live, held, peak, whole);
    (void)size_of(p, live, used, sizeof used);
    if (width < 56)
        put_line(o, width, "  %-6s [%s] %s/%s", kind_name(pool->kind), text, used, SHORT(held));
    else
        put_line(o, width, "  %-6s %-8s [%s] %5s/%-5s peak %-5s %s%s", kind_name(pool->kind),
                 pool->name, text, used, SHORT(held), SHORT(peak), pool->device,
                 grows(&p->pools[i], grown, sizeof grown));
}

static void put_pools(usm__out *o, const top_process *p, unsigned width)
{
    uint64_t whole = 1;
    size_t   n     = 0;

    for (size_t i = 0; i < USM__MONITOR_POOLS; i++)
        if (top_is_pool(&p->now.pools[i]) && top_load(&p->now.pools[i].held.reserved_peak) > whole)
            whole = top_load(&p->now.pools[i].held.reserved_peak);
    put_line(o, width, "pools: | live, : held, ' most ever held; the widest is %s",
             USM__SIZE_TEXT(whole));
    for (size_t i = 0; i < USM__MONITOR_POOLS; i++)
        if (top_is_pool(&p->now.pools[i]) && ++n)
            put_pool(o, p, i, whole, width);
    if (n == 0)
        put_line(o, width, "  none");
}

static void put_tags(usm__out *o, const top_process *p, unsigned width)
{
    uint64_t whole = 1;
    char     text[64], grown[64];

    if (p->now.ntags == 0)
        return;
    put_line(o, width, "tags:");
    for (uint32_t i = 0; i < p->now.ntags; i++)
        whole = p->now.tags[i].live_peak > whole ? p->now.tags[i].live_peak : whole;
    for (uint32_t i = 0; i < p->now.ntags; i++) {
        const usm__monitor_tag *t = &p->now.tags[i];

        (void)bar(text, bar_width(width), t->live, t->live, t->live_peak, whole);
        put_line(o, width, "  %-15.15s [%s] %5s peak %-5s %llu %s%s", t->name, text, SHORT(t->live),
                 SHORT(t->live_peak), (unsigned long long)t->blocks,
                 usm__plural(t->blocks, "block", "blocks"),
                 grows(&p->tags[i], grown, sizeof grown));
    }
}

/* Names make room for figures. */
static int name_width(unsigned width)
{
    return width < 56 ? 8 : 15;
}

/* " use 34%, 12 in flight of 4711 commands"; "" of what has no queues. */
static const char *work_text(const top_process *p, uint32_t i, char *text, size_t size)
{
    const usm__monitor_device *d = &p->now.devices[i];
    char                       use[16];

    text[0] = '\0';
    if (top_has_queues(d))
        (void)snprintf(text, size, " use %s, %llu in flight of %llu commands,",
                       use_text(p->sums.use[i], use, sizeof use), (unsigned long long)d->depth,
                       (unsigned long long)d->commands);
    return text;
}

static void put_devices(usm__out *o, const top_process *p, unsigned width)
{
    char text[64], limit[48], work[96];

    for (uint32_t i = 0; i < p->now.ndevices; i++) {
        const usm__monitor_device *d     = &p->now.devices[i];
        uint64_t                   whole = d->limit ? d->limit : d->memory;

        limit[0] = '\0';
        if (d->limit)
            (void)snprintf(limit, sizeof limit, " limit %s", SHORT(d->limit));
        if (i == 0)
            put_line(o, width, "devices:");
        (void)bar(text, bar_width(width), d->reserved, d->reserved, 0, whole);
        put_line(o, width, "  %-*.*s [%s] %5s/%-5s%s%s %s", name_width(width), name_width(width),
                 d->term, text, SHORT(d->reserved), whole ? SHORT(whole) : "?", limit,
                 work_text(p, i, work, sizeof work), d->name);
    }
}

static void put_queues(usm__out *o, const top_process *p, unsigned width)
{
    char     text[64];
    uint64_t whole = 1;

    for (uint32_t i = 0; i < p->now.nqueues; i++)
        if (p->now.queues[i].depth_peak != USM__MONITOR_UNKNOWN &&
            p->now.queues[i].depth_peak > whole)
            whole = p->now.queues[i].depth_peak;
    if (p->now.nqueues > 0)
        put_line(o, width, "queues: | commands in flight, ' the most in a sample");
    for (uint32_t i = 0; i < p->now.nqueues; i++) {
        const usm__monitor_queue *q        = &p->now.queues[i];
        bool                      is_known = q->depth != USM__MONITOR_UNKNOWN;

        (void)bar(text, bar_width(width), is_known ? q->depth : 0, is_known ? q->depth : 0,
                  is_known ? q->depth_peak : 0, whole);
        put_line(o, width, "  %-*.*s [%s] %s in flight, most %s, %llu submitted, queue %llu",
                 name_width(width), name_width(width),
                 q->device < p->now.ndevices ? p->now.devices[q->device].term : "?", text,
                 is_known ? RATE_TEXT((double)q->depth) : "?",
                 is_known ? RATE_TEXT((double)q->depth_peak) : "?",
                 (unsigned long long)q->submitted, (unsigned long long)q->serial);
    }
}

static const top_strip *strip_of(const top_process *p, const usm__monitor_launch *l)
{
    for (uint32_t i = 0; i < USM__MONITOR_LAUNCHES; i++)
        if (p->strips[i].start_ns == l->start_ns)
            return &p->strips[i];
    return NULL;
}

static void put_member(usm__out *o, const top_process *p, const usm__monitor_launch *l, uint32_t i,
                       unsigned width)
{
    const usm__monitor_member *m     = &l->members[i];
    const top_strip           *strip = strip_of(p, l);
    unsigned                   shown = bar_width(width) < TOP_MARKS ? bar_width(width) : TOP_MARKS;

    put_line(o, width, "    %-13.13s {%s} %3.0f%% of it in %llu %s, %u under way", m->name,
             strip ? strip->marks[i] + TOP_MARKS - shown : "",
             l->total ? 100.0 * (double)m->items / (double)l->total : 0,
             (unsigned long long)m->chunks, usm__plural(m->chunks, "chunk", "chunks"),
             m->under_way);
}

/* Seconds until its end, at the pace it had so far; "" if that is not known. */
static const char *left_text(const top_process *p, const usm__monitor_launch *l, char *text,
                             size_t size)
{
    double took =
        p->now.sampled_ns > l->start_ns ? (double)(p->now.sampled_ns - l->start_ns) * 1e-9 : 0;

    text[0] = '\0';
    if (l->done > 0 && l->done < l->total)
        (void)snprintf(text, size, ", %.1f s so far, %.1f s left", took,
                       took * (double)(l->total - l->done) / (double)l->done);
    return text;
}

static void put_launches(usm__out *o, const top_process *p, unsigned width)
{
    char text[64], left[96];

    if (p->now.nlaunches > 0)
        put_line(o, width,
                 "launches: members busy in { }, a mark for each sample: - = # for thirds");
    for (uint32_t i = 0; i < p->now.nlaunches; i++) {
        const usm__monitor_launch *l = &p->now.launches[i];

        (void)bar(text, bar_width(width), l->done, l->done, 0, l->total);
        put_line(o, width, "  %-15.15s [%s] %s%.0f%%%s", l->kernel, text,
                 l->nmembers == 0 ? "over ranks, " : "",
                 l->total ? 100.0 * (double)l->done / (double)l->total : 100,
                 l->is_over ? ", over" : left_text(p, l, left, sizeof left));
        for (uint32_t k = 0; k < l->nmembers; k++)
            put_member(o, p, l, k, width);
    }
}

static void put_spill(usm__out *o, const top_process *p, unsigned width)
{
    const usm__monitor_spill *s = &p->now.spill;
    char                      text[64];

    if (!p->now.has_spill)
        return;
    (void)bar(text, bar_width(width), s->pinned, s->resident, s->resident_peak,
              s->limit ? s->limit : s->resident_peak);
    put_line(o, width, "buffers: | pinned, : in memory, ' most ever");
    put_line(o, width, "  %-15s [%s] %5s/%-5s %llu misses, read %s/s, written %s/s", "memory", text,
             SHORT(s->resident), s->limit ? SHORT(s->limit) : "-", (unsigned long long)s->misses,
             SHORT((uint64_t)p->sums.read_rate), SHORT((uint64_t)p->sums.written_rate));
    for (uint32_t i = 0; i < p->now.ntiers; i++) {
        const usm__monitor_tier *t        = &p->now.tiers[i];
        bool                     is_known = t->capacity != UINT64_MAX;

        (void)bar(text, bar_width(width), t->used, t->used, 0, is_known ? t->capacity : t->used);
        put_line(o, width, "  %-15.15s [%s] %5s/%-5s read %s, written %s, %llu errors", t->name,
                 text, SHORT(t->used), is_known ? SHORT(t->capacity) : "?", SHORT(t->read),
                 SHORT(t->written), (unsigned long long)t->errors);
    }
}

void top_put_details(usm__out *o, const top_process *p, unsigned width)
{
    char rank[48] = "";

    if (p->is_refused) {
        put_line(o, width, "process %u: %s", p->pid, p->why);
        return;
    }
    if (p->now.ranks > 0)
        (void)snprintf(rank, sizeof rank, ", rank %u of %u", p->now.rank, p->now.ranks);
    put_line(o, width, "process %u, %s on %s%s", p->pid, p->now.program, p->now.host, rank);
    if (!p->is_sampled)
        put_line(o, width, "  has made no call of libusm since it is watched: + means at least");
    put_pools(o, p, width);
    if (!p->is_sampled)
        return;
    put_launches(o, p, width);
    put_tags(o, p, width);
    put_devices(o, p, width);
    put_queues(o, p, width);
    put_spill(o, p, width);
    if (p->now.left_out)
        put_line(o, width, "  %u more tags, devices or queues found no room in the page",
                 p->now.left_out);
}
