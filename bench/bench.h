/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench inside: a benchmark fills rows, each a figure and its peer's, both
 * taken in this run, interleaved.  The printing is report.c's. */
#ifndef USM_BENCH_H
#define USM_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_row {
    const char *name;
    double      value; /* ours, median                                                   */
    const char *unit;
    const char *peer;       /* what it is compared with; NULL = nothing                  */
    double      peer_value; /* the peer's, median                                        */
    double      goal;       /* of value / peer_value, at most; 0 = none                  */
} bench_row;

#define BENCH_ROWS_MAX 64
typedef struct bench_report {
    size_t    nrows;
    bench_row rows[BENCH_ROWS_MAX];
} bench_report;

/* A function that does its work n times; false (with a text printed) when it cannot. */
typedef bool bench_fn(void *arg, size_t n);

void bench_add(bench_report *report, const bench_row *row);
/* Runs ours and the peer's (may be NULL) by turns, `rounds` times n operations, and
 * adds the medians in ns per operation. */
bool bench_compare(bench_report *report, const char *name, const char *peer, double goal, size_t n,
                   bench_fn *ours, bench_fn *theirs, void *arg);
uint64_t bench_now_ns(void);
void     bench_print(const bench_report *report, bool json);

/* The benchmarks. 0, or 1 when one could not run. */
int bench_core(bench_report *report);

#endif
