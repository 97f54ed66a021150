/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page's tables: the numbers of analyse.h as JSON.  A table is {title, note, columns, rows}; a
 * column is [name, unit], and the page knows how to format each unit. */
#include "profile/export_tables.h"

#include "base/inline/plural.h"
#include "base/text.h"
#include "profile/analyse.h"
#include "profile/symbols.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define ROWS_MAX   200u
#define FRAMES_MAX 16u

static double mean_life(const usm__usage *u)
{
    return u->ended ? u->life_ns / (double)u->ended : NAN;
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : NAN;
}

/* Each row but the first begins a line. */
static void row_begin(usm__json *j, const char *name, size_t size, bool is_first)
{
    if (!is_first)
        usm__json_line(j);
    usm__json_array_begin(j, NULL);
    usm__json_text_max(j, NULL, name, size);
}

/* Numbers that there are not are NAN, and become null. */
static void write_row(usm__json *j, const char *name, size_t size, bool is_first,
                      const double *cells, size_t n)
{
    row_begin(j, name, size, is_first);
    for (size_t i = 0; i < n; i++)
        usm__json_real(j, NULL, cells[i], 10);
    usm__json_array_end(j);
}

#define ROW(j, name, is_first, ...)                                                                \
    write_row((j), (name), sizeof(name), (is_first), (const double[]){__VA_ARGS__},                \
              sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

typedef struct column {
    const char *name, *unit;
} column;

static void write_column(usm__json *j, const char *name, const char *unit)
{
    usm__json_array_begin(j, NULL);
    usm__json_text(j, NULL, name);
    usm__json_text(j, NULL, unit);
    usm__json_array_end(j);
}

/* The first column is a text; the others end with a NULL. */
static void table_begin(usm__json *j, const char *title, const char *note, const char *first,
                        const column *columns)
{
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "title", title);
    usm__json_text(j, "note", note);
    usm__json_array_begin(j, "columns");
    write_column(j, first, "text");
    for (; columns->name; columns++)
        write_column(j, columns->name, columns->unit);
    usm__json_array_end(j);
    usm__json_array_begin(j, "rows");
}

static void table_end(usm__json *j)
{
    usm__json_array_end(j);
    usm__json_object_end(j);
}

/* Sizes, call sites and tags have the same columns. */
static void write_usages(usm__json *j, const usm__usages *usages)
{
    for (size_t i = 0; i < usages->n && i < ROWS_MAX; i++) {
        const usm__usage *u = &usages->rows[i];

        ROW(j, u->name, i == 0, (double)u->allocations, (double)u->bytes,
            share(u->hits, u->allocations), (double)u->hits, mean_life(u), (double)u->live_peak,
            (double)u->live);
    }
    table_end(j);
}

static void write_pools(usm__json *j, const usm__analysis *a)
{
    static const column columns[] = {
        {"allocations", "count"},
        {"reused", "percent"},
        {"driver calls", "count"},
        {"time in them", "duration"},
        {"calls avoided", "count"},
        {"time saved", "duration"},
        {"live, highest", "bytes"},
        {"reserved, highest", "bytes"},
        {"fragmentation", "percent"},
        {"caches", "bytes"},
        {NULL, NULL},
    };

    table_begin(
        j, "Pools",
        "Avoided: calls that a driver asked for each block would have had. Fragmentation: the "
        "share of what was reserved at its peak that was not live then. Caches: the most that "
        "those of threads could hold.",
        "pool", columns);
    for (size_t i = 0; i < a->npools; i++) {
        const usm__profile_pool *p = &a->pools[i];

        ROW(j, p->u.name, i == 0, (double)p->u.allocations, share(p->u.hits, p->u.allocations),
            (double)(p->takes + p->gives + p->refused), (double)p->driver_ns, (double)p->avoided,
            (double)p->avoided_ns, (double)p->u.live_peak, (double)p->reserved_peak,
            p->reserved_peak > p->live_then
                ? share(p->reserved_peak - p->live_then, p->reserved_peak)
                : 0.0,
            (double)p->caches_peak);
    }
    table_end(j);
}

static void write_spill_buffers(usm__json *j, const usm__profile_spill_usages *u)
{
    static const column columns[] = {
        {"waits", "count"},   {"waited", "duration"}, {"median", "duration"},
        {"p99", "duration"},  {"in", "bytes"},        {"of it ahead", "percent"},
        {"out", "bytes"},     {"guesses", "count"},   {"wasted", "percent"},
        {"evicted", "count"}, {"dirty", "percent"},   {"pinned", "duration"},
        {NULL, NULL},
    };

    table_begin(j, "Spilling by buffer",
                "Waits: accesses that waited. Pinned: while others waited for memory. Hits are not "
                "recorded.",
                "buffer", columns);
    for (size_t i = 0; i < u->nbuffers && i < ROWS_MAX; i++) {
        const usm__profile_spill_buffer *b       = &u->buffers[i];
        uint64_t                         evicted = b->evicted_clean + b->evicted_dirty;

        ROW(j, b->name, i == 0, (double)b->waits.n, (double)b->waits.sum_ns,
            (double)b->waits.p50_ns, (double)b->waits.p99_ns, (double)b->in,
            share(b->in_ahead, b->in), (double)b->out, (double)(b->used + b->wasted),
            share(b->wasted, b->used + b->wasted), (double)evicted,
            share(b->evicted_dirty, evicted), (double)b->pinned_ns);
    }
    table_end(j);
}

static void write_spill_tiers(usm__json *j, const usm__profile_spill_usages *u)
{
    static const column columns[] = {
        {"reads", "count"},      {"in", "bytes"},      {"median", "duration"},
        {"p99", "duration"},     {"writes", "count"},  {"out", "bytes"},
        {"median ", "duration"}, {"p99 ", "duration"}, {NULL, NULL},
    };

    table_begin(j, "Tiers", "Times of transfers.", "tier", columns);
    for (size_t i = 0; i < u->ntiers; i++) {
        const usm__profile_spill_tier *t = &u->tiers[i];

        ROW(j, t->name, i == 0, (double)t->reads.n, (double)t->in, (double)t->reads.p50_ns,
            (double)t->reads.p99_ns, (double)t->writes.n, (double)t->out, (double)t->writes.p50_ns,
            (double)t->writes.p99_ns);
    }
    table_end(j);
}

static void name_device(const usm__profile *t, const usm__profile_work_device *d, char *name,
                        size_t size)
{
    if (t->nsources > 1)
        snprintf(name, size, "%s of process %" PRIu32, d->name, t->sources[d->source].header.pid);
    else
        snprintf(name, size, "%s", d->name);
}

static void write_queues(usm__json *j, const usm__profile *t, const usm__profile_work_usages *u)
{
    static const column columns[] = {
        {"commands", "count"}, {"computes", "duration"}, {"copies", "duration"}, {"bytes", "bytes"},
        {NULL, NULL},
    };
    size_t n = 0;

    table_begin(j, "Queues of the program",
                "Commands of another runtime. Copies: fills and maps as well.", "queue", columns);
    for (size_t i = 0; i < u->ndevices && n < ROWS_MAX; i++) {
        const usm__profile_work_device *d = &u->devices[i];
        char                            name[100];

        if (d->commands == 0)
            continue;
        name_device(t, d, name, sizeof name);
        ROW(j, name, n++ == 0, (double)d->commands, (double)d->kernel_ns, (double)d->copy_ns,
            (double)d->bytes_in);
    }
    table_end(j);
}

static void write_work(usm__json *j, const usm__profile *t, const usm__profile_work_usages *u)
{
    static const column columns[] = {
        {"chunks", "count"},     {"failed", "count"},     {"indices", "count"},
        {"computes", "percent"}, {"copies", "percent"},   {"hidden", "percent"},
        {"in", "bytes"},         {"out", "bytes"},        {"idle", "percent"},
        {"gaps", "count"},       {"longest", "duration"}, {NULL, NULL},
    };
    size_t n = 0;

    table_begin(j, "Devices in split launches",
                "Shares of the time that launches were under way. Hidden: copies while a kernel "
                "ran. Idle: neither a kernel nor a copy.",
                "device", columns);
    for (size_t i = 0; i < u->ndevices && n < ROWS_MAX; i++) {
        const usm__profile_work_device *d = &u->devices[i];
        char                            name[100];

        if (d->commands > 0)
            continue;
        name_device(t, d, name, sizeof name);
        ROW(j, name, n++ == 0, (double)d->chunks, (double)d->failed, (double)d->items,
            share(d->kernel_ns, d->launched_ns), share(d->copy_ns, d->launched_ns),
            share(d->hidden_ns, d->copy_ns), (double)d->bytes_in, (double)d->bytes_out,
            share(d->idle_ns, d->launched_ns), (double)d->ngaps, (double)d->longest_ns);
    }
    table_end(j);
}

static void write_energy(usm__json *j, const usm__profile *t, const usm__profile_energy *e)
{
    static const column columns[] = {
        {"mJ measured", "count"}, {"mJ by USM_WATTS", "count"}, {NULL, NULL}};
    char about[160], name[140];

    (void)snprintf(
        about, sizeof about,
        "What kernels used on each device. The host's packages, while its processors had "
        "no launch: %.3f J.",
        (double)e->idle / 1e6);
    table_begin(j, "Energy of launches", about, "kernel", columns);
    for (size_t i = 0; i < e->n && i < ROWS_MAX; i++) {
        const usm__profile_energy_row *r  = &e->rows[i];
        double                         mj = (double)r->microjoules / 1e3;

        (void)snprintf(name, sizeof name, "%s on %s", usm__profile_work_kernel_name(t, r->kernel),
                       usm__profile_work_member_name(t, r->member));
        ROW(j, name, i == 0, r->is_stated ? NAN : mj, r->is_stated ? mj : NAN);
    }
    table_end(j);
}

static void write_tables(usm__json *j, const usm__profile *t, const usm__analysis *a)
{
    static const column columns[] = {
        {"allocations", "count"},      {"bytes asked for", "bytes"},
        {"reused", "percent"},         {"without the driver", "count"},
        {"mean lifetime", "duration"}, {"live, highest", "bytes"},
        {"live at the end", "bytes"},  {NULL, NULL},
    };

    usm__json_line(j);
    usm__json_array_begin(j, "tables");
    table_begin(j, "Reuse by size",
                "Reused: served without a driver call of the thread that asked. Lifetimes are of "
                "blocks that were freed.",
                "size", columns);
    write_usages(j, &a->classes);
    usm__json_line(j);
    table_begin(j, "Call sites", "Estimates from sampled stacks.", "call site", columns);
    write_usages(j, &a->sites);
    usm__json_line(j);
    table_begin(j, "Tags", "", "tag", columns);
    write_usages(j, &a->tags);
    usm__json_line(j);
    write_pools(j, a);
    if (a->spill.nevents) {
        usm__json_line(j);
        write_spill_buffers(j, &a->spill);
        usm__json_line(j);
        write_spill_tiers(j, &a->spill);
    }
    if (a->work.ndevices > a->work.nqueues) {
        usm__json_line(j);
        write_work(j, t, &a->work);
    }
    if (a->energy.n) {
        usm__json_line(j);
        write_energy(j, t, &a->energy);
    }
    if (a->work.nqueues) {
        usm__json_line(j);
        write_queues(j, t, &a->work);
    }
    usm__json_array_end(j);
}

/* ---- the summary ---------------------------------------------------------------------- */

typedef struct facts {
    usm__json           *j;
    const usm__profile  *t;
    const usm__analysis *a;
    bool                 any;
} facts;

static void fact(facts *f, const char *name, const char *value, const char *note)
{
    row_begin(f->j, name, SIZE_MAX, !f->any);
    usm__json_text_max(f->j, NULL, value, 64);
    usm__json_text_max(f->j, NULL, note, 128);
    usm__json_array_end(f->j);
    f->any = true;
}

/* Returns text. */
static const char *duration(double ns, char *text, size_t size)
{
    if (ns < 1e6)
        snprintf(text, size, "%.3g \302\265s", ns / 1e3);
    else if (ns < 1e9)
        snprintf(text, size, "%.3g ms", ns / 1e6);
    else
        snprintf(text, size, "%.4g s", ns / 1e9);
    return text;
}

/* Sums over all pools. */
typedef struct sum {
    uint64_t *reserved; /* by pool, the last value seen */
    uint64_t  now, peak;
} sum;

static void add_up(void *user, uint32_t record, uint32_t pool, const usm__profile_level *levels)
{
    sum *s = user;

    (void)record;
    s->now += levels[pool].reserved - s->reserved[pool];
    s->reserved[pool] = levels[pool].reserved;
    if (s->now > s->peak)
        s->peak = s->now;
}

static int memory_facts(facts *f, const usm__profile_blocks *found)
{
    sum  s = {.reserved = calloc(f->t->npools + 1, sizeof *s.reserved)};
    char value[64], note[128] = "";
    int  status = s.reserved ? usm__profile_walk(f->t, found, add_up, &s) : ENOMEM;

    free(s.reserved);
    if (status)
        return status;
    snprintf(note, sizeof note, "in %" PRIu64 " blocks at most", f->a->all.blocks_peak);
    fact(f, "Live, highest", usm__format_bytes(f->a->all.live_peak, value, sizeof value), note);
    note[0] = '\0';
    if (f->a->all.live_peak)
        snprintf(note, sizeof note, "%.2f times that",
                 (double)s.peak / (double)f->a->all.live_peak);
    fact(f, "Reserved, highest", usm__format_bytes(s.peak, value, sizeof value), note);
    return 0;
}

static void call_facts(facts *f)
{
    const usm__analysis *a = f->a;
    char                 value[64], note[128], time[64];

    snprintf(value, sizeof value, "%" PRIu64, a->all.allocations);
    snprintf(note, sizeof note, "%" PRIu64 " freed, %" PRIu64 " out of memory", a->all.ended,
             a->all.failed);
    fact(f, "Allocations", value, note);
    snprintf(value, sizeof value, "%.1f %%", usm__percent(a->all.hits, a->all.allocations));
    fact(f, "Reused", value, "served without a driver call");
    snprintf(value, sizeof value, "%" PRIu64, a->takes + a->gives);
    snprintf(note, sizeof note, "%s in them", duration((double)a->driver_ns, time, sizeof time));
    fact(f, "Driver calls", value, note);
    snprintf(value, sizeof value, "%" PRIu64, a->avoided);
    snprintf(note, sizeof note, "would have cost %s",
             duration((double)a->avoided_ns, time, sizeof time));
    fact(f, "Driver calls avoided", value, note);
}

static void run_fact(facts *f)
{
    uint32_t threads = 0;
    char     value[64], note[128];

    for (size_t i = 0; i < f->t->nrecords; i++)
        if (f->t->records[i].thread > threads)
            threads = f->t->records[i].thread;
    snprintf(note, sizeof note, "%zu %s of %" PRIu32 " thread%s", f->t->nrecords,
             usm__plural(f->t->nrecords, "event", "events"), threads, threads == 1 ? "" : "s");
    fact(f, "Duration", duration((double)usm__profile_duration_ns(f->t), value, sizeof value),
         note);
}

static int write_summary(usm__json *j, const usm__profile *t, const usm__profile_blocks *found,
                         const usm__analysis *a)
{
    facts f = {.j = j, .t = t, .a = a};
    int   status;

    usm__json_line(j);
    usm__json_array_begin(j, "summary");
    status = memory_facts(&f, found);
    call_facts(&f);
    run_fact(&f);
    usm__json_array_end(j);
    usm__json_line(j);
    usm__json_array_begin(j, "advice");
    for (size_t i = 0; i < a->nadvice; i++)
        usm__json_text_max(j, NULL, a->advice[i], 2000);
    usm__json_array_end(j);
    return status;
}

/* ---- notices, stacks -------------------------------------------------------------------- */

static void write_notices(usm__json *j, const usm__profile *t, const usm__profile_blocks *found)
{
    char text[400];

    usm__json_line(j);
    usm__json_array_begin(j, "notices");
    if (t->damage[0]) {
        snprintf(text, sizeof text, "The trace is damaged and read as far as it goes: %.256s",
                 t->damage);
        usm__json_text(j, NULL, text);
    }
    if (t->lost) {
        snprintf(text, sizeof text,
                 "%" PRIu64
                 " events were lost because they came faster than they could be written: "
                 "levels are off by them. USM_TRACE_RING sets the size of a thread's ring.",
                 t->lost);
        usm__json_text(j, NULL, text);
    }
    if (!t->ended && !t->damage[0])
        usm__json_text(j, NULL, "The process did not end in order: its last events are missing.");
    if (found->unmatched) {
        snprintf(text, sizeof text, "%zu %s freed whose allocation is not in the trace.",
                 found->unmatched, usm__plural(found->unmatched, "block was", "blocks were"));
        usm__json_text(j, NULL, text);
    }
    usm__json_array_end(j);
}

/* Frames from the call site outwards. */
static void write_stack(usm__json *j, usm__symbols *s, const usm__profile_stack_info *stack)
{
    uint32_t first = usm__symbols_site(s, stack);
    char     name[320];

    for (uint32_t i = first; i < stack->depth && i < first + FRAMES_MAX; i++)
        usm__json_text_max(j, NULL,
                           usm__symbols_name(s, stack->source, stack->frames[i], name, sizeof name),
                           sizeof name);
}

static int write_stacks(usm__json *j, const usm__profile *t)
{
    usm__symbols *s = usm__symbols_open(t);

    if (!s)
        return ENOMEM;
    usm__json_line(j);
    usm__json_object_begin(j, "stacks");
    for (size_t i = 0; i < t->nstacks; i++) {
        char id[12];

        snprintf(id, sizeof id, "%" PRIu32, t->stacks[i].id);
        usm__json_array_begin(j, id);
        write_stack(j, s, &t->stacks[i]);
        usm__json_array_end(j);
    }
    usm__json_object_end(j);
    usm__symbols_close(s);
    return 0;
}

int usm__export_tables(usm__json *j, const usm__profile *t, const usm__profile_blocks *found)
{
    usm__analysis *a = NULL;
    int            status;

    if (usm__analyse(t, &a) != USM_OK)
        return ENOMEM;
    status = write_summary(j, t, found, a);
    write_tables(j, t, a);
    write_notices(j, t, found);
    usm__analysis_free(a);
    return status ? status : write_stacks(j, t);
}
