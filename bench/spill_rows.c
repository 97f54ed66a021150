/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The rows of `usm-bench spill`, `async` and `ipc`: kept, printed for people and as Markdown,
 * handed on for JSON.  Called by spill.c, async.c, ipc.c. */
#include "spill.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    spill_row row[BENCH_ROWS_MAX];
    size_t    n;
} kept;

spill_row *spill_add(const char *section, const char *unit, const char *format, ...)
{
    static spill_row beyond; /* rows that find no room are not printed */
    spill_row       *row = kept.n < BENCH_ROWS_MAX ? &kept.row[kept.n++] : &beyond;
    va_list          arguments;

    *row = (spill_row){.section = section, .unit = unit};
    va_start(arguments, format);
    vsnprintf(row->name, sizeof row->name, format, arguments);
    va_end(arguments);
    return row;
}

void spill_sample(spill_samples *s, double value)
{
    if (value > 0 && s->n < SPILL_ROUNDS_MAX)
        s->value[s->n++] = value;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double spill_median(const spill_samples *s)
{
    double value[SPILL_ROUNDS_MAX];

    if (s->n == 0)
        return 0;
    memcpy(value, s->value, s->n * sizeof *value);
    qsort(value, s->n, sizeof *value, compare_doubles);
    return s->n % 2 ? value[s->n / 2] : (value[s->n / 2 - 1] + value[s->n / 2]) / 2;
}

static bench_row as_bench_row(const spill_row *r)
{
    bool has_peer = r->peer && r->peer_value > 0;

    return (bench_row){.name       = r->name,
                       .value      = r->value,
                       .unit       = r->unit,
                       .peer       = has_peer ? r->peer : NULL,
                       .peer_value = has_peer ? r->peer_value : 0,
                       .goal       = r->peer && !has_peer ? 0 : r->goal,
                       .is_least   = r->is_least,
                       .why        = r->why[0] ? r->why : NULL};
}

void spill_report(bench_report *report)
{
    for (size_t i = 0; i < kept.n; i++) {
        bench_row row = as_bench_row(&kept.row[i]);

        bench_add(report, &row);
    }
}

/* ---- tables ------------------------------------------------------------------------ */

static const char *number(double value, char text[32])
{
    int digits = value == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;

    snprintf(text, 32, "%.*f", digits, value);
    return text;
}

static void print_one(const spill_row *r, bool is_markdown)
{
    bench_row   b = as_bench_row(r);
    char        ours[32], theirs[32], ratio[32] = "", goal[48] = "";
    const char *met = b.goal == 0 ? "" : bench_is_met(&b) ? "met" : "MISSED";

    if (b.peer)
        snprintf(ratio, sizeof ratio, b.value < b.peer_value / 20 ? "%.4f" : "%.2f",
                 b.value / b.peer_value);
    if (b.goal > 0) /* 0.5 stands for none at all */
        snprintf(goal, sizeof goal, "%s %.4g", b.is_least ? ">=" : "<=", b.goal);
    printf(is_markdown ? "| %s | %s | %s | %s%s%s | %s | %s | %s |\n"
                       : "%-40s %9s %-6s %9s%s%-29s %6s %8s %s\n",
           r->name, b.value == 0 && b.why ? "-" : number(b.value, ours), r->unit,
           b.peer ? number(b.peer_value, theirs) : "", b.peer ? " " : "", b.peer ? b.peer : "",
           ratio, goal, met);
    if (r->why[0] && !is_markdown)
        printf("    %s\n", r->why);
}

static void print_reasons(const char *section)
{
    const char *last = "";

    for (size_t i = 0; i < kept.n; i++) {
        const spill_row *r = &kept.row[i];

        if (strcmp(r->section, section) != 0 || !r->why[0] || strcmp(r->why, last) == 0)
            continue;
        printf("\n%s: %s.\n", r->name, r->why);
        last = r->why;
    }
}

static void print_section(const char *section, bool is_markdown)
{
    if (is_markdown)
        printf("\n**%s**\n\n| measurement | libusm | | against | ratio | goal | |\n"
               "|---|---|---|---|---|---|---|\n",
               section);
    else
        printf("\n%s\n", section);
    for (size_t i = 0; i < kept.n; i++)
        if (strcmp(kept.row[i].section, section) == 0)
            print_one(&kept.row[i], is_markdown);
    if (is_markdown)
        print_reasons(section);
}

void spill_print(bool is_markdown)
{
    for (size_t i = 0; i < kept.n; i++)
        if (i == 0 || strcmp(kept.row[i].section, kept.row[i - 1].section) != 0)
            print_section(kept.row[i].section, is_markdown);
}
