/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench spill, section file: a file larger than memory, read in place.  Called by spill.c. */
#include "spill_series.h"

#include <stdio.h>
#include <unistd.h>

typedef struct file_result {
    spill_samples ours, raw;           /* a pass over the file, once                     */
    spill_samples of_home, of_spilled; /* the second of two passes                       */
    double        written;             /* the most of a round                            */
    const char   *raw_why;
    char          why[200];
} file_result;

static bool file_failed(file_result *f)
{
    snprintf(f->why, sizeof f->why, "%.199s", contender_error(SPILL_HOST));
    contender_stop(SPILL_HOST);
    return false;
}

static bool ask_rate(const char *command, spill_samples *rates)
{
    char   answer[128];
    double seconds, bytes;

    if (!contender_ask(SPILL_HOST, command, answer, sizeof answer) ||
        sscanf(answer, "%lf %lf", &seconds, &bytes) != 2)
        return false;
    spill_sample(rates, bytes / MIB / seconds);
    return true;
}

/* Passes over the file, which holds the chunks of W1. */
static bool pass_over_file(const spill_series *s, file_result *f)
{
    char   command[700];
    double before, after;

    snprintf(command, sizeof command, "map %s %zu %zu", spill_run.home_path, s->chunk, s->n);
    if (!spill_start(SPILL_HOST, s) || !contender_ask(SPILL_HOST, command, NULL, 0) ||
        !spill_ask_number(SPILL_HOST, "written", &before) || !ask_rate("run check 0", &f->ours) ||
        !ask_rate("run R 0", &f->of_home) || !spill_ask_number(SPILL_HOST, "written", &after))
        return file_failed(f);
    f->written = after - before > f->written ? after - before : f->written;
    spill_note_memory(SPILL_HOST, s);
    contender_stop(SPILL_HOST);
    return true;
}

/* The same passes over blocks that were spilled: they carry checksums, those of a file do not. */
static bool pass_over_spilled(const spill_series *s, file_result *f)
{
    spill_samples unused = {.n = 0};
    char          command[128];

    snprintf(command, sizeof command, "open one %zu %zu none", s->chunk, s->n);
    if (!spill_start(SPILL_HOST, s) || !contender_ask(SPILL_HOST, command, NULL, 0) ||
        !ask_rate("run W1 0", &unused) || !contender_ask(SPILL_HOST, "settle", NULL, 0) ||
        !ask_rate("run check 0", &unused) || !ask_rate("run R 0", &f->of_spilled))
        return file_failed(f);
    contender_stop(SPILL_HOST);
    return true;
}

static bool make_home(const spill_series *s)
{
    char command[700];
    bool ok;

    snprintf(command, sizeof command, "fill %s %zu %zu", spill_run.home_path, s->chunk, s->n);
    ok = spill_start(SPILL_HOST, s) && contender_ask(SPILL_HOST, command, NULL, 0);
    contender_stop(SPILL_HOST);
    return ok;
}

static spill_row *add_rates(const char *name, const spill_samples *ours, const char *peer,
                            const spill_samples *theirs, const char *why)
{
    spill_row *row = spill_add("file", "MiB/s", "%s", name);

    row->value      = spill_median(ours);
    row->peer       = peer;
    row->peer_value = spill_median(theirs);
    row->is_least   = true;
    snprintf(row->why, sizeof row->why, "%s", why);
    return row;
}

static void add_rows(const file_result *f)
{
    spill_row *row = add_rates("a file as home, a pass in order", &f->ours,
                               spill_raw_name(SPILL_RAW_READ), &f->raw,
                               f->why[0]                     ? f->why
                               : f->raw.n == 0 && f->raw_why ? f->raw_why
                                                             : "");

    row->goal  = 0.95;
    row        = spill_add("file", "bytes", "written meanwhile");
    row->value = f->written;
    row->goal  = 1e-6;
    snprintf(row->why, sizeof row->why, "%s", f->why);
    row       = add_rates("R over spilled blocks, with checksums", &f->of_spilled,
                          "R over the file, without", &f->of_home, f->why);
    row->goal = 0.9;
}

static void one_round(const spill_series *s, unsigned round, file_result *f)
{
    const uint64_t bytes = s->n * s->chunk;

    if (round % 2 == 1)
        spill_sample(&f->raw, spill_fio(SPILL_RAW_READ, spill_run.home_path, bytes, &f->raw_why));
    if (!pass_over_file(s, f))
        return;
    if (round % 2 == 0)
        spill_sample(&f->raw, spill_fio(SPILL_RAW_READ, spill_run.home_path, bytes, &f->raw_why));
    pass_over_spilled(s, f);
}

void spill_section_file(void)
{
    const size_t       n     = 2048 / spill_run.scale;
    const uint64_t     limit = ((uint64_t)256 << 20) / spill_run.scale;
    const spill_series s     = {"a file", "one", CHUNK, n, 0, limit, "none", false, NULL, NULL};
    static file_result f;
    uint64_t           began;

    if (!make_home(&s))
        file_failed(&f);
    began = bench_now_ns();
    for (unsigned round = 0; !f.why[0] && spill_goes_on(round, began); round++) {
        spill_show("file", s.title, round);
        one_round(&s, round, &f);
    }
    unlink(spill_run.home_path);
    add_rows(&f);
}
