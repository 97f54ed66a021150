/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How well policies share a launch out: the book of src/offload under a clock that is simulated.
 *
 *     policy_sim [--verbose]
 *
 * Devices do their chunks one after the other; a chunk takes a cost, and its indices at the
 * device's speed.  The work takes all devices together a second; where one slows down, the fastest
 * halves its speed after 0.3 s.  Printed is the time until all is done, by the time that perfect
 * sharing without costs would take.  Fails where the adaptive policy is worse than 1.025 in one of
 * the 16 cases, with one or two chunks under way a device, and where another is out of its bounds.
 */
#include "offload/schedule.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL     (1u << 20)
#define DEVICES   16
#define DEPTH_MAX 2
#define SLOW_FROM 0.3 /* of a second */
#define GOAL      1.025

typedef struct set {
    const char *name;
    uint32_t    n;
    double      speeds[DEVICES]; /* relative */
} set;

/* The 16 cases are the first four, each with two costs, with and without a device that slows down.
 */
static const set sets[] = {
    {"1:1", 2, {1, 1}},
    {"1:4", 2, {1, 4}},
    {"1:2:4:8", 4, {1, 2, 4, 8}},
    {"1:20", 2, {1, 20}},
    {"1:1:20:20", 4, {1, 1, 20, 20}},
    {"1 of 16", 16, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {"1:100", 2, {1, 100}},
};
#define CASES_OF (sizeof sets / sizeof sets[0])

typedef struct job {
    const set    *devices;
    const char   *policy;
    usm_policy_fn fn;
    double        cost; /* seconds */
    uint32_t      depth;
    double        number; /* of the policy; 0: none                                         */
    double        wrong;  /* weights are the speeds, times 1 - this and 1 + this in turn    */
    double        noise;  /* chunks take up to so much more or less                         */
    bool          slows, weighs, measures, repeats;
} job;

typedef struct device {
    double     speed; /* indices a second */
    bool       slows;
    usm__chunk queue[DEPTH_MAX];
    uint32_t   n;
    double     began, ends;
    double     work;  /* indices it is at, as they turn out                                       */
    double     first; /* all it did before anybody else                                           */
} device;

typedef struct outcome {
    double   ratio;
    uint64_t chunks, duplicated;
} outcome;

/* When `work` indices begun at `at` are done. */
static double end_of(const device *d, double at, double work)
{
    double before;

    if (!d->slows || at >= SLOW_FROM)
        return at + work / (d->slows ? d->speed / 2 : d->speed);
    before = (SLOW_FROM - at) * d->speed;
    if (work <= before)
        return at + work / d->speed;
    return SLOW_FROM + (work - before) / (d->speed / 2);
}

static double sum_of(const set *s)
{
    double sum = 0;

    for (uint32_t i = 0; i < s->n; i++)
        sum += s->speeds[i];
    return sum;
}

static uint32_t fastest_of(const set *s)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < s->n; i++)
        if (s->speeds[i] > s->speeds[best])
            best = i;
    return best;
}

/* Of a job of so many times a second of all devices. */
static double ideal(const job *j, double seconds)
{
    double sum = sum_of(j->devices), most = j->devices->speeds[fastest_of(j->devices)];

    return j->slows ? SLOW_FROM + (seconds - SLOW_FROM) * sum / (sum - most / 2) : seconds;
}

/* -1 to 1, the same in each run. */
static double next_noise(void)
{
    static uint32_t x = 1;

    x = x * 1664525 + 1013904223;
    return (double)x / (double)(1u << 31) - 1;
}

static void start(const job *j, device *d, double at)
{
    d->work  = (double)d->queue[0].count * (1 + j->noise * next_noise());
    d->began = at;
    d->ends  = end_of(d, at + j->cost, d->work);
}

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

static void fill(usm__schedule *ledger, const job *j, device *devices, double at)
{
    for (uint32_t i = 0; i < j->devices->n; i++) {
        device *d = &devices[i];

        while (d->n < j->depth && usm__schedule_take(ledger, i, ns_of(at), &d->queue[d->n])) {
            if (d->n++ == 0)
                start(j, d, at);
        }
    }
}

static usm__schedule *open_book(const job *j)
{
    double               weights[DEVICES];
    usm__schedule_params p = {.total            = TOTAL,
                              .multiple         = 1,
                              .nworkers         = j->devices->n,
                              .depth            = j->depth,
                              .policy           = j->fn,
                              .numbers          = &j->number,
                              .nnumbers         = j->number > 0,
                              .weights          = j->weighs ? weights : NULL,
                              .may_repeat       = j->repeats,
                              .least_silence_ns = 1000000000};

    for (uint32_t i = 0; i < j->devices->n; i++)
        weights[i] = j->devices->speeds[i] * (i % 2 == 0 ? 1 - j->wrong : 1 + j->wrong);
    return usm__schedule_create(&p);
}

/* The next device to end a chunk; n: all are idle. */
static uint32_t next_of(const job *j, const device *devices)
{
    uint32_t next = j->devices->n;
    double   at   = DBL_MAX;

    for (uint32_t i = 0; i < j->devices->n; i++)
        if (devices[i].n > 0 && devices[i].ends < at) {
            at   = devices[i].ends;
            next = i;
        }
    return next;
}

static outcome simulate(const job *j)
{
    usm__schedule      *ledger           = open_book(j);
    device              devices[DEVICES] = {{.n = 0}};
    usm__schedule_stats stats;
    double              at = 0, work = 0;

    if (ledger == NULL)
        exit(1);
    for (uint32_t i = 0; i < j->devices->n; i++) {
        devices[i].speed = j->devices->speeds[i] / sum_of(j->devices) * TOTAL;
        devices[i].slows = j->slows && i == fastest_of(j->devices);
    }
    fill(ledger, j, devices, at);
    while (!usm__schedule_is_over(ledger)) {
        uint32_t i = next_of(j, devices);
        device  *d = &devices[i];
        uint64_t next;

        if (i == j->devices->n) {
            printf("# nobody has anything to do, and the launch is not over\n");
            exit(1);
        }
        at = d->ends;
        if (usm__schedule_done(ledger, i, d->queue[0].id, ns_of(at),
                               j->measures ? ns_of(at - d->began - j->cost) : 0) ==
            USM__CHUNK_COUNTS)
            d->first += d->work;
        memmove(&d->queue[0], &d->queue[1], --d->n * sizeof d->queue[0]);
        if (d->n > 0)
            start(j, d, at);
        if (j->repeats)
            (void)usm__schedule_overdue(ledger, ns_of(at), &next);
        fill(ledger, j, devices, at);
    }
    usm__schedule_get_stats(ledger, &stats);
    usm__schedule_destroy(ledger);
    for (uint32_t i = 0; i < j->devices->n; i++)
        work += devices[i].first;
    return (outcome){at / ideal(j, work / TOTAL), stats.chunks, stats.duplicated};
}

/* All costs, with and without slowing down: the worst ratio of the first `nsets` sets. */
static double sweep(job j, size_t nsets, bool is_verbose)
{
    static const double costs[] = {10e-6, 1e-3};
    double              worst   = 0;

    for (size_t i = 0; i < nsets; i++)
        for (int c = 0; c < 2; c++)
            for (int slows = 0; slows < 2; slows++) {
                outcome o;

                j.devices = &sets[i];
                j.cost    = costs[c];
                j.slows   = slows;
                o         = simulate(&j);
                if (o.ratio > worst)
                    worst = o.ratio;
                if (is_verbose)
                    printf("    %-10s cost %4.0f us%s: %.4f, %llu chunks, %llu twice\n",
                           sets[i].name, costs[c] * 1e6, slows ? ", one slows" : "           ",
                           o.ratio, (unsigned long long)o.chunks, (unsigned long long)o.duplicated);
            }
    return worst;
}

/* A policy of the user. */
static uint64_t half_of_the_rest(const usm_policy_state *s, uint32_t member)
{
    (void)member;
    return s->remaining / (2 * s->nmembers) + 1;
}

typedef struct row {
    const char *text;
    job         job;
    double      most; /* of its worst ratio */
} row;

static const row rows[] = {
    {"equal split", {.policy = "static"}, 11},
    {"static, speeds known", {.policy = "static", .weighs = true}, 1.5},
    {"static, speeds 20 % wrong", {.policy = "static", .weighs = true, .wrong = 0.2}, 1.8},
    {"fixed, 16 chunks", {.policy = "fixed", .number = TOTAL / 16}, 2.7},
    {"fixed, 64 chunks", {.policy = "fixed", .number = TOTAL / 64}, 1.7},
    {"fixed, 256 chunks", {.policy = "fixed", .number = TOTAL / 256}, 1.4},
    {"guided, equal weights", {.policy = "guided"}, 11},
    {"guided, speeds 20 % wrong", {.policy = "guided", .weighs = true, .wrong = 0.2}, 1.3},
    {"fastest", {.policy = "fastest"}, 3},
    {"adaptive", {.policy = "adaptive"}, GOAL},
    {"adaptive, times of kernels", {.policy = "adaptive", .measures = true}, GOAL},
    {"adaptive, may repeat", {.policy = "adaptive", .repeats = true}, GOAL},
    {"adaptive, times 10 % off", {.policy = "adaptive", .noise = 0.1}, 1.05},
    {"adaptive, both", {.policy = "adaptive", .repeats = true, .noise = 0.1}, 1.05},
    {"mine: guided, nothing known", {.fn = half_of_the_rest}, 11},
};

int main(int argc, char **argv)
{
    bool is_verbose = argc > 1 && strcmp(argv[1], "--verbose") == 0;
    int  failed     = 0;

    printf("# worst time / ideal in %d cases  depth 1  depth 2  bound   harder sets: depth 1  2\n",
           16);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        job    j = rows[i].job;
        double worst[2], harder[2];

        if (j.policy != NULL)
            j.fn = usm__chunk_policy_find(j.policy);
        for (uint32_t depth = 1; depth <= DEPTH_MAX; depth++) {
            j.depth           = depth;
            worst[depth - 1]  = sweep(j, 4, is_verbose);
            harder[depth - 1] = sweep(j, CASES_OF, is_verbose);
            failed += worst[depth - 1] > rows[i].most;
        }
        printf("  %-31s %7.4f  %7.4f  %6.3f             %7.4f  %7.4f%s\n", rows[i].text, worst[0],
               worst[1], rows[i].most, harder[0], harder[1],
               worst[0] > rows[i].most || worst[1] > rows[i].most ? "  FAILED" : "");
    }
    return failed > 0;
}
