/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The list of launches: see launches.h.  Called by parallel.c and by src/monitor. */
#include "offload/launches.h"

#include "base/fork.h"

static struct {
    usm__mutex lock;
    usm_list   list; /* guarded by lock: usm_parallel_run.link */
} launches = {.lock = USM__MUTEX_INIT(USM__RANK_LAUNCHES, "launches"),
              .list = {&launches.list, &launches.list}};

void usm__launches_add(usm_parallel_run *r)
{
    usm__mutex_lock(&launches.lock);
    usm_list_append(&launches.list, &r->link);
    usm__mutex_unlock(&launches.lock);
}

void usm__launches_remove(usm_parallel_run *r)
{
    usm__mutex_lock(&launches.lock);
    usm_list_remove(&r->link);
    usm__mutex_unlock(&launches.lock);
}

void usm__launches_each(void (*fn)(usm_parallel_run *r, void *arg), void *arg)
{
    usm__mutex_lock(&launches.lock);
    USM_LIST_FOREACH (it, &launches.list) {
        usm_parallel_run *r = usm_container_of(it, usm_parallel_run, link);

        usm__mutex_lock(&r->team->lock);
        usm__mutex_lock(&r->lock);
        fn(r, arg);
        usm__mutex_unlock(&r->lock);
        usm__mutex_unlock(&r->team->lock);
    }
    usm__mutex_unlock(&launches.lock);
}

void usm__launches_fork(usm_fork_phase phase)
{
    if (phase == USM_FORK_CHILD)
        usm_list_init(&launches.list);
    usm__mutex_fork(&launches.lock, phase);
}
