/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Measuring by turns and printing rows, for people and as JSON:
 * {"rows": [{"name", "value", "unit", "peer", "ratio", "goal", "met"}, ...]}, with more members
 * where a benchmark knows more.  Without a peer the goal is the value's own. Called by the
 * benchmarks and by main.c. */
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
    bench_row row = {
        .name = name, .unit = "ns", .peer = theirs ? peer : NULL, .goal = theirs ? goal : 0};

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

bool bench_is_met(const bench_row *r)
{
    double value = r->peer ? r->value / r->peer_value : r->value;

    if (r->why && r->value == 0) /* it could not be measured */
        return false;
    if (r->is_least)
        return value >= r->goal;
    return value <= r->goal && (r->limit == 0 || r->value <= r->limit);
}

/* A string of our own making or a library's error text. */
static void print_string(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    putchar('"');
}

static void print_cell(const bench_cell *c)
{
    printf("{\"name\": \"%s\", ", c->name);
    if (c->median > 0)
        printf("\"value\": %.3f, \"minimum\": %.3f", c->median, c->minimum);
    else
        printf("\"value\": null, \"minimum\": null");
    if (c->p99 > 0)
        printf(", \"p50\": %.1f, \"p99\": %.1f", c->p50, c->p99);
    if (c->why) {
        printf(", \"why\": ");
        print_string(c->why);
    }
    putchar('}');
}

static void print_more(const bench_row *r)
{
    if (r->minimum > 0)
        printf(", \"minimum\": %.3f", r->minimum);
    if (r->limit > 0)
        printf(", \"limit\": %.3f", r->limit);
    if (r->p99 > 0)
        printf(", \"p50\": %.1f, \"p99\": %.1f", r->p50, r->p99);
    if (r->calls > 0)
        printf(", \"driver_calls\": %.0f, \"reuse\": %.5f", r->calls, r->reuse);
    if (r->is_least)
        printf(", \"at_least\": true");
    if (r->why) {
        printf(", \"why\": ");
        print_string(r->why);
    }
    for (size_t i = 0; i < r->ncells; i++) {
        printf("%s", i ? ", " : ", \"peers\": [");
        print_cell(&r->cells[i]);
    }
    printf("%s}", r->ncells ? "]" : "");
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
            printf("\"peer\": \"%s\", \"ratio\": %.4f, ", r->peer, ratio);
        else
            printf("\"peer\": null, \"ratio\": null, ");
        if (r->goal > 0)
            printf("\"goal\": %.4f, \"met\": %s", r->goal, bench_is_met(r) ? "true" : "false");
        else
            printf("\"goal\": null, \"met\": null");
        print_more(r);
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
            printf("<=%5.2f %s", r->goal, bench_is_met(r) ? "met" : "MISSED");
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
