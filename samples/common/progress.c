/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How far it has got, on stderr: a line that rewrites itself on a terminal, four plain lines
 * elsewhere (progress.h). */
#include "progress.h"

#include "clock.h"

#include <stdio.h>
#include <unistd.h>

#define BAR_WIDTH 30
#define BAR_SHORT 10 /* beside a tail */

static struct {
    const char *what;
    double      rate_factor;
    const char *rate_unit;
    double      last_s;
    unsigned    last_quarter;
    char        tail[PROGRESS_TAIL];
} shown;

void progress_begin(const char *what, double rate_factor, const char *rate_unit)
{
    shown.what         = what;
    shown.rate_factor  = rate_factor;
    shown.rate_unit    = rate_unit;
    shown.last_s       = 0.0;
    shown.last_quarter = 0;
    shown.tail[0]      = '\0';
}

void progress_set_tail(const char *text)
{
    snprintf(shown.tail, sizeof shown.tail, "%s", text);
}

static void draw_bar(double share, double rate, double left_s)
{
    const int width = shown.tail[0] ? BAR_SHORT : BAR_WIDTH;
    char      bar[BAR_WIDTH + 1];

    for (int i = 0; i < width; i++)
        bar[i] = i < share * width ? '#' : '.';
    bar[width] = '\0';
    fprintf(stderr, "\r%-9s[%s] %3.0f %%  %.2f %s  %.0f s left %s\033[K", shown.what, bar,
            100.0 * share, rate, shown.rate_unit, left_s, shown.tail);
}

void progress_show(uint64_t done, uint64_t total, double start_s)
{
    const double   now = clock_now_s(), seconds = now - start_s;
    const double   share   = (double)done / (double)total;
    const double   rate    = seconds > 0.0 ? (double)done / seconds * shown.rate_factor : 0.0;
    const double   left_s  = share > 0.0 ? seconds / share - seconds : 0.0;
    const unsigned quarter = (unsigned)(4 * done / total);

    if (isatty(STDERR_FILENO)) {
        if (done < total && now - shown.last_s < 0.1)
            return;
        shown.last_s = now;
        draw_bar(share, rate, left_s);
        if (done == total)
            progress_end();
    } else if (quarter > shown.last_quarter) {
        shown.last_quarter = quarter;
        fprintf(stderr, "%-9s%3.0f %%  %.2f %s  %.0f s left%s\n", shown.what, 100.0 * share, rate,
                shown.rate_unit, left_s, shown.tail);
    }
}

void progress_end(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}
