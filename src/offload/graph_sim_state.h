/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by graph_sim.c and graph_run.c: a run whose launches are not executed. */
#ifndef USM_OFFLOAD_GRAPH_SIM_STATE_H
#define USM_OFFLOAD_GRAPH_SIM_STATE_H

#include "offload/graph_run.h"
#include "offload/graph_sim.h"
#include "offload/graph_units.h"

typedef struct usm__sim_units usm__sim_units;

typedef struct usm__graph_sim {
    const usm__sim_desc *desc;
    usm__graph_run      *run;
    usm__sim_units      *units; /* NULL: there are none */
    uint64_t             bytes_over_links;
    usm_status           status; /* of what cannot say so itself; the thread has the message */
    double               now;
    usm__graph_flight   *flights; /* by their ends */
    usm__sim_place      *places;
    bool                *is_warm; /* by node, then by device; calls come last */
} usm__graph_sim;

/* Executes few launches of each node, and keeps how long they took. */
typedef struct usm__graph_trial {
    uint32_t            member, launches; /* launches: at most, of a node */
    double             *seconds;          /* by node, then by launch, in the order of their ends */
    uint32_t           *ended;            /* by node */
    usm__tried_call    *calls;            /* by node */
    usm__trial_parallel parallel;         /* of the launches that calls make */
} usm__graph_trial;

/* What a task of a device costs, and when it has ended. */
typedef struct usm__sim_task_end {
    double   at;
    uint32_t bytes_in;
    uint64_t bytes_out;
} usm__sim_task_end;

/* The device is given the task at `from`, and has its inputs in host memory then. */
usm_status usm__sim_task(usm__graph_run *r, const usm__graph_task *task, uint32_t device,
                         double from, usm__sim_task_end *end);

/* ---- graph_sim_units.c */
usm_status usm__sim_units_open(usm__graph_sim *sim, const usm_graph *g, usm__unit_crew *crew);
void       usm__sim_units_close(usm__graph_sim *sim);
/* Whether units say something before the next launch of this process ends: then it is that time. */
bool usm__sim_unit_is_next(usm__graph_sim *sim);

/* What graph_run.c asks in the place of graph_flight.c. */
usm_status         usm__sim_begin(usm__graph_run *r, usm__graph_task *task);
usm__graph_flight *usm__sim_take(usm__graph_run *r); /* NULL: nothing is under way */
usm_status         usm__sim_call(usm__graph_run *r, uint32_t node);

/* A call is about to be made: its launches are trials until it has ended. */
void usm__trial_call(usm__graph_run *r, uint32_t node);
void usm__trial_called(usm__graph_run *r);
/* A launch has ended, or a call: what graph_run.c and graph_call.c tell a trial. */
void usm__trial_note(usm__graph_trial *t, uint32_t node, double seconds);
/* Once all launches of a node that are to be executed have ended, ends the others. */
usm_status usm__trial_end(usm__graph_run *r, uint32_t node);

/* graph_run.c */
usm_status usm__graph_run_simulated(usm_graph *graph, usm__graph_sim *sim,
                                    usm_parallel_stats *stats);
usm_status usm__graph_run_trial(usm_graph *graph, usm__graph_trial *trial);

#endif
