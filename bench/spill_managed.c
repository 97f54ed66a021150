/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench spill, section managed: usm_alloc_managed() with eight times the limit against fio and
 * against buffers, and with memory for all of it against an array of malloc().  Chunks are of the
 * size of a block, 2 MiB.  Called by spill.c. */
#include "spill_series.h"

#include <stdio.h>

#define BLOCK ((size_t)2 << 20)

static const double goals[WORKLOADS] = {[W1] = 0.9, [R] = 0.9, [X] = 0.8, [M] = 0.9, [S] = 0.9};

static void add_row(const spill_series *s, const spill_result *r, int w, const char *peer,
                    const spill_samples *theirs, double goal)
{
    spill_row *row = spill_add("managed", "MiB/s", "%s, %s", spill_workloads[w], s->title);

    row->value      = spill_median(&r->ours[w]);
    row->peer       = peer;
    row->peer_value = spill_median(theirs);
    row->goal       = goal;
    row->is_least   = true;
    snprintf(row->why, sizeof row->why, "%s", r->why);
}

void spill_section_managed(void)
{
    const size_t       n     = 1024 / spill_run.scale;
    const uint64_t     limit = ((uint64_t)256 << 20) / spill_run.scale;
    const spill_series s[]   = {
          {"8 x", "managed", BLOCK, n, 0, limit, "none", true, NULL, NULL},
          {"8 x", "one", BLOCK, n, 0, limit, "none", false, NULL, NULL},
          {"all fits", "managed", BLOCK, n / 16, 0, limit, "none", false, NULL, NULL},
          {"all fits", "array", BLOCK, n / 16, 0, limit, "none", false, NULL, NULL}};
    static spill_result r[4];

    spill_run_all("managed", s, r, 4);
    for (int w = 0; w < WORKLOADS; w++) {
        int raw = w == W2 ? S : w; /* nothing says that all of a block will be written */

        add_row(&s[0], &r[0], w, spill_raw_name(spill_raw_of[raw]), &r[0].raw[raw], goals[w]);
        add_row(&s[0], &r[0], w, "one buffer", &r[1].ours[w], 0);
    }
    for (int w = 0; w < WORKLOADS; w++)
        add_row(&s[2], &r[2], w, "malloc()", &r[3].ours[w], 0);
}
