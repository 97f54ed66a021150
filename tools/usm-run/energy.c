/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The energy of a run, at its end: joules by device and node, idle, and where they are from; or why
 * there are none.  src/offload/meter.h counts them. */
#include "app.h"

#include "base/json.h"
#include "offload/graph.h"
#include "offload/meter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *name_of_source(usm__joules_source source)
{
    return source == USM__JOULES_COUNTED  ? "powercap"
           : source == USM__JOULES_STATED ? "USM_WATTS"
                                          : NULL;
}

/* Why joules are missing; "": none are. */
static void why_of(const app *a, const usm__meter_state *state, char *why, size_t size)
{
    *why = '\0';
    if (state->is_partial)
        (void)snprintf(
            why, size,
            "the counters of %s could not be read for some time, whose joules are missing",
            USM__POWERCAP);
    for (uint32_t i = 0; i < a->team->nmembers && !*why; i++) {
        usm__joules_source source;
        const char        *name = a->team->members[i].name;

        (void)usm__meter_member(a->team->meter, i, &source);
        if (source != USM__JOULES_UNKNOWN)
            continue;
        if (state->packages > 0)
            (void)snprintf(why, size, "%s has no counter; USM_WATTS tells what devices draw", name);
        else if (state->error == ENOENT)
            (void)snprintf(why, size,
                           "%s has no counters of packages; USM_WATTS tells what devices draw",
                           USM__POWERCAP);
        else
            (void)snprintf(why, size,
                           "%s cannot be read by this user; USM_WATTS tells what devices draw",
                           USM__POWERCAP);
    }
}

static void say_devices(const app *a, const usm__meter_state *state)
{
    const char *comma = "";

    fputs("usm-run: energy:", stderr);
    for (uint32_t i = 0; i < a->team->nmembers; i++) {
        usm__joules_source source;
        double             joules = usm__meter_member(a->team->meter, i, &source);

        if (source == USM__JOULES_UNKNOWN)
            continue;
        fprintf(stderr, "%s %s %.3f J (%s)", comma, a->team->members[i].name, joules,
                name_of_source(source));
        comma = ",";
    }
    if (state->packages > 0)
        fprintf(stderr, "%s idle %.3f J", comma, state->idle);
    fputc('\n', stderr);
}

static void say_nodes(const usm_graph *g)
{
    const char *before = "usm-run: energy of nodes:";

    for (uint32_t i = 0; i < g->nnodes; i++) {
        if (!(g->nodes[i].joules > 0))
            continue;
        fprintf(stderr, "%s %s %.3f J", before, g->nodes[i].desc.name, g->nodes[i].joules);
        before = ",";
    }
    if (*before == ',')
        fputc('\n', stderr);
}

void energy_say(const app *a)
{
    usm__meter_state state;
    char             why[256];
    bool             is_any;

    usm__meter_get(a->team->meter, &state);
    is_any = state.packages > 0;
    for (uint32_t i = 0; i < a->team->nmembers && !is_any; i++) {
        usm__joules_source source;

        (void)usm__meter_member(a->team->meter, i, &source);
        is_any = source != USM__JOULES_UNKNOWN;
    }
    if (is_any) {
        say_devices(a, &state);
        say_nodes(a->graph);
    }
    why_of(a, &state, why, sizeof why);
    if (*why)
        fprintf(stderr, "usm-run: energy: %s\n", why);
}

void energy_put(usm__json *j, const app *a)
{
    usm__meter_state state;
    char             why[256];

    usm__meter_get(a->team->meter, &state);
    why_of(a, &state, why, sizeof why);
    usm__json_object_begin(j, "energy");
    usm__json_number(j, "packages", state.packages);
    usm__json_real(j, "idle", state.idle, 3);
    usm__json_text(j, "why", why);
    usm__json_array_begin(j, "members");
    for (uint32_t i = 0; i < a->team->nmembers; i++) {
        usm__joules_source source;
        double             joules = usm__meter_member(a->team->meter, i, &source);

        usm__json_object_begin(j, NULL);
        usm__json_text(j, "name", a->team->members[i].name);
        usm__json_real(j, "joules", joules, 3);
        usm__json_text(j, "from", name_of_source(source));
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
    usm__json_array_begin(j, "nodes");
    for (uint32_t i = 0; i < a->graph->nnodes; i++)
        usm__json_real(j, NULL, a->graph->nodes[i].joules, 3);
    usm__json_array_end(j);
    usm__json_object_end(j);
}
