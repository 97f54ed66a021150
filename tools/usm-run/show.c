/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shows a run: progress on stderr, on a terminal as one line that is overwritten, elsewhere as a
 * line per second, for programs as lines of JSON; the same for who looks from elsewhere; the graph in
 * Graphviz's language on stdout. */
#include "app.h"

#include "base/json.h"
#include "offload/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void show_node(usm__json *j, const usm__graph_node *n)
{
    uint64_t running = 0, ready = 0;

    for (uint32_t i = 0; i < n->ntasks; i++) {
        running += n->tasks[i].state == USM__TASK_FLIES;
        ready += n->tasks[i].state == USM__TASK_READY;
    }
    usm__json_array_begin(j, NULL);
    usm__json_number(j, NULL, n->ntasks);
    usm__json_number(j, NULL, n->ndone);
    usm__json_number(j, NULL, running);
    usm__json_number(j, NULL, ready);
    usm__json_array_end(j);
}

/* Why others got work of a member; "": they never did. */
static const char *why_of(usm_team *team, uint32_t member, char *why)
{
    usm__mutex_lock(&team->lock);
    memcpy(why, team->members[member].why, USM__TEAM_WHY);
    usm__mutex_unlock(&team->lock);
    return why;
}

/* One JSON object.  "nodes" has, in the order of the file, [launches, ended, under way, scheduled]:
 * the thread that runs the graph calls this, so its tasks stand still.  Scheduled: it has its inputs,
 * and waits for a device. */
static void put_progress(FILE *file, const progress *show, const usm_progress *p, bool is_end)
{
    const usm_graph *g = show->a->graph;
    usm__json        j = {.out = {.file = file}, .form = USM__JSON_COMPACT};
    char             why[USM__TEAM_WHY];

    usm__json_object_begin(&j, NULL);
    usm__json_real(&j, "fraction", p->fraction, 4);
    usm__json_real(&j, "seconds", p->seconds, 6);
    usm__json_real(&j, "left", p->left, 4);
    usm__json_real(&j, "rate", p->rate, 4);
    usm__json_number(&j, "rescheduled", p->rescheduled);
    usm__json_array_begin(&j, "members");
    for (uint32_t i = 0; i < p->nmembers; i++) {
        usm_team_member m = {.struct_size = sizeof m};

        if (usm_team_get_member(show->a->team, i, &m) != USM_OK)
            continue;
        usm__json_object_begin(&j, NULL);
        usm__json_text(&j, "name", m.name);
        usm__json_real(&j, "share", p->shares[i], 4);
        usm__json_bool(&j, "is_well", m.state == USM_MEMBER_WELL);
        usm__json_text(&j, "why", why_of(show->a->team, i, why));
        usm__json_object_end(&j);
    }
    usm__json_array_end(&j);
    usm__json_array_begin(&j, "nodes");
    for (uint32_t i = 0; i < g->nnodes; i++)
        show_node(&j, &g->nodes[i]);
    usm__json_array_end(&j);
    if (is_end)
        energy_put(&j, show->a);
    usm__json_object_end(&j);
}

static void show_json(progress *show, const usm_progress *p)
{
    size_t size = p->nmembers * sizeof *p->shares;

    put_progress(stderr, show, p, false);
    fputc('\n', stderr);
    fflush(stderr);
    show->shares = need(realloc(show->shares, size + 1));
    memcpy(show->shares, p->shares, size);
    show->last        = *p;
    show->last.shares = show->shares;
}

void show_energy(const progress *show)
{
    if (!show->is_json) {
        energy_say(show->a);
        return;
    }
    put_progress(stderr, show, &show->last, true);
    fputc('\n', stderr);
}

/* Without memory those who look see what was there before. */
static void show_elsewhere(const progress *show, const usm_progress *p)
{
    char  *line = NULL;
    size_t size = 0;
    FILE  *file = open_memstream(&line, &size);

    if (!file)
        return;
    put_progress(file, show, p, false);
    if (fclose(file) == 0)
        usm__monitor_graph_set_progress(&show->graph, line, size);
    free(line);
}

bool show_progress(const usm_progress *p, void *user)
{
    progress *show = user;
    char      left[32], rate[32];

    if (usm__monitor_graph_is_watched(&show->graph))
        show_elsewhere(show, p);
    if (!show->is_shown)
        return !*show->is_called_off;
    if (show->is_json) {
        show_json(show, p);
        return !*show->is_called_off;
    }
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
