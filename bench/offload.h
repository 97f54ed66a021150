/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* `usm-bench offload` inside: offload.c compares with what was written by hand, offload_more.c
 * measures what has no such peer, offload_peer.c talks to processes, offload_tasks.c times host
 * tasks. */
#ifndef USM_BENCH_OFFLOAD_H
#define USM_BENCH_OFFLOAD_H

#include "bench.h"
#include "spill.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- processes: offload_peer.c ------------------------------------------------------- */

/* A program that computes when it is told to (baselines/baseline.h). */
typedef struct offload_peer {
    const char *words[24]; /* its command, NULL at the end; words[0] a path       */
    const char *env[8];    /* NAME=VALUE                                           */
    const char *log;       /* where it writes stderr; NULL: with --verbose, ours   */
    pid_t       pid;       /* 0: it does not run                                   */
    int         to, from;
    char        why[200]; /* why it does not; ""                                  */
    char        rest[512];
    /* of the last time */
    double   wall_ms, cpu_ms, spread;
    uint64_t answer, chunks, sent;
} offload_peer;

/* Until it is ready; false: `why` says why not.  NULL as a path: it was not built. */
bool offload_start(offload_peer *p, bool is_verbose);
bool offload_go(offload_peer *p, unsigned chunks);
/* It may not run. */
void offload_stop(offload_peer *p);

/* ---- samples: offload_peer.c ----------------------------------------------------------- */

#define OFFLOAD_ROUNDS_MAX 101
typedef struct offload_samples {
    double   value[OFFLOAD_ROUNDS_MAX];
    unsigned n;
} offload_samples;

void   offload_sample(offload_samples *s, double value);
double offload_median(const offload_samples *s); /* 0 without any */
/* Of the median, at least 95 % by order statistics; at least 6 samples, or the whole range. */
void offload_interval(const offload_samples *s, double *low, double *high);

/* ---- host tasks: offload_tasks.c --------------------------------------------------------- */

typedef struct offload_task_cost {
    double cpu_us, wall_us; /* a task, until all are done */
} offload_task_cost;

/* `naccessors` 0: usm_host_task(); else usm_buffer_task().  false: it could not be measured, and
 * usm_last_error() says why. */
bool offload_time_tasks(bool is_in_order, unsigned naccessors, unsigned count,
                        offload_task_cost *cost);

/* ---- a run: offload.c ---------------------------------------------------------------------- */

/* Of this run: fixed before the first section. */
typedef struct offload_choices {
    const bench_options *options;
    unsigned             rounds;
    char half[48]; /* NAME=VALUE: PoCL's share of the processors, of two processes */
} offload_choices;
extern offload_choices offload_run;

/* Programs of the build tree, NULL where they were not built: offload.c. */
const char *offload_worker_path(void);
/* words[] of a job of two ranks of `program`, and its env[]; an MPI's name is mpis[mpi]'s. */
#define OFFLOAD_MPIS 2
const char *offload_mpi_name(unsigned mpi);
bool        offload_rank_worker(unsigned mpi, offload_peer *p);

void offload_words(offload_peer *p, const char *first, ...);
bool offload_is_wanted(const char *section);
void offload_show(const char *what, unsigned round);

/* The sections of offload_more.c. */
void offload_section_tasks(void);
void offload_section_uneven(void);
void offload_section_traffic(void);
void offload_section_idle(void);
void offload_section_start(void);

#endif
