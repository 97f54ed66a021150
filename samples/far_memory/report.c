/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What rank 0 prints: a line a pass, who holds how much, what the death of a lender cost. */
#include "far_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define MIB 1048576.0

double report_now(void)
{
    struct timespec t;

    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0)
        return 0.0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void take_stats(usm_spill_stats *stats)
{
    *stats = (usm_spill_stats){.struct_size = sizeof *stats};
    if (usm_spill_get_stats(NULL, stats) != USM_OK)
        failed("statistics");
}

void report_head(const job *j)
{
    usm_job_info info = USM_JOB_INFO_INIT;

    if (usm_job_get_info(&info) != USM_OK)
        failed("the job");
    printf("A grid of %" PRIu64 " MiB in %" PRIu64 " MiB of memory; rank %" PRIu32 " of %" PRIu32
           " on %s computes, the others lend\n%s\n",
           j->rows * ROW_BYTES >> 20, j->o->limit >> 20, info.rank, info.size, info.host, info.mpi);
    if (j->is_one_node)
        puts("All on one node: each rank plays a node of its own, else copies would be in vain");
    puts("\n  pass       time   fetched    stored         rate   blocks     hits  misses  longest "
         "wait");
}

void pass_begin(pass *p)
{
    *p = (pass){.seconds = 0};
    take_stats(&p->before);
    p->began = report_now();
}

/* Of all tiers: the only one, unless USM_SPILL says otherwise, is the memory of other ranks. */
static void moved(const usm_spill_stats *s, uint64_t *fetched, uint64_t *stored)
{
    *fetched = *stored = 0;
    for (size_t i = 0; i < s->ntiers && i < USM_TIERS; i++) {
        *fetched += s->tiers[i].read;
        *stored += s->tiers[i].written;
    }
}

void pass_end(pass *p, const char *name)
{
    uint64_t fetched, stored, fetched_before, stored_before, misses;
    double   mib;

    p->seconds = report_now() - p->began;
    take_stats(&p->after);
    moved(&p->before, &fetched_before, &stored_before);
    moved(&p->after, &fetched, &stored);
    fetched -= fetched_before;
    stored -= stored_before;
    mib    = (double)(fetched + stored) / MIB;
    misses = p->after.misses - p->before.misses;
    printf("  %-8s %4.2f s  %4.0f MiB  %4.0f MiB  %5.0f MiB/s  %6" PRIu64 "   %6" PRIu64
           "  %6" PRIu64 "  %8.1f ms\n",
           name, p->seconds, (double)fetched / MIB, (double)stored / MIB,
           p->seconds > 0.0 ? mib / p->seconds : 0.0, p->touched,
           p->touched > misses ? p->touched - misses : 0, misses, 1e3 * p->longest);
}

void report_members(const char *title)
{
    static char text[16384];

    if (usm_job_describe(USM_TEXT, text, sizeof text, NULL) == USM_OK)
        printf("\n%s:\n%s\n", title, text);
}

void report_spill(void)
{
    static char text[16384];

    if (usm_spill_describe(NULL, USM_TEXT, text, sizeof text, NULL) == USM_OK)
        printf("\n%s", text);
}

void report_kill(int rank, const pass *before, const pass *p)
{
    printf("  rank %d was killed in the middle of this step: no access failed, the longest waited "
           "%.0f ms",
           rank, 1e3 * p->longest);
    if (before)
        printf(";\n  the step took %+.2f s beside the one before", p->seconds - before->seconds);
    putchar('\n');
}
