/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench spill, sections disk (chunks of 1 MiB against fio) and tuned (the defaults against what
 * could be said and set).  Called by spill.c. */
#include "spill_series.h"

#include <stdio.h>

static void add_against(const char *section, const spill_series *s, const spill_result *r, int w,
                        const spill_samples *raw, double goal)
{
    spill_row *row = spill_add(section, "MiB/s", "%s, %s", spill_workloads[w], s->title);

    row->value      = spill_median(&r->ours[w]);
    row->peer       = spill_raw_name(spill_raw_of[w]);
    row->peer_value = spill_median(raw);
    row->goal       = goal;
    row->is_least   = true;
    if (r->why[0])
        snprintf(row->why, sizeof row->why, "%s", r->why);
    else if (row->peer_value == 0 && r->raw_why)
        snprintf(row->why, sizeof row->why, "%s", r->raw_why);
}

void spill_section_disk(void)
{
    static const double goals[WORKLOADS] = {0.95, 0.95, 0.8, 0.95, 1.0, 1.0};
    const size_t        n                = 2048 / spill_run.scale;
    const uint64_t      limit            = ((uint64_t)256 << 20) / spill_run.scale;
    const spill_series  s[2]             = {
                     {"1 MiB blocks", "one", CHUNK, n, 0, limit, "none", true, NULL, NULL},
                     {"1 MiB buffers", "many", CHUNK, n, 0, limit, "none", false, NULL, NULL}};
    static spill_result r[2];

    spill_run_all("disk", s, r, 2);
    for (size_t i = 0; i < 2; i++)
        for (int w = 0; w < WORKLOADS; w++)
            add_against("disk", &s[i], &r[i], w, &r[0].raw[w], goals[w]);
}

/* ---- tuned ---- */

#define VARIANTS  7 /* the first: nothing said                                   */
#define ANNOUNCED 1 /* knows what no setting can know: a row of its own, no peer */

static void add_tuned(const spill_series *s, const spill_result *r, int w)
{
    spill_row *row  = spill_add("tuned", "MiB/s", "%s, nothing said", spill_workloads[w]);
    size_t     best = 0;

    for (size_t i = ANNOUNCED + 1; i < VARIANTS; i++)
        if (best == 0 || spill_median(&r[i].ours[w]) > spill_median(&r[best].ours[w]))
            best = i;
    row->value      = spill_median(&r[0].ours[w]);
    row->peer       = s[best].title;
    row->peer_value = spill_median(&r[best].ours[w]);
    row->goal       = 0.9;
    row->is_least   = true;
    snprintf(row->why, sizeof row->why, "%s", r[0].why[0] ? r[0].why : r[best].why);
}

static void add_announced(const spill_result *plain, const spill_result *announced, int w)
{
    spill_row *row;

    if (w == W2) /* it reads nothing */
        return;
    row             = spill_add("tuned", "MiB/s", "%s, announced", spill_workloads[w]);
    row->value      = spill_median(&announced->ours[w]);
    row->peer       = "nothing said";
    row->peer_value = spill_median(&plain->ours[w]);
    snprintf(row->why, sizeof row->why, "%s", announced->why);
}

/* RANDOM switches guessing off: with guesses, random accesses may not be slower. */
static void add_prefetch(const char *what, const spill_result *on, const spill_result *off)
{
    spill_row *row = spill_add("tuned", "MiB/s", "X, %s, guessing", what);

    row->value      = spill_median(&on->ours[X]);
    row->peer       = "not guessing";
    row->peer_value = spill_median(&off->ours[X]);
    row->goal       = 0.97; /* 1, less what rounds differ by */
    row->is_least   = true;
    snprintf(row->why, sizeof row->why, "%s", on->why[0] ? on->why : off->why);
}

void spill_section_tuned(void)
{
    const size_t       n     = 512 / spill_run.scale;
    const uint64_t     limit = ((uint64_t)64 << 20) / spill_run.scale;
    const size_t       small = 16384 / spill_run.scale;
    char               deep[700], threads[700];
    const spill_series s[VARIANTS + 2] = {
        {"nothing said", "one", CHUNK, n, 0, limit, "none", false, NULL, NULL},
        {"announced", "one", CHUNK, n, 0, limit, "announce", false, NULL, NULL},
        {"SEQUENTIAL", "one", CHUNK, n, 0, limit, "sequential", false, NULL, NULL},
        {"RANDOM", "one", CHUNK, n, 0, limit, "random", false, NULL, NULL},
        {"USM_SPILL_BLOCK=2M", "one", CHUNK, n, 0, limit, "none", false, "USM_SPILL_BLOCK", "2M"},
        {"depth=32", "one", CHUNK, n, 0, limit, "none", false, "USM_SPILL", deep},
        {"engine=threads", "one", CHUNK, n, 0, limit, "none", false, "USM_SPILL", threads},
        {"8 KiB", "many", SMALL, small, small / 4, limit / 4, "none", false, NULL, NULL},
        {"8 KiB, RANDOM", "many", SMALL, small, small / 4, limit / 4, "random", false, NULL, NULL}};
    static spill_result r[VARIANTS + 2];

    snprintf(deep, sizeof deep, "file:%s,depth=32", spill_run.dir);
    snprintf(threads, sizeof threads, "file:%s,engine=threads", spill_run.dir);
    spill_run_all("tuned", s, r, VARIANTS + 2);
    for (int w = 0; w < WORKLOADS; w++)
        add_tuned(s, r, w);
    for (int w = R; w < WORKLOADS; w++)
        add_announced(&r[0], &r[ANNOUNCED], w);
    add_prefetch("1 MiB", &r[0], &r[3]);
    add_prefetch("8 KiB", &r[VARIANTS], &r[VARIANTS + 1]);
}
