/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A trace as Chrome's trace_event JSON, which ui.perfetto.dev and chrome://tracing open.
 *
 *     counters         of each pool: live, reserved and cached bytes; the joules of launches so far, by
 *                      device
 *     threads' slices  driver calls with their duration; failed allocations as instants
 *     async slices     a block from its allocation to its free, named by its tag or its size
 *     spilling         transfers as async slices of their tier, waits as slices of their thread
 *     queues           commands of other runtimes as slices of a track for each queue
 *     launches         chunks, kernels, copies and idle gaps as async slices of their device
 *     flow arrows      from the free of a block to the allocation that reuses its address
 *
 * Files stay small enough for a browser: of more than BLOCKS_MAX blocks those with the largest
 * bytes x time are written, and of levels the last and the highest in each of STEPS_MAX parts of
 * the run.  A mark at the start of the trace says so. */
#include "profile/blocks.h"
#include "profile/export.h"
#include "profile/export_file.h"
#include "profile/spill.h"
#include "profile/work.h"

#include "base/json.h"
#include "base/trace_work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define BLOCKS_MAX 50000u
#define FLOWS_MAX  5000u
#define STEPS_MAX  20000u
#define SPILLS_MAX 100000u
#define WORKS_MAX  100000u
#define LANES      8u /* tracks of a queue whose commands overlap */

typedef struct writer {
    usm__json                  j;
    const usm__profile        *t;
    const usm__profile_blocks *found;
    uint32_t                   last_thread;
} writer;

/* ---- events ----------------------------------------------------------------------- */

/* Processes of several hosts may have the same number. */
static unsigned process_of(const writer *w, uint32_t source)
{
    return w->t->nsources > 1 ? source + 1 : w->t->header.pid;
}

/* The format counts in microseconds. */
static void write_time(writer *w, const char *key, uint64_t ns)
{
    usm__json_parts(&w->j, key, ns, 3);
}

/* Opens an event, up to its name; its own members follow. */
static void event_begin(writer *w, char phase, const usm__profile_record *r, uint64_t time_ns,
                        const char *name)
{
    const char ph[] = {phase, '\0'};

    usm__json_line(&w->j);
    usm__json_object_begin(&w->j, NULL);
    usm__json_text(&w->j, "ph", ph);
    usm__json_number(&w->j, "pid", process_of(w, r->source));
    usm__json_number(&w->j, "tid", r->thread);
    write_time(w, "ts", time_ns);
    usm__json_text(&w->j, "name", name);
}

static void event_end(writer *w)
{
    usm__json_object_end(&w->j);
}

/* Closes "args", the last member of an event. */
static void args_end(writer *w)
{
    usm__json_object_end(&w->j);
    event_end(w);
}

/* Category and number of an async slice, whose two ends are events. */
static void write_id(writer *w, const char *category, uint64_t id)
{
    char text[40];

    snprintf(text, sizeof text, "%s%" PRIu64, category, id);
    usm__json_text(&w->j, "cat", category);
    usm__json_text(&w->j, "id", text);
}

/* Marks at the start of the run, for data that the file leaves out. */
static void mark(writer *w, const char *what)
{
    const usm__profile_record start = {.thread = 0};

    event_begin(w, 'i', &start, 0, what);
    usm__json_text(&w->j, "s", "g");
    event_end(w);
}

/* ---- names ------------------------------------------------------------------------ */

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {"memory", "host", "device", "shared"};

    return kind < sizeof names / sizeof *names ? names[kind] : names[0];
}

static void pool_text(const writer *w, uint32_t id, char *buf, size_t size)
{
    const usm__profile_pool_info *p = usm__profile_find_pool(w->t, id);

    if (p)
        snprintf(buf, size, "pool %" PRIu32 ": %.32s %s%s%.64s", id, p->name, kind_name(p->kind),
                 p->device[0] ? ", " : "", p->device);
    else
        snprintf(buf, size, "pool %" PRIu32, id);
}

static void write_name(writer *w, const usm__profile_record *r, const char *of, const char *name)
{
    event_begin(w, 'M', r, 0, of);
    usm__json_object_begin(&w->j, "args");
    usm__json_text(&w->j, "name", name);
    args_end(w);
}

static void write_process(writer *w, uint32_t source)
{
    const usm__trace_header  *h = &w->t->sources[source].header;
    const usm__profile_record r = {.source = source};
    char                      name[400], rank[32] = "";

    if (h->rank >= 0)
        snprintf(rank, sizeof rank, "rank %" PRId32 ", ", h->rank);
    snprintf(name, sizeof name, "%.256s (%sprocess %" PRIu32 " on %.64s)", h->command, rank, h->pid,
             h->host);
    write_name(w, &r, "process_name", name);
}

static void write_thread(writer *w, const usm__profile_record *r)
{
    char name[32];

    snprintf(name, sizeof name, "thread %" PRIu32, r->thread);
    write_name(w, r, "thread_name", name);
}

/* The thread and process of an event of spilling. */
static usm__profile_record record_of(const usm__profile_spill_record *s)
{
    return (usm__profile_record){.thread = s->thread, .source = s->source};
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
        const usm__profile_record *r = &w->t->records[i];

        if (!seen[r->thread])
            write_thread(w, r);
        seen[r->thread] = true;
    }
    for (size_t i = 0; i < w->t->nspills; i++) {
        const usm__profile_record r = record_of(&w->t->spills[i]);

        if (!seen[r.thread])
            write_thread(w, &r);
        seen[r.thread] = true;
    }
    for (size_t i = 0; i < w->t->nworks; i++) {
        const usm__profile_record r = {.thread = w->t->works[i].thread,
                                       .source = w->t->works[i].source};

        if (!seen[r.thread])
            write_thread(w, &r);
        seen[r.thread] = true;
    }
    free(seen);
    w->last_thread = last;
    return 0;
}

/* ---- counters --------------------------------------------------------------------- */

/* The current part of the run for a pool: its last and its highest level there. */
typedef struct step {
    uint64_t           part;
    uint32_t           last_record, peak_record;
    usm__profile_level last, peak;
    bool               used;
} step;

typedef struct counters {
    writer  *w;
    uint64_t part_ns;
    step    *steps; /* by pool, npools + 1 */
} counters;

static void write_level(writer *w, uint32_t pool, uint32_t record, const usm__profile_level *l)
{
    const usm__profile_record *r = &w->t->records[record];
    char                       name[160];

    pool_text(w, pool, name, sizeof name);
    event_begin(w, 'C', r, r->e.time_ns, name);
    usm__json_object_begin(&w->j, "args");
    usm__json_number(&w->j, "live", l->live);
    usm__json_number(&w->j, "reserved", l->reserved);
    usm__json_number(&w->j, "cached", l->reserved > l->live ? l->reserved - l->live : 0);
    args_end(w);
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

static void count_level(void *user, uint32_t record, uint32_t pool,
                        const usm__profile_level *levels)
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
        c.part_ns = usm__profile_duration_ns(w->t) / STEPS_MAX + 1;
    status = usm__profile_walk(w->t, w->found, count_level, &c);
    for (uint32_t pool = 0; !status && pool <= w->t->npools; pool++)
        end_step(&c, pool);
    free(c.steps);
    return status;
}

/* ---- energy ------------------------------------------------------------------------- */

/* What the host's processors drew while they had no launch has no member, and is 0. */
static uint32_t energy_track(const writer *w, const usm__profile_energy_record *e)
{
    return e->member <= w->t->nmembers ? e->member : 0;
}

/* The joules of a device are those of launches that have ended: the counter rises at their ends. */
static int write_energy(writer *w)
{
    uint64_t *sums = calloc(w->t->nmembers + 1, sizeof *sums);

    if (!sums)
        return ENOMEM;
    for (size_t i = 0; i < w->t->nenergies; i++) {
        const usm__profile_energy_record *e     = &w->t->energies[i];
        const usm__profile_record         r     = {.thread = e->thread, .source = e->source};
        uint32_t                          track = energy_track(w, e);
        char                              name[160];

        snprintf(name, sizeof name, "energy of %.100s",
                 track ? usm__profile_work_member_name(w->t, track) : "idle processors");
        sums[track] += e->microjoules;
        event_begin(w, 'C', &r, e->time_ns, name);
        usm__json_object_begin(&w->j, "args");
        usm__json_parts(&w->j, "joules", sums[track], 6);
        args_end(w);
    }
    free(sums);
    return 0;
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

static void write_call(writer *w, const usm__profile_record *r)
{
    char     name[160];
    uint64_t end = r->e.time_ns, start = end > r->e.extra ? end - r->e.extra : 0;

    pool_text(w, r->e.pool, name, sizeof name);
    event_begin(w, 'X', r, start, call_name(r->e.type));
    usm__json_text(&w->j, "cat", "driver");
    write_time(w, "dur", r->e.extra);
    usm__json_object_begin(&w->j, "args");
    usm__json_number(&w->j, "size", r->e.size);
    usm__json_address(&w->j, "address", r->e.address);
    usm__json_text(&w->j, "pool", name);
    if (!r->e.address)
        usm__json_bool(&w->j, "refused", true);
    args_end(w);
}

static void write_tag(writer *w, const usm__profile_record *r)
{
    if (r->e.tag > 0 && r->e.tag < w->t->ntags)
        usm__json_text_max(&w->j, "tag", w->t->tags[r->e.tag], sizeof *w->t->tags);
}

static void write_failure(writer *w, const usm__profile_record *r)
{
    event_begin(w, 'i', r, r->e.time_ns, "out of memory");
    usm__json_text(&w->j, "s", "p");
    usm__json_object_begin(&w->j, "args");
    usm__json_number(&w->j, "size", r->e.size);
    write_tag(w, r);
    args_end(w);
}

static void write_calls(writer *w)
{
    for (size_t i = 0; i < w->t->nrecords; i++) {
        const usm__profile_record *r = &w->t->records[i];

        if (call_name(r->e.type))
            write_call(w, r);
        else if (r->e.type == USM__EVENT_FAILED)
            write_failure(w, r);
    }
}

/* ---- spilling --------------------------------------------------------------------- */

static void write_spill_args(writer *w, const usm__profile_spill_record *s)
{
    usm__json_object_begin(&w->j, "args");
    usm__json_text_max(&w->j, "buffer", usm__profile_spill_space_name(w->t, s->space), 48);
    usm__json_number(&w->j, "block", s->block);
    usm__json_number(&w->j, "bytes", s->bytes);
    args_end(w);
}

/* Transfers overlap: each is a slice of its own on the track of its tier. */
static void write_transfer(writer *w, const usm__profile_spill_record *s, size_t id)
{
    const usm__profile_record r     = record_of(s);
    const char               *tier  = usm__profile_spill_tier_name(w->t, s->tier);
    uint64_t                  start = s->time_ns > s->ns ? s->time_ns - s->ns : 0;
    char                      name[100];

    snprintf(name, sizeof name, "%s %.64s", usm__profile_spill_kind_name(s->kind), tier);
    event_begin(w, 'b', &r, start, name);
    write_id(w, "spill", id);
    write_spill_args(w, s);
    event_begin(w, 'e', &r, s->time_ns, name);
    write_id(w, "spill", id);
    event_end(w);
}

static void write_wait(writer *w, const usm__profile_spill_record *s)
{
    const usm__profile_record r     = record_of(s);
    uint64_t                  start = s->time_ns > s->ns ? s->time_ns - s->ns : 0;

    event_begin(w, 'X', &r, start, "wait for memory");
    usm__json_text(&w->j, "cat", "spill");
    write_time(w, "dur", s->ns);
    write_spill_args(w, s);
}

static void write_spills(writer *w)
{
    for (size_t i = 0; i < w->t->nspills && i < SPILLS_MAX; i++) {
        const usm__profile_spill_record *s = &w->t->spills[i];

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
static void write_slice(writer *w, const usm__profile_record *r, const char *name, uint64_t id)
{
    event_begin(w, 'b', r, r->e.time_ns, name);
    write_id(w, "work", id);
}

static void write_slice_end(writer *w, const usm__profile_record *r, const char *name, uint64_t id)
{
    event_end(w);
    event_begin(w, 'e', r, r->e.time_ns, name);
    write_id(w, "work", id);
    event_end(w);
}

static void write_work(writer *w, const usm__profile_work_record *k, uint64_t id)
{
    usm__profile_record r       = {.thread = k->thread, .source = k->source};
    const char         *member  = usm__profile_work_member_name(w->t, k->member);
    bool                is_copy = k->kind == USM__WORK_IN || k->kind == USM__WORK_OUT;
    char                name[120];

    snprintf(name, sizeof name, "%s%s%s", member, member[0] ? " " : "",
             usm__profile_work_kind_name(k->kind));
    r.e.time_ns = usm__profile_work_from(k);
    write_slice(w, &r, name, id);
    usm__json_object_begin(&w->j, "args");
    usm__json_text_max(&w->j, "kernel", usm__profile_work_kernel_name(w->t, k->kernel), 64);
    usm__json_number(&w->j, "first", k->first);
    usm__json_number(&w->j, is_copy ? "bytes" : "indices", k->n);
    usm__json_object_end(&w->j);
    r.e.time_ns = k->time_ns;
    write_slice_end(w, &r, name, id);
}

/* ---- queues of other runtimes --------------------------------------------------------- */

static int by_begin(const void *a, const void *b)
{
    const usm__profile_work_record *x = *(const usm__profile_work_record *const *)a;
    const usm__profile_work_record *y = *(const usm__profile_work_record *const *)b;
    uint64_t from = usm__profile_work_from(x), other = usm__profile_work_from(y);

    if (from == other)
        return (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns);
    return from > other ? 1 : -1;
}

/* Slices of a track must not overlap: each gets the first lane of its queue that is free.  Those of
 * an in-order queue share one: where two clocks let them overlap, write_command() cuts them. */
static uint32_t lane_of(uint64_t ends[LANES], const usm__profile_work_record *k)
{
    uint32_t lane = 0;

    while (!k->is_in_order && lane < LANES - 1 && ends[lane] > usm__profile_work_from(k) + 1)
        lane++;
    return lane;
}

/* end: 1 + that of the slice before in this track; 0: it is the first. */
static void write_command(writer *w, const usm__profile_work_record *k, uint32_t track,
                          uint64_t end)
{
    uint64_t            from = usm__profile_work_from(k), to = k->time_ns;
    usm__profile_record r      = {.thread = track, .source = k->source};
    const char         *kernel = usm__profile_work_kernel_name(w->t, k->kernel);

    if (end > from + 1)
        from = end - 1;
    if (to < from)
        to = from;
    if (end == 0)
        write_name(w, &r, "thread_name", usm__profile_work_member_name(w->t, k->member));
    event_begin(w, 'X', &r, from, kernel[0] ? kernel : usm__profile_work_kind_name(k->kind));
    write_time(w, "dur", to - from);
    usm__json_object_begin(&w->j, "args");
    usm__json_text(&w->j, "kind", usm__profile_work_kind_name(k->kind));
    usm__json_number(&w->j, k->kind == USM__WORK_QUEUE_KERNEL ? "work-items" : "bytes", k->n);
    args_end(w);
}

/* Tracks are numbered behind the threads. */
static int write_queues(writer *w)
{
    const usm__profile_work_record **list;
    uint64_t(*ends)[LANES]; /* of each member and lane: 1 + the last slice's end; 0: not used */
    size_t n = 0;

    list = malloc((w->t->nworks + 1) * sizeof *list);
    ends = calloc((size_t)w->t->nmembers + 1, sizeof *ends);
    for (size_t i = 0; list && ends && i < w->t->nworks; i++)
        if (w->t->works[i].kind >= USM__WORK_QUEUE_KERNEL)
            list[n++] = &w->t->works[i];
    if (n > 0)
        qsort(list, n, sizeof *list, by_begin);
    for (size_t i = 0; i < n && i < WORKS_MAX; i++) {
        uint32_t  lane = lane_of(ends[list[i]->member], list[i]);
        uint64_t *end  = &ends[list[i]->member][lane];

        write_command(w, list[i], w->last_thread + 1 + list[i]->member * LANES + lane, *end);
        if (*end <= list[i]->time_ns)
            *end = list[i]->time_ns + 1;
    }
    free(list);
    free(ends);
    return list && ends ? 0 : ENOMEM;
}

static void write_gaps(writer *w, const usm__profile_work_device *d, uint64_t id)
{
    usm__profile_record r = {.source = d->source};
    char                name[120];

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
    usm__profile_work_usages u;
    bool                     fine = usm__profile_work_count(w->t, &u);
    uint64_t                 id   = w->t->nworks;

    for (size_t i = 0; fine && i < w->t->nworks && i < WORKS_MAX; i++)
        if (w->t->works[i].kind < USM__WORK_QUEUE_KERNEL)
            write_work(w, &w->t->works[i], i);
    for (size_t i = 0; fine && i < u.ndevices; i++) {
        write_gaps(w, &u.devices[i], id);
        id += u.devices[i].ngaps;
    }
    if (w->t->nworks > WORKS_MAX)
        mark(w, "only the first events of split launches are shown");
    usm__profile_work_usages_free(&u);
    return fine ? 0 : ENOMEM;
}

/* ---- blocks ----------------------------------------------------------------------- */

/* The name of a block's track: its tag, else its size rounded up to a power of two. */
static void block_name(const writer *w, const usm__profile_block *b, char *name, size_t size)
{
    const usm__profile_record *r     = &w->t->records[b->born];
    uint64_t                   bound = 64;

    if (r->e.tag && r->e.tag < w->t->ntags) {
        snprintf(name, size, "%.*s", (int)sizeof *w->t->tags, w->t->tags[r->e.tag]);
        return;
    }
    while (bound < b->size && bound < UINT64_C(1) << 62)
        bound *= 2;
    if (bound < 1024)
        snprintf(name, size, "up to %" PRIu64 " B", bound);
    else if (bound < 1048576)
        snprintf(name, size, "up to %" PRIu64 " KiB", bound >> 10);
    else
        snprintf(name, size, "up to %" PRIu64 " MiB", bound >> 20);
}

static void write_block(writer *w, uint32_t k)
{
    const usm__profile_block  *b = &w->found->blocks[k];
    const usm__profile_record *r = &w->t->records[b->born];
    char                       name[160];

    block_name(w, b, name, sizeof name);
    event_begin(w, 'b', r, r->e.time_ns, name);
    usm__json_text(&w->j, "cat", "block");
    usm__json_number(&w->j, "id", k);
    usm__json_object_begin(&w->j, "args");
    usm__json_number(&w->j, "size", b->size);
    usm__json_address(&w->j, "address", b->address);
    usm__json_number(&w->j, "usable", b->usable);
    usm__json_number(&w->j, "pool", r->e.pool);
    write_tag(w, r);
    if (r->e.extra)
        usm__json_number(&w->j, "stack", r->e.extra);
    if (!b->freed)
        usm__json_bool(&w->j, "freed", false);
    args_end(w);
    event_begin(w, 'e', r, usm__profile_time_ns(w->t, b->died), name);
    usm__json_text(&w->j, "cat", "block");
    usm__json_number(&w->j, "id", k);
    event_end(w);
}

/* Writes one end of an arrow, and the slice of 1 ns on the thread's track to which it is
 * attached. */
static void write_flow(writer *w, char phase, uint32_t k, uint32_t record)
{
    const usm__profile_record *r = &w->t->records[record];

    event_begin(w, 'X', r, r->e.time_ns, phase == 's' ? "free" : "reuse");
    usm__json_text(&w->j, "cat", "reuse");
    write_time(w, "dur", 1);
    event_end(w);
    event_begin(w, phase, r, r->e.time_ns, "reuse");
    usm__json_text(&w->j, "cat", "reuse");
    usm__json_number(&w->j, "id", k);
    if (phase == 'f')
        usm__json_text(&w->j, "bp", "e"); /* to the slice around it */
    event_end(w);
}

static void write_reuse(writer *w, uint32_t k)
{
    const usm__profile_block *b = &w->found->blocks[k];

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
    int       status = usm__profile_blocks_choose(w->t, w->found, BLOCKS_MAX, &list, &n);

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

static void write_head(writer *w)
{
    usm__json_text(&w->j, "displayTimeUnit", "ns");
    usm__json_object_begin(&w->j, "otherData");
    usm__json_text_max(&w->j, "host", w->t->header.host, sizeof w->t->header.host);
    usm__json_text_max(&w->j, "command", w->t->header.command, sizeof w->t->header.command);
    usm__json_number(&w->j, "lost", w->t->lost);
    usm__json_text_max(&w->j, "damage", w->t->damage, sizeof w->t->damage);
    usm__json_object_end(&w->j);
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
        status = write_queues(w);
    if (!status)
        status = write_counters(w);
    if (!status)
        status = write_energy(w);
    return status ? status : write_blocks(w);
}

int usm__export_perfetto(const usm__profile *t, const char *path)
{
    usm__profile_blocks *found  = NULL;
    writer               w      = {.t = t};
    FILE                *file   = NULL;
    int                  status = usm__profile_blocks_find(t, &found);

    if (status)
        return status;
    w.found = found;
    status  = usm__export_open(path, &file);
    if (status)
        goto out;
    w.j = (usm__json){.out = {.file = file}, .form = USM__JSON_PAGE};
    usm__json_object_begin(&w.j, NULL);
    write_head(&w);
    usm__json_array_begin(&w.j, "traceEvents");
    status = write_events(&w);
    usm__json_line(&w.j);
    usm__json_array_end(&w.j);
    usm__json_object_end(&w.j);
    status = usm__export_close(file, path, status);
out:
    usm__profile_blocks_free(found);
    return status;
}
