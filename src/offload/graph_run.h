/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A run of a graph and its progress reports: graph_run.c, graph_progress.c. */
#ifndef USM_OFFLOAD_GRAPH_RUN_H
#define USM_OFFLOAD_GRAPH_RUN_H

#include "offload/graph.h"

typedef struct usm__graph_run {
    usm_graph         *g;
    usm_graph_run_desc desc;
    usm__graph_policy  policy;
    usm__graph_keep   *keep; /* NULL: no blocks are kept */
    usm__graph_mail   *mail;
    uint64_t           begin_ns;
    /* by member */
    uint32_t           nmembers;
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
    uint32_t          flying;
    /* the last failure that another member may make up for */
    usm_status failure;
    char       message[256];
    /* graph_progress.c */
    uint64_t notified_ns;
    double   notified_work, fraction;

    usm_parallel_stats stats;
} usm__graph_run;

/* When the progress function must be called next; 0: there is none. */
uint64_t usm__graph_progress_due(const usm__graph_run *r);
/* Calls it, if it is time, or is_end.  USM_E_CANCELLED */
usm_status usm__graph_progress_notify(usm__graph_run *r, bool is_end);

#endif
