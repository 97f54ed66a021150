/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* `usm-bench spill` inside: spill.c measures, spill_fio.c is the raw device, spill_group.c limits a
 * worker's memory from outside, spill_rows.c collects and prints. */
#ifndef USM_BENCH_SPILL_H
#define USM_BENCH_SPILL_H

#include "bench.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB ((double)(1 << 20))

/* ---- rows: spill_rows.c ------------------------------------------------------------ */

typedef struct spill_row {
    const char *section;
    char        name[80];
    const char *unit;
    double      value;
    const char *peer; /* NULL: none                                                          */
    double      peer_value;
    double      goal;     /* of the ratio, without a peer of the value; 0: none                  */
    bool        is_least; /* the goal is the least it should be; else the most               */
    char        why[200]; /* why there is no value, or no peer's; "" */
} spill_row;

/* Kept until the end. */
spill_row *spill_add(const char *section, const char *unit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void spill_print(bool is_markdown);
void spill_report(bench_report *report);

/* Values of rounds. */
#define SPILL_ROUNDS_MAX 15
typedef struct spill_samples {
    double   value[SPILL_ROUNDS_MAX];
    unsigned n;
} spill_samples;
void   spill_sample(spill_samples *s, double value);
double spill_median(const spill_samples *s); /* 0 without any */

/* ---- the raw device: spill_fio.c --------------------------------------------------- */

typedef enum spill_raw {
    SPILL_RAW_WRITE, /* a new file, 1 MiB, 8 at a time                                  */
    SPILL_RAW_READ,
    SPILL_RAW_RANDOM,
    SPILL_RAW_OVERWRITE,
    SPILL_RAW_MIXED,        /* half reads, half writes, 16 at a time: half of the sum, as each
                               chunk that is changed is read and written                     */
    SPILL_RAW_SINGLE,       /* 2 MiB, one at a time                                    */
    SPILL_RAW_SMALL_RANDOM, /* 8 KiB, one at a time                                   */
    SPILL_RAW_SMALL_MIXED,
    SPILL_RAWS
} spill_raw;

const char *spill_raw_name(spill_raw raw);
/* Runs fio on `path` over `size` bytes; MiB/s, or 0 and a text.  WRITE makes the file, and the
 * others need it. */
double spill_fio(spill_raw raw, const char *path, uint64_t size, const char **why);

/* ---- control groups: spill_group.c ------------------------------------------------- */

typedef struct spill_group {
    char path[400], tasks[440];
    bool is_v2;
} spill_group;

/* A memory control group of `limit` bytes; false and a text. */
bool     spill_group_create(spill_group *g, uint64_t limit, const char **why);
uint64_t spill_group_peak(const spill_group *g); /* 0: not known */
unsigned spill_group_kills(const spill_group *g);
void     spill_group_destroy(const spill_group *g);

#endif
