/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench spill, section managed: usm_alloc_managed() with eight times the limit against fio,
 * against a buffer, and against a mapped file in a control group of that limit; with memory for all
 * of it against an array of malloc(); accesses to blocks that are loaded.  Chunks are of the size of a
 * block, 2 MiB.  Called by spill.c. */
#include "spill_series.h"

#include <stdio.h>

#define BLOCK ((size_t)2 << 20)

enum { MANAGED, BUFFER, MAPPED, FITTING, ARRAY, SERIES };

typedef struct turn_result {
    spill_samples rates;
    char          why[200];
} turn_result;

static spill_row *add_row(const char *name, const char *title, const spill_samples *ours,
                          const char *peer, const spill_samples *theirs, double goal)
{
    spill_row *row = spill_add("managed", "MiB/s", "%s, %s", name, title);

    row->value      = spill_median(ours);
    row->peer       = peer;
    row->peer_value = spill_median(theirs);
    row->goal       = goal;
    row->is_least   = true;
    return row;
}

static void explain(spill_row *row, const char *ours, const char *theirs)
{
    snprintf(row->why, sizeof row->why, "%s", ours[0] ? ours : theirs);
}

static void add_series(const spill_series *s, const spill_result *r)
{
    static const double goals[WORKLOADS] = {[W1] = 0.9, [R] = 0.9, [X] = 0.8, [M] = 0.9, [S] = 0.9};
    spill_row          *row;

    for (int w = 0; w < WORKLOADS; w++) {
        const char *name = spill_workloads[w];
        int         raw  = w == W2 ? S : w; /* nothing says that all of a block will be written */

        row = add_row(name, s[MANAGED].title, &r[MANAGED].ours[w],
                      spill_raw_name(spill_raw_of[raw]), &r[MANAGED].raw[raw], goals[w]);
        explain(row, r[MANAGED].why, "");
        row = add_row(name, s[MANAGED].title, &r[MANAGED].ours[w], "one buffer", &r[BUFFER].ours[w],
                      0);
        explain(row, r[MANAGED].why, r[BUFFER].why);
        /* The system reads a mapped file in order as fast as the device does. */
        row = add_row(name, s[MANAGED].title, &r[MANAGED].ours[w], "a mapped file",
                      &r[MAPPED].ours[w], w == R ? 0 : 1.5);
        explain(row, r[MANAGED].why, r[MAPPED].why);
    }
    for (int w = 0; w < WORKLOADS; w++)
        explain(add_row(spill_workloads[w], s[FITTING].title, &r[FITTING].ours[w], "malloc()",
                        &r[ARRAY].ours[w], 0),
                r[FITTING].why, r[ARRAY].why);
}

/* An access that faults waits for its block, so there is one request at a time. */
static void add_single(const spill_series *s, const spill_result *r)
{
    const char   *why    = "";
    spill_samples single = {.n = 0};

    for (unsigned round = 0; round < spill_run.rounds; round++)
        spill_sample(&single,
                     spill_fio(SPILL_RAW_SINGLE, spill_run.raw_path, s->n * s->chunk, &why));
    explain(add_row("X", s->title, &r->ours[X], spill_raw_name(SPILL_RAW_SINGLE), &single, 0.9),
            r->why, why);
}

static void run_turn(const spill_series *s, turn_result *r)
{
    if (!r->why[0] && (!spill_open(s) || !spill_run_one("T", 0, &r->rates)))
        snprintf(r->why, sizeof r->why, "%.199s", contender_error(SPILL_HOST));
    contender_stop(SPILL_HOST);
}

/* A matrix written across the diagonal. */
static void measure_turns(const spill_series *s)
{
    turn_result managed = {.why = ""}, buffer = {.why = ""};

    for (unsigned round = 0; round < spill_run.rounds; round++) {
        spill_show("managed", "T", round);
        run_turn(&s[MANAGED], &managed);
        run_turn(&s[BUFFER], &buffer);
    }
    explain(add_row("T, a matrix transposed", s[MANAGED].title, &managed.rates, "one buffer",
                    &buffer.rates, 1 / 1.2),
            managed.why, buffer.why);
}

static void measure_touches(const spill_series *s)
{
    spill_row    *row    = spill_add("managed", "us", "an access to a block that is loaded");
    spill_samples unused = {.n = 0};

    row->goal = 25;
    if (!spill_open(s) || !spill_run_one("W1", 0, &unused) ||
        !spill_ask_number(SPILL_HOST, "touch", &row->value))
        snprintf(row->why, sizeof row->why, "%.199s", contender_error(SPILL_HOST));
    contender_stop(SPILL_HOST);
}

void spill_section_managed(void)
{
    const uint64_t     scale     = spill_run.scale < 4 ? spill_run.scale : 4; /* as blocks need */
    const size_t       n         = 1024 / scale;
    const uint64_t     limit     = ((uint64_t)256 << 20) / scale;
    const spill_series s[SERIES] = {
        [MANAGED] = {"8 x", "managed", BLOCK, n, 0, limit, "none", true, NULL, NULL},
        [BUFFER]  = {"8 x", "one", BLOCK, n, 0, limit, "none", false, NULL, NULL},
        [MAPPED]  = {"8 x", "mapped", BLOCK, n, 0, limit, "none", false, NULL, NULL},
        [FITTING] = {"all fits", "managed", BLOCK, n / 16, 0, limit, "none", false, NULL, NULL},
        [ARRAY]   = {"all fits", "array", BLOCK, n / 16, 0, limit, "none", false, NULL, NULL}};
    static spill_result r[SERIES];
    spill_row          *row;

    spill_run_all("managed", s, r, SERIES);
    add_series(s, r);
    add_single(&s[MANAGED], &r[MANAGED]);
    measure_turns(s);
    measure_touches(&s[MANAGED]);
    row        = spill_add("managed", "x", "highest memory / its limit");
    row->value = r[MANAGED].memory;
    row->goal  = 1.02;
    explain(row, r[MANAGED].why, "");
}
