/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench spill, section memory: whether the limit is kept, by the system's own count and by a
 * control group that kills who crosses it.  Called by spill.c. */
#include "spill_series.h"

#include <inttypes.h>
#include <stdio.h>

static void add_peak(void)
{
    const char *where;
    double      ratio = spill_worst_memory(&where);
    spill_row  *row   = spill_add("memory", "x", "highest memory / its limit");

    row->value = ratio;
    row->goal  = 1.05;
    snprintf(row->why, sizeof row->why,
             ratio > 0 ? "of all series, the highest: %s" : "no series%s", where);
}

/* Buffers of four times the limit, filled by the device, read by the host: an OpenCL CPU device's
 * memory is the host's. */
static void fill_on_device(const spill_series *s)
{
    spill_row *row = spill_add("memory", "x", "the same, filled on %s", "an OpenCL CPU device");
    char       command[64];
    double     peak;

    row->goal = 1.05;
    snprintf(command, sizeof command, "device %" PRIu64 " %zu", 4 * s->limit / CHUNK, CHUNK);
    if (spill_start(SPILL_POCL, s) && contender_ask(SPILL_POCL, command, NULL, 0) &&
        spill_ask_number(SPILL_POCL, "memory", &peak))
        row->value = peak / (double)s->limit;
    else
        snprintf(row->why, sizeof row->why, "%.199s", contender_error(SPILL_POCL));
    contender_stop(SPILL_POCL);
}

static bool all_workloads(const spill_series *s)
{
    char command[128];
    bool ok = true;

    snprintf(command, sizeof command, "open %s %zu %zu none", s->form, s->chunk, s->n);
    ok = contender_ask(SPILL_HOST, command, NULL, 0);
    for (int w = 0; ok && w < WORKLOADS; w++) {
        snprintf(command, sizeof command, "run %s 0", spill_workloads[w]);
        ok = contender_ask(SPILL_HOST, command, NULL, 0);
    }
    return ok && contender_ask(SPILL_HOST, "run check 0", NULL, 0);
}

/* All workloads where the kernel kills whoever takes more than limit + 64 MiB. */
static void run_in_group(const spill_series *s)
{
    const uint64_t allowed = s->limit + ((uint64_t)64 << 20);
    spill_row     *peak  = spill_add("memory", "MiB", "in a control group of limit + 64 MiB: peak");
    spill_row     *kills = spill_add("memory", "", "killed there");
    const char    *why   = "";
    spill_group    group;
    char           command[480];

    if (!spill_group_create(&group, allowed, &why)) {
        snprintf(peak->why, sizeof peak->why, "%s", why);
        snprintf(kills->why, sizeof kills->why, "%s", why);
        return;
    }
    snprintf(command, sizeof command, "join %s", group.tasks);
    peak->goal  = (double)allowed / MIB;
    kills->goal = 1e-6;
    if (!spill_start(SPILL_HOST, s) || !contender_ask(SPILL_HOST, command, NULL, 0)) {
        snprintf(peak->why, sizeof peak->why, "%.199s", contender_error(SPILL_HOST));
        snprintf(kills->why, sizeof kills->why, "%.199s", contender_error(SPILL_HOST));
    } else if (!all_workloads(s)) {
        snprintf(kills->why, sizeof kills->why, "%.199s", contender_error(SPILL_HOST));
        kills->value = 1;
    }
    contender_stop(SPILL_HOST);
    peak->value  = (double)spill_group_peak(&group) / MIB;
    kills->value = spill_group_kills(&group) > 0 ? spill_group_kills(&group) : kills->value;
    spill_group_destroy(&group);
}

void spill_section_memory(void)
{
    const uint64_t     limit = ((uint64_t)64 << 20);
    const spill_series s[2]  = {
         {"1 MiB blocks", "one", CHUNK, 512, 0, limit, "none", false, NULL, NULL},
         {"8 KiB buffers", "many", SMALL, 32768, 0, limit, "none", false, NULL, NULL}};
    static spill_result r[2];
    const char         *where;

    spill_show("memory", "", 0);
    if (spill_worst_memory(&where) == 0) /* no other section has run */
        spill_run_all("memory", s, r, 2);
    for (size_t i = 0; i < 2; i++)
        if (r[i].why[0])
            snprintf(spill_add("memory", "", "%s", s[i].title)->why, sizeof r[i].why, "%s",
                     r[i].why);
    add_peak();
    fill_on_device(&s[0]);
    run_in_group(&s[0]);
}
