/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files behind usm-run --simulate:
 *
 *     machine.c    reads the description of a machine, as usm-info --machine writes it
 *     costs.c      executes a few launches of each node here, to know what they cost
 *     simulate.c   runs the graph on the described machine, for numbers of parts and policies; the
 *                  table
 *     plot.c       the same as a picture
 *     suggest.c    writes the best into the app */
#ifndef USM_RUN_SIMULATE_H
#define USM_RUN_SIMULATE_H

#include "app.h"

#include "offload/graph_sim.h"

/* ---- machine.c */
typedef struct machine_device {
    value           at;
    const char     *like;  /* a device of this machine, whose launches tell what this one needs */
    double          speed; /* times that of `like` */
    usm__sim_device sim;
} machine_device;

typedef struct machine {
    app             file; /* its text, and places in it */
    machine_device *devices;
    size_t          n;
} machine;

/* false, and all mistakes are reported */
bool machine_read(machine *m, const char *path);
void machine_free(machine *m);

/* ---- costs.c */
/* Seconds of a launch in a run with so many parts: fixed + each * parts, or fixed + each / parts. */
typedef struct cost {
    double fixed, each;
    double extra; /* of the first launch on a device: kernels are compiled, memory is touched */
    bool   has_image;
} cost;

typedef struct costs {
    uint32_t nnodes, ndevices;
    cost    *of;    /* by device of the machine, then by node */
    cost    *calls; /* by node */
} costs;

/* Tries the app on each device that the machine's devices are like.  false, and the reason is
 * reported */
bool costs_find(costs *c, app *a, machine *m);
void costs_free(costs *c);
/* For usm__sim_desc; user: the costs. */
double costs_seconds(void *user, const usm__sim_launch *l);

/* ---- simulate.c */
typedef struct outcome {
    uint32_t        per_device; /* parts, of partitioners that leave them open; 0: there is none */
    const char     *policy;
    bool            is_own; /* as the file has it */
    usm__sim_result result;
} outcome;

typedef struct simulation {
    const char   *machine, *plot;
    bool          suggests;
    const char   *policy; /* NULL: all */
    const double *numbers;
    size_t        nnumbers;
    bool          no_prefetch;
} simulation;

/* The app is built.  false, and the reason is reported */
bool simulate(app *a, const simulation *s);

/* ---- plot.c, suggest.c: false, and the reason is reported */
bool plot_write(const char *path, const outcome *outcomes, size_t n);
bool suggest_write(app *a, const outcome *best);

#endif
