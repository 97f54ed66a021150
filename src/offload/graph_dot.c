/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A graph in Graphviz's language: a box for each launch, as it was unrolled, with the device that
 * ran it; before a run, as it would be unrolled now. */
#include "offload/graph.h"

#include "base/out.h"

/* "name" or "name.3" */
static void put_id(usm__out *o, const usm__graph_node *n, uint32_t part)
{
    usm__out_put(o, "\"");
    for (const char *s = n->desc.name; *s; s++)
        usm__out_put(o, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
    if (n->desc.kind == USM_NODE_EXPANDABLE)
        usm__out_put(o, ".%u", part);
    usm__out_put(o, "\"");
}

static uint32_t tasks_of(const usm_graph *g, uint32_t node)
{
    const usm__graph_node *n = &g->nodes[node];

    if (n->desc.kind != USM_NODE_EXPANDABLE)
        return 1;
    return n->ntasks ? n->ntasks : usm__graph_parts(g, n->partitioner);
}

static void put_node(usm__out *o, const usm_graph *g, uint32_t node, uint32_t part)
{
    static const char *const shapes[] = {"ellipse",      "box", "trapezium",
                                         "invtrapezium", "box", "component"};
    const usm__graph_node   *n        = &g->nodes[node];
    uint32_t                 member   = n->ntasks ? n->tasks[part].member : USM__NOBODY;

    usm__out_put(o, "  ");
    put_id(o, n, part);
    usm__out_put(o, " [shape=%s", shapes[n->desc.kind - USM_NODE_INPUT]);
    if (member != USM__NOBODY && member >= g->team->nmembers)
        usm__out_put(o, ", xlabel=\"unit %u\"", member - g->team->nmembers + 1);
    else if (member != USM__NOBODY)
        usm__out_put(o, ", xlabel=\"%s\"", g->team->members[member].name);
    usm__out_put(o, "];\n");
}

static void put_edges(usm__out *o, const usm_graph *g, uint32_t node, uint32_t part)
{
    const usm__graph_node *n = &g->nodes[node];

    for (uint32_t i = 0; i < n->ninputs; i++) {
        const usm__graph_node *in      = &g->nodes[n->inputs[i]];
        uint32_t               all     = tasks_of(g, n->inputs[i]);
        bool                   by_part = usm__graph_by_part(g, node, n->inputs[i]) && all > 1;

        for (uint32_t j = 0; j < all; j++) {
            if (by_part && j != part)
                continue;
            usm__out_put(o, "  ");
            put_id(o, in, j);
            usm__out_put(o, " -> ");
            put_id(o, n, part);
            usm__out_put(o, ";\n");
        }
    }
}

usm_status usm_graph_describe_dot(usm_graph *graph, char *text, size_t cap, size_t *size)
{
    usm__out   o  = {.text = text, .cap = cap};
    usm_status st = usm__handle_check(graph, USM__MAGIC_GRAPH);

    if (st != USM_OK)
        return st;
    if (!text && cap)
        return usm__fail(USM_E_INVALID, "usm_graph_describe_dot: text is NULL and cap is not 0");
    if (graph->is_running)
        return usm__fail(USM_E_BUSY, "usm_graph_describe_dot: the graph is running");
    if (!graph->has_run)
        st = usm__graph_check(graph);
    if (st != USM_OK)
        return st;
    usm__out_put(&o, "digraph usm {\n  rankdir=LR;\n");
    for (uint32_t i = 0; i < graph->nnodes; i++)
        for (uint32_t j = 0; j < tasks_of(graph, i); j++)
            put_node(&o, graph, i, j);
    for (uint32_t i = 0; i < graph->nnodes; i++)
        for (uint32_t j = 0; j < tasks_of(graph, i); j++)
            put_edges(&o, graph, i, j);
    usm__out_put(&o, "}\n");
    if (size)
        *size = o.used;
    return USM_OK;
}
