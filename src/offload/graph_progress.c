/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reports progress while a graph runs.  The whole is the work of all nodes; nodes that are not
 * unrolled yet count with the parts that they would have now. */
#include "offload/graph_run.h"

#include "base/os.h"

#define DEFAULT_MS 200

static uint64_t interval_ns(const usm__graph_run *r)
{
    return (uint64_t)(r->desc.progress_ms ? r->desc.progress_ms : DEFAULT_MS) * 1000000;
}

uint64_t usm__graph_progress_due(const usm__graph_run *r)
{
    if (!r->desc.progress)
        return 0;
    return (r->notified_ns ? r->notified_ns : r->begin_ns) + interval_ns(r);
}

static double all_work(const usm_graph *g, double *done)
{
    double all = 0;

    *done = 0;
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const usm__graph_node *n     = &g->nodes[i];
        uint32_t               tasks = n->ntasks;

        if (n->desc.kind == USM_NODE_INPUT)
            continue;
        if (tasks == 0)
            tasks = n->desc.kind == USM_NODE_EXPANDABLE ? usm__graph_parts(g, n->partitioner) : 1;
        all += tasks * n->desc.work;
        *done += n->ndone * n->desc.work;
    }
    return all;
}

usm_status usm__graph_progress_notify(usm__graph_run *r, bool is_end)
{
    usm_progress p = {.nmembers = r->nlocal, .shares = r->shares};
    uint64_t     now;
    double       done, all, sum = 0, fraction;

    if (!r->desc.progress)
        return USM_OK;
    now = usm__os_now_ns();
    if (is_end ? r->fraction >= 1 : now < usm__graph_progress_due(r))
        return USM_OK;
    all      = all_work(r->g, &done);
    fraction = all > 0 ? done / all : 0;
    if (fraction > r->fraction)
        r->fraction = fraction < 1 ? fraction : 1;
    p.fraction    = r->fraction;
    p.seconds     = (double)(now - r->begin_ns) / 1e9;
    p.left        = p.fraction > 0 ? p.seconds / p.fraction - p.seconds : -1;
    p.chunks      = r->stats.chunks;
    p.rescheduled = r->stats.rescheduled;
    for (uint32_t i = 0; i < r->nmembers; i++)
        sum += r->done[i];
    for (uint32_t i = 0; i < r->nmembers; i++)
        r->shares[i] = sum > 0 ? r->done[i] / sum : 0;
    p.rate = (sum - r->notified_work) * 1e9 /
             (double)(now - (r->notified_ns ? r->notified_ns : r->begin_ns) + 1);
    r->notified_work = sum;
    r->notified_ns   = now;
    if (!r->desc.progress(&p, r->desc.progress_user) && !is_end)
        return usm__fail(USM_E_CANCELLED, "the graph was cancelled by its progress function");
    return USM_OK;
}
