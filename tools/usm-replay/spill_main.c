/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-replay --spill: runs a workload and prints the results, as a table and as JSON. */
#include "base/text.h"
#include "spill.h"
#include "usm-info/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char  *name, *what;
    spill_counts phases[SPILL_PHASES];
} row;

enum { LIBUSM, NO_GUESSES, OPT, LRU, MRU, CLOCK, ROWS };

static bool run_all(const spill_workload *w, const spill_options *o, row *rows)
{
    static spill_reference *const references[] = {
        [OPT] = spill_opt, [LRU] = spill_lru, [MRU] = spill_mru, [CLOCK] = spill_clock};
    bool good = spill_run(w, o, true, rows[LIBUSM].phases) &&
                spill_run(w, o, false, rows[NO_GUESSES].phases);

    for (int i = OPT; i < ROWS && good; i++)
        good = references[i](w, o->frames, rows[i].phases);
    return good;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static double rate(const spill_workload *w, const spill_counts *c)
{
    return c->ns > 0 ? (double)c->accesses * (double)w->block_size / (1 << 20) / (c->ns * 1e-9) : 0;
}

/* ---- text ------------------------------------------------------------------------------ */

static void print_row(const spill_workload *w, const row *r, const spill_counts *c)
{
    printf("  %-10s %6.2f %%", r->name, percent(c->hits, c->accesses));
    if (c->has_io)
        printf(" %8.2f %% %8.2f %% %9" PRIu64 " %9" PRIu64 " %8" PRIu64 " %9.3f %9.0f",
               percent(c->guessed, c->accesses), percent(c->waited, c->accesses), c->reads,
               c->writes, c->wasted, c->ns * 1e-9, rate(w, c));
    putchar('\n');
}

static void print_text(const spill_workload *w, const spill_options *o, const row *rows)
{
    char   block[32], memory[32], speed[32];
    size_t begin = 0;

    printf("%s: %zu accesses to %" PRIu32 " blocks of %s; memory of %" PRIu32 " frames, %s\n",
           w->name, w->n, w->blocks, usm__format_bytes(w->block_size, block, sizeof block),
           o->frames, usm__format_bytes(w->block_size * o->frames, memory, sizeof memory));
    printf("device: %s/s, %.0f us, %" PRIu32 " transfers at a time; the program works %.0f us at "
           "each access\n",
           usm__format_bytes(o->bandwidth, speed, sizeof speed), o->latency_ns / 1e3, o->depth,
           o->work_ns / 1e3);
    if (w->is_recorded)
        printf("recorded: hits are in it only as far as the engine's looks saw them\n");
    if (w->lost)
        printf("%" PRIu64 " events were lost when it was recorded\n", w->lost);
    for (size_t i = 0; i < w->nphases; begin = w->phases[i].end, i++) {
        printf("\n%-12s %8s %10s %10s %9s %9s %8s %9s %9s\n", w->phases[i].name, "kept", "guessed",
               "waited", "reads", "writes", "wasted", "time s", "MiB/s");
        for (int k = 0; k < ROWS && w->phases[i].end > begin; k++)
            print_row(w, &rows[k], &rows[k].phases[i]);
    }
}

/* ---- JSON ------------------------------------------------------------------------------- */

static void counts_json(json *j, const row *r, const spill_workload *w, const spill_counts *c)
{
    json_object_begin(j, NULL);
    json_text(j, "policy", r->what);
    json_number(j, "accesses", c->accesses);
    json_number(j, "hits", c->hits);
    json_number(j, "misses", c->missed);
    if (c->has_io) {
        json_number(j, "guessed", c->guessed);
        json_number(j, "waited", c->waited);
        json_number(j, "reads", c->reads);
        json_number(j, "writes", c->writes);
        json_number(j, "reads_ahead", c->ahead);
        json_number(j, "wasted", c->wasted);
        json_real(j, "seconds", c->ns * 1e-9);
        json_real(j, "mib_per_second", rate(w, c));
    }
    json_object_end(j);
}

static void print_json(const spill_workload *w, const spill_options *o, const row *rows)
{
    json j;

    json_begin(&j, stdout);
    json_object_begin(&j, NULL);
    json_text(&j, "workload", w->name);
    json_bool(&j, "recorded", w->is_recorded);
    json_number(&j, "lost", w->lost);
    json_number(&j, "blocks", w->blocks);
    json_number(&j, "block_size", w->block_size);
    json_number(&j, "frames", o->frames);
    json_number(&j, "bandwidth", o->bandwidth);
    json_real(&j, "latency_us", o->latency_ns / 1e3);
    json_real(&j, "work_us", o->work_ns / 1e3);
    json_number(&j, "depth", o->depth);
    json_array_begin(&j, "phases");
    for (size_t i = 0; i < w->nphases; i++) {
        json_object_begin(&j, NULL);
        json_text(&j, "name", w->phases[i].name);
        json_array_begin(&j, "policies");
        for (int k = 0; k < ROWS; k++)
            counts_json(&j, &rows[k], w, &rows[k].phases[i]);
        json_array_end(&j);
        json_object_end(&j);
    }
    json_array_end(&j);
    json_object_end(&j);
    json_end(&j);
}

int spill_main(const char *spec, const spill_options *o)
{
    static row     rows[ROWS] = {[LIBUSM]     = {.name = "libusm", .what = "libusm"},
                                 [NO_GUESSES] = {.name = "no guesses", .what = "no_guesses"},
                                 [OPT]        = {.name = "OPT", .what = "opt"},
                                 [LRU]        = {.name = "LRU", .what = "lru"},
                                 [MRU]        = {.name = "MRU", .what = "mru"},
                                 [CLOCK]      = {.name = "CLOCK", .what = "clock"}};
    spill_workload w;
    char           why[500] = "";
    bool           good     = spill_workload_make(spec, o, &w, why, sizeof why);

    if (good && !run_all(&w, o, rows)) {
        good = false;
        snprintf(why, sizeof why, "no memory for a workload of this size");
    }
    if (good && o->as_json)
        print_json(&w, o, rows);
    else if (good)
        print_text(&w, o, rows);
    else
        fprintf(stderr, "usm-replay: %s\n", why);
    spill_workload_free(&w);
    return good && fflush(stdout) == 0 ? 0 : 1;
}
