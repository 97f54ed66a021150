/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench spill, sections cost (what buffers cost while everything fits into memory) and lives
 * (small buffers from their creation to their end, against SYCL's).  Called by spill.c. */
#include "spill_series.h"

#include <stdio.h>
#include <unistd.h>

static bool ask_cost(contender_id id, const char *name, double *ours, double *theirs)
{
    char command[64], answer[128];

    snprintf(command, sizeof command, "cost %s", name);
    return contender_ask(id, command, answer, sizeof answer) &&
           sscanf(answer, "%lf %lf", ours, theirs) == 2;
}

static const spill_series roomy = {"in memory",         false,  SMALL, 0,    0,
                                   (uint64_t)512 << 20, "none", false, NULL, NULL};

static void add_cost(const char *name, const char *title, double goal)
{
    spill_row *row    = spill_add("cost", "ns", "%s", title);
    double     theirs = 0;

    spill_show("cost", title, 0);
    row->goal = goal;
    if (!spill_start(SPILL_HOST, &roomy) || !ask_cost(SPILL_HOST, name, &row->value, &theirs)) {
        snprintf(row->why, sizeof row->why, "%.199s", contender_error(SPILL_HOST));
        contender_stop(SPILL_HOST);
    }
    if (theirs > 0) {
        row->peer       = "plain arrays";
        row->peer_value = theirs;
    }
}

/* By turns with SYCL's, each in a process of its own. */
static void add_life(const char *name, const char *title, contender_id ours, double goal)
{
    spill_row    *row  = spill_add("lives", "ns", "%s", title);
    spill_samples mine = {.n = 0}, theirs = {.n = 0};
    double        ns, none;

    spill_show("lives", title, 0);
    for (unsigned i = 0; i < spill_run.rounds; i++) {
        if (spill_start(ours, &roomy) && ask_cost(ours, name, &ns, &none))
            spill_sample(&mine, ns);
        else
            snprintf(row->why, sizeof row->why, "%.199s", contender_error(ours));
        if (spill_start(SPILL_SYCL, &roomy) && ask_cost(SPILL_SYCL, name, &ns, &none))
            spill_sample(&theirs, ns);
        else if (!row->why[0])
            snprintf(row->why, sizeof row->why, "SYCL: %.190s", contender_error(SPILL_SYCL));
    }
    contender_stop(ours);
    contender_stop(SPILL_SYCL);
    row->value      = spill_median(&mine);
    row->peer       = "SYCL";
    row->peer_value = spill_median(&theirs);
    row->goal       = goal;
}

/* The time of the hash for a MiB, against that of the transfer as fio does it. */
static void add_checksum(void)
{
    spill_row  *row    = spill_add("cost", "ns", "checksum of 1 MiB (its hash alone)");
    double      theirs = 0, raw;
    const char *why    = "";

    if (!spill_start(SPILL_HOST, &roomy) ||
        !ask_cost(SPILL_HOST, "checksum", &row->value, &theirs)) {
        snprintf(row->why, sizeof row->why, "%.199s", contender_error(SPILL_HOST));
        return;
    }
    unlink(spill_run.raw_path);
    raw             = spill_fio(SPILL_RAW_WRITE, spill_run.raw_path, (uint64_t)512 << 20, &why) > 0
                          ? spill_fio(SPILL_RAW_READ, spill_run.raw_path, (uint64_t)512 << 20, &why)
                          : 0;
    row->peer       = "fio read of 1 MiB";
    row->peer_value = raw > 0 ? 1e9 / raw : 0;
    snprintf(row->why, sizeof row->why, "%s", raw > 0 ? "" : why);
}

void spill_section_cost(void)
{
    static const struct {
        const char *name, *title;
        double      goal;
        bool        is_quick;
    } costs[] = {
        {"hit", "begin + end, resident, 1 thread", 25, true},
        {"hit-2", "the same, 2 threads, a buffer each", 25, true},
        {"hit-shared", "the same, 2 threads, one buffer", 0, true},
        {"hit-many", "the same, 4096 buffers at random", 0, false},
        {"wave-256", "plane wave, 256 rows", 1.01, true},
        {"wave-4096", "plane wave, 4096 rows", 1.01, false},
        {"read-256", "read pass, 256 rows (cached)", 0, false},
        {"read-4096", "read pass, 4096 rows", 1.03, true},
        {"update-256", "update pass, 256 rows (cached)", 0, false},
        {"update-4096", "update pass, 4096 rows", 1.03, true},
        {"bodies-16", "bodies, blocks of 16 (512 B)", 0, false},
        {"bodies-64", "bodies, blocks of 64 (2 KiB)", 0, false},
        {"bodies-256", "bodies, blocks of 256 (8 KiB)", 1.01, true},
    };

    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        if (costs[i].is_quick || !spill_run.options->quick)
            add_cost(costs[i].name, costs[i].title, costs[i].goal);
    add_checksum();
    contender_stop(SPILL_HOST);
}

/* On the device that SYCL has; alone on the host backend where there is no SYCL. */
void spill_section_lives(void)
{
    contender_id ours = contender_missing(SPILL_CL) ? SPILL_HOST : SPILL_CL;

    add_life("create", "4 KiB: create + access + destroy", ours, 0.1);
    add_life("device", "4 KiB: filled on the device, written back", ours, 0.5);
}
