/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Energy of a run of a graph: what its members draw, which the policy "energy" asks, and what each node
 * took, which is counted when a meter is there. */
#include "offload/graph_run.h"

#include "base/os.h"
#include "offload/watts.h"

usm_status usm__graph_run_find_watts(usm__graph_run *r)
{
    usm__schedule_params p = {.nworkers = r->nmembers,
                              .policy   = usm__chunk_policy_find("energy"),
                              .numbers  = r->desc.policy.numbers,
                              .nnumbers = r->desc.policy.nnumbers};
    double              *watts;
    usm_status           st;

    if (r->nmembers > r->nlocal)
        return usm__fail(USM_E_NOT_SUPPORTED,
                         "the policy energy does not know what units draw: choose another, or run "
                         "without units");
    watts = usm__heap_alloc(r->nmembers * sizeof *watts);
    st    = watts ? USM_OK : usm__fail(USM_E_NO_MEMORY, "no host memory for the watts of a team");
    for (uint32_t i = 0; i < r->nmembers && st == USM_OK; i++) {
        if (r->sim)
            watts[i] = r->places[i].member->watts;
        else
            st = usm__watts_ask(r->places[i].member->name, &watts[i]);
        r->members[i].watts = watts[i];
    }
    p.watts = watts;
    if (st == USM_OK)
        st = usm__chunk_policy_check(&p);
    for (uint32_t i = 0; i < r->nmembers && st == USM_OK; i++)
        r->members[i].is_well &= usm__chunk_policy_takes(&p, i);
    usm__heap_free(watts);
    return st;
}

void usm__graph_run_count_energy(usm__graph_run *r)
{
    usm_graph  *g = r->g;
    usm__meter *m = g->team->meter;

    usm__meter_settle(m, &r->metering);
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const usm_team_kernel *k = g->nodes[i].desc.kernel;

        g->nodes[i].joules = usm__meter_node(m, &r->metering, i, k ? k->trace : 0);
    }
    usm__meter_close(m, &r->metering);
}
