/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench pool inside: sections of rows, a cell for each contender.  pool_rows.c says what is
 * measured and what the goals are, pool.c measures, pool_print.c shows. */
#ifndef USM_BENCH_POOL_H
#define USM_BENCH_POOL_H

#include "bench.h"
#include "contenders.h"

#define POOL_OURS_MAX  3
#define POOL_CELLS_MAX 8 /* ours and peers together */

typedef enum pool_measure {
    POOL_TIME,   /* ns of CPU time a pair, interleaved repetitions          */
    POOL_HELD,   /* most reserved / most live in one pass of a trace        */
    POOL_EVENTS, /* ns an event of the trace costs: (traced - untraced) / 2 */
    POOL_SCALE,  /* CPU time a pair, beside that of one thread              */
    POOL_IDLE,   /* MiB that caches hold of threads that sleep              */
} pool_measure;

typedef struct pool_section {
    const char  *name, *title, *unit;
    pool_measure measure;
    contender_id ours[POOL_OURS_MAX], peers[6];
    unsigned     nours, npeers;
    contender_id goal_peer; /* the one the goal speaks of; CONTENDERS: the best */
} pool_section;

/* A row to be measured; goal[i] is that of ours[i]: of the ratio, or of the value itself when the
 * section has no peers or measures each beside itself (POOL_SCALE); 0 = none. */
typedef struct pool_plan {
    const char *section, *workload;
    unsigned    threads;
    double      goal[POOL_OURS_MAX];
    double      limit; /* of the value itself, beside the ratio's; 0 = none */
    bool        quick; /* also with --quick                                 */
} pool_plan;

/* Medians and so on; have = false: `why` it is missing. */
typedef struct pool_cell {
    contender_id id;
    bool         have, have_latency;
    double       median, minimum, p50, p99;
    double       reuse, driver_calls; /* POOL_HELD */
    const char  *why;
} pool_cell;

typedef struct pool_row {
    const pool_plan    *plan;
    const pool_section *section;
    const char         *title;
    pool_cell           cell[POOL_CELLS_MAX]; /* section->ours, then section->peers */
    unsigned            ncells;
} pool_row;

typedef struct pool_table {
    pool_row row[160];
    size_t   nrows;
    unsigned rounds;
    uint64_t seed;
    bool     pinned;
} pool_table;

extern const pool_section pool_sections[];
extern const size_t       pool_nsections;
extern const pool_plan    pool_plans[];
extern const size_t       pool_nplans;

const pool_section *pool_section_find(const char *name);

/* The peer that ours is compared with in this row; NULL: none was measured. */
const pool_cell *pool_peer(const pool_row *row);
/* Do the goals speak of a ratio to a peer? */
bool pool_compares(const pool_section *s);
/* value / peer of cell i (one of ours), or the value itself when the goals are values; 0 when it
 * cannot be told, or is 0. */
double pool_ratio(const pool_row *row, unsigned i);
/* 1 = met, 0 = missed, -1 = no goal, or nothing to compare. */
int pool_met(const pool_row *row, unsigned i);

void pool_print(const pool_table *table, bool markdown);

#endif
