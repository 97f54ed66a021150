/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How long a run of a graph would take on a machine that is only described, and what it needs to be
 * known for that.
 *
 *     usm__graph_try()        executes a few launches of each node here:    seconds per launch
 *     usm__graph_simulate()   runs the graph on devices of the description: seconds, bytes, joules
 *
 * A simulation is a run: graph_run.c unrolls nodes, measures speeds, and gives tasks to members by the
 * same policies.  Only launches are not executed.  Each takes a time that the caller tells, on a clock
 * that jumps from end to end, and no bytes exist.
 *
 * A device does what graph_flight.c has it do: it copies the inputs of a task while it executes the
 * one before; launches and the copies of their results come one after the other. */
#ifndef USM_OFFLOAD_GRAPH_SIM_H
#define USM_OFFLOAD_GRAPH_SIM_H

#include "offload/graph_where.h"
#include "offload/launch_sim.h"

#include <usm/graph.h>

#include <stdint.h>

enum { USM__SIM_DEVICES_MAX = 256 };

/* One launch: of `node`, in a run with so many parts. */
typedef struct usm__sim_launch {
    const usm_node_desc *node;
    uint32_t             number; /* of the node in the graph */
    uint32_t             parts;  /* of the partitioner that it follows, or that it is; 0: of none */
    uint32_t             device; /* index; of a call: the number of devices */
    bool                 is_first; /* of the node on the device */
} usm__sim_launch;

/* A unit (graph_units.h): a process elsewhere, with devices of its own behind a link. */
typedef struct usm__sim_unit {
    const char *name;
    usm__link   link;            /* its rate is more than 0 */
    uint32_t    first, ndevices; /* of the machine's devices */
} usm__sim_unit;

typedef struct usm__sim_desc {
    usm_policy policy;
    bool       no_prefetch;
    uint32_t   per_device; /* parts, of partitioners whose `parts` is 0; 0: as it says */
    const usm__sim_device *devices;
    uint32_t               ndevices;
    const usm__sim_unit *units; /* whose devices come after those of this process, in their order */
    uint32_t             nunits;
    /* The seconds of a launch without copies; negative: the device has no image.  Of a call: besides
     * the launches that it makes. */
    double (*seconds)(void *user, const usm__sim_launch *launch);
    /* The i-th launch of usm_parallel() that the call `node` makes; false: it makes no more.  NULL:
     * calls make none. */
    bool (*parallel)(void *user, uint32_t node, uint32_t i, usm__sim_parallel *launch);
    void *user;
} usm__sim_desc;

typedef struct usm__sim_result {
    double   seconds;
    double   joules;   /* of all devices, at work and idle */
    uint64_t launches; /* chunks of calls' launches are some, too */
    uint64_t bytes_in, bytes_out, bytes_over_links;
    double   busy_s[USM__SIM_DEVICES_MAX]; /* by device */
    uint64_t launches_of[USM__SIM_DEVICES_MAX];
} usm__sim_result;

/* The graph stays as it is.
 *   USM_E_INVALID    what usm_graph_run() would refuse, too; devices
 *   USM_E_NO_IMAGE   no device has an image of a node
 *   USM_E_NO_MEMORY */
usm_status usm__graph_simulate(usm_graph *graph, const usm__sim_desc *desc,
                               usm__sim_result *result);

typedef struct usm__graph_try_desc {
    uint32_t member, parts, launches, chunks;
} usm__graph_try_desc;

/* Runs the graph with so many parts of each partitioner whose `parts` is 0, but executes at most `launches` of each
 * expandable node; the others count as ended, with the block of the first.  Nodes run on the member
 * `member` of the team, unless it has no image of them.  seconds: by node, of a launch and the copies
 * that come with it, or of a call; the median of those executed, without the first if there are
 * others; negative: the member has no image.  first: of the first.  calls: by node, the launches of
 * usm_parallel() that its call made, which the member executes alone, in `chunks` chunks or so; what was
 * there before is dropped.
 *   as usm_graph_run() */
usm_status usm__graph_try(usm_graph *graph, const usm__graph_try_desc *desc, double *seconds,
                          double *first, usm__tried_call *calls);
/* The parts that a node had in the last run: of the partitioner that it is, follows or merges; 0: of
 * none. */
uint32_t usm__graph_parts_had(const usm_graph *graph, uint32_t node);

#endif
