/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page's tables: the numbers of analyse.h as JSON.  A table is {title, note, columns, rows}; a
 * column is [name, unit], and the page knows how to format each unit. */
#include "profile/export_tables.h"

#include "base/inline/plural.h"
#include "base/text.h"
#include "profile/analyse.h"
#include "profile/out.h"
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

/* A cell: null if there is no such number. */
static void cell(FILE *out, double value)
{
    if (isnan(value))
        fputs(",null", out);
    else
        fprintf(out, ",%.10g", value);
}

static void name_cell(FILE *out, const usm__usage *u, bool first)
{
    fputs(first ? "[" : ",\n[", out);
    usm__out_json_text(out, u->name, sizeof u->name);
}

static void table_begin(FILE *out, const char *title, const char *note, const char *columns)
{
    fprintf(out, "{\"title\":\"%s\",\"note\":\"%s\",\"columns\":[%s],\"rows\":[", title, note,
            columns);
}

/* Sizes, call sites and tags have the same columns. */
static void write_usages(FILE *out, const usm__usages *usages)
{
    for (size_t i = 0; i < usages->n && i < ROWS_MAX; i++) {
        const usm__usage *u = &usages->rows[i];

        name_cell(out, u, i == 0);
        cell(out, (double)u->allocations);
        cell(out, (double)u->bytes);
        cell(out, share(u->hits, u->allocations));
        cell(out, (double)u->hits);
        cell(out, mean_life(u));
        cell(out, (double)u->live_peak);
        cell(out, (double)u->live);
        fputc(']', out);
    }
    fputs("]}", out);
}

static void write_pools(FILE *out, const usm__analysis *a)
{
    table_begin(
        out, "Pools",
        "Avoided: calls that a driver asked for each block would have had. Fragmentation: the "
        "share of what was reserved at its peak that was not live then.",
        "[\"pool\",\"text\"],[\"allocations\",\"count\"],[\"reused\",\"percent\"],"
        "[\"driver calls\",\"count\"],[\"time in them\",\"duration\"],"
        "[\"calls avoided\",\"count\"],[\"time saved\",\"duration\"],"
        "[\"live, highest\",\"bytes\"],[\"reserved, highest\",\"bytes\"],"
        "[\"fragmentation\",\"percent\"]");
    for (size_t i = 0; i < a->npools; i++) {
        const usm__pool_usage *p = &a->pools[i];

        name_cell(out, &p->u, i == 0);
        cell(out, (double)p->u.allocations);
        cell(out, share(p->u.hits, p->u.allocations));
        cell(out, (double)(p->takes + p->gives + p->refused));
        cell(out, (double)p->driver_ns);
        cell(out, (double)p->avoided);
        cell(out, (double)p->avoided_ns);
        cell(out, (double)p->u.live_peak);
        cell(out, (double)p->reserved_peak);
        cell(out, p->reserved_peak > p->live_then
                      ? share(p->reserved_peak - p->live_then, p->reserved_peak)
                      : 0.0);
        fputc(']', out);
    }
    fputs("]}", out);
}

static void write_spill_buffers(FILE *out, const usm__spill_usages *u)
{
    table_begin(out, "Spilling by buffer",
                "Waits: accesses that waited. Pinned: while others waited for memory. Hits are not "
                "recorded.",
                "[\"buffer\",\"text\"],[\"waits\",\"count\"],[\"waited\",\"duration\"],"
                "[\"median\",\"duration\"],[\"p99\",\"duration\"],[\"in\",\"bytes\"],"
                "[\"of it ahead\",\"percent\"],[\"out\",\"bytes\"],[\"guesses\",\"count\"],"
                "[\"wasted\",\"percent\"],[\"evicted\",\"count\"],[\"dirty\",\"percent\"],"
                "[\"pinned\",\"duration\"]");
    for (size_t i = 0; i < u->nbuffers && i < ROWS_MAX; i++) {
        const usm__spill_buffer *b       = &u->buffers[i];
        uint64_t                 evicted = b->evicted_clean + b->evicted_dirty;

        fputs(i ? ",\n[" : "[", out);
        usm__out_json_text(out, b->name, sizeof b->name);
        cell(out, (double)b->waits.n);
        cell(out, (double)b->waits.sum_ns);
        cell(out, (double)b->waits.p50_ns);
        cell(out, (double)b->waits.p99_ns);
        cell(out, (double)b->in);
        cell(out, share(b->in_ahead, b->in));
        cell(out, (double)b->out);
        cell(out, (double)(b->used + b->wasted));
        cell(out, share(b->wasted, b->used + b->wasted));
        cell(out, (double)evicted);
        cell(out, share(b->evicted_dirty, evicted));
        cell(out, (double)b->pinned_ns);
        fputc(']', out);
    }
    fputs("]}", out);
}

static void write_spill_tiers(FILE *out, const usm__spill_usages *u)
{
    table_begin(out, "Tiers", "Times of transfers.",
                "[\"tier\",\"text\"],[\"reads\",\"count\"],[\"in\",\"bytes\"],"
                "[\"median\",\"duration\"],[\"p99\",\"duration\"],[\"writes\",\"count\"],"
                "[\"out\",\"bytes\"],[\"median \",\"duration\"],[\"p99 \",\"duration\"]");
    for (size_t i = 0; i < u->ntiers; i++) {
        const usm__spill_tier *t = &u->tiers[i];

        fputs(i ? ",\n[" : "[", out);
        usm__out_json_text(out, t->name, sizeof t->name);
        cell(out, (double)t->reads.n);
        cell(out, (double)t->in);
        cell(out, (double)t->reads.p50_ns);
        cell(out, (double)t->reads.p99_ns);
        cell(out, (double)t->writes.n);
        cell(out, (double)t->out);
        cell(out, (double)t->writes.p50_ns);
        cell(out, (double)t->writes.p99_ns);
        fputc(']', out);
    }
    fputs("]}", out);
}

static void write_work(FILE *out, const usm__trace *t, const usm__work_usages *u)
{
    table_begin(out, "Devices in split launches",
                "Shares of the time that launches were under way. Hidden: copies while a kernel "
                "ran. Idle: neither a kernel nor a copy.",
                "[\"device\",\"text\"],[\"chunks\",\"count\"],"
                "[\"failed\",\"count\"],[\"indices\",\"count\"],[\"computes\",\"percent\"],"
                "[\"copies\",\"percent\"],[\"hidden\",\"percent\"],[\"in\",\"bytes\"],"
                "[\"out\",\"bytes\"],[\"idle\",\"percent\"],[\"gaps\",\"count\"],"
                "[\"longest\",\"duration\"]");
    for (size_t i = 0; i < u->ndevices && i < ROWS_MAX; i++) {
        const usm__work_device *d = &u->devices[i];
        char                    name[100];

        if (t->nsources > 1)
            snprintf(name, sizeof name, "%s of process %" PRIu32, d->name,
                     t->sources[d->source].header.pid);
        else
            snprintf(name, sizeof name, "%s", d->name);
        fputs(i ? ",\n[" : "[", out);
        usm__out_json_text(out, name, sizeof name);
        cell(out, (double)d->chunks);
        cell(out, (double)d->failed);
        cell(out, (double)d->items);
        cell(out, share(d->kernel_ns, d->launched_ns));
        cell(out, share(d->copy_ns, d->launched_ns));
        cell(out, share(d->hidden_ns, d->copy_ns));
        cell(out, (double)d->bytes_in);
        cell(out, (double)d->bytes_out);
        cell(out, share(d->idle_ns, d->launched_ns));
        cell(out, (double)d->ngaps);
        cell(out, (double)d->longest_ns);
        fputc(']', out);
    }
    fputs("]}", out);
}

static void write_tables(FILE *out, const usm__trace *t, const usm__analysis *a)
{
    static const char columns[] =
        "[\"allocations\",\"count\"],[\"bytes asked for\",\"bytes\"],[\"reused\",\"percent\"],"
        "[\"without the driver\",\"count\"],[\"mean lifetime\",\"duration\"],"
        "[\"live, highest\",\"bytes\"],[\"live at the end\",\"bytes\"]";
    char line[600];

    fputs(",\n\"tables\":[", out);
    snprintf(line, sizeof line, "[\"size\",\"text\"],%s", columns);
    table_begin(out, "Reuse by size",
                "Reused: served without a driver call of the thread that asked. Lifetimes are of "
                "blocks that were freed.",
                line);
    write_usages(out, &a->classes);
    fputs(",\n", out);
    snprintf(line, sizeof line, "[\"call site\",\"text\"],%s", columns);
    table_begin(out, "Call sites", "Estimates from sampled stacks.", line);
    write_usages(out, &a->sites);
    fputs(",\n", out);
    snprintf(line, sizeof line, "[\"tag\",\"text\"],%s", columns);
    table_begin(out, "Tags", "", line);
    write_usages(out, &a->tags);
    fputs(",\n", out);
    write_pools(out, a);
    if (a->spill.nevents) {
        fputs(",\n", out);
        write_spill_buffers(out, &a->spill);
        fputs(",\n", out);
        write_spill_tiers(out, &a->spill);
    }
    if (a->work.ndevices) {
        fputs(",\n", out);
        write_work(out, t, &a->work);
    }
    fputc(']', out);
}

/* ---- the summary ---------------------------------------------------------------------- */

typedef struct facts {
    FILE                *out;
    const usm__trace    *t;
    const usm__analysis *a;
    bool                 any;
} facts;

static void fact(facts *f, const char *name, const char *value, const char *note)
{
    fprintf(f->out, "%s[\"%s\",", f->any ? ",\n" : "", name);
    usm__out_json_text(f->out, value, 64);
    fputc(',', f->out);
    usm__out_json_text(f->out, note, 128);
    fputc(']', f->out);
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

static void add_up(void *user, uint32_t record, uint32_t pool, const usm__trace_level *levels)
{
    sum *s = user;

    (void)record;
    s->now += levels[pool].reserved - s->reserved[pool];
    s->reserved[pool] = levels[pool].reserved;
    if (s->now > s->peak)
        s->peak = s->now;
}

static int memory_facts(facts *f, const usm__trace_blocks *found)
{
    sum  s = {.reserved = calloc(f->t->npools + 1, sizeof *s.reserved)};
    char value[64], note[128] = "";
    int  status = s.reserved ? usm__trace_walk(f->t, found, add_up, &s) : ENOMEM;

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
    fact(f, "Duration", duration((double)usm__trace_duration_ns(f->t), value, sizeof value), note);
}

static int write_summary(FILE *out, const usm__trace *t, const usm__trace_blocks *found,
                         const usm__analysis *a)
{
    facts f = {.out = out, .t = t, .a = a};
    int   status;

    fputs(",\n\"summary\":[", out);
    status = memory_facts(&f, found);
    call_facts(&f);
    run_fact(&f);
    fputs("],\n\"advice\":[", out);
    for (size_t i = 0; i < a->nadvice; i++) {
        fputs(i ? "," : "", out);
        usm__out_json_text(out, a->advice[i], 2000);
    }
    fputc(']', out);
    return status;
}

/* ---- notices, stacks -------------------------------------------------------------------- */

static void notice(FILE *out, bool *any, const char *text)
{
    fputs(*any ? "," : "", out);
    usm__out_json_text(out, text, 400);
    *any = true;
}

static void write_notices(FILE *out, const usm__trace *t, const usm__trace_blocks *found)
{
    char text[400];
    bool any = false;

    fputs(",\n\"notices\":[", out);
    if (t->damage[0]) {
        snprintf(text, sizeof text, "The trace is damaged and read as far as it goes: %.256s",
                 t->damage);
        notice(out, &any, text);
    }
    if (t->lost) {
        snprintf(text, sizeof text,
                 "%" PRIu64
                 " events were lost because they came faster than they could be written: "
                 "levels are off by them. USM_TRACE_RING sets the size of a thread's ring.",
                 t->lost);
        notice(out, &any, text);
    }
    if (!t->ended && !t->damage[0])
        notice(out, &any, "The process did not end in order: its last events are missing.");
    if (found->unmatched) {
        snprintf(text, sizeof text, "%zu %s freed whose allocation is not in the trace.",
                 found->unmatched, usm__plural(found->unmatched, "block was", "blocks were"));
        notice(out, &any, text);
    }
    fputc(']', out);
}

/* Frames from the call site outwards. */
static void write_stack(FILE *out, usm__symbols *s, const usm__trace_stack_info *stack)
{
    uint32_t first = usm__symbols_site(s, stack);
    char     name[320];

    for (uint32_t i = first; i < stack->depth && i < first + FRAMES_MAX; i++) {
        fputs(i > first ? "," : "", out);
        usm__out_json_text(out,
                           usm__symbols_name(s, stack->source, stack->frames[i], name, sizeof name),
                           sizeof name);
    }
}

static int write_stacks(FILE *out, const usm__trace *t)
{
    usm__symbols *s = usm__symbols_open(t);

    if (!s)
        return ENOMEM;
    fputs(",\n\"stacks\":{", out);
    for (size_t i = 0; i < t->nstacks; i++) {
        fprintf(out, "%s\"%" PRIu32 "\":[", i ? "," : "", t->stacks[i].id);
        write_stack(out, s, &t->stacks[i]);
        fputc(']', out);
    }
    fputc('}', out);
    usm__symbols_close(s);
    return 0;
}

int usm__export_tables(FILE *out, const usm__trace *t, const usm__trace_blocks *found)
{
    usm__analysis *a = NULL;
    int            status;

    if (usm__analyse(t, &a) != USM_OK)
        return ENOMEM;
    status = write_summary(out, t, found, a);
    write_tables(out, t, a);
    write_notices(out, t, found);
    usm__analysis_free(a);
    return status ? status : write_stacks(out, t);
}
