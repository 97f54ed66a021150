/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench spill, section sleep: pools that sleep, and wake again, against fio.  Host memory goes to
 * the disk directly, device memory by way of copies of a queue.  Called by spill.c. */
#include "spill_series.h"

#include <stdio.h>
#include <unistd.h>

#define BYTES ((uint64_t)512 << 20)

typedef struct sleep_result {
    spill_samples slept, woken;
    char          why[200];
} sleep_result;

static const spill_series roomy = {"sleep",           false,  CHUNK, 0,    0,
                                   (uint64_t)4 << 30, "none", false, NULL, NULL};

static void nap(const char *kind, uint64_t bytes, sleep_result *r)
{
    char   command[64], answer[128];
    double slept, woken;

    snprintf(command, sizeof command, "sleep %s %llu", kind, (unsigned long long)bytes);
    if (!spill_start(SPILL_HOST, &roomy) ||
        !contender_ask(SPILL_HOST, command, answer, sizeof answer) ||
        sscanf(answer, "%lf %lf", &slept, &woken) != 2) {
        snprintf(r->why, sizeof r->why, "%.199s", contender_error(SPILL_HOST));
    } else {
        spill_sample(&r->slept, (double)bytes / MIB / slept);
        spill_sample(&r->woken, (double)bytes / MIB / woken);
    }
    contender_stop(SPILL_HOST); /* the next one gets a new file */
}

static void add(const char *name, const char *kind, const spill_samples *ours, spill_raw raw,
                const spill_samples *theirs, const char *why)
{
    spill_row *row = spill_add("sleep", "MiB/s", "%s, %s memory", name, kind);

    row->value      = spill_median(ours);
    row->peer       = spill_raw_name(raw);
    row->peer_value = spill_median(theirs);
    row->goal       = 0.9;
    row->is_least   = true;
    snprintf(row->why, sizeof row->why, "%s", why);
}

void spill_section_sleep(void)
{
    static const char *const kinds[] = {"host", "device"};
    static sleep_result      r[2];
    static spill_samples     raw_write, raw_read;
    const uint64_t           bytes   = BYTES / spill_run.scale;
    const char              *raw_why = NULL;
    uint64_t                 began   = bench_now_ns();

    for (unsigned round = 0; spill_goes_on(round, began); round++) {
        spill_show("sleep", "pools", round);
        for (int i = 0; i < 2; i++)
            if (!r[i].why[0])
                nap(kinds[i], bytes, &r[i]);
        unlink(spill_run.raw_path);
        spill_sample(&raw_write, spill_fio(SPILL_RAW_WRITE, spill_run.raw_path, bytes, &raw_why));
        spill_sample(&raw_read, spill_fio(SPILL_RAW_READ, spill_run.raw_path, bytes, &raw_why));
    }
    unlink(spill_run.raw_path);
    for (int i = 0; i < 2; i++) {
        const char *why = r[i].why[0] ? r[i].why : raw_why ? raw_why : "";

        add("sleep", kinds[i], &r[i].slept, SPILL_RAW_WRITE, &raw_write, why);
        add("wake", kinds[i], &r[i].woken, SPILL_RAW_READ, &raw_read, why);
    }
}
