/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* offload_worker WHAT [OPTION...]: libusm's side of `usm-bench offload`, a process that is told
 * when to compute and answers as those of baselines/ do (baseline.h).  WHAT is offload_job.h's;
 * --device is a selector.  Before each answer comes a line of what libusm counted.
 *
 *     printf 'go\ngo 64\n' | bin/offload_worker idw --points 500 --verify
 *
 * Built for an MPI, it is a rank, and all ranks compute together. */
#include "offload_job.h"

#ifdef OFFLOAD_RANKS
#include "baselines/ranks.h"

#include <usm/mpi.h>
#endif
#include <usm/usm.h>

#include <inttypes.h>
#include <stdio.h>

static void notify(const usm_parallel_stats *s)
{
    printf("stats chunks=%" PRIu64 " spread=%.4f sent=%" PRIu64 " rescheduled=%" PRIu64
           " duplicated=%" PRIu64 "\n",
           s->chunks, s->spread, s->sent, s->rescheduled, s->duplicated);
}

#ifdef OFFLOAD_RANKS
static void serve(const char *what, struct baseline *b, struct ranks *r)
{
    struct offload_job *job;

    if (USM_MPI_ATTACH(MPI_COMM_WORLD) != USM_OK)
        baseline_die(usm_last_error());
    job = offload_job_create(what, b, true);
    while (ranks_next(r, b)) {
        usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
        double             cpu_ms;

        baseline_start(b);
        offload_job_run(job, b->chunks, &stats);
        cpu_ms = ranks_stop(r, b);
        if (r->rank == 0) {
            notify(&stats);
            baseline_report(b, cpu_ms, offload_job_answer(job, b));
        }
    }
    offload_job_destroy(job);
}
#else
static void serve(const char *what, struct baseline *b)
{
    struct offload_job *job = offload_job_create(what, b, false);

    while (baseline_next(b)) {
        usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;

        baseline_start(b);
        offload_job_run(job, b->chunks, &stats);
        baseline_stop(b);
        notify(&stats);
        baseline_report(b, b->cpu_ms, offload_job_answer(job, b));
    }
    offload_job_destroy(job);
}
#endif

int main(int argc, char **argv)
{
    struct baseline b;
    char            name[32];
#ifdef OFFLOAD_RANKS
    struct ranks r;
    int          level;

    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    ranks_open(&r);
#endif
    if (argc < 2) {
        fprintf(stderr, "usage: offload_worker idw|idw-uneven|md5 [OPTION...]\n");
        return 2;
    }
    snprintf(name, sizeof name, "%s", argv[1]);
    baseline_options(&b, name, argc - 1, argv + 1);
#ifdef OFFLOAD_RANKS
    serve(name, &b, &r);
    ranks_fini(&r);
#else
    serve(name, &b);
#endif
    return 0;
}
