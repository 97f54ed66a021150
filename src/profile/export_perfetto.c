/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A trace as Chrome's trace_event JSON, which ui.perfetto.dev and chrome://tracing open.
 *
 *     counters         of each pool: live, reserved and cached bytes
 *     threads' slices  driver calls with their duration; failed allocations as instants
 *     async slices     a block from its allocation to its free, named by its tag or its size
 *     spilling         transfers as async slices of their tier, waits as slices of their thread
 *     launches         chunks, kernels, copies and idle gaps as async slices of their device
 *     flow arrows      from the free of a block to the allocation that reuses its address
 *
 * Files stay small enough for a browser: of more than BLOCKS_MAX blocks those with the largest
 * bytes x time are written, and of levels the last and the highest in each of STEPS_MAX parts of
 * the run.  A mark at the start of the trace says so. */
#include "profile/blocks.h"
#include "profile/export.h"
#include "profile/out.h"
#include "profile/spill.h"
#include "profile/work.h"

#include "base/trace_work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define BLOCKS_MAX 50000u
#define FLOWS_MAX  5000u
#define STEPS_MAX  20000u
#define SPILLS_MAX 100000u
#define WORKS_MAX  100000u

typedef struct writer {
    FILE                    *out;
    const usm__trace        *t;
    const usm__trace_blocks *found;
    bool                     any; /* an event was written: the next needs a comma */
} writer;

/* ---- events ----------------------------------------------------------------------- */

/* Processes of several hosts may have the same number. */
static unsigned process_of(const writer *w, uint32_t source)
{
    return w->t->nsources > 1 ? source + 1 : w->t->header.pid;
}

/* {"ph":..,"pid":..,"ts":..,"name": without the name; ns, since the format counts in us. */
static void event(writer *w, char phase, const usm__trace_record *r, uint64_t time_ns)
{
    fprintf(w->out,
            "%s\n{\"ph\":\"%c\",\"pid\":%u,\"tid\":%" PRIu32 ",\"ts\":%" PRIu64 ".%03u,\"name\":",
            w->any ? "," : "", phase, process_of(w, r->source), r->thread, time_ns / 1000,
            (unsigned)(time_ns % 1000));
    w->any = true;
}

static void text(writer *w, const char *s, size_t max)
{
    usm__out_json_text(w->out, s, max);
}

/* Marks at the start of the run, for data that the file leaves out. */
static void mark(writer *w, const char *what)
{
    const usm__trace_record start = {.thread = 0};

    event(w, 'i', &start, 0);
    text(w, what, 400);
    fputs(",\"s\":\"g\"}", w->out);
}

/* ---- names ------------------------------------------------------------------------ */

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {"memory", "host", "device", "shared"};

    return kind < sizeof names / sizeof *names ? names[kind] : names[0];
}

static void pool_text(const writer *w, uint32_t id, char *buf, size_t size)
{
    const usm__trace_pool_info *p = usm__trace_find_pool(w->t, id);

    if (p)
        snprintf(buf, size, "pool %" PRIu32 ": %.32s %s%s%.64s", id, p->name, kind_name(p->kind),
                 p->device[0] ? ", " : "", p->device);
    else
        snprintf(buf, size, "pool %" PRIu32, id);
}

static void write_process(writer *w, uint32_t source)
{
    const usm__trace_header *h = &w->t->sources[source].header;
    const usm__trace_record  r = {.source = source};
    char                     name[400], rank[32] = "";

    if (h->rank >= 0)
        snprintf(rank, sizeof rank, "rank %" PRId32 ", ", h->rank);
    snprintf(name, sizeof name, "%.256s (%sprocess %" PRIu32 " on %.64s)", h->command, rank, h->pid,
             h->host);
    event(w, 'M', &r, 0);
    fputs("\"process_name\",\"args\":{\"name\":", w->out);
    text(w, name, sizeof name);
    fputs("}}", w->out);
}

static void write_thread(writer *w, const usm__trace_record *r)
{
    event(w, 'M', r, 0);
    fprintf(w->out, "\"thread_name\",\"args\":{\"name\":\"thread %" PRIu32 "\"}}", r->thread);
}

/* The thread and process of an event of spilling. */
static usm__trace_record record_of(const usm__trace_spill_record *s)
{
    return (usm__trace_record){.thread = s->thread, .source = s->source};
}

/* Threads are numbered from 1 over all processes; each is named at its first event. */
static int write_names(writer *w)
{
    uint32_t last = 0;
    bool    *seen;

    for (uint32_t i = 0; i < w->t->nsources; i++)
        write_process(w, i);
    for (size_t i = 0; i < w->t->nrecords; i++)
        last = w->t->records[i].thread > last ? w->t->records[i].thread : last;
    for (size_t i = 0; i < w->t->nspills; i++)
        last = w->t->spills[i].thread > last ? w->t->spills[i].thread : last;
    for (size_t i = 0; i < w->t->nworks; i++)
        last = w->t->works[i].thread > last ? w->t->works[i].thread : last;
    seen = calloc((size_t)last + 1, sizeof *seen);
    if (!seen)
        return ENOMEM;
    for (size_t i = 0; i < w->t->nrecords; i++) {
        const usm__trace_record *r = &w->t->records[i];

        if (!seen[r->thread])
            write_thread(w, r);
        seen[r->thread] = true;
    }
    for (size_t i = 0; i < w->t->nspills; i++) {
        const usm__trace_record r = record_of(&w->t->spills[i]);

        if (!seen[r.thread])
            write_thread(w, &r);
        seen[r.thread] = true;
    }
    for (size_t i = 0; i < w->t->nworks; i++) {
        const usm__trace_record r = {.thread = w->t->works[i].thread,
                                     .source = w->t->works[i].source};

        if (!seen[r.thread])
            write_thread(w, &r);
        seen[r.thread] = true;
    }
    free(seen);
    return 0;
}

/* ---- counters --------------------------------------------------------------------- */

/* The current part of the run for a pool: its last and its highest level there. */
typedef struct step {
    uint64_t         part;
    uint32_t         last_record, peak_record;
    usm__trace_level last, peak;
    bool             used;
} step;

typedef struct counters {
    writer  *w;
    uint64_t part_ns;
    step    *steps; /* by pool, npools + 1 */
} counters;

static void write_level(writer *w, uint32_t pool, uint32_t record, const usm__trace_level *l)
{
    const usm__trace_record *r = &w->t->records[record];
    char                     name[160];

    pool_text(w, pool, name, sizeof name);
    event(w, 'C', r, r->e.time_ns);
    text(w, name, sizeof name);
    fprintf(w->out,
            ",\"args\":{\"live\":%" PRIu64 ",\"reserved\":%" PRIu64 ",\"cached\":%" PRIu64 "}}",
            l->live, l->reserved, l->reserved > l->live ? l->reserved - l->live : 0);
}

static void end_step(counters *c, uint32_t pool)
{
    step *s = &c->steps[pool];

    if (!s->used)
        return;
    if (s->peak_record != s->last_record)
        write_level(c->w, pool, s->peak_record, &s->peak);
    write_level(c->w, pool, s->last_record, &s->last);
    s->used = false;
}

static void count_level(void *user, uint32_t record, uint32_t pool, const usm__trace_level *levels)
{
    counters *c    = user;
    step     *s    = &c->steps[pool];
    uint64_t  part = c->w->t->records[record].e.time_ns / c->part_ns;

    if (s->used && s->part != part)
        end_step(c, pool);
    if (!s->used || levels[pool].live > s->peak.live) {
        s->peak        = levels[pool];
        s->peak_record = record;
    }
    s->part        = part;
    s->last        = levels[pool];
    s->last_record = record;
    s->used        = true;
}

static int write_counters(writer *w)
{
    counters c = {.w = w, .part_ns = 1, .steps = calloc(w->t->npools + 1, sizeof *c.steps)};
    int      status;

    if (!c.steps)
        return ENOMEM;
    if (w->t->nrecords > STEPS_MAX)
        c.part_ns = usm__trace_duration_ns(w->t) / STEPS_MAX + 1;
    status = usm__trace_walk(w->t, w->found, count_level, &c);
    for (uint32_t pool = 0; !status && pool <= w->t->npools; pool++)
        end_step(&c, pool);
    free(c.steps);
    return status;
}

/* ---- driver calls, failures --------------------------------------------------------- */

static const char *call_name(uint32_t type)
{
    switch ((usm__trace_type)type) {
    case USM__EVENT_TAKE:
        return "take from driver";
    case USM__EVENT_GIVE:
        return "give to driver";
    case USM__EVENT_MAP:
        return "map";
    case USM__EVENT_UNMAP:
        return "unmap";
    case USM__EVENT_ALLOC:
    case USM__EVENT_FREE:
    case USM__EVENT_FAILED:
    default:
        return NULL;
    }
}

static void write_call(writer *w, const usm__trace_record *r)
{
    char     name[160];
    uint64_t end = r->e.time_ns, start = end > r->e.extra ? end - r->e.extra : 0;

    pool_text(w, r->e.pool, name, sizeof name);
    event(w, 'X', r, start);
    fprintf(w->out,
            "\"%s\",\"cat\":\"driver\",\"dur\":%" PRIu32 ".%03u,\"args\":{\"size\":%" PRIu64
            ",\"address\":\"0x%" PRIx64 "\",\"pool\":",
            call_name(r->e.type), r->e.extra / 1000, (unsigned)(r->e.extra % 1000), r->e.size,
            r->e.address);
    text(w, name, sizeof name);
    fprintf(w->out, "%s}}", r->e.address ? "" : ",\"refused\":true");
}

static void write_tag(writer *w, const usm__trace_record *r)
{
    if (r->e.tag == 0 || r->e.tag >= w->t->ntags)
        return;
    fputs(",\"tag\":", w->out);
    text(w, w->t->tags[r->e.tag], sizeof *w->t->tags);
}

static void write_failure(writer *w, const usm__trace_record *r)
{
    event(w, 'i', r, r->e.time_ns);
    fprintf(w->out, "\"out of memory\",\"s\":\"p\",\"args\":{\"size\":%" PRIu64, r->e.size);
    write_tag(w, r);
    fputs("}}", w->out);
}

static void write_calls(writer *w)
{
    for (size_t i = 0; i < w->t->nrecords; i++) {
        const usm__trace_record *r = &w->t->records[i];

        if (call_name(r->e.type))
            write_call(w, r);
        else if (r->e.type == USM__EVENT_FAILED)
            write_failure(w, r);
    }
}

/* ---- spilling --------------------------------------------------------------------- */

static void write_spill_args(writer *w, const usm__trace_spill_record *s)
{
    fputs(",\"args\":{\"buffer\":", w->out);
    text(w, usm__spill_space_name(w->t, s->space), 48);
    fprintf(w->out, ",\"block\":%" PRIu32 ",\"bytes\":%" PRIu64 "}", s->block, s->bytes);
}

/* Transfers overlap: each is a slice of its own on the track of its tier. */
static void write_transfer(writer *w, const usm__trace_spill_record *s, size_t id)
{
    const usm__trace_record r     = record_of(s);
    const char             *tier  = usm__spill_tier_name(w->t, s->tier);
    uint64_t                start = s->time_ns > s->ns ? s->time_ns - s->ns : 0;
    char                    name[100];

    snprintf(name, sizeof name, "%s %.64s", usm__spill_kind_name(s->kind), tier);
    event(w, 'b', &r, start);
    text(w, name, sizeof name);
    fprintf(w->out, ",\"cat\":\"spill\",\"id\":\"spill%zu\"", id);
    write_spill_args(w, s);
    fputc('}', w->out);
    event(w, 'e', &r, s->time_ns);
    text(w, name, sizeof name);
    fprintf(w->out, ",\"cat\":\"spill\",\"id\":\"spill%zu\"}", id);
}

static void write_wait(writer *w, const usm__trace_spill_record *s)
{
    const usm__trace_record r     = record_of(s);
    uint64_t                start = s->time_ns > s->ns ? s->time_ns - s->ns : 0;

    event(w, 'X', &r, start);
    fprintf(w->out, "\"wait for memory\",\"cat\":\"spill\",\"dur\":%" PRIu64 ".%03u", s->ns / 1000,
            (unsigned)(s->ns % 1000));
    write_spill_args(w, s);
    fputc('}', w->out);
}

static void write_spills(writer *w)
{
    for (size_t i = 0; i < w->t->nspills && i < SPILLS_MAX; i++) {
        const usm__trace_spill_record *s = &w->t->spills[i];

        if (s->kind >= USM__SPILL_FETCH && s->kind <= USM__SPILL_STORE_AHEAD)
            write_transfer(w, s, i);
        else if (s->kind == USM__SPILL_MISS)
            write_wait(w, s);
        else if (s->kind == USM__SPILL_FIRST)
            mark(w, "memory is full for the first time: blocks are spilled from here on");
    }
    if (w->t->nspills > SPILLS_MAX)
        mark(w, "only the first events of spilling are shown");
}

/* ---- launches over teams ------------------------------------------------------------ */

/* One slice on the track `name`; those of one track may overlap.  The caller writes its arguments
 * before write_slice_end(). */
static void write_slice(writer *w, const usm__trace_record *r, const char *name, uint64_t id)
{
    event(w, 'b', r, r->e.time_ns);
    text(w, name, 120);
    fprintf(w->out, ",\"cat\":\"work\",\"id\":\"work%" PRIu64 "\"", id);
}

static void write_slice_end(writer *w, const usm__trace_record *r, const char *name, uint64_t id)
{
    fputc('}', w->out);
    event(w, 'e', r, r->e.time_ns);
    text(w, name, 120);
    fprintf(w->out, ",\"cat\":\"work\",\"id\":\"work%" PRIu64 "\"}", id);
}

static void write_work(writer *w, const usm__trace_work_record *k, uint64_t id)
{
    usm__trace_record r       = {.thread = k->thread, .source = k->source};
    const char       *member  = usm__work_member_name(w->t, k->member);
    bool              is_copy = k->kind == USM__WORK_IN || k->kind == USM__WORK_OUT;
    char              name[120];

    snprintf(name, sizeof name, "%s%s%s", member, member[0] ? " " : "",
             usm__work_kind_name(k->kind));
    r.e.time_ns = usm__work_from(k);
    write_slice(w, &r, name, id);
    fputs(",\"args\":{\"kernel\":", w->out);
    text(w, usm__work_kernel_name(w->t, k->kernel), 64);
    fprintf(w->out, ",\"first\":%" PRIu64 ",\"%s\":%" PRIu64 "}", k->first,
            is_copy ? "bytes" : "indices", k->n);
    r.e.time_ns = k->time_ns;
    write_slice_end(w, &r, name, id);
}

static void write_gaps(writer *w, const usm__work_device *d, uint64_t id)
{
    usm__trace_record r = {.source = d->source};
    char              name[120];

    snprintf(name, sizeof name, "%s idle", d->name);
    for (size_t i = 0; i < d->ngaps && i < WORKS_MAX; i++) {
        r.e.time_ns = d->gaps[i].from;
        write_slice(w, &r, name, id + i);
        r.e.time_ns = d->gaps[i].to;
        write_slice_end(w, &r, name, id + i);
    }
}

static int write_works(writer *w)
{
    usm__work_usages u;
    bool             fine = usm__work_count(w->t, &u);
    uint64_t         id   = w->t->nworks;

    for (size_t i = 0; fine && i < w->t->nworks && i < WORKS_MAX; i++)
        write_work(w, &w->t->works[i], i);
    for (size_t i = 0; fine && i < u.ndevices; i++) {
        write_gaps(w, &u.devices[i], id);
        id += u.devices[i].ngaps;
    }
    if (w->t->nworks > WORKS_MAX)
        mark(w, "only the first events of split launches are shown");
    usm__work_usages_free(&u);
    return fine ? 0 : ENOMEM;
}

/* ---- blocks ----------------------------------------------------------------------- */

/* The name of a block's track: its tag, else its size rounded up to a power of two. */
static void block_name(writer *w, const usm__trace_block *b)
{
    const usm__trace_record *r     = &w->t->records[b->born];
    uint64_t                 bound = 64;

    if (r->e.tag && r->e.tag < w->t->ntags) {
        text(w, w->t->tags[r->e.tag], sizeof *w->t->tags);
        return;
    }
    while (bound < b->size && bound < UINT64_C(1) << 62)
        bound *= 2;
    if (bound < 1024)
        fprintf(w->out, "\"up to %" PRIu64 " B\"", bound);
    else if (bound < 1048576)
        fprintf(w->out, "\"up to %" PRIu64 " KiB\"", bound >> 10);
    else
        fprintf(w->out, "\"up to %" PRIu64 " MiB\"", bound >> 20);
}

static void write_block(writer *w, uint32_t k)
{
    const usm__trace_block  *b = &w->found->blocks[k];
    const usm__trace_record *r = &w->t->records[b->born];

    event(w, 'b', r, r->e.time_ns);
    block_name(w, b);
    fprintf(w->out,
            ",\"cat\":\"block\",\"id\":%" PRIu32 ",\"args\":{\"size\":%" PRIu64
            ",\"address\":\"0x%" PRIx64 "\",\"usable\":%" PRIu64 ",\"pool\":%" PRIu32,
            k, b->size, b->address, b->usable, r->e.pool);
    write_tag(w, r);
    if (r->e.extra)
        fprintf(w->out, ",\"stack\":%" PRIu32, r->e.extra);
    fprintf(w->out, "%s}}", b->freed ? "" : ",\"freed\":false");
    event(w, 'e', r, usm__trace_time_ns(w->t, b->died));
    block_name(w, b);
    fprintf(w->out, ",\"cat\":\"block\",\"id\":%" PRIu32 "}", k);
}

/* Writes one end of an arrow, and the slice of 1 ns on the thread's track to which it is
 * attached. */
static void write_flow(writer *w, char phase, uint32_t k, uint32_t record)
{
    const usm__trace_record *r = &w->t->records[record];

    event(w, 'X', r, r->e.time_ns);
    fprintf(w->out, "\"%s\",\"cat\":\"reuse\",\"dur\":0.001}", phase == 's' ? "free" : "reuse");
    event(w, phase, r, r->e.time_ns);
    fprintf(w->out, "\"reuse\",\"cat\":\"reuse\",\"id\":%" PRIu32 "%s}", k,
            phase == 's' ? "" : ",\"bp\":\"e\"");
}

static void write_reuse(writer *w, uint32_t k)
{
    const usm__trace_block *b = &w->found->blocks[k];

    if (b->reused == USM__NEVER || !w->found->blocks[b->reused].freed ||
        w->t->records[w->found->blocks[b->reused].died].e.type != USM__EVENT_FREE)
        return;
    write_flow(w, 's', k, w->found->blocks[b->reused].died);
    write_flow(w, 'f', k, b->born);
}

static int write_blocks(writer *w)
{
    size_t    n    = 0;
    uint32_t *list = NULL;
    char      what[200];
    int       status = usm__trace_blocks_choose(w->t, w->found, BLOCKS_MAX, &list, &n);

    if (status)
        return status;
    if (n < w->found->nblocks) {
        snprintf(what, sizeof what, "of %zu blocks the %zu with most bytes x time are shown",
                 w->found->nblocks, n);
        mark(w, what);
    }
    for (size_t i = 0; i < n; i++)
        write_block(w, list[i]);
    for (size_t i = 0; i < n && i < FLOWS_MAX; i++)
        write_reuse(w, list[i]);
    free(list);
    return 0;
}

/* ---- the file ---------------------------------------------------------------------- */

static void write_marks(writer *w)
{
    char what[400];

    if (w->t->lost) {
        snprintf(what, sizeof what, "%" PRIu64 " events were lost: levels are off by them",
                 w->t->lost);
        mark(w, what);
    }
    if (w->t->damage[0]) {
        snprintf(what, sizeof what, "the trace is damaged: %.256s", w->t->damage);
        mark(w, what);
    }
    if (!w->t->ended)
        mark(w, "the process did not end in order: its last events are missing");
}

static int write_events(writer *w)
{
    int status = write_names(w);

    if (status)
        return status;
    write_marks(w);
    write_calls(w);
    write_spills(w);
    status = write_works(w);
    if (!status)
        status = write_counters(w);
    return status ? status : write_blocks(w);
}

int usm__export_perfetto(const usm__trace *t, const char *path)
{
    usm__trace_blocks *found  = NULL;
    writer             w      = {.t = t};
    int                status = usm__trace_blocks_find(t, &found);

    if (status)
        return status;
    w.found = found;
    status  = usm__out_open(path, &w.out);
    if (status)
        goto out;
    fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"host\":", w.out);
    text(&w, t->header.host, sizeof t->header.host);
    fputs(",\"command\":", w.out);
    text(&w, t->header.command, sizeof t->header.command);
    fprintf(w.out, ",\"lost\":%" PRIu64 ",\"damage\":", t->lost);
    text(&w, t->damage, sizeof t->damage);
    fputs("},\"traceEvents\":[", w.out);
    status = write_events(&w);
    fputs("\n]}\n", w.out);
    status = usm__out_close(w.out, path, status);
out:
    usm__trace_blocks_free(found);
    return status;
}
