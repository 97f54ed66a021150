/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tables of `usm-bench pool`, for people and for a page.  Called by pool.c. */
#include "pool.h"

#include <string.h>

/* A cell of a table: fixed width for people, between bars for a page. */
static void cell(bool markdown, int width, const char *text)
{
    if (markdown)
        printf(" %s |", text);
    else
        printf(" %*s", width, text);
}

/* Three digits that say something. */
static const char *number(double value, char *text, size_t cap)
{
    snprintf(text, cap, value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
    return text;
}

static void value_cell(bool markdown, int width, const pool_cell *c)
{
    char text[32];

    cell(markdown, width, c->have ? number(c->median, text, sizeof text) : "-");
}

/* The section's first row; NULL: it has none, or nobody could take part (print_absent() says why).
 */
static const pool_row *first_row(const pool_table *t, const pool_section *s)
{
    const pool_row *first = NULL;
    bool            any   = false;

    for (size_t i = t->nrows; i-- > 0;) {
        if (t->row[i].section != s)
            continue;
        first = &t->row[i];
        for (unsigned j = 0; j < first->ncells; j++)
            any = any || first->cell[j].have;
    }
    return any ? first : NULL;
}

static unsigned ours_shown(const pool_section *s)
{
    return s->measure == POOL_EVENTS ? 1 : s->nours;
}

static void print_head(const pool_section *s, const pool_row *row, bool markdown)
{
    printf(markdown ? "\n**%s** (%s)\n\n" : "\n%s (%s)\n", s->title, s->unit);
    if (markdown)
        printf("| workload | threads |");
    else
        printf("%-26s T", "");
    for (unsigned i = 0; i < row->ncells; i++)
        if (i < ours_shown(s) || i >= s->nours)
            cell(markdown, 13, contender_name(row->cell[i].id));
    cell(markdown, 15, pool_compares(s) ? "ratio" : "");
    cell(markdown, 15, "goal");
    cell(markdown, 0, "");
    if (markdown) {
        printf("\n|---|---|");
        for (unsigned i = 0; i < row->ncells + 3; i++)
            if (i < ours_shown(s) || i >= s->nours)
                printf("---|");
    }
    printf("\n");
}

/* What holds for each of ours, separated by " / ". */
static void join(char *out, size_t cap, const char *text)
{
    size_t n = strlen(out);

    snprintf(out + n, cap - n, "%s%s", n ? " / " : "", text);
}

/* Goals of ratios under 1/10 are written as parts; less than a hundredth of a value is nothing. */
static const char *goal_text(const pool_section *s, double goal, char *text, size_t cap)
{
    if (goal == 0)
        snprintf(text, cap, "-");
    else if (goal < 0.01 && !pool_compares(s))
        snprintf(text, cap, "0");
    else if (goal < 0.2)
        snprintf(text, cap, "<= 1/%.0f", 1 / goal);
    else
        snprintf(text, cap, "<= %.*f", goal < 5 ? 2 : 0, goal);
    return text;
}

static const char *ratio_text(double ratio, char *text, size_t cap)
{
    if (ratio == 0)
        snprintf(text, cap, "-");
    else if (ratio < 0.1)
        snprintf(text, cap, "1/%.0f", 1 / ratio);
    else
        snprintf(text, cap, "%.2f", ratio);
    return text;
}

static void print_verdict(const pool_row *row, bool markdown)
{
    const pool_section *s         = row->section;
    char                ratio[64] = "", goal[64] = "", met[64] = "", text[32];
    bool                same  = true;
    int                 first = pool_met(row, 0);

    for (unsigned i = 0; i < ours_shown(s); i++) {
        int is_met = pool_met(row, i);

        same = same && row->plan->goal[i] == row->plan->goal[0];
        join(ratio, sizeof ratio, ratio_text(pool_ratio(row, i), text, sizeof text));
        if (!same || i == 0)
            join(goal, sizeof goal, goal_text(s, row->plan->goal[i], text, sizeof text));
        if (is_met >= 0 && (i == 0 || is_met != first))
            join(met, sizeof met, is_met ? "met" : "MISSED");
    }
    if (row->plan->limit > 0) {
        snprintf(text, sizeof text, ", <= %.0f ns", row->plan->limit);
        snprintf(goal + strlen(goal), sizeof goal - strlen(goal), "%s", text);
    }
    cell(markdown, 15, pool_compares(s) ? ratio : "");
    cell(markdown, 15, strcmp(goal, "-") == 0 ? "" : goal);
    cell(markdown, 0, met);
}

static void print_row(const pool_row *row, bool markdown)
{
    const pool_section *s = row->section;

    if (markdown)
        printf("| %s | %u |", row->title, row->plan->threads);
    else
        printf("%-26s %u", row->title, row->plan->threads);
    for (unsigned i = 0; i < row->ncells; i++)
        if (i < ours_shown(s) || i >= s->nours)
            value_cell(markdown, 13, &row->cell[i]);
    print_verdict(row, markdown);
    printf("\n");
}

static void print_latency_head(const pool_row *row, bool markdown)
{
    if (!markdown) {
        printf("  single calls, p50/p99 ns\n");
        return;
    }
    printf("\n<details><summary>Single calls of the same, p50/p99 in ns</summary>\n\n"
           "| workload | threads |");
    for (unsigned i = 0; i < row->ncells; i++)
        cell(true, 0, contender_name(row->cell[i].id));
    for (unsigned i = 0; i < row->ncells + 2; i++)
        printf(i ? "---|" : "\n|---|");
    printf("\n");
}

static void print_latency(const pool_row *row, bool markdown)
{
    char text[64];

    if (markdown)
        printf("| %s | %u |", row->title, row->plan->threads);
    else
        printf("%-26s %u", row->title, row->plan->threads);
    for (unsigned i = 0; i < row->ncells; i++) {
        const pool_cell *c = &row->cell[i];

        snprintf(text, sizeof text, c->have_latency ? "%.0f/%.0f" : "-", c->p50, c->p99);
        cell(markdown, 13, text);
    }
    printf("\n");
}

/* Single calls: p50 / p99 of every contender. */
static void print_latencies(const pool_table *t, const pool_section *s, bool markdown)
{
    bool head = false;

    for (size_t i = 0; i < t->nrows; i++) {
        const pool_row *row = &t->row[i];

        if (row->section != s || !row->cell[0].have_latency)
            continue;
        if (!head)
            print_latency_head(row, markdown);
        head = true;
        print_latency(row, markdown);
    }
    if (head && markdown)
        printf("\n</details>\n");
}

/* Driver calls and the share of allocations that needed none. */
static void print_reuse(const pool_table *t, const pool_section *s, bool markdown)
{
    if (s->measure != POOL_HELD)
        return;
    for (size_t i = 0; i < t->nrows; i++) {
        const pool_row *row = &t->row[i];

        for (unsigned j = 0; row->section == s && j < s->nours; j++)
            if (row->cell[j].have)
                printf("%s%s, %s: %.0f driver calls, %.2f %% of the allocations without one\n",
                       markdown ? "\n" : "  ", row->title, contender_name(row->cell[j].id),
                       row->cell[j].driver_calls, 100 * row->cell[j].reuse);
    }
}

/* Everyone who could not take part, once for each reason. */
static void print_absent(const pool_table *t, bool markdown)
{
    const pool_cell *notified[CONTENDERS];
    unsigned         ntold = 0;

    for (size_t i = 0; i < t->nrows; i++)
        for (unsigned j = 0; j < t->row[i].ncells; j++) {
            const pool_cell *c    = &t->row[i].cell[j];
            unsigned         seen = 0;

            if (c->have || !c->why)
                continue;
            while (seen < ntold && strcmp(notified[seen]->why, c->why) != 0)
                seen++;
            if (seen < ntold || ntold == CONTENDERS)
                continue;
            notified[ntold++] = c;
            printf("%snot measured: %s in %s: %s\n", markdown ? "\n" : "", contender_name(c->id),
                   t->row[i].section->name, c->why);
        }
}

static void print_who(bool markdown)
{
    printf(markdown ? "\nPeers: glibc" : "\npeers: glibc");
    for (int id = JEMALLOC; id <= TBB; id++)
        if (!contender_missing((contender_id)id))
            printf(", %s (%s)", contender_name((contender_id)id),
                   contender_library((contender_id)id));
    printf("\n");
}

static void print_sums(const pool_table *t)
{
    unsigned met = 0, missed = 0, open = 0;

    for (size_t i = 0; i < t->nrows; i++)
        for (unsigned j = 0; j < ours_shown(t->row[i].section); j++) {
            int is_met = pool_met(&t->row[i], j);

            met += is_met == 1;
            missed += is_met == 0;
            open += is_met < 0 && t->row[i].plan->goal[j] > 0;
        }
    printf("\n%u goals met, %u missed, %u could not be measured here; medians of %u repetitions by "
           "turns (5 where they take long)%s, seed %llu\n",
           met, missed, open, t->rounds, t->pinned ? ", threads pinned" : "",
           (unsigned long long)t->seed);
}

void pool_print(const pool_table *t, bool markdown)
{
    for (size_t i = 0; i < pool_nsections; i++) {
        const pool_section *s     = &pool_sections[i];
        const pool_row     *first = first_row(t, s);

        if (!first)
            continue;
        print_head(s, first, markdown);
        for (size_t j = 0; j < t->nrows; j++)
            if (t->row[j].section == s)
                print_row(&t->row[j], markdown);
        print_reuse(t, s, markdown);
        print_latencies(t, s, markdown);
    }
    print_who(markdown);
    print_absent(t, markdown);
    print_sums(t);
}
