/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Calls: nodes of a graph that are functions of the program.  The thread that runs the graph makes
 * them (graph_run.c); meanwhile devices finish what they have.  Blocks that lie on units come home
 * first. */
#include "base/os.h"
#include "offload/graph_run.h"
#include "offload/graph_sim_state.h"
#include "offload/graph_units.h"

#include <stdio.h>
#include <string.h>

/* The blocks of a task's inputs, one after the other: those of a single input in place, several in
 * memory of the heap, *copy. */
static usm_status gather(const usm_graph *g, const usm__graph_task *task, const void **in,
                         uint32_t *size, unsigned char **copy)
{
    uint32_t          ninputs = g->nodes[task->node].ninputs, nblocks;
    usm__graph_piece *pieces  = usm__heap_alloc((ninputs + 1) * sizeof *pieces);
    size_t            at      = 0;
    usm_status        st;

    if (!pieces)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a call");
    st  = usm__graph_pieces(g, task, pieces, size, &nblocks);
    *in = pieces[0].data;
    if (st == USM_OK && ninputs > 1) {
        *copy = usm__heap_alloc(*size);
        st    = *copy ? USM_OK : usm__fail(USM_E_NO_MEMORY, "no host memory for a call");
        for (uint32_t i = 0; *copy && i < ninputs; i++) {
            memcpy(*copy + at, pieces[i].data, pieces[i].size);
            at += pieces[i].size;
        }
        *in = *copy;
    }
    usm__heap_free(pieces);
    return st;
}

static usm_status call(usm__graph_run *r, usm__graph_task *task)
{
    const usm__graph_node *n     = &r->g->nodes[task->node];
    unsigned char         *copy  = NULL;
    uint64_t               begin = usm__os_now_ns();
    const void            *in;
    uint32_t               size;
    usm_status             st = gather(r->g, task, &in, &size, &copy);

    if (r->trial)
        usm__trial_call(r, task->node);
    if (st == USM_OK) {
        st = n->desc.call(in, size, n->blocks, n->desc.out_size, n->desc.call_user);
        if (st != USM_OK) {
            char message[sizeof r->message];

            (void)snprintf(message, sizeof message, "%s", usm_last_error());
            st = usm__fail(st, "node '%s': %s", n->desc.name, message);
        }
    }
    usm__heap_free(copy);
    if (r->trial) {
        usm__trial_note(r->trial, task->node, (double)(usm__os_now_ns() - begin) / 1e9);
        usm__trial_called(r);
    }
    return st;
}

static usm_status make_call(usm__graph_run *r, usm__graph_task *task)
{
    usm_status st = r->sim ? usm__sim_call(r, task->node) : call(r, task);

    if (st != USM_OK)
        return st;
    r->stats.chunks++;
    if (r->units)
        usm__units_made_here(r, task);
    if (r->keep)
        usm__graph_keep_save(r->keep, r->g, task);
    return usm__graph_run_complete(r, task);
}

usm_status usm__graph_run_calls(usm__graph_run *r, bool *made)
{
    usm_status st = USM_OK;

    *made = false;

    for (uint32_t at = 0; at < r->nready && st == USM_OK;) {
        usm__graph_task *task = r->ready[at];

        if (r->g->nodes[task->node].desc.kind != USM_NODE_CALL ||
            (r->units && !usm__units_bring_home(r, task))) {
            at++;
            continue;
        }
        r->nready--;
        memmove(&r->ready[at], &r->ready[at + 1], (r->nready - at) * sizeof *r->ready);
        *made = true;
        st    = make_call(r, task);
        at    = 0;
    }
    return st;
}
