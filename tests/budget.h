/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The budget of a model: which seeds it runs, and how long it may go on.
 *
 *     --seed N       the first seed
 *     --seeds COUNT  at most so many of them
 *     --seconds S    no new seed once S seconds of processor time are spent
 *
 * Seeds run one after the other from the first one, so a run with a larger budget contains the
 * smaller one.  The time is the processor's, of this process and of the children it has waited for:
 * on a machine that is busy with other work a model takes longer and runs as many seeds as ever.
 * The processor time of a model that mostly waits hardly moves, therefore no seed begins either
 * when BUDGET_PATIENCE times S seconds have passed on the wall clock.  One seed runs in any case.
 *
 *     static budget seeds = {.first = 1, .most = 1000};
 *
 *     while (budget_next(&seeds, &seed))
 *         run_seed(seed);
 *     budget_print(&seeds);
 *
 * One thread at a time. */
#ifndef TESTS_BUDGET_H
#define TESTS_BUDGET_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { BUDGET_PATIENCE = 20 };

typedef struct budget {
    uint64_t first, most; /* most: without --seconds; with it there is no such limit            */
    double   seconds;     /* 0: no limit                                                        */
    bool     has_most;    /* --seeds was given                                                  */
    uint64_t ran;
    double   processor_began, wall_began;
} budget;

/* Takes argv[*i] and its value, and leaves *i at the value; false: the argument is another one. */
static inline bool budget_option(budget *b, int argc, char **argv, int *i)
{
    const char *name = argv[*i];

    if (*i + 1 >= argc)
        return false;
    if (strcmp(name, "--seed") == 0) {
        b->first = strtoull(argv[*i + 1], NULL, 0);
    } else if (strcmp(name, "--seeds") == 0) {
        b->most     = strtoull(argv[*i + 1], NULL, 0);
        b->has_most = true;
    } else if (strcmp(name, "--seconds") == 0) {
        b->seconds = strtod(argv[*i + 1], NULL);
    } else {
        return false;
    }
    ++*i;
    return true;
}

static inline double budget_clock(clockid_t clock)
{
    struct timespec now = {0, 0};

    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline double budget_processor_time(void)
{
    struct rusage children = {0};

    (void)getrusage(RUSAGE_CHILDREN, &children);
    return budget_clock(CLOCK_PROCESS_CPUTIME_ID) +
           (double)(children.ru_utime.tv_sec + children.ru_stime.tv_sec) +
           (double)(children.ru_utime.tv_usec + children.ru_stime.tv_usec) / 1e6;
}

static inline bool budget_is_spent(const budget *b)
{
    if ((b->has_most || b->seconds <= 0) && b->ran >= b->most)
        return true;
    return b->seconds > 0 &&
           (budget_processor_time() - b->processor_began >= b->seconds ||
            budget_clock(CLOCK_MONOTONIC) - b->wall_began >= BUDGET_PATIENCE * b->seconds);
}

/* The next seed; false: the budget is spent. */
static inline bool budget_next(budget *b, uint64_t *seed)
{
    if (b->ran == 0) {
        b->processor_began = budget_processor_time();
        b->wall_began      = budget_clock(CLOCK_MONOTONIC);
    } else if (budget_is_spent(b)) {
        return false;
    }
    *seed = b->first + b->ran++;
    return true;
}

/* The beginning of the line by which a model ends: which seeds to run to see the same again. */
static inline void budget_print(const budget *b)
{
    printf("seeds %llu to %llu", (unsigned long long)b->first,
           (unsigned long long)(b->first + b->ran - 1));
}

#endif
