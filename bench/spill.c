/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench spill: buffers larger than memory.
 *
 * A section repeats what it measures for some rounds, or until its time is over; figures are
 * medians. disk     chunks of 1 MiB against fio                                      spill_disk.c
 * small    chunks of 8 KiB                                                  spill_small.c
 * file     a file that is read in place                                     spill_file.c
 * tuned    the defaults against what could be said and set                  spill_disk.c
 * memory   the limit, and a control group that kills who crosses it         spill_limit.c
 * managed  plain pointers, out of core and where all fits                  spill_managed.c
 * sleep    pools that sleep and wake against fio                            spill_sleep.c
 * cost     what buffers cost while everything fits                          spill_prices.c
 * lives    small buffers from creation to end, against SYCL's               spill_prices.c
 * Called by main.c. */
#include "spill_series.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static bool is_wanted(const bench_options *o, const char *section)
{
    return !o->only || strncmp(o->only, section, strlen(o->only)) == 0;
}

static void choose(const bench_options *o)
{
    spill_run.options = o;
    spill_run.dir     = o->dir ? o->dir : "/var/tmp";
    spill_run.rounds  = o->rounds ? (unsigned)o->rounds : 3;
    spill_run.rounds  = spill_run.rounds > SPILL_ROUNDS_MAX ? SPILL_ROUNDS_MAX : spill_run.rounds;
    spill_run.scale   = o->scale ? o->scale : o->quick ? 8 : 1;
    spill_run.scale   = spill_run.scale > 16 ? 16 : spill_run.scale;
    spill_run.section_ns = o->rounds ? UINT64_MAX : UINT64_C(1000000000) * (o->quick ? 3 : 75);
    snprintf(spill_run.raw_path, sizeof spill_run.raw_path, "%s/usm-bench-%d.raw", spill_run.dir,
             (int)getpid());
    snprintf(spill_run.home_path, sizeof spill_run.home_path, "%s/usm-bench-%d.home", spill_run.dir,
             (int)getpid());
}

static void print_head(void)
{
    struct rlimit locked;

    if (getrlimit(RLIMIT_MEMLOCK, &locked) != 0)
        locked.rlim_cur = 0;
    printf("spilling to %s, as user %u, who may lock ", spill_run.dir, (unsigned)getuid());
    if (locked.rlim_cur == RLIM_INFINITY || getuid() == 0)
        printf("all memory");
    else
        printf("%.0f MiB", (double)locked.rlim_cur / MIB);
    printf("; medians of up to %u rounds\n", spill_run.rounds);
}

static int finish(bench_report *report, const bench_options *options)
{
    if (!options->json)
        fprintf(stderr, "\r%-70s\r", "");
    spill_report(report);
    if (report->nrows == 0) {
        fprintf(stderr, "usm-bench: no section of spill begins like \"%s\"\n", options->only);
        return 2;
    }
    if (!options->json) {
        print_head();
        spill_print(options->markdown);
        report->nrows = 0;
    }
    return 0;
}

int bench_spill(bench_report *report, const bench_options *options)
{
    static const struct {
        const char *name;
        void (*measure)(void);
    } sections[] = {{"disk", spill_section_disk},     {"small", spill_section_small},
                    {"file", spill_section_file},     {"tuned", spill_section_tuned},
                    {"memory", spill_section_memory}, {"managed", spill_section_managed},
                    {"sleep", spill_section_sleep},   {"cost", spill_section_cost},
                    {"lives", spill_section_lives}};

    choose(options);
    contenders_find(bench_sycl_folder(options), options->verbose);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (is_wanted(options, sections[i].name))
            sections[i].measure();
    contenders_forget();
    unlink(spill_run.raw_path);
    return finish(report, options);
}
