/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A run of a graph and its progress reports: graph_run.c, graph_progress.c. */
#ifndef USM_OFFLOAD_GRAPH_RUN_H
#define USM_OFFLOAD_GRAPH_RUN_H

#include "offload/graph.h"
#include "offload/meter.h"

typedef struct usm__graph_run {
    usm_graph         *g;
    usm_graph_run_desc desc;
    usm__graph_policy  policy;
    usm__graph_keep   *keep; /* NULL: no blocks are kept */
    usm__graph_mail   *mail;
    uint64_t           begin_ns;
    /* by member: those of the team, then units */
    uint32_t           nlocal, nmembers;
    usm__graph_place  *places;
    usm__graph_member *members;
    double            *done;    /* in work */
    double            *shares;  /* for the progress function */
    bool              *is_cold; /* its speed was measured with a first launch */
    bool              *is_warm; /* by node, then by member: the node has run there */
    /* tasks */
    usm__graph_task **ready;
    uint32_t          nready;
    size_t            ready_cap;
    uint32_t          flying; /* on members of the team */
    /* memory of blocks that are made again, and that launches under way may still read */
    void   **old;
    uint32_t nold;
    size_t   old_cap;
    /* NULL: there are none (graph_units.h) */
    struct usm__graph_units        *units;
    const struct usm__graph_server *server;
    /* NULL: launches are executed, all of them (graph_sim.h) */
    struct usm__graph_sim   *sim;
    struct usm__graph_trial *trial;
    /* the last failure that another member may make up for */
    usm_status failure;
    char       message[256];
    /* graph_progress.c */
    uint64_t notified_ns;
    double   notified_work, fraction;

    usm__meter_run     metering;
    usm_parallel_stats stats;
} usm__graph_run;

/* ---- graph_run.c ----------------------------------------------------------------------------- */

/* Makes a task ready; nothing happens to it before usm__graph_run_feed(). */
usm_status usm__graph_run_push(usm__graph_run *r, usm__graph_task *task);
/* Gives ready tasks to members with room. */
usm_status usm__graph_run_feed(usm__graph_run *r);
/* Waits for ended launches, and handles them.  st: an earlier failure, which lets them be dropped */
usm_status usm__graph_run_take(usm__graph_run *r, uint64_t deadline_ns, usm_status st);
/* Whether all that the task reads has been made. */
bool usm__graph_run_is_satisfied(const usm_graph *g, uint32_t node, uint32_t part);
/* Makes those tasks of a node ready that wait, and have what they read. */
usm_status usm__graph_run_try(usm__graph_run *r, uint32_t node);
/* Starts a task on the member of the team that has it. */
usm_status usm__graph_run_launch(usm__graph_run *r, usm__graph_task *task);
/* What makes the blocks of a node again writes them into other memory.  USM_E_NO_MEMORY */
usm_status usm__graph_run_set_aside(usm__graph_run *r, usm__graph_node *n);
/* The member that has the task has not any more. */
void usm__graph_run_uncharge(usm__graph_run *r, const usm__graph_task *task);
/* graph_call.c: makes the calls that are ready; those that they make ready come after them.
 * Devices have been given their tasks before.  *made: whether there were any. */
usm_status usm__graph_run_calls(usm__graph_run *r, bool *made);
/* The blocks of a task are there. */
usm_status usm__graph_run_complete(usm__graph_run *r, usm__graph_task *task);
/* The same for a task that a server was told to execute: its server hears of it. */
void usm__graph_run_served(usm__graph_run *r, usm__graph_task *task, uint64_t busy_ns);
/* Another member has to do it; USM_E_NO_MEMORY.  The calling thread has the error message. */
usm_status usm__graph_run_fails(usm__graph_run *r, usm__graph_task *task, usm_status status);

/* ---- graph_energy.c -------------------------------------------------------------------------- */

/* Excludes members that draw more than the cap alone, or whose power is unknown. */
usm_status usm__graph_run_find_watts(usm__graph_run *r);
/* Closes the meter, with the joules of each node.  No launch is in progress any more. */
void usm__graph_run_count_energy(usm__graph_run *r);

/* ---- graph_progress.c ------------------------------------------------------------------------ */

/* When the progress function must be called next; 0: there is none. */
uint64_t usm__graph_progress_due(const usm__graph_run *r);
/* Calls it, if it is time, or is_end.  USM_E_CANCELLED */
usm_status usm__graph_progress_notify(usm__graph_run *r, bool is_end);

#endif
