/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Trials of launches of usm_parallel(): see launch_sim.h. */
#include "offload/launch_sim.h"

#include "offload/parallel.h"

#include "base/os.h"

#include <string.h>

void usm__tried_call_clear(usm__tried_call *c)
{
    usm__heap_free(c->launches);
    *c = usm__tried_call_none();
}

bool usm__trial_has(const usm_team *team, const usm_team_kernel *k, uint32_t member)
{
    const usm__trial_parallel *t = team->trial;

    return !t || member == t->member || !k->kernels[t->member];
}

static void add_copies(usm__sim_copies *c, uint64_t each, uint64_t besides)
{
    c->n++;
    c->each += each;
    c->besides += besides;
}

/* What lane.c copies for a chunk, where a device cannot use host memory. */
static void find_copies(usm__sim_shape *shape, const usm__plan *plan)
{
    for (size_t i = 0; i < plan->desc.nargs; i++) {
        const usm_split_arg *a    = &plan->desc.args[i];
        uint64_t             each = 0, besides = 0;

        if (a->follow == USM_FOLLOW_WHOLE && a->size)
            add_copies(&shape->whole, 0, a->size);
        if (a->follow == USM_FOLLOW_CHUNK) {
            each    = a->stride;
            besides = (a->before + a->after) * a->stride;
        } else if (a->follow == USM_FOLLOW_PRIVATE) {
            each    = a->leaf ? a->size / a->leaf : 0;
            besides = a->leaf ? 0 : a->size;
        } else {
            continue;
        }
        if (a->follow == USM_FOLLOW_PRIVATE || a->mode & USM_READ)
            add_copies(&shape->in, each, besides);
        if (a->follow == USM_FOLLOW_PRIVATE || a->mode & USM_WRITE)
            add_copies(&shape->out, each, besides);
    }
}

usm_status usm__trial_begin(usm__trial_parallel *t, const usm__plan *plan,
                            usm__schedule_params *params)
{
    usm__tried_call   *call = t->into;
    usm__tried_launch *now;

    if (!usm__heap_room(&call->launches, call->n, &call->cap, sizeof *call->launches))
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a trial of a launch");
    now               = &call->launches[call->n++];
    *now              = (usm__tried_launch){.shape = {.params = *params}};
    now->is_on_member = plan->desc.kernel->kernels[t->member] != NULL;
    if (now->shape.params.nnumbers > USM__SIM_NUMBERS)
        now->shape.params.nnumbers = USM__SIM_NUMBERS;
    if (now->shape.params.nnumbers)
        memcpy(now->shape.numbers, params->numbers,
               now->shape.params.nnumbers * sizeof *now->shape.numbers);
    now->shape.params.numbers = now->shape.params.weights = now->shape.params.watts = NULL;
    find_copies(&now->shape, plan);
    t->grain          = (double)params->total / (double)t->chunks;
    t->grain          = t->grain > 1 ? t->grain : 1;
    params->policy    = usm__chunk_policy_find("fixed");
    params->numbers   = &t->grain;
    params->nnumbers  = 1;
    params->weights   = NULL;
    params->min_chunk = 0;
    return USM_OK;
}

void usm__trial_launched(usm__trial_parallel *t, const usm__ledger_part *parts, uint32_t nmembers,
                         uint64_t wall_ns)
{
    usm__tried_launch *now = &t->into->launches[t->into->n - 1];

    for (uint32_t i = 0; i < nmembers; i++) {
        now->chunks += parts[i].chunks;
        now->items += parts[i].items;
        now->busy_s += (double)parts[i].busy_ns / 1e9;
    }
    now->wall_s = (double)wall_ns / 1e9;
}
