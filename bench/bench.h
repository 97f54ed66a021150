/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench inside: a benchmark fills rows, each a figure and its peer's, both
 * taken in this run, interleaved.  The printing is report.c's. */
#ifndef USM_BENCH_H
#define USM_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one peer took part with. */
typedef struct bench_cell {
    const char *name;
    double      median, minimum; /* 0: not measured            */
    double      p50, p99;        /* of single calls; 0: none   */
    const char *why;             /* why it was not measured    */
} bench_cell;

typedef struct bench_row {
    const char *name;
    double      value; /* ours, median                                                   */
    const char *unit;
    const char *peer;       /* what it is compared with; NULL = nothing                  */
    double      peer_value; /* the peer's, median                                        */
    double      goal;       /* of value / peer_value, at most; without a peer, of value;
                               0 = none                                                  */
    /* What only some benchmarks know; 0 or NULL = nothing. */
    bool              is_least; /* the goal is the least it should be, not the most       */
    const char       *why;      /* why there is no value, or no peer                      */
    double            limit;    /* of value, at most, beside the goal of the ratio          */
    double            minimum, p50, p99;
    double            reuse, calls; /* share of allocations without a driver call; those calls */
    const bench_cell *cells;        /* all peers                                         */
    size_t            ncells;
} bench_row;

#define BENCH_ROWS_MAX 256
typedef struct bench_report {
    size_t    nrows;
    bench_row rows[BENCH_ROWS_MAX];
} bench_report;

typedef struct bench_options {
    bool        json, markdown, quick, pin, verbose;
    uint64_t    seed;
    const char *only;          /* a workload, or how sections begin; NULL  */
    const char *sycl;          /* the folder of Intel's runtimes; NULL     */
    const char *dir;           /* where `spill` writes; NULL: /var/tmp     */
    uint64_t    rounds, scale; /* of `spill`; 0: its own choice   */
} bench_options;

/* A function that does its work n times; false (with a text printed) when it cannot. */
typedef bool bench_fn(void *arg, size_t n);

void bench_add(bench_report *report, const bench_row *row);
/* Runs ours and the peer's (may be NULL) by turns, `rounds` times n operations, and
 * adds the medians in ns per operation. */
bool bench_compare(bench_report *report, const char *name, const char *peer, double goal, size_t n,
                   bench_fn *ours, bench_fn *theirs, void *arg);
uint64_t bench_now_ns(void);
void     bench_print(const bench_report *report, bool json);

/* Is the row's goal met?  Only for rows with a goal. */
bool bench_is_met(const bench_row *row);

/* The benchmarks. 0, or 1 when one could not run, 2 when it was asked for what there is not.
 * All but bench_core() print by themselves unless JSON is wanted. */
int bench_core(bench_report *report, const bench_options *options);
int bench_pool(bench_report *report, const bench_options *options);
int bench_spill(bench_report *report, const bench_options *options);
int bench_async(bench_report *report, const bench_options *options);
int bench_ipc(bench_report *report, const bench_options *options);
int bench_mpi(bench_report *report, const bench_options *options);
int bench_offload(bench_report *report, const bench_options *options);

/* The folder of Intel's runtimes that is meant; NULL: none. */
const char *bench_sycl_folder(const bench_options *options);

#endif
