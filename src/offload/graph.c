/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Graphs: nodes, edges, outputs (usm/graph.h).  An error of one node or edge is reported when it is
 * added; an error that only the whole graph shows, when it runs (graph_check.c). */
#include "offload/graph.h"

#include "base/inline/plural.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "base/out.h"

#include <string.h>

static usm__meta_type graph_type =
    USM__META_TYPE(struct usm_graph, sizeof(usm__magic_word), "graphs");

usm_status usm_graph_create(usm_team *team, usm_graph **graph)
{
    usm_graph *g;
    usm_status st = usm__team_check(team);

    if (st != USM_OK)
        return st;
    if (!graph)
        return usm__fail(USM_E_INVALID, "usm_graph_create: graph is NULL");
    if (team->ranks)
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "usm_graph_create: graphs run on the devices of one process; make a team "
                         "without `ranks` (over ranks there is usm_parallel())");
    g = usm__meta_alloc(&graph_type);
    if (!g)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a graph");
    g->team = team;
    usm_store_release(&g->magic, (uint32_t)USM__MAGIC_GRAPH);
    *graph = g;
    return USM_OK;
}

void usm_graph_destroy(usm_graph *graph)
{
    if (!graph || usm__handle_check(graph, USM__MAGIC_GRAPH) != USM_OK)
        return;
    if (graph->is_running) {
        usm__warn("usm_graph_destroy: the graph is running; it stays");
        return;
    }
    if (!usm__handle_kill(graph, USM__MAGIC_GRAPH))
        return;
    usm__graph_clear(graph);
    for (uint32_t i = 0; i < graph->nnodes; i++) {
        usm__heap_free((char *)(uintptr_t)graph->nodes[i].desc.name);
        usm__heap_free(graph->nodes[i].inputs);
        if (graph->nodes[i].desc.kernel)
            usm__team_kernel_release(graph->nodes[i].desc.kernel);
    }
    usm__heap_free(graph->order);
    usm__heap_free(graph->readers);
    usm__heap_free(graph->first_reader);
    usm__heap_free(graph->nodes);
    usm__meta_free(&graph_type, graph);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static usm_status check_input(const usm_node_desc *d)
{
    if (d->kernel)
        return usm__fail(USM_E_INVALID, "node '%s' is an input: it has data, no kernel", d->name);
    if (!d->data || d->size == 0)
        return usm__fail(USM_E_INVALID, "node '%s': an input needs data of at least one byte",
                         d->name);
    if (d->size > UINT32_MAX)
        return usm__fail(USM_E_SIZE,
                         "node '%s' has %zu bytes; kernels get sizes as uint, so at most "
                         "4294967295",
                         d->name, d->size);
    return USM_OK;
}

static usm_status check_sizes(const usm_node_desc *d)
{
    if (d->out_size == 0 || d->out_size > UINT32_MAX)
        return usm__fail(USM_E_SIZE, "node '%s': out_size is %zu; it must be 1 to 4294967295 bytes",
                         d->name, d->out_size);
    if ((d->parts || d->per_device) && d->kind != USM_NODE_PARTITION)
        return usm__fail(USM_E_INVALID,
                         "node '%s': parts and per_device are a partitioner's; an expandable node "
                         "follows the partitioner before it",
                         d->name);
    if (d->parts > USM__PARTS_MAX)
        return usm__fail(USM_E_INVALID, "node '%s': %u %s; at most %u", d->name, d->parts,
                         usm__plural(d->parts, "part", "parts"), USM__PARTS_MAX);
    if (d->dims > 3)
        return usm__fail(USM_E_INVALID, "node '%s': dims is %u; it must be 0 to 3", d->name,
                         d->dims);
    for (uint32_t i = 0; i < d->dims; i++)
        if (d->global[i] == 0 || (d->local[i] && d->global[i] % d->local[i] != 0))
            return usm__fail(USM_E_INVALID,
                             "node '%s': a global size of %zu with a local size of %zu; it must be "
                             "a multiple, and not 0",
                             d->name, d->global[i], d->local[i]);
    return USM_OK;
}

static usm_status check_call(const usm_node_desc *d)
{
    if (!d->call || d->kernel || d->data || d->size)
        return usm__fail(USM_E_INVALID, "node '%s' is a call: it has a function, %s", d->name,
                         d->call ? "and neither a kernel nor data" : "and `call` is NULL");
    return check_sizes(d);
}

static usm_status check_kernel(const usm_graph *g, const usm_node_desc *d)
{
    size_t arguments = d->kind == USM_NODE_PARTITION || d->kind == USM_NODE_MERGE ? 5 : 4;

    if (!d->kernel)
        return usm__fail(USM_E_INVALID, "node '%s' needs a kernel: only inputs and calls have none",
                         d->name);
    if (usm__team_kernel_check(d->kernel) != USM_OK)
        return usm_last_status();
    if (d->kernel->team != g->team)
        return usm__fail(USM_E_INVALID, "the kernel of node '%s' belongs to another team", d->name);
    if (d->kernel->nargs && d->kernel->nargs != arguments)
        return usm__fail(USM_E_ARGUMENTS,
                         "kernel '%s' of node '%s' has %zu %s; a %s node's has %zu: %s",
                         d->kernel->name, d->name, d->kernel->nargs,
                         usm__plural(d->kernel->nargs, "argument", "arguments"),
                         usm__node_kind_name(d->kind), arguments,
                         arguments == 4              ? "in, in_size, out, out_size"
                         : d->kind == USM_NODE_MERGE ? "in, in_size, parts, out, out_size"
                                                     : "in, in_size, parts, out, part_size");
    if (d->data || d->size)
        return usm__fail(USM_E_INVALID, "node '%s' has a kernel and data: only inputs have data",
                         d->name);
    return check_sizes(d);
}

static usm_status check_node(const usm_graph *g, const usm_node_desc *d)
{
    if (!d->name || !*d->name)
        return usm__fail(USM_E_INVALID, "usm_graph_add: a node needs a name");
    for (uint32_t i = 0; i < g->nnodes; i++)
        if (strcmp(g->nodes[i].desc.name, d->name) == 0)
            return usm__fail(USM_E_INVALID, "there are two nodes with the name '%s'", d->name);
    if (d->kind < USM_NODE_INPUT || d->kind > USM_NODE_CALL)
        return usm__fail(USM_E_INVALID, "node '%s': %d is not a kind of a node", d->name,
                         (int)d->kind);
    if (!(d->work >= 0) || d->work > 1e300)
        return usm__fail(USM_E_INVALID,
                         "node '%s': work is %g; it must be finite, and not negative", d->name,
                         d->work);
    if (d->kind == USM_NODE_CALL)
        return check_call(d);
    return d->kind == USM_NODE_INPUT ? check_input(d) : check_kernel(g, d);
}

/* Drops the results of the last run, which do not belong to the changed graph. */
static usm_status may_change(usm_graph *g, const char *call)
{
    usm_status st = usm__handle_check(g, USM__MAGIC_GRAPH);

    if (st != USM_OK)
        return st;
    if (g->is_running)
        return usm__fail(USM_E_BUSY, "%s: the graph is running", call);
    if (g->has_tasks)
        usm__graph_clear(g);
    return USM_OK;
}

usm_status usm_graph_add(usm_graph *graph, const usm_node_desc *desc, uint32_t *node)
{
    usm__graph_node *n;
    usm_status       st;

    if (!node)
        return usm__fail(USM_E_INVALID, "usm_graph_add: node is NULL");
    st = usm__struct_check("usm_graph_add", "desc", desc, sizeof *desc, "USM_NODE_DESC_INIT");
    if (st == USM_OK)
        st = may_change(graph, "usm_graph_add");
    if (st == USM_OK)
        st = check_node(graph, desc);
    if (st != USM_OK)
        return st;
    if (graph->nnodes == USM__NODES_MAX)
        return usm__fail(USM_E_INVALID, "a graph has at most %u nodes", USM__NODES_MAX);
    if (!usm__heap_room(&graph->nodes, graph->nnodes, &graph->cap, sizeof *n))
        return usm__fail(USM_E_NO_MEMORY, "no host memory for node '%s'", desc->name);
    n            = &graph->nodes[graph->nnodes];
    *n           = (usm__graph_node){.desc = *desc, .partitioner = USM__NOBODY};
    n->desc.name = usm__heap_strdup(desc->name);
    n->desc.work = desc->work > 0 ? desc->work : 1;
    if (!n->desc.name)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for node '%s'", desc->name);
    if (desc->kernel)
        (void)usm_ref_take(&desc->kernel->refs); /* the graph keeps it */
    *node = graph->nnodes++;
    return USM_OK;
}

/* ---- edges ----------------------------------------------------------------------------------- */

/* "a -> b -> a" */
static usm_status fail_cycle(const usm_graph *g, const uint32_t *next, uint32_t from, uint32_t to)
{
    char     text[200];
    usm__out o = {.text = text, .cap = sizeof text};

    text[0] = '\0';
    for (uint32_t i = to; i != from; i = next[i])
        usm__out_put(&o, "%s -> ", g->nodes[i].desc.name);
    usm__out_put(&o, "%s -> %s", g->nodes[from].desc.name, g->nodes[to].desc.name);
    return usm__fail(USM_E_INVALID, "the edge from '%s' to '%s' makes a cycle: %s%s",
                     g->nodes[from].desc.name, g->nodes[to].desc.name, text,
                     o.used >= sizeof text ? " ..." : "");
}

/* Whether `from` depends on the output of `to`, possibly through other nodes: walks back from
 * `from`, and records the path. */
static usm_status check_cycle(const usm_graph *g, uint32_t from, uint32_t to)
{
    uint32_t  *next, *list, n = 0;
    usm_status st = USM_OK;

    if (from == to)
        return usm__fail(USM_E_INVALID, "node '%s' cannot read what it gives itself: %s -> %s",
                         g->nodes[to].desc.name, g->nodes[to].desc.name, g->nodes[to].desc.name);
    if (g->nodes[to].nreaders == 0 || g->nodes[from].ninputs == 0)
        return USM_OK;
    next = usm__heap_alloc((size_t)g->nnodes * 2 * sizeof *next);
    if (!next)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to look for cycles");
    list = next + g->nnodes;
    memset(next, 0xff, (size_t)g->nnodes * sizeof *next);
    next[from] = from;
    list[n++]  = from;
    for (uint32_t i = 0; i < n && st == USM_OK; i++) {
        const usm__graph_node *node = &g->nodes[list[i]];

        for (uint32_t j = 0; j < node->ninputs; j++) {
            uint32_t before = node->inputs[j];

            if (next[before] != USM__NOBODY)
                continue;
            next[before] = list[i];
            list[n++]    = before;
        }
    }
    if (next[to] != USM__NOBODY)
        st = fail_cycle(g, next, from, to);
    usm__heap_free(next);
    return st;
}

static usm_status check_edge(const usm_graph *g, uint32_t from, uint32_t to)
{
    const usm__graph_node *n;

    if (from >= g->nnodes || to >= g->nnodes)
        return usm__fail(USM_E_INVALID, "usm_graph_connect: there is no node %u: the graph has %u",
                         from >= g->nnodes ? from : to, g->nnodes);
    n = &g->nodes[to];
    if (n->desc.kind == USM_NODE_INPUT)
        return usm__fail(USM_E_INVALID, "node '%s' is an input: it reads nothing, so not '%s'",
                         n->desc.name, g->nodes[from].desc.name);
    for (uint32_t i = 0; i < n->ninputs; i++)
        if (n->inputs[i] == from)
            return usm__fail(USM_E_INVALID, "there are two edges from '%s' to '%s'",
                             g->nodes[from].desc.name, n->desc.name);
    return check_cycle(g, from, to);
}

usm_status usm_graph_connect(usm_graph *graph, uint32_t from, uint32_t to)
{
    usm__graph_node *n;
    usm_status       st;

    st = may_change(graph, "usm_graph_connect");
    if (st == USM_OK)
        st = check_edge(graph, from, to);
    if (st != USM_OK)
        return st;
    n = &graph->nodes[to];
    if (!usm__heap_room(&n->inputs, n->ninputs, &n->ninputs_cap, sizeof *n->inputs))
        return usm__fail(USM_E_NO_MEMORY, "no host memory for an edge");
    n->inputs[n->ninputs++] = from;
    graph->nodes[from].nreaders++;
    return USM_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

usm_status usm_graph_get_output(usm_graph *graph, uint32_t node, const void **data, size_t *size)
{
    const usm__graph_node *n;

    if (usm__handle_check(graph, USM__MAGIC_GRAPH) != USM_OK)
        return usm_last_status();
    if (!data || !size)
        return usm__fail(USM_E_INVALID, "usm_graph_get_output: %s is NULL", data ? "size" : "data");
    if (node >= graph->nnodes)
        return usm__fail(USM_E_INVALID,
                         "usm_graph_get_output: there is no node %u: the graph has %u", node,
                         graph->nnodes);
    n = &graph->nodes[node];
    if (n->nreaders)
        return usm__fail(USM_E_INVALID,
                         "other nodes read what node '%s' gives, and nothing of it is kept",
                         n->desc.name);
    if (graph->is_running || !graph->has_run || n->ndone != n->ntasks || !n->blocks)
        return usm__fail(USM_E_NOT_READY, "node '%s' has no output yet: run the graph first",
                         n->desc.name);
    *data = n->blocks;
    *size = (size_t)n->nblocks * (n->desc.kind == USM_NODE_INPUT ? n->desc.size : n->desc.out_size);
    return USM_OK;
}
