/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A run that executes what another process tells it to (graph_units.h): nodes are unrolled, blocks
 * filled in and launches made ready by the functions here, which the server calls.  What the other
 * process says is checked against the graph: nothing is touched that is not the graph's. */
#include "offload/graph_units_state.h"

#include "base/os.h"

static usm_status refuse(const char *what, uint32_t node, uint32_t part)
{
    return usm__fail(USM_E_INVALID, "%s: node %u, part %u does not fit the graph", what, node,
                     part);
}

static bool is_under_way(const usm__graph_node *n)
{
    for (uint32_t i = 0; i < n->ntasks; i++)
        if (n->tasks[i].state == USM__TASK_READY || n->tasks[i].state == USM__TASK_FLIES)
            return true;
    return false;
}

static bool has_readers_under_way(const usm_graph *g, uint32_t node)
{
    for (uint32_t i = g->first_reader[node]; i < g->first_reader[node + 1]; i++)
        if (is_under_way(&g->nodes[g->readers[i]]))
            return true;
    return false;
}

bool usm__graph_serve_is_ready(const usm__graph_run *r)
{
    return !r->units || !usm__units_expect(r);
}

uint32_t usm__graph_serve_devices(const usm__graph_run *r)
{
    uint32_t n = r->units ? usm__units_devices(r) : 0;

    for (uint32_t i = 0; i < r->nlocal; i++)
        n += r->members[i].is_well;
    return n;
}

bool usm__graph_serve_can(const usm__graph_run *r, uint32_t node)
{
    const usm_team_kernel *k = r->g->nodes[node].desc.kernel;

    for (uint32_t i = 0; i < r->nlocal && k; i++)
        if (r->members[i].is_well && k->kernels[i])
            return true;
    return r->units && usm__units_have(r, node);
}

usm_status usm__graph_serve_unroll(usm__graph_run *r, uint32_t node, uint32_t parts)
{
    usm_graph *g = r->g;
    usm_status st;

    if (node >= g->nnodes || g->nodes[node].desc.kind != USM_NODE_PARTITION || parts == 0 ||
        parts > USM__PARTS_MAX)
        return refuse("parts of a partitioner", node, parts);
    for (uint32_t i = 0; i < g->nnodes; i++)
        if (g->nodes[i].partitioner == node && is_under_way(&g->nodes[i]))
            return refuse("parts of a partitioner that is at work", node, parts);
    st = usm__graph_unroll_all(g, node, parts);
    return st == USM_OK && r->units ? usm__units_unrolled(r, node) : st;
}

usm_status usm__graph_serve_blocks(usm__graph_run *r, const usm__graph_range *range, void **data,
                                   size_t *size)
{
    usm__graph_node *n;
    size_t           one;
    usm_status       st;

    if (range->node >= r->g->nnodes)
        return refuse("blocks", range->node, range->first);
    n   = &r->g->nodes[range->node];
    one = n->desc.kind == USM_NODE_INPUT ? n->desc.size : n->desc.out_size;
    if (n->ntasks == 0 || range->count == 0 || range->first >= n->nblocks ||
        range->count > n->nblocks - range->first)
        return refuse("blocks", range->node, range->first);
    st = usm__graph_make_room(n);
    if (st != USM_OK)
        return st;
    *data = n->blocks + range->first * one;
    *size = range->count * one;
    return USM_OK;
}

void usm__graph_serve_filled(usm__graph_run *r, const usm__graph_range *range)
{
    if (r->units)
        usm__units_reset(r, range, true);
}

/* What units need to know of a task that is about to become ready. */
static usm_status prepare_units(usm__graph_run *r, const usm__graph_task *task)
{
    usm__graph_range range = usm__units_range(r->g, task);

    if (!usm__units_bring_home(r, task))
        return refuse("a launch without its inputs", task->node, task->part);
    usm__units_reset(r, &range, false);
    return USM_OK;
}

usm_status usm__graph_serve_task(usm__graph_run *r, uint32_t node, uint32_t part)
{
    usm_graph       *g = r->g;
    usm__graph_node *n;
    usm_status       st;

    if (node >= g->nnodes || part >= g->nodes[node].ntasks)
        return refuse("a launch", node, part);
    n = &g->nodes[node];
    if (n->desc.kind == USM_NODE_INPUT || n->tasks[part].state == USM__TASK_READY ||
        n->tasks[part].state == USM__TASK_FLIES)
        return refuse("a launch", node, part);
    for (uint32_t i = 0; i < n->ninputs; i++)
        if (!g->nodes[n->inputs[i]].ntasks || !g->nodes[n->inputs[i]].blocks)
            return refuse("a launch without its inputs", node, part);
    st = n->nblocks > n->ntasks && has_readers_under_way(g, node) ? usm__graph_run_set_aside(r, n)
                                                                  : USM_OK;
    if (st == USM_OK)
        st = usm__graph_make_room(n);
    if (st == USM_OK && r->units)
        st = prepare_units(r, &n->tasks[part]);
    return st == USM_OK ? usm__graph_run_push(r, &n->tasks[part]) : st;
}

void usm__graph_serve_drop(usm__graph_run *r, uint32_t node)
{
    usm_graph       *g = r->g;
    usm__graph_node *n;

    if (node >= g->nnodes || g->nodes[node].desc.kind == USM_NODE_INPUT ||
        is_under_way(&g->nodes[node]))
        return;
    n = &g->nodes[node];
    if (has_readers_under_way(g, node))
        return;
    if (r->units)
        usm__units_release(r, node);
    usm__heap_free(n->memory);
    n->memory = NULL;
    n->blocks = NULL;
}
