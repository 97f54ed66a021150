/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A unit is lost while a graph runs.  Its tasks become ready again.  A server has all blocks itself,
 * so that is all there.  Otherwise blocks that lay only on the unit are made again if a task that has
 * not ended reads them: the tasks that made them wait anew, and, as their inputs may be gone by now,
 * so do the tasks before those.  Inputs of the graph are always at home, so this comes to an end. */
#include "offload/graph_units_state.h"

#include "base/os.h"

#include <string.h>

/* Whether a task that has not ended reads the block; the readers were looked at before. */
static bool is_needed(const usm_graph *g, uint32_t node, uint32_t block)
{
    for (uint32_t i = g->first_reader[node]; i < g->first_reader[node + 1]; i++) {
        const usm__graph_node *reader = &g->nodes[g->readers[i]];

        if (usm__graph_is_complete(reader))
            continue;
        if (reader->ntasks == 0 || !usm__graph_by_part(g, g->readers[i], node) ||
            reader->tasks[block].state != USM__TASK_DONE)
            return true;
    }
    return false;
}

static bool is_made_again(const usm_graph *g, const usm__graph_task *task)
{
    usm__graph_range       range = usm__units_range(g, task);
    const usm__graph_node *n     = &g->nodes[task->node];

    if (task->state != USM__TASK_DONE)
        return false;
    for (uint32_t b = range.first; b < range.first + range.count; b++)
        if (n->where[b] == 0 && is_needed(g, task->node, b))
            return true;
    return false;
}

/* All blocks of the node are made again: launches under way may read some of them. */
static usm_status start_over(usm__graph_run *r, usm__graph_node *n)
{
    memset(n->where, 0, n->nblocks * sizeof *n->where);
    memset(n->from, 0, n->nblocks);
    return usm__graph_run_set_aside(r, n);
}

/* Lets the tasks of a node wait that have to make blocks again. */
static usm_status undo(usm__graph_run *r, uint32_t node)
{
    usm__graph_node *n  = &r->g->nodes[node];
    usm_status       st = USM_OK;

    if (n->desc.kind == USM_NODE_INPUT || !n->where)
        return USM_OK;
    for (uint32_t i = 0; i < n->ntasks && st == USM_OK; i++) {
        if (!is_made_again(r->g, &n->tasks[i]))
            continue;
        n->tasks[i].state = USM__TASK_WAITS;
        n->ndone--;
        r->stats.rescheduled++;
        if (n->nblocks > n->ntasks)
            st = start_over(r, n);
    }
    return st;
}

static void count_readers(usm_graph *g, uint32_t node)
{
    usm__graph_node *n = &g->nodes[node];

    n->readers_left = 0;
    for (uint32_t i = g->first_reader[node]; i < g->first_reader[node + 1]; i++)
        n->readers_left += !usm__graph_is_complete(&g->nodes[g->readers[i]]);
}

/* The task lets go of its member. */
static usm_status take_back(usm__graph_run *r, usm__graph_task *task, bool is_lost)
{
    usm__graph_run_uncharge(r, task);
    task->member = USM__NOBODY;
    r->stats.rescheduled += is_lost;
    if (r->server || usm__graph_run_is_satisfied(r->g, task->node, task->part))
        return usm__graph_run_push(r, task);
    task->state = USM__TASK_WAITS;
    return USM_OK;
}

/* Tasks that wait for blocks: those of the unit, and those whose blocks are made again. */
static usm_status check_gathering(usm__graph_run *r, uint32_t member)
{
    usm__graph_units *u  = r->units;
    usm_status        st = USM_OK;

    for (uint32_t at = 0; at < u->ngathering && st == USM_OK;) {
        usm__graph_task *task = u->gathering[at];

        if (task->member != member && usm__graph_run_is_satisfied(r->g, task->node, task->part)) {
            at++;
            continue;
        }
        usm__units_ungather(u, at);
        st = take_back(r, task, task->member == member);
    }
    return st;
}

/* Tasks that the unit was executing. */
static usm_status check_flying(usm__graph_run *r, uint32_t member)
{
    usm_status st = USM_OK;

    for (uint32_t i = 0; i < r->g->nnodes; i++)
        for (uint32_t j = 0; j < r->g->nodes[i].ntasks && st == USM_OK; j++) {
            usm__graph_task *task = &r->g->nodes[i].tasks[j];

            if (task->state != USM__TASK_FLIES || task->member != member)
                continue;
            r->units->busy--;
            st = take_back(r, task, true);
        }
    return st;
}

/* Tasks that were ready, and are not any more. */
static void check_ready(usm__graph_run *r)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < r->nready; i++) {
        usm__graph_task *task = r->ready[i];

        if (usm__graph_run_is_satisfied(r->g, task->node, task->part))
            r->ready[kept++] = task;
        else
            task->state = USM__TASK_WAITS;
    }
    r->nready = kept;
}

static void forget(usm_graph *g, uint32_t place)
{
    for (uint32_t i = 0; i < g->nnodes; i++) {
        usm__graph_node *n = &g->nodes[i];

        for (uint32_t b = 0; b < n->nblocks && n->where; b++) {
            n->where[b] &= ~usm__place_bit(place);
            n->from[b] = n->from[b] == place ? 0 : n->from[b];
        }
    }
}

/* Lets everything that needs it be made again. */
static usm_status make_again(usm__graph_run *r, uint32_t member)
{
    usm_graph *g  = r->g;
    usm_status st = USM_OK;

    for (uint32_t i = g->nnodes; i-- > 0 && st == USM_OK;) /* readers before what they read */
        st = undo(r, g->order[i]);
    for (uint32_t i = 0; i < g->nnodes; i++)
        count_readers(g, i);
    check_ready(r);
    if (st == USM_OK)
        st = check_gathering(r, member);
    if (st == USM_OK)
        st = check_flying(r, member);
    for (uint32_t i = 0; i < g->nnodes && st == USM_OK; i++)
        st = usm__graph_run_try(r, g->order[i]);
    return st == USM_OK ? usm__units_advance(r) : st;
}

usm_status usm__units_lose(usm__graph_run *r, uint32_t unit)
{
    usm__graph_units *u      = r->units;
    uint32_t          member = r->nlocal + unit;

    if (u->unit[unit].is_lost)
        return USM_OK;
    u->pending -= !u->unit[unit].has_come;
    u->unit[unit].is_lost      = true;
    r->members[member].is_well = false;
    forget(r->g, unit + 1);
    return r->server ? check_flying(r, member) : make_again(r, member);
}
