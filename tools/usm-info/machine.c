/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The devices that a run of a graph would use, and what copies between host memory and each of them
 * cost: measured here, to be edited, and read by usm-run --simulate.  Devices that share cores count
 * once, as in any team. */
#include "machine.h"

#include "base/inline/clock.h"
#include "offload/offload.h"
#include "offload/watts.h"
#include "show.h"

#include <usm/command.h>
#include <usm/memory.h>
#include <usm/team.h>

#include <stdio.h>
#include <stdlib.h>

enum { SMALL = 64, LARGE = 32 << 20, ROUNDS = 15 };

typedef struct copies {
    double latency_us, mib_s;
} copies;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of copies there and back, in seconds for one way; negative: a copy has failed. */
static double measure(usm_queue *q, void *host, void *device, size_t size)
{
    double seconds[ROUNDS];

    for (int i = -1; i < ROUNDS; i++) { /* the first touches memory */
        uint64_t begin = usm_clock_ns(CLOCK_MONOTONIC);

        if (usm_memcpy(q, device, host, size, 0, NULL, NULL) != USM_OK ||
            usm_queue_wait(q) != USM_OK ||
            usm_memcpy(q, host, device, size, 0, NULL, NULL) != USM_OK ||
            usm_queue_wait(q) != USM_OK)
            return -1;
        if (i >= 0)
            seconds[i] = (double)(usm_clock_ns(CLOCK_MONOTONIC) - begin) / 2e9;
    }
    qsort(seconds, ROUNDS, sizeof *seconds, by_size);
    return seconds[ROUNDS / 2];
}

static bool measure_copies(const usm__member *m, copies *found)
{
    usm_queue *q     = NULL;
    void      *host  = calloc(1, LARGE), *device;
    double     small = -1, large = -1;

    if (host && usm_queue_create(m->context, m->device, NULL, &q) == USM_OK) {
        device = usm_aligned_alloc_device(64, LARGE, q);
        if (device) {
            small = measure(q, host, device, SMALL);
            large = measure(q, host, device, LARGE);
        }
        usm_free(device);
        usm_queue_destroy(q);
    }
    free(host);
    if (small < 0 || large < 0)
        return false;
    *found = (copies){small * 1e6, (LARGE >> 20) / (large > small ? large - small : large)};
    return true;
}

static void write_device(usm__json *j, const usm__member *m, const copies *c)
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
    copies   *found = calloc(team->nmembers, sizeof *found);
    usm__json j;

    for (uint32_t i = 0; i < team->nmembers; i++)
        if (!found || !measure_copies(&team->members[i], &found[i])) {
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
