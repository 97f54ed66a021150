/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Restores what an earlier run of a graph had ended.  First, in order, nodes are unrolled as they
 * were then.  Then, in reverse order, blocks are loaded that some node still reads.  A damaged
 * block counts as not done, so the blocks it was made from are needed in turn. */
#include "offload/graph.h"

/* Marks the tasks that files say are done; loads nothing yet. */
static usm_status probe(usm_graph *g, uint32_t at, usm__graph_keep *keep)
{
    usm__graph_node *n  = &g->nodes[at];
    usm_status       st = USM_OK;

    if (n->desc.kind == USM_NODE_PARTITION) {
        uint32_t parts = usm__graph_keep_has(keep, at, 0);

        if (parts == 0 || parts > USM__PARTS_MAX)
            return USM_OK;
        st = usm__graph_unroll_all(g, at, parts);
    }
    for (uint32_t i = 0; i < n->ntasks && st == USM_OK; i++) {
        if (usm__graph_keep_has(keep, at, i) != n->nblocks)
            continue;
        n->tasks[i].state = USM__TASK_DONE;
        n->ndone++;
    }
    return st;
}

static bool is_needed(const usm_graph *g, uint32_t at)
{
    if (g->nodes[at].nreaders == 0)
        return true;
    for (uint32_t i = g->first_reader[at]; i < g->first_reader[at + 1]; i++)
        if (!usm__graph_is_complete(&g->nodes[g->readers[i]]))
            return true;
    return false;
}

static usm_status load(usm_graph *g, uint32_t at, usm__graph_keep *keep)
{
    usm__graph_node *n    = &g->nodes[at];
    size_t           size = n->desc.out_size * (n->ntasks == 1 ? n->nblocks : 1);
    usm_status       st;

    if (n->ndone == 0 || !is_needed(g, at))
        return USM_OK;
    st = usm__graph_make_room(n);
    if (st != USM_OK)
        return st;
    for (uint32_t i = 0; i < n->ntasks; i++)
        if (n->tasks[i].state == USM__TASK_DONE &&
            !usm__graph_keep_load(keep, at, i, n->blocks + i * n->desc.out_size, size)) {
            n->tasks[i].state = USM__TASK_WAITS;
            n->ndone--;
        }
    return USM_OK;
}

usm_status usm__graph_restore(usm_graph *g, usm__graph_keep *keep, uint64_t *resumed)
{
    usm_status st = USM_OK;

    for (uint32_t i = 0; i < g->nnodes && st == USM_OK; i++)
        if (g->nodes[g->order[i]].desc.kind != USM_NODE_INPUT)
            st = probe(g, g->order[i], keep);
    for (uint32_t i = g->nnodes; i-- > 0 && st == USM_OK;)
        if (g->nodes[g->order[i]].desc.kind != USM_NODE_INPUT)
            st = load(g, g->order[i], keep);
    for (uint32_t i = 0; i < g->nnodes; i++)
        if (g->nodes[i].desc.kind != USM_NODE_INPUT)
            *resumed += g->nodes[i].ndone;
    return st;
}
