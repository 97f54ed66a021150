/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the sections of `usm-bench spill` share: this run's choices, and series of workloads in
 * workers; see spill_series.c.  Called by spill.c and its sections. */
#ifndef USM_BENCH_SPILL_SERIES_H
#define USM_BENCH_SPILL_SERIES_H

#include "contenders.h"
#include "spill.h"

enum { W1, R, X, W2, M, S, WORKLOADS };
extern const char *const spill_workloads[WORKLOADS];

#define CHUNK ((size_t)1 << 20)
#define SMALL ((size_t)8 << 10)

/* Of this run: fixed before the first section. */
typedef struct spill_choices {
    const bench_options *options;
    const char          *dir;
    unsigned             rounds;
    uint64_t             scale;
    uint64_t             section_ns; /* no further round begins after it */
    char                 raw_path[600], home_path[600];
} spill_choices;
extern spill_choices spill_run;

typedef struct spill_series {
    const char *title;
    const char *form;               /* of spill_worker.h's `open`               */
    size_t      chunk, n, accesses; /* accesses of X and M; 0: n                */
    uint64_t    limit;
    const char *hint;            /* of spill_worker.h's `open`               */
    bool        has_raw;         /* fio by turns                             */
    const char *setting, *value; /* NULL: the defaults                       */
} spill_series;

typedef struct spill_result {
    spill_samples ours[WORKLOADS], raw[WORKLOADS]; /* MiB/s                     */
    double        memory;                          /* the highest over the limit               */
    const char   *raw_why;
    char          why[200]; /* of a series that failed; ""                        */
} spill_result;

/* What fio does in place of a workload. */
extern const spill_raw spill_raw_of[WORKLOADS];

/* Tells how far the run is. */
void spill_show(const char *section, const char *what, unsigned round);
/* Is there another round to be done, and time for it? */
bool spill_goes_on(unsigned round, uint64_t began_ns);
/* A worker with the limit and the settings of the series; it may run already. */
bool spill_start(contender_id id, const spill_series *s);
bool spill_ask_number(contender_id id, const char *command, double *number);
/* Rounds of all the series by turns. */
void spill_run_all(const char *section, const spill_series *s, spill_result *r, size_t n);

/* Starts a worker with what the series says. */
bool spill_open(const spill_series *s);
/* Runs a workload of that worker. */
bool spill_run_one(const char *workload, size_t accesses, spill_samples *rates);

/* How much memory the worker took at most is compared with its limit; the worst of all is kept. */
double spill_note_memory(contender_id id, const spill_series *s);
double spill_worst_memory(const char **where); /* over its limit; 0: nothing noted */

/* The sections. */
void spill_section_disk(void);
void spill_section_small(void);
void spill_section_tuned(void);
void spill_section_file(void);
void spill_section_memory(void);
void spill_section_managed(void);
void spill_section_sleep(void);
void spill_section_cost(void);
void spill_section_lives(void);

#endif
