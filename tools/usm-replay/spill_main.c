/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-replay --spill: runs a workload and prints the results, as a table and as JSON. */
#include "base/json.h"
#include "base/text.h"
#include "spill.h"

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

static void counts_json(usm__json *j, const row *r, const spill_workload *w, const spill_counts *c)
{
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "policy", r->what);
    usm__json_number(j, "accesses", c->accesses);
    usm__json_number(j, "hits", c->hits);
    usm__json_number(j, "misses", c->missed);
    if (c->has_io) {
        usm__json_number(j, "guessed", c->guessed);
        usm__json_number(j, "waited", c->waited);
        usm__json_number(j, "reads", c->reads);
        usm__json_number(j, "writes", c->writes);
        usm__json_number(j, "reads_ahead", c->ahead);
        usm__json_number(j, "wasted", c->wasted);
        usm__json_real(j, "seconds", c->ns * 1e-9, 9);
        usm__json_real(j, "mib_per_second", rate(w, c), 9);
    }
    usm__json_object_end(j);
}

static void print_json(const spill_workload *w, const spill_options *o, const row *rows)
{
    usm__json j = {.out = {.file = stdout}, .form = USM__JSON_INDENTED};

    usm__json_object_begin(&j, NULL);
    usm__json_text(&j, "workload", w->name);
    usm__json_bool(&j, "recorded", w->is_recorded);
    usm__json_number(&j, "lost", w->lost);
    usm__json_number(&j, "blocks", w->blocks);
    usm__json_number(&j, "block_size", w->block_size);
    usm__json_number(&j, "frames", o->frames);
    usm__json_number(&j, "bandwidth", o->bandwidth);
    usm__json_real(&j, "latency_us", o->latency_ns / 1e3, 9);
    usm__json_real(&j, "work_us", o->work_ns / 1e3, 9);
    usm__json_number(&j, "depth", o->depth);
    usm__json_array_begin(&j, "phases");
    for (size_t i = 0; i < w->nphases; i++) {
        usm__json_object_begin(&j, NULL);
        usm__json_text(&j, "name", w->phases[i].name);
        usm__json_array_begin(&j, "policies");
        for (int k = 0; k < ROWS; k++)
            counts_json(&j, &rows[k], w, &rows[k].phases[i]);
        usm__json_array_end(&j);
        usm__json_object_end(&j);
    }
    usm__json_array_end(&j);
    usm__json_object_end(&j);
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
