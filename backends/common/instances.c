/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Idle native kernels: a few slots that are swapped atomically, and a list with a lock behind them.
 * Called by the kernel.c of each backend. */
#include "instances.h"

void instances_init(instances *set)
{
    pthread_mutex_init(&set->lock, NULL);
}

void instances_fini(instances *set)
{
    pthread_mutex_destroy(&set->lock);
}

void *instances_take(instances *set)
{
    instance_link *link;

    for (size_t i = 0; i < INSTANCES_FEW; i++) {
        if (!usm_load_relaxed(&set->few[i]))
            continue;
        link = usm_swap_acq_rel(&set->few[i], NULL);
        if (link)
            return link;
    }
    pthread_mutex_lock(&set->lock);
    link = set->more;
    if (link)
        set->more = link->next;
    pthread_mutex_unlock(&set->lock);
    return link;
}

bool instances_put(instances *set, instance_link *link)
{
    for (size_t i = 0; i < INSTANCES_FEW; i++) {
        instance_link *none = NULL;

        if (!usm_load_relaxed(&set->few[i]) && usm_cas_acq_rel(&set->few[i], &none, link))
            return true;
    }
    return false;
}

void instances_keep(instances *set, instance_link *link)
{
    if (instances_put(set, link))
        return;
    pthread_mutex_lock(&set->lock);
    link->next = set->more;
    set->more  = link;
    pthread_mutex_unlock(&set->lock);
}
