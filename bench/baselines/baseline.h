/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the baselines have in common: their command line, and being told when to run.
 *
 * A baseline computes once unmeasured, says "ready ..." and then computes once for every line that
 * comes on its standard input, so that several of them can be measured by turns:
 *
 *     go        compute                            -> idw_opencl chunks=16 wall_ms=57.812
 *     go 64     compute in 64 chunks from now on      cpu_ms=55.123 answer=8c1f0a7be2d94c35
 *     quit      or the end of input
 *
 * With --repeat R it computes R times and reads nothing.  In between it sleeps. */
#ifndef BASELINE_H
#define BASELINE_H

#include <stdbool.h>
#include <stdint.h>

struct baseline {
    const char *name;
    /* options */
    const char *device; /* a part of an OpenCL device's name; NULL: the first GPU, else the first */
    int64_t     points, side; /* of idw                                                           */
    int64_t     candidates;   /* of md5: texts to try                                             */
    int64_t     hit_pct;      /* of md5: where the text is that has the digest; -1: there is none */
    int64_t     chunks;       /* changed by "go N"                                                */
    int64_t     repeat;       /* 0: as standard input says                                        */
    bool        verify;       /* the warm-up's result against plain C                             */
    /* what is going on */
    int64_t repetitions; /* begun, with the warm-up */
    double  start_wall_ms, start_cpu_ms;
    double  wall_ms, cpu_ms; /* of the last one; of this process */
};

/* Says on stderr what is wrong, and ends the process. */
void baseline_options(struct baseline *b, const char *name, int argc, char **argv);
/* Waits until it is to compute; false: it was the last time. */
bool baseline_next(struct baseline *b);
void baseline_start(struct baseline *b);
void baseline_stop(struct baseline *b);
/* One line; `cpu_ms` is b->cpu_ms, or that of several processes. */
void baseline_report(const struct baseline *b, double cpu_ms, uint64_t answer);

_Noreturn void baseline_die(const char *what);

/* Chunk k of n parts of `total`: [begin, end). */
static inline int64_t baseline_cut(int64_t total, int64_t k, int64_t n)
{
    return total / n * k + total % n * k / n;
}

#endif
