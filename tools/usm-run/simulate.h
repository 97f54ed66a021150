/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files behind usm-run --simulate:
 *
 *     machine.c    reads the description of a machine, as usm-info --machine writes it
 *     costs.c      executes a few launches of each node here, to know what they cost
 *     calls.c      the same of launches that templates make
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
    size_t          n;      /* with those of units, which come last */
    size_t          nlocal; /* without */
    usm__sim_unit   units[USM__UNITS_MAX];
    uint32_t        nunits;
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

/* The launches of usm_parallel() that a call makes. */
typedef struct call_launch {
    usm__sim_shape shape;
    double         fixed; /* besides its chunks */
} call_launch;

typedef struct call_costs {
    uint32_t       n;
    call_launch   *launches;
    usm__sim_pace *paces; /* by launch, then by device of the machine */
} call_costs;

typedef struct costs {
    uint32_t    nnodes, ndevices;
    cost       *of;    /* by device of the machine, then by node */
    cost       *calls; /* by node: besides their launches */
    call_costs *made;  /* by node */
} costs;

/* Tries the app on each device that the machine's devices are like.  false, and the reason is
 * reported */
bool costs_find(costs *c, app *a, machine *m);
void costs_free(costs *c);
/* For usm__sim_desc; user: the costs. */
double costs_seconds(void *user, const usm__sim_launch *l);

/* ---- calls.c */
/* Keeps the least times of all trials; `now` may be used again.  Whether the call makes launches. */
bool calls_keep(usm__tried_call *best, usm__tried_call *now, bool is_first);
/* Seconds of all its launches. */
double calls_seconds(const usm__tried_call *c);
/* For the devices that are like the one that was tried, with few chunks and with many. */
void calls_set(call_costs *c, const machine *m, const char *like, const usm__tried_call *few,
               const usm__tried_call *many);
void calls_free(call_costs *c);
/* For usm__sim_desc; user: the costs. */
bool calls_parallel(void *user, uint32_t node, uint32_t i, usm__sim_parallel *launch);

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
