/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The conditions that a whole graph must satisfy, and the unrolling of its nodes into tasks. */
#include "offload/graph.h"

#include "base/os.h"

#include <string.h>

const char *usm__node_kind_name(usm_node_kind kind)
{
    static const char *const names[] = {"input", "process",    "partition",
                                        "merge", "expandable", "call"};

    return names[kind - USM_NODE_INPUT];
}

/* ---- the whole graph ----------------------------------------------------------------------- */

/* Sorts inputs before readers.  There are no cycles: usm_graph_connect() refuses them. */
static usm_status sort(usm_graph *g)
{
    uint32_t *left, *order, n = 0;

    usm__heap_free(g->order);
    g->order = usm__heap_alloc((size_t)g->nnodes * sizeof *order);
    left     = usm__heap_alloc((size_t)g->nnodes * sizeof *left);
    order    = g->order;
    if (!order || !left) {
        usm__heap_free(left);
        return usm__fail(USM_E_NO_MEMORY, "no host memory to order %u nodes", g->nnodes);
    }
    /* Backwards, from nodes without readers: a node follows once all its readers are in the
     * list. */
    for (uint32_t i = 0; i < g->nnodes; i++) {
        left[i] = g->nodes[i].nreaders;
        if (left[i] == 0)
            order[n++] = i;
    }
    for (uint32_t i = 0; i < n; i++) {
        const usm__graph_node *node = &g->nodes[order[i]];

        for (uint32_t j = 0; j < node->ninputs; j++)
            if (--left[node->inputs[j]] == 0)
                order[n++] = node->inputs[j];
    }
    usm__heap_free(left);
    for (uint32_t i = 0; i < n / 2; i++) {
        uint32_t other   = order[i];
        order[i]         = order[n - 1 - i];
        order[n - 1 - i] = other;
    }
    return USM_OK;
}

static usm_status list_readers(usm_graph *g)
{
    uint32_t edges = 0;

    usm__heap_free(g->readers);
    usm__heap_free(g->first_reader);
    for (uint32_t i = 0; i < g->nnodes; i++)
        edges += g->nodes[i].nreaders;
    g->readers      = usm__heap_alloc((size_t)edges * sizeof *g->readers);
    g->first_reader = usm__heap_alloc((g->nnodes + 1ul) * sizeof *g->first_reader);
    if (!g->readers || !g->first_reader)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for %u edges", edges);
    for (uint32_t i = 0; i < g->nnodes; i++)
        g->first_reader[i + 1] = g->first_reader[i] + g->nodes[i].nreaders;
    for (uint32_t i = 0; i < g->nnodes; i++) /* this advances the first numbers; they are reset
                                                below */
        for (uint32_t j = 0; j < g->nodes[i].ninputs; j++)
            g->readers[g->first_reader[g->nodes[i].inputs[j]]++] = i;
    for (uint32_t i = g->nnodes; i > 0; i--)
        g->first_reader[i] = g->first_reader[i - 1];
    g->first_reader[0] = 0;
    return USM_OK;
}

/* An expandable node follows the parts of the one partitioner among its inputs. */
static usm_status find_partitioner(usm_graph *g, usm__graph_node *n)
{
    for (uint32_t i = 0; i < n->ninputs; i++) {
        const usm__graph_node *in = &g->nodes[n->inputs[i]];

        if (in->partitioner == USM__NOBODY || in->partitioner == n->partitioner)
            continue;
        if (n->partitioner != USM__NOBODY)
            return usm__fail(USM_E_INVALID,
                             "node '%s' is expandable, and reads parts of two partitioners, '%s' "
                             "and '%s': merge one of them first",
                             n->desc.name, g->nodes[n->partitioner].desc.name,
                             g->nodes[in->partitioner].desc.name);
        n->partitioner = in->partitioner;
    }
    if (n->partitioner == USM__NOBODY)
        return usm__fail(USM_E_INVALID,
                         "node '%s' is expandable, but reads no partitioner, nor another "
                         "expandable node: there is nothing to unroll it by",
                         n->desc.name);
    return USM_OK;
}

/* is_after: by node, whether a partitioner is somewhere before it. */
static usm_status check_one(usm_graph *g, uint32_t at, bool *is_after)
{
    usm__graph_node *n = &g->nodes[at];

    n->partitioner = n->desc.kind == USM_NODE_PARTITION ? at : USM__NOBODY;
    if (n->desc.kind == USM_NODE_INPUT)
        return USM_OK;
    if (n->ninputs == 0 && n->desc.kind != USM_NODE_CALL)
        return usm__fail(USM_E_INVALID, "nobody gives input to node '%s': connect it, or remove it",
                         n->desc.name);
    for (uint32_t i = 0; i < n->ninputs; i++)
        is_after[at] |=
            is_after[n->inputs[i]] || g->nodes[n->inputs[i]].desc.kind == USM_NODE_PARTITION;
    if (n->desc.kind == USM_NODE_MERGE && !is_after[at])
        return usm__fail(USM_E_INVALID,
                         "node '%s' merges, but no partitioner is before it: is it meant to be a "
                         "process?",
                         n->desc.name);
    return n->desc.kind == USM_NODE_EXPANDABLE ? find_partitioner(g, n) : USM_OK;
}

/* Computes the longest way to an end, in work. */
static void rank(usm_graph *g)
{
    for (uint32_t i = 0; i < g->nnodes; i++)
        g->nodes[i].rank = g->nodes[i].desc.work;
    for (uint32_t i = g->nnodes; i-- > 0;) {
        const usm__graph_node *n = &g->nodes[g->order[i]];

        for (uint32_t j = 0; j < n->ninputs; j++) {
            usm__graph_node *in = &g->nodes[n->inputs[j]];

            if (in->rank < n->rank + in->desc.work)
                in->rank = n->rank + in->desc.work;
        }
    }
}

usm_status usm__graph_check(usm_graph *g)
{
    bool      *is_after;
    usm_status st;

    if (g->nnodes == 0)
        return usm__fail(USM_E_INVALID, "the graph has no nodes");
    st = sort(g);
    if (st == USM_OK)
        st = list_readers(g);
    if (st != USM_OK)
        return st;
    is_after = usm__heap_alloc(g->nnodes * sizeof *is_after);
    if (!is_after)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to check %u nodes", g->nnodes);
    for (uint32_t i = 0; i < g->nnodes && st == USM_OK; i++)
        st = check_one(g, g->order[i], is_after);
    usm__heap_free(is_after);
    rank(g);
    return st;
}

/* ---- unrolling ------------------------------------------------------------------------------- */

static void clear_node(usm__graph_node *n)
{
    for (uint32_t i = 0; i < n->ntasks; i++)
        usm__heap_free(n->tasks[i].tried);
    usm__heap_free(n->tasks);
    usm__heap_free(n->memory);
    usm__heap_free(n->where);
    usm__heap_free(n->from);
    n->where  = NULL;
    n->from   = NULL;
    n->tasks  = NULL;
    n->memory = NULL;
    n->blocks = NULL;
    n->ntasks = n->nblocks = n->ndone = 0;
}

void usm__graph_clear(usm_graph *g)
{
    for (uint32_t i = 0; i < g->nnodes; i++)
        clear_node(&g->nodes[i]);
    g->has_run   = false;
    g->has_tasks = false;
}

/* Counts the devices that work and have the kernel. */
static uint32_t count_well(const usm_graph *g, const usm_team_kernel *kernel)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < g->team->nmembers; i++)
        n += kernel->kernels[i] && usm__team_is_well(g->team, i);
    return n;
}

uint32_t usm__graph_parts(const usm_graph *g, uint32_t n)
{
    const usm_node_desc *d     = &g->nodes[n].desc;
    uint64_t             parts = d->parts, well = 0;

    if (parts == 0) { /* as many as can be worked on at a time */
        for (uint32_t i = 0; i < g->nnodes; i++)
            if (g->nodes[i].partitioner == n && (i != n || well == 0)) {
                uint32_t one = count_well(g, g->nodes[i].desc.kernel);

                well = i == n || one > well ? one : well;
            }
        parts = (d->per_device ? d->per_device : USM__PER_DEVICE) * (well ? well : 1);
    }
    return parts < USM__PARTS_MAX ? (uint32_t)parts : USM__PARTS_MAX;
}

usm_status usm__graph_unroll(usm_graph *g, uint32_t n, uint32_t parts)
{
    usm__graph_node *node = &g->nodes[n];

    clear_node(node);
    node->nblocks = 1;
    if (node->desc.kind == USM_NODE_PARTITION)
        node->nblocks = parts;
    else if (node->partitioner != USM__NOBODY)
        node->nblocks = g->nodes[node->partitioner].nblocks;
    node->tasks = usm__heap_alloc(node->nblocks * sizeof *node->tasks);
    if (!node->tasks)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the %u launches of node '%s'",
                         node->nblocks, node->desc.name);
    node->ntasks       = node->desc.kind == USM_NODE_EXPANDABLE ? node->nblocks : 1;
    node->readers_left = node->nreaders;
    for (uint32_t i = 0; i < node->ntasks; i++)
        node->tasks[i] = (usm__graph_task){.node = n, .part = i, .member = USM__NOBODY};
    if (node->desc.kind == USM_NODE_INPUT)
        node->blocks = (unsigned char *)(uintptr_t)node->desc.data;
    return USM_OK;
}

usm_status usm__graph_unroll_all(usm_graph *g, uint32_t partitioner, uint32_t parts)
{
    usm_status st = usm__graph_unroll(g, partitioner, parts);

    for (uint32_t i = 0; i < g->nnodes && st == USM_OK; i++)
        if (i != partitioner && g->nodes[i].partitioner == partitioner)
            st = usm__graph_unroll(g, i, 0);
    return st;
}

usm_status usm__graph_make_room(usm__graph_node *n)
{
    size_t size = n->desc.out_size * n->nblocks;

    if (n->blocks)
        return USM_OK;
    n->memory = usm__heap_alloc(size + USM__BLOCK_ALIGN);
    if (!n->memory)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the %zu bytes that node '%s' gives",
                         size, n->desc.name);
    n->blocks = n->memory;
    n->blocks += (0 - (uintptr_t)n->memory) % USM__BLOCK_ALIGN;
    return USM_OK;
}

bool usm__graph_is_complete(const usm__graph_node *n)
{
    return n->ntasks > 0 && n->ndone == n->ntasks;
}

bool usm__graph_by_part(const usm_graph *g, uint32_t reader, uint32_t input)
{
    return g->nodes[reader].desc.kind == USM_NODE_EXPANDABLE &&
           g->nodes[input].partitioner != USM__NOBODY;
}

/* A merger finds its blocks by their size, so all must have the same. */
static usm_status check_merged(const usm_graph *g, const usm__graph_node *n)
{
    const usm_node_desc *first = &g->nodes[n->inputs[0]].desc;

    for (uint32_t i = 0; i < n->ninputs; i++) {
        const usm_node_desc *in    = &g->nodes[n->inputs[i]].desc;
        size_t               size  = in->kind == USM_NODE_INPUT ? in->size : in->out_size;
        size_t               other = first->kind == USM_NODE_INPUT ? first->size : first->out_size;

        if (size != other)
            return usm__fail(USM_E_SIZE,
                             "node '%s' merges blocks of one size, but those of '%s' have %zu "
                             "bytes and those of '%s' %zu",
                             n->desc.name, first->name, other, in->name, size);
    }
    return USM_OK;
}

usm_status usm__graph_pieces(const usm_graph *g, const usm__graph_task *task,
                             usm__graph_piece *pieces, uint32_t *size, uint32_t *nblocks)
{
    const usm__graph_node *n     = &g->nodes[task->node];
    uint64_t               total = 0, blocks = 0;

    if (n->desc.kind == USM_NODE_MERGE) {
        usm_status st = check_merged(g, n);

        if (st != USM_OK)
            return st;
    }
    for (uint32_t i = 0; i < n->ninputs; i++) {
        const usm__graph_node *in = &g->nodes[n->inputs[i]];
        size_t one   = in->desc.kind == USM_NODE_INPUT ? in->desc.size : in->desc.out_size;
        bool   part  = usm__graph_by_part(g, task->node, n->inputs[i]);
        size_t bytes = part ? one : one * in->nblocks;

        if (pieces)
            pieces[i] = (usm__graph_piece){in->blocks + (part ? task->part * one : 0), bytes};
        total += bytes;
        blocks += part ? 1 : in->nblocks;
    }
    if (total > UINT32_MAX)
        return usm__fail(USM_E_SIZE,
                         "node '%s' reads %llu bytes; kernels get sizes as uint, so at most "
                         "4294967295",
                         n->desc.name, (unsigned long long)total);
    *size    = (uint32_t)total;
    *nblocks = (uint32_t)blocks;
    return USM_OK;
}
