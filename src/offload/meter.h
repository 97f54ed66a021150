/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The energy meter of a team: reads counters when launches end, and lets joules.c divide what they
 * say.  A team has one if it was asked for (usm_team_desc.energy) or a trace is recorded.  Launches
 * of a team that overlap share its meter, so no joule counts twice.
 *
 * Any thread, no lock held.  A NULL meter is fine: nothing happens, and nothing is read. */
#ifndef USM_OFFLOAD_METER_H
#define USM_OFFLOAD_METER_H

#include "offload/joules.h"
#include "offload/offload.h"

typedef struct usm__meter usm__meter;

/* A launch of usm_parallel(), or a graph with its nodes, from its begin to its end. */
typedef struct usm__meter_run {
    size_t first; /* account of (node, member): first + node * members + member */
    bool   is_open;
} usm__meter_run;

/* What a meter has found out so far. */
typedef struct usm__meter_state {
    unsigned packages; /* 0: their counters cannot be read */
    int      error;    /* then: an errno, ENOENT if there are none */
    double   idle;
    bool     is_partial; /* the counters could not be read at some time */
} usm__meter_state;

/* Looks up what USM_WATTS says of the members.  USM_E_NO_MEMORY, USM_E_SETTING */
usm_status usm__meter_create(const usm_team *team, usm__meter **meter);
void       usm__meter_destroy(usm__meter *m);
/* For tests, before the first run: a folder that stands for USM__POWERCAP. */
void usm__meter_set_folder(usm__meter *m, const char *folder);

/* USM_E_NO_MEMORY */
usm_status usm__meter_open(usm__meter *m, uint32_t nnodes, usm__meter_run *run);
/* A launch begins on a member, now; and has ended. */
void usm__meter_begin(usm__meter *m, uint32_t member);
void usm__meter_end(usm__meter *m, const usm__meter_run *run, uint32_t node, uint32_t member,
                    uint64_t end_ns);
/* All launches of the run have ended: takes a last reading. */
void usm__meter_settle(usm__meter *m, const usm__meter_run *run);
/* After that: the joules of a node on all members, which are written to the trace; `kernel` is its
 * number in traces. */
double usm__meter_node(usm__meter *m, const usm__meter_run *run, uint32_t node, uint32_t kernel);
void   usm__meter_close(usm__meter *m, usm__meter_run *run);
/* All three for a run of one node. */
void usm__meter_finish(usm__meter *m, usm__meter_run *run, uint32_t kernel);

void usm__meter_get(usm__meter *m, usm__meter_state *state);
/* Joules of a member in all runs so far; 0: unknown, or none. */
double usm__meter_member(usm__meter *m, uint32_t member, usm__joules_source *source);

#endif
