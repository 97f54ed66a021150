/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Measuring by turns and printing rows, for people and as JSON:
 * {"rows": [{"name", "value", "unit", "peer", "ratio", "goal", "met"}, ...]}.
 * Called by the benchmarks and by main.c. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 15

uint64_t bench_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void bench_add(bench_report *report, const bench_row *row)
{
    if (report->nrows < BENCH_ROWS_MAX)
        report->rows[report->nrows++] = *row;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return values[n / 2];
}

static bool time_one(bench_fn *fn, void *arg, size_t n, double *ns)
{
    uint64_t start = bench_now_ns();

    if (!fn(arg, n))
        return false;
    *ns = (double)(bench_now_ns() - start) / (double)n;
    return true;
}

bool bench_compare(bench_report *report, const char *name, const char *peer, double goal, size_t n,
                   bench_fn *ours, bench_fn *theirs, void *arg)
{
    double    mine[ROUNDS], other[ROUNDS] = {0}, warm;
    bench_row row = {name, 0, "ns", theirs ? peer : NULL, 0, theirs ? goal : 0};

    if (!time_one(ours, arg, n, &warm) || (theirs && !time_one(theirs, arg, n, &warm)))
        return false;
    for (size_t i = 0; i < ROUNDS; i++)
        if (!time_one(ours, arg, n, &mine[i]) || (theirs && !time_one(theirs, arg, n, &other[i])))
            return false;
    row.value      = median(mine, ROUNDS);
    row.peer_value = theirs ? median(other, ROUNDS) : 0;
    bench_add(report, &row);
    return true;
}

static void print_json(const bench_report *report)
{
    printf("{\"rows\": [");
    for (size_t i = 0; i < report->nrows; i++) {
        const bench_row *r     = &report->rows[i];
        double           ratio = r->peer ? r->value / r->peer_value : 0;

        printf("%s\n  {\"name\": \"%s\", \"value\": %.3f, \"unit\": \"%s\", ", i ? "," : "",
               r->name, r->value, r->unit);
        if (r->peer)
            printf("\"peer\": \"%s\", \"ratio\": %.3f, ", r->peer, ratio);
        else
            printf("\"peer\": null, \"ratio\": null, ");
        if (r->goal > 0)
            printf("\"goal\": %.3f, \"met\": %s}", r->goal, ratio <= r->goal ? "true" : "false");
        else
            printf("\"goal\": null, \"met\": null}");
    }
    printf("\n]}\n");
}

static void print_text(const bench_report *report)
{
    printf("%-44s %10s %10s %7s %7s\n", "", "libusm ns", "peer ns", "ratio", "goal");
    for (size_t i = 0; i < report->nrows; i++) {
        const bench_row *r = &report->rows[i];

        printf("%-44s %10.1f ", r->name, r->value);
        if (r->peer)
            printf("%10.1f %7.2f ", r->peer_value, r->value / r->peer_value);
        else
            printf("%10s %7s ", "", "");
        if (r->goal > 0)
            printf("<=%5.2f %s", r->goal, r->value / r->peer_value <= r->goal ? "met" : "MISSED");
        printf("%s%s\n", r->peer ? "  against " : "", r->peer ? r->peer : "");
    }
}

void bench_print(const bench_report *report, bool json)
{
    if (json)
        print_json(report);
    else
        print_text(report);
}
