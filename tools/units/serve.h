/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-run --unit: executes launches of a graph for a usm-run elsewhere, which speaks over a pipe. */
#ifndef USM_TOOLS_UNITS_SERVE_H
#define USM_TOOLS_UNITS_SERVE_H

#include "offload/graph_units.h"
#include "units/app.h"

typedef struct unit_serve_desc {
    int in, out; /* they will not block any more; closed at the end */
    /* Builds the graph of an app whose images have their data, for the devices of this machine;
     * NULL: it cannot, which was reported. */
    usm_graph *(*build)(void *user, const unit_app *app);
    void *user;
    /* The other ranks of this unit, which are units of it: their sockets, closed at the end. */
    const int *ranks;
    uint32_t   nranks;
} unit_serve_desc;

/* Serves until the other side says that it is the end, or closes its pipe.  The exit status. */
int unit_serve(const unit_serve_desc *desc);

#endif
