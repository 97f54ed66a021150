/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plot of `usm-bench pool`: a group of bars for each workload of the device section that has a
 * goal, a bar for each contender, a logarithmic axis in ns.  Colours are legible on light and on
 * dark pages; the text follows the page's scheme.  Called by pool.c. */
#include "pool.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define WIDTH  860.0
#define LEFT   210.0 /* of the bars */
#define RIGHT  70.0  /* room for the longest bar's number */
#define TOP    78.0
#define BAR    11.0
#define GAP    13.0
#define LEAST  2.0 /* ns; where bars begin */
#define GROUPS 32

typedef struct plot {
    FILE           *out;
    const pool_row *row[GROUPS];
    unsigned        nrows;
    double          most, height; /* ns; pixels */
} plot;

static const char *const colours[] = {"#e8590c", "#868e96", "#4c8bd0",
                                      "#4fa36b", "#9775cf", "#c09a2b"};

/* Ours over the null backend, then the peers: the other setting of ours has no bar. */
static bool has_bar(const pool_row *row, unsigned i)
{
    return i == 0 || i >= row->section->nours;
}

static unsigned colour_of(const pool_row *row, unsigned i)
{
    return i == 0 ? 0 : i - row->section->nours + 1;
}

/* One row a workload: with one thread, if that was measured. */
static bool is_shown(const plot *p, const pool_row *row)
{
    if (strcmp(row->section->name, "device") != 0 || row->plan->goal[0] == 0 || p->nrows == GROUPS)
        return false;
    for (unsigned i = 0; i < p->nrows; i++)
        if (p->row[i]->title == row->title)
            return false;
    return true;
}

static double group_height(const pool_row *row)
{
    return GAP + BAR * (row->ncells - row->section->nours + 1);
}

static void choose(plot *p, const pool_table *table)
{
    p->most   = 100;
    p->height = TOP + 30;
    for (size_t i = 0; i < table->nrows; i++) {
        const pool_row *row = &table->row[i];

        if (!is_shown(p, row))
            continue;
        p->row[p->nrows++] = row;
        p->height += group_height(row);
        for (unsigned j = 0; j < row->ncells; j++)
            if (has_bar(row, j) && row->cell[j].median > p->most)
                p->most = row->cell[j].median;
    }
}

static double position(const plot *p, double ns)
{
    double share = log(ns / LEAST) / log(p->most / LEAST);

    return LEFT + (share > 0 ? share : 0) * (WIDTH - LEFT - RIGHT);
}

static void draw_head(const plot *p)
{
    const pool_row *row = p->row[0];
    double          x   = LEFT;
    char            date[32];
    time_t          now = time(NULL);
    struct tm       day;

    gmtime_r(&now, &day);
    strftime(date, sizeof date, "%Y-%m-%d", &day);
    fprintf(p->out,
            "<text x=\"12\" y=\"24\" class=\"title\">One allocation and its release, device memory "
            "that is never touched</text>\n"
            "<text x=\"12\" y=\"42\">ns of thread-CPU time, logarithmic; medians of one run, "
            "%s</text>\n",
            date);
    for (unsigned i = 0; i < row->ncells; i++) {
        if (!has_bar(row, i))
            continue;
        fprintf(p->out,
                "<rect x=\"%.0f\" y=\"52\" width=\"10\" height=\"10\" fill=\"%s\"/>"
                "<text x=\"%.0f\" y=\"61\">%s</text>\n",
                x, colours[colour_of(row, i)], x + 14, contender_name(row->cell[i].id));
        x += 92;
    }
}

static void draw_axis(const plot *p)
{
    static const double at[] = {2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000};

    for (size_t i = 0; i < sizeof at / sizeof *at && at[i] <= p->most; i++)
        fprintf(p->out,
                "<line x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.0f\" class=\"grid\"/>"
                "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.0f</text>\n",
                position(p, at[i]), TOP, position(p, at[i]), p->height - 24, position(p, at[i]),
                p->height - 8, at[i]);
}

static void draw_bar(const plot *p, const pool_row *row, unsigned i, double y)
{
    const pool_cell *c = &row->cell[i];
    double           x;

    if (!c->have)
        return;
    x = position(p, c->median);
    fprintf(p->out,
            "<rect x=\"%.0f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" fill=\"%s\"/>"
            "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%.*f</text>\n",
            LEFT, y, x - LEFT > 1 ? x - LEFT : 1, BAR - 2, colours[colour_of(row, i)],
            (x > LEFT ? x : LEFT + 1) + 4, y + BAR - 3, i == 0 ? "ours" : "value",
            c->median < 99.95 ? 1 : 0, c->median);
}

static void draw_group(const plot *p, const pool_row *row, double y)
{
    fprintf(p->out, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\" class=\"name\">%s</text>\n",
            LEFT - 10, y + BAR, row->title);
    fprintf(p->out, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%u thread%s</text>\n",
            LEFT - 10, y + 2 * BAR + 3, row->plan->threads, row->plan->threads > 1 ? "s" : "");
    for (unsigned i = 0; i < row->ncells; i++) {
        if (!has_bar(row, i))
            continue;
        draw_bar(p, row, i, y);
        y += BAR;
    }
}

static void draw(const plot *p)
{
    double y = TOP + GAP / 2;

    fprintf(p->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"11\">\n<style>"
            "text{fill:#555}.title{font-size:15px;font-weight:bold}.name{font-size:12px;"
            "font-weight:bold}.ours{font-weight:bold}.value{font-size:9.5px}.ours{font-size:9.5px}"
            ".title,.name,.ours{fill:#222}.grid{stroke:#888;stroke-opacity:.25}"
            "@media(prefers-color-scheme:dark){text{fill:#aaa}.title,.name,.ours{fill:#eee}}"
            "</style>\n",
            WIDTH, p->height, WIDTH, p->height);
    draw_head(p);
    draw_axis(p);
    for (unsigned i = 0; i < p->nrows; i++) {
        draw_group(p, p->row[i], y);
        y += group_height(p->row[i]);
    }
    fprintf(p->out, "</svg>\n");
}

bool pool_svg(const pool_table *table, const char *path)
{
    static plot p;

    choose(&p, table);
    if (p.nrows == 0) {
        fprintf(stderr, "usm-bench: the plot shows the section \"device\", which was not run\n");
        return false;
    }
    p.out = fopen(path, "w");
    if (!p.out) {
        fprintf(stderr, "usm-bench: %s cannot be written\n", path);
        return false;
    }
    draw(&p);
    if (fclose(p.out) != 0) {
        fprintf(stderr, "usm-bench: %s could not be written in full\n", path);
        return false;
    }
    return true;
}
