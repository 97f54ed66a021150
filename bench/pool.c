/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench pool: libusm's default pool against mallocs, UMF's pools and SYCL, by turns.
 *
 * A row starts a worker process for each contender, lets each calibrate how much work takes a
 * repetition's time, and then goes round them: ours, peer, peer, ours, ...  On a machine that
 * others use too, only what was measured in one such round can be compared.  It does so with three
 * sets of processes: a process may be slower than its like from start to end (where its pages came
 * to lie, what the processor's predictors learnt first).  Called by main.c. */
#include "pool.h"
#include "workload.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETS            3 /* of processes                                       */
#define ROUNDS_MAX      (SETS * 5)
#define ROUNDS_MIN      5           /* of a row that takes long, with the first set alone */
#define ROW_NS          2000000000u /* what "long" is for one set                         */
#define EVENTS_NS       2e5         /* a repetition with a trace: see target_ns()          */
#define EVENTS_FIRST    12
#define EVENTS_PAUSE_US 1000

typedef struct samples {
    double value[ROUNDS_MAX];
    size_t n;
} samples;

typedef struct measuring {
    const bench_options *options;
    unsigned             rounds; /* with a set */
    double               target_ns;
    pool_table           table;
    samples              samples[POOL_CELLS_MAX];
} measuring;

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void settle(pool_cell *cell, samples *s)
{
    if (s->n == 0)
        return;
    qsort(s->value, s->n, sizeof *s->value, compare_doubles);
    cell->have    = true;
    cell->minimum = s->value[0];
    cell->median =
        s->n % 2 ? s->value[s->n / 2] : (s->value[s->n / 2 - 1] + s->value[s->n / 2]) / 2;
}

/* It takes no further part in this row. */
static void give_up(pool_cell *cell, samples *s)
{
    static char   reasons[4096];
    static size_t used;
    size_t        n = strlen(contender_error(cell->id)) + 1;

    s->n      = 0;
    cell->why = "not measured";
    if (used + n <= sizeof reasons) {
        cell->why = memcpy(reasons + used, contender_error(cell->id), n);
        used += n;
    }
    contender_stop(cell->id);
}

/* What a worker is asked for one repetition. */
static const char *repetition(const pool_row *row)
{
    return row->section->measure == POOL_SCALE ? "scale" : "run";
}

/* Measured by rounds: the first repetition is not counted. */
static bool has_rounds(const pool_row *row)
{
    return row->section->measure != POOL_HELD && row->section->measure != POOL_IDLE;
}

/* The time of a repetition.  Events of a trace must find room in their ring, because one that is
 * lost costs less: a ring has room for 32768, and a repetition has some 12000. */
static double target_ns(const measuring *m, const pool_row *row)
{
    return row->section->measure == POOL_EVENTS ? EVENTS_NS : m->target_ns;
}

/* One repetition.  Before one of events the trace's writer gets the time to empty the rings, so
 * that new threads get those of threads that have ended. */
static bool repeat(const pool_row *row, const pool_cell *cell, char *answer, size_t size)
{
    if (row->section->measure == POOL_EVENTS)
        (void)usleep(EVENTS_PAUSE_US);
    return contender_ask(cell->id, repetition(row), answer, size);
}

/* Repetitions that are not counted.  A ring is new memory until each place in it was used. */
static bool warm_up(const pool_row *row, const pool_cell *cell)
{
    unsigned n     = row->section->measure == POOL_EVENTS ? EVENTS_FIRST : has_rounds(row);
    bool     is_ok = true;

    while (is_ok && n-- > 0)
        is_ok = repeat(row, cell, NULL, 0);
    return is_ok;
}

static void start_cell(measuring *m, const pool_row *row, pool_cell *cell, samples *s)
{
    char command[160];

    if (cell->why)
        return;
    snprintf(command, sizeof command, "open %s %u %" PRIu64 " %.0f %u", row->plan->workload,
             row->plan->threads, m->options->seed, target_ns(m, row), (unsigned)m->options->pin);
    if (contender_missing(cell->id)) {
        cell->why = contender_missing(cell->id);
        return;
    }
    if (!contender_start(cell->id) || !contender_ask(cell->id, command, NULL, 0) ||
        !warm_up(row, cell))
        give_up(cell, s);
}

static void time_cell(const pool_row *row, pool_cell *cell, samples *s)
{
    char answer[128];

    if (cell->why)
        return;
    if (repeat(row, cell, answer, sizeof answer))
        s->value[s->n++] = strtod(answer, NULL);
    else
        give_up(cell, s);
}

static void time_calls(pool_cell *cell)
{
    char answer[128];

    cell->have_latency = !cell->why && contender_ask(cell->id, "latency", answer, sizeof answer) &&
                         sscanf(answer, "%lf %lf", &cell->p50, &cell->p99) == 2;
}

static void start_row(measuring *m, pool_row *row)
{
    for (unsigned i = 0; i < row->ncells; i++)
        start_cell(m, row, &row->cell[i], &m->samples[i]);
}

static void stop_row(const pool_row *row)
{
    for (unsigned i = 0; i < row->ncells; i++)
        contender_stop(row->cell[i].id);
}

static void go_round(measuring *m, pool_row *row, unsigned round)
{
    for (unsigned i = 0; i < row->ncells; i++) {
        unsigned j = round % 2 ? row->ncells - 1 - i : i;

        time_cell(row, &row->cell[j], &m->samples[j]);
    }
}

/* The processes of the last set are left running. */
static void measure_times(measuring *m, pool_row *row)
{
    uint64_t began = bench_now_ns();
    unsigned round = 0, sets = 1;

    for (unsigned set = 0; set < sets; set++) {
        if (set > 0) {
            stop_row(row);
            start_row(m, row);
        }
        while (round < (set + 1) * m->rounds)
            go_round(m, row, round++);
        if (set == 0 && bench_now_ns() - began < ROW_NS)
            sets = SETS;
    }
    while (round < ROUNDS_MIN)
        go_round(m, row, round++);
    for (unsigned i = 0; i < row->ncells; i++)
        settle(&row->cell[i], &m->samples[i]);
}

static void measure_held(pool_cell *cell, samples *s)
{
    char   answer[128];
    double asked, live, reserved, driver, allocs, reuse;

    if (cell->why)
        return;
    if (!contender_ask(cell->id, "once", answer, sizeof answer) ||
        sscanf(answer, "%lf %lf %lf %lf %lf %lf", &asked, &live, &reserved, &driver, &allocs,
               &reuse) != 6) {
        give_up(cell, s);
        return;
    }
    cell->have         = true;
    cell->median       = reserved / asked;
    cell->minimum      = cell->median;
    cell->driver_calls = driver;
    cell->reuse        = reuse;
}

/* The most of a few times. */
static void measure_idle(const measuring *m, pool_cell *cell, samples *s)
{
    const char *what = cell->id == OURS_IDLE      ? "idle"
                       : cell->id == OURS_TRIMMED ? "idle trim"
                                                  : "idle need";
    char        answer[128];

    for (unsigned i = 0; !cell->why && i < m->rounds; i++) {
        if (contender_ask(cell->id, what, answer, sizeof answer))
            s->value[s->n++] = strtod(answer, NULL);
        else
            give_up(cell, s);
    }
    settle(cell, s);
    if (cell->have)
        cell->median = s->value[s->n - 1];
}

/* cell 0 traced, cell 1 not: what an event costs.  A pair is two events. */
static void settle_events(pool_row *row)
{
    pool_cell *traced = &row->cell[0], *plain = &row->cell[1];

    if (!traced->have || !plain->have)
        return;
    traced->median  = (traced->median - plain->median) / 2;
    traced->minimum = (traced->minimum - plain->minimum) / 2;
}

static void measure_row(measuring *m, pool_row *row)
{
    for (unsigned i = 0; i < row->ncells; i++)
        m->samples[i].n = 0;
    start_row(m, row);
    if (has_rounds(row))
        measure_times(m, row);
    for (unsigned i = 0; i < row->ncells; i++)
        if (row->section->measure == POOL_HELD)
            measure_held(&row->cell[i], &m->samples[i]);
        else if (row->section->measure == POOL_IDLE)
            measure_idle(m, &row->cell[i], &m->samples[i]);
    if (row->section->measure == POOL_EVENTS)
        settle_events(row);
    if (row->section->measure == POOL_TIME && !m->options->quick)
        for (unsigned i = 0; i < row->ncells; i++)
            time_calls(&row->cell[i]);
    stop_row(row);
}

static void lay_out(pool_row *row, const pool_plan *plan)
{
    const pool_section *s = pool_section_find(plan->section);

    *row = (pool_row){.plan    = plan,
                      .section = s,
                      .title   = bench_workload_find(plan->workload)->title,
                      .ncells  = s->nours + s->npeers};
    for (unsigned i = 0; i < s->nours; i++)
        row->cell[i].id = s->ours[i];
    for (unsigned i = 0; i < s->npeers; i++)
        row->cell[s->nours + i].id = s->peers[i];
}

/* Is the row asked for?  `--only` names a workload, or how the names of sections begin. */
static bool wanted(const bench_options *o, const pool_plan *plan)
{
    size_t n = o->only ? strlen(o->only) : 0;

    if (o->only && strncmp(o->only, plan->section, n) != 0 && strcmp(o->only, plan->workload) != 0)
        return false;
    return !o->quick || plan->quick;
}

static void measure_all(measuring *m)
{
    for (size_t i = 0; i < pool_nplans && m->table.nrows < 160; i++) {
        pool_row *row = &m->table.row[m->table.nrows];
        uint64_t  began;

        if (!wanted(m->options, &pool_plans[i]))
            continue;
        lay_out(row, &pool_plans[i]);
        if (!m->options->json)
            fprintf(stderr, "\r%-12s %-32s %u thread%s   ", row->section->name, row->title,
                    pool_plans[i].threads, pool_plans[i].threads > 1 ? "s" : " ");
        began = bench_now_ns();
        measure_row(m, row);
        if (m->options->verbose)
            fprintf(stderr, "%.1f s\n", (double)(bench_now_ns() - began) * 1e-9);
        m->table.nrows++;
    }
    if (!m->options->json)
        fprintf(stderr, "\r%-70s\r", "");
}

/* ------------------------------------------------------------------ rows for JSON */

static void report_cells(bench_row *out, const pool_row *row)
{
    static bench_cell cells[BENCH_ROWS_MAX * POOL_CELLS_MAX];
    static size_t     used;

    out->cells = cells + used;
    for (unsigned i = row->section->nours; i < row->ncells; i++) {
        const pool_cell *c = &row->cell[i];

        cells[used++] = (bench_cell){contender_name(c->id),
                                     c->have ? c->median : 0,
                                     c->have ? c->minimum : 0,
                                     c->p50,
                                     c->p99,
                                     c->why};
        out->ncells++;
    }
}

static const char *unit_of(const pool_section *s)
{
    return s->measure == POOL_IDLE                               ? "MiB"
           : s->measure == POOL_HELD || s->measure == POOL_SCALE ? "ratio"
                                                                 : "ns";
}

static void report_one(bench_report *report, const pool_row *row, unsigned i)
{
    const pool_cell *mine = &row->cell[i];
    const pool_cell *peer = pool_compares(row->section) ? pool_peer(row) : NULL;
    static char      names[BENCH_ROWS_MAX][120];
    bench_row        out;
    char            *name = names[report->nrows];

    if (report->nrows == BENCH_ROWS_MAX)
        return;
    snprintf(name, sizeof names[0], "%s: %s, %u thread%s%s%s", row->section->name, row->title,
             row->plan->threads, row->plan->threads > 1 ? "s" : "",
             row->section->nours > 1 ? ", " : "",
             row->section->nours > 1 ? contender_name(mine->id) : "");
    out = (bench_row){.name       = name,
                      .value      = mine->median,
                      .unit       = unit_of(row->section),
                      .peer       = peer ? contender_name(peer->id) : NULL,
                      .peer_value = peer ? peer->median : 0,
                      .goal       = pool_compares(row->section) && !peer ? 0 : row->plan->goal[i],
                      .limit      = row->plan->limit,
                      .minimum    = mine->minimum,
                      .p50        = mine->p50,
                      .p99        = mine->p99,
                      .reuse      = mine->reuse,
                      .calls      = mine->driver_calls};
    report_cells(&out, row);
    bench_add(report, &out);
}

static void fill_report(bench_report *report, const pool_table *table)
{
    for (size_t i = 0; i < table->nrows; i++) {
        const pool_row *row  = &table->row[i];
        unsigned        ours = row->section->measure == POOL_EVENTS ? 1 : row->section->nours;

        for (unsigned j = 0; j < ours; j++)
            if (row->cell[j].have)
                report_one(report, row, j);
    }
}

const char *bench_sycl_folder(const bench_options *options)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread */
    const char *folder = options->sycl ? options->sycl : getenv("USM_BENCH_SYCL_DIR");

#ifdef USM_BENCH_SYCL_DIR
    return folder ? folder : USM_BENCH_SYCL_DIR;
#else
    return folder;
#endif
}

int bench_pool(bench_report *report, const bench_options *options)
{
    static measuring m;

    m.options      = options;
    m.rounds       = options->quick ? 2 : 3;
    m.target_ns    = options->quick ? 3e6 : 12e6;
    m.table.rounds = SETS * m.rounds;
    m.table.seed   = options->seed;
    m.table.pinned = options->pin;
    contenders_find(bench_sycl_folder(options), options->verbose);
    measure_all(&m);
    contenders_forget();
    if (m.table.nrows == 0) {
        fprintf(stderr, "usm-bench: nothing is called \"%s\"\n", options->only);
        return 2;
    }
    if (options->json)
        fill_report(report, &m.table);
    else
        pool_print(&m.table, options->markdown);
    return 0;
}
