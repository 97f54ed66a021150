/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The devices that a run of a graph would use, and what copies between host memory and each of them
 * cost: measured here, to be edited, and read by usm-run --simulate.  Devices that share cores count
 * once, as in any team. */
#include "machine.h"

#include "copies.h"

#include "offload/offload.h"
#include "offload/watts.h"
#include "show.h"

#include <usm/team.h>

#include <stdio.h>
#include <stdlib.h>

static void write_device(usm__json *j, const usm__member *m, const tool_copies *c)
{
    const char *source = NULL;
    double      watts  = 0;

    usm__json_object_begin(j, NULL);
    usm__json_text(j, "name", m->name);
    usm__json_text(j, "like", m->name);
    usm__json_number(j, "speed", 1);
    usm__json_bool(j, "in_place", m->uses_host_memory);
    usm__json_real(j, "latency_us", c->latency_us, 4);
    usm__json_real(j, "mib_s", c->mib_s, 4);
    if (usm__watts_of(m->name, &watts, &source) == USM_OK && watts > 0)
        usm__json_real(j, "watts", watts, 4);
    else
        usm__json_null(j, "watts");
    usm__json_null(j, "idle_watts");
    usm__json_object_end(j);
}

static int report(usm_team *team)
{
    tool_copies *found = calloc(team->nmembers, sizeof *found);
    usm__json    j;

    for (uint32_t i = 0; i < team->nmembers; i++)
        if (!found || !tool_measure_copies(&team->members[i], &found[i])) {
            fprintf(stderr, "usm-info: copies to %s cannot be measured: %s\n",
                    team->members[i].name, usm_last_error());
            free(found);
            return 1;
        }
    show_json_head(&j, stdout);
    usm__json_array_begin(&j, "devices");
    for (uint32_t i = 0; i < team->nmembers; i++)
        write_device(&j, &team->members[i], &found[i]);
    usm__json_array_end(&j);
    usm__json_object_end(&j);
    free(found);
    return 0;
}

int machine_report(void)
{
    usm_team *team = NULL;
    int       rc;

    if (usm_team_create(NULL, &team) != USM_OK) {
        fprintf(stderr, "usm-info: %s\n", usm_last_error());
        return 1;
    }
    rc = report(team);
    usm_team_destroy(team);
    return rc;
}
