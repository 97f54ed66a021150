/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench spill, section small: buffers of 8 KiB against blocks of 1 MiB.  Called by spill.c. */
#include "spill_series.h"

#include <stdio.h>
#include <unistd.h>

static void add_small(const spill_series *s, const spill_result *small, const spill_result *large,
                      int w)
{
    spill_row *row = spill_add("small", "MiB/s", "%s, %s", spill_workloads[w], s->title);

    row->value      = spill_median(&small->ours[w]);
    row->peer       = "1 MiB blocks";
    row->peer_value = spill_median(&large->ours[w]);
    row->goal       = 0.5;
    row->is_least   = true;
    snprintf(row->why, sizeof row->why, "%s", small->why[0] ? small->why : large->why);
}

/* What one access at a time of 8 KiB can reach. */
static void add_small_raw(const spill_series *s, const spill_result *r, int w, spill_raw raw)
{
    spill_row    *row     = spill_add("small", "MiB/s", "%s, %s", spill_workloads[w], s->title);
    spill_samples samples = {.n = 0};
    const char   *why     = "";

    unlink(spill_run.raw_path);
    if (spill_fio(SPILL_RAW_WRITE, spill_run.raw_path, s->n * s->chunk, &why) > 0)
        for (unsigned i = 0; i < (spill_run.options->quick ? 1 : spill_run.rounds); i++)
            spill_sample(&samples, spill_fio(raw, spill_run.raw_path, s->n * s->chunk, &why));
    row->value      = spill_median(&r->ours[w]);
    row->peer       = spill_raw_name(raw);
    row->peer_value = spill_median(&samples);
    row->is_least   = true;
    if (row->peer_value == 0)
        snprintf(row->why, sizeof row->why, "%s", why);
}

void spill_section_small(void)
{
    const size_t       n     = 16384 / spill_run.scale;
    const uint64_t     limit = ((uint64_t)16 << 20) / spill_run.scale;
    const size_t       more  = 4; /* times larger: 512 MiB over 64 MiB */
    const spill_series s[4]  = {
         {"128 MiB of 8 KiB", "many", SMALL, n, n / 16, limit, "none", false, NULL, NULL},
         {"128 MiB of 1 MiB", "one", CHUNK, n / 128, 0, limit, "none", false, NULL, NULL},
         {"512 MiB of 8 KiB", "many", SMALL, more * n, n / 4, more * limit, "none", false, NULL,
          NULL},
         {"512 MiB of 1 MiB", "one", CHUNK, more * n / 128, 0, more * limit, "none", false, NULL,
          NULL}};
    static spill_result r[4];

    spill_run_all("small", s, r, 4);
    for (size_t i = 0; i < 4; i += 2)
        for (int w = 0; w < WORKLOADS; w++)
            add_small(&s[i], &r[i], &r[i + 1], w);
    add_small_raw(&s[2], &r[2], X, SPILL_RAW_SMALL_RANDOM);
    add_small_raw(&s[2], &r[2], M, SPILL_RAW_SMALL_MIXED);
}
