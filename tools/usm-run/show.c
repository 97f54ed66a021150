/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shows a run: progress on stderr, on a terminal as one line that is overwritten, elsewhere as a
 * line per second; the graph in Graphviz's language on stdout. */
#include "app.h"

#include <stdio.h>
#include <stdlib.h>

static void show_time(char *text, size_t size, double seconds)
{
    unsigned long s = seconds > 0 && seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 0;

    if (seconds < 0)
        (void)snprintf(text, size, "?");
    else if (s < 60)
        (void)snprintf(text, size, "%lus", s);
    else if (s < 3600)
        (void)snprintf(text, size, "%lum%02lus", s / 60, s % 60);
    else
        (void)snprintf(text, size, "%luh%02lum", s / 3600, s / 60 % 60);
}

/* "950", "27.8 k" */
static void show_rate(char *text, size_t size, double rate)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    size_t                   i       = 0;

    for (; rate >= 999.5 && i + 1 < sizeof units / sizeof *units; i++)
        rate /= 1000;
    (void)snprintf(text, size, "%.3g%s", rate, units[i]);
}

bool show_progress(const usm_progress *p, void *user)
{
    progress *show = user;
    char      left[32], rate[32];

    if (!show->is_shown)
        return !*show->is_called_off;
    show_time(left, sizeof left, p->left);
    show_rate(rate, sizeof rate, p->rate);
    fprintf(stderr, "%s%3.0f %%  %s/s  %s left", show->is_tty ? "\r\033[K" : "", p->fraction * 100,
            rate, left);
    for (uint32_t i = 0; i < p->nmembers; i++) {
        usm_team_member m = {.struct_size = sizeof m};

        if (usm_team_get_member(show->a->team, i, &m) == USM_OK)
            fprintf(stderr, "  %s %.0f %%%s", m.name, p->shares[i] * 100,
                    m.state == USM_MEMBER_WELL ? "" : " (set aside)");
    }
    if (p->rescheduled)
        fprintf(stderr, "  rescheduled=%llu", (unsigned long long)p->rescheduled);
    show->is_open = show->is_tty && p->fraction < 1;
    if (!show->is_open)
        fputc('\n', stderr);
    return !*show->is_called_off;
}

bool show_dot(app *a)
{
    size_t size = 0;
    char  *text;
    bool   is_ok;

    if (usm_graph_describe_dot(a->graph, NULL, 0, &size) != USM_OK)
        return app_failed(a);
    text  = need(malloc(size + 1));
    is_ok = usm_graph_describe_dot(a->graph, text, size + 1, NULL) == USM_OK;
    if (is_ok)
        fputs(text, stdout);
    free(text);
    return is_ok || app_failed(a);
}
