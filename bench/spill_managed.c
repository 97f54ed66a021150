/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench spill, section managed: usm_alloc_managed() with eight times the limit against fio and
 * against buffers, and with memory for all of it against an array of malloc().  Called by spill.c. */
#include "spill_series.h"

#include <stdio.h>

static void add_row(const spill_series *s, const spill_result *r, int w, const char *peer,
                    const spill_samples *theirs)
{
    spill_row *row = spill_add("managed", "MiB/s", "%s, %s", spill_workloads[w], s->title);

    row->value      = spill_median(&r->ours[w]);
    row->peer       = peer;
    row->peer_value = spill_median(theirs);
    snprintf(row->why, sizeof row->why, "%s", r->why);
}

void spill_section_managed(void)
{
    const size_t       n     = 2048 / spill_run.scale;
    const uint64_t     limit = ((uint64_t)256 << 20) / spill_run.scale;
    const spill_series s[]   = {
          {"8 x", "managed", CHUNK, n, 0, limit, "none", true, NULL, NULL},
          {"8 x", "one", CHUNK, n, 0, limit, "none", false, NULL, NULL},
          {"all fits", "managed", CHUNK, n / 16, 0, limit, "none", false, NULL, NULL},
          {"all fits", "array", CHUNK, n / 16, 0, limit, "none", false, NULL, NULL}};
    static spill_result r[4];

    spill_run_all("managed", s, r, 4);
    for (int w = 0; w < WORKLOADS; w++) {
        add_row(&s[0], &r[0], w, spill_raw_name(spill_raw_of[w]), &r[0].raw[w]);
        add_row(&s[0], &r[0], w, "one buffer", &r[1].ours[w]);
    }
    for (int w = 0; w < WORKLOADS; w++)
        add_row(&s[2], &r[2], w, "malloc()", &r[3].ours[w]);
}
