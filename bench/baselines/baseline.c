/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The baselines' command line, clocks and conversation (baseline.h). */
#include "baseline.h"

#include "../../samples/common/arguments.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct option {
    const char *name;
    int64_t     least, most;
    int64_t    *value;
};

static const char *the_name = "baseline";

_Noreturn void baseline_die(const char *what)
{
    fprintf(stderr, "%s: %s\n", the_name, what);
    exit(1); /* NOLINT(concurrency-mt-unsafe): one thread of ours */
}

static _Noreturn void wrong_option(const struct option *o, const char *argument)
{
    if (o)
        fprintf(stderr, "%s: %s wants a number from %" PRId64 " to %" PRId64 "\n", the_name,
                o->name, o->least, o->most);
    else
        fprintf(stderr, "%s: unknown option \"%s\"\n", the_name, argument);
    exit(2); /* NOLINT(concurrency-mt-unsafe): one thread of ours */
}

/* How many words of the command line it was. */
static int parse(struct baseline *b, const char *argument, const char *next)
{
    const struct option options[] = {
        {"--points", 1, 10000000, &b->points},
        {"--side", 64, 16384, &b->side},
        {"--candidates", 1, INT64_C(100000000000), &b->candidates},
        {"--hit", 0, 99, &b->hit_pct},
        {"--chunks", 1, 1000000, &b->chunks},
        {"--repeat", 1, 1000000, &b->repeat},
    };
    const char *text;
    int         used = 1;

    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        const struct option *o = &options[i];

        if ((text = argument_value(o->name, argument, next, &used)) != NULL) {
            if (!argument_number(text, o->least, o->most, o->value))
                wrong_option(o, argument);
            return used;
        }
    }
    if ((text = argument_value("--device", argument, next, &used)) != NULL)
        b->device = text;
    else if (strcmp(argument, "--verify") == 0)
        b->verify = true;
    else
        wrong_option(NULL, argument);
    return used;
}

void baseline_options(struct baseline *b, const char *name, int argc, char **argv)
{
    *b       = (struct baseline){.name       = name,
                                 .points     = 500,
                                 .side       = 512,
                                 .candidates = INT64_C(1) << 24,
                                 .hit_pct    = -1,
                                 .chunks     = 1};
    the_name = name;
    for (int i = 1; i < argc;)
        i += parse(b, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
    if (b->side % 64 != 0)
        baseline_die("--side wants a multiple of 64");
    setvbuf(stdout, NULL, _IOLBF, 0);
}

bool baseline_next(struct baseline *b)
{
    char line[64], word[16];
    int  words;

    if (b->repetitions++ == 0)
        return true;
    if (b->repeat > 0)
        return b->repetitions <= b->repeat + 1;
    if (!fgets(line, sizeof line, stdin))
        return false;
    words = sscanf(line, "%15s %" SCNd64, word, &b->chunks);
    if (words >= 1 && strcmp(word, "quit") == 0)
        return false;
    if (words < 1 || strcmp(word, "go") != 0 || b->chunks < 1)
        baseline_die("told neither \"go\", \"go CHUNKS\" nor \"quit\"");
    return true;
}

static double ms_of(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

void baseline_start(struct baseline *b)
{
    b->start_cpu_ms  = ms_of(CLOCK_PROCESS_CPUTIME_ID);
    b->start_wall_ms = ms_of(CLOCK_MONOTONIC);
}

void baseline_stop(struct baseline *b)
{
    b->wall_ms = ms_of(CLOCK_MONOTONIC) - b->start_wall_ms;
    b->cpu_ms  = ms_of(CLOCK_PROCESS_CPUTIME_ID) - b->start_cpu_ms;
}

void baseline_report(const struct baseline *b, double cpu_ms, uint64_t answer)
{
    if (b->repetitions == 1)
        printf("ready %s chunks=%" PRId64 " answer=%016" PRIx64 "\n", b->name, b->chunks, answer);
    else
        printf("%s chunks=%" PRId64 " wall_ms=%.3f cpu_ms=%.3f answer=%016" PRIx64 "\n", b->name,
               b->chunks, b->wall_ms, cpu_ms, answer);
}
