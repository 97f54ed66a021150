/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The progress line on stderr: it rewrites itself on a terminal and is one line a quarter
 * elsewhere. It also keeps the time of the stages and looks at how much memory the process has.
 * Called by the tasks. */
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 24

static struct {
    struct report *report;
    const char    *name;
    uint64_t       bytes, done;
    double         start_s, shown_s;
    unsigned       quarter;
    bool           is_quiet;
} now;

static double seconds(void)
{
    struct timespec t;

    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0)
        return 0.0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

uint64_t progress_memory(void)
{
    unsigned long total, pages;
    FILE         *f = fopen("/proc/self/statm", "r");
    int           n = f ? fscanf(f, "%lu %lu", &total, &pages) : 0;

    if (f)
        fclose(f);
    return n == 2 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

void progress_quiet(void)
{
    now.is_quiet = true;
}

void progress_begin(struct report *r, const char *name, uint64_t bytes)
{
    now.report  = r;
    now.name    = name;
    now.bytes   = bytes;
    now.done    = 0;
    now.quarter = 0;
    now.start_s = now.shown_s = seconds();
}

static void show_bar(double share, double rate, double left_s)
{
    char bar[BAR_WIDTH + 1];

    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < share * BAR_WIDTH ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r%-10s[%s] %3.0f %%  %5.0f MB/s  %.0f s left \033[K", now.name, bar,
            100.0 * share, rate, left_s);
}

static void show(double at_s)
{
    const double   taken_s = at_s - now.start_s;
    const double   share   = (double)now.done / (double)now.bytes;
    const double   rate    = taken_s > 0.0 ? 1e-6 * (double)now.done / taken_s : 0.0;
    const double   left_s  = share > 0.0 ? taken_s / share - taken_s : 0.0;
    const unsigned quarter = (unsigned)(4 * now.done / now.bytes);

    if (isatty(STDERR_FILENO)) {
        show_bar(share, rate, left_s);
    } else if (quarter > now.quarter) {
        now.quarter = quarter;
        fprintf(stderr, "%-10s%3.0f %%  %5.0f MB/s  %.0f s left\n", now.name, 100.0 * share, rate,
                left_s);
    }
}

static void look(double at_s)
{
    uint64_t bytes = progress_memory();

    if (bytes > now.report->resident)
        now.report->resident = bytes;
    now.shown_s = at_s;
    if (!now.is_quiet)
        show(at_s);
}

void progress_add(uint64_t bytes)
{
    double at_s = seconds();

    now.done += bytes;
    if (at_s - now.shown_s >= 0.1)
        look(at_s);
}

void progress_end(void)
{
    double at_s = seconds();

    look(at_s);
    if (!now.is_quiet && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    if (now.report->nstages < STAGES_MAX)
        now.report->stages[now.report->nstages++] =
            (struct stage){now.name, now.done, at_s - now.start_s};
}
