/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The units of usm-run --on, over pipes: each is what a command starts; or the other ranks of a unit
 * (ranks.h), over sockets.  A thread reads and writes;
 * what comes is compared with what was asked for, so a unit cannot make this process use more memory
 * than it meant to, and becomes events for the run of the graph (offload/graph_units.h).
 *
 * What becomes of a unit is told on stderr, in a sentence. */
#ifndef USM_TOOLS_UNITS_CREW_H
#define USM_TOOLS_UNITS_CREW_H

#include "offload/graph_units.h"
#include "units/app.h"

typedef struct unit_crew unit_crew;

typedef struct unit_crew_desc {
    const char *const *commands; /* for sh -c; NULL: they are ranks */
    const int         *ranks;    /* the sockets of ranks 1, 2, ...; closed at the end */
    uint32_t           n;
    const unit_app    *app; /* its images have their data; stays until the end */
    uint32_t           silence_ms;
    bool               no_local;
} unit_crew_desc;

/* Starts all commands, and waits for none.  NULL: no memory, pipe or thread, which was reported.  The
 * sockets of ranks are closed then, too. */
unit_crew *unit_crew_open(const unit_crew_desc *desc);
/* For usm__graph_run_with(). */
usm__unit_crew unit_crew_table(unit_crew *c);
/* One line for each unit: what it has done. */
void unit_crew_report(unit_crew *c);
/* Ends all units: those that do not end within 2 s are killed. */
void unit_crew_close(unit_crew *c);

#endif
