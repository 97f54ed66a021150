/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by graph_units.c and graph_lost.c: the units of a run, seen from the master. */
#ifndef USM_OFFLOAD_GRAPH_UNITS_STATE_H
#define USM_OFFLOAD_GRAPH_UNITS_STATE_H

#include "offload/graph_units.h"

typedef struct usm__unit {
    bool                 has_come, is_lost;
    uint32_t             devices;
    const unsigned char *can; /* by node */
} usm__unit;

typedef struct usm__graph_units {
    usm__unit_crew crew;
    usm__unit      unit[USM__UNITS_MAX];
    usm__link      links[USM__UNITS_MAX];
    uint32_t       pending; /* have neither come nor are lost */
    uint32_t       busy;    /* tasks on units, and those that wait for blocks */
    /* tasks that a member has, and that wait for blocks from elsewhere */
    usm__graph_task **gathering;
    uint32_t          ngathering;
    size_t            gathering_cap;
} usm__graph_units;

/* The blocks that a task makes. */
static inline usm__graph_range usm__units_range(const usm_graph *g, const usm__graph_task *task)
{
    const usm__graph_node *n = &g->nodes[task->node];

    return n->ntasks == 1 ? (usm__graph_range){task->node, 0, n->nblocks}
                          : (usm__graph_range){task->node, task->part, 1};
}

/* The blocks of its i-th input that a task reads. */
static inline usm__graph_range usm__units_input(const usm_graph *g, const usm__graph_task *task,
                                                uint32_t i)
{
    uint32_t node = g->nodes[task->node].inputs[i];

    return usm__graph_by_part(g, task->node, node)
               ? (usm__graph_range){node, task->part, 1}
               : (usm__graph_range){node, 0, g->nodes[node].nblocks};
}

/* Bytes of one block. */
static inline size_t usm__units_block(const usm__graph_node *n)
{
    return n->desc.kind == USM_NODE_INPUT ? n->desc.size : n->desc.out_size;
}

/* ---- graph_lost.c ---------------------------------------------------------------------------- */

/* Does elsewhere what the unit had, and makes again what lay only there. */
usm_status usm__units_lose(usm__graph_run *r, uint32_t unit);

/* ---- graph_units.c --------------------------------------------------------------------------- */

/* Asks for blocks that tasks wait for, and starts those that have all. */
usm_status usm__units_advance(usm__graph_run *r);
/* A task that waits for blocks does so no longer. */
void usm__units_ungather(usm__graph_units *u, uint32_t at);

#endif
